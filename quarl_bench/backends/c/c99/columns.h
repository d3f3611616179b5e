/*
 * Fully connected layers with few inputs, for processors with AVX2: vectors hold outputs, whose weights lie side by side,
 * and two inputs are multiplied at once. The same sums as the loop in kernels.h, which includes this.
 */
#ifndef QUARL_COLUMNS_H
#define QUARL_COLUMNS_H

#define QUARL_COLUMNS 16 /* outputs */
#define QUARL_LINE 64 /* outputs whose weights are a line of the cache */
typedef int8_t quarl_few __attribute__((vector_size(16), aligned(1), may_alias));
typedef int16_t quarl_halves __attribute__((vector_size(32)));
typedef int32_t quarl_eight __attribute__((vector_size(32)));
typedef int32_t quarl_place __attribute__((vector_size(32), aligned(4), may_alias));

QUARL_INLINE quarl_halves quarl_widen(const int8_t *weight)
{
    quarl_halves wide;
    __asm__("vpmovsxbw %1, %0" : "=x"(wide) : "m"(*(const quarl_few *)weight));
    return wide;
}

/* Adds a pair of inputs times eight pairs of weights. */
QUARL_INLINE quarl_eight quarl_add_pairs(quarl_eight sums, quarl_halves weights, quarl_eight pair)
{
    return sums + (quarl_eight)__builtin_ia32_pmaddwd256(weights, (quarl_halves)pair);
}

/* `count` outputs, QUARL_LINE or QUARL_COLUMNS; weight (inputs, outputs). */
QUARL_INLINE void quarl_sum_columns(const quarl_byte *restrict x, const int8_t *restrict weight,
                                    const int32_t *restrict bias, int32_t *restrict accumulator, int inputs, int outputs,
                                    const int count)
{
    quarl_eight low[QUARL_LINE / QUARL_COLUMNS] = {{0}}, high[QUARL_LINE / QUARL_COLUMNS] = {{0}};
    for (int i = 0; i < inputs; i += 2) {
        const int next = i + 1 < inputs ? i + 1 : i; /* the last of an odd number has nothing beside it, times 0 */
        const uint32_t second = next > i ? (uint32_t)(uint16_t)x[next] << 16 : 0;
        const int32_t both = (int32_t)((uint16_t)x[i] | second);
        const quarl_eight pair = {both, both, both, both, both, both, both, both};
        for (int k = 0; k < count / QUARL_COLUMNS; k++) {
            const quarl_halves a = quarl_widen(weight + (long)i * outputs + k * QUARL_COLUMNS);
            const quarl_halves b = quarl_widen(weight + (long)next * outputs + k * QUARL_COLUMNS);
            low[k] = quarl_add_pairs(
                low[k], __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27), pair);
            high[k] = quarl_add_pairs(
                high[k], __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31), pair);
        }
    }
    for (int k = 0; k < count / QUARL_COLUMNS; k++) {
        const int o = k * QUARL_COLUMNS;
        *(quarl_place *)(accumulator + o) =
            __builtin_shufflevector(low[k], high[k], 0, 1, 2, 3, 8, 9, 10, 11) + *(const quarl_place *)(bias + o);
        *(quarl_place *)(accumulator + o + 8) =
            __builtin_shufflevector(low[k], high[k], 4, 5, 6, 7, 12, 13, 14, 15) + *(const quarl_place *)(bias + o + 8);
    }
}

#endif
