// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool nh_terminal(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0 && isatty(STDERR_FILENO);
}
