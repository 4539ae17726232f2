// SPDX-License-Identifier: GPL-3.0-or-later
/** harness op NAME: one operation on given tensors, through the tape, the store and the counters of a model. */
#include "harness/cli/op.h"

#include "harness/cli/run.h"
#include "harness/core/core.h"
#include "harness/core/err.h"
#include "harness/core/memory.h"
#include "harness/core/model.h"
#include "harness/core/threads.h"
#include "results/number.h"
#include "results/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tensors of the file ---- */

struct job {
    struct nh_op_build b;
    const struct nh_tensor *dy;
    struct nh_shape lead; /* of a value, without its columns */
    const struct nh_core *core;
    struct nh_exec *exec;
};

static int match(struct job *job, const struct nh_safetensors *file)
{
    const struct nh_operation *op = job->b.op;
    const struct nh_op_request *q = job->b.q;
    char names[64];
    nh_operation_tensors(op, names, sizeof names);
    const char *more = q->gradients ? ",dy" : "";
    for (size_t k = 0; k < nh_safetensors_count(file); k++) {
        const struct nh_tensor *t = nh_safetensors_at(file, k);
        const int i = nh_operation_tensor(op, t->name);
        if (i >= 0)
            job->b.given[i] = t;
        else if (q->gradients && strcmp(t->name, "dy") == 0)
            job->dy = t;
        else
            return nh_fail(NH_FAILED, "'%s': %s takes no tensor '%.80s', but %s%s", q->in, op->name, t->name, names,
                           more);
    }
    for (int i = 0; i < NH_OP_TENSORS && op->tensors[i].name; i++)
        if (!job->b.given[i] && !op->tensors[i].optional)
            return nh_fail(NH_FAILED, "'%s': tensor '%s' is missing; %s takes %s%s", q->in, op->tensors[i].name,
                           op->name, names, more);
    if (q->gradients && !job->dy)
        return nh_fail(NH_FAILED, "'%s': tensor 'dy' is missing; put it in, or leave --grad out", q->in);
    return NH_OK;
}

static bool has_rows(enum nh_op_kind kind)
{
    return kind == NH_OP_VALUE || kind == NH_OP_TOKENS;
}

/* The shape without the columns, if it has any. */
static struct nh_shape lead_of(const struct nh_tensor *t, enum nh_op_kind kind)
{
    struct nh_shape lead = t->shape;
    lead.rank -= kind == NH_OP_VALUE;
    return lead;
}

