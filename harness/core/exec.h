// SPDX-License-Identifier: GPL-3.0-or-later
/** Inside an executor: what the operations (ops_*.c) and the driver (exec.c) share. Compiled per number type. */
#ifndef NH_EXEC_H
#define NH_EXEC_H

#include "harness/core/core.h"
#include "harness/core/real.h"

/** The two addends of a sum of cotangents while it is stored; put is NULL where it is known to be finite. */
struct addends {
    const real *before, *put;
    size_t before_ld, cols, row0, col0;
};

/** Scratch of one thread: operations on healthy numbers do not allocate. */
struct lane {
    real *buf;      /**< lane_size numbers */
    unsigned char *flags; /**< non-finite flags of columns, lane_flags of them */
    struct addends addends;
};

struct nh_exec {
    const struct nh_graph *g;
    int threads;
    real *values, *weights, *wgrads, *aux, *grads;
    real *masters;    /**< = weights where they are in the same format */
    real *moments[2]; /**< NULL = not kept */
    real *tied;       /**< the embedding table in the format of weights, where the graph has a tied head that needs it */
    int64_t bad_tied; /**< numbers of it that are not finite */
    real *grad_sum;   /**< over the batches of a step, NULL = one batch a step */
    unsigned char *changed; /**< of each weight: 1 = an update has changed it; NULL where nothing is trained */
    size_t *value_at; /**< of base values, from `values` */
    size_t *grad_at;  /**< of base values, from `grads`; SIZE_MAX = none */
    bool *grad_seen;  /**< a contribution to this gradient has arrived */
    bool *wgrad_seen; /**< the same for the gradient of a parameter */
    int64_t *bad_value, *bad_grad, *bad_param; /**< stored values that are not finite */
    struct nh_counts *counts;                  /**< [n_sites][NH_DIRECTIONS] */
    struct nh_first first[NH_DIRECTIONS];
    struct nh_counts *param_counts; /**< of each parameter, as it was stored */
    struct nh_first *param_first;
    size_t *param_at; /**< of parameters, from `weights` */
    int *tokens;
    int *token_row; /**< row of the embedding table that holds a token: the token, but where the table is streamed */
    real *cos, *sin; /**< rotation tables, 2 x seq x rope_dim/2, in the activation format */
    struct lane *lanes;
    size_t lane_size, lane_flags;
};

/** A derivative pass over operations [first, end). Rows of a tangent: sample s, row r at (s * rows + r) * ld. */
struct nh_pass {
    struct nh_exec *x;
    int first, end, n, max_n, threads;
    int row_block;  /**< rows of a unit of work */
    nh_val from[NH_STREAMS], to[NH_STREAMS];
    bool counted;   /**< the training backward pass: gradients are rounded and counted, weight gradients made */
    real *buf;
    size_t *at;     /**< of base values, from `buf`, for one sample; times n */
    bool *seen;     /**< has a tangent, or has had a contribution */
    real *own;      /**< owned memory behind buf, NULL where borrowed */
    struct lane *lanes;
};

/** A unit of work of one operation. */
struct unit {
    struct nh_exec *x;
    const struct nh_rec *r;
    struct nh_pass *p; /**< NULL in the forward pass */
    struct lane *lane;
    int index;
};

/** Non-finite inputs of a stored value. */
enum { HAS_INF = 1, HAS_NAN = 2 };

/** What a stored value depends on: flags of its inputs. Asked only about values that are not finite. */
typedef unsigned depends_fn(const struct unit *u, size_t row, size_t col);

struct op {
    int (*units)(const struct nh_exec *x, const struct nh_rec *r);
    void (*fwd)(const struct unit *u);
    int (*vjp_units)(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p);
    void (*vjp)(const struct unit *u);
    int (*jvp_units)(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p);
    void (*jvp)(const struct unit *u);
    size_t (*scratch)(const struct nh_graph *g, const struct nh_rec *r); /**< numbers of lane memory; NULL = none */
};
extern const struct op *const NH_T(nh_ops)[NH_OP_COUNT];
#define OPS NH_T(nh_ops)

/* ---- geometry ---- */

/** Rows of a unit in the forward pass (p = NULL) or in a derivative pass; follows from the shape and the kind of pass alone. */
static inline int row_block(const struct nh_graph *g, const struct nh_pass *p)
{
    return p ? p->row_block : g->row_block;
}

