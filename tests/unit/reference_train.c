// SPDX-License-Identifier: GPL-3.0-or-later
/** Training of the reference: schedule, clipping, optimizers. */
#include "tests/unit/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double ref_rate(const struct ref_options *o, int step)
{
    if (step < o->warmup)
        return o->lr * (step + 1) / o->warmup;
    double p = (double)(step - o->warmup) / (o->steps - o->warmup);
    switch (o->schedule) {
    case REF_LINEAR:
        return o->lr * (1 - p);
    case REF_COSINE:
        return o->lr * (1 + cos(acos(-1) * p)) / 2;
    case REF_WSD:
        return p < 0.8 ? o->lr : o->lr * (1 - p) / 0.2;
    case REF_CONSTANT:
    default:
        return o->lr;
    }
}

/** Pascanu et al. 2013, arXiv:1211.5063: g *= clip / |g| where |g| > clip, over all parameters together. */
static void clip(struct reference *r, double limit)
{
    double sum = 0;
    for (size_t p = 0; p < r->n_params; p++)
        for (size_t i = 0; i < r->params[p].size; i++)
            sum += r->params[p].g[i] * r->params[p].g[i];
    r->grad_norm = sqrt(sum);
    if (limit == 0 || r->grad_norm <= limit)
        return;
    for (size_t p = 0; p < r->n_params; p++)
        for (size_t i = 0; i < r->params[p].size; i++)
            r->params[p].g[i] *= limit / r->grad_norm;
}

/** m = mu m + g; w -= rate m. */
static void sgd(struct ref_param *p, const struct ref_options *o, double rate)
{
    for (size_t i = 0; i < p->size; i++) {
        p->m[i] = o->momentum * p->m[i] + p->g[i];
        p->w[i] -= rate * p->m[i];
    }
}

/** Loshchilov and Hutter, arXiv:1711.05101, algorithm 2, behind the decay; t counts from 1. */
static void adamw(struct ref_param *p, const struct ref_options *o, double rate, size_t t)
{
    double c1 = 1 - pow(o->beta1, (double)t), c2 = 1 - pow(o->beta2, (double)t);
    for (size_t i = 0; i < p->size; i++) {
        p->m[i] = o->beta1 * p->m[i] + (1 - o->beta1) * p->g[i];
        p->v[i] = o->beta2 * p->v[i] + (1 - o->beta2) * p->g[i] * p->g[i];
        p->w[i] -= rate * (p->m[i] / c1) / (sqrt(p->v[i] / c2) + o->adam_eps);
    }
}

/** X = a X + (b A + c A^2) X with A = X X', five times; X rows x cols. */
static void newton_schulz(double *x, size_t rows, size_t cols)
{
    const double a = 3.4445, b = -4.7750, c = 2.0315;
    double *gram = calloc(rows * rows, sizeof *gram), *next = calloc(rows * cols, sizeof *next);
    if (!gram || !next)
        abort();
    for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) {
                gram[i * rows + j] = 0;
                for (size_t k = 0; k < cols; k++)
                    gram[i * rows + j] += x[i * cols + k] * x[j * cols + k];
            }
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < cols; k++)
                next[i * cols + k] = a * x[i * cols + k];
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) {
                double factor = b * gram[i * rows + j];
                for (size_t k = 0; k < rows; k++)
                    factor += c * gram[i * rows + k] * gram[k * rows + j];
                for (size_t k = 0; k < cols; k++)
                    next[i * cols + k] += factor * x[j * cols + k];
            }
        memcpy(x, next, rows * cols * sizeof *x);
    }
    free(gram), free(next);
}

/** Jordan et al. 2024 (Muon) with Nesterov momentum, scaled to the RMS of AdamW's steps as in arXiv:2502.16982:
 * m = mu m + g, w -= rate 0.2 sqrt(max(rows, cols)) NewtonSchulz((g + mu m) / |g + mu m|), for a part of rows x cols
 * values that begins at `at`. A tall matrix is transposed first. */
static void muon(struct ref_param *p, size_t at, size_t rows, size_t cols, const struct ref_options *o, double rate)
{
    double *x = calloc(rows * cols, sizeof *x), *m = p->m + at, *w = p->w + at, sum = 0;
    const double *g = p->g + at;
    if (!x)
        abort();
    for (size_t i = 0; i < rows * cols; i++) {
        m[i] = o->momentum * m[i] + g[i];
        sum += pow(g[i] + o->momentum * m[i], 2);
    }
    bool tall = rows > cols;
    size_t low = tall ? cols : rows, high = tall ? rows : cols;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            size_t to = tall ? j * rows + i : i * cols + j;
            x[to] = (g[i * cols + j] + o->momentum * m[i * cols + j]) / (sqrt(sum) + 1e-7);
        }
    newton_schulz(x, low, high);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            w[i * cols + j] -= rate * 0.2 * sqrt((double)high) * x[tall ? j * rows + i : i * cols + j];
    free(x);
}

void ref_update(struct reference *r, const struct ref_options *o, int step)
{
    double rate = ref_rate(o, step);
    clip(r, o->clip);
    r->n_updates++;
    for (struct ref_param *p = r->params; p < r->params + r->n_params; p++) {
        for (size_t i = 0; p->rows > 1 && p->cols > 1 && i < p->size; i++)
            p->w[i] *= 1 - rate * o->weight_decay;
        if (o->optimizer == REF_SGD)
            sgd(p, o, rate);
        else if (o->optimizer == REF_ADAMW || p->n_parts == 0)
            adamw(p, o, rate, r->n_updates);
        else
            for (size_t i = 0, rows = p->rows / p->n_parts; i < p->n_parts; i++)
                muon(p, i * rows * p->cols, rows, p->cols, o, rate);
    }
}

double ref_step(struct reference *r, const int *tokens, int n_micro, int step, const struct ref_options *o)
{
    double loss = 0;
    for (size_t p = 0; p < r->n_params; p++)
        memset(r->params[p].g, 0, r->params[p].size * sizeof *r->params[p].g);
    for (int i = 0; i < n_micro; i++, tokens += r->shape.batch * r->shape.seq) {
        loss += ref_forward(r, tokens) / n_micro;
        ref_backward(r, tokens, 1.0 / n_micro);
    }
    ref_update(r, o, step);
    return loss;
}
