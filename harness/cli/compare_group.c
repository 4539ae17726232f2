// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/compare.h"
#include "harness/cli/near.h"
#include "harness/cli/option_table.h"
#include "harness/core/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* NH_KEY_COUNT where it is the name of no key. */
static enum nh_key find_key(const char *name)
{
    enum nh_key k = 0;
    while (k < NH_KEY_COUNT && strcmp(nh_key_name(k), name) != 0)
        k++;
    return k;
}

const char *nh_compared_value(const struct nh_compared *run, const char *name)
{
    const enum nh_key key = find_key(name);
    if (key < NH_KEY_COUNT)
        return run->keys[key];
    const struct nh_run_option *o = run->info->options;
    while (o && strcmp(o->name, name) != 0)
        o = o->next;
    return o ? o->value : NULL;
}

/* Refuses a name that no run tells. */
static int check_name(const struct nh_comparison *c, const char *name)
{
    for (const struct nh_compared *run = c->runs; run; run = run->next)
        if (nh_compared_value(run, name))
            return NH_OK;
    struct nh_near near = nh_near_start(name, "");
    for (enum nh_key k = 0; k < NH_KEY_COUNT; k++)
        nh_near_try(&near, nh_key_name(k));
    for (const struct nh_run_option *o = c->runs->info->options; o; o = o->next)
        if (find_key(o->name) == NH_KEY_COUNT)
            nh_near_try(&near, o->name);
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "no run tells its '%.60s'%s (options other than the key columns stand in config.csv)",
                   name, nh_near_text(&near, hint));
}

static bool varies(const struct nh_group *g, const char *name)
{
    const char *first = NULL;
    for (size_t i = 0; i < g->n; i++) {
        const char *value = nh_compared_value(g->runs[i], name);
        if (first && value && strcmp(first, value) != 0)
            return true;
        first = first ? first : value;
    }
    return false;
}

/* Adds the name to the list that grows on the obstack. */
static void add_name(struct obstack *memory, const char *name)
{
    obstack_printf(memory, "%s%s", obstack_object_size(memory) > 0 ? ", " : "", name);
}

/* What tells no samples apart: the seed in other words, and what only says what was measured of a sample. */
static bool is_no_difference(const struct nh_group *g, const char *option)
{
    if (strcmp(option, "data-seed") == 0 || strcmp(option, "sample") == 0)
        return true;
    const struct nh_option *o = nh_option_find(option, strlen(option));
    return o && o->measures && nh_compared_value(g->runs[0], "sample");
}

/* Names of what differs among the runs of a group, seeds apart. */
static const char *list_pooled(struct obstack *memory, const struct nh_group *g)
{
    for (enum nh_key k = NH_KEY_LABEL; k < NH_KEY_SEED; k++)
        if (varies(g, nh_key_name(k)))
            add_name(memory, nh_key_name(k));
    for (const struct nh_run_option *o = g->runs[0]->info->options; o; o = o->next)
        if (find_key(o->name) == NH_KEY_COUNT && !is_no_difference(g, o->name) && varies(g, o->name))
            add_name(memory, o->name);
    return nh_grown(memory);
}

/* ---- order ---- */

/* A run on its way into its group. */
struct entry {
    const char **by;
    size_t n_by, index;
    struct nh_compared *run;
};

static int compare_values(const char *const *a, const char *const *b, size_t n)
{
    int order = 0;
    for (size_t i = 0; i < n && !order; i++)
        order = strverscmp(a[i], b[i]); /* depth 6 before depth 12 */
    return order;
}

int nh_seed_order(const struct nh_compared *a, const struct nh_compared *b)
{
    return strverscmp(a->keys[NH_KEY_SEED], b->keys[NH_KEY_SEED]);
}

