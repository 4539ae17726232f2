// SPDX-License-Identifier: GPL-3.0-or-later
/* Rounding spans. A strip that fits the first-level cache is looked at first (largest and smallest magnitude, as
 * integers) and rounded second, by the cheapest way that what was seen allows; in a healthy strip no element is looked
 * at alone. Conversion instructions (F16C, AVX-512) made fp16 at best a fifth faster on Zen 4: not worth a branch. */

/* To see this refuse: gcc -std=c17 -I. -ffast-math -c harness/core/round.c (or clang, or -ffinite-math-only). */
#if defined __FAST_MATH__ || defined __ASSOCIATIVE_MATH__ || (defined __FINITE_MATH_ONLY__ && __FINITE_MATH_ONLY__)
#error "-ffast-math or a part of it: NaN would pass unseen and rounding would be optimised away; build without"
#endif

#include "harness/core/fmt.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { STRIP = 1024 };

#define REAL       float
#define BITS       uint32_t
#define FRACTION   23
#define NAME(word) word##_f32
#include "harness/core/round_strip.inc"
#undef REAL
#undef BITS
#undef FRACTION
#undef NAME

#define REAL       double
#define BITS       uint64_t
#define FRACTION   52
#define NAME(word) word##_f64
#include "harness/core/round_strip.inc"
#undef REAL
#undef BITS
#undef FRACTION
#undef NAME

struct nh_span nh_span_zero(void)
{
    return (struct nh_span){.min_abs = HUGE_VAL};
}

void nh_round_f32(const struct nh_fmt *f, float *x, size_t n, struct nh_span *span, nh_bad_value *bad, void *arg)
{
    assert(!nh_fmt_wide(f));
    span_f32(f, x, n, span, bad, arg);
}

void nh_round_f64(const struct nh_fmt *f, double *x, size_t n, struct nh_span *span, nh_bad_value *bad, void *arg)
{
    span_f64(f, x, n, span, bad, arg);
}
