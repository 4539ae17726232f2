// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/rng.h"

#include "harness/core/err.h"

#include <gsl/gsl_randist.h>

/** The finaliser of splitmix64: a bijection in which every input bit changes half of the output bits. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static const uint64_t golden = 0x9e3779b97f4a7c15U; /* 2^64 over the golden ratio: the step of splitmix64 */

static void start(struct nh_rng_state *state, uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t key = mix(mix(mix(seed + golden) + a + golden) + b + golden);
    for (int i = 0; i < 4; i++)
        state->s[i] = mix(key += golden); /* distinct numbers, so never four zeros, the one state that is forbidden */
}

static inline uint64_t rotate(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static inline uint64_t next(struct nh_rng_state *state)
{
    uint64_t *s = state->s;
    uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

static void set(void *state, unsigned long seed)
{
    start(state, seed, 0, 0);
}

static unsigned long get(void *state)
{
    return (unsigned long)(next(state) >> 32);
}

static double get_double(void *state)
{
    return (double)(next(state) >> 11) * 0x1p-53;
}

static const gsl_rng_type xoshiro256ss = {
    .name = "xoshiro256**",
    .max = 0xffffffffUL,
    .min = 0,
    .size = sizeof(struct nh_rng_state),
    .set = set,
    .get = get,
    .get_double = get_double,
};
const gsl_rng_type *const nh_rng_type = &xoshiro256ss;

void nh_rng_start(const gsl_rng *rng, uint64_t seed, uint64_t a, uint64_t b)
{
    start(gsl_rng_state(rng), seed, a, b);
}

gsl_rng *nh_rng_new(uint64_t seed, uint64_t a, uint64_t b)
{
    gsl_rng *rng = nh_have(gsl_rng_alloc(nh_rng_type));
    nh_rng_start(rng, seed, a, b);
    return rng;
}

double nh_rng_normal(const gsl_rng *rng)
{
    return gsl_ran_gaussian_ziggurat(rng, 1);
}
