// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/data/data.h"

#include <stddef.h>

#define NH_DATA_SOURCE(id) extern const struct nh_data_source nh_data_##id;
#include "data_sources.inc"
#undef NH_DATA_SOURCE

const struct nh_data_source *const nh_data_sources[] = {
#define NH_DATA_SOURCE(id) &nh_data_##id,
#include "data_sources.inc"
#undef NH_DATA_SOURCE
    NULL,
};
