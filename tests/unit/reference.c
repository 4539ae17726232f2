// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/unit/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *zeros(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p)
        abort();
    return p;
}

static double *numbers(size_t n)
{
    return zeros(n, sizeof(double));
}

/* ---- parameters ---- */

static struct ref_param *add_param(struct reference *r, const char *prefix, const char *name, size_t rows, size_t cols,
                                   size_t n_parts)
{
    struct ref_param *p = &r->params[r->n_params++];
    size_t n = rows * cols;
    *p = (struct ref_param){.rows = rows, .cols = cols, .size = n, .n_parts = n_parts};
    p->w = numbers(n), p->g = numbers(n), p->m = numbers(n), p->v = numbers(n);
    if (snprintf(p->name, sizeof p->name, "%s%s", prefix, name) >= (int)sizeof p->name)
        abort();
    return p;
}

static struct ref_norm add_norm(struct reference *r, const char *prefix, const char *name)
{
    char both[56];
    snprintf(both, sizeof both, "%s%s", prefix, name);
    size_t width = r->shape.width;
    struct ref_norm norm = {.gain = add_param(r, both, ".gain", 1, width, 0)};
    if (r->shape.layer_norm)
        norm.bias = add_param(r, both, ".bias", 1, width, 0);
    return norm;
}

static void create_sublayer(struct reference *r, struct ref_sublayer *s, size_t layer, bool attention)
{
    const struct ref_shape *c = &r->shape;
    size_t d = c->width, n = c->batch * c->seq, parts = attention ? 3 : c->gated ? 2 : 1;
    size_t inner = attention ? d : c->hidden;
    char prefix[40];
    snprintf(prefix, sizeof prefix, "layers.%zu.%s.", layer, attention ? "attn" : "ffn");
    s->attention = attention;
    if (c->layout != REF_POST)
        s->before = add_norm(r, prefix, "norm_pre");
    s->in = add_param(r, prefix, attention ? "qkv" : "in", parts * inner, d, parts);
    s->out = add_param(r, prefix, "out", d, inner, 1);
    if (c->layout != REF_PRE)
        s->after = add_norm(r, prefix, "norm_post");
    s->x = numbers(n * d), s->u = numbers(n * d), s->z = numbers(n * parts * inner);
    s->a = numbers(n * inner), s->f = numbers(n * d), s->s = numbers(n * d);
    s->probs = numbers(attention ? c->batch * c->heads * c->seq * c->seq : 0);
}

struct reference *ref_create(const struct ref_shape *shape)
{
    struct reference *r = zeros(1, sizeof *r);
    size_t d = shape->width, n = shape->batch * shape->seq;
    r->shape = *shape;
    r->n_sublayers = 2 * shape->depth;
    r->params = zeros(5 + 6 * r->n_sublayers, sizeof *r->params);
    r->sublayers = zeros(r->n_sublayers, sizeof *r->sublayers);
    r->embed = add_param(r, "", "embed", shape->vocab, d, 0);
    r->positions = add_param(r, "", "positions", shape->seq, d, 0);
    for (size_t k = 0; k < r->n_sublayers; k++)
        create_sublayer(r, &r->sublayers[k], k / 2 + 1, k % 2 == 0);
    if (shape->layout != REF_POST)
        r->final = add_norm(r, "", "norm_final");
    r->head = add_param(r, "", "head", shape->vocab, d, 0);
    r->x = numbers(n * d), r->y = numbers(n * d), r->probs = numbers(n * shape->vocab);
    return r;
}

void ref_destroy(struct reference *r)
{
    for (size_t i = 0; i < r->n_params; i++)
        free(r->params[i].w), free(r->params[i].g), free(r->params[i].m), free(r->params[i].v);
    for (size_t k = 0; k < r->n_sublayers; k++) {
        struct ref_sublayer *s = &r->sublayers[k];
        free(s->x), free(s->u), free(s->z), free(s->a), free(s->f), free(s->s), free(s->probs);
    }
    free(r->params), free(r->sublayers), free(r->x), free(r->y), free(r->probs), free(r);
}

struct ref_param *ref_param(struct reference *r, const char *name)
{
    for (size_t i = 0; i < r->n_params; i++)
        if (strcmp(r->params[i].name, name) == 0)
            return &r->params[i];
    return NULL;
}

