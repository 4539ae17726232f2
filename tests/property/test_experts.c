// SPDX-License-Identifier: GPL-3.0-or-later
/** Models with experts behind dense layers: their shape, their start, their derivatives, their training. */
#include "tests/property/layout_steps.h"
#include "tests/unit/trained.h"
#include "tests/suite.h"

#include <gsl/gsl_errno.h>

static const char *const layouts[] = {"pre", "sandwich-depth"};

#define SMALL "--depth 3 --width 16 --heads 2 --seq 6 --batch 2 --vocab 16 --ffn swiglu "
#define EXPERTS                                                                                                        \
    "--experts 6 --experts-active 2 --experts-shared 1 --expert-mult 0.5 --dense-layers 1 --route-scale 2.826 "

static struct nh_config small_config(int layout, const char *words)
{
    char all[512];
    if (snprintf(all, sizeof all, "--layout %s " SMALL EXPERTS "%s", layouts[layout], words) >= (int)sizeof all)
        abort();
    return config_of(all);
}

/* ---- shape ---- */

START_TEST(dense_layers_have_experts)
{
    struct nh_config c = small_config(_i, "");
    struct nh_model m = model_of(&c, false);
    static const struct {
        const char *name;
        int rows, cols, repeat;
    } params[] = {
        {"ffn.router", 6, 16, 1},      {"ffn.expert_bias", 1, 6, 1}, {"ffn.experts.in", 6 * 16, 16, 6},
        {"ffn.experts.out", 96, 8, 6}, {"ffn.shared.in", 16, 16, 1}, {"ffn.shared.out", 16, 8, 1},
    };
    int dense = 0;
    for (int p = 0; p < m.graph->n_params; p++) {
        const struct nh_param *q = &m.graph->params[p];
        dense += is_named(m.graph, p, "ffn.in") + is_named(m.graph, p, "ffn.out");
        ck_assert(!is_named(m.graph, p, "ffn.in") || q->layer == 1);
        ck_assert_int_eq(q->frozen, is_named(m.graph, p, "ffn.expert_bias"));
    }
    ck_assert_int_eq(dense, 2);
    for (int i = 0; i < COUNT(params); i++) {
        int found = 0;
        for (int p = 0; p < m.graph->n_params; p++) {
            const struct nh_param *q = &m.graph->params[p];
            if (!is_named(m.graph, p, params[i].name))
                continue;
            ck_assert_int_eq(q->layer, 2 + found++);
            ck_assert_int_eq(q->rows, params[i].rows);
            ck_assert_int_eq(q->cols, params[i].cols);
            ck_assert_int_eq(q->repeat, params[i].repeat);
        }
        ck_assert_int_eq(found, 2);
    }
    for (int l = 1; l <= 3; l++) {
        ck_assert_int_eq(count_ops(m.graph, NH_OP_ROUTE, l), l > 1);
        ck_assert_int_eq(count_ops(m.graph, NH_OP_EXPERTS, l), l > 1 ? 2 : 0);
        ck_assert_int_eq(count_ops(m.graph, NH_OP_COMBINE, l), l > 1);
    }
    nh_model_destroy(&m);
}
END_TEST

/** Products of a token: its own experts alone. 12 rows, width 16, experts of 8: router 6, k (16 + 8), shared 16 + 8. */
START_TEST(idle_experts_cost_something)
{
    struct nh_config c = small_config(_i, ""), dense = c;
    struct nh_graph *with, *without;
    dense.moe.experts = 0;
    must(nh_graph_build(&with, &c, 2, 6, 16));
    must(nh_graph_build(&without, &dense, 2, 6, 16));
    double ffn = 2. * 12 * 16 * 3 * nh_ffn_hidden(&c), moe = 2. * 12 * 16 * (6 + 2 * 24 + 24);
    ck_assert_double_eq(nh_graph_flops(with) - nh_graph_flops(without), 2 * (moe - ffn));
    nh_graph_free(with), nh_graph_free(without);
}
END_TEST

/** Every expert has numbers of its own and the deviation of its own fan-in; the factor of --init gpt2 is on the last
 * matrices. */
