// SPDX-License-Identifier: GPL-3.0-or-later
/** harness check: are the derivatives right, and do models at their start follow the laws of docs/laws.md? */
#include "harness/cli/cli.h"
#include "harness/cli/names.h"
#include "harness/cli/options.h"
#include "harness/core/check.h"
#include "harness/core/check_laws.h"
#include "harness/core/err.h"
#include "harness/core/graph.h"
#include "harness/core/law.h"
#include "harness/core/threads.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- derivatives ---- */

static void print(const struct nh_check *c, int *bad)
{
    *bad += !nh_check_good(c);
    printf("%-24s %6d %12.1e %12.1e %12.1e  %s\n", c->subject, c->cases, c->difference, c->adjoint64, c->adjoint32,
           nh_check_good(c) ? "ok" : "NOT OK");
}

/** Of one layout, or of all operations and all layouts. */
static int check_derivatives(const struct nh_layout *one)
{
    struct nh_check checks[NH_OP_COUNT];
    int n = 0, bad = 0;
    int status = one ? NH_OK : nh_check_operations(checks, &n);
    if (status)
        return status;
    printf("%-24s %6s %12s %12s %12s\n%-24s %6s %12.0e %12.0e %12.0e\n", "", "cases", "difference", "adjoint64",
           "adjoint32", "limit", "", NH_CHECK_DIFFERENCE, NH_CHECK_ADJOINT64, NH_CHECK_ADJOINT32);
    for (int i = 0; i < n; i++)
        print(&checks[i], &bad);
    for (int i = 0; nh_layouts[i]; i++) {
        if (one && nh_layouts[i] != one)
            continue;
        for (int switches = 0; switches < 2; switches++) {
            status = nh_check_layout(nh_layouts[i], switches, &checks[0]);
            if (status)
                return status;
            print(&checks[0], &bad);
        }
    }
    puts("difference: derivative against central differences in fp64, over its norm; adjoint: |<u,Jv> - <J'u,v>| / "
         "(|u| |Jv|)\n"
         "switches: --pb-relax --ln-relax --softcap --z-loss --embed-shrink; their constants held, the shrink as a factor");
    return bad ? nh_fail(NH_FAILED, "%d of the checks above are beyond their limit", bad) : NH_OK;
}

/* ---- laws ---- */

enum { SEEDS = 8 };

/** Common to all rows; the init is unit. Positions are not in the laws. */
#define SETTING "--width 128 --seq 64 --batch 2 --pos nope --eps 1e-8 --dtype fp32 "

/* Why a measurement may lie beside its law. */
static const char scatter[] = "finite width, seeds";
static const char alike[] = "same, and tokens grow alike";
static const char gentle[] = "same, on a start that is exact";
static const char few[] = "same, and tokens are all alike";
static const char exact[] = "eps";

/** Tolerances fixed before anything was measured with this program: independent simulations of width 96 and 128 scatter
 * by 3 % over 3 seeds, and where tokens grow alike lie up to 5 % beside the law. */
