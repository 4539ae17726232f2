// SPDX-License-Identifier: GPL-3.0-or-later
/** The number type of an executor. The files that include this are compiled twice, with NH_REAL_BITS 32 and 64. */
#ifndef NH_REAL_H
#define NH_REAL_H

#include "harness/core/fmt.h"

#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if NH_REAL_BITS == 64
typedef double real;
#define NH_T(name)      name##_f64
#define nh_round_real   nh_round_f64
#define nh_axpy_real    nh_axpy_round_f64
#define cblas_gemm_real cblas_dgemm
#define r_sqrt          sqrt
#define r_abs           fabs
#define r_log           log
#define r_tanh          tanh
#define REAL_MIN        DBL_MIN
#elif NH_REAL_BITS == 32
typedef float real;
#define NH_T(name)      name##_f32
#define nh_round_real   nh_round_f32
#define nh_axpy_real    nh_axpy_round
#define cblas_gemm_real cblas_sgemm
#define r_sqrt          sqrtf
#define r_abs           fabsf
#define r_log           logf
#define r_tanh          tanhf
#define REAL_MIN        FLT_MIN
#else
#error "NH_REAL_BITS must be 32 or 64"
#endif

#if NH_REAL_BITS == 64
static inline double r_exp(double x)
{
    return exp(x);
}
#else
/** e^x within 2 ulp, written without a branch so that loops over it become vector code; exp(-inf) = 0, overflow to inf,
 *  NaN stays NaN. Cody-Waite reduction by ln 2 in two parts, Taylor polynomial of degree 7 (remainder 5e-9), the power of two
 *  applied in two halves so that it may overflow or be subnormal. */
static inline float r_exp(float x)
{
    x = x > 90.0f ? 90.0f : x; /* NaN fails both comparisons */
    x = x < -105.0f ? -105.0f : x;
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer in the low bits */
    float n = shifted - 12582912.0f;
    float r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    int32_t i, bits;
    memcpy(&i, &shifted, sizeof i);
    i -= 0x4b400000; /* the integer n */
    int32_t half = i >> 1;
    float s0, s1;
    bits = (int32_t)((uint32_t)(half + 127) << 23);
    memcpy(&s0, &bits, sizeof s0);
    bits = (int32_t)((uint32_t)(i - half + 127) << 23);
    memcpy(&s1, &bits, sizeof s1);
    return p * s0 * s1;
}
#endif

/** 1 / (1 + e^-x). Without a branch and without overflow: small results keep their digits. */
static inline real sigmoid(real x)
{
    real e = r_exp(-r_abs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

#endif
