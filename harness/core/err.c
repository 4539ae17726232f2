// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/err.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Thread_local char sentence[1024];
static void (*end_without_memory)(void);
static atomic_flag ending = ATOMIC_FLAG_INIT;

int nh_fail(enum nh_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return status;
}

const char *nh_error(void)
{
    return sentence;
}

void nh_on_no_memory(void (*end)(void))
{
    end_without_memory = end;
}

_Noreturn void nh_no_memory(void)
{
    while (atomic_flag_test_and_set(&ending)) /* one thread ends the program, the others wait for the end */
        pause();
    nh_fail(NH_FAILED, "out of memory; free some memory or raise the limit on it (ulimit -v, cgroup)");
    if (end_without_memory)
        end_without_memory();
    else
        fprintf(stderr, "%s\n", sentence);
    _exit(1); /* handlers of exit() may wait for threads that need memory too */
}
