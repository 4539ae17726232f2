// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/train.h"
#include "harness/core/err.h"
#include "harness/core/policy.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const nh_stop_texts[] = {
    [NH_GOES_ON] = "",
    [NH_STOP_FORWARD] = "the forward pass is not finite, which no loss scale can mend",
    [NH_STOP_BACKWARD] = "gradients are not finite even at the lowest loss scale",
    [NH_STOP_SKIPS] = "200 steps in a row were skipped", /* NH_MOST_SKIPS */
};

double nh_schedule_rate(const struct nh_training *t, int step)
{
    if (step < t->warmup)
        return t->lr * (step + 1) / t->warmup;
    double p = (double)(step - t->warmup) / (t->steps - t->warmup);
    switch (t->schedule) {
    case NH_SCHEDULE_CONSTANT:
        break;
    case NH_SCHEDULE_LINEAR:
        return t->lr * (1 - p);
    case NH_SCHEDULE_COSINE:
        return t->lr * (1 + cos(M_PI * p)) / 2;
    case NH_SCHEDULE_WSD:
        return p < 0.8 ? t->lr : t->lr * (1 - p) / 0.2;
    }
    return t->lr;
}

int nh_trainer_create(struct nh_trainer *t, const struct nh_config *config, struct nh_model *model)
{
    struct nh_scaler_rule rule = nh_policy_scaler(config);
    *t = (struct nh_trainer){.config = config, .model = model, .start_loss = (double)NAN};
    nh_scaler_start(&t->scaler, &rule);
    for (int s = 0; s < model->graph->n_sites; s++)
        t->has_scores |= model->graph->sites[s].name == NH_SITE_SCORES;
    t->counts = calloc((size_t)model->graph->n_sites * NH_DIRECTIONS, sizeof *t->counts);
    return t->counts ? NH_OK : nh_fail(NH_FAILED, "out of memory for the counters of a step; try a smaller --depth");
}

void nh_trainer_destroy(struct nh_trainer *t)
{
    free(t->counts);
    t->counts = NULL;
}

struct nh_event nh_event_of(const struct nh_model *m, enum nh_direction direction, int step)
{
    struct nh_first first = m->core->first(m->exec, direction), weights = m->core->first(m->exec, NH_WGRAD);
    if (direction == NH_BWD && nh_earlier(&weights, &first))
        return (struct nh_event){step, NH_WGRAD, weights};
    return (struct nh_event){step, direction, first};
}

/** Keeps the first of all. */
static void note(struct nh_event *event, struct nh_event e)
{
    if (event->first.kind == NH_NO_OFFENCE && e.first.kind != NH_NO_OFFENCE)
        *event = e;
}

/** Adds the counters of the batch to those of the step; weights are cast once a step. */
static void add_counts(struct nh_trainer *t)
{
    const struct nh_counts *counts = t->model->core->counts(t->model->exec);
    for (int i = 0; i < t->model->graph->n_sites * NH_DIRECTIONS; i++) {
        if (i % NH_DIRECTIONS == NH_UPDATE) /* comes behind the batches */
            t->counts[i] = (struct nh_counts){.min_abs = (double)INFINITY};
        else if (t->batches == 0 || t->model->graph->sites[i / NH_DIRECTIONS].name == NH_SITE_WEIGHT)
            t->counts[i] = counts[i];
        else
            nh_counts_add(&t->counts[i], &counts[i]);
    }
}

void nh_trainer_batch(struct nh_trainer *t, const int *tokens)
{
    const struct nh_core *core = t->model->core;
    struct nh_exec *x = t->model->exec;
    int n = t->config->train.grad_accum;
    core->set_tokens(x, tokens);
    double loss = core->forward(x);
    core->backward(x, t->scaler.scale / n, NULL);
    if (n > 1)
        core->accumulate(x, t->batches == 0);
    t->batch_loss = (t->batches ? t->batch_loss : 0) + loss / n;
    add_counts(t);
    if (t->batches++ == 0)
        t->backward = (struct nh_event){0};
    note(&t->first_forward, nh_event_of(t->model, NH_FWD, t->step));
    note(&t->backward, nh_event_of(t->model, NH_BWD, t->step));
    note(&t->first_backward, t->backward);
}

static double largest(const struct nh_trainer *t, enum nh_site_name a, enum nh_site_name b)
{
    const struct nh_graph *g = t->model->graph;
    double max = 0;
    bool any = false;
    for (int s = 0; s < g->n_sites; s++) {
        double here = nh_largest(&t->counts[s * NH_DIRECTIONS + NH_FWD]);
        if ((g->sites[s].name != a && g->sites[s].name != b) || isnan(here))
            continue;
        any = true;
        max = here > max ? here : max;
    }
    return any ? max : (double)NAN;
}

static uint64_t overflows(const struct nh_trainer *t, enum nh_direction d)
{
    uint64_t n = 0;
    for (int s = 0; s < t->model->graph->n_sites; s++)
        n += t->counts[s * NH_DIRECTIONS + (int)d].overflow;
    return n;
}

