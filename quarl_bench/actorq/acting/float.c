/*
 * A float policy whose weights are data, of float32 or, in half the memory, of float16 that is widened as it is read:
 * the controls of integer.c, with the same four rows side by side. Compiled with leave to reorder sums, without which
 * no compiler vectorises them.
 */
#include <stdint.h>
#include <string.h>

#include "kernels_float.h"

#if defined(__F16C__) && defined(__AVX512F__)
#include <immintrin.h>
#define ACTOR_LANES 16
typedef __m512 actor_floats;
#define ACTOR_LOAD(from) _mm512_loadu_ps(from)
#define ACTOR_WIDEN(from) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from)))
#define ACTOR_ADD_PRODUCTS(x, y, sums) _mm512_fmadd_ps(x, y, sums)
#define ACTOR_STORE(to, from) _mm512_storeu_ps(to, from)
#elif defined(__F16C__) && defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define ACTOR_LANES 8
typedef __m256 actor_floats;
#define ACTOR_LOAD(from) _mm256_loadu_ps(from)
#define ACTOR_WIDEN(from) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from)))
#define ACTOR_ADD_PRODUCTS(x, y, sums) _mm256_fmadd_ps(x, y, sums)
#define ACTOR_STORE(to, from) _mm256_storeu_ps(to, from)
#endif

typedef struct {
    const void *weight; /* (outputs, inputs), float32 or float16 */
    const float *bias;
    int32_t inputs, outputs, activation, half; /* activation: 0 none, 1 relu, 2 tanh */
} actor_layer;

void actor_run(const actor_layer *layers, int count, const float *input, float *output, float *from, float *to);

static void actor_linear(const float *restrict x, float *restrict y, const actor_layer *layer)
{
    const int inputs = layer->inputs, outputs = layer->outputs;
    const float *weight = layer->weight;
    int o = 0;
    for (; o + 4 <= outputs; o += 4) {
        const float *restrict row = weight + (long)o * inputs;
        float a = 0, b = 0, c = 0, d = 0;
        for (int i = 0; i < inputs; i++) {
            a += x[i] * row[i];
            b += x[i] * row[i + (long)inputs];
            c += x[i] * row[i + 2L * inputs];
            d += x[i] * row[i + 3L * inputs];
        }
        y[o] = layer->bias[o] + a;
        y[o + 1] = layer->bias[o + 1] + b;
        y[o + 2] = layer->bias[o + 2] + c;
        y[o + 3] = layer->bias[o + 3] + d;
    }
    for (; o < outputs; o++) {
        float sum = layer->bias[o];
        for (int i = 0; i < inputs; i++)
            sum += x[i] * weight[(long)o * inputs + i];
        y[o] = sum;
    }
}

/* IEEE 754 binary16 to binary32. */
static float actor_widen(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff, bits;
    float value;
    if (rest >= 0x7c00)
        bits = sign | 0x7f800000 | (rest & 0x3ff) << 13;
    else if (rest >= 0x400)
        bits = sign | ((rest << 13) + 0x38000000);
    else { /* subnormal: a multiple of 2^-24 */
        value = (float)rest * 5.9604644775390625e-8f;
        return sign ? -value : value;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void actor_linear_half(const float *restrict x, float *restrict y, const actor_layer *layer)
{
    const int inputs = layer->inputs, outputs = layer->outputs;
    for (int o = 0; o < outputs; o++) {
        const uint16_t *restrict row = (const uint16_t *)layer->weight + (long)o * inputs;
        float sum = layer->bias[o];
        int i = 0;
#ifdef ACTOR_LANES
        actor_floats sums[4] = {{0}};
        float lanes[4 * ACTOR_LANES];
        for (; i + 4 * ACTOR_LANES <= inputs; i += 4 * ACTOR_LANES)
            for (int part = 0; part < 4; part++) {
                const int at = i + part * ACTOR_LANES;
                sums[part] = ACTOR_ADD_PRODUCTS(ACTOR_LOAD(x + at), ACTOR_WIDEN(row + at), sums[part]);
            }
        for (int part = 0; part < 4; part++)
            ACTOR_STORE(lanes + part * ACTOR_LANES, sums[part]);
        for (int lane = 0; lane < 4 * ACTOR_LANES; lane++)
            sum += lanes[lane];
#endif
        for (; i < inputs; i++)
            sum += x[i] * actor_widen(row[i]);
        y[o] = sum;
    }
}

/* output = net(input); `from` and `to` hold the widest activation each. */
void actor_run(const actor_layer *layers, int count, const float *input, float *output, float *from, float *to)
{
    memcpy(from, input, sizeof(float) * (size_t)layers[0].inputs);
    for (int index = 0; index < count; index++) {
        const actor_layer *layer = layers + index;
        if (layer->half)
            actor_linear_half(from, to, layer);
        else
            actor_linear(from, to, layer);
        for (int i = 0; layer->activation == 1 && i < layer->outputs; i++)
            to[i] = quarl_relu(to[i]);
        for (int i = 0; layer->activation == 2 && i < layer->outputs; i++)
            to[i] = tanhf(to[i]);
        float *swap = from;
        from = to;
        to = swap;
    }
    memcpy(output, from, sizeof(float) * (size_t)layers[count - 1].outputs);
}
