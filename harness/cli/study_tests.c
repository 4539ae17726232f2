// SPDX-License-Identifier: GPL-3.0-or-later
/** Holds expectations against what was measured. */
#include "harness/cli/study.h"
#include "results/number.h"

#include <math.h>
#include <string.h>

const char *const nh_verdict_names[] = {"holds", "fails", "too few runs", "cannot tell"};

/* ---- texts ---- */

const char *nh_reading_text(struct obstack *memory, struct nh_reading v)
{
    switch (v.sort) {
    case NH_READING_NUMBER:
    case NH_READING_BEYOND:
        obstack_printf(memory, "%s%.4g", v.sort == NH_READING_BEYOND ? "> " : "",
                       isnan(v.number) ? (double)NAN : v.number);
        break;
    case NH_READING_WORD:
        obstack_printf(memory, "%s", v.word);
        break;
    case NH_READING_NONE:
        break;
    }
    return nh_grown(memory);
}

const char *nh_spread_text(struct obstack *memory, struct nh_spread s)
{
    const char *least = nh_reading_text(memory, s.least), *median = nh_reading_text(memory, s.median),
               *largest = nh_reading_text(memory, s.largest);
    if (strcmp(least, largest) == 0)
        return median;
    obstack_printf(memory, "%s [%s, %s]", median, least, largest);
    return nh_grown(memory);
}

/* "[8, 25]", ">= 100", "<= 1500", "= 1", "residual or embed". */
static const char *wanted_values(struct obstack *memory, const struct nh_expectation *e)
{
    char low[NH_NUMBER_SIZE], high[NH_NUMBER_SIZE];
    nh_number_real(low, e->within.low);
    nh_number_real(high, e->within.high);
    for (size_t i = 0; i < e->is.n; i++)
        obstack_printf(memory, "%s%s", i ? " or " : "", e->is.words[i]);
    if (e->is.n > 0)
        return nh_grown(memory);
    if (e->within.low == e->within.high)
        obstack_printf(memory, "= %s", low);
    else if (isinf(e->within.low))
        obstack_printf(memory, "<= %s", high);
    else if (isinf(e->within.high))
        obstack_printf(memory, ">= %s", low);
    else
        obstack_printf(memory, "[%s, %s]", low, high);
    return nh_grown(memory);
}

const char *nh_where_text(struct obstack *memory, const json_t *where)
{
    const char *option, *comma = "";
    json_t *values;
    json_object_foreach ((json_t *)where, option, values) {
        obstack_printf(memory, "%s%s=", comma, option);
        const bool several = json_is_array(values);
        for (size_t i = 0; i < (several ? json_array_size(values) : 1); i++) {
            const json_t *value = several ? json_array_get(values, i) : values;
            char room[NH_NUMBER_SIZE];
            nh_number_real(room, json_number_value(value));
            obstack_printf(memory, "%s%s", i ? "|" : "", json_is_string(value) ? json_string_value(value) : room);
        }
        comma = ", ";
    }
    return nh_grown(memory);
}

/* ---- groups ---- */

/* The values of a group, and their spread. */
struct sample {
    struct nh_reading *values;
    size_t n;
    struct nh_spread spread;
};

static struct sample take(struct nh_study *study, const struct nh_expectation *e, const json_t *other)
{
    struct sample s;
    s.values = nh_study_values(study, nh_study_select(study, e->where, other), e->measure, &s.n);
    s.spread = nh_spread(&study->memory, s.values, s.n);
    return s;
}

/* What is beyond a number is in a range that is open above that. */
static bool is_wanted(const struct nh_expectation *e, struct nh_reading v)
{
    switch (v.sort) {
    case NH_READING_NUMBER:
        return v.number >= e->within.low && v.number <= e->within.high;
    case NH_READING_BEYOND:
        return v.number >= e->within.low && isinf(e->within.high);
    case NH_READING_WORD:
        for (size_t i = 0; i < e->is.n; i++)
            if (strcmp(e->is.words[i], v.word) == 0)
                return true;
        break;
    case NH_READING_NONE:
        break;
    }
    return false;
}

/* What is beyond a number below the end of a range may be in it. */
static bool is_possible(const struct nh_expectation *e, struct nh_reading v)
{
    return is_wanted(e, v) || (v.sort == NH_READING_BEYOND && v.number < e->within.high);
}

static size_t count(const struct nh_expectation *e, struct sample s,
                    bool (*is)(const struct nh_expectation *, struct nh_reading))
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += is(e, s.values[i]);
    return n;
}

