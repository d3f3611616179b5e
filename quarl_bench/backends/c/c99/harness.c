/*
 * Re-runs the golden pairs of an artefact and times the policy: harness [golden.safetensors [calls]]
 *
 * Prints one JSON object: how many pairs, how many outputs differ, by how much and where first, the 64-bit FNV-1a hash
 * of all outputs, and nanoseconds per call (single calls for percentiles, so that the clock's own cost is in them; the
 * mean is of an uninterrupted loop). Exit code 1 when outputs differ from the golden ones (floats: by more than 1e-5 of
 * the largest), 2 for a bad file.
 */
#define _POSIX_C_SOURCE 200112L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy.h"

static char *read_file(const char *path, long *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *content = NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (*size = ftell(file)) >= 8 && fseek(file, 0, SEEK_SET) == 0) {
        content = malloc((size_t)*size + 1);
        if (content && fread(content, 1, (size_t)*size, file) == (size_t)*size)
            content[*size] = 0;
        else
            *size = 0;
    }
    fclose(file);
    return *size ? content : NULL;
}

/* The tensor `name` of a safetensors file: a header of JSON behind its length, then the data. */
static const void *find_tensor(const char *content, long size, const char *name, long *bytes)
{
    uint64_t header = 0;
    for (int i = 0; i < 8; i++)
        header |= (uint64_t)(unsigned char)content[i] << (8 * i);
    char key[64];
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *entry = strstr(content + 8, key);
    const char *offsets = entry ? strstr(entry, "\"data_offsets\":[") : NULL;
    long begin, end;
    if (!offsets || sscanf(offsets + 16, "%ld,%ld", &begin, &end) != 2 || begin > end ||
        header > (uint64_t)size - 8 || (uint64_t)end > (uint64_t)size - 8 - header)
        return NULL;
    *bytes = end - begin;
    return content + 8 + header + begin;
}

#ifdef QUARL_BOARD
#define SOURCE "emulated"
#define UNIT "instructions" /* the emulator's clock counts one as a nanosecond; no latency follows from them */
int64_t now(void);
#else
#define SOURCE "measured"
#define UNIT "ns"
static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}
#endif

static int compare(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
    const char *path = count > 1 ? arguments[1] : "golden.safetensors";
    long calls = count > 2 ? atol(arguments[2]) : 1000, size = 0, input_bytes, output_bytes;
    char *content = read_file(path, &size);
    const char *inputs = content ? find_tensor(content, size, "inputs", &input_bytes) : NULL;
    const char *expected = content ? find_tensor(content, size, "outputs", &output_bytes) : NULL;
    const long input_size = POLICY_INPUTS * (long)sizeof(policy_input_t);
    const long output_size = POLICY_OUTPUTS * (long)sizeof(policy_output_t);
    long pairs = inputs ? input_bytes / input_size : 0;
    if (!inputs || !expected || pairs < 1 || pairs * input_size != input_bytes || pairs * output_size != output_bytes) {
        fprintf(stderr, "harness: %s: not the golden pairs of this policy; take those of its artefact\n", path);
        return 2;
    }
    policy_input_t *x = malloc((size_t)input_bytes);
    int64_t *times = malloc((size_t)(calls > 0 ? calls : 1) * sizeof *times);
    if (!x || !times)
        return 2;
    memcpy(x, inputs, (size_t)input_bytes); /* tensors lie at any address */

    uint64_t hash = UINT64_C(14695981039346656037);
    long different = 0, first = -1;
    double largest = 0, unit = 1;
    policy_output_t y[POLICY_OUTPUTS], wanted[POLICY_OUTPUTS];
    for (long pair = 0; pair < pairs; pair++) {
        policy_run(x + pair * POLICY_INPUTS, y);
        memcpy(wanted, expected + pair * output_size, (size_t)output_size);
        for (long i = 0; i < output_size; i++)
            hash = (hash ^ ((const unsigned char *)y)[i]) * UINT64_C(1099511628211);
        for (long i = 0; i < POLICY_OUTPUTS; i++) {
            double gap = (double)y[i] - (double)wanted[i], size_of_output = (double)wanted[i];
            gap = gap < 0 ? -gap : gap;
            size_of_output = size_of_output < 0 ? -size_of_output : size_of_output;
            largest = gap > largest ? gap : largest;
            unit = size_of_output > unit ? size_of_output : unit;
            if (y[i] != wanted[i] && different++ == 0)
                first = pair * POLICY_OUTPUTS + i;
        }
    }
    int wrong = POLICY_INTEGER ? different > 0 : !(largest <= 1e-5 * unit); /* float sums differ in their order */
    printf("{\"pairs\": %ld, \"outputs\": %ld, \"different\": %ld, \"largest_difference\": %.3g, \"fnv1a\": \"%016llx\"",
           pairs, pairs * POLICY_OUTPUTS, different, largest, (unsigned long long)hash);
    if (first >= 0)
        printf(", \"first\": {\"pair\": %ld, \"output\": %ld}", first / POLICY_OUTPUTS, first % POLICY_OUTPUTS);
    if (calls > 0) {
        for (long call = 0; call < calls; call++) {
            int64_t begin = now();
            policy_run(x + call % pairs * POLICY_INPUTS, y);
            times[call] = now() - begin;
        }
        int64_t begin = now();
        for (long call = 0; call < calls; call++)
            policy_run(x + call % pairs * POLICY_INPUTS, y);
        double mean = (double)(now() - begin) / (double)calls;
        qsort(times, (size_t)calls, sizeof *times, compare);
        printf(", \"calls\": %ld, \"source\": \"" SOURCE "\", \"mean_" UNIT "\": %.1f, \"p50_" UNIT "\": %lld, "
               "\"p90_" UNIT "\": %lld, \"p99_" UNIT "\": %lld, \"max_" UNIT "\": %lld",
               calls, mean, (long long)times[calls / 2], (long long)times[calls * 9 / 10],
               (long long)times[calls * 99 / 100], (long long)times[calls - 1]);
    }
    printf("}\n");
    free(times);
    free(x);
    free(content);
    return wrong;
}
