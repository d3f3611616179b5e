/*
 * An integer policy whose weights are data: one compilation serves every broadcast. Same numbers as the source that
 * `quarl deploy` writes, because the kernels are the same (deploy/c99/kernels.h); only the dot products of four rows
 * run side by side.
 */
#include <math.h>

#include "kernels.h"

typedef struct {
    const int8_t *weight;   /* (outputs, inputs) */
    const int32_t *bias;    /* zero point and storage offset of the input folded in */
    const float *scale;     /* one, or one per output */
    const int16_t *table;   /* of a tanh, or NULL */
    int32_t inputs, outputs, per_channel;
    int32_t zero_point, lowest, highest, offset; /* of the output, in front of a tanh */
    int32_t table_minimum, table_offset;
} actor_layer;

void actor_run(const actor_layer *layers, int count, const float *input, float *output, const float *scales,
               const int32_t *formats, int32_t *accumulator, quarl_byte *from, quarl_byte *to);

static void actor_sum(const quarl_byte *restrict x, const actor_layer *layer, int32_t *restrict accumulator)
{
    const int inputs = layer->inputs, outputs = layer->outputs;
    int o = 0;
#if !defined(QUARL_VECTORS) || defined(QUARL_DOT) /* with AVX2 alone, tiles of vectors.h take a quarter of the time */
    for (; o + 4 <= outputs; o += 4) {
        const int8_t *restrict row = layer->weight + (long)o * inputs;
        int32_t a = 0, b = 0, c = 0, d = 0;
        for (int i = 0; i < inputs; i++) {
            a += x[i] * row[i];
            b += x[i] * row[i + (long)inputs];
            c += x[i] * row[i + 2L * inputs];
            d += x[i] * row[i + 3L * inputs];
        }
        accumulator[o] = layer->bias[o] + a;
        accumulator[o + 1] = layer->bias[o + 1] + b;
        accumulator[o + 2] = layer->bias[o + 2] + c;
        accumulator[o + 3] = layer->bias[o + 3] + d;
    }
#endif
    quarl_sum_linear(x, layer->weight + (long)o * inputs, layer->bias + o, accumulator + o, inputs, outputs - o);
}

/*
 * output = dequantize(net(quantize(input))). `scales` are 1 / input scale and the output scale; `formats` the input's
 * zero point, minimum, maximum and offset, then the output's zero point and offset. `from` and `to` hold the widest
 * activation each.
 */
void actor_run(const actor_layer *layers, int count, const float *input, float *output, const float *scales,
               const int32_t *formats, int32_t *accumulator, quarl_byte *from, quarl_byte *to)
{
    const float lowest = (float)(formats[1] - formats[0]), highest = (float)(formats[2] - formats[0]);
    for (int i = 0; i < layers[0].inputs; i++) {
        float steps = rintf(input[i] * scales[0]);
        steps = steps < lowest ? lowest : steps > highest ? highest : steps;
        from[i] = (quarl_byte)((int32_t)steps + formats[0] + formats[3]);
    }
    for (int index = 0; index < count; index++) {
        const actor_layer *layer = layers + index;
        const quarl_format format = QUARL_FORMAT(layer->zero_point, layer->lowest, layer->highest, layer->offset);
        actor_sum(from, layer, accumulator);
        quarl_requantize(accumulator, to, layer->outputs, layer->scale, layer->per_channel, format);
        if (layer->table)
            quarl_look_up(to, layer->outputs, layer->table, layer->table_minimum, layer->offset, layer->table_offset);
        quarl_byte *swap = from;
        from = to;
        to = swap;
    }
    for (int i = 0; i < layers[count - 1].outputs; i++)
        output[i] = (float)((int32_t)from[i] - formats[5] - formats[4]) * scales[1];
}
