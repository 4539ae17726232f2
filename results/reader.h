// SPDX-License-Identifier: GPL-3.0-or-later
/** Reads CSV files row by row in constant memory: RFC 4180, LF or CR LF, last newline optional, byte order mark
 * skipped. Blank lines are skipped but counted. Refused, with the line: rows with more or fewer fields than the header,
 * a second header line in the middle, quotes left open or astray, NUL bytes, a carriage return inside a line, rows over
 * 1 MiB. */
#ifndef NH_READER_H
#define NH_READER_H

#include <stddef.h>
#include <stdio.h>

struct nh_reader;

/** Opens a file and reads its header: at least one column, no name twice. */
int nh_reader_open(struct nh_reader **out, const char *path);

/** The same for a stream, which stays the caller's to close; name stands for it in errors. */
int nh_reader_open_stream(struct nh_reader **out, FILE *stream, const char *name);

/** Frees r, and closes what nh_reader_open opened. NULL is allowed. */
void nh_reader_close(struct nh_reader *r);

/** Columns of the header, numbered from 0. */
size_t nh_reader_columns(const struct nh_reader *r);
const char *nh_reader_name(const struct nh_reader *r, size_t column);

/** Finds a column by name: 1 and *column, or 0 where the file has none. */
int nh_reader_find(const struct nh_reader *r, const char *name, size_t *column);

/** The same, where the caller cannot do without: NH_OK, or NH_FAILED naming the column and those that are there. */
int nh_reader_need(const struct nh_reader *r, const char *name, size_t *column);

/** Goes to the next row: 1, or 0 at the end of the file, or NH_FAILED (then for good). */
int nh_reader_next(struct nh_reader *r);

/** Line of the file where the current row starts, from 1. */
size_t nh_reader_line(const struct nh_reader *r);

/** A cell of the current row, "" where nothing was measured; valid until the next call of nh_reader_next. */
const char *nh_reader_text(const struct nh_reader *r, size_t column);

/** A cell as a number: 1 and *value; 0 and NaN where it is empty; NH_FAILED with line and column where it is no number.
 */
int nh_reader_real(const struct nh_reader *r, size_t column, double *value);

#endif
