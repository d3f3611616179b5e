/*
 * Float32 kernels of a policy: the baseline that integers are compared with. C99, static memory only; tanhf, expf,
 * expm1f, log1pf and erff are the C library's. Sums run in the order of the inputs.
 */
#ifndef QUARL_KERNELS_FLOAT_H
#define QUARL_KERNELS_FLOAT_H

#include <math.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") /* which Clang does unasked: a product and its sum are rounded once */
#endif

#if defined(__GNUC__)
#define QUARL_INLINE static inline __attribute__((always_inline, unused))
#define QUARL_ALIGN __attribute__((aligned(64)))
#define QUARL_HIDDEN __attribute__((visibility("hidden")))
#else
#define QUARL_INLINE static inline
#define QUARL_ALIGN
#define QUARL_HIDDEN
#endif

QUARL_INLINE float quarl_identity(float x)
{
    return x;
}

QUARL_INLINE float quarl_relu(float x)
{
    return x > 0.0f ? x : 0.0f;
}

QUARL_INLINE float quarl_elu(float x)
{
    return x > 0.0f ? x : expm1f(x);
}

QUARL_INLINE float quarl_selu(float x)
{
    return 1.05070098735548f * (x > 0.0f ? x : 1.67326324235438f * expm1f(x));
}

QUARL_INLINE float quarl_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

QUARL_INLINE float quarl_silu(float x)
{
    return x / (1.0f + expf(-x));
}

QUARL_INLINE float quarl_gelu(float x)
{
    return 0.5f * x * (1.0f + erff(0.707106781186548f * x));
}

QUARL_INLINE float quarl_gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.797884560802865f * (x + 0.044715f * x * x * x)));
}

QUARL_INLINE float quarl_leaky_relu(float x)
{
    return x > 0.0f ? x : 0.01f * x;
}

QUARL_INLINE float quarl_softplus(float x)
{
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}

QUARL_INLINE float quarl_hardtanh(float x)
{
    return x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
}

QUARL_INLINE float quarl_relu6(float x)
{
    return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
}

QUARL_INLINE float quarl_hardswish(float x)
{
    return x * quarl_relu6(x + 3.0f) / 6.0f;
}

QUARL_INLINE float quarl_softsign(float x)
{
    return x / (1.0f + fabsf(x));
}

/*
 * Weights are packed for vectors of outputs: 16 outputs of the first input, of the second, and so on, then the next 16;
 * the outputs that are left over, fewer than 16, in the same way. So every sum runs in the order of its inputs. Where
 * there are no vectors, or with QUARL_SCALAR, four outputs share each input that is loaded.
 */
#define QUARL_PACK 16

#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && !defined(QUARL_SCALAR)
#define QUARL_SCALAR
#endif

#if defined(__GNUC__) && !defined(QUARL_SCALAR)
#if defined(__AVX512F__)
#define QUARL_WIDTH 16
#define QUARL_TILE 8 /* packs whose sums a processor has registers for */
#elif defined(__AVX__)
#define QUARL_WIDTH 8
#define QUARL_TILE 4
#else
#define QUARL_WIDTH 4
#define QUARL_TILE 2
#endif
#define QUARL_PARTS (QUARL_PACK / QUARL_WIDTH)
typedef float quarl_lanes __attribute__((vector_size(4 * QUARL_WIDTH), aligned(4), may_alias));

/* `pixels` times `packs` packs of outputs, QUARL_TILE together at most; x and y are `from` and `to` numbers apart by pixel. */
QUARL_INLINE void quarl_sum_packs(const float *restrict x, float *restrict y, const float *restrict weight,
                                  const float *restrict bias, int inputs, int from, int to, const int pixels,
                                  const int packs)
{
    quarl_lanes sums[QUARL_TILE][QUARL_PARTS];
    for (int i = 0; i < pixels * packs; i++)
        for (int part = 0; part < QUARL_PARTS; part++)
            sums[i][part] = ((const quarl_lanes *)(bias + i % packs * QUARL_PACK))[part];
    for (int k = 0; k < inputs; k++)
        for (int i = 0; i < pixels * packs; i++) {
            const float value = x[i / packs * from + k];
            const quarl_lanes *row = (const quarl_lanes *)(weight + ((long)(i % packs) * inputs + k) * QUARL_PACK);
            for (int part = 0; part < QUARL_PARTS; part++)
                sums[i][part] += value * row[part];
        }
    for (int i = 0; i < pixels * packs; i++)
        for (int part = 0; part < QUARL_PARTS; part++)
            ((quarl_lanes *)(y + i / packs * to + i % packs * QUARL_PACK))[part] = sums[i][part];
}

