// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/fmt.h"

#include "harness/core/err.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float and double expressions must be evaluated in their own type");
_Static_assert(DBL_MANT_DIG == 53 && FLT_MANT_DIG == 24, "float and double must be IEEE binary32 and binary64");

static const struct {
    const char *name;
    int exp_bits, man_bits;
} named[] = {
    {"fp16", 5, 10}, {"bf16", 8, 7},     {"fp32", 8, 23},    {"fp64", 11, 52},
    {"tf32", 8, 10}, {"fp8-e4m3", 4, 3}, {"fp8-e5m2", 5, 2},
};

/* A decimal number of one or two digits without a leading zero, so that every format has one spelling; 0 if none. */
static int small_number(const char **s)
{
    int n = 0;
    for (int digits = 0; digits < 2 && **s >= (n == 0 ? '1' : '0') && **s <= '9'; digits++) {
        n = 10 * n + (**s - '0');
        ++*s;
    }
    return n;
}

static bool parse_bits(const char *name, int *exp_bits, int *man_bits)
{
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strcmp(name, named[i].name) == 0) {
            *exp_bits = named[i].exp_bits;
            *man_bits = named[i].man_bits;
            return true;
        }
    }
    if (*name++ != 'e')
        return false;
    *exp_bits = small_number(&name);
    if (*name++ != 'm')
        return false;
    *man_bits = small_number(&name);
    return *name == '\0' && *exp_bits >= 2 && *exp_bits <= 11 && *man_bits >= 1 && *man_bits <= 52;
}

bool nh_fmt_same(const struct nh_fmt *a, const struct nh_fmt *b)
{
    return a->exp_bits == b->exp_bits && a->man_bits == b->man_bits && a->has_inf == b->has_inf;
}

int nh_fmt_parse(struct nh_fmt *out, const char *name)
{
    int x, y;
    if (!parse_bits(name, &x, &y))
        return nh_fail(NH_USAGE,
                       "unknown number format '%.60s': it must be fp16, bf16, fp32, fp64, tf32, fp8-e4m3, fp8-e5m2 "
                       "or eXmY with X in 2..11 and Y in 1..52, such as e4m10",
                       name);

    struct nh_fmt f = {.exp_bits = x, .man_bits = y, .has_inf = true};
    snprintf(f.name, sizeof f.name, "%s", name);
    const int bias = (1 << (x - 1)) - 1;
    f.emin = 1 - bias;
    f.min_normal = ldexp(1, f.emin);
    f.min_subnormal = ldexp(1, f.emin - y);
    f.max = ldexp(2 - ldexp(1, -y), bias);
    f.overflow = ldexp(2 - ldexp(1, -y - 1), bias); /* half an ulp above max; rounds to inf for fp64 */
    if (strcmp(name, "fp8-e4m3") == 0) {
        /* The top exponent holds numbers too, NaN has its last pattern only. Max ends in an even bit: ties go down. */
        f.has_inf = false;
        f.max = 448;
        f.overflow = nextafter(464, HUGE_VAL);
    }
    *out = f;
    return NH_OK;
}

bool nh_fmt_wide(const struct nh_fmt *f)
{
    return (f->exp_bits > 8 || f->man_bits > 10) && !(f->exp_bits == 8 && f->man_bits == 23);
}

static inline uint64_t to_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double from_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline double round_one(const struct nh_fmt *f, double x)
{
    const double a = fabs(x);
    if (!(a < f->overflow))
        return isnan(x) ? x : copysign(f->has_inf ? HUGE_VAL : (double)NAN, x);
    if (a < f->min_normal) {
        /* Doubles at this height are min_subnormal apart: the addition itself rounds, to nearest even. */
        const double magic = f->min_subnormal * 0x1p52;
        return copysign((a + magic) - magic, x);
    }
    const int shift = 52 - f->man_bits;
    const uint64_t unit = (uint64_t)1 << shift, u = to_bits(x);
    /* Just under half a unit, and one more where the last kept bit is odd; a carry moves the exponent up. */
    return from_bits((u + ((unit - 1) >> 1) + ((u & unit) != 0 && shift > 0)) & ~(unit - 1));
}

double nh_round(const struct nh_fmt *f, double x)
{
    return round_one(f, x);
}

double nh_fmt_headroom(const struct nh_fmt *f, double x)
{
    const double quotient = f->max / x;
    return isinf(quotient) && x > 0 ? log2(f->max) - log2(x) : log2(quotient);
}

/* From s, the double nearest to an exact value, and the sign of (exact - s): the exact value rounded to odd, from which
 * rounding to at least two bits less gives what a single rounding would have given. */
static inline double to_odd(double s, double error)
{
    const uint64_t u = to_bits(s);
    if ((error < 0 || error > 0) && (u & 1) == 0)
        return from_bits((error > 0) == (s > 0) ? u + 1 : u - 1);
    return s;
}

/* x + y = sum + error, exactly (Knuth). */
static inline double two_sum(double x, double y, double *error)
{
    const double s = x + y, y1 = s - x;
    *error = (x - (s - y1)) + (y - y1);
    return s;
}

/* The product of two values has at most 52 bits and stays in the range of double. */
static bool product_is_exact(const struct nh_fmt *f)
{
    return f->exp_bits <= 10 && f->man_bits <= 25;
}

