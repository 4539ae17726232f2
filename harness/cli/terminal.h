// SPDX-License-Identifier: GPL-3.0-or-later
/** Talk on stderr that is drawn anew on one line: stages and progress bars. */
#ifndef NH_TERMINAL_H
#define NH_TERMINAL_H

#include <stdbool.h>

/** What goes to the start of the line and clears it, in front of each drawing. */
#define NH_LINE_START "\r\033[K"

/** True where stderr is a terminal that understands NH_LINE_START: TERM is set, and not to "dumb". */
bool nh_terminal(void);

#endif
