/*
 * Integer kernels of a policy. C99, static memory only, no library; no floating point unless QUARL_FLOAT asks for it.
 *
 * How activations are stored (same numbers either way):
 *     QUARL_U8   unsigned bytes, lowest integer at 0: for x86, whose dot product is of unsigned and signed bytes
 *     QUARL_S8   signed bytes: for ARM, whose dot product is of signed bytes
 *
 * How accumulators become the next layer's integers (same numbers either way): rint((float)accumulator * scale), ties
 * to even, in IEEE 754 single precision
 *     default       by that formula's three roundings on 64-bit integers
 *     QUARL_FLOAT   by that formula, for targets with a floating point unit; never with -ffast-math
 *
 * How sums are computed (same numbers in every way) is the compiler's choice for its target: several rows or columns at
 * once (vectors.h, columns.h), row by row in loops that it vectorises, or, with QUARL_SCALAR, four outputs per loaded
 * input.
 */
#ifndef QUARL_KERNELS_H
#define QUARL_KERNELS_H

#include <stdint.h>

#if !defined(QUARL_U8) && !defined(QUARL_S8)
#if defined(__x86_64__) || defined(__i386__)
#define QUARL_U8
#else
#define QUARL_S8
#endif
#endif

#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && !defined(QUARL_SCALAR)
#define QUARL_SCALAR /* a processor without vectors: what counts is how often a number is loaded */
#endif

#ifdef QUARL_FLOAT
#include <float.h>
#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "QUARL_FLOAT rounds as IEEE 754 single precision does: no -ffast-math, no wider registers"
#endif
#endif

#if defined(__GNUC__)
#define QUARL_INLINE static inline __attribute__((always_inline, unused))
#define QUARL_ALIGN __attribute__((aligned(64)))
#define QUARL_HIDDEN __attribute__((visibility("hidden")))
#define QUARL_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define QUARL_HIDE(value) __asm__("" : "+m"(value)) /* from the compiler, which then knows no value of it */
#else
#define QUARL_INLINE static inline
#define QUARL_ALIGN
#define QUARL_HIDDEN
#define QUARL_UNLIKELY(condition) (condition)
#define QUARL_HIDE(value) ((void)0)
#endif

#ifdef QUARL_U8
typedef uint8_t quarl_byte;
#define QUARL_OFFSET(low, high) (-(low)) /* stored = integer + offset, for integers low .. high */
#else
typedef int8_t quarl_byte;
#define QUARL_OFFSET(low, high) ((high) > 127 ? -128 : 0)
#endif

/* Where a layer's integers lie, and how they are stored. */
typedef struct {
    int32_t zero_point, lowest, highest, offset;
} quarl_format;
#define QUARL_FORMAT(zero_point, lowest, highest, offset) ((quarl_format){zero_point, lowest, highest, offset})

/* Sums of `count` products. Wraps around like the processor does; the exporter proves that the total fits. */
QUARL_INLINE int32_t quarl_dot(const quarl_byte *restrict x, const int8_t *restrict weight, int count)
{
    int32_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += x[i] * weight[i];
    return sum;
}

#if defined(__GNUC__) && defined(__AVX2__) && !defined(QUARL_SCALAR) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define QUARL_VECTORS
#include "vectors.h"
#include "columns.h"
#endif
#endif

#ifndef QUARL_FLOAT
/* Nearest even multiple of 2^shift, divided by it; 0 <= shift < 64. */
QUARL_INLINE uint64_t quarl_shift_even(uint64_t value, int shift)
{
    if (shift == 0)
        return value;
    uint64_t quotient = value >> shift, rest = value & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
    return quotient + (rest > half || (rest == half && (quotient & 1)));
}

