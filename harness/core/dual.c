// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/dual.h"

#include "harness/core/err.h"

#include <gsl/gsl_integration.h>
#include <math.h>

int nh_normal_mean_init(struct nh_normal_mean *mean)
{
    /* weight exp(-x^2/2) */
    gsl_integration_fixed_workspace *w =
        gsl_integration_fixed_alloc(gsl_integration_fixed_hermite, NH_DUAL_NODES, 0, 0.5, 0, 0);
    if (!w)
        return nh_fail(NH_FAILED, "Gauss-Hermite nodes for the law of the stream: not enough memory");
    for (int i = 0; i < NH_DUAL_NODES; i++) {
        mean->x[i] = gsl_integration_fixed_nodes(w)[i];
        mean->w[i] = gsl_integration_fixed_weights(w)[i] / sqrt(2 * M_PI);
    }
    gsl_integration_fixed_free(w);
    return NH_OK;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

void nh_dual_init(struct nh_dual *dual, enum nh_ffn ffn, double sigma, const struct nh_normal_mean *mean)
{
    *dual = (struct nh_dual){.relu = ffn == NH_FFN_RELU, .sigma = sigma};
    if (dual->relu)
        return;
    /* h_{k+1} = up_k x h_k - back_k h_{k-1} */
    double up[NH_DUAL_ORDER + 1], back[NH_DUAL_ORDER + 1], hermite[NH_DUAL_ORDER + 1] = {0}, rest = 0;
    for (int k = 0; k <= NH_DUAL_ORDER; k++) {
        up[k] = 1 / sqrt(k + 1);
        back[k] = sqrt(k) * up[k];
    }
    for (int i = 0; i < NH_DUAL_NODES; i++) {
        double x = mean->x[i], f = ffn == NH_FFN_SWIGLU ? silu(sigma * x) : gelu(sigma * x), wf = mean->w[i] * f;
        rest += wf * f;
        double h = 1, before = 0;
        for (int k = 0; k <= NH_DUAL_ORDER; k++) {
            hermite[k] += wf * h;
            double after = up[k] * x * h - back[k] * before;
            before = h, h = after;
        }
    }
    double enough = 1e-13 * rest;
    int k = 0;
    for (; k <= NH_DUAL_ORDER && rest > enough; k++) {
        dual->coef[k] = hermite[k] * hermite[k];
        rest -= dual->coef[k];
    }
    dual->coef[k] = rest < 0 ? 0 : rest; /* NaN stays NaN */
    dual->order = k;
}

double nh_dual_value(const struct nh_dual *dual, double c)
{
    c = c > 1 ? 1 : c < -1 ? -1 : c;
    if (dual->relu)
        return dual->sigma * dual->sigma * (sqrt(1 - c * c) + c * (M_PI - acos(c))) / (2 * M_PI);
    double sum = 0;
    for (int k = dual->order; k >= 0; k--)
        sum = sum * c + dual->coef[k];
    return sum;
}

double nh_dual_slope(const struct nh_dual *dual)
{
    if (dual->relu)
        return dual->sigma * dual->sigma / 2;
    double sum = 0;
    for (int k = 1; k <= dual->order; k++)
        sum += k * dual->coef[k];
    return sum;
}
