// SPDX-License-Identifier: GPL-3.0-or-later
/** IDX, the format of MNIST and its kin: two zero bytes, 8 for unsigned bytes, the rank, each size in 4 bytes with the
 *  highest first, then the bytes. Read through zlib, packed or not. Source: yann.lecun.com/exdb/mnist. */
#ifndef NH_DATA_IDX_H
#define NH_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

/** Reads the header of an array of this rank; the sizes are as the file claims, not to be trusted. */
int nh_idx_header(gzFile, int rank, uint32_t *sizes, const char *name);

/** Reads exactly n bytes; what names them in the error. */
int nh_idx_read(gzFile, void *to, unsigned n, const char *what, const char *name);

/** Sees that the file ends here and that its checksum holds. */
int nh_idx_end(gzFile, const char *name);

#endif