static bool same_shape(const struct nh_shape *a, const struct nh_shape *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static int check_shape(struct job *job, int i)
{
    static const struct {
        int min, max;
        const char *what;
    } ranks[] = {[NH_OP_VALUE] = {1, 3, "[cols], [T, cols] or [B, T, cols]"},
                 [NH_OP_MATRIX] = {2, 2, "[rows, cols]"},
                 [NH_OP_VECTOR] = {1, 1, "[cols]"},
                 [NH_OP_TOKENS] = {0, 2, "[T] or [B, T]"}};
    const struct nh_tensor *t = job->b.given[i];
    const enum nh_op_kind kind = job->b.op->tensors[i].kind;
    const struct nh_shape lead = lead_of(t, kind);
    bool good = t->shape.rank >= ranks[kind].min && t->shape.rank <= ranks[kind].max;
    size_t rows = 1;
    for (int d = 0; d < t->shape.rank && good; d++) {
        good = t->shape.dims[d] >= 1 && t->shape.dims[d] <= NH_OP_MAX_DIM;
        rows *= d < lead.rank ? t->shape.dims[d] : 1;
    }
    char text[NH_SHAPE_TEXT], other[NH_SHAPE_TEXT];
    nh_shape_text(&t->shape, text);
    if (!good || (has_rows(kind) && rows > NH_OP_MAX_DIM))
        return nh_fail(NH_FAILED,
                       "'%s': tensor '%s' has the shape %s; it must be %s, each 1 to %d and so all rows together",
                       job->b.q->in, t->name, text, ranks[kind].what, NH_OP_MAX_DIM);
    if (has_rows(kind) && !same_shape(&lead, &job->lead))
        return nh_fail(NH_FAILED, "'%s': tensor '%s' has the shape %s, but its rows must be as in '%s', %s",
                       job->b.q->in, t->name, text, job->b.given[0]->name, nh_shape_text(&job->lead, other));
    return NH_OK;
}

/* ---- the tape ---- */

/* A given tensor has a site of its own, in layer 1 + its index: that of its gradient. */
static int site_of(struct nh_graph *g, int i, enum nh_role role)
{
    return nh_graph_site(g, 1 + i, NH_SUB_EMBED, NH_SITE_CAST, role);
}

int nh_op_param(struct nh_op_build *b, int i, int rows, int cols)
{
    const enum nh_role role = b->op->tensors[i].role;
    const int site = site_of(b->g, i, role);
    return nh_graph_param(
        b->g, &(struct nh_param){.rows = rows, .cols = cols, .role = role, .site = site, .weight_site = -1});
}

static int add_input(struct nh_op_build *b, int i)
{
    const struct nh_op_tensor *want = &b->op->tensors[i];
    const struct nh_shape *s = &b->given[i]->shape;
    const int cols = s->rank ? (int)s->dims[s->rank - 1] : 1;
    if (want->kind == NH_OP_TOKENS)
        return -1;
    if (want->kind != NH_OP_VALUE)
        return nh_op_param(b, i, want->kind == NH_OP_MATRIX ? (int)s->dims[0] : 1, cols);
    const nh_val v = nh_graph_value(b->g, cols, site_of(b->g, i, want->role), want->role);
    b->g->values[v].watched = true; /* its gradient is read */
    return v;
}

static int build(struct job *job)
{
    struct nh_op_build *b = &job->b;
    job->lead = lead_of(b->given[0], b->op->tensors[0].kind);
    for (int i = 0; i < NH_OP_TENSORS; i++) {
        const int status = b->given[i] ? check_shape(job, i) : NH_OK;
        if (status)
            return status;
    }
    const struct nh_shape *lead = &job->lead;
    const int batch = lead->rank == 2 ? (int)lead->dims[0] : 1, seq = lead->rank ? (int)lead->dims[lead->rank - 1] : 1;
    b->g = nh_graph_new(&b->q->config, batch, seq, 0);
    for (int i = 0; i < NH_OP_TENSORS; i++)
        b->at[i] = b->given[i] ? add_input(b, i) : -1;
    const int status = b->op->build(b);
    if (status)
        return status;
    b->g->exit_value = b->out, b->g->head_rec = b->g->n_recs;
    nh_graph_close(b->g);
    nh_note_eps(b->g);
    job->core = b->op->unrounded ? &nh_core_f64 : nh_core_for(b->g);
    const double y = (double)b->g->rows * b->g->values[b->out].cols * sizeof(double); /* as it is read */
    const double need = (double)job->core->memory(b->g, 1, b->q->gradients) + y;
    char shortage[NH_SHORTAGE_SIZE];
    if (nh_memory_is_short(need, 1, shortage))
        return nh_fail(NH_FAILED, "%s on '%s' %s try fewer rows or columns", b->op->name, b->q->in, shortage);
    const int started = nh_threads_start(1);
    if (started)
        return started;
    return job->core->create(&job->exec, b->g, 1, b->q->gradients);
}

/* ---- numbers in ---- */

static double *numbers(size_t n)
{
    double *p = malloc((n ? n : 1) * sizeof *p);
    if (!p)
        nh_fail(NH_FAILED, "no memory for a tensor of %zu numbers; give fewer rows or columns", n);
    return p;
}

static int set_tokens(const struct job *job, const struct nh_tensor *t, const double *from)
{
    const int vocab = job->b.g->vocab;
    for (size_t k = 0; k < t->count; k++)
        if (!(from[k] >= 0 && from[k] < vocab && from[k] == floor(from[k])))
            return nh_fail(NH_FAILED, "'%s': number %zu of tensor '%s' is %g, but tokens are whole numbers in 0..%d",
                           job->b.q->in, k, t->name, from[k], vocab - 1);
    int *tokens = malloc(t->count * sizeof *tokens);
    if (!tokens)
        return nh_fail(NH_FAILED, "no memory for %zu tokens; give fewer rows", t->count);
    for (size_t k = 0; k < t->count; k++)
        tokens[k] = (int)from[k];
    job->core->set_tokens(job->exec, tokens);
    free(tokens);
    return NH_OK;
}

/* Rounds n numbers to the format of a role; tells of those that were finite and are no more. */
static void round_input(const struct job *job, const struct nh_op_tensor *want, double *x, size_t n)
{
    const struct nh_fmt *f = &job->b.g->fmt[want->role];
    size_t lost = 0;
    for (size_t k = 0; k < n; k++) {
        const double rounded = nh_round(f, x[k]);
        lost += isfinite(x[k]) && !isfinite(rounded);
        x[k] = rounded;
    }
    if (lost)
        nh_text_line(stderr, "harness: %zu of %zu numbers of '%s' are beyond %s and go in as %s", lost, n, want->name, f->name,
                     f->has_inf ? "inf" : "nan");
}

static int put(const struct job *job, int i, double *x, size_t n)
{
    const struct nh_op_tensor *want = &job->b.op->tensors[i];
    if (want->kind == NH_OP_TOKENS)
        return set_tokens(job, job->b.given[i], x);
    if (!job->b.op->unrounded)
        round_input(job, want, x, n);
    if (want->kind == NH_OP_VALUE)
        job->core->write(job->exec, job->b.at[i], x);
    else
        job->core->set_param(job->exec, job->b.at[i], x);
    return NH_OK;
}

static int load(const struct job *job, int i)
{
    const struct nh_tensor *t = job->b.given[i];
    if (!t && job->b.at[i] < 0)
        return NH_OK;
    const size_t n = t ? t->count : (size_t)job->b.g->params[job->b.at[i]].cols;
    double *x = numbers(n);
    if (!x)
        return NH_FAILED;
    if (t)
        nh_tensor_read(t, x);
    for (size_t k = 0; t && t->type == NH_TENSOR_I64 && k < n; k++)
        if (fabs(x[k]) >= 0x1p53) { /* a double does not tell it from its neighbours, so that a cast would be its second rounding */
            free(x);
            return nh_fail(NH_FAILED, "'%s': number %zu of tensor '%s' has more than 53 bits; give numbers that a double holds, as F64",
                           job->b.q->in, k, t->name);
        }
    for (size_t k = 0; !t && k < n; k++)
        x[k] = 1; /* a gain that is not given */
    const int status = put(job, i, x, n);
    free(x);
    return status;
}

/* ---- numbers out ---- */

/* A loss has one number to a row, anything else columns. */
static struct nh_shape output_shape(const struct job *job)
{
    struct nh_shape s = job->lead;
    const struct nh_value *v = &job->b.g->values[job->b.out];
    if (v->role != NH_ROLE_LOSS)
        s.dims[s.rank++] = (size_t)v->cols;
    return s;
}

static int backward(const struct job *job)
{
    const struct nh_shape want = output_shape(job);
    if (!same_shape(&job->dy->shape, &want)) {
        char have[NH_SHAPE_TEXT], text[NH_SHAPE_TEXT];
        return nh_fail(NH_FAILED, "'%s': tensor 'dy' has the shape %s, but it must be that of y, %s", job->b.q->in,
                       nh_shape_text(&job->dy->shape, have), nh_shape_text(&want, text));
    }
    double *dy = numbers(job->dy->count);
    if (!dy)
        return NH_FAILED;
    nh_tensor_read(job->dy, dy);
    job->core->backward(job->exec, 1, dy);
    free(dy);
    return NH_OK;
}

struct results {
    struct nh_tensor_out out[1 + NH_OP_TENSORS];
    char names[1 + NH_OP_TENSORS][16];
    double *numbers[1 + NH_OP_TENSORS];
    size_t n;
};

/* Room for the numbers of one more tensor; NULL where memory is short. */
static double *add_result(struct results *r, const char *prefix, const char *name, struct nh_shape shape)
{
    double *x = numbers(nh_shape_count(&shape));
    if (!x)
        return NULL;
    snprintf(r->names[r->n], sizeof r->names[r->n], "%s%s", prefix, name);
    r->out[r->n] = (struct nh_tensor_out){r->names[r->n], NH_TENSOR_F64, shape, x};
    return r->numbers[r->n++] = x;
}

static int add_gradient(const struct job *job, int i, struct results *r)
{
    const struct nh_op_tensor *want = &job->b.op->tensors[i];
    if (!job->b.given[i] || want->kind == NH_OP_TOKENS)
        return NH_OK;
    double *d = add_result(r, "d_", want->name, job->b.given[i]->shape);
    if (!d)
        return NH_FAILED;
    if (want->kind == NH_OP_VALUE)
        job->core->read_grad(job->exec, job->b.at[i], d);
    else
        job->core->read_param_grad(job->exec, job->b.at[i], d);
    return NH_OK;
}

/* What the float core has computed, as floats in the same place. */
static void narrow(struct results *r)
{
    for (size_t i = 0; i < r->n; i++) {
        r->out[i].type = NH_TENSOR_F32;
        for (size_t k = 0; k < nh_shape_count(&r->out[i].shape); k++) {
            const float x = (float)r->numbers[i][k];
            memcpy((char *)r->numbers[i] + k * sizeof x, &x, sizeof x);
        }
    }
}

static int write_results(const struct job *job)
{
    struct results r = {.n = 0};
    double *y = add_result(&r, "", "y", output_shape(job));
    int status = y ? NH_OK : NH_FAILED;
    if (!status)
        job->core->read(job->exec, job->b.out, y);
    for (int i = 0; i < NH_OP_TENSORS && job->b.q->gradients && !status; i++)
        status = add_gradient(job, i, &r);
    if (nh_core_for(job->b.g) != &nh_core_f64)
        narrow(&r);
    if (!status)
        status = nh_safetensors_write(job->b.q->out, job->b.q->force, r.out, r.n, NULL, 0);
    while (r.n > 0)
        free(r.numbers[--r.n]);
    return status;
}

/* "" where a number is not measured. */
static void print_real(double x, bool measured)
{
    char text[NH_NUMBER_SIZE] = "";
    if (measured)
        nh_number_real(text, x);
    printf(",%s", text);
}

static void print_counts(const struct job *job)
{
    const struct nh_graph *g = job->b.g;
    const struct nh_counts *counts = job->core->counts(job->exec);
    puts("op,site,direction,overflow,nan_made,propagated,zero_made,underflow,subnormal,total,max_abs,min_abs,"
         "headroom_bits");
    for (int i = 0; i < g->n_sites * NH_DIRECTIONS; i++) {
        const struct nh_site *s = &g->sites[i / NH_DIRECTIONS];
        const enum nh_direction d = (enum nh_direction)(i % NH_DIRECTIONS);
        const struct nh_counts *c = &counts[i];
        if (!c->total || (s->layer > 0 && !job->b.given[s->layer - 1]))
            continue;
        printf("%s,%s,%s", job->b.op->name,
               s->layer > 0 ? job->b.op->tensors[s->layer - 1].name : nh_site_names[s->name], nh_direction_names[d]);
        const uint64_t n[] = {c->overflow,  c->nan_made,  c->propagated, c->zero_made,
                              c->underflow, c->subnormal, c->total};
        for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
            char text[NH_NUMBER_SIZE];
            nh_number_count(text, n[k]);
            printf(",%s", text);
        }
        print_real(nh_largest(c), true);
        print_real(c->min_abs, isfinite(c->min_abs)); /* inf = there is no smallest */
        print_real(nh_headroom_bits(nh_site_format(g, i / NH_DIRECTIONS, d), c), true);
        putchar('\n');
    }
}

