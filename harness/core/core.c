// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/core.h"

const struct nh_core *nh_core_for(const struct nh_graph *g)
{
    for (int r = 0; r < NH_ROLE_COUNT; r++)
        if (nh_fmt_wide(&g->fmt[r]))
            return &nh_core_f64;
    return &nh_core_f32;
}
