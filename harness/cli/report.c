// SPDX-License-Identifier: GPL-3.0-or-later
/** What is told of a run when it ends: run.json keeps the lines, and cmd_report.c prints them with the tables. */
#include "harness/cli/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/** A NaN without its sign. */
static double unsigned_nan(double v)
{
    return isnan(v) ? (double)NAN : v;
}

/** The first offence of a direction, in a line. */
static void print_first(FILE *file, const struct nh_run *run, const char *head, struct nh_event e)
{
    if (e.first.kind == NH_NO_OFFENCE)
        return;
    const struct nh_site *s = &run->model.graph->sites[e.first.site];
    fprintf(file, "%-9s %s at ", head, nh_offence_names[e.first.kind]);
    if (run->options.config.train.steps)
        fprintf(file, "step %d, ", e.step);
    fprintf(file, "layer %d, %s, %s, %s", s->layer, nh_sublayer_names[s->sublayer], nh_site_names[s->name],
            nh_direction_names[e.direction]);
    if (e.first.param)
        fprintf(file, ", %s[%llu]", run->model.graph->params[e.first.param - 1].name, (unsigned long long)e.first.index);
    fprintf(file, " (value %.6g before it was rounded)\n", unsigned_nan(e.first.value));
}

static void print_training(FILE *file, const struct nh_run *run)
{
    const struct nh_trainer *t = &run->trainer;
    fprintf(file, "training  %d of %d steps, %d updates, %d skipped (%d of them before the first update), loss scale %g\n", t->step,
            run->options.config.train.steps, t->applied, t->skipped, t->skipped_start, t->scaler.scale);
    fprintf(file, "loss      %.4f at the start, ", unsigned_nan(t->start_loss));
    if (nh_trainer_is_done(t))
        fprintf(file, "%.4f over the last tenth", unsigned_nan(nh_trainer_tail_loss(t)));
    else
        fprintf(file, "%.4f at step %d; of the last tenth not measured", unsigned_nan(t->loss), t->step - 1);
    if (t->validated)
        fprintf(file, ", %.4f on what is held out", unsigned_nan(t->val_loss));
    fprintf(file, "\nlargest   |x| %.4g in the stream", unsigned_nan(t->max_abs));
    if (t->has_scores)
        fprintf(file, ", |score| %.4g in attention", unsigned_nan(t->max_score));
    fputc('\n', file);
}

/** Parameters that no update has changed. */
static void print_unchanged(FILE *file, const struct nh_run *run)
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
        fprintf(file, "unchanged %d of %d tensors (%llu numbers) in all %d steps: ", unchanged, tensors, (unsigned long long)numbers,
                run->trainer.step);
    for (size_t i = 0; i < n && unchanged; i++) {
        if (!kinds[i].unchanged)
            continue;
        if (named == MOST) {
            more++;
            continue;
        }
        fprintf(file, "%s%s", named++ ? ", " : "", kinds[i].name);
        if (kinds[i].tensors > 1)
            fprintf(file, " of %d of %d layers", kinds[i].unchanged, kinds[i].tensors);
    }
    if (more)
        fprintf(file, " and %d more", more);
    if (unchanged)
        fputc('\n', file);
    free(kinds);
}

void nh_report_title(FILE *file, const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    fprintf(file, "%s  L %d  %s  %s  (%.3g M parameters, %s)\n", c->layout->name, c->depth, c->dtype.name, c->layout->equation,
            (double)nh_graph_parameters(run->model.graph) / 1e6, run->data->what);
    if (run->options.checkpoint)
        fprintf(file, "model     %s (%s)\n", c->model, nh_hf_arch(run->options.checkpoint)->name);
}

void nh_report_summary(FILE *file, const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    if (c->train.steps)
        print_training(file, run), print_unchanged(file, run);
    print_first(file, run, "first", nh_run_first(run, NH_FWD));
    if (c->train.steps)
        print_first(file, run, "update", nh_run_first(run, NH_UPDATE)), print_first(file, run, "backward", nh_run_first(run, NH_BWD));
    if (run->trainer.stop != NH_GOES_ON)
        fprintf(file, "stopped   %s\n", nh_stop_texts[run->trainer.stop]);
}
