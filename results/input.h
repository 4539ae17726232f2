// SPDX-License-Identifier: GPL-3.0-or-later
/** Files that are read: regular files alone, so that nothing waits for a pipe or reads a device without end. */
#ifndef NH_INPUT_H
#define NH_INPUT_H

#include <stddef.h>
#include <sys/stat.h>

/** Opens a regular file for reading (*fd, to be closed) and looks at it (*st). NH_FAILED with the file, the reason and `advice`, what
 *  would work ("give a safetensors file"). */
int nh_input_open(int *fd, struct stat *st, const char *path, const char *advice);

/** Reads all of a regular file of at most `limit` bytes; a NUL follows the n bytes. *bytes is to be freed; NULL after a failure.
 *  NH_FAILED with the file, the reason (a read error is told as one) and `advice`. */
int nh_input_read(unsigned char **bytes, size_t *n, size_t limit, const char *path, const char *advice);

/** What the first bytes of a file are the mark of, and what to do with such a file ("a Git LFS pointer, not the file itself; fetch it
 *  with 'git lfs pull'"); NULL where they are no such mark. To be asked about a file that is not in the format expected. */
const char *nh_input_kind(const void *bytes, size_t n);

#endif
