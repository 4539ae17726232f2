// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

enum { SCALE, INPUT_NORM };
enum { SCALE_NONE, SCALE_AFTER, SCALE_TWICE };

static const char *const scale_words[] = {[SCALE_NONE] = "none", [SCALE_AFTER] = "l+1", [SCALE_TWICE] = "2l", NULL};
static const char *const switch_words[] = {"off", "on", NULL};

static const struct nh_knob knobs[] = {
    [SCALE] = {.name = "scale", .start = SCALE_AFTER, .max = SCALE_TWICE, .help = "o into x times 1/sqrt of this", .words = scale_words},
    [INPUT_NORM] = {.name = "input-norm", .max = 1, .help = "norm on the sum that the branch reads", .words = switch_words},
    {0},
};

/** Factor on the branch where it is added to the first stream. */
static double factor(const struct nh_pos *pos, const double *knob)
{
    return knob[SCALE] == SCALE_NONE ? 1 : 1 / sqrt(knob[SCALE] == SCALE_TWICE ? 2 * pos->layer : pos->layer + 1);
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    nh_val sum = nh_read_both(b, x[0], nh_norm(b, NH_SECOND, x[1], 1));
    nh_val o = nh_branch(b, knob[INPUT_NORM] > 0 ? nh_norm(b, NH_N1, sum, 1) : sum);
    x[0] = nh_norm(b, NH_OUTER, nh_add(b, x[0], nh_scale_branch(b, o, factor(pos, knob))), 1);
    x[1] = nh_add(b, x[1], o);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    return (struct nh_law_term){.skip = 1, .branch = factor(pos, knob), .in_scale = 1, .with_second = true,
                                .pre_norm = knob[INPUT_NORM] > 0, .outer_norm = true, .second = 1};
}

static nh_val leave(struct nh_builder *b, const nh_val *x)
{
    return nh_add(b, x[0], nh_norm(b, NH_FINAL, x[1], 1));
}

const struct nh_layout nh_layout_siamese = {
    .name = "siamese",
    .aliases = (const char *const[]){"siamese-norm", NULL},
    .equation = "o = f(x + N(y)), x' = N(x + o/sqrt(l+1)), y' = y + o; the head reads x_L + N(y_L)",
    .gains = "all 1; the factor is fixed",
    .law = "stream 0: 1; stream 1: r0^2 + sum of v, the branch's input having q up to 4",
    .source = "SiameseNorm, arXiv:2602.08064, equation and 1/sqrt(l+1) [secondary]; Qwen-Applications/SiameseNorm [read] has "
              "1/sqrt(2l) and one more norm on what the FFN reads (its DeiT: attention too) and on what the head reads; "
              "--set scale=2l, input-norm=on give the first two",
    .knobs = knobs,
    .n_streams = 2,
    .sublayer = sublayer,
    .exit = leave,
    .law_term = law_term,
};
