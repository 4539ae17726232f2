// SPDX-License-Identifier: GPL-3.0-or-later
/** Norms of the Jacobian of each sublayer, d x_k / d x_(k-1), and end to end: Frobenius by Hutchinson's estimator
 *  E ||J z||^2 = ||J||_F^2 with random signs z; largest singular value by Golub-Kahan-Lanczos bidiagonalisation with full
 *  reorthogonalisation, a lower bound. Sample and iteration counts are fixed and recorded with the run. */
#include "harness/core/err.h"
#include "probes/probe.h"

#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Key of this probe's random streams, above every layer number. */
static const uint64_t STREAM = UINT64_C(1) << 32;

enum { AT_ONCE = 4, SPECTRUM_MAX = 512 };

/** The map of one row of the results. */
struct map {
    const struct nh_view *view;
    int row, first, end;
    const nh_val *from, *to;
    size_t n_in, n_out; /**< values on either side */
};

/** Random signs, 32 to a draw (the generator gives 32 bits at a time). */
static void signs(gsl_rng *rng, double *z, size_t n)
{
    unsigned long bits = 0;
    for (size_t i = 0; i < n; i++, bits >>= 1) {
        if (i % 32 == 0)
            bits = gsl_rng_get(rng);
        z[i] = bits & 1 ? 1 : -1;
    }
}

static double *numbers(size_t n)
{
    double *p = malloc((n + 1) * sizeof *p);
    if (!p)
        nh_no_memory(); /* vectors of the stream's size, beside an arena a thousand times as large */
    return p;
}