/* ---- y = W x for n tokens ---- */

static void linear(size_t n, const struct ref_param *p, const double *x, double *y)
{
    for (size_t i = 0; i < n; i++)
        for (size_t o = 0; o < p->rows; o++) {
            double sum = 0;
            for (size_t c = 0; c < p->cols; c++)
                sum += p->w[o * p->cols + c] * x[i * p->cols + c];
            y[i * p->rows + o] = sum;
        }
}

/** dx = W' dy, and dW += dy x'. */
static void linear_back(size_t n, struct ref_param *p, const double *x, const double *dy, double *dx)
{
    memset(dx, 0, n * p->cols * sizeof *dx);
    for (size_t i = 0; i < n; i++)
        for (size_t o = 0; o < p->rows; o++)
            for (size_t c = 0; c < p->cols; c++) {
                dx[i * p->cols + c] += p->w[o * p->cols + c] * dy[i * p->rows + o];
                p->g[o * p->cols + c] += dy[i * p->rows + o] * x[i * p->cols + c];
            }
}

/* ---- y = g xhat + b, xhat = (x - mean) / sqrt(mean (x - mean)^2 + eps); the mean is 0 in RMSNorm ---- */

/** Writes xhat of one row and returns 1 / sqrt(...). */
static double normalise(const struct ref_shape *c, const double *x, double *xhat)
{
    double d = (double)c->width, mean = 0, var = 0;
    for (size_t j = 0; c->layer_norm && j < c->width; j++)
        mean += x[j] / d;
    for (size_t j = 0; j < c->width; j++)
        var += (x[j] - mean) * (x[j] - mean) / d;
    double rstd = 1 / sqrt(var + c->eps);
    for (size_t j = 0; j < c->width; j++)
        xhat[j] = (x[j] - mean) * rstd;
    return rstd;
}

static void norm(const struct ref_shape *c, const struct ref_norm *p, const double *x, double *y)
{
    for (size_t i = 0; i < c->batch * c->seq; i++, x += c->width, y += c->width) {
        normalise(c, x, y);
        for (size_t j = 0; j < c->width; j++)
            y[j] = p->gain->w[j] * y[j] + (p->bias ? p->bias->w[j] : 0);
    }
}

/** d xhat_j / d x_k = (delta_jk - 1/d - xhat_j xhat_k / d) / sqrt(...), without 1/d in RMSNorm. dx may be dy. */
static void norm_back(const struct ref_shape *c, const struct ref_norm *p, const double *x, const double *dy,
                      double *dx)
{
    double d = (double)c->width, *xhat = numbers(c->width), *dxhat = numbers(c->width);
    for (size_t i = 0; i < c->batch * c->seq; i++, x += c->width, dx += c->width, dy += c->width) {
        double rstd = normalise(c, x, xhat);
        for (size_t j = 0; j < c->width; j++) {
            p->gain->g[j] += dy[j] * xhat[j];
            if (p->bias)
                p->bias->g[j] += dy[j];
            dxhat[j] = dy[j] * p->gain->w[j];
        }
        for (size_t k = 0; k < c->width; k++) {
            double sum = 0;
            for (size_t j = 0; j < c->width; j++)
                sum += dxhat[j] * rstd * ((j == k) - (c->layer_norm ? 1 / d : 0) - xhat[j] * xhat[k] / d);
            dx[k] = sum;
        }
    }
    free(xhat), free(dxhat);
}

/* ---- softmax in place, and its Jacobian d p_j / d z_k = p_j (delta_jk - p_k) ---- */

static void softmax(double *z, size_t n)
{
    double top = z[0], sum = 0;
    for (size_t j = 1; j < n; j++)
        top = fmax(top, z[j]);
    for (size_t j = 0; j < n; j++)
        sum += z[j] = exp(z[j] - top);
    for (size_t j = 0; j < n; j++)
        z[j] /= sum;
}

static double softmax_back(const double *p, const double *dp, size_t n, size_t k)
{
    double sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += dp[j] * p[j] * ((j == k) - p[k]);
    return sum;
}

