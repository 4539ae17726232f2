// SPDX-License-Identifier: GPL-3.0-or-later
/** What the files of the sources share. */
#ifndef NH_DATA_SOURCE_H
#define NH_DATA_SOURCE_H

#include "harness/data/data.h"

#include <gsl/gsl_rng.h>
#include <stddef.h>

/** A zeroed struct of `size` bytes that starts with a struct nh_data. Sizes are set as asked or to their defaults
 *  (vocab stays 0 where not asked), and so is the key. NULL and an error recorded where there is no memory. */
void *nh_data_new(size_t size, const struct nh_data_request *);

/** Takes n bytes of content into the digest. */
void nh_data_digest(struct nh_data *, const void *bytes, size_t n);

/** Takes one number into the digest, lowest byte first. */
void nh_data_digest_number(struct nh_data *, uint64_t);

/** Reads a whole regular file of at most 1 GiB; the caller frees *bytes. An empty file is an error. */
int nh_data_file(unsigned char **bytes, size_t *n, const char *path);

/** A well mixed number from two: splitmix64's finaliser over both. */
uint64_t nh_data_hash(uint64_t key, uint64_t number);

/** A splitmix64 generator for GSL, its state kept by the caller; start it at a hash. */
gsl_rng nh_data_rng(uint64_t *state);

/** Which of n items stands at `position` of an endless row of epochs, each a permutation of 0..n-1 of its own.
 *  n is 1 .. 2^32. No table is kept; any position costs the same, about a microsecond. */
uint64_t nh_data_order(uint64_t key, uint64_t n, uint64_t position);

#endif
