// SPDX-License-Identifier: GPL-3.0-or-later
/** Text from files and users, for people: nothing in it moves a cursor, changes a colour, ends a line or turns the direction of
 *  writing. What could is shown as its bytes, each as \xNN: control characters (C0, DEL, C1), bytes that are no UTF-8, and
 *  characters that cannot be seen or that act on their neighbours (line and paragraph separators, directions, zero width, tags).
 *  Files for programs (CSV, JSON) hold the text as it is. */
#ifndef NH_TEXT_H
#define NH_TEXT_H

#include <stddef.h>
#include <stdio.h>

/** Length of the well-formed UTF-8 character at text, controls excepted; 0 where there is none, as at the end. */
size_t nh_utf8(const char *text);

enum { NH_TEXT_STEP = 5 }; /**< room for one character or one escape, and its NUL */

/** The next character of *text as it is shown, or the escape of its next byte, NUL-terminated in shown; *text then points behind
 *  it. Returns its length, 0 at the end. */
size_t nh_text_next(const char **text, char shown[NH_TEXT_STEP]);

/** Writes text as it is shown; with file = NULL nothing is written. Returns the number of characters shown. */
int nh_text_put(FILE *file, const char *text);

/** One line: what printf would make of format, as it is shown, and a newline. A short line is one write; without memory a line is
 *  cut after 4095 bytes. */
void nh_text_line(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
