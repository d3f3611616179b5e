/* What joins the gates of a recurrent cell, in float32: torch's formulas. Include kernels_float.h before. */
#ifndef QUARL_CELLS_FLOAT_H
#define QUARL_CELLS_FLOAT_H

/* x and h: 4 * width sums, gate by gate: input, forget, candidate, output; a state is hidden, then the cell's. */
static inline void quarl_lstm(const float *x, const float *h, const float *before, float *behind, float *y, int width)
{
    for (int i = 0; i < width; i++) {
        float enter = quarl_sigmoid(x[i] + h[i]), forget = quarl_sigmoid(x[width + i] + h[width + i]);
        float fresh = tanhf(x[2 * width + i] + h[2 * width + i]), leave = quarl_sigmoid(x[3 * width + i] + h[3 * width + i]);
        float cell = forget * before[width + i] + enter * fresh;
        y[i] = leave * tanhf(cell);
        behind[i] = y[i];
        behind[width + i] = cell;
    }
}

/* The same of 3 * width sums: reset, update, candidate; the state is hidden. */
static inline void quarl_gru(const float *x, const float *h, const float *before, float *behind, float *y, int width)
{
    for (int i = 0; i < width; i++) {
        float reset = quarl_sigmoid(x[i] + h[i]), update = quarl_sigmoid(x[width + i] + h[width + i]);
        float fresh = tanhf(x[2 * width + i] + reset * h[2 * width + i]);
        y[i] = (1.0f - update) * fresh + update * before[i];
        behind[i] = y[i];
    }
}

#endif
