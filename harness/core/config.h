// SPDX-License-Identifier: GPL-3.0-or-later
/** The whole configuration of a run: what the option table fills, what the model is built from, what config.csv records. */
#ifndef NH_CONFIG_H
#define NH_CONFIG_H

#include "harness/core/fmt.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { NH_MAX_KNOBS = 8 };

enum nh_ffn { NH_FFN_GELU, NH_FFN_RELU, NH_FFN_SWIGLU, NH_FFN_GEGLU };
enum nh_norm_type { NH_NORM_RMS, NH_NORM_LAYER };
enum nh_pos_type { NH_POS_ROPE, NH_POS_NOPE, NH_POS_LEARNED, NH_POS_INTERLEAVED }; /**< the last: rotation in local layers alone */
enum nh_qk_norm { NH_QK_NORM_OFF, NH_QK_NORM_HEAD, NH_QK_NORM_WIDTH };
enum nh_bias { NH_BIAS_OFF, NH_BIAS_ON, NH_BIAS_QKV, NH_BIAS_ATTN, NH_BIAS_FFN };
enum nh_rope_form { NH_ROPE_PLAIN, NH_ROPE_LINEAR, NH_ROPE_LLAMA3 };
enum nh_init { NH_INIT_UNIT, NH_INIT_GPT2, NH_INIT_NORMAL, NH_INIT_XAVIER, NH_INIT_TRINITY, NH_INIT_PANGU };
enum nh_branch_init { NH_BRANCH_INIT_OWN, NH_BRANCH_INIT_1, NH_BRANCH_INIT_INVSQRT2L, NH_BRANCH_INIT_INVSQRT2K };
enum nh_branches { NH_BRANCHES_ATTN = 1, NH_BRANCHES_FFN = 2, NH_BRANCHES_BOTH = 3 };
enum nh_width_of { NH_WIDE_FP32, NH_WIDE_DTYPE }; /**< --accum, --norm-stats */
enum nh_optimizer { NH_OPTIMIZER_ADAMW, NH_OPTIMIZER_MUON, NH_OPTIMIZER_SGD };
enum nh_schedule { NH_SCHEDULE_CONSTANT, NH_SCHEDULE_LINEAR, NH_SCHEDULE_COSINE, NH_SCHEDULE_WSD };

/** What a stored number is for. */
enum nh_role {
    NH_ROLE_WEIGHT,
    NH_ROLE_MATMUL_IN,
    NH_ROLE_MATMUL_OUT,
    NH_ROLE_ACCUM,
    NH_ROLE_ACTIVATION,
    NH_ROLE_NORM_IN,
    NH_ROLE_NORM_STAT,
    NH_ROLE_NORM_OUT,
    NH_ROLE_SOFTMAX,
    NH_ROLE_RESIDUAL,
    NH_ROLE_EMBEDDING,
    NH_ROLE_LOGITS,
    NH_ROLE_LOSS,
    NH_ROLE_GRADIENT,
    NH_ROLE_WEIGHT_GRADIENT,
    NH_ROLE_MASTER,
    NH_ROLE_MOMENT,
    NH_ROLE_COUNT
};

/** How a model is trained; steps = 0: not at all. */
struct nh_training {
    int steps;
    enum nh_optimizer optimizer;
    double lr, beta1, beta2, adam_eps;
    double momentum; /**< of sgd and muon */
    enum nh_schedule schedule;
    int warmup;       /**< steps over which the rate rises */
    double clip;      /**< largest norm of the gradient; 0 = off */
    double weight_decay;
    double loss_scale; /**< a fixed one; 0 = the policy's scaler */
    int scale_window;  /**< clean steps before the scale grows; 0 = the policy's */
    int grad_accum;    /**< batches a step */
    int probe_every, checkpoint_every, val_every; /**< steps; 0 = at the end alone (probes: at the start too), never, at the end */
    bool resume;
};

/** How the frequencies of a rotation are stretched for sequences longer than those trained on. */
struct nh_rope_scaling {
    enum nh_rope_form form;
    double factor;    /**< wavelengths times this; of llama3 the long ones alone */
    double low, high; /**< of llama3: wavelengths below original/high stay, above original/low are stretched, mixed between */
    double original;  /**< of llama3: length of the sequences trained on */
};

/** A mixture of experts in place of the FFN. */
struct nh_moe {
    int experts, active; /**< experts = 0: none */
    int shared;          /**< experts that every token goes through, as one FFN of their widths together */
    double mult;         /**< hidden width of an expert = round(mult * width) */
    int dense_layers;    /**< the first layers, which have an FFN as usual */
    double route_scale;  /**< factor on the weights of the chosen */
};

struct nh_layout;
struct nh_param;

/** Where the weights come from instead of being drawn. */
struct nh_weight_source {
    void *arg;
    /** Writes numbers [first, first + n) of a parameter, row by row, as float (bits 32) or double (64); called from several
     *  threads. What could fail has been checked before. */
    void (*read)(void *arg, const struct nh_param *param, size_t first, size_t n, int bits, void *out);
    /** True where a float does not hold all numbers of a parameter; NULL: it always does. */
    bool (*wide)(void *arg, const struct nh_param *param);
    /** These numbers are not read soon: memory need not hold them. NULL where that is of no use. */
    void (*done)(void *arg, const struct nh_param *param, size_t first, size_t n);
};

