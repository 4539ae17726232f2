// SPDX-License-Identifier: GPL-3.0-or-later
/** Numbers as decimal text and back, exact, and the same under every locale. */
#ifndef NH_NUMBER_H
#define NH_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NH_NUMBER_SIZE = 32 }; /**< room for any number and its final NUL */

/** A decimal that reads back to the same double, in as few digits as printf needs for that; at most 17.
 *  Whole numbers have no point; "nan" "inf" "-inf" "-0". Returns the length; text is NUL-terminated. */
size_t nh_number_real(char text[NH_NUMBER_SIZE], double x);

/** Integers in decimal. Returns the length; text is NUL-terminated. */
size_t nh_number_int(char text[NH_NUMBER_SIZE], int64_t i);
size_t nh_number_count(char text[NH_NUMBER_SIZE], uint64_t i);

/** Reads the whole of text, blanks around it allowed, as the nearest double: decimal with a dot, or nan, nan(...),
 *  inf, infinity in any case, with or without a sign. False for anything else, hexadecimal and what overflows a double included.
 *  plots/csv.awk has the same rules. */
bool nh_number_read(double *out, const char *text);

#endif
