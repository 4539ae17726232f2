// SPDX-License-Identifier: GPL-3.0-or-later
/** harness check: are the derivatives right? */
#include "harness/cli/cli.h"
#include "harness/cli/names.h"
#include "harness/core/check.h"
#include "harness/core/err.h"
#include "harness/core/graph.h"

#include <stdio.h>
#include <string.h>

static void print(const struct nh_check *c, int *bad)
{
    *bad += !nh_check_good(c);
    printf("%-24s %6d %12.1e %12.1e %12.1e  %s\n", c->subject, c->cases, c->difference, c->adjoint64, c->adjoint32,
           nh_check_good(c) ? "ok" : "NOT OK");
}

int nh_cmd_check(int argc, char **argv)
{
    const struct nh_layout *one = NULL;
    if (argc > 1)
        return nh_fail(NH_USAGE, "check takes one layout or all, not '%.60s' as well", argv[1]);
    int status = argc == 1 && strcmp(argv[0], "all") != 0 ? nh_find_layout(&one, argv[0]) : NH_OK;
    if (status)
        return status;
    struct nh_check checks[NH_OP_COUNT];
    int n = 0, bad = 0;
    if (!one)
        status = nh_check_operations(checks, &n);
    if (status)
        return status;
    printf("%-24s %6s %12s %12s %12s\n%-24s %6s %12.0e %12.0e %12.0e\n", "", "cases", "difference", "adjoint64", "adjoint32", "limit", "",
           NH_CHECK_DIFFERENCE, NH_CHECK_ADJOINT64, NH_CHECK_ADJOINT32);
    for (int i = 0; i < n; i++)
        print(&checks[i], &bad);
    for (int i = 0; nh_layouts[i]; i++) {
        if (one && nh_layouts[i] != one)
            continue;
        status = nh_check_layout(nh_layouts[i], &checks[0]);
        if (status)
            return status;
        print(&checks[0], &bad);
    }
    puts("difference: derivative against central differences in fp64, over its norm; adjoint: |<u,Jv> - <J'u,v>| / (|u| |Jv|)");
    return bad ? nh_fail(NH_FAILED, "%d of the checks above are beyond their limit", bad) : NH_OK;
}