/* ---- attention: a_t = sum_u p_tu v_u over u <= t, p_t = softmax(q_t . k_u / sqrt(dh)), head by head ---- */

/** Where head h of q (part 0), k (1) or v (2) of token t begins in the rows of q, k and v together. */
static size_t at(const struct ref_shape *c, size_t t, size_t part, size_t h)
{
    return t * 3 * c->width + part * c->width + h * (c->width / c->heads);
}

static void attention(const struct ref_shape *c, const double *qkv, double *probs, double *a)
{
    size_t dh = c->width / c->heads;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->heads; h++)
            for (size_t t = 0; t < c->seq; t++, probs += c->seq) {
                size_t first = b * c->seq;
                for (size_t u = 0; u <= t; u++) {
                    const double *q = qkv + at(c, first + t, 0, h), *k = qkv + at(c, first + u, 1, h);
                    probs[u] = 0;
                    for (size_t j = 0; j < dh; j++)
                        probs[u] += q[j] * k[j] / sqrt((double)dh);
                }
                softmax(probs, t + 1);
                for (size_t j = 0; j < dh; j++) {
                    double sum = 0;
                    for (size_t u = 0; u <= t; u++)
                        sum += probs[u] * qkv[at(c, first + u, 2, h) + j];
                    a[(first + t) * c->width + h * dh + j] = sum;
                }
            }
}

static void attention_back(const struct ref_shape *c, const double *qkv, const double *probs, const double *da,
                           double *dqkv)
{
    size_t dh = c->width / c->heads;
    double *dp = numbers(c->seq);
    memset(dqkv, 0, c->batch * c->seq * 3 * c->width * sizeof *dqkv);
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->heads; h++)
            for (size_t t = 0; t < c->seq; t++, probs += c->seq) {
                size_t first = b * c->seq, q = at(c, first + t, 0, h);
                const double *dt = da + (first + t) * c->width + h * dh;
                for (size_t u = 0; u <= t; u++) {
                    size_t v = at(c, first + u, 2, h);
                    dp[u] = 0;
                    for (size_t j = 0; j < dh; j++) {
                        dp[u] += dt[j] * qkv[v + j];
                        dqkv[v + j] += dt[j] * probs[u];
                    }
                }
                for (size_t u = 0; u <= t; u++) {
                    size_t k = at(c, first + u, 1, h);
                    double ds = softmax_back(probs, dp, t + 1, u) / sqrt((double)dh);
                    for (size_t j = 0; j < dh; j++) {
                        dqkv[q + j] += ds * qkv[k + j];
                        dqkv[k + j] += ds * qkv[q + j];
                    }
                }
            }
    free(dp);
}

/* ---- activations of the FFN ---- */

static double gelu(double x, double *slope)
{
    double root = sqrt(2 / acos(-1)), th = tanh(root * (x + 0.044715 * x * x * x));
    *slope = (1 + th) / 2 + x / 2 * (1 - th * th) * root * (1 + 3 * 0.044715 * x * x);
    return x / 2 * (1 + th);
}

static double silu(double x, double *slope)
{
    double s = 1 / (1 + exp(-x));
    *slope = s + x * s * (1 - s);
    return x * s;
}

static void activation(const struct ref_shape *c, const double *z, double *a)
{
    double slope;
    for (size_t i = 0; i < c->batch * c->seq; i++, a += c->hidden, z += c->hidden * (c->gated ? 2 : 1))
        for (size_t j = 0; j < c->hidden; j++)
            a[j] = c->gated ? silu(z[j], &slope) * z[c->hidden + j] : gelu(z[j], &slope);
}

static void activation_back(const struct ref_shape *c, const double *z, const double *da, double *dz)
{
    size_t wide = c->hidden * (c->gated ? 2 : 1);
    double slope;
    for (size_t i = 0; i < c->batch * c->seq; i++, da += c->hidden, z += wide, dz += wide)
        for (size_t j = 0; j < c->hidden; j++)
            if (c->gated) {
                dz[c->hidden + j] = da[j] * silu(z[j], &slope);
                dz[j] = da[j] * z[c->hidden + j] * slope;
            } else {
                gelu(z[j], &slope);
                dz[j] = da[j] * slope;
            }
}

