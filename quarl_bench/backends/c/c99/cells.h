/*
 * What joins the gates of a recurrent cell, on integers: sums of 16 bits, tables, a state of 16 bits. C99, static memory
 * only; no floating point unless QUARL_FLOAT asks for it. Include kernels.h before.
 */
#ifndef QUARL_CELLS_H
#define QUARL_CELLS_H

/* The factor between two formats: multiplier * 2^-shift, or the same number as a float. */
#ifdef QUARL_FLOAT
typedef float quarl_scale;
#define QUARL_SCALE(multiplier, shift, number) number
#else
typedef struct {
    uint32_t multiplier;
    int32_t shift;
} quarl_scale;
#define QUARL_SCALE(multiplier, shift, number) {multiplier, shift}
#endif

/* A table begins at `lowest`, which what is rounded by `scale` reaches, its zero point added. */
typedef struct {
    const int16_t *entries;
    int32_t zero_point, lowest, highest;
    quarl_scale scale;
} quarl_table;

QUARL_INLINE int32_t quarl_saturate(int32_t value)
{
    return value < -32768 ? -32768 : value > 32767 ? 32767 : value;
}

/* rint((float)value * scale), ties to even; beyond +-2^20 whatever lies there: the caller clips to 16 bits. */
static int32_t quarl_rescale(int32_t value, quarl_scale scale)
{
#ifdef QUARL_FLOAT
    float product = (float)value * scale;
    product = product < -1048576.0f ? -1048576.0f : product > 1048576.0f ? 1048576.0f : product;
    return (int32_t)((product + 12582912.0f) - 12582912.0f); /* 1.5 * 2^23 */
#else
    int lost = 0;
    uint32_t magnitude = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    if (magnitude < 1 << 24 && scale.shift >= 16) {
        /* One rounding gives what three give, but next to a tie: 24 bits of a float move what ends below 2^17 by less
           than 2^-7 of a step. */
        uint64_t near = UINT64_C(1) << (scale.shift - 7), mask = (UINT64_C(1) << scale.shift) - 1;
        uint64_t up = (uint64_t)magnitude * scale.multiplier + (UINT64_C(1) << (scale.shift - 1));
        uint64_t rounded = up >> scale.shift;
        if (((up + near) & mask) >> (scale.shift - 6)) {
            int32_t fast = rounded > 1048576 ? 1048576 : (int32_t)rounded;
            return value < 0 ? -fast : fast;
        }
    }
    uint64_t whole = quarl_to_24_bits(magnitude, &lost);
    whole = quarl_to_24_bits(whole * scale.multiplier, &lost);
    int shift = scale.shift - lost;
    if (shift > 63)
        return 0;
    whole = shift > 0 ? quarl_shift_even(whole, shift) : shift < -20 ? whole << 20 : whole << -shift;
    int32_t limited = whole > 1048576 ? 1048576 : (int32_t)whole;
    return value < 0 ? -limited : limited;
#endif
}

QUARL_INLINE int32_t quarl_find(int32_t value, quarl_table table)
{
    int32_t place = quarl_rescale(value, table.scale) + table.zero_point;
    place = place < table.lowest ? table.lowest : place > table.highest ? table.highest : place;
    return table.entries[place - table.lowest];
}

/* Sums of 32 bits to 16; one scale for all, or one per channel. */
QUARL_INLINE void quarl_narrow_sums(int32_t *sums, int count, const quarl_scale *scale, int per_channel)
{
    for (int i = 0; i < count; i++)
        sums[i] = quarl_saturate(quarl_rescale(sums[i], scale[per_channel ? i : 0]));
}

/* The state of a cell as its caller keeps it: `width` bytes of the hidden state, then twice as many of the cell's. */
QUARL_INLINE int32_t quarl_read_cell(const unsigned char *state, int width, int unit)
{
    const unsigned char *two = state + width + 2 * unit;
    int32_t value = two[0] | two[1] << 8;
    return value > 32767 ? value - 65536 : value;
}

QUARL_INLINE void quarl_write_state(unsigned char *state, int width, int unit, int32_t hidden, int32_t cell)
{
    uint32_t bits = (uint32_t)cell;
    state[unit] = (unsigned char)hidden;
    state[width + 2 * unit] = (unsigned char)bits;
    state[width + 2 * unit + 1] = (unsigned char)(bits >> 8);
}

QUARL_INLINE void quarl_read_hidden(const unsigned char *state, quarl_byte *hidden, int width, int32_t offset)
{
    for (int i = 0; i < width; i++)
        hidden[i] = (quarl_byte)((state[i] > 127 ? state[i] - 256 : state[i]) + offset);
}

typedef struct {
    quarl_table sigmoid, candidate, squash; /* a GRU has no third */
    quarl_scale taken, kept, recalled, shown;
    int32_t whole; /* a gate that is open altogether */
    quarl_format hidden;
} quarl_cell;

QUARL_INLINE int32_t quarl_show(int32_t value, const quarl_cell *cell)
{
    int32_t q = quarl_rescale(value, cell->shown) + cell->hidden.zero_point;
    return q < cell->hidden.lowest ? cell->hidden.lowest : q > cell->hidden.highest ? cell->hidden.highest : q;
}

QUARL_INLINE int32_t quarl_mix(int32_t taken, int32_t kept, const quarl_cell *cell)
{
    return quarl_saturate(quarl_rescale(taken, cell->taken) + quarl_rescale(kept, cell->kept));
}

/* x and h: 4 * width sums of 16 bits each, gate by gate: input, forget, candidate, output. */
static inline void quarl_lstm(const quarl_cell *cell, const int32_t *x, const int32_t *h, const unsigned char *before,
                              unsigned char *behind, quarl_byte *y, int width)
{
    for (int i = 0; i < width; i++) {
        int32_t sums[4];
        for (int gate = 0; gate < 4; gate++)
            sums[gate] = quarl_saturate(x[gate * width + i] + h[gate * width + i]);
        int32_t taken = quarl_find(sums[0], cell->sigmoid) * quarl_find(sums[2], cell->candidate);
        int32_t kept = quarl_find(sums[1], cell->sigmoid) * quarl_read_cell(before, width, i);
        int32_t state = quarl_mix(taken, kept, cell);
        int32_t hidden = quarl_show(quarl_find(sums[3], cell->sigmoid) * quarl_find(state, cell->squash), cell);
        quarl_write_state(behind, width, i, hidden, state);
        y[i] = (quarl_byte)(hidden + cell->hidden.offset);
    }
}

/* The same of 3 * width sums: reset, update, candidate. */
static inline void quarl_gru(const quarl_cell *cell, const int32_t *x, const int32_t *h, const unsigned char *before,
                             unsigned char *behind, quarl_byte *y, int width)
{
    for (int i = 0; i < width; i++) {
        int32_t reset = quarl_find(quarl_saturate(x[i] + h[i]), cell->sigmoid);
        int32_t update = quarl_find(quarl_saturate(x[width + i] + h[width + i]), cell->sigmoid);
        int32_t recalled = quarl_rescale(reset * h[2 * width + i], cell->recalled);
        int32_t fresh = quarl_find(quarl_saturate(x[2 * width + i] + recalled), cell->candidate);
        int32_t state = quarl_mix((cell->whole - update) * fresh, update * quarl_read_cell(before, width, i), cell);
        int32_t hidden = quarl_show(state, cell);
        quarl_write_state(behind, width, i, hidden, state);
        y[i] = (quarl_byte)(hidden + cell->hidden.offset);
    }
}

#endif
