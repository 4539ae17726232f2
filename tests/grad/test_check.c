// SPDX-License-Identifier: GPL-3.0-or-later
/** Derivatives of every operation and every layout, and that the checks would see a wrong one. */
#include "harness/core/check.h"
#include "harness/core/rng.h"
#include "tests/property/model_config.h"
#include "tests/suite.h"

#include <check.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_randist.h>
#include <math.h>

static struct nh_check operations[NH_OP_COUNT];
static int n_operations;

static void assert_good(const struct nh_check *c)
{
    printf("# %s: %d cases, differences %.1e, adjoint %.1e in fp64, %.1e in fp32\n", c->subject, c->cases,
           c->difference, c->adjoint64, c->adjoint32);
    ck_assert_int_gt(c->cases, 0);
    ck_assert_double_le(c->difference, 1e-6);
    ck_assert_double_le(c->adjoint64, 1e-14);
    ck_assert_double_le(c->adjoint32, 1e-6);
    ck_assert(nh_check_good(c));
}

START_TEST(wrong_derivative_of_an_operation)
{
    assert_good(&operations[_i]);
}
END_TEST

START_TEST(operation_left_out)
{
    static const char *const all[] = {"embedding, weights", "norm",    "linear", "rope", "attention",
                                      "activation",         "product", "add",    "gain", "shrink",
                                      "cast",               "relax",   "route",  "experts", "combine",
                                      "cross-entropy"};
    ck_assert_int_eq(n_operations, (int)(sizeof all / sizeof *all));
    for (int i = 0; i < n_operations; i++) {
        ck_assert_str_eq(operations[i].subject + strlen("operation "), all[i]);
    }
}
END_TEST

START_TEST(wrong_derivative_of_a_layout)
{
    struct nh_check c;
    bool switches = _i >= n_layouts();
    const struct nh_layout *layout = nh_layouts[_i % n_layouts()];
    ck_assert_int_eq(nh_check_layout(layout, switches, &c), NH_OK);
    ck_assert_str_eq(c.subject + strlen(switches ? "switches, " : "layout "), layout->name);
    ck_assert_int_ge(c.cases, 3 + 1); /* sublayers or blocks, end to end; then the parameters */
    assert_good(&c);
}
END_TEST

/* ---- controls ---- */

START_TEST(bad_figures_pass)
{
    struct nh_check good = {.difference = 1e-6, .adjoint64 = 1e-14, .adjoint32 = 1e-6}, c = good;
    ck_assert(nh_check_good(&c));
    c.difference = 1.001e-6;
    ck_assert(!nh_check_good(&c));
    c = good, c.adjoint64 = 1.001e-14;
    ck_assert(!nh_check_good(&c));
    c = good, c.adjoint32 = 1.001e-6;
    ck_assert(!nh_check_good(&c));
    c = good, c.difference = (double)NAN;
    ck_assert(!nh_check_good(&c));
    c = good, c.adjoint64 = (double)NAN;
    ck_assert(!nh_check_good(&c));
    c = good, c.adjoint32 = (double)NAN;
    ck_assert(!nh_check_good(&c));
}
END_TEST

/** x' = x + f(c N(x)) with c = NaN. */
static void broken(struct nh_builder *b, const struct nh_pos *pos, const double *knobs, nh_val *x)
{
    (void)pos, (void)knobs;
    *x = nh_add(b, *x, nh_branch(b, nh_scale(b, nh_norm(b, NH_N1, *x, 1), (double)NAN)));
}

START_TEST(nan_passes_the_check)
{
    static const struct nh_layout layout = {.name = "broken", .n_streams = 1, .sublayer = broken, .exit = nh_exit_norm};
    struct nh_check c;
    ck_assert_int_eq(nh_check_layout(&layout, false, &c), NH_OK);
    ck_assert_double_nan(c.difference);
    ck_assert_double_nan(c.adjoint64);
    ck_assert_double_nan(c.adjoint32);
    ck_assert(!nh_check_good(&c));
}
END_TEST

static double *normals(size_t n, uint64_t stream)
{
    double *v = zeros(n, sizeof *v);
    gsl_rng *rng = nh_rng_new(1, stream, 0);
    for (size_t i = 0; i < n; i++)
        v[i] = gsl_ran_gaussian_ziggurat(rng, 1);
    gsl_rng_free(rng);
    return v;
}

/** Jv and J'u of the map from the embedding to the exit. */
struct adjoint {
    size_t n;
    double *v, *u, *jv, *jtu;
};

