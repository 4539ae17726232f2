// SPDX-License-Identifier: GPL-3.0-or-later
/** Formats by name, and values where rounding goes wrong. */
#ifndef NH_FMT_VALUES_H
#define NH_FMT_VALUES_H

#include "harness/core/err.h"
#include "harness/core/fmt.h"
#include "tests/suite.h"

#include <check.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 20240607, state;

/* Steele, Lea and Flood. */
static inline uint64_t random_bits(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static inline int random_int(int low, int high)
{
    return low + (int)(random_bits() % (uint64_t)(high - low + 1));
}

static inline uint64_t bits64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double double_of(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The same bits, or both NaN. */
static inline bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : bits64(a) == bits64(b);
}

static inline struct nh_fmt format(const char *name)
{
    struct nh_fmt f;
    if (nh_fmt_parse(&f, name) != NH_OK)
        ck_abort_msg("%s", nh_error());
    return f;
}

static inline double nudged(double x)
{
    const int steps = random_int(-2, 2);
    for (int i = 0; i < abs(steps); i++)
        x = nextafter(x, steps > 0 ? HUGE_VAL : -HUGE_VAL);
    return x;
}

/* Of the format's own finite values, all exponents alike. */
static inline double random_value(const struct nh_fmt *f)
{
    const int exponent = random_int(f->emin - f->man_bits - 1, ilogb(f->max));
    const double sign = random_bits() & 1 ? -1 : 1;
    const double v = nh_round(f, ldexp(sign * (1 + (double)(random_bits() >> 11) * 0x1p-53), exponent));
    return isfinite(v) ? v : sign * f->max;
}

/* For f in double: ties and their neighbours, both edges of the subnormals, that of overflow, any bits, specials. */
static inline double random_input(const struct nh_fmt *f)
{
    static const double specials[] = {0, -0.0, HUGE_VAL, -HUGE_VAL, (double)NAN, 1, -1, DBL_MIN, DBL_MAX, 0x1p-1074};
    const double sign = random_bits() & 1 ? -1 : 1, unit = f->min_subnormal;
    switch (random_int(0, 7)) {
    case 0:
        return double_of(random_bits());
    case 1: { /* a tie */
        const double v = random_value(f);
        const int unit_of_v = (fabs(v) < f->min_normal ? f->emin : ilogb(v)) - f->man_bits;
        return nudged(v + ldexp(sign, unit_of_v - 1));
    }
    case 2:
        return nudged(sign * random_int(0, 8) * unit / 4);
    case 3:
        return nudged(sign * (f->min_normal + random_int(-8, 8) * (unit / 4)));
    case 4:
        return nudged(sign * f->overflow);
    case 5:
        return nudged(sign * f->max);
    case 6:
        return specials[random_int(0, sizeof specials / sizeof *specials - 1)];
    default:
        return nudged(random_value(f));
    }
}

#endif
