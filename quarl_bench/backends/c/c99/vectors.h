/*
 * Several rows of weights at once, for processors that multiply bytes in vectors: unsigned by signed ones in 64 bytes
 * (AVX-512 VNNI), or both as numbers of 16 bits in 32 bytes (AVX2). In GCC's and Clang's vectors; the same sums as the
 * loop in kernels.h, which includes this. Compilers vectorise that loop too, but add up the lanes of each row alone,
 * which takes longer than the products of a short row, and with AVX2 they widen every product to 32 bits.
 */
#ifndef QUARL_VECTORS_H
#define QUARL_VECTORS_H

#if defined(__AVX512VNNI__) && defined(QUARL_U8)
#define QUARL_DOT
#define QUARL_ROWS 16
#define QUARL_LANES 16
#define QUARL_STEP 64 /* inputs that are multiplied at once */
#define QUARL_CLASH(inputs) ((inputs) % 4096 == 0) /* rows whole pages apart share few places of the first cache */
#else
#define QUARL_ROWS 8
#define QUARL_LANES 8
#define QUARL_STEP 16
#define QUARL_CLASH(inputs) 0 /* eight rows find places */
#endif
#define QUARL_FEW 4 /* rows, where fewer than QUARL_ROWS are left */
#define QUARL_SHORTEST 64 /* inputs */
typedef int32_t quarl_words __attribute__((vector_size(4 * QUARL_LANES), aligned(4), may_alias));
typedef int32_t quarl_lanes __attribute__((vector_size(4 * QUARL_LANES)));
typedef quarl_byte quarl_inputs __attribute__((vector_size(QUARL_STEP), aligned(1), may_alias));
typedef int8_t quarl_weights __attribute__((vector_size(QUARL_STEP), aligned(1), may_alias));

#ifdef QUARL_DOT
typedef quarl_inputs quarl_part;

QUARL_INLINE quarl_part quarl_load(const quarl_byte *x)
{
    return *(const quarl_inputs *)x;
}

/* Adds the products of 64 bytes, four to each lane. */
QUARL_INLINE quarl_lanes quarl_add_products(quarl_lanes sums, quarl_part x, const int8_t *weight)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "m"(*(const quarl_weights *)weight));
    return sums;
}

/* Lanes a0 a1 a2 a3 and b0 b1 b2 b3 of each quarter become a0+a2 b0+b2 a1+a3 b1+b3. */
QUARL_INLINE quarl_lanes quarl_fold_pair(quarl_lanes a, quarl_lanes b)
{
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
           __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}

/* Of four rows, each quarter's sums side by side. */
QUARL_INLINE quarl_lanes quarl_fold_four(const quarl_lanes *rows)
{
    quarl_lanes a = quarl_fold_pair(rows[0], rows[1]), b = quarl_fold_pair(rows[2], rows[3]);
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}

/* Adds the quarters 0 and 1, and 2 and 3, of both vectors. */
QUARL_INLINE quarl_lanes quarl_fold_quarters(quarl_lanes a, quarl_lanes b)
{
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

/* The sum of each row's lanes. */
QUARL_INLINE quarl_lanes quarl_fold(const quarl_lanes *rows)
{
    quarl_lanes low = quarl_fold_quarters(quarl_fold_four(rows), quarl_fold_four(rows + 4));
    return quarl_fold_quarters(low, quarl_fold_quarters(quarl_fold_four(rows + 8), quarl_fold_four(rows + 12)));
}
#else
typedef int16_t quarl_part __attribute__((vector_size(2 * QUARL_STEP)));
#ifdef QUARL_U8
#define QUARL_WIDEN "vpmovzxbw"
#else
#define QUARL_WIDEN "vpmovsxbw"
#endif

QUARL_INLINE quarl_part quarl_load(const quarl_byte *x)
{
    quarl_part part;
    __asm__(QUARL_WIDEN " %1, %0" : "=x"(part) : "m"(*(const quarl_inputs *)x));
    return part;
}

/* Adds the products of 16 bytes, two to each lane. */
QUARL_INLINE quarl_lanes quarl_add_products(quarl_lanes sums, quarl_part x, const int8_t *weight)
{
    quarl_part w;
    __asm__("vpmovsxbw %1, %0" : "=x"(w) : "m"(*(const quarl_weights *)weight));
    return sums + (quarl_lanes)__builtin_ia32_pmaddwd256(x, w);
}

/* Lanes a0 a1 a2 a3 and b0 b1 b2 b3 of each half become a0+a2 b0+b2 a1+a3 b1+b3. */
QUARL_INLINE quarl_lanes quarl_fold_pair(quarl_lanes a, quarl_lanes b)
{
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) +
           __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}

/* Of four rows, each half's sums side by side. */
QUARL_INLINE quarl_lanes quarl_fold_four(const quarl_lanes *rows)
{
    quarl_lanes a = quarl_fold_pair(rows[0], rows[1]), b = quarl_fold_pair(rows[2], rows[3]);
    return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
           __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}

/* The sum of each row's lanes. */
QUARL_INLINE quarl_lanes quarl_fold(const quarl_lanes *rows)
{
    quarl_lanes low = quarl_fold_four(rows), high = quarl_fold_four(rows + 4);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
}
#endif

/* `count` outputs, QUARL_ROWS at most, of a fully connected layer of QUARL_SHORTEST inputs or more. */
QUARL_INLINE void quarl_sum_rows(const quarl_byte *restrict x, const int8_t *restrict weight,
                                 const int32_t *restrict bias, int32_t *restrict accumulator, int inputs, const int count)
{
    quarl_lanes rows[QUARL_ROWS] = {{0}};
    int i = 0;
    for (; i + QUARL_STEP <= inputs; i += QUARL_STEP) {
        const quarl_part part = quarl_load(x + i);
        for (int row = 0; row < count; row++)
            rows[row] = quarl_add_products(rows[row], part, weight + (long)row * inputs + i);
    }
    const quarl_lanes sums = quarl_fold(rows);
    if (count == QUARL_ROWS)
        *(quarl_words *)accumulator = sums + *(const quarl_words *)bias;
    else
        for (int row = 0; row < count; row++)
            accumulator[row] = sums[row] + bias[row];
    for (int row = 0; i < inputs && row < count; row++) /* what is left of each */
        accumulator[row] += quarl_dot(x + i, weight + (long)row * inputs + i, inputs - i);
}

#endif
