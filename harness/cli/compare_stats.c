// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/compare.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct nh_estimate nh_estimate_mean(const double *values, size_t n)
{
    struct nh_estimate e = {.n = n, .mean = (double)NAN, .se = (double)NAN};
    if (n > 0)
        e.mean = gsl_stats_mean(values, 1, n);
    if (n > 1)
        e.se = gsl_stats_sd_m(values, 1, n, e.mean) / sqrt((double)n);
    return e;
}

struct nh_estimate nh_estimate_difference(struct nh_estimate a, struct nh_estimate b)
{
    if (a.n == 0 || b.n == 0)
        return (struct nh_estimate){.n = 0};
    return (struct nh_estimate){.n = a.n < b.n ? a.n : b.n, .mean = a.mean - b.mean, .se = hypot(a.se, b.se)};
}

static size_t count_distinct(struct obstack *memory, const double *values, size_t n)
{
    double *sorted = nh_alloc(memory, n * sizeof *values);
    memcpy(sorted, values, n * sizeof *values);
    gsl_sort(sorted, 1, n);
    size_t count = n > 0;
    for (size_t i = 1; i < n; i++)
        count += sorted[i] != sorted[i - 1];
    obstack_free(memory, sorted);
    return count;
}

struct nh_estimate nh_estimate_exponent(struct obstack *memory, const double *depth, const double *y,
                                        const char *const *seeds, size_t n)
{
    struct nh_estimate e = {.n = 0};
    if (count_distinct(memory, depth, n) < 3)
        return e;
    double *u = nh_alloc(memory, 2 * n * sizeof *u), *v = u + n;
    for (size_t i = 0; i < n; i++) {
        u[i] = log(depth[i]);
        v[i] = log(y[i]);
    }
    const double mean_u = gsl_stats_mean(u, 1, n), mean_v = gsl_stats_mean(v, 1, n);
    double uu = 0, uv = 0;
    for (size_t i = 0; i < n; i++) {
        u[i] -= mean_u;
        v[i] -= mean_v;
        uu += u[i] * u[i];
        uv += u[i] * v[i];
    }
    e.n = n;
    e.mean = uv / uu;
    /* Depths of one seed share their weights, so that their residuals fall together. With the same depths at every seed
       this is the standard error of the mean of the seeds' own exponents. */
    double squares = 0, of_seed = 0, n_seeds = 0;
    for (size_t i = 0; i < n; i++) {
        of_seed += u[i] * (v[i] - e.mean * u[i]);
        if (i + 1 < n && strcmp(seeds[i], seeds[i + 1]) == 0)
            continue;
        squares += of_seed * of_seed;
        of_seed = 0;
        n_seeds++;
    }
    e.se = n_seeds > 1 ? sqrt(squares * n_seeds / (n_seeds - 1)) / uu : (double)NAN;
    obstack_free(memory, u);
    return e;
}

void nh_wilson(size_t k, size_t n, double *low, double *high)
{
    const double z = gsl_cdf_ugaussian_Pinv(0.975), m = (double)n, p = (double)k / m;
    const double centre = (p + z * z / (2 * m)) / (1 + z * z / m);
    const double half = z * sqrt(p * (1 - p) / m + z * z / (4 * m * m)) / (1 + z * z / m);
    *low = k == 0 ? 0 : centre - half;
    *high = k == n ? 1 : centre + half;
}

/* ---- groups ---- */

/* Over the runs where it was measured. */
static struct nh_estimate mean_of(struct obstack *memory, const struct nh_group *g, enum nh_quantity q)
{
    double *values = nh_alloc(memory, g->n * sizeof *values);
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        if (g->runs[i]->of[q].known)
            values[n++] = g->runs[i]->of[q].value;
    const struct nh_estimate e = nh_estimate_mean(values, n);
    obstack_free(memory, values);
    return e;
}

/* Of final RMS and law, over the same runs: those whose final RMS was measured. The law of a part of them is no law. */
static void fit(struct obstack *memory, struct nh_group *g)
{
    double *depth = nh_alloc(memory, 3 * g->n * sizeof *depth), *rms = depth + g->n, *law = rms + g->n;
    const char **seeds = nh_alloc(memory, g->n * sizeof *seeds);
    size_t n = 0, n_law = 0;
    for (size_t i = 0; i < g->n; i++) {
        const struct nh_compared *run = g->runs[i];
        if (!run->of[NH_FINAL_RMS].known)
            continue;
        seeds[n] = run->keys[NH_KEY_SEED];
        depth[n] = run->depth;
        rms[n] = run->of[NH_FINAL_RMS].value;
        law[n++] = run->of[NH_LAW_RMS].value;
        n_law += run->of[NH_LAW_RMS].known;
    }
    g->rms = nh_estimate_mean(rms, n);
    g->exponent = nh_estimate_exponent(memory, depth, rms, seeds, n);
    if (n_law == n) {
        g->law = nh_estimate_mean(law, n);
        g->law_exponent = nh_estimate_exponent(memory, depth, law, seeds, n);
    }
    obstack_free(memory, depth);
}

static struct nh_measure extreme_of(const struct nh_group *g, enum nh_quantity q, int sign)
{
    struct nh_measure extreme = {.known = false};
    for (size_t i = 0; i < g->n; i++)
        if (g->runs[i]->of[q].known && nh_beyond(&extreme, g->runs[i]->of[q].value, sign))
            extreme = g->runs[i]->of[q];
    return extreme;
}

