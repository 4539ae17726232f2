// SPDX-License-Identifier: GPL-3.0-or-later
/** harness run: initialise a model, feed it a batch or train it, probes, results. */
#include "harness/cli/cli.h"
#include "harness/cli/run.h"
#include "harness/cli/terminal.h"
#include "harness/core/err.h"
#include "harness/core/threads.h"
#include "results/text.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const nh_run_status_names[] = {"ok", "overflowed", "diverged", "interrupted"};

double nh_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void nh_stage(const char *what)
{
    if (nh_terminal())
        fprintf(stderr, NH_LINE_START "%s%s", what, *what ? " ..." : "");
}

int nh_run_open(struct nh_run *run)
{
    struct nh_config *c = &run->options.config;
    struct nh_data_request request = {.seq = c->seq, .batch = c->batch, .vocab = c->vocab, .seed = c->data_seed,
                                      .image_grid = c->image_grid, .image_levels = c->image_levels};
    int status = nh_data_open(&run->data, c->data, &request);
    if (status)
        return status;
    c->seq = run->data->seq, c->batch = run->data->batch, c->vocab = run->data->vocab;
    if (c->window >= c->seq && nh_options_given(&run->options, "window"))
        return nh_fail(NH_USAGE, "--window %d has no effect on sequences of %d tokens; leave it out or take a smaller one", c->window,
                       c->seq);
    return run->options.checkpoint ? nh_hf_bind(run->options.checkpoint, c, &c->weights, stderr) : NH_OK;
}

/** A checkpoint sees any number as a token; what it was trained on are those of its tokenizer. */
static void note_ids(const struct nh_run *run)
{
    enum { FEW_IDS = 256 };
    const char *source = run->data->source->name;
    const bool text = strcmp(source, "text") == 0, images = strcmp(source, "fashion-mnist") == 0;
    if (run->options.checkpoint && run->options.config.vocab > FEW_IDS && (text || images))
        nh_text_line(stderr,
                     "harness: --data %s gives %s as ids, not the tokens that this checkpoint knows; --data tokens:FILE takes the ids "
                     "of its tokenizer",
                     source, text ? "bytes" : "grey levels");
}

/** The same, with what is held out; names the run and its folder. */
static int begin(struct nh_run *run)
{
    struct nh_config *c = &run->options.config;
    int status = nh_run_open(run);
    if (status)
        return status;
    note_ids(run);
    struct nh_data_request request = {.seq = c->seq, .batch = c->batch, .vocab = c->vocab, .seed = c->data_seed,
                                      .image_grid = c->image_grid, .image_levels = c->image_levels, .held_out = true};
    if (c->train.steps && run->data->source->holds_out)
        status = nh_data_open(&run->held_out, c->data, &request);
    else if (c->train.val_every)
        status = nh_fail(NH_USAGE, "--val-every has no effect with --data %.60s, which holds nothing out; leave it out", c->data);
    if (status)
        return status;
    char extra[64];
    int n = snprintf(extra, sizeof extra, "%016llx/%d", (unsigned long long)run->data->digest, NH_NUMERICS_VERSION);
    if (run->options.checkpoint)
        snprintf(extra + n, sizeof extra - (size_t)n, "/%016llx", (unsigned long long)nh_hf_digest(run->options.checkpoint));
    nh_options_hash(&run->options, extra, run->id);
    nh_options_sample(&run->options, extra, run->sample);
    if (c->out)
        run->dir = strdup(c->out);
    else if (asprintf(&run->dir, "results/runs/%s-L%d-%s-s%llu-%s", c->layout->name, c->depth, c->dtype.name,
                      (unsigned long long)c->seed, run->id) < 0)
        run->dir = NULL;
    return run->dir ? NH_OK : nh_fail(NH_FAILED, "out of memory");
}

/** Behind the last read of the checkpoint's numbers: they are what its files hold. */
static int check_weights(const struct nh_run *run)
{
    return run->options.checkpoint ? nh_hf_check(run->options.checkpoint) : NH_OK;
}

static int make_models(struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    int *tokens = malloc((size_t)c->batch * (size_t)c->seq * sizeof *tokens);
    if (!tokens)
        return nh_fail(NH_FAILED, "out of memory for a batch; try a smaller --batch");
    nh_stage("model");
    int status = nh_data_batch(run->data, 0, tokens);
    if (!status)
        status = nh_model_create(&run->model, c, c->batch, c->seq, c->vocab, tokens, run->backward);
    struct nh_config twin;
    if (!status && nh_run_needs(c, NH_NEEDED_SHADOW)) {
        nh_config_shadow(&twin, c);
        status = nh_model_create(&run->shadow, &twin, c->batch, c->seq, c->vocab, tokens, false);
    }
    if (!status && nh_run_needs(c, NH_NEEDED_WIDE)) {
        nh_config_wide(&twin, c);
        status = nh_model_create(&run->wide, &twin, c->batch, c->seq, c->vocab, tokens, false);
    }
    free(tokens);
    return status ? status : check_weights(run);
}

/** Of the twin nothing is looked at on the way. */
static void pass_by(void *arg, int step)
{
    (void)arg, (void)step;
}