static inline int row_blocks(const struct nh_graph *g, const struct nh_pass *p)
{
    return (g->rows + row_block(g, p) - 1) / row_block(g, p);
}

/** Rows [r0, r1) of sample s; columns [c0, c1) of them, or all where c1 is 0. */
struct rows {
    int s, r0, r1, c0, c1;
};

static inline struct rows rows_of(const struct unit *u)
{
    const struct nh_graph *g = u->x->g;
    int size = row_block(g, u->p), blocks = row_blocks(g, u->p), b = u->index % blocks;
    int end = (b + 1) * size;
    return (struct rows){u->index / blocks, b * size, end < g->rows ? end : g->rows, 0, 0};
}

static inline const struct nh_value *value_of(const struct nh_exec *x, nh_val v)
{
    return &x->g->values[v];
}

static inline real *value_ptr(const struct nh_exec *x, nh_val v)
{
    const struct nh_value *w = value_of(x, v);
    return x->values + x->value_at[w->base] + w->col0;
}

static inline real *row_ptr(const struct nh_exec *x, nh_val v, int row)
{
    return value_ptr(x, v) + (size_t)row * (size_t)value_of(x, v)->ld;
}

static inline real *weight_ptr(const struct nh_exec *x, int param)
{
    return x->weights + x->param_at[param];
}

static inline real *wgrad_ptr(const struct nh_exec *x, int param)
{
    return x->wgrads + x->g->params[param].offset;
}

/** Tangent or cotangent of a value in a pass, sample s, row r. */
static inline real *pass_ptr(const struct nh_pass *p, nh_val v, int s, int row)
{
    const struct nh_value *w = value_of(p->x, v);
    return p->buf + p->at[w->base] * (size_t)p->max_n + ((size_t)s * (size_t)p->x->g->rows + (size_t)row) * (size_t)w->ld +
           (size_t)w->col0;
}

/* ---- storing: the one place where values are rounded and counted ---- */

/** Rounds rows x cols of p (row stride ld) to fmt and adds what it sees to the counters of (site, direction). row0, col0: place of
 *  p[0] in the tensor of `width` columns that the flat index speaks of. bad: the tensor's count of non-finite values, or NULL.
 *  statistics: overflows of row statistics, to be counted at the same site. counted = false: rounds only.
 *  Returns how many stored values are not finite. */
struct store {
    const struct unit *u;
    int site;
    enum nh_direction direction;
    int stage; /**< order among the sites of one operation */
    const struct nh_fmt *fmt;
    real *p;
    size_t rows, cols, ld, row0, col0, width;
    int64_t *bad;
    depends_fn *depends;
    int param;    /**< the parameter whose gradient it is, counted from 1; 0 = a value */
    bool product; /**< a sum of products: a NaN of finite inputs means that the accumulator overflowed */
    bool counted;
    uint64_t statistics, zero_made;
    size_t statistics_row; /**< the first row whose statistics overflowed */
};
uint64_t NH_T(nh_store)(const struct store *s);

/** The same in two steps, where an operation stores many short rows at one site. */
struct tally {
    struct nh_counts counts;
    struct nh_first first;
    uint64_t nonfinite;
};
struct tally NH_T(nh_tally_zero)(void);
void NH_T(nh_tally)(const struct store *s, struct tally *t);
void NH_T(nh_tally_commit)(const struct store *s, const struct tally *t);

/** The store of rows [r0, r1) of the operation's own output; add to it what the operation knows, then call nh_store. */
struct store NH_T(nh_output)(const struct unit *u, int r0, int r1, depends_fn *depends);

/** Where the vjp of the running operation shall put the contribution to the cotangent of input v, rows [r0, r1) of sample s:
 *  the cotangent itself or scratch. Row stride *ld. scratch: place for rows x cols in the lane. */
real *NH_T(nh_cotangent)(const struct unit *u, nh_val v, struct rows rows, real *scratch, size_t *ld);
/** Rounds and counts what was put there, and adds it to what had arrived before (rounded again). */
void NH_T(nh_cotangent_done)(const struct unit *u, nh_val v, struct rows rows, real *put, size_t ld, depends_fn *depends,
                             bool product);
/** The same for weight gradients: rows [r0, r1) and columns [c0, c1) of parameter slot i were stored or added to; rounds and
 *  counts them when no other operation will add to them. */
void NH_T(nh_wgrad_done)(const struct unit *u, int i, int r0, int r1, int c0, int c1, depends_fn *depends);

