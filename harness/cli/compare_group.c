// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/compare.h"
#include "harness/cli/near.h"
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

/* Names of what differs among the runs of a group, seeds apart. */
static const char *list_pooled(struct obstack *memory, const struct nh_group *g)
{
    for (enum nh_key k = NH_KEY_LABEL; k < NH_KEY_SEED; k++)
        if (varies(g, nh_key_name(k)))
            add_name(memory, nh_key_name(k));
    for (const struct nh_run_option *o = g->runs[0]->info->options; o; o = o->next)
        if (find_key(o->name) == NH_KEY_COUNT && strcmp(o->name, "data-seed") != 0 && strcmp(o->name, "sample") != 0 && varies(g, o->name))
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

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = compare_values(x->by, y->by, x->n_by);
    order = order ? order : nh_seed_order(x->run, y->run);
    return order ? order : x->index < y->index ? -1 : 1;
}

/* Smallest share diverged first, then smallest final RMS; those without one last. */
static int compare_groups(const void *a, const void *b)
{
    const struct nh_group *x = a, *y = b;
    const size_t p = x->outcomes[NH_OUTCOME_DIVERGED] * y->n, q = y->outcomes[NH_OUTCOME_DIVERGED] * x->n;
    if (p != q)
        return p < q ? -1 : 1;
    const double r = x->rms.n ? x->rms.mean : (double)NAN, s = y->rms.n ? y->rms.mean : (double)NAN;
    if (isnan(r) != isnan(s))
        return isnan(r) ? 1 : -1;
    if (r < s || r > s)
        return r < s ? -1 : 1;
    return compare_values(x->by, y->by, x->n_by);
}

/* ---- groups ---- */

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

static struct nh_group make_group(struct nh_comparison *c, const struct entry *entries, size_t n)
{
    struct nh_compared **runs = nh_alloc(&c->memory, n * sizeof *runs);
    for (size_t i = 0; i < n; i++)
        runs[i] = entries[i].run;
    struct nh_group g = {.by = entries->by, .n_by = entries->n_by, .runs = runs, .n = n};
    g.pooled = list_pooled(&c->memory, &g);
    nh_group_summarise(&c->memory, &g);
    return g;
}

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
