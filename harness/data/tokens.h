// SPDX-License-Identifier: GPL-3.0-or-later
/** The text format of token ids: decimal numbers with blanks between them, one sequence a line. */
#ifndef NH_DATA_TOKENS_H
#define NH_DATA_TOKENS_H

#include <stddef.h>

struct nh_tokens {
    int *ids;
    size_t lines, *start; /**< line i holds ids[start[i]] .. ids[start[i+1] - 1] */
    int largest;          /**< id */
};

/** Parses n bytes; vocab 0 = any. CR LF, a missing last newline and blank lines at the end are fine.
 *  NH_FAILED names `name`, the line (from 1) and the position in it (from 0). Free by nh_tokens_free, after a failure
 *  too. */
int nh_tokens_parse(struct nh_tokens *, const unsigned char *bytes, size_t n, int vocab, const char *name);

void nh_tokens_free(struct nh_tokens *);

#endif