/** Forward and backward pass of one batch, on the start weights. */
static void run_once(struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    const struct nh_model *m = &run->model;
    nh_stage("forward");
    run->loss = nh_model_forward(&run->model, c, nh_measure_step, run);
    if (run->shadow.graph)
        run->shadow.core->forward(run->shadow.exec);
    if (run->wide.graph)
        nh_model_forward(&run->wide, c, pass_by, NULL);
    run->counts = m->core->counts(m->exec);
    run->loss_scale = 1;
    if (!run->backward)
        return;
    nh_stage("backward");
    if (c->cotangent_random) {
        size_t n = (size_t)m->graph->rows * (size_t)c->width;
        double *u = malloc(n * sizeof *u);
        if (!u)
            nh_no_memory(); /* beside an arena a thousand times as large */
        nh_model_cotangent(m, c->seed, u);
        m->core->backward(m->exec, 1, u); /* unit variance needs no scale, and times 65536 it would leave fp16 */
        free(u);
    } else {
        run->loss_scale = strcmp(c->dtype.name, "fp16") == 0 ? 65536 : 1;
        m->core->backward(m->exec, run->loss_scale, NULL);
    }
}

static enum nh_run_status judge(const struct nh_run *run)
{
    if (!isfinite(run->loss))
        return NH_RUN_DIVERGED;
    return nh_run_first(run, NH_FWD).first.kind != NH_NO_OFFENCE ? NH_RUN_OVERFLOWED : NH_RUN_OK;
}

/** A look at the start: nothing is written before all is measured. */
static int look(struct nh_run *run, bool *finished)
{
    int status = NH_OK;
    if (run->options.config.streamed)
        status = nh_measure_begin(run);
    if (!status) {
        run_once(run);
        status = check_weights(run);
    }
    nh_stage("probes");
    if (!status && !run->options.config.streamed)
        status = nh_measure_begin(run);
    if (!status)
        status = nh_measure(run);
    run->status = judge(run);
    if (!status && run->options.config.dump)
        status = nh_dump(run);
    nh_stage("");
    if (!status)
        status = nh_record_open(run, NULL, finished);
    return status || *finished ? status : nh_record_measured(run, 0);
}

static int train(struct nh_run *run, bool resume, bool *finished)
{
    struct nh_extent extents[NH_TABLE_COUNT] = {0};
    int status = nh_trainer_create(&run->trainer, &run->options.config, &run->model);
    if (!status && resume)
        status = nh_checkpoint_read(run, extents);
    if (!status)
        status = nh_record_open(run, resume ? extents : NULL, finished);
    return status || *finished ? status : nh_run_train(run);
}

/** Whether the run is to go on from a checkpoint; NH_USAGE where work would be lost unasked. */
static int where_to_start(struct nh_run *run, bool *finished, bool *resume)
{
    const struct nh_config *c = &run->options.config;
    enum nh_found found = NH_FOUND_NOTHING;
    int status = c->force ? NH_OK : nh_record_find(run, &found);
    if (!status && c->dump && !c->force)
        status = nh_file_absent(c->dump);
    *finished = found == NH_FOUND_FINISHED && !c->dump; /* its tensors are not there */
    *resume = found == NH_FOUND_BROKEN_OFF && c->train.resume;
    if (!status && found == NH_FOUND_BROKEN_OFF && !c->train.resume)
        status = nh_fail(NH_USAGE, "%s holds this run, broken off; --resume goes on from its checkpoint, --force starts anew", run->dir);
    if (!status && c->train.resume && found == NH_FOUND_NOTHING)
        nh_text_line(stderr, "harness: no checkpoint of this run in %s; it starts at step 0", run->dir);
    return status;
}

static int run_all(struct nh_run *run, double start)
{
    const struct nh_config *c = &run->options.config;
    bool finished = false, resume = false;
    int status = begin(run);
    if (!status && !c->dry_run)
        status = where_to_start(run, &finished, &resume);
    if (!status && !finished) {
        run->backward = c->train.steps || nh_run_needs(c, NH_NEEDED_BACKWARD);
        run->options.config.streamed = nh_run_is_streamed(c);
        status = nh_run_plan(run);
        if (status || c->dry_run)
            return status;
        if (c->seq == 1)
            nh_text_line(stderr, "harness: with --seq 1 no token has a next one, so the loss and all gradients are 0");
        status = nh_threads_start(c->threads);
        if (!status)
            status = make_models(run);
        if (!status)
            nh_note_eps(run->model.graph);
    }
    if (!status && !finished)
        status = c->train.steps ? train(run, resume, &finished) : look(run, &finished);
    if (!status && finished)
        nh_text_line(stdout, "%s is there already, finished; --force runs it again", run->dir);
    if (!status && finished)
        return nh_report_folder(run->dir, false);
    if (status)
        return status;
    run->wall_s = nh_seconds() - start;
    status = nh_record_finish(run);
    if (!status)
        status = nh_report_folder(run->dir, false);
    return status;
}

int nh_cmd_run(int argc, char **argv)
{
    double start = nh_seconds();
    struct nh_run run = {.signal = 0};
    int status = nh_options_parse(&run.options, argc, argv);
    if (!status)
        status = run_all(&run, start);
    nh_record_close(&run);
    nh_trainer_destroy(&run.trainer);
    nh_model_destroy(&run.model), nh_model_destroy(&run.shadow), nh_model_destroy(&run.wide);
    nh_data_close(run.data), nh_data_close(run.held_out);
    nh_options_free(&run.options);
    free(run.rows.cells), free(run.rows.measured), free(run.rows.spectrum), free(run.rms_theory), free(run.dir);
    if (run.signal) { /* all is safe: end as the signal asked for, so that a shell's loop ends too */
        fflush(NULL);
        signal(run.signal, SIG_DFL);
        raise(run.signal);
    }
    return status;
}
