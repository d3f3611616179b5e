/* What a shared library adds to a policy: batches, and a description of both ports for whoever loads it. */
#include "policy.h"

void policy_run_batch(const policy_input_t *input, policy_output_t *output, long count);
int policy_describe(int which, int *shape, float *scale, int *zero_point, int *bytes);

void policy_run_batch(const policy_input_t *input, policy_output_t *output, long count)
{
    for (long i = 0; i < count; i++)
        policy_run(input + i * POLICY_INPUTS, output + i * POLICY_OUTPUTS);
}

/* Port 0 is the input, 1 the output. Returns the rank; *bytes is negative for signed integers and 4 for floats. */
int policy_describe(int which, int *shape, float *scale, int *zero_point, int *bytes)
{
    static const int input_shape[] = POLICY_INPUT_SHAPE, output_shape[] = POLICY_OUTPUT_SHAPE;
    const int *from = which ? output_shape : input_shape;
    const int rank = (int)((which ? sizeof output_shape : sizeof input_shape) / sizeof *from);
    for (int i = 0; i < rank; i++)
        shape[i] = from[i];
    *scale = which ? POLICY_OUTPUT_SCALE : POLICY_INPUT_SCALE;
    *zero_point = which ? POLICY_OUTPUT_ZERO_POINT : POLICY_INPUT_ZERO_POINT;
    const int width = (int)(which ? sizeof(policy_output_t) : sizeof(policy_input_t));
    const int is_signed = which ? (policy_output_t)-1 < 0 : (policy_input_t)-1 < 0;
    *bytes = POLICY_INTEGER && is_signed ? -width : width;
    return rank;
}
