// SPDX-License-Identifier: GPL-3.0-or-later
/** An executor: a tape with numbers. Two of them, float and double, behind one table of functions, so that a run chooses by
 *  its format at run time and a half-precision run may have a double twin beside it. */
#ifndef NH_CORE_H
#define NH_CORE_H

#include "harness/core/graph.h"

struct nh_exec; /**< numbers of one model in one type */
struct nh_pass; /**< workspace for tangents or cotangents through a part of the tape, used by one thread at a time */

/** Moments of a value, in double, over all rows and columns. */
struct nh_moments {
    double n, sum_sq, max_abs;
    double kurtosis;    /**< fourth moment about the mean over the square of the second */
    double token_cos;   /**< mean cosine between two different tokens of a sequence, zero rows left out */
    bool has_kurtosis;  /**< false of a constant */
    bool has_token_cos; /**< false where no sequence has two tokens that are not zero */
};

/** One step of the optimizer over all weights. */
struct nh_update {
    enum nh_optimizer optimizer;
    double factor; /**< on the gradients: takes the loss scale out, and clips */
    double lr, weight_decay, beta1, beta2, eps, momentum;
    int step; /**< updates so far, this one included: bias correction of AdamW */
};

/** What is kept of a parameter between the steps: numbers, and for each stored weight a byte, 1 where some update has changed it. */
enum nh_state { NH_STATE_MASTER, NH_STATE_MOMENT_1, NH_STATE_MOMENT_2, NH_STATE_CHANGED, NH_STATES };

struct nh_core {
    int bits;
    /** Bytes that create() will take. */
    size_t (*memory)(const struct nh_graph *g, int threads, bool gradients);
    /** Bytes of a derivative pass over operations [first, end), for n vectors at a time. */
    size_t (*pass_memory)(const struct nh_graph *g, int first, int end, int n);
    /** gradients: backward() will be called. NH_FAILED where memory is short. */
    int (*create)(struct nh_exec **out, const struct nh_graph *g, int threads, bool gradients);
    void (*destroy)(struct nh_exec *x);
    /** Rounds w (rows x cols) to the format of master weights, and that to the parameter's own, and stores it. Parameters may be
     *  set from several threads. */
    void (*set_param)(struct nh_exec *x, int param, const double *w);
    /** Rounds what a source has of a parameter once to the parameter's format, and once to that of master weights; a master that is
     *  narrower is what the weight is cast from. On all threads. */
    void (*take_param)(struct nh_exec *x, const struct nh_weight_source *source, int param);
    /** Tokens of the batch, batch x seq; the target of a token is the next one of its sequence, the last has none. */
    void (*set_tokens)(struct nh_exec *x, const int *tokens);
    /** Runs the tape; returns the mean loss (0 where there is no target). */
    double (*forward)(struct nh_exec *x);
    /** The same for a streamed graph. look(arg, step) is called behind each step, while its values are there; what they are is lost
     *  afterwards, counters stay. */
    double (*forward_streamed)(struct nh_exec *x, const struct nh_weight_source *source, void (*look)(void *arg, int step), void *arg);
    /** Overwrites a value and runs operations [first, end) again: for checks of derivatives. */
    void (*write)(struct nh_exec *x, nh_val v, const double *in);
    void (*rerun)(struct nh_exec *x, int first, int end);
    /** Gradient of the loss times loss_scale, or, where cotangent is given (rows x cols of the exit value), of its product
     *  with the exit value. Weight gradients too. */
    void (*backward)(struct nh_exec *x, double loss_scale, const double *cotangent);
    /** Counters of all sites: n_sites x NH_DIRECTIONS, of the last forward, backward and update. */
    const struct nh_counts *(*counts)(const struct nh_exec *x);
    struct nh_first (*first)(const struct nh_exec *x, enum nh_direction direction);
    /** A value, or its gradient (watched values only), copied to double row by row. */
    void (*read)(const struct nh_exec *x, nh_val v, double *out);
    void (*read_grad)(const struct nh_exec *x, nh_val v, double *out);
    void (*read_param)(const struct nh_exec *x, int param, double *out);
    void (*read_param_grad)(const struct nh_exec *x, int param, double *out);
    /** Sum of squares of all weight gradients, in units of the loss scale; inf or nan where one is not finite. */
    double (*weight_grad_sum_sq)(const struct nh_exec *x);
    /** Adds the weight gradients of the last backward to those of the step's batches before it (first: there is none), in fp32.
     *  Where the graph sums gradients, the sum is what the optimizer sees. */
    void (*accumulate)(struct nh_exec *x, bool first);
    /** Moves master weights and moments, and casts the weights anew; all that is stored is counted in direction update. Returns how
     *  many stored weights changed. Where the graph is not trained (n_moments = 0) it must not be called. */
    uint64_t (*update)(struct nh_exec *x, const struct nh_update *u);
    /** The numbers of a state, rows x cols of float or double as bits says (NH_STATE_CHANGED: bytes); NULL where it is not kept.
     *  After writing to them call recast(). */
    void *(*state)(struct nh_exec *x, int param, enum nh_state state);
    void (*recast)(struct nh_exec *x);
    /** True where a stored weight is not finite. */
    bool (*broken_weights)(const struct nh_exec *x);
    struct nh_moments (*moments)(struct nh_exec *x, nh_val v);
    double (*grad_sum_sq)(struct nh_exec *x, nh_val v);
    /** True where any value of operations [first, end) or of their inputs is not finite. */
    bool (*nonfinite)(const struct nh_exec *x, int first, int end);

    /** Derivative of operations [first, end) from the values `from` to the values `to` (NH_STREAMS each, -1 = none), `n` vectors
     *  at a time at the most. A pass works on its caller's thread; several passes may go side by side. */
    int (*pass_create)(struct nh_pass **out, struct nh_exec *x, int first, int end, const nh_val *from, const nh_val *to, int n);
    void (*pass_destroy)(struct nh_pass *p);
    /** n tangents (each rows x cols of every `from`, one after the other) to n tangents of `to`. Neither rounded nor counted. */
    void (*jvp)(struct nh_pass *p, int n, const double *in, double *out);
    /** n cotangents of `to` to n cotangents of `from`. */
    void (*vjp)(struct nh_pass *p, int n, const double *in, double *out);
};

extern const struct nh_core nh_core_f32, nh_core_f64;

/** The core that carries the formats of a graph. */
const struct nh_core *nh_core_for(const struct nh_graph *g);

#endif
