// SPDX-License-Identifier: GPL-3.0-or-later
/** The tape: values, parameters and the operations between them, in execution order. It is recorded once per model and
 *  has no numbers in it; an executor (harness/core/exec.h) runs it in float or in double. */
#ifndef NH_GRAPH_H
#define NH_GRAPH_H

#include "harness/core/config.h"
#include "harness/core/policy.h"
#include "harness/core/site.h"
#include "layouts/layout.h"

/** Residual streams at the most. */
enum { NH_STREAMS = 2 };

enum nh_op {
    NH_OP_EMBED,  /**< y = scale * E[token] (+ P[position]); par: E, P or -1 */
    NH_OP_NORM,   /**< RMSNorm or LayerNorm over groups of columns; par: gain, bias or -1 */
    NH_OP_LINEAR, /**< y = x W^T (+ b); par: W, b or -1 */
    NH_OP_ROPE,   /**< rotation of each head, half-split pairs */
    NH_OP_SDPA,   /**< causal attention of q, k, v */
    NH_OP_ACT,    /**< gelu (tanh form), relu, silu, sigmoid, soft cap */
    NH_OP_MUL,    /**< y = a * b */
    NH_OP_AXPBY,  /**< y = s0 a + s1 b; b may be -1 */
    NH_OP_GAIN,   /**< y = g a, one trained g for every `width` columns; par: g */
    NH_OP_SHRINK, /**< y = a - silu(p) stopgrad(a), one trained p; par: p */
    NH_OP_CAST,   /**< y = a in another format */
    NH_OP_RELAX,  /**< y = a / c, c = max|a| / bound over the whole tensor, a constant in derivatives */
    NH_OP_ROUTE,  /**< weights of the k experts that a row goes to, from a logit for each expert; par: bias on the choice */
    NH_OP_EXPERTS, /**< y = x W^T in each of k slots, W that of the slot's expert; par: W of all experts, one above the other */
    NH_OP_COMBINE, /**< y = sum over k slots of b_j a_j */
    NH_OP_XENT,   /**< negative log-likelihood of each row's target, plus z_loss log^2 Z; 0 where a row has none; also in parts,
                       each with a block of the vocabulary and what the parts before have found */
    NH_OP_COUNT
};

enum nh_act { NH_ACT_GELU, NH_ACT_RELU, NH_ACT_SILU, NH_ACT_SIGMOID, NH_ACT_SOFTCAP };

/** A value: `rows` of the graph times `cols`, row stride `ld`. A view shares the memory of `base` from column `col0` on. */
struct nh_value {
    int cols, ld, base, col0;
    int rec; /**< the operation that makes it; of a view: of its base */
    int site;
    enum nh_role role;
    bool watched; /**< its gradient is kept: a stream boundary, for the probes; with --dump branches and logits too */
};

/** Rows of a parameter that have a start of their own (q, k and v of one product). */
struct nh_part {
    int rows, tensor; /**< tensor: key of the random stream; in a repetition i NH_TENSOR_STEP times higher */
    double std;       /**< 0: constant `start` */
    double start;
};

struct nh_param {
    char name[32];
    int layer, rows, cols, n_parts;
    struct nh_part part[3];
    int repeat;      /**< how often all parts stand there, one time above the other: once for each expert */
    enum nh_role role;
    int site;        /**< where its gradient is counted */
    int weight_site; /**< where it is counted itself, -1 = nowhere */
    int moment_site[2]; /**< where the moments of a trained model are counted; meaningless beyond n_moments of the graph */
    bool frozen;     /**< not trained */
    bool profiled;   /**< its start is measured (layout.h, skip_start) */
    size_t offset; /**< in values, from the start of all parameters */
};

struct nh_rec {
    enum nh_op op;
    int in[3], out; /**< values, -1 = none */
    int par[2];     /**< parameters, -1 = none */
    int order;      /**< of execution, for first offences: parts of one product, and of one head, have those of the first */
    bool par_first[2]; /**< first use of the parameter on the tape, so the last to add to its gradient */
    size_t aux;                     /**< offset in the auxiliary numbers (row statistics) */
    union {
        struct {
            double scale;
            double shrink; /**< factor on the gradient of the tables alone */
        } embed;
        struct {
            enum nh_norm_type type;
            int group;     /**< columns normed together */
            bool per_head; /**< one gain of `group` numbers for all groups, else one of `cols` */
            double offset; /**< y = (offset + gain) x / rms: 1 where norms hold w of 1 + w (Gemma) */
        } norm;
        struct {
            enum nh_act kind;
            double cap; /**< of NH_ACT_SOFTCAP */
        } act;
        struct {
            double a, b;
        } axpby;
        struct {
            int row0; /**< first row of W; as many as the output has columns */
            bool tied; /**< W is the embedding table, cast from its format to that of weights */
        } linear;
        struct {
            int heads, kv_heads, head_dim, window;
            double scale; /**< factor on the product; 1 where q was scaled before */
            double alpha; /**< factor inside the softmax, behind the maximum; 1 where scores are not held divided by it */
            double cap;   /**< soft cap on the scores, 0 = none */
            int site_qk;  /**< -1 where scale is 1 */
            int site_scores, site_cap, site_probs; /**< site_cap: -1 where there is no soft cap */
            bool grad_stored; /**< the softmax's derivative takes the stored, rounded probabilities */
        } sdpa;
        struct {
            int head_dim;
            int table; /**< of the graph */
        } rope;
        struct {
            int width;
        } gain;
        struct {
            double bound;
        } relax;
        struct {
            double scale; /**< factor on the weights, whose sum it is */
        } route;
        struct {
            int route; /**< the operation that has chosen */
            int parts; /**< of the output (gate, up): the first of all slots, then the second */
        } experts;
        struct {
            double z_loss;
            int col0;   /**< first token id of the logits */
            bool part;  /**< the output is not yet the loss but NH_LOSS_PART numbers: maximum, sum and target logit so far, and
                             what was not finite */
        } xent;
    } u;
};

