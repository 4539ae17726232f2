// SPDX-License-Identifier: GPL-3.0-or-later
/** Dynamic loss scaling: the loss is multiplied before the backward pass so that gradients do not underflow, and the scale is
 *  moved by what comes out. Source: NVIDIA/Megatron-LM core/optimizer/grad_scaler.py (hysteresis), NVIDIA/apex amp/scaler.py. */
#ifndef NH_SCALER_H
#define NH_SCALER_H

#include <stdbool.h>

struct nh_scaler_rule {
    double start;
    int window;     /**< clean steps in a row before the scale is doubled; 0 = a fixed scale, its own floor */
    int hysteresis; /**< overflows before the scale is halved; filled up again when it grows */
    double floor, ceiling; /**< ceiling 0 = none */
};

struct nh_scaler {
    struct nh_scaler_rule rule;
    double scale;
    int clean;     /**< steps since the last overflow or growth */
    int tolerance; /**< overflows until the next halving */
};

void nh_scaler_start(struct nh_scaler *s, const struct nh_scaler_rule *rule);

/** What a step with this outcome does to the scale. overflow: a gradient was not finite. False where the scale would have to
 *  fall and is at its floor: no scale mends this run. */
bool nh_scaler_update(struct nh_scaler *s, bool overflow);

#endif
