// SPDX-License-Identifier: GPL-3.0-or-later
/** What a step of training costs: CSV `what,value,unit,limit`. Not a test. Runs are measured in turn, the best of a few rounds is
 *  taken; files are not written. */
#include "harness/cli/options.h"
#include "harness/core/threads.h"
#include "harness/core/train.h"
#include "probes/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VOCAB = 512 };

struct trained {
    struct nh_options options;
    struct nh_model model;
    struct nh_trainer trainer;
    struct nh_rows rows;
    double *theory;
    int *tokens;
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(int status)
{
    if (status) {
        fprintf(stderr, "%s\n", nh_error());
        exit(1);
    }
}

static struct trained *begin(char **words)
{
    struct trained *t = calloc(1, sizeof *t);
    int n_words = 0;
    while (words[n_words])
        n_words++;
    must(t ? nh_options_parse(&t->options, n_words, words) : NH_FAILED);
    struct nh_config *c = &t->options.config;
    size_t n_tokens = (size_t)c->batch * (size_t)c->seq;
    t->tokens = malloc(n_tokens * sizeof *t->tokens);
    must(t->tokens ? NH_OK : NH_FAILED);
    for (size_t i = 0; i < n_tokens; i++)
        t->tokens[i] = (int)(i * 7919 % VOCAB);
    must(nh_model_create(&t->model, c, c->batch, c->seq, VOCAB, t->tokens, true));
    must(nh_trainer_create(&t->trainer, c, &t->model));
    size_t n = (size_t)t->model.graph->n_steps * NH_STREAMS;
    t->rows = (struct nh_rows){.n = (int)n, .cells = calloc(n * NH_COLUMN_COUNT, sizeof(double)),
                               .measured = calloc(n * NH_COLUMN_COUNT, sizeof(bool))};
    t->theory = malloc(n * sizeof *t->theory);
    must(t->rows.cells && t->rows.measured && t->theory ? NH_OK : NH_FAILED);
    for (size_t i = 0; i < n; i++)
        t->theory[i] = (double)NAN;
    return t;
}

static double step(struct trained *t)
{
    double start = seconds();
    nh_trainer_batch(&t->trainer, t->tokens);
    struct nh_view view = {.config = &t->options.config, .model = &t->model, .rms_theory = t->theory, .counts = t->trainer.counts,
                           .backward = true, .loss_scale = t->trainer.scaler.scale, .to = t->rows.n};
    for (int i = 0; nh_probes[i]; i++)
        if (t->options.config.probes >> i & 1)
            must(nh_probes[i]->measure(&view, &t->rows));
    nh_trainer_update(&t->trainer);
    return seconds() - start;
}

static void end(struct trained *t)
{
    nh_trainer_destroy(&t->trainer);
    nh_model_destroy(&t->model);
    free(t->rows.cells), free(t->rows.measured), free(t->theory), free(t->tokens), free(t);
}

#define WORDS(...) ((char *[]){__VA_ARGS__, NULL})
#define LARGE "--depth=60", "--width=256", "--seq=256", "--batch=1", "--steps=1000", "--data=zipf"
#define SMALL "--depth=48", "--width=64", "--seq=64", "--batch=8", "--steps=2000", "--data=zipf", "--probes=none"

int main(void)
{
    enum { ROUNDS = 7 };
    nh_threads_start(nh_threads_available());
    puts("what,value,unit,limit");
    struct trained *wide = begin(WORDS(LARGE, "--dtype=fp32", "--probes=none"));
    struct trained *half = begin(WORDS(LARGE, "--dtype=fp16", "--probes=none"));
    struct trained *probed = begin(WORDS(LARGE, "--dtype=fp16", "--probes=rms,grad,overflow"));
    double best[3] = {(double)INFINITY, (double)INFINITY, (double)INFINITY};
    for (int k = 0; k < ROUNDS; k++) {
        best[0] = fmin(best[0], step(wide));
        best[1] = fmin(best[1], step(half));
        best[2] = fmin(best[2], step(probed));
    }
    end(wide), end(half), end(probed);
    printf("L60 d256 T256 B1 step of AdamW in fp32,%.4g,ms,\n", 1e3 * best[0]);
    printf("fp16 over fp32,%.4g,ratio,\n", best[1] / best[0]);
    printf("fp16 with rms+grad+overflow every step over fp32 without,%.4g,ratio,<= 1.12\n", best[2] / best[0]);
    struct trained *small = begin(WORDS(SMALL, "--dtype=fp16"));
    double fastest = (double)INFINITY, whole = seconds();
    for (int k = 0; k < 10 * ROUNDS; k++)
        fastest = fmin(fastest, step(small));
    whole = (seconds() - whole) / (10 * ROUNDS);
    end(small);
    printf("L48 d64 T64 B8 fp16: 2000 steps at the mean rate,%.4g,s,<= 600\n", 2000 * whole);
    printf("the same at the best rate,%.4g,s,\n", 2000 * fastest);
    return 0;
}
