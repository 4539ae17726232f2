// SPDX-License-Identifier: GPL-3.0-or-later
/** A block layout: where the norms stand, how a branch joins the residual stream. One file, one descriptor.
 *  The hooks run once, while the model is built: they record operations on the tape, and the backward pass, the tangent
 *  pass, the rounding and the counting follow from the record. The core knows no layout by name. */
#ifndef NH_LAYOUT_H
#define NH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

/** A sublayer, or the block around both. */
enum nh_kind { NH_ATTN, NH_FFN, NH_BLOCK };

/** Where a hook is called: layer 1..depth, the same for both sublayers of a block. */
struct nh_pos {
    int layer, depth;
    enum nh_kind kind;
};

/** The matrices of a branch, for weight_gain. */
enum nh_weight { NH_W_Q, NH_W_K, NH_W_V, NH_W_O, NH_W_IN, NH_W_GATE, NH_W_OUT, NH_W_ATTN_GATE };

/** The places of a norm. N1: on the branch's input. SECOND: on the second stream, before it joins that input. N2: on the branch's
 *  output, before the add. OUTER: on the sum. FINAL: before the head. */
enum nh_norm_slot { NH_N1, NH_SECOND, NH_N2, NH_OUTER, NH_FINAL };

/** A knob of a layout's own, set by --set NAME=VALUE: a number, or one of some words, whose index is the value. */
struct nh_knob {
    const char *name;
    double start, min, max;
    const char *help;
    const char *const *words; /**< closed by NULL; NULL = a number */
};

/** Norms and scales inside a branch, each with parameters of its own. */
struct nh_inner {
    bool norm_qkv;    /**< queries, keys and values, per head */
    bool norm_out;    /**< what the branch's last matrix reads */
    bool scale_heads; /**< each head's output times a trained factor, start 1 */
    double cosine;    /**< > 0: cosine attention, scores = cosine * cos(q, k); replaces 1/sqrt(head width) */
};

/** One sublayer's part in the law of the stream at initialisation, q = mean of x^2:
 *  q' = skip^2 q + c with c = branch^2 v (no N2) or post_gain^2 m/(m + eps) (with N2); q' = 1 behind an outer norm. */
struct nh_law_term {
    double skip;      /**< factor on the stream */
    double branch;    /**< factor on the branch's output where no N2 follows */
    double in_scale;  /**< factor on the normed input of the branch */
    double post_gain; /**< start gain of N2, where there is one */
    bool post_norm;   /**< there is an N2 */
    bool pre_norm;    /**< the branch reads a normed stream */
    bool outer_norm;  /**< a norm follows the add */
    bool norm_qkv;    /**< queries, keys and values are normed per head */
    bool norm_out;    /**< what the last matrix reads is normed: v is that matrix's gain squared */
    bool norm_skip;   /**< the stream is normed before branch and skip */
    bool same_input;  /**< reads what the sublayer before it has read */
    bool with_second; /**< reads, or norms and reads, the stream plus the norm of the second one */
    double second;    /**< factor on the branch where it is added to the second stream */
};

struct nh_builder;  /**< the model under construction (harness/core/builder.h) */
typedef int nh_val; /**< a value on the tape: B*T rows of some width */

struct nh_layout {
    const char *name;           /**< kebab-case; goes to the files and never changes */
    const char *const *aliases; /**< NULL-terminated, or NULL */
    const char *equation;       /**< one sublayer, one line */
    const char *gains;          /**< start values of the gains, one line */
    const char *law;            /**< law of q at initialisation, one line */
    const char *source;         /**< paper and equation, public code it was compared with, how sure we are */
    const struct nh_knob *knobs; /**< closed by a NULL name, or NULL */
    /** Factor on the start weights; NULL = 1 everywhere. */
    double (*weight_gain)(enum nh_weight weight, const struct nh_pos *pos, const double *knobs);
    /** Start of nh_skip_gain from the sum of the variances of what the sublayers before add to the first stream. They are measured
     *  once, when the model is made: in a forward pass of its fp64 twin on the same batch, every nh_skip_gain at 1. */
    double (*skip_start)(double variances);
    int n_streams; /**< residual streams, all starting as the embedding: 1 or 2 */
    /** The equation of one sublayer: reads and replaces the streams. Or ... */
    void (*sublayer)(struct nh_builder *b, const struct nh_pos *pos, const double *knobs, nh_val *x);
    /** ... of a whole block (pos->kind is NH_BLOCK), never both; the results then have one row a block. */
    void (*block)(struct nh_builder *b, const struct nh_pos *pos, const double *knobs, nh_val *x);
    /** From the streams to what the head reads. */
    nh_val (*exit)(struct nh_builder *b, const nh_val *x);
    /** NULL = no law. */
    struct nh_law_term (*law_term)(const struct nh_pos *pos, const double *knobs);
};

/** All layouts, closed by NULL. */
extern const struct nh_layout *const nh_layouts[];

/* What a hook may say. Every result is a value of the stream's shape, rounded once at its own site. */

/** N(x) with a start gain; new parameters each call. Statistics, quotient and gain are one operation. */
nh_val nh_norm(struct nh_builder *b, enum nh_norm_slot slot, nh_val x, double gain);
/** The branch of this position, attention or FFN. */
nh_val nh_branch(struct nh_builder *b, nh_val x);
nh_val nh_branch_with(struct nh_builder *b, nh_val x, const struct nh_inner *inner);
/** x + f, the residual add; f is what the sublayer adds to the stream. */
nh_val nh_add(struct nh_builder *b, nh_val x, nh_val f);
/** skip x + f, likewise. */
nh_val nh_add_scaled(struct nh_builder *b, double skip, nh_val x, nh_val f);
/** a + f before it is added to the stream. */
nh_val nh_join(struct nh_builder *b, nh_val a, nh_val f);
/** x + y, what a branch reads. */
nh_val nh_read_both(struct nh_builder *b, nh_val x, nh_val y);
/** c x, c a constant, behind the norm on a branch's input. */
nh_val nh_scale(struct nh_builder *b, nh_val x, double c);
/** c f, c a constant, on a branch's output. */
nh_val nh_scale_branch(struct nh_builder *b, nh_val f, double c);
/** g f with a trained gain on a branch's output: one number, or one a channel. */
nh_val nh_gain(struct nh_builder *b, nh_val f, bool per_channel, double start);
/** w x with a trained vector w on the stream, before a residual add; starts as skip_start says. */
nh_val nh_skip_gain(struct nh_builder *b, nh_val x);
/** x - silu(a) stopgrad(x) with a trained number a, behind a residual add. */
nh_val nh_shrink(struct nh_builder *b, nh_val x, double start);
/** Inside a block hook: what follows belongs to this sublayer (or again to the block). */
void nh_at(struct nh_builder *b, enum nh_kind kind);
nh_val nh_exit_norm(struct nh_builder *b, const nh_val *x);
nh_val nh_exit_bare(struct nh_builder *b, const nh_val *x);

#endif