START_TEST(experts_start_alike)
{
    static const struct {
        const char *init;
        double in, out, router; /**< of width 64, hidden 32, depth 2 */
    } cases[] = {{"unit", 1 / 8., 0.17677669529663687, 1 / 8.}, {"gpt2", 0.02, 0.01, 0.02}};
    char words[256];
    snprintf(words, sizeof words,
             "--depth 2 --width 64 --ffn swiglu --experts 5 --experts-active 2 --experts-shared 2 --expert-mult 0.5 "
             "--dtype fp64 --init %s",
             cases[_i].init);
    struct nh_config c = config_of(words);
    struct nh_model m = model_of(&c, false);
    double *seen = zeros(64, sizeof *seen);
    int n = 0, biases = 0;
    for (int p = 0; p < m.graph->n_params; p++) {
        const struct nh_param *q = &m.graph->params[p];
        double *w = param_of(&m, p), *at = w;
        if (is_named(m.graph, p, "ffn.expert_bias"))
            for (int i = 0; i < q->cols; i++)
                biases += w[i] != 0;
        bool out = is_named(m.graph, p, "ffn.experts.out"), shared_out = is_named(m.graph, p, "ffn.shared.out");
        bool in = is_named(m.graph, p, "ffn.experts.in") || is_named(m.graph, p, "ffn.shared.in");
        bool router = is_named(m.graph, p, "ffn.router");
        for (int i = 0; i < q->repeat * q->n_parts && (out || shared_out || in || router); i++) {
            size_t size = (size_t)q->part[i % q->n_parts].rows * (size_t)q->cols;
            double sum = 0, std = router ? cases[_i].router : in ? cases[_i].in : cases[_i].out;
            if (shared_out && _i == 0)
                std = 1 / 8.; /* its fan-in is that of two experts */
            for (size_t k = 0; k < size; k++)
                sum += at[k] * at[k];
            assert_near(sqrt(sum / (double)size) / std, 1, router ? 0.2 : 0.08); /* 4 standard errors */
            for (int k = 0; k < n; k++)
                ck_assert_double_ne(seen[k], at[0] / std);
            seen[n++] = at[0] / std;
            at += size;
        }
        free(w);
    }
    ck_assert_int_eq(n, 2 * (5 * 3 + 3 + 1));
    ck_assert_int_eq(biases, 0);
    free(seen);
    nh_model_destroy(&m);
}
END_TEST

/* ---- the depth-scaled sandwich with experts (arXiv:2602.17004 section 2.3) ---- */

START_TEST(norms_of_another_sandwich)
{
    static const int depths[] = {1, 6, 12, 60};
    int depth = depths[_i], norms = 0;
    struct nh_config c = config_of(
        "--layout sandwich-depth --width 16 --heads 2 --dtype fp64 --ffn swiglu --attn-gate " EXPERTS "--depth 60");
    c.depth = depth;
    struct nh_model m = model_of(&c, false);
    for (int p = 0; p < m.graph->n_params; p++) {
        if (!strstr(m.graph->params[p].name, ".gain"))
            continue;
        bool second = is_named(m.graph, p, "attn.norm_post.gain") || is_named(m.graph, p, "ffn.norm_post.gain");
        double *w = param_of(&m, p), expected = second ? 1 / sqrt(depth) : 1;
        for (size_t i = 0; i < param_size(m.graph, p); i++)
            ck_assert_double_eq(w[i], expected);
        norms++;
        free(w);
    }
    ck_assert_int_eq(norms, 4 * depth + 1);
    ck_assert_int_eq(m.graph->n_norms, 4 * depth + 1);
    nh_model_destroy(&m);
}
END_TEST

/** sqrt(r0^2 + 2) at any depth: a norm behind the experts makes their size, and the scale of the routes, of no account.
 */
START_TEST(experts_let_the_stream_grow)
{
    static const int depths[] = {6, 12, 24, 60};
    struct nh_config c =
        config_of("--layout sandwich-depth --seq 32 --batch 2 --vocab 512 --embed-rms 1 --ffn swiglu --depth 60 "
                  "--dense-layers 2 --experts 8 --experts-active 2 --experts-shared 1 --route-scale 2.826");
    c.depth = depths[_i];
    struct nh_model m = model_of(&c, false);
    m.core->forward(m.exec);
    double rms = rms_of(&m, m.graph->steps[m.graph->n_steps - 2].after[0]);
    printf("# sandwich-depth with experts, L %d, one seed: final RMS %.3f\n", depths[_i], rms);
    ck_assert_double_le(fabs(rms / sqrt(3) - 1), 0.12);
    nh_model_destroy(&m);
}
END_TEST