static double dot(const double *a, const double *b, size_t n)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (size_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static double normalise(double *v, size_t n)
{
    double norm = sqrt(dot(v, v, n));
    for (size_t i = 0; norm > 0 && i < n; i++)
        v[i] /= norm;
    return norm;
}

/** Takes the parts along the n_basis orthonormal rows of basis out of v. */
static void orthogonalise(double *v, const double *basis, int n_basis, size_t n)
{
    for (int k = 0; k < n_basis; k++) {
        double along = dot(v, basis + (size_t)k * n, n);
        for (size_t i = 0; i < n; i++)
            v[i] -= along * basis[(size_t)k * n + i];
    }
}

static void hutchinson(const struct map *m, struct nh_pass *pass, struct nh_rows *rows)
{
    const struct nh_core *core = m->view->model->core;
    int samples = m->view->config->jac_samples;
    double *z = numbers(AT_ONCE * m->n_in), *jz = numbers(AT_ONCE * m->n_out), mean = 0, deviations = 0;
    gsl_rng *rng = nh_rng_new(m->view->config->seed, STREAM + (uint64_t)m->row, 0);
    for (int done = 0; done < samples; done += AT_ONCE) {
        int k = samples - done < AT_ONCE ? samples - done : AT_ONCE;
        signs(rng, z, (size_t)k * m->n_in);
        core->jvp(pass, k, z, jz);
        for (int s = 0; s < k; s++) {
            double sq = dot(jz + (size_t)s * m->n_out, jz + (size_t)s * m->n_out, m->n_out) / (double)m->n_in;
            double off = sq - mean; /* Welford: a sum of squares less that of the mean would lose a small spread */
            mean += off / (done + s + 1), deviations += off * (sq - mean);
        }
    }
    double fro = sqrt(mean);
    nh_set(rows, m->row, NH_LAYERS_JAC_FRO, fro);
    if (samples > 1) { /* error of the mean of squares, carried to its root */
        double variance = deviations / (samples - 1);
        double se = fro > 0 ? sqrt(variance / samples) / (2 * fro) : 0;
        nh_set(rows, m->row, NH_LAYERS_JAC_FRO_SE, isfinite(fro) ? se : (double)NAN);
    }
    free(z), free(jz), gsl_rng_free(rng);
}

/** Largest singular value of the upper bidiagonal matrix with diagonal a[0..k) and superdiagonal b[0..k-1). */
static double bidiagonal_norm(const double *a, const double *b, int k)
{
    gsl_matrix *u = gsl_matrix_calloc((size_t)k, (size_t)k), *v = gsl_matrix_alloc((size_t)k, (size_t)k);
    gsl_vector *s = gsl_vector_alloc((size_t)k), *work = gsl_vector_alloc((size_t)k);
    if (!u || !v || !s || !work)
        nh_no_memory();
    for (int i = 0; i < k; i++) {
        gsl_matrix_set(u, (size_t)i, (size_t)i, a[i]);
        if (i + 1 < k)
            gsl_matrix_set(u, (size_t)i, (size_t)i + 1, b[i]);
    }
    double top = gsl_linalg_SV_decomp(u, v, s, work) ? (double)NAN : gsl_vector_get(s, 0);
    gsl_matrix_free(u), gsl_matrix_free(v), gsl_vector_free(s), gsl_vector_free(work);
    return top;
}

/** Golub and Kahan 1965: J v_i = b_(i-1) u_(i-1) + a_i u_i, J' u_i = a_i v_i + b_i v_(i+1). */
static void lanczos(const struct map *m, struct nh_pass *pass, struct nh_rows *rows)
{
    const struct nh_core *core = m->view->model->core;
    int steps = m->view->config->jac_iterations, k = 0;
    size_t n = m->n_in, n_out = m->n_out;
    steps = (size_t)steps < n ? steps : (int)n;
    double *u = numbers((size_t)steps * n_out), *v = numbers(((size_t)steps + 1) * n);
    double *a = numbers((size_t)steps), *b = numbers((size_t)steps);
    gsl_rng *rng = nh_rng_new(m->view->config->seed, STREAM + (uint64_t)m->row, 1);
    signs(rng, v, n);
    normalise(v, n);
    while (k < steps) {
        core->jvp(pass, 1, v + (size_t)k * n, u + (size_t)k * n_out);
        orthogonalise(u + (size_t)k * n_out, u, k, n_out);
        a[k] = normalise(u + (size_t)k * n_out, n_out);
        k++;
        if (k == steps || a[k - 1] == 0)
            break;
        core->vjp(pass, 1, u + (size_t)(k - 1) * n_out, v + (size_t)k * n);
        orthogonalise(v + (size_t)k * n, v, k, n);
        b[k - 1] = normalise(v + (size_t)k * n, n);
        if (b[k - 1] <= 1e-12 * a[0]) /* an invariant subspace: nothing new to find */
            break;
    }
    nh_set(rows, m->row, NH_LAYERS_JAC_SPEC, bidiagonal_norm(a, b, k));
    free(u), free(v), free(a), free(b), gsl_rng_free(rng);
}

/** All singular values, by the Jacobian's columns and GSL's SVD. */
static int spectrum(const struct map *m, struct nh_pass *pass, struct nh_singular *out)
{
    const struct nh_core *core = m->view->model->core;
    size_t n = m->n_in; /* every map of a model is square */
    gsl_matrix *j = gsl_matrix_alloc(n, n), *v = gsl_matrix_alloc(n, n);
    gsl_vector *s = gsl_vector_alloc(n), *work = gsl_vector_alloc(n);
    double *e = numbers(n), *column = numbers(n);
    if (!j || !v || !s || !work)
        nh_no_memory(); /* n is at most SPECTRUM_MAX */
    for (size_t c = 0; c < n; c++) {
        memset(e, 0, n * sizeof *e);
        e[c] = 1;
        core->jvp(pass, 1, e, column);
        for (size_t r = 0; r < n; r++)
            gsl_matrix_set(j, r, c, column[r]);
    }
    int status = gsl_linalg_SV_decomp(j, v, s, work);
    for (size_t i = 0; i < n; i++)
        out[i] = (struct nh_singular){m->row, (int)i + 1, status ? (double)NAN : gsl_vector_get(s, i)};
    gsl_matrix_free(j), gsl_matrix_free(v), gsl_vector_free(s), gsl_vector_free(work), free(e), free(column);
    return NH_OK;
}

/** What is asked of a map; the two norms of the long map, end to end, are two pieces of work. */
enum { FROBENIUS = 1, SPECTRAL = 2 };

static int measure_map(const struct map *m, int norms, struct nh_rows *rows, struct nh_singular *singular)
{
    const struct nh_model *model = m->view->model;
    if (m->first == m->end) /* nothing between the two */
        return NH_OK;
    if (model->core->nonfinite(model->exec, m->first, m->end)) {
        nh_set(rows, m->row, NH_LAYERS_JAC_FRO, (double)NAN);
        nh_set(rows, m->row, NH_LAYERS_JAC_FRO_SE, (double)NAN);
        nh_set(rows, m->row, NH_LAYERS_JAC_SPEC, (double)NAN);
        for (size_t i = 0; singular && i < m->n_in; i++)
            singular[i] = (struct nh_singular){m->row, (int)i + 1, (double)NAN};
        return NH_OK;
    }
    struct nh_pass *pass;
    int status = model->core->pass_create(&pass, model->exec, m->first, m->end, m->from, m->to, AT_ONCE);
    if (status)
        return status;
    if (norms & FROBENIUS)
        hutchinson(m, pass, rows);
    if (norms & SPECTRAL)
        lanczos(m, pass, rows);
    if (singular)
        status = spectrum(m, pass, singular);
    model->core->pass_destroy(pass);
    return status;
}

/** Values of the streams v, in all. */
static size_t state_size(const struct nh_graph *g, const nh_val *v)
{
    size_t n = 0;
    for (int i = 0; i < NH_STREAMS; i++)
        n += v[i] < 0 ? 0 : (size_t)g->rows * (size_t)g->values[v[i]].cols;
    return n;
}

/** Piece of work i: first the long map's two norms, then the sublayers; each on one thread. singular: n numbers a step. */
static int measure_piece(const struct nh_view *view, size_t n, int i, struct nh_rows *rows)
{
    const struct nh_graph *g = view->model->graph;
    int last = g->n_steps - 1, k = i < 2 ? last : i - 1;
    const struct nh_step *s = &g->steps[k];
    const nh_val embedding[NH_STREAMS] = {g->recs[0].out, -1};
    struct map m = {.view = view, .row = k * NH_STREAMS, .first = s->first_rec, .end = s->end_rec, .from = s->before, .to = s->after};
    if (k == last)
        m.first = 1, m.end = g->head_rec, m.from = embedding; /* all behind the embedding */
    m.n_in = state_size(g, m.from), m.n_out = state_size(g, m.to);
    struct nh_singular *singular = rows->spectrum && i != 1 ? rows->spectrum + (size_t)(k - 1) * n : NULL;
    return measure_map(&m, i == 0 ? SPECTRAL : i == 1 ? FROBENIUS : FROBENIUS | SPECTRAL, rows, singular);
}

static int measure(const struct nh_view *view, struct nh_rows *rows)
{
    const struct nh_graph *g = view->model->graph;
    const struct nh_config *config = view->config;
    int last = g->n_steps - 1, status = NH_OK;
    size_t n = state_size(g, g->steps[0].after);
    if (config->spectrum) {
        rows->n_spectrum = (size_t)last * n;
        rows->spectrum = calloc(rows->n_spectrum, sizeof *rows->spectrum);
        if (!rows->spectrum)
            return nh_fail(NH_FAILED, "out of memory for the spectrum; try a smaller --depth");
    }
#pragma omp parallel for schedule(dynamic) num_threads(config->threads)
    for (int i = 0; i <= last; i++) {
        int one = measure_piece(view, n, i, rows);
        if (one) {
#pragma omp critical(nh_jacobian_status)
            status = one;
        }
    }
    return status ? nh_fail(status, "out of memory in the jacobian probe; try --probes without jacobian") : NH_OK;
}

/** Each sublayer by itself, and all of them again end to end. */
static double passes(const struct nh_config *config)
{
    return 2 * (config->jac_samples + 2.0 * config->jac_iterations);
}

static int refuse(const struct nh_config *config, const struct nh_graph *g)
{
    size_t n = state_size(g, g->steps[0].after);
    if (!config->spectrum || n <= SPECTRUM_MAX)
        return NH_OK;
    return nh_fail(NH_USAGE, "--spectrum needs batch x seq x width (times the streams) <= %d, here it is %zu; try --batch 1 --seq 8 "
                             "--width 32", SPECTRUM_MAX, n);
}

/** One pass a thread (the long map's is the largest) and the vectors of Hutchinson and Lanczos. */
static double memory(const struct nh_config *config, const struct nh_graph *g)
{
    double state = (double)g->n_streams * g->rows * config->width;
    double pass = (double)nh_core_for(g)->pass_memory(g, 1, g->head_rec, AT_ONCE);
    return config->threads * (pass + sizeof(double) * state * (2 * AT_ONCE + 2 * config->jac_iterations + 1));
}

const struct nh_probe nh_probe_jacobian = {
    .name = "jacobian",
    .aliases = (const char *const[]){"jac", NULL},
    .what = "Jacobian of each sublayer and end to end: Frobenius norm over sqrt(n) (Hutchinson, with standard error) and largest "
            "singular value (Golub-Kahan-Lanczos)",
    .columns = "jac_fro jac_fro_se jac_spec; --spectrum: spectrum.csv",
    .by_default = true,
    .at_start_only = true,
    .passes = passes,
    .refuse = refuse,
    .memory = memory,
    .measure = measure,
};
