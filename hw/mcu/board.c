/*
 * What a Cortex-M4 or M7 of QEMU's MPS2 boards needs in front of a C library's start: a vector table, a clock, and the
 * floating point unit where the program is compiled for one.
 *
 * Under `-icount shift=0` one instruction takes one virtual nanosecond, and the timer counts at 25 MHz: what the clock
 * calls nanoseconds are instructions, in steps of 40. They are no time of any chip.
 */
#include <stdint.h>

#define SYSTICK ((volatile uint32_t *)0xE000E010) /* control, reload, current */
#define ACCESS_CONTROL ((volatile uint32_t *)0xE000ED88)
#define RELOAD 0xFFFFFFu
#define NANOSECONDS_PER_TICK 40

extern uint32_t stack_top[];
void _start(void);
int64_t now(void);
static volatile uint32_t wraps;

static void tick(void)
{
    wraps++;
}

static void reset(void)
{
#ifdef __ARM_FP
    *ACCESS_CONTROL |= 0xFu << 20;
    __asm__ volatile("dsb\n isb");
#endif
    SYSTICK[1] = RELOAD;
    SYSTICK[2] = 0;
    SYSTICK[0] = 7; /* processor clock, interrupt, on */
    _start();
}

static void fail(void)
{
    for (;;)
        __asm__ volatile("bkpt 0"); /* QEMU stops here */
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_top, reset, fail, fail, fail, fail, fail, 0, 0, 0, 0, fail, fail, 0, fail, tick,
};

int64_t now(void)
{
    uint32_t before, ticks;
    do {
        before = wraps;
        ticks = RELOAD - SYSTICK[2];
    } while (before != wraps);
    return ((int64_t)before * (RELOAD + 1) + ticks) * NANOSECONDS_PER_TICK;
}
