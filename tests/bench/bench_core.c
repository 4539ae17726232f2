// SPDX-License-Identifier: GPL-3.0-or-later
/** What emulation, probes and derivatives cost, as ratios within one run: CSV `what,value,unit,limit`. Not a test: figures
 *  depend on the machine and on what else runs on it. Each pair is measured in turn and the best of a few rounds is taken. */
#include "harness/core/init.h"
#include "harness/core/model.h"
#include "harness/core/threads.h"
#include "probes/probe.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct nh_config config_of(const char *layout, int depth, int width, int heads, int seq, int batch, const char *dtype)
{
    struct nh_config c = {.depth = depth, .width = width, .heads = heads, .kv_heads = heads, .seq = seq, .batch = batch,
                          .ffn_mult = 4, .eps = 1e-5, .theta = 1e4, .branches = NH_BRANCHES_BOTH, .embed_scale = 1,
                          .embed_shrink = 1, .post_gain = 1, .threads = nh_threads_available(), .policy = nh_policies[0], .jac_samples = 16,
                          .jac_iterations = 12};
    for (int i = 0; nh_layouts[i]; i++)
        if (strcmp(nh_layouts[i]->name, layout) == 0)
            c.layout = nh_layouts[i];
    nh_fmt_parse(&c.dtype, dtype);
    return c;
}

static struct nh_model model_of(const struct nh_config *c, int vocab)
{
    int *tokens = malloc((size_t)(c->batch * c->seq) * sizeof *tokens);
    struct nh_model m;
    if (!tokens)
        exit(1);
    for (int i = 0; i < c->batch * c->seq; i++)
        tokens[i] = (i * 7919) % vocab;
    if (nh_model_create(&m, c, c->batch, c->seq, vocab, tokens, true)) {
        fprintf(stderr, "%s\n", nh_error());
        exit(1);
    }
    free(tokens);
    return m;
}

static double train_pass(struct nh_model *m, double scale)
{
    double start = seconds();
    m->core->forward(m->exec);
    m->core->backward(m->exec, scale, NULL);
    return seconds() - start;
}

static void print(const char *what, double value, const char *unit, const char *limit)
{
    printf("%s,%.4g,%s,%s\n", what, value, unit, limit);
    fflush(stdout);
}

/** fp16 with all counters over fp32, and the cheap probes over none, at L60 d256 T256 B1. */
static void emulation(void)
{
    struct nh_config c32 = config_of("pre", 60, 256, 4, 256, 1, "fp32"), c16 = config_of("pre", 60, 256, 4, 256, 1, "fp16");
    struct nh_model m32 = model_of(&c32, 512), m16 = model_of(&c16, 512);
    double best32 = (double)INFINITY, best16 = (double)INFINITY, best_probes = (double)INFINITY;
    int n = m16.graph->n_steps * NH_STREAMS;
    double *theory = malloc((size_t)n * sizeof *theory);
    struct nh_rows rows = {.n = n, .cells = calloc((size_t)n * NH_COLUMN_COUNT, sizeof(double)),
                           .measured = calloc((size_t)n * NH_COLUMN_COUNT, sizeof(bool))};
    if (!theory || !rows.cells || !rows.measured)
        exit(1);
    for (int i = 0; i < n; i++)
        theory[i] = (double)NAN;
    struct nh_view view = {.config = &c16, .model = &m16, .rms_theory = theory,
                           .counts = m16.core->counts(m16.exec), .backward = true, .loss_scale = 65536, .to = rows.n};
    for (int k = 0; k < ROUNDS; k++) {
        best32 = fmin(best32, train_pass(&m32, 1));
        best16 = fmin(best16, train_pass(&m16, 65536));
        double start = seconds();
        train_pass(&m16, 65536);
        for (int i = 0; nh_probes[i]; i++)
            if (strstr("rms grad overflow", nh_probes[i]->name) && nh_probes[i]->measure(&view, &rows))
                exit(1);
        best_probes = fmin(best_probes, seconds() - start);
    }
    print("L60 d256 T256 B1 fp32 forward+backward", 1e3 * best32, "ms", "");
    print("fp16 over fp32", best16 / best32, "ratio", "<= 1.06");
    print("rms+grad+overflow over none", best_probes / best16, "ratio", "<= 1.05");
    nh_model_destroy(&m32), nh_model_destroy(&m16);
    free(theory), free(rows.cells), free(rows.measured);
}