static const struct law_row {
    const char *name, *words; /**< words: what `harness run` would be told */
    int depths[5];            /**< closed by 0 */
    double r0, tolerance;     /**< RMS that enters layer 1; relative deviation of the mean */
    const char *reason;
    int back, stream; /**< sublayers before the last one; which stream */
} law_rows[] = {
    {"pre, FFN ReLU only", "--layout pre --branches ffn --ffn relu", {8, 16, 32, 64}, 1, 0.05, scatter, 0, 0},
    {"pre, FFN GELU only", "--layout pre --branches ffn", {60}, 1, 0.05, scatter, 0, 0},
    {"pre", "--layout pre", {8, 16, 32, 60}, 1, 0.08, alike, 0, 0},
    {"pre, projections 1/sqrt(2L)", "--layout pre --branch-init invsqrt2L", {32, 60}, 1, 0.03, gentle, 0, 0},
    {"sandwich", "--layout sandwich", {8, 16, 32, 64}, 1, 0.06, scatter, 0, 0},
    {"reordered", "--layout reordered", {8, 16, 32, 64}, 1, 0.06, scatter, 0, 0},
    {"normformer", "--layout normformer", {8, 16, 32, 64}, 1, 0.06, scatter, 0, 0},
    {"sandwich, FFN only", "--layout sandwich --branches ffn", {8, 16, 32, 64}, 1, 0.05, scatter, 0, 0},
    {"sandwich-depth", "--layout sandwich-depth", {8, 16, 32, 60}, 1, 0.03, gentle, 0, 0},
    {"sandwich-depth, r0 0.4933", "--layout sandwich-depth", {8, 16, 32, 60}, 0.4933, 0.03, gentle, 0, 0},
    {"sandwich-l", "--layout sandwich-l", {8, 16, 32, 64}, 1, 0.04, scatter, 0, 0},
    {"pangu, r0 0.5", "--layout pangu", {60}, 0.5, 0.02, gentle, 0, 0},
    {"lns, FFN ReLU only", "--layout lns --branches ffn --ffn relu", {32}, 1, 0.04, scatter, 0, 0},
    {"lns", "--layout lns", {32, 60}, 1, 0.05, alike, 0, 0},
    {"mix-ln", "--layout mix-ln", {60}, 1, 0.06, few, 0, 0},
    {"hybridnorm, behind the FFN", "--layout hybridnorm", {60}, 1, 0.08, few, 0, 0},
    {"hybridnorm, behind attention", "--layout hybridnorm", {60}, 1, 0.08, few, 1, 0},
    {"subln", "--layout subln", {60}, 1, 0.06, scatter, 0, 0},
    {"residual, stream y", "--layout residual", {60}, 1, 0.04, few, 0, 1},
    {"residual, stream x", "--layout residual", {60}, 1, 1e-4, exact, 0, 0},
    {"siamese, stream y, W_Q = 0", "--layout siamese --qk-init 0", {60}, 1, 0.08, few, 0, 1},
    {"siamese, stream y, normed", "--layout siamese --set input-norm=on", {60}, 1, 0.08, few, 0, 1},
    {"siamese, stream x", "--layout siamese", {60}, 1, 1e-4, exact, 0, 0},
    {"post", "--layout post", {60}, 1, 1e-4, exact, 0, 0},
    {"deepnorm", "--layout deepnorm", {60}, 1, 1e-4, exact, 0, 0},
    {"keel", "--layout keel", {60}, 1, 1e-4, exact, 0, 0},
    {"admin", "--layout admin", {60}, 1, 1e-4, exact, 0, 0},
    {"b2t", "--layout b2t", {60}, 1, 1e-4, exact, 0, 0},
    {"layerscale, lam 0.1", "--layout layerscale --set lam=0.1", {60}, 1, 0.08, alike, 0, 0},
    {"parallel", "--layout parallel", {60}, 1, 0.08, alike, 0, 0},
};

/** The configuration of `harness run SETTING WORDS`. */
static int read_words(const char *words, int depth, double r0, struct nh_config *c)
{
    char text[256], *argv[32], *rest = text;
    int argc = 0;
    struct nh_options options;
    const int length = snprintf(text, sizeof text, SETTING "%s", words);
    assert(length < (int)sizeof text);
    for (char *word; (word = strsep(&rest, " ")) != NULL && argc < COUNT(argv);)
        argv[argc++] = word;
    const int status = nh_options_parse(&options, argc, argv);
    *c = options.config;
    c->depth = depth, c->embed_rms = r0, c->data = NULL;
    return status;
}

static int check_laws(void)
{
    int n = 0, bad = 0;
    const char *first = NULL;
    printf("RMS of the stream at the start, %d seeds, unit init, fp32, width 128, 64 independent tokens, eps 1e-8\n"
           "%-29s %3s %9s %9s %9s %8s %7s\n",
           SEEDS, "", "L", "law", "measured", "+-", "%", "limit");
    for (const struct law_row *r = law_rows; r < law_rows + COUNT(law_rows); r++)
        for (int i = 0; i < COUNT(r->depths) && r->depths[i]; i++, n++) {
            struct nh_config c;
            struct nh_law_check x;
            int status = read_words(r->words, r->depths[i], r->r0, &c);
            if (!status)
                status = nh_check_law(&c, SEEDS, r->back, r->stream, &x);
            if (status)
                return status;
            const double deviation = x.rms / x.law - 1;
            const bool good = fabs(deviation) <= r->tolerance;
            printf("%-29s %3d %9.5f %9.5f %9.5f %+8.3f %7g  %-6s  %s\n", r->name, r->depths[i], x.law, x.rms, x.se,
                   100 * deviation, 100 * r->tolerance, good ? "ok" : "NOT OK", r->reason);
            fflush(stdout);
            bad += !good;
            first = good || first ? first : r->name;
        }
    printf("law: recursion on the measured Gram matrix of the input (docs/laws.md); %%: mean over law - 1\n");
    return bad ? nh_fail(NH_FAILED, "%d of %d rows are beyond their limit, the first is: %s", bad, n, first) : NH_OK;
}

