// SPDX-License-Identifier: GPL-3.0-or-later
/** Random numbers: xoshiro256** as a generator type of GSL, so that all of GSL's distributions draw from it.
 *  A stream is named by (seed, a, b); streams of different names are independent, and a stream depends on nothing else.
 *  Start weights use a = layer and b = tensor, both below 2^32: other users take an a above. */
#ifndef NH_RNG_H
#define NH_RNG_H

#include <gsl/gsl_rng.h>
#include <stdint.h>

/** The whole state: copied (gsl_rng_state, gsl_rng_size), a stream goes on where the copy was taken. */
struct nh_rng_state {
    uint64_t s[4];
};

/** Blackman and Vigna 2021, arXiv:1805.01407; period 2^256 - 1. An integer is the upper 32 bits of an output, a uniform
 *  number the upper 53. */
extern const gsl_rng_type *const nh_rng_type;

/** Puts a generator of this type at the start of the stream (seed, a, b). The state may lie on the stack:
 *  struct nh_rng_state state; gsl_rng rng = {nh_rng_type, &state}; */
void nh_rng_start(const gsl_rng *rng, uint64_t seed, uint64_t a, uint64_t b);

/** A new generator at the start of a stream, to be freed by gsl_rng_free. NULL where memory is short. */
gsl_rng *nh_rng_new(uint64_t seed, uint64_t a, uint64_t b);

/** A standard normal number (GSL's ziggurat). */
double nh_rng_normal(const gsl_rng *rng);

#endif
