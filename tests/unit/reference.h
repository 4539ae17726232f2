// SPDX-License-Identifier: GPL-3.0-or-later
/** A transformer and its training, written from the formulas alone: plain loops in double, every Jacobian spelt out. It
 * shares no code with the program and is what the program is held against; slow, for tiny models. */
#ifndef NH_REFERENCE_H
#define NH_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

enum ref_layout {
    REF_PRE,      /**< x + f(N(x)), final norm */
    REF_POST,     /**< N(x + f(x)), no final norm */
    REF_SANDWICH, /**< x + N2(f(N1(x))), final norm */
};

/** Causal attention with learned positions, scale 1/sqrt(width/heads); FFN W2 gelu(W1 x), or gated: W2 (silu(Wg x) * Wu
 * x). RMSNorm with gain, or LayerNorm with gain and bias; embedding and head are two tables. No other bias. */
struct ref_shape {
    enum ref_layout layout;
    bool layer_norm, gated;
    size_t depth, width, heads, hidden, vocab, batch, seq;
    double eps;
};

/** A tensor under the name that the program gives it; y = W x for a matrix. All arrays are rows x cols, by rows. */
struct ref_param {
    char name[64];
    size_t rows, cols, size; /**< size = rows cols */
    size_t n_parts; /**< hidden matrices that it holds, one below the other (q, k, v; gate, up); 0 = it is none */
    double *w, *g;  /**< value and gradient */
    double *m, *v;  /**< of the optimizer: momentum or first moment, second moment */
};

struct ref_norm {
    struct ref_param *gain, *bias; /**< gain NULL: no norm in this place */
};

/** Parameters of a sublayer and what its last forward pass left behind; each value one row a token. */
struct ref_sublayer {
    bool attention;
    struct ref_norm before, after; /**< on the branch's input; on its output (sandwich) or on the sum (post) */
    struct ref_param *in, *out;    /**< first and last matrix of the branch */
    double *x, *u, *z, *a, *f, *s; /**< stream, what W_in reads, its output, what W_out reads, its output, x + f */
    double *probs;                 /**< of attention: sequence, head, query, key */
};

struct reference {
    struct ref_shape shape;
    size_t n_params, n_sublayers, n_updates;
    struct ref_param *params;
    struct ref_param *embed, *positions, *head;
    struct ref_norm final;
    struct ref_sublayer *sublayers;
    double *x, *y, *probs; /**< stream behind the last sublayer, what the head reads, probabilities of the next token */
    double grad_norm;      /**< of the last update, before it was clipped */
};

/** All weights, gradients and moments 0. What fails aborts. */
struct reference *ref_create(const struct ref_shape *shape);
void ref_destroy(struct reference *r);

/** By name; NULL where there is none. */
struct ref_param *ref_param(struct reference *r, const char *name);

/** Mean negative log-likelihood of the next token, batch x seq tokens; the last of a sequence has none. */
double ref_forward(struct reference *r, const int *tokens);

/** Adds factor times the gradient of that loss to every g; behind ref_forward of the same tokens. */
void ref_backward(struct reference *r, const int *tokens, double factor);

enum ref_optimizer { REF_SGD, REF_ADAMW, REF_MUON };
enum ref_schedule { REF_CONSTANT, REF_LINEAR, REF_COSINE, REF_WSD };

struct ref_options {
    enum ref_optimizer optimizer;
    enum ref_schedule schedule;
    double lr, weight_decay;
    double momentum;               /**< SGD and Muon */
    double beta1, beta2, adam_eps; /**< AdamW, also for what Muon leaves to it */
    double clip;                   /**< largest norm of the whole gradient; 0 = any */
    int warmup, steps;
};

/** Learning rate of a step, 0 the first. */
double ref_rate(const struct ref_options *o, int step);

/** Clips the gradients in g and takes one step of the optimizer. */
void ref_update(struct reference *r, const struct ref_options *o, int step);

/** One step on the mean gradient of n micro-batches, tokens n x batch x seq; returns their mean loss, before the step.
 */
double ref_step(struct reference *r, const int *tokens, int n_micro, int step, const struct ref_options *o);

#endif