/* ---- the whole model ---- */

static void sublayer(const struct ref_shape *c, struct ref_sublayer *s, const double *x, double *y)
{
    size_t n = c->batch * c->seq, size = n * c->width;
    memcpy(s->x, x, size * sizeof *x);
    if (s->before.gain)
        norm(c, &s->before, s->x, s->u);
    else
        memcpy(s->u, x, size * sizeof *x);
    linear(n, s->in, s->u, s->z);
    if (s->attention)
        attention(c, s->z, s->probs, s->a);
    else
        activation(c, s->z, s->a);
    linear(n, s->out, s->a, s->f);
    for (size_t i = 0; i < size; i++)
        s->s[i] = s->x[i] + s->f[i];
    if (c->layout == REF_PRE) {
        memcpy(y, s->s, size * sizeof *y);
    } else if (c->layout == REF_POST) {
        norm(c, &s->after, s->s, y);
    } else {
        norm(c, &s->after, s->f, y);
        for (size_t i = 0; i < size; i++)
            y[i] += s->x[i];
    }
}

/** dx is the gradient of the stream: behind the sublayer on entry, before it on return. */
static void sublayer_back(const struct ref_shape *c, struct ref_sublayer *s, double *dx)
{
    size_t n = c->batch * c->seq, size = n * c->width;
    double *df = numbers(size), *da = numbers(n * s->out->cols), *dz = numbers(n * s->in->rows), *du = numbers(size);
    if (c->layout == REF_POST)
        norm_back(c, &s->after, s->s, dx, dx);
    if (c->layout == REF_SANDWICH)
        norm_back(c, &s->after, s->f, dx, df);
    else
        memcpy(df, dx, size * sizeof *df);
    linear_back(n, s->out, s->a, df, da);
    if (s->attention)
        attention_back(c, s->z, s->probs, da, dz);
    else
        activation_back(c, s->z, da, dz);
    linear_back(n, s->in, s->u, dz, du);
    if (s->before.gain)
        norm_back(c, &s->before, s->x, du, du);
    for (size_t i = 0; i < size; i++)
        dx[i] += du[i];
    free(df), free(da), free(dz), free(du);
}

double ref_forward(struct reference *r, const int *tokens)
{
    const struct ref_shape *c = &r->shape;
    size_t n = c->batch * c->seq, d = c->width;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < d; j++)
            r->x[i * d + j] = r->embed->w[(size_t)tokens[i] * d + j] + r->positions->w[i % c->seq * d + j];
    for (size_t k = 0; k < r->n_sublayers; k++)
        sublayer(c, &r->sublayers[k], r->x, r->x);
    if (r->final.gain)
        norm(c, &r->final, r->x, r->y);
    else
        memcpy(r->y, r->x, n * d * sizeof *r->y);
    linear(n, r->head, r->y, r->probs);
    double loss = 0;
    for (size_t i = 0; i < n; i++) {
        softmax(r->probs + i * c->vocab, c->vocab);
        if (i % c->seq + 1 < c->seq)
            loss -= log(r->probs[i * c->vocab + (size_t)tokens[i + 1]]);
    }
    return loss / (double)(c->batch * (c->seq - 1));
}

void ref_backward(struct reference *r, const int *tokens, double factor)
{
    const struct ref_shape *c = &r->shape;
    size_t n = c->batch * c->seq, d = c->width;
    double *dz = numbers(n * c->vocab), *dx = numbers(n * d);
    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; i % c->seq + 1 < c->seq && v < c->vocab; v++)
            dz[i * c->vocab + v] = factor / (double)(c->batch * (c->seq - 1)) *
                                   (r->probs[i * c->vocab + v] - ((size_t)tokens[i + 1] == v));
    linear_back(n, r->head, r->y, dz, dx);
    if (r->final.gain)
        norm_back(c, &r->final, r->x, dx, dx);
    for (size_t k = r->n_sublayers; k-- > 0;)
        sublayer_back(c, &r->sublayers[k], dx);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < d; j++) {
            r->embed->g[(size_t)tokens[i] * d + j] += dx[i * d + j];
            r->positions->g[i % c->seq * d + j] += dx[i * d + j];
        }
    free(dz), free(dx);
}