/** Memory for n elements, in whole pages; not zeroed. NULL where it is short. */
void *NH_T(nh_take)(size_t n, size_t size);

/* ---- weights (weights.c) ---- */

/** Reads rows [row0, row0 + rows) of a parameter from a source to `to`, rounds them once to the parameter's format (where the master's
 *  is narrower: to that first), and counts them where counted is set. On all threads. */
void NH_T(nh_load_param)(struct nh_exec *x, const struct nh_weight_source *source, int param, int row0, int rows, real *to, bool counted);
/** The same for all of a parameter, to its own place; its master weights are rounded from the source too. */
void NH_T(nh_take_param)(struct nh_exec *x, const struct nh_weight_source *source, int param);
/** Rounds n numbers of the tied head's matrix, from its number `first` on, which are as the embedding table has them, to the format of
 *  weights in place, and counts that in the forward pass at hand. On all threads. */
void NH_T(nh_cast_tied)(struct nh_exec *x, size_t first, size_t n, real *w);
/** Forgets what was counted of a parameter. */
void NH_T(nh_forget_param)(struct nh_exec *x, int param);
/** Memory of master weights, moments and sums of gradients; false where it is short. */
bool NH_T(nh_weights_create)(struct nh_exec *x);
void NH_T(nh_weights_destroy)(struct nh_exec *x);
/** Numbers of that memory. */
size_t NH_T(nh_weights_memory)(const struct nh_graph *g);
void NH_T(nh_set_param)(struct nh_exec *x, int param, const double *w);
double NH_T(nh_weight_grad_sum_sq)(const struct nh_exec *x);
void NH_T(nh_accumulate)(struct nh_exec *x, bool first);
uint64_t NH_T(nh_update_weights)(struct nh_exec *x, const struct nh_update *u);
void *NH_T(nh_state)(struct nh_exec *x, int param, enum nh_state state);
void NH_T(nh_recast)(struct nh_exec *x);
bool NH_T(nh_broken_weights)(const struct nh_exec *x);
/** Forgets the counters and the first offence of a direction. */
void NH_T(nh_reset_direction)(struct nh_exec *x, enum nh_direction d);

/* ---- a pass whose weights come and go (stream.c) ---- */

/** Places values that live only while they are needed; returns the numbers in all. at: NULL = asks for that alone. */
size_t NH_T(nh_stream_place)(const struct nh_graph *g, size_t *at);
/** Numbers of the weights of one operation, at the most. */
size_t NH_T(nh_stream_weights)(const struct nh_graph *g);
/** Gets the weights of an operation; those of the one before are gone. */
void NH_T(nh_stream_load)(struct nh_exec *x, const struct nh_weight_source *source, int rec);

/** Flags of n numbers, up to the first NaN. */
unsigned NH_T(nh_flags)(const real *p, size_t n, size_t stride);
/** Flags of each column; any: there is something to find. */
void NH_T(nh_column_flags)(const real *p, size_t rows, size_t cols, size_t ld, bool any, unsigned char *flags);

/** Runs fn for every unit, on the threads given; the result never depends on their number. */
void NH_T(nh_units)(struct unit proto, int n, int threads, struct lane *lanes, void (*fn)(const struct unit *));

/** C (+)= op(A) op(B); with --accum dtype every product-sum is rounded in turn, k ascending. accumulate: adds to C. */
void NH_T(nh_gemm)(const struct nh_exec *x, bool emulate, bool ta, bool tb, int m, int n, int k, const real *a, size_t lda,
                   const real *b, size_t ldb, bool accumulate, real *c, size_t ldc);

extern const struct op NH_T(nh_op_embed), NH_T(nh_op_norm), NH_T(nh_op_relax), NH_T(nh_op_linear), NH_T(nh_op_rope), NH_T(nh_op_sdpa),
    NH_T(nh_op_act), NH_T(nh_op_mul), NH_T(nh_op_gain), NH_T(nh_op_shrink), NH_T(nh_op_axpby), NH_T(nh_op_cast), NH_T(nh_op_route),
    NH_T(nh_op_experts), NH_T(nh_op_combine), NH_T(nh_op_xent);

#define flags_of  NH_T(nh_flags)
#define gemm      NH_T(nh_gemm)

static inline int row_units(const struct nh_exec *x, const struct nh_rec *r)
{
    (void)r;
    return row_blocks(x->g, NULL);
}

static inline int row_units_vjp(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    (void)r;
    return row_blocks(x->g, p) * p->n;
}

#endif