static struct adjoint adjoint_of(const struct nh_model *m)
{
    const struct nh_graph *g = m->graph;
    const nh_val from[NH_STREAMS] = {g->recs[0].out, -1}, to[NH_STREAMS] = {g->exit_value, -1};
    size_t n = value_size(g, to[0]);
    struct adjoint a = {n, normals(n, 1), normals(n, 2), zeros(n, sizeof(double)), zeros(n, sizeof(double))};
    struct nh_pass *pass;
    must(m->core->pass_create(&pass, m->exec, 1, g->head_rec, from, to, 1));
    m->core->jvp(pass, 1, a.v, a.jv);
    m->core->vjp(pass, 1, a.u, a.jtu);
    m->core->pass_destroy(pass);
    return a;
}

static void adjoint_free(struct adjoint *a)
{
    free(a->v), free(a->u), free(a->jv), free(a->jtu);
}

static double error_of(const struct adjoint *a)
{
    return fabs(dot(a->u, a->jv, a->n) - dot(a->jtu, a->v, a->n)) /
           sqrt(dot(a->u, a->u, a->n) * dot(a->jv, a->jv, a->n));
}

/** The identity is fine enough to see one entry of J'u that is wrong by a millionth. */
START_TEST(adjoint_identity_is_blind)
{
    struct nh_config c = layout_config(_i, "--depth 3 --width 16 --dtype fp64");
    struct nh_model m = model_of(&c, false);
    m.core->forward(m.exec);
    struct adjoint a = adjoint_of(&m);
    ck_assert_double_le(error_of(&a), NH_CHECK_ADJOINT64);
    size_t largest = 0;
    for (size_t i = 0; i < a.n; i++)
        largest = fabs(a.jtu[i] * a.v[i]) > fabs(a.jtu[largest] * a.v[largest]) ? i : largest;
    a.jtu[largest] *= 1 + 1e-6;
    ck_assert_double_gt(error_of(&a), 100 * NH_CHECK_ADJOINT64);
    a.jtu[largest] = -a.jtu[largest];
    ck_assert_double_gt(error_of(&a), 1e-3);
    adjoint_free(&a);
    nh_model_destroy(&m);
}
END_TEST

/** The weights of an earlier point: Jv there against J'u here. */
START_TEST(derivative_at_another_point)
{
    struct nh_config c = config_of("--depth 3 --width 16 --dtype fp64");
    struct nh_model m = model_of(&c, false);
    m.core->forward(m.exec);
    struct adjoint a = adjoint_of(&m);
    fill_params(&m, "ffn.norm_pre.gain", 1.001);
    m.core->forward(m.exec);
    struct adjoint b = adjoint_of(&m);
    ck_assert_double_le(error_of(&b), NH_CHECK_ADJOINT64);
    double *jtu = b.jtu;
    b.jtu = a.jtu, a.jtu = jtu;
    ck_assert_double_gt(error_of(&b), 1e-6);
    adjoint_free(&a), adjoint_free(&b);
    nh_model_destroy(&m);
}
END_TEST

/** Casts, which neither fp32 nor fp64 has: with tf32 every input of a product is cast. */
START_TEST(cast_stops_the_derivative)
{
    struct nh_config c = config_of("--layout sandwich --depth 3 --width 16 --dtype tf32");
    struct nh_model m = model_of(&c, false);
    int casts = 0;
    for (int r = 0; r < m.graph->n_recs; r++)
        casts += m.graph->recs[r].op == NH_OP_CAST;
    ck_assert_int_gt(casts, 0);
    m.core->forward(m.exec);
    struct adjoint a = adjoint_of(&m);
    ck_assert_double_le(error_of(&a), NH_CHECK_ADJOINT32);
    ck_assert_double_gt(dot(a.jv, a.jv, a.n), 0.01 * dot(a.v, a.v, a.n));
    adjoint_free(&a);
    nh_model_destroy(&m);
}
END_TEST

int main(void)
{
    gsl_set_error_handler_off();
    keep_memory();
    must(nh_check_operations(operations, &n_operations));
    Suite *suite = suite_create("check");
    TCase *tc = tcase_create("check");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, wrong_derivative_of_an_operation, 0, n_operations);
    tcase_add_test(tc, operation_left_out);
    tcase_add_loop_test(tc, wrong_derivative_of_a_layout, 0, 2 * n_layouts());
    tcase_add_test(tc, bad_figures_pass);
    tcase_add_test(tc, nan_passes_the_check);
    tcase_add_loop_test(tc, adjoint_identity_is_blind, 0, n_layouts());
    tcase_add_test(tc, derivative_at_another_point);
    tcase_add_test(tc, cast_stops_the_derivative);
    return run_suite(suite, tc);
}
