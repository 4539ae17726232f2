// SPDX-License-Identifier: GPL-3.0-or-later
/** The closed form of the stream's RMS at initialisation, from the layout's law terms and the variance of the weights.
 *  Derivations, sources and limits: docs/laws.md. */
#ifndef NH_LAW_H
#define NH_LAW_H

#include "harness/core/config.h"

/** v, chi and zeta = chi/v of a sublayer fed by rows of unit RMS (mean square of its output, squared Frobenius norm of
 *  its Jacobian per token and width). */
struct nh_sublayer_constants {
    double v, chi, zeta;
};

/** Constants of the FFN whose matrices on the input (gate and up alike) have gain s1 (std * sqrt(fan_in)) and whose
 *  last one has gain s2. GELU in the tanh form. NaN where memory is short. */
struct nh_sublayer_constants nh_law_ffn(enum nh_ffn ffn, double s1, double s2);

/** Expected RMS of the stream after each sublayer, in order (depth x sublayers a layer values).
 *  gram: mean over the batch of the T x T matrices x_t . x_u / width of the stream that enters layer 1 (row-major,
 *  symmetric), T = config->seq, which must be known, as must kv_heads.
 *  Where a sublayer's mean square cannot be known (no law term; a branch that reads an unnormed stream and has no N2)
 *  this and all later values are nan. Positions (RoPE, windows) are not in the law.
 *  second: the same for a second stream, NULL where it is not asked for. O(T^2) a sublayer. NH_FAILED where memory is short. */
int nh_law_rms(const struct nh_config *config, const double *gram, double *rms, double *second);

#endif
