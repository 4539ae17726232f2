// SPDX-License-Identifier: GPL-3.0-or-later
/** Checks of derivatives: central differences in fp64, and the adjoint identity <u, Jv> = <J'u, v> in fp64 and fp32, for every
 *  operation in its place on the tape, every sublayer, the whole model and every parameter. */
#ifndef NH_CHECK_H
#define NH_CHECK_H

#include "harness/core/config.h"

/** Worst figures of one subject and what they are held against. */
struct nh_check {
    char subject[64];
    double difference; /**< |numeric - derived| over the norm of the derivative; limit 1e-6 */
    double adjoint64;  /**< |<u,Jv> - <J'u,v>| / (||u|| ||Jv||) in fp64; limit 1e-14 */
    double adjoint32;  /**< the same in fp32; limit 1e-6 */
    int cases;         /**< derivatives that went into it */
};

#define NH_CHECK_DIFFERENCE 1e-6
#define NH_CHECK_ADJOINT64  1e-14
#define NH_CHECK_ADJOINT32  1e-6

/** True where all figures are within the limits (and not NaN). */
bool nh_check_good(const struct nh_check *c);

/** Checks the sublayers, the end-to-end map and all parameters of a small model of the layout. switches: with --pb-relax, --ln-relax,
 *  --softcap, --z-loss and --embed-shrink, whose gradients are those with the relaxation held constant and a times the table's. */
int nh_check_layout(const struct nh_layout *layout, bool switches, struct nh_check *out);

/** Checks every operation, in models that use all of them; out has room for NH_OP_COUNT; *n = how many were found. */
int nh_check_operations(struct nh_check *out, int *n);

#endif
