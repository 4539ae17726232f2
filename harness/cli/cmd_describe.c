// SPDX-License-Identifier: GPL-3.0-or-later
/** harness describe: what a layout is, and what it costs. */
#include "harness/cli/cli.h"
#include "harness/cli/names.h"
#include "harness/cli/options.h"
#include "harness/core/err.h"
#include "harness/core/model.h"

#include <stdio.h>

int nh_cmd_describe(int argc, char **argv)
{
    const struct nh_layout *layout;
    if (argc != 1)
        return nh_fail(NH_USAGE, "describe takes one layout ('harness list layouts' shows them)");
    int status = nh_find_layout(&layout, argv[0]);
    if (status)
        return status;
    char name[64];
    snprintf(name, sizeof name, "--layout=%s", layout->name);
    char *arguments[] = {name};
    struct nh_options options;
    status = nh_options_parse(&options, 1, arguments);
    if (status)
        return status;
    const struct nh_config *c = &options.config;
    struct nh_graph *g;
    enum { VOCAB = 47, SEQ = 51, BATCH = 4 }; /* of the default data */
    status = nh_graph_build(&g, c, BATCH, SEQ, VOCAB);
    if (status)
        return status;
    printf("%s\n", layout->name);
    for (int i = 0; layout->aliases && layout->aliases[i]; i++)
        printf("%s%s", i ? ", " : "  also       ", layout->aliases[i]);
    printf("%s  sublayer   %s\n  gains      %s\n  law        %s\n  source     %s\n", layout->aliases ? "\n" : "", layout->equation,
           layout->gains, layout->law, layout->source);
    for (const struct nh_knob *k = layout->knobs; k && k->name; k++) {
        if (k->words) {
            printf("  knob       %s = %s (", k->name, k->words[(int)k->start]);
            for (int w = 0; k->words[w]; w++)
                printf("%s%s", w ? "|" : "", k->words[w]);
            printf("): %s\n", k->help);
        } else {
            printf("  knob       %s = %g (%g..%g): %s\n", k->name, k->start, k->min, k->max, k->help);
        }
    }
    printf("  at depth %d, width %d, batch %d of %d tokens:\n", c->depth, c->width, BATCH, SEQ);
    printf("  norms      %d\n  parameters %zu\n  operations %.4g in matrix products, forward\n", g->n_norms, nh_graph_parameters(g),
           nh_graph_flops(g));
    nh_graph_free(g);
    return NH_OK;
}