static int run(struct job *job, const struct nh_safetensors *file)
{
    int status = match(job, file);
    if (!status)
        status = build(job);
    for (int i = 0; i < NH_OP_TENSORS && !status; i++)
        status = load(job, i);
    if (!status)
        job->core->forward(job->exec);
    if (!status && job->b.q->gradients)
        status = backward(job);
    if (!status)
        status = nh_safetensors_check(file);
    if (!status && job->b.q->out)
        status = write_results(job);
    if (!status)
        print_counts(job);
    return status;
}

int nh_cmd_op(int argc, char **argv)
{
    if (argc == 0 || argv[0][0] == '-')
        return nh_fail(NH_USAGE, "op takes the name of an operation first, such as 'harness op norm --in A.safetensors "
                                 "--out B.safetensors' ('harness list ops' shows all)");
    struct nh_op_request q;
    struct job job = {.b.q = &q};
    struct nh_safetensors *file = NULL;
    int status = nh_operation_find(&job.b.op, argv[0]);
    if (!status)
        status = nh_op_request_read(&q, job.b.op, argc - 1, argv + 1);
    if (!status)
        status = nh_safetensors_open(&file, q.in);
    if (!status)
        status = run(&job, file);
    if (job.exec)
        job.core->destroy(job.exec);
    nh_graph_free(job.b.g);
    nh_safetensors_close(file);
    return status;
}