/* Model, data and seed in one word; "" where nothing tells it. */
static const char *sample_of(const struct nh_compared *run)
{
    const char *sample = nh_compared_value(run, "sample");
    return sample ? sample : "";
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = compare_values(x->by, y->by, x->n_by);
    order = order ? order : nh_seed_order(x->run, y->run);
    order = order ? order : strcmp(sample_of(x->run), sample_of(y->run));
    return order ? order : x->index < y->index ? -1 : 1;
}

static int compare_means(struct nh_estimate a, struct nh_estimate b)
{
    const double x = a.n ? a.mean : (double)NAN, y = b.n ? b.mean : (double)NAN;
    if (isnan(x) || isnan(y))
        return isnan(x) - isnan(y);
    return (x > y) - (x < y);
}

/* Smallest share diverged first, then smallest final RMS, then those without one by their final loss; those without either last. */
static int compare_groups(const void *a, const void *b)
{
    const struct nh_group *x = a, *y = b;
    const size_t p = x->outcomes[NH_OUTCOME_DIVERGED] * y->n, q = y->outcomes[NH_OUTCOME_DIVERGED] * x->n;
    if (p != q)
        return p < q ? -1 : 1;
    int order = compare_means(x->rms, y->rms);
    order = order ? order : compare_means(x->final_loss, y->final_loss);
    return order ? order : compare_values(x->by, y->by, x->n_by);
}

static size_t count_runs(const struct nh_comparison *c)
{
    size_t n = 0;
    for (const struct nh_compared *run = c->runs; run; run = run->next)
        n++;
    return n;
}

/* All runs with the values of by, sorted by these, then by seed. */
static struct entry *sorted_entries(struct nh_comparison *c, const char *const *by, size_t n_by, size_t n)
{
    struct entry *entries = nh_alloc(&c->memory, n * sizeof *entries);
    size_t i = 0;
    for (struct nh_compared *run = c->runs; run; run = run->next, i++) {
        entries[i] = (struct entry){nh_alloc(&c->memory, n_by * sizeof *by), n_by, i, run};
        for (size_t k = 0; k < n_by; k++) {
            const char *value = nh_compared_value(run, by[k]);
            entries[i].by[k] = value ? value : "";
        }
    }
    qsort(entries, n, sizeof *entries, compare_entries);
    return entries;
}

/* ---- samples ---- */

static bool is_finished(const struct nh_compared *run)
{
    return run->outcome != NH_OUTCOME_INTERRUPTED && run->outcome != NH_OUTCOME_BROKEN_OFF;
}

static const char *path_of(const struct nh_compared *run)
{
    const char *path = "?";
    for (int s = NH_SOURCES - 1; s >= 0; s--)
        path = run->source[s] ? run->source[s] : path;
    return path;
}

static void conflict(struct nh_comparison *c, const struct nh_compared *a, const struct nh_compared *b, const char *what, double x,
                     double y)
{
    if (c->conflicts++)
        return;
    obstack_printf(&c->memory, "%s and %s are of one sample, but their %s is %.9g and %.9g; the first counts", path_of(a), path_of(b), what,
                   x, y);
    c->conflict = nh_grown(&c->memory);
}

