/*
 * Float32 kernels of a policy: the baseline that integers are compared with. C99, static memory only; tanhf, expf,
 * expm1f, log1pf and erff are the C library's. Sums run in the order of the inputs, so a compiler vectorises them only under -ffast-math: a ratio to
 * this baseline means nothing without its flags.
 */
#ifndef QUARL_KERNELS_FLOAT_H
#define QUARL_KERNELS_FLOAT_H

#include <math.h>

#if defined(__GNUC__)
#define QUARL_INLINE static inline __attribute__((always_inline, unused))
#define QUARL_ALIGN __attribute__((aligned(64)))
#define QUARL_HIDDEN __attribute__((visibility("hidden")))
#else
#define QUARL_INLINE static inline
#define QUARL_ALIGN
#define QUARL_HIDDEN
#endif

QUARL_INLINE float quarl_dot(const float *restrict x, const float *restrict weight, int count, float sum)
{
    for (int i = 0; i < count; i++)
        sum += x[i] * weight[i];
    return sum;
}

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

/* Fully connected: weight (outputs, inputs), row by row. */
QUARL_INLINE void quarl_linear(const float *restrict x, float *restrict y, const float *restrict weight,
                               const float *restrict bias, int inputs, int outputs)
{
    for (int o = 0; o < outputs; o++)
        y[o] = quarl_dot(x, weight + (long)o * inputs, inputs, bias[o]);
}

/* One pixel of an unpadded convolution, as in kernels.h. */
QUARL_INLINE void quarl_conv2d(const float *restrict x, float *restrict y, const float *restrict weight,
                               const float *restrict bias, long row, int size, int span, int outputs)
{
    for (int o = 0; o < outputs; o++) {
        float sum = bias[o];
        for (int k = 0; k < size; k++)
            sum = quarl_dot(x + k * row, weight + ((long)o * size + k) * span, span, sum);
        y[o] = sum;
    }
}

#endif
