// SPDX-License-Identifier: GPL-3.0-or-later
/** What of a group is shown, where, and under which name. */
#include "harness/cli/compare.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The row being filled. */
struct row {
    struct nh_sheet *sheet;
    struct obstack *memory;
    size_t column;
};

static void add(struct row *r, struct nh_sheet_column column, struct nh_cell cell)
{
    assert(r->column < NH_SHEET_COLUMNS);
    r->sheet->columns[r->column] = column;
    r->sheet->cells[r->sheet->n_rows][r->column++] = cell;
}

static void end_row(struct row *r)
{
    r->sheet->n_columns = r->column;
    r->sheet->n_rows++;
    r->column = 0;
}

static struct row begin(struct nh_sheet *sheet, struct obstack *memory, size_t n)
{
    *sheet = (struct nh_sheet){.cells = nh_alloc(memory, n * sizeof *sheet->cells)};
    return (struct row){.sheet = sheet, .memory = memory};
}

/* "" is no text. */
static void add_text(struct row *r, const char *name, const char *head, const char *text)
{
    add(r, (struct nh_sheet_column){name, head, false}, (struct nh_cell){*text ? NH_CELL_TEXT : NH_CELL_NONE, text, 0});
}

static void add_number(struct row *r, const char *name, const char *head, enum nh_cell_kind kind, double value)
{
    add(r, (struct nh_sheet_column){name, head, true}, (struct nh_cell){kind, NULL, value});
}

static void add_count(struct row *r, const char *name, const char *head, size_t count)
{
    add_number(r, name, head, NH_CELL_COUNT, (double)count);
}

static void add_real(struct row *r, const char *name, const char *head, bool known, double value)
{
    add_number(r, name, head, known ? NH_CELL_REAL : NH_CELL_NONE, value);
}

/* NAME and NAME_se for programs. For people "1.234 +- 0.012" of a mean; the error of what is no mean is named, or left to
 * programs. */
enum spread { PLUS_MINUS, NAMED, LEFT_OUT };

static void add_estimate(struct row *r, const char *name, const char *head, struct nh_estimate e, enum spread spread)
{
    const bool has_se = e.n > 0 && !isnan(e.se);
    obstack_printf(r->memory, "%s_se", name);
    const char *name_se = nh_grown(r->memory);
    if (e.n > 0)
        obstack_printf(r->memory, "%.4g", isnan(e.mean) ? (double)NAN : e.mean); /* without a sign */
    if (has_se && spread != LEFT_OUT)
        obstack_printf(r->memory, spread == NAMED ? " (se %.2g)" : " +- %.2g", e.se);
    add_real(r, name, NULL, e.n > 0, e.mean);
    add_real(r, name_se, NULL, has_se, e.se);
    add_text(r, NULL, head, nh_grown(r->memory));
    r->sheet->columns[r->column - 1].right = true;
}

/* From logarithms back: the geometric mean, its standard error to first order. */
static struct nh_estimate geometric(struct nh_estimate e)
{
    e.mean = exp(e.mean);
    e.se *= e.mean;
    return e;
}

/* NAME and NAME_max for programs, "14..40" or "40" for people. */
static void add_range(struct row *r, const char *name, const char *head, const struct nh_measure range[2])
{
    obstack_printf(r->memory, "%s_max", name);
    const char *name_max = nh_grown(r->memory);
    if (range[0].known)
        obstack_printf(r->memory, "%g", range[0].value);
    if (range[0].known && range[0].value < range[1].value)
        obstack_printf(r->memory, "..%g", range[1].value);
    add_real(r, name, NULL, range[0].known, range[0].value);
    add_real(r, name_max, NULL, range[1].known, range[1].value);
    add_text(r, NULL, head, nh_grown(r->memory));
    r->sheet->columns[r->column - 1].right = true;
}

static void add_sum(struct row *r, const char *name, const char *head, struct nh_measure sum)
{
    add_number(r, name, head, sum.known ? NH_CELL_COUNT : NH_CELL_NONE, sum.value);
}

/* PREFIX_layer, _sublayer and _site for programs. */
static void add_place(struct row *r, const char *const names[3], const struct nh_place *p)
{
    add_number(r, names[0], NULL, p->known && p->layer >= 0 ? NH_CELL_COUNT : NH_CELL_NONE, p->layer);
    add_text(r, names[1], NULL, p->sublayer);
    add_text(r, names[2], NULL, p->site);
}

