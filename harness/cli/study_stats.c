// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/study.h"

#include <gsl/gsl_cdf.h>
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
    if (low.number < high.number)
        s.median.number = (low.number + high.number) / 2;
    /* A value that is beyond a small number may be above those that are sorted after it. */
    for (size_t i = 0; i < s.n; i++)
        if (sorted[i].sort == NH_READING_BEYOND) {
            s.largest.sort = NH_READING_BEYOND;
            s.median.sort = i <= s.n / 2 ? NH_READING_BEYOND : s.median.sort;
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
