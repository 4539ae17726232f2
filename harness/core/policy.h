// SPDX-License-Identifier: GPL-3.0-or-later
/** A policy: a table role -> format and a loss scaler, and nothing that changes the function. */
#ifndef NH_POLICY_H
#define NH_POLICY_H

#include "harness/core/config.h"
#include "harness/core/scaler.h"

struct nh_policy {
    const char *name;
    const char *const *aliases;
    const char *what;
    const char *source;
    const char *dtype;                  /**< what --dtype is where nobody says; NULL = its own default */
    const char *format[NH_ROLE_COUNT];  /**< a format's name, or NULL = --dtype (norm-in: as it comes) */
    struct nh_scaler_rule scaler;
};

/** All policies, closed by NULL; the first is the default. */
extern const struct nh_policy *const nh_policies[];
extern const char *const nh_role_names[NH_ROLE_COUNT + 1]; /**< closed by NULL */

/** The format of each role of a run: the policy's, over it --accum, --norm-stats and --roles. A fixed fp32 becomes fp64 where
 *  fp32 cannot hold every value of --dtype; with --dtype tf32 matmul inputs and weights are tf32 and all else that follows
 *  --dtype is fp32. norm-in has no name where a norm reads what comes. */
void nh_policy_formats(const struct nh_config *config, struct nh_fmt formats[NH_ROLE_COUNT]);

/** The loss scaler of a run: --loss-scale and --scale-window over the policy's; none (a fixed scale of 1) where gradients have
 *  the range of fp32. */
struct nh_scaler_rule nh_policy_scaler(const struct nh_config *config);

#endif
