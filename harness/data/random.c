// SPDX-License-Identifier: GPL-3.0-or-later
/** Numbers by (seed, index): splitmix64 as hash and as generator.
 *  Source: Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195. */
#include "harness/data/source.h"

#include <assert.h>

static const uint64_t golden = 0x9e3779b97f4a7c15; /* 2^64 over the golden ratio: splitmix64's step */

static uint64_t finalise(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

uint64_t nh_data_hash(uint64_t key, uint64_t number)
{
    return finalise(finalise(key + golden) + golden * (number + 1));
}

static void set(void *state, unsigned long seed)
{
    *(uint64_t *)state = seed;
}

static uint64_t next(uint64_t *state)
{
    return finalise(*state += golden);
}

static unsigned long get(void *state)
{
    return (unsigned long)(next(state) >> 32); /* 32 bits, so that a long of any width gives the same numbers */
}

static double get_double(void *state)
{
    return (double)(next(state) >> 11) * 0x1p-53;
}

static const gsl_rng_type splitmix = {.name = "splitmix64",
                                      .max = 0xffffffff,
                                      .size = sizeof(uint64_t),
                                      .set = set,
                                      .get = get,
                                      .get_double = get_double};

gsl_rng nh_data_rng(uint64_t *state)
{
    return (gsl_rng){.type = &splitmix, .state = state};
}

/* The swap-or-not shuffle: each round pairs the items x and k - x, and a bit that belongs to the pair says whether the
 * two change places. Source: Hoang, Morris, Rogaway 2012, arXiv:1208.1176. */
uint64_t nh_data_order(uint64_t key, uint64_t n, uint64_t position)
{
    enum { ROUNDS = 128 }; /* 6 log2(n) for two million items */
    assert(n >= 1 && n <= (uint64_t)1 << 32);
    const uint64_t epoch = nh_data_hash(key, position / n);
    uint64_t x = position % n;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t other = (nh_data_hash(epoch, round) % n + n - x) % n;
        const uint64_t pair = x > other ? x : other;
        if (nh_data_hash(epoch, (round + 1) << 32 | pair) & 1)
            x = other;
    }
    return x;
}