/** One jvp and one vjp of a sublayer over one forward pass of it, one thread. */
static void derivatives(void)
{
    struct nh_config c = config_of("sandwich", 4, 256, 4, 256, 1, "fp16");
    c.threads = 1;
    struct nh_model m = model_of(&c, 512);
    const struct nh_graph *g = m.graph;
    size_t n = (size_t)g->rows * (size_t)c.width;
    double *v = calloc(2 * n, sizeof *v), forward = 0, derivative = 0;
    if (!v)
        exit(1);
    for (size_t i = 0; i < n; i++)
        v[i] = i % 3 ? 1 : -1;
    m.core->forward(m.exec);
    for (int k = 3; k < 5; k++) { /* the two sublayers of a block */
        const struct nh_step *s = &g->steps[k];
        struct nh_pass *p;
        double best_f = (double)INFINITY, best_d = (double)INFINITY;
        if (m.core->pass_create(&p, m.exec, s->first_rec, s->end_rec, s->before, s->after, 1))
            exit(1);
        for (int round = 0; round < 20 * ROUNDS; round++) {
            double start = seconds();
            m.core->rerun(m.exec, s->first_rec, s->end_rec);
            double middle = seconds();
            m.core->jvp(p, 1, v, v + n);
            m.core->vjp(p, 1, v, v + n);
            best_f = fmin(best_f, middle - start);
            best_d = fmin(best_d, seconds() - middle);
        }
        m.core->pass_destroy(p);
        forward += best_f, derivative += best_d;
    }
    print("jvp + vjp of a sublayer over its forward", derivative / forward, "ratio", "<= 2.6");
    nh_model_destroy(&m);
    free(v);
}

/** C = op(A) op(B), m x n x k, its m rows split over the threads. */
static void product(int threads, bool ta, bool tb, int m, int n, int k, const float *a, const float *b, float *c)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        int i0 = m * t / threads, i1 = m * (t + 1) / threads, lda = ta ? m : k, ldb = tb ? k : n;
        cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, i1 - i0, n, k, 1,
                    ta ? a + i0 : a + (size_t)i0 * (size_t)lda, lda, b, ldb, 0, c + (size_t)i0 * (size_t)n, n);
    }
}

/** Rate of forward + backward against the rate of its matrix products alone, rows split over the threads. */
static void rate(void)
{
    struct nh_config c = config_of("pre", 12, 384, 6, 256, 4, "fp32");
    struct nh_model m = model_of(&c, 4096);
    const struct nh_graph *g = m.graph;
    double work = 0, alone = (double)INFINITY, whole = (double)INFINITY;
    size_t most = 0;
    for (int r = 0; r < g->n_recs; r++)
        if (g->recs[r].op == NH_OP_LINEAR) {
            size_t in = (size_t)g->values[g->recs[r].in[0]].cols, out = (size_t)g->values[g->recs[r].out].cols;
            most = in * out > most ? in * out : most;
            most = (size_t)g->rows * (in > out ? in : out) > most ? (size_t)g->rows * (in > out ? in : out) : most;
            work += 6. * g->rows * (double)in * (double)out;
        }
    float *buf = calloc(3 * most, sizeof *buf);
    if (!buf)
        exit(1);
    for (size_t i = 0; i < 3 * most; i++)
        buf[i] = (float)(i % 7) - 3;
    for (int k = 0; k < 5; k++) {
        double start = seconds();
        for (int r = 0; r < g->n_recs; r++)
            if (g->recs[r].op == NH_OP_LINEAR) {
                int in = g->values[g->recs[r].in[0]].cols, out = g->values[g->recs[r].out].cols;
                product(c.threads, false, true, g->rows, out, in, buf, buf + most, buf + 2 * most);
                product(c.threads, false, false, g->rows, in, out, buf, buf + most, buf + 2 * most);
                product(c.threads, true, false, out, in, g->rows, buf, buf + most, buf + 2 * most);
            }
        alone = fmin(alone, seconds() - start);
        whole = fmin(whole, train_pass(&m, 1));
    }
    double own = 3 * nh_graph_flops(g) / whole / 1e9, bare = work / alone / 1e9;
    print("L12 d384 T256 B4 V4096 forward+backward", own, "GFLOP/s", "");
    print("its products alone", bare, "GFLOP/s", "");
    print("share of the products' rate", own / bare, "ratio", ">= 0.75");
    nh_model_destroy(&m);
    free(buf);
}

int main(void)
{
    nh_threads_start(nh_threads_available());
    openblas_set_num_threads(1);
    puts("what,value,unit,limit");
    emulation();
    derivatives();
    rate();
    return 0;
}