/* Nearest even number of 24 bits; adds what it shifts out to *lost. */
QUARL_INLINE uint64_t quarl_to_24_bits(uint64_t value, int *lost)
{
    int shift = 0;
#if defined(__GNUC__)
    if (value >> 24)
        shift = 40 - __builtin_clzll(value);
#else
    while (value >> shift >> 24)
        shift++;
#endif
    value = quarl_shift_even(value, shift);
    if (value >> 24) { /* rounded up to 2^24 */
        value >>= 1;
        shift++;
    }
    *lost += shift;
    return value;
}

/* The three roundings of float32: accumulator, product, whole number. */
static int32_t quarl_round_slowly(uint32_t magnitude, uint32_t multiplier, int shift)
{
    int lost = 0;
    uint64_t value = quarl_to_24_bits(magnitude, &lost);
    value = quarl_to_24_bits(value * multiplier, &lost);
    shift -= lost;
    if (shift > 63)
        return 0;
    value = shift > 0 ? quarl_shift_even(value, shift) : shift < -15 ? value * 4096 : value << -shift;
    return value > 4096 ? 4096 : (int32_t)value; /* the caller clips to 8 bits */
}

/* rint((float)accumulator * multiplier * 2^-shift) by one rounding of the exact product; shift >= 16. */
QUARL_INLINE int32_t quarl_round_once(int32_t accumulator, uint32_t multiplier, int shift, uint64_t *distance)
{
    uint32_t magnitude = accumulator < 0 ? 0u - (uint32_t)accumulator : (uint32_t)accumulator;
    uint64_t near = UINT64_C(1) << (shift - 15);
    uint64_t up = (uint64_t)magnitude * multiplier + (UINT64_C(1) << (shift - 1));
    *distance = ((up + near) & ((UINT64_C(1) << shift) - 1)) >> (shift - 14); /* 0 in the neighbourhood of a tie */
    int32_t whole = up >> shift > 4096 ? 4096 : (int32_t)(up >> shift); /* the caller clips to 8 bits */
    return accumulator < 0 ? -whole : whole;
}

QUARL_INLINE quarl_byte quarl_clip(int32_t q, quarl_format format)
{
    q += format.zero_point;
    q = q < format.lowest ? format.lowest : q > format.highest ? format.highest : q;
    return (quarl_byte)(q + format.offset);
}

/*
 * y = clip(round(accumulator * scale) + zero point); one scale for all, or one per channel.
 *
 * One rounding gives what three give, except where the product lies so close to a tie that the 24 bits of a float can
 * move it across, and where the accumulator has more than 24 bits. So all are rounded once, in a loop that compilers
 * vectorise, and the few that may differ again.
 */