static inline double fma_exact_product(const struct nh_fmt *f, double acc, double a, double b)
{
    double error;
    const double s = two_sum(acc, a * b, &error);
    return round_one(f, to_odd(s, error));
}

static double fma_long_product(const struct nh_fmt *f, double acc, double a, double b)
{
    const double s = fma(a, b, acc);
    if (f->man_bits > 50 || !isfinite(s))
        return round_one(f, s);
    /* Error of a fused multiply-add: S. Boldo, J.-M. Muller, Exact and approximated error of the FMA (2011), ErrFma. */
    const double product = a * b, product_error = fma(a, b, -product);
    double low, middle, lowest;
    const double high = two_sum(acc, product_error, &low);
    const double top = two_sum(product, high, &middle);
    const double error = two_sum((top - s) + middle, low, &lowest);
    return round_one(f, to_odd(s, error));
}

double nh_fma_round(const struct nh_fmt *f, double acc, double a, double b)
{
    return product_is_exact(f) ? fma_exact_product(f, acc, a, b) : fma_long_product(f, acc, a, b);
}

/* fma_exact_product without a branch, for the compiler to make vectors of. */
struct lane {
    uint64_t normal, up, overflow;
    double beyond;
};

static struct lane lane_of(const struct nh_fmt *f)
{
    return (struct lane){
        .normal = to_bits(f->min_normal),
        .up = (uint64_t)(52 - f->man_bits) << 52,
        .overflow = to_bits(f->overflow),
        .beyond = f->has_inf ? HUGE_VAL : (double)NAN,
    };
}

static inline double fma_lane(const struct lane *l, double acc, double a, double b)
{
    const uint64_t sign = (uint64_t)1 << 63, inf = to_bits(HUGE_VAL);
    double error;
    const double s = two_sum(acc, a * b, &error);
    uint64_t u = to_bits(s);
    const uint64_t towards = ((to_bits(error) ^ u) & sign) != 0 ? (uint64_t)-1 : 1;
    u += fabs(error) > 0 && (u & 1) == 0 ? towards : 0;

    /* Adding a power of two so large that its neighbours are one unit of the format apart rounds to that unit. */
    const uint64_t size = u & ~sign, power = size & inf;
    const double magic = from_bits((power > l->normal ? power : l->normal) + l->up);
    const double rounded = (from_bits(size) + magic) - magic;
    const double fits = size < l->overflow ? rounded : l->beyond;
    return from_bits(to_bits(size > inf ? from_bits(size) : fits) | (u & sign));
}

void nh_axpy_round(const struct nh_fmt *f, float *restrict acc, float a, const float *restrict b, size_t n)
{
    assert(!nh_fmt_wide(f));
    const struct lane l = lane_of(f);
    for (size_t j = 0; j < n; j++)
        acc[j] = (float)fma_lane(&l, (double)acc[j], (double)a, (double)b[j]);
}

void nh_axpy_round_f64(const struct nh_fmt *f, double *restrict acc, double a, const double *restrict b, size_t n)
{
    if (product_is_exact(f)) {
        const struct lane l = lane_of(f);
        for (size_t j = 0; j < n; j++)
            acc[j] = fma_lane(&l, acc[j], a, b[j]);
    } else {
        for (size_t j = 0; j < n; j++)
            acc[j] = fma_long_product(f, acc[j], a, b[j]);
    }
}

int nh_fmt_self_check(void)
{
    /* volatile: the machine must do the arithmetic, not the compiler. */
    volatile float tiny32 = FLT_MIN;
    volatile double tiny64 = DBL_MIN, one = 1, zero = 0;
    volatile float one32 = 1;

    tiny32 = tiny32 * 0.5F;
    tiny64 = tiny64 * 0.5;
    if (tiny32 * 2 != FLT_MIN || tiny64 * 2 != DBL_MIN)
        return nh_fail(NH_FAILED,
                       "the processor flushes subnormal numbers to zero: build without -ffast-math and do not "
                       "set the FTZ or DAZ mode");

    volatile double nan = zero / zero, inf = one / zero;
    if (!isnan(nan) || nan == nan || isnan(inf) || isfinite(inf) || isfinite(nan))
        return nh_fail(NH_FAILED, "this build cannot tell NaN and inf from numbers: build without -ffast-math");

    const double ulp64 = DBL_EPSILON;
    const float ulp32 = FLT_EPSILON;
    bool even = one + ulp64 / 2 == 1 && (one + ulp64) + ulp64 / 2 == 1 + 2 * ulp64;
    even = even && one32 + ulp32 / 2 == 1 && (one32 + ulp32) + ulp32 / 2 == 1 + 2 * ulp32;
    struct nh_fmt f;
    even = even && nh_fmt_parse(&f, "fp16") == NH_OK;
    const double unit = f.min_subnormal;
    even = even && nh_round(&f, one * 0.5 * unit) == 0 && nh_round(&f, one * 1.5 * unit) == 2 * unit;
    even = even && nh_round(&f, one + 0x1p-11) == 1 && nh_round(&f, one + 0x3p-11) == 1 + 0x1p-9;
    if (!even)
        return nh_fail(NH_FAILED, "the processor or this build does not round to nearest, ties to even: build without "
                                  "-ffast-math and leave the rounding mode alone");
    return NH_OK;
}