/* What has grown on the obstack is what was measured, over n values; of none, nothing was. */
static struct nh_finding conclude(struct nh_study *study, const struct nh_expectation *e, size_t n,
                                  enum nh_verdict verdict, const char *wanted)
{
    const char *measured = nh_grown(&study->memory);
    if (n >= e->runs)
        return (struct nh_finding){verdict, measured, wanted};
    if (n > 0)
        obstack_printf(&study->memory, "%s; ", measured);
    obstack_printf(&study->memory, "%zu of at least %zu runs", n, e->runs);
    return (struct nh_finding){NH_TOO_FEW, nh_grown(&study->memory), wanted};
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- tests ---- */

static struct nh_finding share(struct nh_study *study, const struct nh_expectation *e)
{
    struct obstack *memory = &study->memory;
    const struct sample s = take(study, e, NULL);
    const char *values = wanted_values(memory, e);
    if (e->at_least < 1)
        obstack_printf(memory, "%s in at least %.4g %% of the runs", values, 100 * e->at_least);
    else
        obstack_printf(memory, "%s in every run", values);
    const char *wanted = nh_grown(memory);
    const size_t k = count(e, s, is_wanted), most = count(e, s, is_possible);
    size_t frequent;
    const char *mode = nh_mode(s.values, s.n, &frequent), *spread = nh_spread_text(memory, s.spread);
    obstack_printf(memory, "%zu of %zu", k, s.n);
    if (mode)
        obstack_printf(memory, "; %s in %zu", mode, frequent);
    else if (*spread)
        obstack_printf(memory, "; %s", spread);
    const double least = e->at_least * (double)s.n - 1e-9;
    const enum nh_verdict verdict = (double)k >= least ? NH_HOLDS : (double)most >= least ? NH_CENSORED : NH_FAILS;
    return conclude(study, e, s.n, verdict, wanted);
}

static struct nh_finding rarer(struct nh_study *study, const struct nh_expectation *e)
{
    struct obstack *memory = &study->memory;
    const struct sample s = take(study, e, NULL), other = take(study, e, e->than);
    const char *values = wanted_values(memory, e), *than = nh_where_text(memory, e->than);
    obstack_printf(memory, "%s rarer than with %s, p < %.4g", values, than, e->p);
    const char *wanted = nh_grown(memory);
    const size_t n = smaller(s.n, other.n), k = count(e, s, is_wanted), other_k = count(e, other, is_wanted);
    const double p = n > 0 ? nh_fisher(k, s.n, other_k, other.n) : 1;
    obstack_printf(memory, "%zu of %zu against %zu of %zu, p = %.2g", k, s.n, other_k, other.n, p);
    return conclude(study, e, n, p < e->p ? NH_HOLDS : NH_FAILS, wanted);
}

static struct nh_finding ratio(struct nh_study *study, const struct nh_expectation *e)
{
    struct obstack *memory = &study->memory;
    const struct nh_spread s = take(study, e, NULL).spread, other = take(study, e, e->to).spread;
    const char *values = wanted_values(memory, e), *to = nh_where_text(memory, e->to);
    obstack_printf(memory, "%s times that of %s", values, to);
    const char *wanted = nh_grown(memory);
    const struct nh_reading quotient = {s.median.sort, s.median.number / other.median.number, NULL};
    const char *text = nh_reading_text(memory, quotient), *above = nh_reading_text(memory, s.median),
               *below = nh_reading_text(memory, other.median);
    enum nh_verdict verdict = is_wanted(e, quotient) ? NH_HOLDS : is_possible(e, quotient) ? NH_CENSORED : NH_FAILS;
    if (other.median.sort == NH_READING_BEYOND) {
        text = "not known";
        verdict = NH_CENSORED;
    }
    obstack_printf(memory, "%s (%s over %s)", text, above, below);
    return conclude(study, e, smaller(s.n, other.n), verdict, wanted);
}

/* Runs as points of option and value, those of a seed together. */
struct points {
    double *x, *y;
    const char **seeds;
    size_t n, n_seeds;
};

/* Adds the runs of a seed, unless one of them has no logarithm: the rest would not be balanced. */
static void add_seed(struct points *p, struct nh_study *study, const struct nh_expectation *e, struct nh_study_group g)
{
    size_t n;
    const struct nh_reading *v = nh_study_values(study, g, e->measure, &n);
    for (size_t k = 0; k < n; k++) {
        const char *option = nh_study_option(g.runs[k], e->on);
        double *x = &p->x[p->n + k], *y = &p->y[p->n + k];
        *y = v[k].number;
        p->seeds[p->n + k] = nh_study_option(g.runs[k], "seed");
        if (v[k].sort != NH_READING_NUMBER || !option || !nh_number_read(x, option) || !isfinite(log(*x)) ||
            !isfinite(log(*y)))
            return;
    }
    p->n += n;
    p->n_seeds++;
}

static struct points collect(struct nh_study *study, const struct nh_expectation *e)
{
    const struct nh_study_group all = nh_study_select(study, e->where, NULL);
    size_t n;
    const struct nh_study_group *seeds =
        nh_study_groups(study, all, (struct nh_words){(const char *[]){"seed"}, 1}, &n);
    struct points p = {.x = nh_alloc(&study->memory, (2 * all.n + 1) * sizeof *p.x), .n = 0};
    p.y = p.x + all.n;
    p.seeds = nh_alloc(&study->memory, (all.n + 1) * sizeof *p.seeds);
    for (size_t i = 0; i < n; i++)
        add_seed(&p, study, e, seeds[i]);
    return p;
}

static struct nh_finding slope(struct nh_study *study, const struct nh_expectation *e)
{
    struct obstack *memory = &study->memory;
    const char *values = wanted_values(memory, e);
    obstack_printf(memory, "%s as power of %s", values, e->on);
    const char *wanted = nh_grown(memory);
    const struct points p = collect(study, e);
    const struct nh_estimate exponent = nh_estimate_exponent(memory, p.x, p.y, p.seeds, p.n);
    const struct nh_reading mean = {NH_READING_NUMBER, exponent.mean, NULL};
    obstack_printf(memory, "%.3g", exponent.mean);
    if (p.n_seeds > 1)
        obstack_printf(memory, " +- %.2g", exponent.se);
    obstack_printf(memory, ", %zu seed%s", p.n_seeds, p.n_seeds == 1 ? "" : "s");
    return conclude(study, e, exponent.n, is_wanted(e, mean) ? NH_HOLDS : NH_FAILS, wanted);
}

/* NH_HOLDS where b is known to be above a, NH_FAILS where it is known not to be. */
static enum nh_verdict rises(struct nh_reading a, struct nh_reading b)
{
    if (a.sort == NH_READING_NUMBER && (b.sort == NH_READING_BEYOND ? b.number >= a.number : b.number > a.number))
        return NH_HOLDS;
    return b.sort == NH_READING_BEYOND || (a.sort == NH_READING_BEYOND && b.number > a.number) ? NH_CENSORED : NH_FAILS;
}

static struct nh_finding order(struct nh_study *study, const struct nh_expectation *e)
{
    struct obstack *memory = &study->memory;
    const size_t n = json_array_size(e->of);
    const char **names = nh_alloc(memory, n * sizeof *names), **medians = nh_alloc(memory, n * sizeof *medians);
    enum nh_verdict verdict = NH_HOLDS;
    struct nh_reading before = {.sort = NH_READING_NONE};
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const struct nh_spread s = take(study, e, json_array_get(e->of, i)).spread;
        least = smaller(s.n, least);
        names[i] = nh_where_text(memory, json_array_get(e->of, i));
        medians[i] = nh_reading_text(memory, s.median);
        if (i > 0 && rises(before, s.median) != NH_HOLDS && verdict != NH_FAILS)
            verdict = rises(before, s.median);
        before = s.median;
    }
    for (size_t i = 0; i < n; i++)
        obstack_printf(memory, "%s%s", i ? " < " : "", names[i]);
    const char *wanted = nh_grown(memory);
    for (size_t i = 0; i < n; i++)
        obstack_printf(memory, "%s%s", i ? ", " : "", medians[i]);
    return conclude(study, e, least, verdict, wanted);
}