QUARL_INLINE void quarl_requantize(const int32_t *restrict accumulator, quarl_byte *restrict y, int count,
                                   const int32_t *restrict multiplier, const int8_t *restrict shift, int per_channel,
                                   quarl_format format)
{
    int doubtful = 0;
    for (int i = 0; i < count; i++) {
        int channel = per_channel ? i : 0;
        uint64_t distance;
        int32_t bound = accumulator[i] >= 1 << 24 || accumulator[i] <= -(1 << 24);
        int right = shift[channel] < 16 ? 16 : shift[channel];
        y[i] = quarl_clip(quarl_round_once(accumulator[i], (uint32_t)multiplier[channel], right, &distance), format);
        doubtful |= bound | (distance == 0) | (shift[channel] < 16);
    }
    if (!doubtful)
        return;
    for (int i = 0; i < count; i++) {
        int channel = per_channel ? i : 0;
        int32_t sum = accumulator[i], whole;
        uint32_t magnitude = sum < 0 ? 0u - (uint32_t)sum : (uint32_t)sum;
        uint64_t distance = 0;
        if (magnitude < 1 << 24 && shift[channel] >= 16)
            quarl_round_once(sum, (uint32_t)multiplier[channel], shift[channel], &distance);
        if (distance == 0) {
            whole = quarl_round_slowly(magnitude, (uint32_t)multiplier[channel], shift[channel]);
            y[i] = quarl_clip(sum < 0 ? -whole : whole, format);
        }
    }
}
#define QUARL_REQUANTIZE(accumulator, y, count, layer, per_channel, format)                                            \
    quarl_requantize(accumulator, y, count, layer##_multiplier, layer##_shift, per_channel, format)
#else
QUARL_INLINE void quarl_requantize(const int32_t *restrict accumulator, quarl_byte *restrict y, int count,
                                   const float *restrict scale, int per_channel, quarl_format format)
{
    float lowest = (float)(format.lowest - format.zero_point), highest = (float)(format.highest - format.zero_point);
    QUARL_HIDE(lowest); /* of two constants, GCC makes branches, which it does not vectorise */
    QUARL_HIDE(highest);
    for (int i = 0; i < count; i++) {
        float value = (float)accumulator[i] * scale[per_channel ? i : 0];
        value = value < lowest ? lowest : value;
        value = value > highest ? highest : value;
        value = (value + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23: to the nearest whole number, ties to even */
        y[i] = (quarl_byte)((int32_t)value + format.zero_point + format.offset);
    }
}
#define QUARL_REQUANTIZE(accumulator, y, count, layer, per_channel, format)                                            \
    quarl_requantize(accumulator, y, count, layer##_scale, per_channel, format)
#endif

/*
 * y = lowest integer + number of levels whose last accumulator below them is passed; `below` has `levels` ascending
 * numbers per channel, or once for all.
 */
QUARL_INLINE void quarl_apply_thresholds(const int32_t *restrict accumulator, quarl_byte *restrict y, int count,
                                         const int32_t *restrict below, int levels, int per_channel, int32_t minimum,
                                         quarl_format format)
{
    for (int i = 0; i < count; i++) {
        const int32_t *row = below + (per_channel ? (long)i * levels : 0);
        int passed = 0, left = levels;
        while (left > 0) { /* bisection: the first `passed` levels are reached */
            int half = (left + 1) / 2;
            if (accumulator[i] > row[passed + half - 1]) {
                passed += half;
                left -= half;
            } else {
                left = half - 1;
            }
        }
        int32_t q = minimum + passed;
        y[i] = (quarl_byte)((q < format.lowest ? format.lowest : q) + format.offset);
    }
}

/* Replaces each integer by its entry in a table that begins at `minimum`. */
QUARL_INLINE void quarl_look_up(quarl_byte *y, int count, const int16_t *restrict table, int32_t minimum, int32_t offset,
                                int32_t table_offset)
{
    for (int i = 0; i < count; i++)
        y[i] = (quarl_byte)(table[(int32_t)y[i] - offset - minimum] + table_offset);
}

#ifdef QUARL_SCALAR
/* Sums over `size` rows of `span` inputs, `row` bytes apart; weight (outputs, size, span). Four outputs share an input. */
QUARL_INLINE void quarl_sum_window(const quarl_byte *restrict x, const int8_t *restrict weight,
                                   const int32_t *restrict bias, int32_t *restrict accumulator, long row, int size,
                                   int span, int outputs)
{
    const long inputs = (long)size * span;
    const int fours = outputs - outputs % 4;
    for (int o = 0; o < fours; o += 4) {
        const int8_t *part = weight + o * inputs;
        int32_t a = bias[o], b = bias[o + 1], c = bias[o + 2], d = bias[o + 3];
        for (int k = 0; k < size; k++, part += span)
            for (int i = 0; i < span; i++) {
                const int32_t value = x[k * row + i];
                a += value * part[i];
                b += value * part[i + inputs];
                c += value * part[i + 2 * inputs];
                d += value * part[i + 3 * inputs];
            }
        accumulator[o] = a, accumulator[o + 1] = b, accumulator[o + 2] = c, accumulator[o + 3] = d;
    }
    for (int o = fours; o < outputs; o++) {
        int32_t sum = bias[o];
        for (int k = 0; k < size; k++)
            sum += quarl_dot(x + k * row, weight + o * inputs + (long)k * span, span);
        accumulator[o] = sum;
    }
}
#endif

/* Fully connected: weight (outputs, inputs), row by row. */
QUARL_INLINE void quarl_sum_linear(const quarl_byte *restrict x, const int8_t *restrict weight,
                                   const int32_t *restrict bias, int32_t *restrict accumulator, int inputs, int outputs)
{
#ifdef QUARL_SCALAR
    quarl_sum_window(x, weight, bias, accumulator, 0, 1, inputs, outputs);
#else
    int tiled = 0;
#ifdef QUARL_VECTORS
    if (inputs >= QUARL_SHORTEST && !QUARL_CLASH(inputs))
        tiled = outputs - outputs % QUARL_FEW;
    const int whole = tiled - tiled % QUARL_ROWS;
    for (int o = 0; o < whole; o += QUARL_ROWS)
        quarl_sum_rows(x, weight + (long)o * inputs, bias + o, accumulator + o, inputs, QUARL_ROWS);
    for (int o = whole; o < tiled; o += QUARL_FEW)
        quarl_sum_rows(x, weight + (long)o * inputs, bias + o, accumulator + o, inputs, QUARL_FEW);
#endif
    for (int o = tiled; o < outputs; o++)
        accumulator[o] = bias[o] + quarl_dot(x, weight + (long)o * inputs, inputs);
#endif
}

/*
 * Fully connected with few inputs: weight (inputs, outputs), so that vectors hold outputs; a processor without vectors
 * keeps one sum in a register.
 */
QUARL_INLINE void quarl_sum_narrow(const quarl_byte *restrict x, const int8_t *restrict weight,
                                   const int32_t *restrict bias, int32_t *restrict accumulator, int inputs, int outputs)
{
#if defined(QUARL_SCALAR) || defined(QUARL_VECTORS)
    int tiled = 0;
#ifdef QUARL_VECTORS
    tiled = outputs - outputs % QUARL_COLUMNS;
    const int whole = outputs - outputs % QUARL_LINE;
    for (int o = 0; o < whole; o += QUARL_LINE)
        quarl_sum_columns(x, weight + o, bias + o, accumulator + o, inputs, outputs, QUARL_LINE);
    for (int o = whole; o < tiled; o += QUARL_COLUMNS)
        quarl_sum_columns(x, weight + o, bias + o, accumulator + o, inputs, outputs, QUARL_COLUMNS);
#endif
    for (int o = tiled; o < outputs; o++) {
        int32_t sum = bias[o];
        for (int i = 0; i < inputs; i++)
            sum += x[i] * weight[(long)i * outputs + o];
        accumulator[o] = sum;
    }
#else
    for (int o = 0; o < outputs; o++)
        accumulator[o] = bias[o];
    for (int i = 0; i < inputs; i++)
        for (int o = 0; o < outputs; o++)
            accumulator[o] += x[i] * weight[(long)i * outputs + o];
#endif
}

/*
 * One pixel of an unpadded convolution: x points at its upper left corner in an image (height, width, channels) whose
 * rows are `row` bytes apart; weight (outputs, size, span), where span = kernel width * channels. `patch` has place for
 * the pixel's inputs, which lie side by side there.
 */
QUARL_INLINE void quarl_sum_conv2d(const quarl_byte *restrict x, const int8_t *restrict weight,
                                   const int32_t *restrict bias, int32_t *restrict accumulator,
                                   quarl_byte *restrict patch, long row, int size, int span, int outputs)
{
#ifdef QUARL_SCALAR
    (void)patch;
    quarl_sum_window(x, weight, bias, accumulator, row, size, span, outputs);
#else
    for (int k = 0; k < size; k++)
        for (int i = 0; i < span; i++)
            patch[k * span + i] = x[k * row + i];
    quarl_sum_linear(patch, weight, bias, accumulator, size * span, outputs);
#endif
}

#endif
