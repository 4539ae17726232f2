// SPDX-License-Identifier: GPL-3.0-or-later
/** --dump: the tensors of a look at a batch, and the gradients of its mean loss, as a safetensors file. L layers from 0:
 *  hidden.0..L, mid.i between attention and FFN, attn_branch.i and mlp_branch.i before any norm on them, final_norm, logits (batch x
 *  seq x width or vocab), nll (batch x seq-1), loss; d_X of each X but the last two; grad.P of each parameter P, under its
 *  published name and in its published shape where the run has an architecture. F64 where the run's dtype is fp64, else F32. */
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/io/safetensors.h"
#include "results/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dump {
    const struct nh_run *run;
    enum nh_tensor_type type;
    struct nh_tensor_out *tensors;
    size_t n;
    bool failed; /**< out of memory: nothing more is added */
};

static size_t number_size(const struct dump *d)
{
    return d->type == NH_TENSOR_F64 ? sizeof(double) : sizeof(float);
}

/** Adds a tensor that holds numbers / divisor; numbers must be there where shape has any. */
static void add(struct dump *d, const char *name, struct nh_shape shape, const double *numbers, double divisor)
{
    const size_t n = nh_shape_count(&shape);
    struct nh_tensor_out *more = d->failed ? NULL : realloc(d->tensors, (d->n + 1) * sizeof *more);
    char *own = more ? strdup(name) : NULL;
    unsigned char *to = own ? malloc(n * number_size(d) + 1) : NULL;
    d->tensors = more ? more : d->tensors;
    if (!to) {
        free(own);
        d->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const double x = numbers[i] / divisor;
        const float narrow = (float)x;
        if (d->type == NH_TENSOR_F64)
            memcpy(to + i * sizeof x, &x, sizeof x);
        else
            memcpy(to + i * sizeof narrow, &narrow, sizeof narrow);
    }
    d->tensors[d->n++] = (struct nh_tensor_out){own, d->type, shape, to};
}

/** A value of the tape, and its gradient. index < 0: the name alone. */
static void add_value(struct dump *d, const char *what, int index, nh_val v)
{
    const struct nh_model *m = &d->run->model;
    const struct nh_graph *g = m->graph;
    const size_t cols = (size_t)g->values[v].cols;
    const struct nh_shape shape = {3, {(size_t)g->batch, (size_t)g->seq, cols}};
    double *numbers = malloc((size_t)g->rows * cols * sizeof *numbers);
    char name[40];
    if (!numbers) {
        d->failed = true;
        return;
    }
    for (int gradient = 0; gradient < 2; gradient++) {
        int n = snprintf(name, sizeof name, "%s%s", gradient ? "d_" : "", what);
        if (index >= 0)
            snprintf(name + n, sizeof name - (size_t)n, ".%d", index);
        (gradient ? m->core->read_grad : m->core->read)(m->exec, v, numbers);
        add(d, name, shape, numbers, gradient ? d->run->loss_scale : 1);
    }
    free(numbers);
}

/** Losses of all tokens that have a next one, and their mean. */
static void add_loss(struct dump *d)
{
    const struct nh_model *m = &d->run->model;
    const size_t batch = (size_t)m->graph->batch, seq = (size_t)m->graph->seq;
    double *nll = malloc((size_t)m->graph->rows * sizeof *nll);
    if (!nll) {
        d->failed = true;
        return;
    }
    m->core->read(m->exec, m->graph->nll, nll);
    for (size_t b = 1; b < batch; b++)
        memmove(nll + b * (seq - 1), nll + b * seq, (seq - 1) * sizeof *nll);
    add(d, "nll", (struct nh_shape){2, {batch, seq - 1}}, nll, 1);
    add(d, "loss", (struct nh_shape){1, {1}}, &d->run->loss, 1);
    free(nll);
}

/** One published tensor of a parameter's gradient; rows of it that the parameter has not (positions beyond the sequence) are 0. */
static void add_piece(struct dump *d, const struct nh_piece *p, const double *gradient)
{
    const struct nh_hf *hf = d->run->options.checkpoint;
    const struct nh_shape *stored = hf ? nh_hf_shape(hf, p->name) : NULL;
    const struct nh_shape shape = stored ? *stored : nh_piece_shape(p);
    double *numbers = calloc(nh_shape_count(&shape) + 1, sizeof *numbers);
    char name[120];
    snprintf(name, sizeof name, "grad.%s", p->name);
    for (size_t i = 0; numbers && i < p->n; i++)
        numbers[nh_piece_place(p, i)] = gradient[p->first + i];
    if (numbers)
        add(d, name, shape, numbers, d->run->loss_scale);
    d->failed = d->failed || !numbers;
    free(numbers);
}

static void add_param(struct dump *d, int param)
{
    const struct nh_model *m = &d->run->model;
    const struct nh_param *p = &m->graph->params[param];
    size_t n;
    struct nh_piece *pieces = nh_options_pieces(&d->run->options, p, &n);
    double *gradient = malloc((size_t)p->rows * (size_t)p->cols * sizeof *gradient);
    if (gradient)
        m->core->read_param_grad(m->exec, param, gradient);
    for (size_t i = 0; gradient && i < n; i++)
        add_piece(d, &pieces[i], gradient);
    d->failed = d->failed || !gradient;
    free(gradient), free(pieces);
}

int nh_dump(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    const struct nh_graph *g = run->model.graph;
    struct dump d = {.run = run, .type = strcmp(c->dtype.name, "fp64") == 0 ? NH_TENSOR_F64 : NH_TENSOR_F32};
    for (const struct nh_step *s = g->steps; s < g->steps + g->n_steps - 1; s++) {
        const bool last = s[1].layer != s->layer;
        add_value(&d, last ? "hidden" : "mid", last ? s->layer : s->layer - 1, s->after[0]);
        if (s->raw >= 0)
            add_value(&d, s->sublayer == NH_SUB_ATTN ? "attn_branch" : "mlp_branch", s->layer - 1, s->raw);
    }
    add_value(&d, "final_norm", -1, g->exit_value);
    add_value(&d, "logits", -1, g->logits);
    add_loss(&d);
    for (int p = 0; p < g->n_params; p++)
        add_param(&d, p);
    if (g->n_streams > 1)
        nh_text_line(stderr, "harness: the dump has the first of the two streams of %s", c->layout->name);
    if (c->layout->block)
        nh_text_line(stderr, "harness: the dump has no mid, attn_branch and mlp_branch, as %s is one block a layer", c->layout->name);
    const int status = d.failed ? nh_fail(NH_FAILED, "out of memory for the tensors of '%s'", c->dump)
                                : nh_safetensors_write(c->dump, c->force, d.tensors, d.n, NULL, 0);
    for (size_t i = 0; i < d.n; i++)
        free((char *)(uintptr_t)d.tensors[i].name), free((void *)(uintptr_t)d.tensors[i].numbers);
    free(d.tensors);
    return status;
}
