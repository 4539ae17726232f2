// SPDX-License-Identifier: GPL-3.0-or-later
/** Floating-point formats as data, and rounding to them: nearest, ties to even; overflow to inf; subnormals kept.
 *  Emulation means: a value lives in a wider type and holds only values of the narrow format. */
#ifndef NH_FMT_H
#define NH_FMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A format of exp_bits + man_bits + 1 sign bits. eXmY is IEEE style: bias 2^(X-1)-1, top exponent is inf and nan. */
struct nh_fmt {
    char name[16];     /**< as the user writes it: "fp16", "e4m10" */
    int exp_bits;      /**< X, 2..11 */
    int man_bits;      /**< Y, stored mantissa bits, 1..52 */
    int emin;          /**< exponent of the smallest normal number: 1 - bias */
    bool has_inf;      /**< false for fp8-e4m3 (OCP): what does not fit becomes NaN */
    double max;        /**< largest finite value */
    double overflow;   /**< |x| >= this does not fit after rounding (fp16: 65520; fp64: inf). fp8-e4m3: the double next
                            above 464, because 464 itself ties down to 448 */
    double min_normal; /**< 2^emin */
    double min_subnormal;
};

/** Reads "fp16", "bf16", "fp32", "fp64", "tf32", "fp8-e4m3", "fp8-e5m2" or "eXmY". NH_USAGE where it is none of them.
 *  "tf32" gives the number format e8m10; that only inputs of products are in it is the policy's affair. */
int nh_fmt_parse(struct nh_fmt *out, const char *name);

/** True where values of the format are carried in double: exp_bits > 8 or man_bits > 10, except fp32 itself. */
bool nh_fmt_wide(const struct nh_fmt *f);

/** True where two formats hold the same values. */
bool nh_fmt_same(const struct nh_fmt *a, const struct nh_fmt *b);

/** Rounds one value, exactly, whatever the format. NaN stays NaN; the sign of zero is kept. */
double nh_round(const struct nh_fmt *f, double x);

/** log2(max / x) of the format for x >= 0: inf for 0, -inf for inf. The quotient itself need not be a double. */
double nh_fmt_headroom(const struct nh_fmt *f, double x);

/** What rounding a span saw; fields add up or are maxima and minima, so that the order of merging is of no account. */
struct nh_span {
    uint64_t total;     /**< values stored */
    uint64_t underflow; /**< non-zero stored as zero */
    uint64_t subnormal; /**< stored non-zero subnormals of the format */
    uint64_t nonfinite; /**< stored inf and NaN */
    double max_abs;     /**< largest |stored|, NaN left out, inf counts; 0 where there is none */
    double min_abs;     /**< smallest non-zero |stored|; inf where there is none */
};

/** The empty span. */
struct nh_span nh_span_zero(void);

/** Called for each value whose stored form is not finite, index ascending, with the value before rounding. */
typedef void nh_bad_value(void *arg, size_t index, double before);

/** Rounds x[0..n) in place to f and adds what it saw to span; bad (may be NULL) hears of every stored inf and NaN.
 *  Healthy data takes a path without a branch per element. x may hold anything, NaN and inf included.
 *  f32: nh_fmt_wide(f) must be false; fp32 itself only counts. f64: any format; fp64 itself only counts. */
void nh_round_f32(const struct nh_fmt *f, float *x, size_t n, struct nh_span *span, nh_bad_value *bad, void *arg);
void nh_round_f64(const struct nh_fmt *f, double *x, size_t n, struct nh_span *span, nh_bad_value *bad, void *arg);

/** round(acc + a*b) with the product exact and one rounding, for acc, a, b values of f; inf and NaN propagate.
 *  Exact for X <= 10 and Y <= 25 (fp32 too) and for fp64. Up to Y = 50 exact unless the product leaves the range of
 *  double or has bits below 2^-1074. Beyond, but for fp64, the fused result in double is rounded a second time. */
double nh_fma_round(const struct nh_fmt *f, double acc, double a, double b);

/** nh_fma_round for a row of accumulators: acc[j] = round(acc[j] + a*b[j]), j = 0..n-1; acc and b do not overlap.
 *  With k ascending outside, this is a product of matrices whose every sum is rounded.
 *  f32: nh_fmt_wide(f) must be false. */
void nh_axpy_round(const struct nh_fmt *f, float *acc, float a, const float *b, size_t n);
void nh_axpy_round_f64(const struct nh_fmt *f, double *acc, double a, const double *b, size_t n);

/** Makes sure that the calling thread's arithmetic is what rounding relies on: subnormals kept, NaN told from numbers,
 *  ties to even. NH_FAILED where it is not. Takes no time; call it at program start. */
int nh_fmt_self_check(void);

#endif
