/* The arithmetic of bands.py, compiled. A product and its sum stay apart, as in OpenCV. */
#include <stdint.h>
#include <string.h>

enum { ROWS = 5, WIDTH = 160, MADE = 2, SIDE = 84, TAPS = 3 };

struct buffers {
    const uint8_t *now;   /* the screen as it is shown, (bands, ROWS, WIDTH) */
    uint8_t *kept[2];     /* the last two, the older one first */
    uint8_t *changed;     /* (bands), since the last frame */
    const uint8_t *known; /* (256), whether a number's color is */
    const uint8_t *mixed; /* (256, 256), the grey of what is brighter */
    uint8_t *frame;       /* (bands, MADE, SIDE) */
    const int32_t *starts; /* (SIDE), the first of the columns that become one */
    const float *columns; /* (TAPS, SIDE), their shares */
    const float *rows;    /* (MADE, ROWS), those of rows */
    int64_t bands;
};

/* Keep what is shown now; how many of its changed pixels are of an unknown color. */
int quarl_take(const struct buffers *b, int place)
{
    enum { SIZE = ROWS * WIDTH };
    int strange = 0;
    const uint8_t *now = b->now;
    uint8_t *kept = b->kept[place];
    for (int64_t band = 0; band < b->bands; band++, now += SIZE, kept += SIZE) {
        if (memcmp(now, kept, SIZE) == 0)
            continue;
        memcpy(kept, now, SIZE);
        b->changed[band] = 1;
        for (int i = 0; i < SIZE; i++)
            strange += !b->known[now[i]];
    }
    return strange;
}

/* Shrink one row of grey. */
static void shrink(const struct buffers *b, const float *grey, float *line)
{
    for (int x = 0; x < SIDE; x++) {
        const float *from = grey + b->starts[x];
        float sum = 0;
        for (int tap = 0; tap < TAPS; tap++) {
            const float part = from[tap] * b->columns[tap * SIDE + x];
            sum += part;
        }
        line[x] = sum;
    }
}

/* Make the frame of both screens anew where one has changed. */
void quarl_make(const struct buffers *b)
{
    float grey[WIDTH], line[SIDE], sums[MADE][SIDE];
    const float magic = 12582912.0f; /* 1.5 * 2^23: a sum with it has no fraction, ties to even */
    for (int64_t band = 0; band < b->bands; band++) {
        if (!b->changed[band])
            continue;
        b->changed[band] = 0;
        memset(sums, 0, sizeof sums);
        for (int row = 0; row < ROWS; row++) {
            const int64_t place = (band * ROWS + row) * WIDTH;
            const uint8_t *older = b->kept[0] + place, *newer = b->kept[1] + place;
            for (int x = 0; x < WIDTH; x++)
                grey[x] = b->mixed[older[x] << 8 | newer[x]];
            shrink(b, grey, line);
            for (int made = 0; made < MADE; made++)
                for (int x = 0; x < SIDE; x++) {
                    const float part = b->rows[made * ROWS + row] * line[x];
                    sums[made][x] += part;
                }
        }
        for (int made = 0; made < MADE; made++)
            for (int x = 0; x < SIDE; x++)
                b->frame[(band * MADE + made) * SIDE + x] = (uint8_t)((sums[made][x] + magic) - magic);
    }
}
