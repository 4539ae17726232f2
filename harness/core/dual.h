// SPDX-License-Identifier: GPL-3.0-or-later
/** The dual of an activation: Phi(c) = E[act(sigma a) act(sigma b)], a and b standard normals of correlation c. It
 *  tells the Gram matrix of a wide random layer's output from that of its input. */
#ifndef NH_DUAL_H
#define NH_DUAL_H

#include "harness/core/config.h"

enum { NH_DUAL_NODES = 160, NH_DUAL_ORDER = 80 };

/** Nodes and weights of the mean over a standard normal: Gauss-Hermite. */
struct nh_normal_mean {
    double x[NH_DUAL_NODES], w[NH_DUAL_NODES];
};

/** NH_FAILED where GSL has no memory. */
int nh_normal_mean_init(struct nh_normal_mean *mean);

/** Phi as a power series in c; the coefficients are the squares of those of act(sigma x) in normalised Hermite
 *  polynomials (Daniely, Frostig, Singer 2016, arXiv:1602.05897). None is negative, so cutting the series at n is an
 *  error of at most the sum of the rest, which is known from Phi(1); it is put on the next power: Phi(1) is exact.
 *  ReLU, whose series is slow, has its closed form (Cho and Saul 2009, arc-cosine kernel of order 1). */
struct nh_dual {
    bool relu;
    double sigma;
    int order;
    double coef[NH_DUAL_ORDER + 2];
};

/** The activation of this FFN (of its gate where it has one: GELU in the tanh form for gelu and geglu, SiLU for
 *  swiglu), fed by numbers of deviation sigma. Relative error of Phi below 1e-9 for sigma <= 2, 1e-5 at 4. */
void nh_dual_init(struct nh_dual *dual, enum nh_ffn ffn, double sigma, const struct nh_normal_mean *mean);

/** Phi(c), |c| <= 1 (more is cut). */
double nh_dual_value(const struct nh_dual *dual, double c);

/** Phi'(1) = sigma^2 E[act'(sigma a)^2]. */
double nh_dual_slope(const struct nh_dual *dual);

#endif