/* Fully connected. */
QUARL_INLINE void quarl_linear(const float *restrict x, float *restrict y, const float *restrict weight,
                               const float *restrict bias, int inputs, int outputs)
{
    int o = 0;
    for (; o + QUARL_TILE * QUARL_PACK <= outputs; o += QUARL_TILE * QUARL_PACK)
        quarl_sum_packs(x, y + o, weight + (long)o * inputs, bias + o, inputs, 0, 0, 1, QUARL_TILE);
    for (; o + QUARL_PACK <= outputs; o += QUARL_PACK)
        quarl_sum_packs(x, y + o, weight + (long)o * inputs, bias + o, inputs, 0, 0, 1, 1);
    const int left = outputs - o;
    for (int i = 0; i < left; i++) {
        float sum = bias[o + i];
        for (int k = 0; k < inputs; k++)
            sum += x[k] * weight[(long)o * inputs + (long)k * left + i];
        y[o + i] = sum;
    }
}

/*
 * Unpadded convolution of an image (height, width, channels) whose rows are `pitch` numbers apart: `rows` times
 * `columns` pixels, whose upper left corners are `down` and `right` apart, each of `size` rows of `span` inputs. `patch`
 * has place for the inputs of QUARL_TILE pixels.
 */
QUARL_INLINE void quarl_conv2d(const float *restrict x, float *restrict y, const float *restrict weight,
                               const float *restrict bias, float *restrict patch, int rows, int columns, int down,
                               int right, int pitch, int size, int span, int outputs)
{
    const int inputs = size * span, whole = outputs - outputs % QUARL_PACK;
    for (int first = 0; first < rows * columns; first += QUARL_TILE) {
        const int count = rows * columns - first < QUARL_TILE ? rows * columns - first : QUARL_TILE;
        float *out = y + first * outputs;
        for (int pixel = 0; pixel < count; pixel++)
            for (int k = 0; k < size; k++) {
                const float *corner = x + (first + pixel) / columns * down + (first + pixel) % columns * right + k * pitch;
                for (int i = 0; i < span; i++)
                    patch[pixel * inputs + k * span + i] = corner[i];
            }
        for (int o = 0; count == QUARL_TILE && o < whole; o += QUARL_PACK)
            quarl_sum_packs(patch, out + o, weight + (long)o * inputs, bias + o, inputs, inputs, outputs, QUARL_TILE, 1);
        for (int pixel = 0; pixel < count; pixel++) {
            const int done = count == QUARL_TILE ? whole : 0;
            quarl_linear(patch + pixel * inputs, out + pixel * outputs + done, weight + (long)done * inputs, bias + done,
                         inputs, outputs - done);
        }
    }
}
#else /* no vectors: four outputs share an input */
#define QUARL_TILE 1
/* Sums over `size` rows of `span` inputs, `pitch` numbers apart. */
QUARL_INLINE void quarl_sum_window(const float *restrict x, float *restrict y, const float *restrict weight,
                                   const float *restrict bias, int pitch, int size, int span, int outputs)
{
    for (int o = 0; o < outputs;) {
        const int place = o % QUARL_PACK, rest = outputs - o + place, lanes = rest < QUARL_PACK ? rest : QUARL_PACK;
        const float *row = weight + (long)(o - place) * size * span + place;
        if (outputs < 4 || place + 4 > lanes) { /* the first is for compilers, which warn of what is never read */
            float sum = bias[o];
            for (int k = 0; k < size; k++)
                for (int i = 0; i < span; i++, row += lanes)
                    sum += x[k * pitch + i] * *row;
            y[o++] = sum;
            continue;
        }
        float a = bias[o], b = bias[o + 1], c = bias[o + 2], d = bias[o + 3];
        for (int k = 0; k < size; k++)
            for (int i = 0; i < span; i++, row += lanes) {
                const float value = x[k * pitch + i];
                a += value * row[0];
                b += value * row[1];
                c += value * row[2];
                d += value * row[3];
            }
        y[o] = a, y[o + 1] = b, y[o + 2] = c, y[o + 3] = d;
        o += 4;
    }
}

QUARL_INLINE void quarl_linear(const float *restrict x, float *restrict y, const float *restrict weight,
                               const float *restrict bias, int inputs, int outputs)
{
    quarl_sum_window(x, y, weight, bias, 0, 1, inputs, outputs);
}

QUARL_INLINE void quarl_conv2d(const float *restrict x, float *restrict y, const float *restrict weight,
                               const float *restrict bias, float *restrict patch, int rows, int columns, int down,
                               int right, int pitch, int size, int span, int outputs)
{
    (void)patch;
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++, y += outputs)
            quarl_sum_window(x + row * down + column * right, y, weight, bias, pitch, size, span, outputs);
}
#endif

#endif