/** Weight gradients that are not finite, counted one by one: a sum of them may hide what cancels. */
static bool broken_gradients(const struct nh_trainer *t)
{
    for (int s = 0; s < t->model->graph->n_sites; s++) {
        const struct nh_counts *c = &t->counts[s * NH_DIRECTIONS + NH_WGRAD];
        if (c->overflow || c->nan_made || c->propagated)
            return true;
    }
    return false;
}

static void apply(struct nh_trainer *t, struct nh_train_step *row)
{
    const struct nh_training *c = &t->config->train;
    double clip = c->clip > 0 && row->grad_norm > c->clip ? c->clip / row->grad_norm : 1;
    struct nh_update u = {.optimizer = c->optimizer, .factor = clip / t->scaler.scale, .lr = row->lr, .weight_decay = c->weight_decay,
                          .beta1 = c->beta1, .beta2 = c->beta2, .eps = c->adam_eps, .momentum = c->momentum, .step = ++t->applied};
    uint64_t changed = t->model->core->update(t->model->exec, &u);
    const struct nh_counts *counts = t->model->core->counts(t->model->exec);
    for (int i = NH_UPDATE; i < t->model->graph->n_sites * NH_DIRECTIONS; i += NH_DIRECTIONS)
        t->counts[i] = counts[i];
    note(&t->first_update, nh_event_of(t->model, NH_UPDATE, t->step));
    row->changed = (double)changed / (double)nh_graph_parameters(t->model->graph);
    t->skipped_row = 0;
}

/** The step is left out; the run ends where nothing can be hoped for. */
static void skip(struct nh_trainer *t, bool mendable)
{
    t->skipped++, t->skipped_row++;
    t->skipped_start += t->applied == 0;
    if (!mendable)
        t->stop = isfinite(t->loss) ? NH_STOP_BACKWARD : NH_STOP_FORWARD;
    else if (t->skipped_row >= NH_MOST_SKIPS)
        t->stop = NH_STOP_SKIPS;
    if (t->stop != NH_GOES_ON)
        t->stopping_offence = t->backward;
}

struct nh_train_step nh_trainer_update(struct nh_trainer *t)
{
    const struct nh_training *c = &t->config->train;
    assert(t->batches == c->grad_accum && t->stop == NH_GOES_ON);
    struct nh_train_step row = {.loss = t->batch_loss, .lr = nh_schedule_rate(c, t->step), .loss_scale = t->scaler.scale};
    row.overflow_fwd = overflows(t, NH_FWD);
    row.overflow_bwd = overflows(t, NH_BWD) + overflows(t, NH_WGRAD);
    row.max_abs = largest(t, NH_SITE_RESIDUAL, NH_SITE_EMBED), row.max_score = t->has_scores ? largest(t, NH_SITE_SCORES, NH_SITE_SCORES) : 0;
    row.grad_norm = sqrt(t->model->core->weight_grad_sum_sq(t->model->exec)) / t->scaler.scale;
    row.skipped = broken_gradients(t) || !isfinite(row.grad_norm); /* the latter: batches whose sum leaves fp32 */
    t->loss = row.loss;
    t->start_loss = t->step ? t->start_loss : row.loss;
    t->max_abs = fmax(t->max_abs, row.max_abs), t->max_score = fmax(t->max_score, row.max_score);
    if (t->step >= c->steps - (c->steps + 9) / 10)
        t->tail_loss += row.loss;
    if (row.skipped) {
        skip(t, nh_scaler_update(&t->scaler, true));
    } else {
        apply(t, &row);
        nh_scaler_update(&t->scaler, false);
    }
    t->batches = 0;
    t->step++;
    return row;
}

int nh_trainer_shadow(const struct nh_trainer *t, struct nh_model *shadow, const int *tokens)
{
    const struct nh_graph *g = t->model->graph;
    size_t most = 0;
    for (int p = 0; p < g->n_params; p++) {
        size_t n = (size_t)g->params[p].rows * (size_t)g->params[p].cols;
        most = n > most ? n : most;
    }
    double *w = malloc((most + 1) * sizeof *w);
    if (!w)
        return nh_fail(NH_FAILED, "out of memory for the fp64 twin; leave the probe error out");
    for (int p = 0; p < g->n_params; p++) {
        nh_model_masters(t->model, p, w);
        shadow->core->set_param(shadow->exec, p, w);
    }
    free(w);
    shadow->core->set_tokens(shadow->exec, tokens);
    shadow->core->forward(shadow->exec);
    return NH_OK;
}

double nh_trainer_tail_loss(const struct nh_trainer *t)
{
    return t->tail_loss / ((t->config->train.steps + 9) / 10);
}

bool nh_trainer_is_done(const struct nh_trainer *t)
{
    return t->step == t->config->train.steps;
}

struct nh_event nh_trainer_offender(const struct nh_trainer *t)
{
    const struct nh_event *forward = &t->first_forward, *update = &t->first_update;
    if (update->first.kind != NH_NO_OFFENCE && (forward->first.kind == NH_NO_OFFENCE || update->step < forward->step))
        return *update;
    return forward->first.kind != NH_NO_OFFENCE ? *forward : t->stopping_offence;
}
