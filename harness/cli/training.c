// SPDX-License-Identifier: GPL-3.0-or-later
/** The loop of training: batches, probes, validation, checkpoints, the progress bar, and how it ends. */
#include "harness/cli/run.h"
#include "harness/cli/terminal.h"
#include "harness/core/err.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

/** Ctrl-C, kill and a terminal that is closed end the run after the step at hand; a second signal of a kind ends it at once. What
 *  nohup lets it ignore stays ignored. */
static void listen(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)}, hangup;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
}

/** True every n-th step, and at the last one. */
static bool is_due(const struct nh_run *run, int step, int every)
{
    return (every && step % every == 0) || step == run->options.config.train.steps - 1;
}

static void progress(const struct nh_run *run, const struct nh_train_step *s, double start, int first)
{
    static double shown;
    const struct nh_trainer *t = &run->trainer;
    const struct nh_config *c = &run->options.config;
    double now = nh_seconds(), rate = (t->step - first) / (now - start), left = (c->train.steps - t->step) / rate;
    if (!nh_terminal() || (now - shown < 0.1 && t->step < c->train.steps))
        return;
    shown = now;
    enum { WIDTH = 20 };
    int done = (int)((double)WIDTH * t->step / c->train.steps);
    fprintf(stderr, NH_LINE_START "[%.*s%*s] %d/%d  loss %.4g  scale %g  skipped %d  %.3g tokens/s  %d:%02d:%02d left", done,
            "====================", WIDTH - done, "", t->step, c->train.steps, isnan(s->loss) ? (double)NAN : s->loss, t->scaler.scale, t->skipped,
            rate * c->batch * c->seq * c->train.grad_accum, (int)left / 3600, (int)left / 60 % 60, (int)left % 60);
}

/** Mean loss of the first batches of what is held out. The values of the forward pass are lost. */
static int validate(struct nh_run *run, int *tokens)
{
    double sum = 0;
    int status = NH_OK;
    for (int i = 0; i < NH_VALIDATION_BATCHES && !status; i++) {
        status = nh_data_batch(run->held_out, (uint64_t)i, tokens);
        if (!status) {
            run->model.core->set_tokens(run->model.exec, tokens);
            sum += run->model.core->forward(run->model.exec);
        }
    }
    run->trainer.val_loss = sum / NH_VALIDATION_BATCHES;
    run->trainer.validated++, run->validated = true;
    return status;
}

/** The batches of the step at hand. */
static int run_batches(struct nh_run *run, int *tokens)
{
    struct nh_trainer *t = &run->trainer;
    int n = run->options.config.train.grad_accum, status = NH_OK;
    for (int i = 0; i < n && !status; i++) {
        status = nh_data_batch(run->data, (uint64_t)t->step * (uint64_t)n + (uint64_t)i, tokens);
        if (!status)
            nh_trainer_batch(t, tokens);
    }
    run->counts = t->counts;
    run->loss_scale = t->scaler.scale;
    return status;
}

/** Probes look at the first step, every so often, at the last one, and at that of the first forward overflow. */
static bool is_measured(const struct nh_run *run, int step)
{
    const struct nh_event *first = &run->trainer.first_forward;
    return step == 0 || is_due(run, step, run->options.config.train.probe_every) ||
           (first->first.kind != NH_NO_OFFENCE && first->step == step);
}

/** Probes read the passes of the step's last batch. The law speaks of the start alone. */
static int measure(struct nh_run *run, int step, const int *tokens)
{
    int status = NH_OK;
    if (!run->options.config.probes)
        return NH_OK;
    run->measured = step;
    if (!run->rms_theory)
        status = nh_measure_begin(run);
    for (int k = 0; k < run->rows.n && step; k++)
        run->rms_theory[k] = (double)NAN;
    if (!status && run->shadow.graph)
        status = nh_trainer_shadow(&run->trainer, &run->shadow, tokens);
    if (!status)
        status = nh_measure(run);
    return status;
}

/** Rows of what was measured; of the first step in which the optimizer has made an offence at least those of the sites. */
static int record(struct nh_run *run, int step, bool measured)
{
    const struct nh_event *update = &run->trainer.first_update;
    if (measured && run->options.config.probes)
        return nh_record_measured(run, step);
    return run->rows.sites && update->first.kind != NH_NO_OFFENCE && update->step == step ? nh_record_sites(run, step) : NH_OK;
}

static int one_step(struct nh_run *run, int *tokens, struct nh_train_step *row)
{
    const struct nh_training *c = &run->options.config.train;
    int step = run->trainer.step;
    int status = run_batches(run, tokens);
    bool measured = !status && is_measured(run, step);
    if (measured)
        status = measure(run, step, tokens);
    if (status)
        return status;
    *row = nh_trainer_update(&run->trainer);
    if (run->trainer.stop != NH_GOES_ON && !measured) { /* no update has touched what it left */
        measured = true;
        status = measure(run, step, tokens);
    }
    if (!status)
        status = record(run, step, measured); /* behind the update, which counts too */
    run->validated = false;
    if (!status && run->held_out && run->trainer.stop == NH_GOES_ON && is_due(run, step, c->val_every))
        status = validate(run, tokens);
    return status ? status : nh_record_step(run, row);
}

/** True where what the run ends with is not finite, or the loss has risen. */
static bool has_diverged(const struct nh_run *run)
{
    const struct nh_trainer *t = &run->trainer;
    return t->stop != NH_GOES_ON || !isfinite(t->loss) || (t->validated && !isfinite(t->val_loss)) ||
           run->model.core->broken_weights(run->model.exec) || nh_trainer_tail_loss(t) > t->start_loss + 1;
}

static enum nh_run_status judge(const struct nh_run *run)
{
    const struct nh_trainer *t = &run->trainer;
    if (t->stop == NH_GOES_ON && !nh_trainer_is_done(t))
        return NH_RUN_INTERRUPTED;
    if (has_diverged(run))
        return NH_RUN_DIVERGED;
    return nh_trainer_offender(t).first.kind != NH_NO_OFFENCE ? NH_RUN_OVERFLOWED : NH_RUN_OK;
}

int nh_run_train(struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    struct nh_trainer *t = &run->trainer;
    int *tokens = malloc((size_t)c->batch * (size_t)c->seq * sizeof *tokens), first = t->step;
    int status = tokens ? NH_OK : nh_fail(NH_FAILED, "out of memory for a batch; try a smaller --batch");
    double start = nh_seconds();
    listen();
    nh_stage("");
    while (!status && !caught && t->stop == NH_GOES_ON && t->step < c->train.steps) {
        struct nh_train_step row;
        status = one_step(run, tokens, &row);
        if (!status)
            progress(run, &row, start, first);
        if (!status && c->train.checkpoint_every && t->step % c->train.checkpoint_every == 0 && t->step < c->train.steps &&
            t->stop == NH_GOES_ON)
            status = nh_checkpoint_write(run);
    }
    free(tokens);
    nh_stage("");
    if (status)
        return status;
    run->loss = t->loss, run->loss_scale = t->scaler.scale;
    run->status = judge(run);
    run->signal = run->status == NH_RUN_INTERRUPTED ? caught : 0;
    if (run->signal || (c->train.checkpoint_every && t->stop == NH_GOES_ON)) /* who has stopped does not go on from there */
        status = nh_checkpoint_write(run);
    return status;
}