static struct nh_measure sum_of(const struct nh_group *g, enum nh_quantity q)
{
    struct nh_measure sum = {.known = false};
    for (size_t i = 0; i < g->n; i++)
        if (g->runs[i]->of[q].known)
            sum = (struct nh_measure){true, sum.value + g->runs[i]->of[q].value};
    return sum;
}

static void find_extremes(struct nh_group *g)
{
    g->max_abs = extreme_of(g, NH_MAX_ABS, 1);
    for (size_t i = 0; i < g->n; i++) {
        const struct nh_measure headroom = g->runs[i]->of[NH_HEADROOM];
        if (headroom.known && nh_beyond(&g->headroom, headroom.value, -1)) {
            g->headroom = headroom;
            g->tightest = g->runs[i]->tightest;
        }
    }
}

static int compare_places(const void *a, const void *b)
{
    const struct nh_place *const *x = a, *const *y = b;
    int order = ((*x)->layer > (*y)->layer) - ((*x)->layer < (*y)->layer);
    order = order ? order : strcmp((*x)->sublayer, (*y)->sublayer);
    order = order ? order : strcmp((*x)->site, (*y)->site);
    return order ? order : strcmp((*x)->direction, (*y)->direction);
}

/* The most frequent first offender; of equals the one of the lowest layer. */
static void find_first(struct obstack *memory, struct nh_group *g)
{
    const struct nh_place **places = nh_alloc(memory, g->n * sizeof *places);
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        if (g->runs[i]->first.known)
            places[n++] = &g->runs[i]->first;
    qsort(places, n, sizeof *places, compare_places);
    for (size_t start = 0, end; start < n; start = end) {
        for (end = start + 1; end < n && compare_places(&places[start], &places[end]) == 0; end++)
            ;
        if (end - start <= g->first_runs)
            continue;
        g->first = *places[start];
        g->first_runs = end - start;
        g->first_step_last = g->first.step;
        for (size_t i = start; i < end; i++) {
            g->first.step = places[i]->step < g->first.step ? places[i]->step : g->first.step;
            g->first_step_last = places[i]->step > g->first_step_last ? places[i]->step : g->first_step_last;
        }
    }
    obstack_free(memory, places);
}

void nh_group_summarise(struct obstack *memory, struct nh_group *g)
{
    for (size_t i = 0; i < g->n; i++)
        g->outcomes[g->runs[i]->outcome]++;
    g->overflows = sum_of(g, NH_OVERFLOWS);
    g->skipped = sum_of(g, NH_SKIPPED);
    for (int largest = 0; largest < 2; largest++) {
        g->loss_scale[largest] = extreme_of(g, NH_LOSS_SCALE, largest ? 1 : -1);
        g->steps_done[largest] = extreme_of(g, NH_STEPS_DONE, largest ? 1 : -1);
    }
    find_first(memory, g);
    if (g->outcomes[NH_OUTCOME_DIVERGED] > 0)
        return;
    fit(memory, g);
    find_extremes(g);
    g->log_grad_ratio = mean_of(memory, g, NH_LOG_GRAD_RATIO);
    g->final_loss = mean_of(memory, g, NH_FINAL_LOSS);
    g->val_loss = mean_of(memory, g, NH_VAL_LOSS);
}

/* ---- changes ---- */

/* Mean of a quantity over the runs from start on that have one seed; *end: behind them. */
static struct nh_measure mean_at_seed(const struct nh_group *g, size_t start, enum nh_quantity q, size_t *end)
{
    double sum = 0;
    size_t n = 0, i = start;
    for (; i < g->n && strcmp(g->runs[i]->keys[NH_KEY_SEED], g->runs[start]->keys[NH_KEY_SEED]) == 0; i++)
        if (g->runs[i]->of[q].known) {
            sum += g->runs[i]->of[q].value;
            n++;
        }
    *end = i;
    return (struct nh_measure){n > 0, sum / (double)n};
}

/* Differences at the seeds that both groups have; how many. */
static size_t pair(const struct nh_group *from, const struct nh_group *to, enum nh_quantity q, double *differences)
{
    size_t n = 0;
    for (size_t i = 0, k = 0, i_end, k_end; i < from->n && k < to->n;) {
        const struct nh_measure a = mean_at_seed(from, i, q, &i_end), b = mean_at_seed(to, k, q, &k_end);
        const int order = nh_seed_order(from->runs[i], to->runs[k]);
        if (order == 0 && a.known && b.known)
            differences[n++] = b.value - a.value;
        i = order <= 0 ? i_end : i;
        k = order >= 0 ? k_end : k;
    }
    return n;
}

struct nh_estimate nh_group_change(struct obstack *memory, const struct nh_group *from, const struct nh_group *to,
                                   enum nh_quantity q, size_t *pairs)
{
    struct nh_estimate e = {.n = 0};
    double *differences = nh_alloc(memory, to->n * sizeof *differences);
    *pairs = pair(from, to, q, differences);
    if (from->outcomes[NH_OUTCOME_DIVERGED] + to->outcomes[NH_OUTCOME_DIVERGED] == 0)
        e = *pairs > 0 ? nh_estimate_mean(differences, *pairs)
                       : nh_estimate_difference(mean_of(memory, to, q), mean_of(memory, from, q));
    obstack_free(memory, differences);
    return e;
}
