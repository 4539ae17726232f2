// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/scaler.h"

void nh_scaler_start(struct nh_scaler *s, const struct nh_scaler_rule *rule)
{
    *s = (struct nh_scaler){.rule = *rule, .scale = rule->start, .tolerance = rule->hysteresis};
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

bool nh_scaler_update(struct nh_scaler *s, bool overflow)
{
    const struct nh_scaler_rule *r = &s->rule;
    if (r->window == 0)
        return !overflow;
    if (!overflow) {
        if (++s->clean < r->window)
            return true;
        s->clean = 0, s->tolerance = r->hysteresis;
        s->scale = r->ceiling > 0 ? least(2 * s->scale, r->ceiling) : 2 * s->scale;
        return true;
    }
    s->clean = 0;
    if (s->tolerance > 1) {
        s->tolerance--;
        return true;
    }
    if (s->scale <= r->floor)
        return false;
    s->scale = s->scale / 2 > r->floor ? s->scale / 2 : r->floor;
    return true;
}