/** Layer l, from 1, is global where 4 divides it: 15 of 60, the fourth first; local layers see 3 keys and rotate. */
START_TEST(global_layers_elsewhere)
{
    struct nh_config c =
        config_of("--layout sandwich-depth --depth 60 --width 16 --heads 2 --seq 6 --ffn swiglu --pattern lllg "
                  "--window 3 --pos interleaved " EXPERTS);
    c.pattern = "lllg"; /* the words are gone */
    struct nh_graph *g;
    must(nh_graph_build(&g, &c, 1, 6, 16));
    int global = 0;
    for (int r = 0; r < g->n_recs; r++) {
        if (g->recs[r].op != NH_OP_SDPA)
            continue;
        int layer = g->sites[g->values[g->recs[r].out].site].layer;
        ck_assert_int_eq(g->recs[r].u.sdpa.window, layer % 4 ? 3 : 6);
        ck_assert_int_eq(count_ops(g, NH_OP_ROPE, layer), layer % 4 ? 2 : 0);
        global += layer % 4 == 0;
    }
    ck_assert_int_eq(global, 15);
    nh_graph_free(g);
}
END_TEST

/* ---- derivatives ---- */

/** From the embedding to the exit: <u, Jv> = <J'u, v>. */
START_TEST(adjoint_of_another_map)
{
    static const char *const dtypes[] = {"fp64", "fp32"};
    char words[32];
    snprintf(words, sizeof words, "--dtype %s", dtypes[_i / 2]);
    struct nh_config c = small_config(_i % 2, words);
    struct nh_model m = model_of(&c, false);
    const struct nh_graph *g = m.graph;
    m.core->forward(m.exec);
    size_t n = value_size(g, g->exit_value);
    double *all = zeros(4 * n, sizeof *all), *v = all, *u = v + n, *jv = u + n, *jtu = jv + n;
    for (size_t i = 0; i < n; i++)
        v[i] = cos((double)i), u[i] = sin((double)(3 * i));
    struct nh_pass *pass;
    must(m.core->pass_create(&pass, m.exec, 1, g->head_rec, (nh_val[NH_STREAMS]){g->recs[0].out, -1},
                             (nh_val[NH_STREAMS]){g->exit_value, -1}, 1));
    m.core->jvp(pass, 1, v, jv), m.core->vjp(pass, 1, u, jtu);
    ck_assert_double_le(fabs(dot(u, jv, n) - dot(jtu, v, n)) / sqrt(dot(u, u, n) * dot(jv, jv, n)),
                        _i / 2 ? 1e-6 : 1e-14);
    m.core->pass_destroy(pass);
    free(all);
    nh_model_destroy(&m);
}
END_TEST

/** Along one direction of each parameter. */
START_TEST(gradient_off_its_difference)
{
    const double h = 1e-5;
    struct nh_config c = small_config(_i, "--dtype fp64");
    struct nh_model m = model_of(&c, true);
    m.core->forward(m.exec);
    m.core->backward(m.exec, 1, NULL);
    int n = m.graph->n_params;
    double **grad = zeros((size_t)n, sizeof *grad), total = 0;
    for (int p = 0; p < n; p++) {
        grad[p] = param_grad_of(&m, p);
        total += dot(grad[p], grad[p], param_size(m.graph, p));
    }
    for (int p = 0; p < n; p++) {
        size_t size = param_size(m.graph, p);
        double *w = param_of(&m, p), *moved = zeros(size, sizeof *moved), loss[2], derived = 0;
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < size; i++)
                moved[i] = w[i] + (side ? -h : h) * cos((double)(5 * i)) / sqrt((double)size);
            m.core->set_param(m.exec, p, moved);
            loss[side] = m.core->forward(m.exec);
        }
        m.core->set_param(m.exec, p, w);
        for (size_t i = 0; i < size; i++)
            derived += grad[p][i] * cos((double)(5 * i)) / sqrt((double)size);
        double norm = fmax(sqrt(dot(grad[p], grad[p], size)), 1e-3 * sqrt(total)),
               numeric = (loss[0] - loss[1]) / (2 * h);
        ck_assert_msg(fabs(numeric - derived) <= 1e-6 * norm, "%s: %.9g, not %.9g", m.graph->params[p].name, derived,
                      numeric);
        free(w), free(moved), free(grad[p]);
    }
    free(grad);
    nh_model_destroy(&m);
}
END_TEST

/* ---- training ---- */

static const char *const optimizers[] = {"adamw", "muon", "sgd"};

static void train_begin(struct trained *x, int optimizer, const char *words)
{
    char all[512];
    if (snprintf(all, sizeof all, "--layout sandwich-depth " SMALL EXPERTS "--steps 10 --optimizer %s %s",
                 optimizers[optimizer], words) >= (int)sizeof all)
        abort();
    trained_begin(x, all);
}

