// SPDX-License-Identifier: GPL-3.0-or-later
/** Sites: the places where a value is stored, that is, rounded and counted. */
#ifndef NH_SITE_H
#define NH_SITE_H

#include <stdbool.h>
#include <stdint.h>

enum nh_site_name {
    NH_SITE_EMBED,
    NH_SITE_NORM_RELAX,
    NH_SITE_NORM_IN,
    NH_SITE_NORM_PRE,
    NH_SITE_NORM_SCALE,
    NH_SITE_BRANCH_IN,
    NH_SITE_QKV,
    NH_SITE_QK_NORM,
    NH_SITE_ROPE,
    NH_SITE_Q_SCALE,
    NH_SITE_QK,
    NH_SITE_SCORES,
    NH_SITE_SCORE_CAP,
    NH_SITE_PROBS,
    NH_SITE_ATTN_V,
    NH_SITE_HEAD_SCALE,
    NH_SITE_GATE_IN,
    NH_SITE_GATE_ACT,
    NH_SITE_GATE,
    NH_SITE_ATTN_OUT,
    NH_SITE_FFN_IN,
    NH_SITE_FFN_ACT,
    NH_SITE_FFN_GLU,
    NH_SITE_FFN_OUT,
    NH_SITE_ROUTER,
    NH_SITE_ROUTE,
    NH_SITE_EXPERT_IN,
    NH_SITE_EXPERT_ACT,
    NH_SITE_EXPERT_GLU,
    NH_SITE_EXPERT_OUT,
    NH_SITE_EXPERT_SUM,
    NH_SITE_MOE,
    NH_SITE_NORM_INNER,
    NH_SITE_NORM_POST,
    NH_SITE_BRANCH,
    NH_SITE_SKIP,
    NH_SITE_RESIDUAL,
    NH_SITE_SHRINK,
    NH_SITE_NORM_FINAL,
    NH_SITE_LOGITS,
    NH_SITE_SOFTCAP,
    NH_SITE_LOSS,
    NH_SITE_CAST,
    NH_SITE_WEIGHT,
    NH_SITE_MOMENT_1,
    NH_SITE_MOMENT_2,
    NH_SITE_COUNT
};

/** Kebab names as in the files, and one line on each; both closed by NULL, in the order of the enum. */
extern const char *const nh_site_names[];
extern const char *const nh_site_helps[];

/** fwd: activations; bwd: gradients of activations; wgrad: gradients of weights; update: what the optimizer stores. */
enum nh_direction { NH_FWD, NH_BWD, NH_WGRAD, NH_UPDATE, NH_DIRECTIONS };
extern const char *const nh_direction_names[];

enum nh_sublayer { NH_SUB_EMBED, NH_SUB_ATTN, NH_SUB_FFN, NH_SUB_BLOCK, NH_SUB_FINAL };
extern const char *const nh_sublayer_names[];

/** What the values of one site and direction went through in one pass. Sums and extremes only: the order of merging
 *  is of no account. */
struct nh_counts {
    uint64_t total;      /**< values stored */
    uint64_t overflow;   /**< left the format here although every input was finite; accumulators and statistics included */
    uint64_t nan_made;   /**< NaN here, none among the inputs */
    uint64_t propagated; /**< inf or NaN that an input brought */
    uint64_t zero_made;  /**< rows all zero behind a norm whose finite input is not */
    uint64_t underflow;  /**< non-zero stored as zero */
    uint64_t subnormal;  /**< stored non-zero subnormals */
    double max_abs;      /**< largest |stored|, NaN left out */
    double min_abs;      /**< smallest non-zero |stored|, inf where none */
};

/** Adds b to a. */
void nh_counts_add(struct nh_counts *a, const struct nh_counts *b);

/** Largest |x| of the counters; nan where there is nothing but NaN. */
double nh_largest(const struct nh_counts *c);

/** underflow: a second moment that is divided by became zero, though its root is above the eps that is then left of the divisor. */
enum nh_offence { NH_NO_OFFENCE, NH_OVERFLOW, NH_NAN_MADE, NH_UNDERFLOW };
extern const char *const nh_offence_names[];

/** The first value that left the format in a direction: in execution order, then by flat index. */
struct nh_first {
    enum nh_offence kind;
    int site;       /**< index in the graph's list of sites */
    uint64_t order; /**< place in execution order */
    uint64_t index; /**< flat index in the stored tensor */
    double value;   /**< before it was rounded */
    int param;      /**< the parameter that the tensor is, belongs to or is the gradient of, counted from 1; 0 = a value of the tape */
};

/** True where a is an offence and came before b, or b is none. For offences of one pass. */
bool nh_earlier(const struct nh_first *a, const struct nh_first *b);

#endif
