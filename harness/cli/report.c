// SPDX-License-Identifier: GPL-3.0-or-later
/** The short table that a run prints. */
#include "harness/cli/headroom.h"
#include "harness/cli/run.h"
#include "results/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 9 };

/** A NaN without its sign. */
static double unsigned_nan(double v)
{
    return isnan(v) ? (double)NAN : v;
}

static double cell(const struct nh_run *run, int step, enum nh_column_id column)
{
    size_t i = (size_t)step * NH_COLUMN_COUNT + (size_t)column;
    return run->rows.measured[i] ? run->rows.cells[i] : (double)NAN;
}

static bool any(const struct nh_run *run, enum nh_column_id column)
{
    for (int k = 0; k < run->rows.n; k++)
        if (run->rows.measured[(size_t)k * NH_COLUMN_COUNT + (size_t)column])
            return true;
    return false;
}

static const struct {
    enum nh_column_id column;
    const char *head;
} columns[] = {
    {NH_LAYERS_RMS, "rms"},           {NH_LAYERS_RMS_THEORY, "law"},   {NH_LAYERS_MAX_ABS, "max|x|"},
    {NH_LAYERS_BRANCH_RMS, "branch"}, {NH_LAYERS_GRAD_RMS, "grad"},    {NH_LAYERS_JAC_FRO, "jac_fro"},
    {NH_LAYERS_JAC_SPEC, "jac_spec"}, {NH_LAYERS_OVERFLOW, "overflow"}, {NH_LAYERS_REL_ERR, "rel_err"},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_row(const struct nh_run *run, int k)
{
    const struct nh_step *s = &run->model.graph->steps[k / NH_STREAMS];
    printf("%5d %-6s", s->layer, nh_sublayer_names[s->sublayer]);
    for (int c = 0; c < COLUMNS; c++) {
        if (!any(run, columns[c].column))
            continue;
        double v = cell(run, k, columns[c].column);
        if (run->rows.measured[(size_t)k * NH_COLUMN_COUNT + (size_t)columns[c].column])
            printf(" %10.4g", unsigned_nan(v));
        else
            printf(" %10s", "");
    }
    putchar('\n');
}

/** About ROWS rows of stream 0: both ends, the sublayers of the first layer, and even steps between. */
static void print_layers(const struct nh_run *run)
{
    int n = run->rows.n / NH_STREAMS, shown = -1;
    if (run->options.config.train.steps)
        printf("at step %d\n", run->measured);
    printf("%5s %-6s", "layer", "");
    for (int c = 0; c < COLUMNS; c++)
        if (any(run, columns[c].column))
            printf(" %10s", columns[c].head);
    putchar('\n');
    for (int i = 0; i < ROWS; i++) {
        int k = n <= ROWS ? i : (int)lround((double)i * (n - 2) / (ROWS - 2));
        k = i == ROWS - 1 || k > n - 1 ? n - 1 : k;
        if (k > shown)
            print_row(run, (shown = k) * NH_STREAMS);
    }
}

/** Where the least room is left above the largest value, forward sites. */
static void print_headroom(const struct nh_run *run)
{
    const struct nh_graph *g = run->model.graph;
    const struct nh_counts *counts = run->counts;
    int least = -1;
    double bits = (double)INFINITY;
    uint64_t overflow[NH_DIRECTIONS] = {0}, stored = 0, broken = 0; /* weights that were inf or nan before they were stored */
    int broken_layer = 0;
    for (int s = 0; s < g->n_sites; s++) {
        for (int d = 0; d < NH_DIRECTIONS; d++)
            overflow[d] += counts[s * NH_DIRECTIONS + d].overflow;
        const struct nh_counts *c = &counts[s * NH_DIRECTIONS + NH_FWD];
        stored += c->total;
        if (g->sites[s].name == NH_SITE_WEIGHT && c->propagated) {
            broken_layer = broken ? broken_layer : g->sites[s].layer;
            broken += c->propagated;
        }
        double b = nh_headroom_bits(nh_site_format(g, s, NH_FWD), c);
        if (c->total && b < bits)
            bits = b, least = s;
    }
    if (run->options.config.train.steps)
        printf("at step %d\n", run->trainer.step - 1);
    if (least >= 0)
        printf("headroom  %.1f bits at %s of layer %d (largest |x| %.4g, format maximum %.6g)\n", bits,
               nh_site_names[g->sites[least].name], g->sites[least].layer, nh_largest(&counts[least * NH_DIRECTIONS + NH_FWD]),
               nh_site_format(g, least, NH_FWD)->max);
    printf("overflow  %llu of %llu values forward, %llu in gradients, %llu in weight gradients", (unsigned long long)overflow[NH_FWD],
           (unsigned long long)stored, (unsigned long long)overflow[NH_BWD], (unsigned long long)overflow[NH_WGRAD]);
    if (run->options.config.train.steps)
        printf(", %llu in the optimizer", (unsigned long long)overflow[NH_UPDATE]);
    putchar('\n');
    if (broken)
        printf("weights   %llu are inf or nan by themselves, the first in layer %d\n", (unsigned long long)broken, broken_layer);
}

/** Sites by overflow count, and what the fp32 twin tells. */
static void print_sites(const struct nh_run *run)
{
    const struct nh_graph *g = run->model.graph;
    struct nh_site_line *lines = nh_have(calloc((size_t)g->n_sites + 1, sizeof *lines));
    size_t n = 0;
    for (int s = 0; s < g->n_sites; s++) {
        const struct nh_counts *c = &run->counts[s * NH_DIRECTIONS + NH_FWD];
        if (!c->total)
            continue;
        lines[n] = (struct nh_site_line){.layer = g->sites[s].layer, .overflow = c->overflow, .max_abs = nh_wide_max(run, s)};
        lines[n++].site = nh_site_names[g->sites[s].name];
    }
    nh_headroom_print(stdout, lines, n);
    free(lines);
}

/** The first offence of a direction, in a line. */
static void print_first(const struct nh_run *run, const char *head, struct nh_event e)
{
    if (e.first.kind == NH_NO_OFFENCE)
        return;
    const struct nh_site *s = &run->model.graph->sites[e.first.site];
    printf("%-9s %s at ", head, nh_offence_names[e.first.kind]);
    if (run->options.config.train.steps)
        printf("step %d, ", e.step);
    printf("layer %d, %s, %s, %s", s->layer, nh_sublayer_names[s->sublayer], nh_site_names[s->name], nh_direction_names[e.direction]);
    if (e.first.param)
        printf(", %s[%llu]", run->model.graph->params[e.first.param - 1].name, (unsigned long long)e.first.index);
    printf(" (value %.6g before it was rounded)\n", unsigned_nan(e.first.value));
}

static void print_training(const struct nh_run *run)
{
    const struct nh_trainer *t = &run->trainer;
    printf("training  %d of %d steps, %d updates, %d skipped (%d of them before the first update), loss scale %g\n", t->step,
           run->options.config.train.steps, t->applied, t->skipped, t->skipped_start, t->scaler.scale);
    printf("loss      %.4f at the start, ", unsigned_nan(t->start_loss));
    if (nh_trainer_is_done(t))
        printf("%.4f over the last tenth", unsigned_nan(nh_trainer_tail_loss(t)));
    else
        printf("%.4f at step %d; of the last tenth not measured", unsigned_nan(t->loss), t->step - 1);
    if (t->validated)
        printf(", %.4f on what is held out", unsigned_nan(t->val_loss));
    printf("\nlargest   |x| %.4g in the stream", unsigned_nan(t->max_abs));
    if (t->has_scores)
        printf(", |score| %.4g in attention", unsigned_nan(t->max_score));
    putchar('\n');
}

/** Parameters that no update has changed. */
static void print_unchanged(const struct nh_run *run)
{
    enum { MOST = 5 }; /* kinds that are named */
    size_t n;
    struct nh_changed *kinds = nh_changed_kinds(run, &n);
    int tensors = 0, unchanged = 0, named = 0, more = 0;
    uint64_t numbers = 0;
    for (size_t i = 0; i < n; i++) {
        tensors += kinds[i].tensors, unchanged += kinds[i].unchanged;
        numbers += kinds[i].unchanged ? kinds[i].numbers / (uint64_t)kinds[i].tensors * (uint64_t)kinds[i].unchanged : 0;
    }
    if (unchanged)
        printf("unchanged %d of %d tensors (%llu numbers) in all %d steps: ", unchanged, tensors, (unsigned long long)numbers,
               run->trainer.step);
    for (size_t i = 0; i < n && unchanged; i++) {
        if (!kinds[i].unchanged)
            continue;
        if (named == MOST) {
            more++;
            continue;
        }
        printf("%s%s", named++ ? ", " : "", kinds[i].name);
        if (kinds[i].tensors > 1)
            printf(" of %d of %d layers", kinds[i].unchanged, kinds[i].tensors);
    }
    if (more)
        printf(" and %d more", more);
    if (unchanged)
        putchar('\n');
    free(kinds);
}

void nh_report_run(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    nh_text_line(stdout, "%s  L %d  %s  %s  (%.3g M parameters, %s)", c->layout->name, c->depth, c->dtype.name, c->layout->equation,
                 (double)nh_graph_parameters(run->model.graph) / 1e6, run->data->what);
    if (run->options.checkpoint)
        nh_text_line(stdout, "model     %s (%s)", c->model, nh_hf_arch(run->options.checkpoint)->name);
    if (run->rows.n)
        print_layers(run);
    if (run->counts)
        print_headroom(run);
    if (run->wide.graph)
        print_sites(run);
    if (c->train.steps)
        print_training(run), print_unchanged(run);
    print_first(run, "first", nh_run_first(run, NH_FWD));
    if (c->train.steps)
        print_first(run, "update", nh_run_first(run, NH_UPDATE)), print_first(run, "backward", nh_run_first(run, NH_BWD));
    if (run->trainer.stop != NH_GOES_ON)
        printf("stopped   %s\n", nh_stop_texts[run->trainer.stop]);
    printf("status    %s, loss %.6g, %.2f s\n", nh_run_status_names[run->status], unsigned_nan(run->loss), run->wall_s);
    nh_text_line(stdout, "results   %s", run->dir);
}