/* The growing text: "residual, layer 60 ffn" for people. */
static void grow_place(struct obstack *memory, const struct nh_place *p)
{
    if (p->known && p->layer >= 0)
        obstack_printf(memory, "%s%slayer %d %s%s%s", p->site, *p->site ? ", " : "", p->layer, p->sublayer,
                       *p->direction && strcmp(p->direction, "fwd") != 0 ? " " : "", strcmp(p->direction, "fwd") != 0 ? p->direction : "");
}

static void add_tightest(struct row *r, const struct nh_group *g)
{
    static const char *const names[] = {"headroom_layer", "headroom_sublayer", "headroom_site"};
    add_place(r, names, &g->tightest);
    grow_place(r->memory, &g->tightest);
    add_text(r, NULL, "at", nh_grown(r->memory));
}

/* "residual, layer 45 attn, step 14..16 (3 of 4)"; the step where runs have trained. */
static void add_first(struct row *r, const struct nh_group *g)
{
    static const char *const names[] = {"first_layer", "first_sublayer", "first_site"};
    const struct nh_place *p = &g->first;
    const bool has_step = p->known && p->step >= 0 && g->steps_done[0].known;
    add_place(r, names, p);
    add_text(r, "first_direction", NULL, p->direction);
    add_number(r, "first_step", NULL, has_step ? NH_CELL_COUNT : NH_CELL_NONE, p->step);
    add_number(r, "first_step_max", NULL, has_step ? NH_CELL_COUNT : NH_CELL_NONE, g->first_step_last);
    add_number(r, "first_runs", NULL, p->known ? NH_CELL_COUNT : NH_CELL_NONE, (double)g->first_runs);
    grow_place(r->memory, p);
    if (has_step)
        obstack_printf(r->memory, "%sstep %d", p->layer >= 0 ? ", " : "", p->step);
    if (has_step && g->first_step_last > p->step)
        obstack_printf(r->memory, "..%d", g->first_step_last);
    if (p->known)
        obstack_printf(r->memory, " (%zu of %zu)", g->first_runs, g->n);
    add_text(r, NULL, "first offender", nh_grown(r->memory));
}

static void add_by(struct row *r, const char *const *by, const struct nh_group *g)
{
    for (size_t k = 0; k < g->n_by; k++)
        add_text(r, by[k], by[k], g->by[k]);
}

/* How the runs ended: "2 of 5 diverged, 1 overflowed". */
static const char *status_of(struct obstack *memory, const struct nh_group *g)
{
    static const enum nh_outcome order[] = {NH_OUTCOME_DIVERGED, NH_OUTCOME_OVERFLOWED, NH_OUTCOME_INTERRUPTED, NH_OUTCOME_BROKEN_OFF,
                                            NH_OUTCOME_OK};
    for (size_t i = 0; i < NH_OUTCOMES; i++) {
        const size_t count = g->outcomes[order[i]];
        if (count == 0 || (order[i] == NH_OUTCOME_OK && count < g->n))
            continue;
        if (obstack_object_size(memory) > 0)
            obstack_printf(memory, ", %zu %s", count, nh_outcome_names[order[i]]);
        else if (order[i] == NH_OUTCOME_OK)
            obstack_printf(memory, "ok");
        else
            obstack_printf(memory, "%zu of %zu %s", count, g->n, nh_outcome_names[order[i]]);
    }
    return nh_grown(memory);
}

static void add_outcomes(struct row *r, const struct nh_group *g)
{
    double low, high;
    nh_wilson(g->outcomes[NH_OUTCOME_DIVERGED], g->n, &low, &high);
    add_count(r, "n", "n", g->n);
    for (enum nh_outcome o = 0; o < NH_OUTCOMES; o++)
        add_count(r, o == NH_OUTCOME_BROKEN_OFF ? "broken_off" : nh_outcome_names[o], NULL, g->outcomes[o]);
    add_real(r, "diverged_low", NULL, true, low);
    add_real(r, "diverged_high", NULL, true, high);
    add_text(r, NULL, "status", status_of(r->memory, g));
}