struct nh_site {
    int layer;
    enum nh_sublayer sublayer;
    enum nh_site_name name;
    enum nh_role role;        /**< of the value stored there; of several, the one with the smallest maximum */
    bool stored;              /**< there is such a value */
    enum nh_role weight_role; /**< of the parameter whose gradient is counted there */
};

/** Rows of a matrix of `cols` columns that a streamed pass holds at a time: 16 MB of float or 512 rows; whole blocks of the product. */
int nh_streamed_rows(int cols);

/** Token ids to a block of logits: losses are summed block by block, and a streamed head is made so. */
enum { NH_VOCAB_BLOCK = 8192, NH_LOSS_PART = 4 };

/** Numbers that a norm keeps of each group of a row: the mean in two parts, and 1 / sqrt(var + eps). */
enum { NH_NORM_AUX = 3 };

/** A boundary of the stream: what one row of layers.csv is about. Step 0 is the embedding, the last one the exit. */
struct nh_step {
    int layer;
    enum nh_sublayer sublayer;
    int first_rec, end_rec; /**< operations [first, end) lead from the stream before to the stream after */
    nh_val before[NH_STREAMS], after[NH_STREAMS]; /**< per stream; before = -1 at step 0 */
    nh_val raw; /**< output of attention or FFN before any output norm; -1 = none */
    nh_val branch[NH_STREAMS]; /**< what is added to each stream; -1 = none */
};

/** Angles of a rotation. */
struct nh_rope_table {
    double theta;
    struct nh_rope_scaling scaling;
};

struct nh_graph {
    int batch, seq, rows, vocab; /**< rows = batch * seq */
    int n_streams;
    int row_block;               /**< rows of a unit of work; follows from the shape alone */
    double eps;
    struct nh_rope_table rope[2]; /**< of global and of local layers */
    bool cast_before_gain;
    bool accum_dtype, norm_stat_dtype, softmax_narrow;
    bool streamed;       /**< run once, forward; weights come and go */
    int n_moments;      /**< numbers that the optimizer keeps for each weight; 0 = the model is not trained */
    bool sums_gradients; /**< the gradients of several batches make one step */
    struct nh_fmt fmt[NH_ROLE_COUNT];
    struct nh_fmt fp32; /**< the gradient's format of values that are kept in fp32 */

    struct nh_value *values;
    struct nh_rec *recs;
    struct nh_param *params;
    struct nh_site *sites;
    struct nh_step *steps;
    int n_values, n_recs, n_params, n_sites, n_steps;
    size_t n_weights, n_aux;
    nh_val exit_value, logits, nll;
    int head_rec;  /**< first operation behind the exit */
    int tied;      /**< the table that the head multiplies with in another format than it is stored in; -1 = there is none */
    int tied_site; /**< of the cast, once a pass */
    int rope_dim;  /**< head width where positions are rotated, else 0 */
    int n_norms;   /**< norms of the layout: QK-norm left out */
};

/** Builds the model of a configuration for sequences of `seq` tokens below `vocab`. NH_USAGE where it cannot be. */
int nh_graph_build(struct nh_graph **out, const struct nh_config *config, int batch, int seq, int vocab);
void nh_graph_free(struct nh_graph *g);

/** The format of the gradient of values in this role: fp32 where the value is in fp32 or wider, else the policy's. */
const struct nh_fmt *nh_grad_fmt(const struct nh_graph *g, enum nh_role role);
/** The same for the gradient of a parameter in this role. */
const struct nh_fmt *nh_weight_grad_fmt(const struct nh_graph *g, enum nh_role role);

/** Angle per position of pair j of a table, j < rope_dim/2. */
double nh_rope_frequency(const struct nh_graph *g, int table, int j);

/** Multiplications and additions of one forward pass in matrix products (causal half of attention). */
double nh_graph_flops(const struct nh_graph *g);

/** Places memory for values that live from operation `from` to operation `to`, ends included, so that those alive at the same
 *  time do not overlap. size and offset in any unit; from < 0 = not placed. Returns the peak. */
size_t nh_plan(int n, const int *from, const int *to, const size_t *size, size_t *offset);

/* A graph under construction, for tests of single operations; layouts use layouts/layout.h. */
struct nh_graph *nh_graph_new(const struct nh_config *config, int batch, int seq, int vocab);
int nh_graph_site(struct nh_graph *g, int layer, enum nh_sublayer sublayer, enum nh_site_name name, enum nh_role role);
nh_val nh_graph_value(struct nh_graph *g, int cols, int site, enum nh_role role);
nh_val nh_graph_view(struct nh_graph *g, nh_val base, int col0, int cols);
int nh_graph_param(struct nh_graph *g, const struct nh_param *param);
struct nh_rec *nh_graph_rec(struct nh_graph *g, enum nh_op op, nh_val out);
/** After the last record: uses of parameters, places, sizes. */
void nh_graph_close(struct nh_graph *g);

#endif
