// SPDX-License-Identifier: GPL-3.0-or-later
/** Models at their start against the law of the stream and of its gradient, as means over seeds. The tokens of a batch
 * are all different, so that they enter layer 1 as independent Gaussian vectors. Which configurations, and how far they
 * may lie from the law, is the caller's affair. */
#ifndef NH_CHECK_LAWS_H
#define NH_CHECK_LAWS_H

#include "harness/core/config.h"

/** RMS of the stream behind one sublayer. */
struct nh_law_check {
    double law;     /**< nh_law_rms on the measured Gram of the stream that enters layer 1, mean over the seeds */
    double rms, se; /**< measured: mean over the seeds and its standard error */
};

/** Runs a configuration forward with seeds 0..seeds-1, config->threads of them side by side, each on one thread; batch
 * and seq must be set. back: how many sublayers (blocks, where the layout has them) before the last one; stream: 0, or
 * 1 for the second. NH_FAILED where memory is short. */
int nh_check_law(const struct nh_config *config, int seeds, int back, int stream, struct nh_law_check *out);

/** The gradient of the stream, G_k = E||d/dx_k||^2, with a random cotangent of unit variance where the head reads. */
struct nh_gradient_check {
    double growth; /**< q_L/q_0, q the mean square of the stream: geometric mean over the seeds */
    double ratio;  /**< G_0/G_L, likewise */
    double se;     /**< standard error of log(ratio) */
    bool falls;    /**< the mean of log G is lower at each quarter of the depth than at the one before */
};

/** The same backward, stream 0. Needs at least four layers. */
int nh_check_gradient(const struct nh_config *config, int seeds, struct nh_gradient_check *out);

#endif