void nh_sheet_groups(struct nh_sheet *sheet, struct obstack *memory, const char *const *by,
                     const struct nh_group *groups, size_t n)
{
    struct row r = begin(sheet, memory, n);
    for (const struct nh_group *g = groups; g < groups + n; g++) {
        add_by(&r, by, g);
        add_outcomes(&r, g);
        add_estimate(&r, "final_rms", "final rms", g->rms, PLUS_MINUS);
        add_real(&r, "final_rms_law", "law", g->law.n > 0, g->law.mean);
        add_estimate(&r, "exponent", "exponent", g->exponent, NAMED);
        add_real(&r, "exponent_law", "law's", g->law_exponent.n > 0, g->law_exponent.mean);
        add_real(&r, "max_abs", "max|x|", g->max_abs.known, g->max_abs.value);
        add_real(&r, "headroom_bits", "headroom", g->headroom.known, g->headroom.value);
        add_tightest(&r, g);
        add_estimate(&r, "grad_ratio", "grad ratio", geometric(g->log_grad_ratio), LEFT_OUT);
        add_range(&r, "steps_done", "steps", g->steps_done);
        add_estimate(&r, "final_loss", "final loss", g->final_loss, PLUS_MINUS);
        add_estimate(&r, "val_loss", "validation", g->val_loss, PLUS_MINUS);
        add_range(&r, "loss_scale", "loss scale", g->loss_scale);
        add_sum(&r, "skipped", "skipped", g->skipped);
        add_sum(&r, "overflow", "overflow", g->overflows);
        add_first(&r, g);
        add_text(&r, "pooled", "pooled", g->pooled);
        end_row(&r);
    }
}

/* The group with this label and otherwise the values of g. */
static const struct nh_group *find_baseline(const struct nh_group *groups, size_t n, const struct nh_group *g,
                                            const char *label)
{
    for (const struct nh_group *b = groups; b < groups + n; b++) {
        bool same = strcmp(b->by[b->n_by - 1], label) == 0;
        for (size_t k = 0; k + 1 < b->n_by; k++)
            same = same && strcmp(b->by[k], g->by[k]) == 0;
        if (same)
            return b;
    }
    return NULL;
}

static void add_changes(struct row *r, const struct nh_group *from, const struct nh_group *to)
{
    static const struct nh_group nothing;
    size_t pairs, same_seeds = 0;
    struct nh_estimate change[NH_QUANTITIES];
    from = from ? from : &nothing;
    for (enum nh_quantity q = 0; q < NH_QUANTITIES; q++) {
        change[q] = nh_group_change(r->memory, from, to, q, &pairs);
        same_seeds = pairs > same_seeds ? pairs : same_seeds;
    }
    add_count(r, "baseline_n", NULL, from->n);
    add_count(r, "baseline_diverged", NULL, from->outcomes[NH_OUTCOME_DIVERGED]);
    add_text(r, NULL, "baseline", status_of(r->memory, from));
    add_count(r, "pairs", "pairs", same_seeds);
    add_estimate(r, "final_rms_change", "final rms", change[NH_FINAL_RMS], PLUS_MINUS);
    add_estimate(r, "final_rms_law_change", "law", change[NH_LAW_RMS], PLUS_MINUS);
    add_estimate(r, "exponent_change", "exponent", nh_estimate_difference(to->exponent, from->exponent), NAMED);
    add_estimate(r, "max_abs_change", "max|x|", change[NH_MAX_ABS], PLUS_MINUS);
    add_estimate(r, "headroom_bits_change", "headroom", change[NH_HEADROOM], PLUS_MINUS);
    add_estimate(r, "grad_ratio_factor", "grad ratio x", geometric(change[NH_LOG_GRAD_RATIO]), LEFT_OUT);
    add_estimate(r, "final_loss_change", "final loss", change[NH_FINAL_LOSS], PLUS_MINUS);
    add_estimate(r, "val_loss_change", "validation", change[NH_VAL_LOSS], PLUS_MINUS);
    add_estimate(r, "skipped_change", "skipped", change[NH_SKIPPED], PLUS_MINUS);
    add_estimate(r, "overflow_change", "overflow", change[NH_OVERFLOWS], PLUS_MINUS);
}

void nh_sheet_changes(struct nh_sheet *sheet, struct obstack *memory, const char *const *by,
                      const struct nh_group *groups, size_t n, const char *baseline)
{
    struct row r = begin(sheet, memory, n);
    for (const struct nh_group *g = groups; g < groups + n; g++) {
        if (strcmp(g->by[g->n_by - 1], baseline) == 0)
            continue;
        add_by(&r, by, g);
        add_outcomes(&r, g);
        add_changes(&r, find_baseline(groups, n, g, baseline), g);
        add_text(&r, "pooled", "pooled", g->pooled);
        end_row(&r);
    }
}