struct nh_config {
    const struct nh_layout *layout;
    double knobs[NH_MAX_KNOBS]; /**< of the layout, in its order; defaults filled in */
    int depth, width, heads, kv_heads, seq, batch, vocab; /**< kv_heads, seq, vocab: 0 = heads, from the data */
    int head_dim; /**< 0 = width / heads */
    enum nh_ffn ffn;
    double ffn_mult; /**< hidden width of the FFN = round(ffn_mult * width) */
    enum nh_norm_type norm;
    struct nh_moe moe;
    double eps;
    bool gain_offset;      /**< norms hold w and multiply by 1 + w */
    bool cast_before_gain; /**< --norm-cast before-gain */
    enum nh_pos_type pos;
    double theta, theta_local; /**< theta_local: in local layers, 0 = theta */
    struct nh_rope_scaling rope_scaling; /**< in local layers none */
    const char *pattern; /**< one letter a layer, repeated: l sees a window, g all keys; empty or NULL = all layers alike */
    int window; /**< keys seen, own position included; 0 = all. With a pattern: of local layers */
    enum nh_init init;
    enum nh_branch_init branch_init;
    double embed_rms; /**< 0 = the init's own */
    enum nh_branches branches;
    bool qk_zero; /**< --qk-init 0: W_Q = 0 */
    enum nh_qk_norm qk_norm;
    bool attn_gate;      /**< heads times sigmoid(W x), x the input of the branch */
    double query_scalar; /**< scores are divided by its root; 0 = the width of a head */
    double score_softcap; /**< scores become C tanh(scores / C); 0 = off */
    bool scale_after; /**< --score-scale after */
    bool softmax_stored; /**< --softmax-grad stored */
    double pb_relax;  /**< alpha of softmax(alpha (s/alpha - max)); 0 = off, < 0 = the layer's index */
    double ln_relax;  /**< N(x / c), c = max|x| / ln_relax over the whole tensor; 0 = off */
    double softcap;   /**< logits become softcap tanh(logits / softcap); 0 = off */
    double z_loss;    /**< z_loss log^2 Z is added to each token's loss */
    bool tie;
    enum nh_bias bias;
    double embed_scale;  /**< factor on the embedding output */
    double embed_shrink; /**< factor on the gradient of the embedding tables */
    double post_gain;    /**< factor on the start gain of the norm on a branch's output; 1 = as the layout says */
    bool post_gain_frozen;

    struct nh_fmt dtype;
    const struct nh_policy *policy;
    enum nh_width_of accum, norm_stats;
    struct nh_fmt role_format[NH_ROLE_COUNT]; /**< --roles: instead of the policy's; no name = the policy's */
    struct nh_training train;

    const struct nh_weight_source *weights; /**< NULL = drawn from the seed */
    bool streamed; /**< one forward pass over them: weights and values are held only while they are needed */
    uint64_t seed, data_seed;
    int threads;
    const char *arch; /**< the architecture that was asked for, or NULL */
    const char *model; /**< folder of the checkpoint that the weights are from, or NULL */
    const char *data; /**< as written: "fashion-mnist", "text:FILE", "tokens:FILE", "zipf", "uniform" */
    int image_grid, image_levels;

    uint32_t probes; /**< bit i = probe i of the registry */
    bool spectrum;
    bool cotangent_random;
    int jac_samples, jac_iterations;

    const char *out, *label; /**< NULL = default */
    const char *dump;        /**< file for the tensors of the run, or NULL */
    bool force, dry_run;
};

/** The width of a head. */
static inline int nh_head_dim(const struct nh_config *c)
{
    return c->head_dim ? c->head_dim : c->width / c->heads;
}

/** True where layer 1..depth sees a window alone, by the pattern. */
static inline bool nh_layer_is_local(const struct nh_config *c, int layer)
{
    size_t n = c->pattern ? strlen(c->pattern) : 0;
    return n && c->pattern[(size_t)(layer - 1) % n] == 'l';
}

/** Keys that layer 1..depth sees; 0 = all. */
static inline int nh_layer_window(const struct nh_config *c, int layer)
{
    bool all = c->pattern && *c->pattern && !nh_layer_is_local(c, layer);
    return all ? 0 : c->window;
}

/** True where layer 1..depth rotates queries and keys. */
static inline bool nh_layer_rotates(const struct nh_config *c, int layer)
{
    return c->pos == NH_POS_ROPE || (c->pos == NH_POS_INTERLEAVED && nh_layer_is_local(c, layer));
}

/** True where layer 1..depth has experts. */
static inline bool nh_layer_has_experts(const struct nh_config *c, int layer)
{
    return c->moe.experts && layer > c->moe.dense_layers;
}

/** True where the FFN is gated: its first product has `hidden` columns of gates before those of values. */
static inline bool nh_ffn_is_gated(enum nh_ffn ffn)
{
    return ffn == NH_FFN_SWIGLU || ffn == NH_FFN_GEGLU;
}

/** Hidden width of the FFN. */
static inline int nh_ffn_hidden(const struct nh_config *c)
{
    return (int)lround(c->ffn_mult * c->width);
}

/** The same of an expert. */
static inline int nh_expert_hidden(const struct nh_config *c)
{
    return (int)lround(c->moe.mult * c->width);
}

#endif
