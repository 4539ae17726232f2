// SPDX-License-Identifier: GPL-3.0-or-later
/** What left the format, and where: counters of every stored value. */
#include "probes/probe.h"

static int measure(const struct nh_view *view, struct nh_rows *rows)
{
    const struct nh_model *m = view->model;
    const struct nh_counts *counts = view->counts;
    int site = 0;
    for (int k = 0; k < rows->n; k += NH_STREAMS) { /* the sites of a step count in its row of stream 0 */
        const struct nh_step *step = &m->graph->steps[k / NH_STREAMS];
        struct nh_counts sum = {0};
        double backward = 0;
        for (; site < m->graph->n_sites && m->graph->sites[site].layer == step->layer &&
               (step->sublayer == NH_SUB_BLOCK || m->graph->sites[site].sublayer == step->sublayer);
             site++) {
            const struct nh_counts *c = &counts[site * NH_DIRECTIONS + NH_FWD];
            sum.overflow += c->overflow, sum.nan_made += c->nan_made, sum.propagated += c->propagated;
            sum.zero_made += c->zero_made, sum.underflow += c->underflow, sum.subnormal += c->subnormal, sum.total += c->total;
            backward += (double)counts[site * NH_DIRECTIONS + NH_BWD].overflow;
        }
        nh_set(rows, k, NH_LAYERS_OVERFLOW, (double)sum.overflow);
        nh_set(rows, k, NH_LAYERS_NAN_MADE, (double)sum.nan_made);
        nh_set(rows, k, NH_LAYERS_PROPAGATED, (double)sum.propagated);
        nh_set(rows, k, NH_LAYERS_ZERO_MADE, (double)sum.zero_made);
        nh_set(rows, k, NH_LAYERS_UNDERFLOW, (double)sum.underflow);
        nh_set(rows, k, NH_LAYERS_SUBNORMAL, (double)sum.subnormal);
        nh_set(rows, k, NH_LAYERS_TOTAL, (double)sum.total);
        if (view->backward)
            nh_set(rows, k, NH_LAYERS_OVERFLOW_BWD, backward);
    }
    rows->sites = true;
    return 0;
}

const struct nh_probe nh_probe_overflow = {
    .name = "overflow",
    .what = "counts of stored values that overflowed, became NaN, passed one on, underflowed; and sites.csv with headroom",
    .columns = "overflow nan_made propagated zero_made underflow subnormal total overflow_bwd",
    .by_default = true,
    .gradients = NH_GRADIENTS_WANTED,
    .values = NH_READS_NONE,
    .measure = measure,
};
