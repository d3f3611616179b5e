/*
 * Sixteen rows of weights at once, for processors that multiply unsigned by signed bytes in vectors of 64 bytes (AVX-512
 * VNNI), in GCC's and Clang's vectors; the same sums as the loop in kernels.h, which includes this. Compilers vectorise
 * that loop too, but add up the lanes of each row alone, which takes longer than the products of a short row.
 */
#ifndef QUARL_VECTORS_H
#define QUARL_VECTORS_H

#define QUARL_ROWS 16
#define QUARL_SHORTEST 64 /* inputs: one vector */
#define QUARL_PAGE 4096 /* bytes: rows that are whole pages apart share few places of the first cache */
typedef uint8_t quarl_bytes __attribute__((vector_size(64), aligned(1), may_alias));
typedef int32_t quarl_words __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t quarl_lanes __attribute__((vector_size(64)));

/* Adds the products of 64 bytes, four to each lane. */
QUARL_INLINE quarl_lanes quarl_add_products(quarl_lanes sums, quarl_bytes x, const int8_t *weight)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "m"(*(const quarl_bytes *)weight));
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

/* QUARL_ROWS outputs of a fully connected layer, of QUARL_SHORTEST inputs or more. */
QUARL_INLINE void quarl_sum_rows(const quarl_byte *restrict x, const int8_t *restrict weight,
                                 const int32_t *restrict bias, int32_t *restrict accumulator, int inputs)
{
    const int width = (int)sizeof(quarl_bytes);
    quarl_lanes rows[QUARL_ROWS] = {{0}};
    int i = 0;
    for (; i + width <= inputs; i += width) {
        const quarl_bytes part = *(const quarl_bytes *)(x + i);
        for (int row = 0; row < QUARL_ROWS; row++)
            rows[row] = quarl_add_products(rows[row], part, weight + (long)row * inputs + i);
    }
    quarl_lanes low = quarl_fold_quarters(quarl_fold_four(rows), quarl_fold_four(rows + 4));
    quarl_lanes high = quarl_fold_quarters(quarl_fold_four(rows + 8), quarl_fold_four(rows + 12));
    *(quarl_words *)accumulator = quarl_fold_quarters(low, high) + *(const quarl_words *)bias;
    for (int row = 0; i < inputs && row < QUARL_ROWS; row++) /* what is left of each */
        accumulator[row] += quarl_dot(x + i, weight + (long)row * inputs + i, inputs - i);
}

#endif