/** 10 steps: the same bits on 1 and 2 threads, and the bias of the choice stays where it is. */
START_TEST(training_moves_bits)
{
    static const char *const dtypes[] = {"fp32", "fp16", "bf16"};
    struct trained x[2];
    for (int i = 0; i < 2; i++) {
        char words[128];
        snprintf(words, sizeof words, "--dtype %s --weight-decay 0.1 --threads %d", dtypes[_i / 3], i + 1);
        train_begin(&x[i], _i % 3, words);
    }
    for (int step = 0; step < 10; step++) {
        struct nh_train_step a = trained_step(&x[0]), b = trained_step(&x[1]);
        ck_assert_double_eq(a.loss, b.loss);
        ck_assert_double_eq(a.grad_norm, b.grad_norm);
        ck_assert(isfinite(a.loss) && !a.skipped && a.changed > 0);
    }
    ck_assert(same_weights(&x[0].model, &x[1].model));
    for (int layer = 2; layer <= 3; layer++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%d.ffn.expert_bias", layer);
        double *bias = param_of(&x[0].model, param_named(x[0].model.graph, name));
        for (int e = 0; e < 6; e++)
            ck_assert(bias[e] == 0);
        free(bias);
    }
    trained_end(&x[0]), trained_end(&x[1]);
}
END_TEST

/** Five Newton-Schulz steps on x (rows x cols) over its norm, as KellerJordan/Muon has them. */
static void orthogonal(double *x, int rows, int cols)
{
    double *gram = zeros((size_t)(rows * rows), sizeof *gram), *next = zeros((size_t)(rows * cols), sizeof *next);
    double norm = sqrt(dot(x, x, (size_t)(rows * cols))) + 1e-7;
    for (int i = 0; i < rows * cols; i++)
        x[i] /= norm;
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < rows * rows; i++)
            gram[i] = dot(x + i / rows * cols, x + i % rows * cols, (size_t)cols);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++) {
                double *to = &next[i * cols + j];
                *to = 3.4445 * x[i * cols + j];
                for (int k = 0; k < rows; k++) {
                    double poly =
                        -4.7750 * gram[i * rows + k] + 2.0315 * dot(gram + i * rows, gram + k * rows, (size_t)rows);
                    *to += poly * x[k * cols + j];
                }
            }
        memcpy(x, next, (size_t)(rows * cols) * sizeof *x);
    }
    free(gram), free(next);
}

/** The first step of each matrix of an expert is by itself, 0.2 lr sqrt(its larger side) times its orthogonal factor.
 */
START_TEST(muon_mixes_experts)
{
    struct trained x;
    train_begin(&x, 1, "--dtype fp64 --lr 0.01 --weight-decay 0 --clip off");
    const struct nh_graph *g = x.model.graph;
    int p = param_named(g, "layers.2.ffn.experts.in"), rows = 8, cols = 16, idle = 0;
    ck_assert_int_eq(g->params[p].rows, 6 * 2 * rows); /* gate and up of each */
    double *before = param_of(&x.model, p);
    trained_step(&x);
    double *after = param_of(&x.model, p), *step = param_grad_of(&x.model, p);
    for (int i = 0; i < 6 * 2; i++) {
        double *u = step + i * rows * cols;
        for (int k = 0; k < rows * cols; k++) /* gradient and momentum, which is the gradient */
            u[k] *= 1 + x.config.train.momentum;
        if (dot(u, u, (size_t)(rows * cols)) > 0)
            orthogonal(u, rows, cols);
        else
            idle++;
        for (int k = i * rows * cols; k < (i + 1) * rows * cols; k++)
            assert_near(before[k] - after[k], 0.2 * sqrt(cols) * 0.01 * step[k], 1e-12);
    }
    ck_assert_int_lt(idle, 6);
    free(before), free(after), free(step);
    trained_end(&x);
}
END_TEST

int main(void)
{
    gsl_set_error_handler_off();
    keep_memory();
    Suite *suite = suite_create("experts");
    TCase *tc = tcase_create("experts");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, dense_layers_have_experts, 0, 2);
    tcase_add_loop_test(tc, idle_experts_cost_something, 0, 2);
    tcase_add_loop_test(tc, experts_start_alike, 0, 2);
    tcase_add_loop_test(tc, norms_of_another_sandwich, 0, 4);
    tcase_add_loop_test(tc, experts_let_the_stream_grow, 0, 4);
    tcase_add_test(tc, global_layers_elsewhere);
    tcase_add_loop_test(tc, adjoint_of_another_map, 0, 4);
    tcase_add_loop_test(tc, gradient_off_its_difference, 0, 2);
    tcase_add_loop_test(tc, training_moves_bits, 0, 9);
    tcase_add_test(tc, muon_mixes_experts);
    return run_suite(suite, tc);
}
