// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/err.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char sentence[1024];

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