/* Takes what b has measured of the sample of a into a. */
static void join(struct nh_comparison *c, struct nh_compared *a, const struct nh_compared *b)
{
    static const struct {
        enum { SAME, STREAM, LARGEST, LEAST } kind; /* equal in all runs; of the last step with rows; over the steps that were looked at */
        const char *name;
    } rules[NH_QUANTITIES] = {
        [NH_FINAL_RMS] = {STREAM, "final RMS"},
        [NH_LAW_RMS] = {STREAM, "law"},
        [NH_MAX_ABS] = {LARGEST, NULL},
        [NH_HEADROOM] = {LEAST, NULL},
        [NH_LOG_GRAD_RATIO] = {STREAM, "gradient ratio (its logarithm)"},
        [NH_OVERFLOWS] = {LARGEST, NULL},
        [NH_FINAL_LOSS] = {SAME, "final loss"},
        [NH_VAL_LOSS] = {SAME, "validation loss"},
        [NH_LOSS_SCALE] = {SAME, "loss scale"},
        [NH_SKIPPED] = {SAME, "count of skipped steps"},
        [NH_STEPS_DONE] = {SAME, "count of steps"},
    };
    for (enum nh_quantity q = 0; q < NH_QUANTITIES; q++) {
        struct nh_measure *x = &a->of[q];
        const struct nh_measure *y = &b->of[q];
        const int sign = rules[q].kind == LEAST ? -1 : 1;
        if (!y->known)
            continue;
        const bool compared = rules[q].kind == SAME || (rules[q].kind == STREAM && a->step == b->step);
        if (compared && x->known && x->value != y->value && !(isnan(x->value) && isnan(y->value)))
            conflict(c, a, b, rules[q].name, x->value, y->value);
        if (!x->known || (rules[q].kind == STREAM && b->step > a->step) || (rules[q].kind >= LARGEST && nh_beyond(x, y->value, sign))) {
            *x = *y;
            a->tightest = q == NH_HEADROOM ? b->tightest : a->tightest;
        }
    }
    a->step = fmax(a->step, b->step);
    if ((a->outcome == NH_OUTCOME_DIVERGED) != (b->outcome == NH_OUTCOME_DIVERGED))
        conflict(c, a, b, "divergence (1 = diverged)", a->outcome == NH_OUTCOME_DIVERGED, b->outcome == NH_OUTCOME_DIVERGED);
    else if (b->outcome == NH_OUTCOME_OVERFLOWED)
        a->outcome = b->outcome;
    if (!a->first.known)
        a->first = b->first;
}

/* The runs of one sample as one: of those that have finished, else of all. */
static struct nh_compared *join_sample(struct nh_comparison *c, const struct entry *entries, size_t n)
{
    size_t finished = 0;
    for (size_t i = 0; i < n; i++)
        finished += is_finished(entries[i].run);
    struct nh_compared *sample = NULL;
    for (size_t i = 0; i < n; i++) {
        if (finished && !is_finished(entries[i].run))
            continue;
        if (sample) {
            join(c, sample, entries[i].run);
        } else {
            sample = nh_alloc(&c->memory, sizeof *sample);
            *sample = *entries[i].run;
        }
    }
    return sample;
}

static struct nh_group make_group(struct nh_comparison *c, const struct entry *entries, size_t n)
{
    struct nh_compared **runs = nh_alloc(&c->memory, n * sizeof *runs);
    struct nh_group g = {.by = entries->by, .n_by = entries->n_by, .runs = runs};
    for (size_t start = 0, end; start < n; start = end) {
        const char *sample = sample_of(entries[start].run);
        for (end = start + 1; *sample && end < n && strcmp(sample_of(entries[end].run), sample) == 0; end++)
            ;
        runs[g.n++] = join_sample(c, entries + start, end - start);
    }
    g.pooled = list_pooled(&c->memory, &g);
    nh_group_summarise(&c->memory, &g);
    return g;
}

/* ---- groups ---- */

int nh_comparison_group(struct nh_comparison *c, const char *const *by, size_t n_by, struct nh_group **groups,
                        size_t *n)
{
    for (size_t k = 0; k < n_by; k++) {
        const int status = check_name(c, by[k]);
        if (status)
            return status;
    }
    const size_t n_runs = count_runs(c);
    const struct entry *entries = sorted_entries(c, by, n_by, n_runs);
    *groups = nh_alloc(&c->memory, n_runs * sizeof **groups);
    *n = 0;
    for (size_t start = 0, end; start < n_runs; start = end) {
        for (end = start + 1; end < n_runs && compare_values(entries[start].by, entries[end].by, n_by) == 0; end++)
            ;
        (*groups)[(*n)++] = make_group(c, entries + start, end - start);
    }
    qsort(*groups, *n, sizeof **groups, compare_groups);
    return NH_OK;
}