struct nh_finding nh_study_judge(struct nh_study *study, const struct nh_expectation *e)
{
    static struct nh_finding (*const tests[NH_TESTS])(struct nh_study *, const struct nh_expectation *) = {
        [NH_TEST_SHARE] = share, [NH_TEST_RARER] = rarer, [NH_TEST_RATIO] = ratio,
        [NH_TEST_SLOPE] = slope, [NH_TEST_ORDER] = order,
    };
    return tests[e->test](study, e);
}

/* ---- all together ---- */

/* The worst of those that decide something. */
static enum nh_verdict worst(const struct nh_expectation *expectations, const struct nh_finding *findings, size_t n,
                             enum nh_decides decides)
{
    enum nh_verdict worst = NH_HOLDS;
    for (size_t i = 0; i < n; i++)
        if (expectations[i].decides == decides && findings[i].verdict != NH_HOLDS && worst != NH_FAILS)
            worst = findings[i].verdict;
    return worst;
}

const char *nh_study_verdict(const struct nh_expectation *expectations, const struct nh_finding *findings, size_t n)
{
    const enum nh_verdict scale = worst(expectations, findings, n, NH_DECIDES_SCALE),
                          claim = worst(expectations, findings, n, NH_DECIDES_CLAIM);
    if (scale == NH_FAILS)
        return "not at this scale";
    if (scale == NH_HOLDS && claim == NH_FAILS)
        return "refuted";
    return scale == NH_HOLDS && claim == NH_HOLDS ? "reproduced" : "inconclusive";
}
