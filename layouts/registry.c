// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#define NH_LAYOUT(id) extern const struct nh_layout nh_layout_##id;
#include "layouts/layouts.inc"
#undef NH_LAYOUT

const struct nh_layout *const nh_layouts[] = {
#define NH_LAYOUT(id) &nh_layout_##id,
#include "layouts/layouts.inc"
#undef NH_LAYOUT
    NULL,
};
