// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static const char *const site_words[] = {"both", "attn", "ffn", NULL};

static const struct nh_knob knobs[] = {
    {.name = "sites", .max = 2, .help = "sublayers that have N2; the other one is pre", .words = site_words},
    {0},
};

/** True where this sublayer has an N2. */
static bool here(const struct nh_pos *pos, const double *knob)
{
    return knob[0] == 0 || (knob[0] == 1) == (pos->kind == NH_ATTN);
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    nh_val f = nh_branch(b, nh_norm(b, NH_N1, *x, 1));
    *x = nh_add(b, *x, here(pos, knob) ? nh_norm(b, NH_N2, f, 1) : f);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .pre_norm = true, .post_norm = here(pos, knob), .post_gain = 1};
}

const struct nh_layout nh_layout_sandwich = {
    .name = "sandwich",
    .aliases = (const char *const[]){"sandwich-norm", "sandwich-ln", "peri-ln", NULL},
    .equation = "x' = x + N2(f(N1(x))); final norm",
    .gains = "all 1",
    .law = "q_k = r0^2 + k",
    .source = "CogView, arXiv:2105.13290 section 2.4 [secondary], THUDM/CogView mpu/sparse_transformer.py [read]; "
              "Peri-LN, arXiv:2502.02732 [secondary]",
    .knobs = knobs,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
