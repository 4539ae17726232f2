// SPDX-License-Identifier: GPL-3.0-or-later
/** A policy: a table role -> format, and nothing that changes the function. */
#ifndef NH_POLICY_H
#define NH_POLICY_H

#include "harness/core/config.h"

/** What a stored number is for. */
enum nh_role {
    NH_ROLE_WEIGHT,
    NH_ROLE_MATMUL_IN,
    NH_ROLE_MATMUL_OUT,
    NH_ROLE_ACTIVATION,
    NH_ROLE_NORM_STAT,
    NH_ROLE_NORM_OUT,
    NH_ROLE_SOFTMAX,
    NH_ROLE_RESIDUAL,
    NH_ROLE_EMBEDDING,
    NH_ROLE_LOGITS,
    NH_ROLE_GRADIENT,
    NH_ROLE_WEIGHT_GRADIENT,
    NH_ROLE_LOSS,
    NH_ROLE_COUNT
};

struct nh_policy {
    const char *name;
    const char *const *aliases;
    const char *what;
    const char *source;
    const char *format[NH_ROLE_COUNT]; /**< a format's name, or NULL = --dtype */
};

/** All policies, closed by NULL; the first is the default. */
extern const struct nh_policy *const nh_policies[];
extern const char *const nh_role_names[NH_ROLE_COUNT];

/** The format of each role of a run. --norm-stats is applied; a fixed fp32 becomes fp64 where fp32 cannot hold every
 *  value of --dtype; with --dtype tf32 matmul inputs and weights are tf32 and all else that follows --dtype is fp32.
 *  --accum is no role: it belongs to the products. */
void nh_policy_formats(const struct nh_config *config, struct nh_fmt formats[NH_ROLE_COUNT]);

#endif
