// SPDX-License-Identifier: GPL-3.0-or-later
/** Numbers of options that vanish in the format in which they are used. */
#include "harness/cli/options.h"
#include "harness/core/core.h"
#include "harness/core/err.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

/** Factors and divisors that operations use in their carrier; 0 and below: not in use. */
static const struct {
    const char *option;
    size_t at;
} numbers[] = {
#define AT(field) offsetof(struct nh_config, field)
    {"softcap", AT(softcap)},
    {"score-softcap", AT(score_softcap)},
    {"query-scalar", AT(query_scalar)},
    {"pb-relax", AT(pb_relax)},
    {"ln-relax", AT(ln_relax)},
    {"z-loss", AT(z_loss)},
    {"embed-scale", AT(embed_scale)},
    {"embed-shrink", AT(embed_shrink)},
    {"route-scale", AT(moe.route_scale)},
    {"rope-scaling", AT(rope_scaling.factor)},
    {"theta", AT(theta)},
    {"theta-local", AT(theta_local)},
#undef AT
};

int nh_numbers_fit(const struct nh_config *config)
{
    struct nh_fmt formats[NH_ROLE_COUNT];
    nh_policy_formats(config, formats);
    bool wide = false;
    for (int role = 0; role < NH_ROLE_COUNT; role++)
        wide |= *formats[role].name && nh_fmt_wide(&formats[role]);
    const double least = wide ? DBL_MIN : (double)FLT_MIN;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const double x = *(const double *)((const char *)config + numbers[i].at);
        if (x > 0 && (x < least || x > 1 / least))
            return nh_fail(NH_USAGE, "--%s %g is out of the range of %s, in which it is used; it must be in %.2g..%.2g", numbers[i].option,
                           x, wide ? "fp64" : "fp32", least, 1 / least);
    }
    const struct nh_fmt *f = &formats[NH_ROLE_EMBEDDING];
    const double scale = nh_round(f, config->embed_scale);
    if (config->embed_scale > 0 && (scale == 0 || !isfinite(scale)))
        return nh_fail(NH_USAGE, "--embed-scale %g is %g in %s, the format of embeddings; it must be in %.2g..%.6g", config->embed_scale,
                       isnan(scale) ? (double)NAN : scale, f->name, f->min_subnormal, f->max);
    return NH_OK;
}

void nh_note_eps(const struct nh_graph *g)
{
    struct nh_fmt f = g->fmt[NH_ROLE_NORM_STAT];
    bool norms = false;
    for (int r = 0; r < g->n_recs; r++)
        norms |= g->recs[r].op == NH_OP_NORM;
    if (!g->norm_stat_dtype)
        nh_fmt_parse(&f, nh_core_for(g)->bits == 64 ? "fp64" : "fp32");
    if (norms && g->eps > 0 && nh_round(&f, g->eps) == 0)
        fprintf(stderr, "harness: --eps %g is 0 in %s, the format of norm statistics, so that a norm of zeros is nan; take %g or more\n",
                g->eps, f.name, f.min_subnormal);
}
