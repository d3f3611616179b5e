/*
 * A policy that answers until its caller ends it: serve INPUTS OUTPUTS
 *
 * Reads POLICY_INPUTS integers from the file INPUTS, writes POLICY_OUTPUTS to OUTPUTS, and so on; both are named pipes.
 * Exit code 0 at the end of INPUTS, 2 when a pipe cannot be used.
 */
#define _POSIX_C_SOURCE 200112L
#include <fcntl.h>
#include <unistd.h>

#include "policy.h"

int main(int count, char **arguments)
{
    static policy_input_t x[POLICY_INPUTS];
    static policy_output_t y[POLICY_OUTPUTS];
    int in = count == 3 ? open(arguments[1], O_RDONLY) : -1;
    int out = count == 3 ? open(arguments[2], O_WRONLY) : -1;
    if (in < 0 || out < 0)
        return 2;
    for (;;) {
        for (size_t have = 0; have < sizeof x;) {
            ssize_t got = read(in, (char *)x + have, sizeof x - have);
            if (got <= 0)
                return got ? 2 : 0;
            have += (size_t)got;
        }
        policy_run(x, y);
        for (size_t sent = 0; sent < sizeof y;) {
            ssize_t put = write(out, (char *)y + sent, sizeof y - sent);
            if (put <= 0)
                return 2;
            sent += (size_t)put;
        }
    }
}