/* ---- gradients ---- */

/** Each row's ratio is above that of the next one, and above 1. Order and sign are all that is claimed: where there is
 *  attention, early layers fall faster than the law and late ones slower. */
static const struct {
    const char *name, *words;
    bool last; /**< of a chain: nothing below it */
} gradient_rows[] = {
    {"sandwich", "--layout sandwich", false},
    {"pre", "--layout pre", false},
    {"sandwich-l", "--layout sandwich-l", false},
    {"sandwich-depth", "--layout sandwich-depth", false},
    {"pre, projections 1/sqrt(2L)", "--layout pre --branch-init invsqrt2L", true},
    {"pre, FFN SwiGLU only", "--layout pre --branches ffn --ffn swiglu", false},
    {"sandwich, FFN GELU only", "--layout sandwich --branches ffn", false},
    {"pre, FFN GELU only", "--layout pre --branches ffn", false},
    {"sandwich-depth, FFN GELU only", "--layout sandwich-depth --branches ffn", true},
    {"sandwich, FFN ReLU only", "--layout sandwich --branches ffn --ffn relu", false},
    {"pre, FFN ReLU only", "--layout pre --branches ffn --ffn relu", true},
};

/** No growth and no fall: what is left is noise, a factor of some 5 either way in a single seed. */
static const double post_least = 0.2, post_most = 6;

static int check_gradient(const char *name, const char *words, struct nh_gradient_check *x)
{
    enum { DEPTH = 60 };
    struct nh_config c;
    int status = read_words(words, DEPTH, 1, &c);
    if (!status)
        status = nh_check_gradient(&c, SEEDS, x);
    if (status)
        return status;
    printf("%-29s %9.4g", name, x->growth);
    if (c.branches == NH_BRANCHES_FFN)
        printf(" %9.4g", pow(x->growth, nh_law_ffn(c.ffn, 1, 1).zeta));
    else
        printf(" %9s", "");
    printf(" %9.4g %6.2f  %-5s", x->ratio, exp(x->se), x->falls ? "yes" : "no");
    return NH_OK;
}

static int check_gradients(void)
{
    int bad = 0;
    double above = (double)INFINITY;
    struct nh_gradient_check x;
    printf("Gradient of the stream at the start, 60 layers, geometric means of %d seeds, random cotangent\n"
           "%-29s %9s %9s %9s %6s  %-5s\n",
           SEEDS, "", "q_L/q_0", "^zeta", "G_0/G_L", "*/", "falls");
    for (int i = 0; i < COUNT(gradient_rows); i++) {
        const int status = check_gradient(gradient_rows[i].name, gradient_rows[i].words, &x);
        if (status)
            return status;
        const bool good = x.ratio > 1 && x.ratio < above && x.falls;
        printf("  %-6s  > %s\n", good ? "ok" : "NOT OK", gradient_rows[i].last ? "1" : "the next");
        fflush(stdout);
        bad += !good;
        above = gradient_rows[i].last ? (double)INFINITY : x.ratio;
    }
    const int status = check_gradient("post", "--layout post", &x);
    if (status)
        return status;
    const bool good = x.ratio >= post_least && x.ratio <= post_most;
    printf("  %-6s  %g..%g\n", good ? "ok" : "NOT OK", post_least, post_most);
    bad += !good;
    puts("q: mean square of the stream; G: that of its gradient; ^zeta: law of the FFN alone, (q_L/q_0)^zeta\n"
         "*/: factor of one standard error; falls: G is smaller at each quarter of the depth than at the one before\n"
         "Only sign and order are checked: the ratio amplifies what the law leaves out.");
    return bad ? nh_fail(NH_FAILED, "%d of the rows above are out of order", bad) : NH_OK;
}

int nh_cmd_check(int argc, char **argv)
{
    if (argc > 1)
        return nh_fail(NH_USAGE, "check takes one layout, all, laws or gradients, not '%.60s' as well", argv[1]);
    const int started = nh_threads_start(nh_threads_available());
    if (started)
        return started;
    if (argc == 0 || strcmp(argv[0], "all") == 0)
        return check_derivatives(NULL);
    if (strcmp(argv[0], "laws") == 0)
        return check_laws();
    if (strcmp(argv[0], "gradients") == 0)
        return check_gradients();
    const struct nh_layout *layout;
    const int status = nh_find_layout(&layout, argv[0]);
    return status ? status : check_derivatives(layout);
}
