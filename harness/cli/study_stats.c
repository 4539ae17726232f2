// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/study.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_statistics.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double nh_fisher(size_t k, size_t n, size_t other_k, size_t other_n)
{
    const size_t all_k = k + other_k, all = n + other_n;
    return gsl_cdf_hypergeometric_P((unsigned)k, (unsigned)all_k, (unsigned)(all - all_k), (unsigned)n);
}

static bool is_number(struct nh_reading v)
{
    return v.sort == NH_READING_NUMBER || v.sort == NH_READING_BEYOND;
}

static int compare_values(const void *a, const void *b)
{
    const struct nh_reading *x = a, *y = b;
    if (isnan(x->number) || isnan(y->number))
        return isnan(x->number) - isnan(y->number);
    if (x->number < y->number || x->number > y->number)
        return x->number < y->number ? -1 : 1;
    return (x->sort == NH_READING_BEYOND) - (y->sort == NH_READING_BEYOND);
}

struct nh_spread nh_spread(struct obstack *memory, const struct nh_reading *values, size_t n)
{
    struct nh_reading *sorted = nh_alloc(memory, (n + 1) * sizeof *sorted);
    struct nh_spread s = {.n = 0};
    for (size_t i = 0; i < n; i++)
        if (is_number(values[i]))
            sorted[s.n++] = values[i];
    if (s.n == 0)
        return s;
    qsort(sorted, s.n, sizeof *sorted, compare_values);
    const struct nh_reading low = sorted[(s.n - 1) / 2], high = sorted[s.n / 2];
    s.least = sorted[0];
    s.largest = sorted[s.n - 1];
    s.median = high;
    if (low.number < high.number || low.sort != high.sort) {
        s.median.number = (low.number + high.number) / 2;
        s.median.sort = low.sort == NH_READING_BEYOND ? low.sort : high.sort;
    }
    return s;
}

const char *nh_mode(const struct nh_reading *values, size_t n, size_t *count)
{
    const char *mode = NULL;
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        for (size_t k = i; k < n && values[i].sort == NH_READING_WORD; k++)
            same += values[k].sort == NH_READING_WORD && strcmp(values[k].word, values[i].word) == 0;
        if (same > *count) {
            mode = values[i].word;
            *count = same;
        }
    }
    return mode;
}

double nh_lr_sensitivity(const double *losses, size_t n)
{
    return gsl_stats_mean(losses, 1, n) - gsl_stats_min(losses, 1, n);
}

/* False where the logarithms of n points have no slope. */
static bool fit(const double *x, const double *y, double *log_x, double *log_y, size_t n, double *slope)
{
    size_t different = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (x[k] != x[i] && k < i)
            k++;
        different += k == i;
        log_x[i] = log(x[i]);
        log_y[i] = log(y[i]);
        if (!isfinite(log_x[i]) || !isfinite(log_y[i]))
            return false;
    }
    double start, var_start, cov, var, residual;
    gsl_fit_linear(log_x, 1, log_y, 1, n, &start, slope, &var_start, &cov, &var, &residual);
    return different >= 3;
}

struct nh_estimate nh_seed_exponent(struct obstack *memory, const double *x, const double *y, const char *const *seeds,
                                    size_t n)
{
    double *slopes = nh_alloc(memory, (3 * n + 1) * sizeof *slopes), *log_x = slopes + n, *log_y = log_x + n;
    size_t n_slopes = 0;
    for (size_t start = 0, end; start < n; start = end) {
        for (end = start + 1; end < n && strcmp(seeds[start], seeds[end]) == 0; end++)
            ;
        n_slopes += fit(x + start, y + start, log_x, log_y, end - start, &slopes[n_slopes]);
    }
    return nh_estimate_mean(slopes, n_slopes);
}
