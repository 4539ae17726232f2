// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static const char *const norm_words[] = {"1", "2", NULL};

static const struct nh_knob knobs[] = {
    {.name = "norms", .max = 1, .help = "one norm for both branches, or one each", .words = norm_words},
    {0},
};

static void block(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos;
    nh_val h = nh_norm(b, NH_N1, *x, 1);
    nh_at(b, NH_ATTN);
    nh_val a = nh_branch(b, h);
    nh_at(b, NH_FFN);
    nh_val f = nh_branch(b, knob[0] > 0 ? nh_norm(b, NH_N1, *x, 1) : h);
    nh_at(b, NH_BLOCK);
    *x = nh_add(b, *x, nh_join(b, a, f));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .pre_norm = true, .same_input = pos->kind == NH_FFN};
}

const struct nh_layout nh_layout_parallel = {
    .name = "parallel",
    .aliases = (const char *const[]){"gpt-j", "palm", NULL},
    .equation = "x' = x + A(N(x)) + F(N(x)), one norm; final norm",
    .gains = "all 1",
    .law = "q after layer l = r0^2 + l (v_a + v_f)",
    .source = "kingoflolz/mesh-transformer-jax mesh_transformer/layers.py [read]; norms = 2: GPT-NeoX, each branch has its own",
    .knobs = knobs,
    .n_streams = 1,
    .block = block,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
