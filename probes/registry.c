// SPDX-License-Identifier: GPL-3.0-or-later
#include "probes/probe.h"

#define NH_PROBE(id) extern const struct nh_probe nh_probe_##id;
#include "probes/probes.inc"
#undef NH_PROBE

const struct nh_probe *const nh_probes[] = {
#define NH_PROBE(id) &nh_probe_##id,
#include "probes/probes.inc"
#undef NH_PROBE
    NULL,
};
