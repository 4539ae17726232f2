// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static const char *const switch_words[] = {"off", "on", NULL};

static const struct nh_knob knobs[] = {
    {.name = "star", .max = 1, .help = "norm on the attention input of layer 1", .words = switch_words},
    {0},
};

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    if (pos->kind == NH_ATTN) {
        const struct nh_inner inner = {.norm_qkv = true};
        bool star = knob[0] != 0 && pos->layer == 1;
        *x = nh_add(b, *x, nh_branch_with(b, star ? nh_norm(b, NH_N1, *x, 1) : *x, &inner));
    } else { /* the skip is the normed stream */
        nh_val h = nh_norm(b, NH_N1, *x, 1);
        *x = nh_add(b, h, nh_branch(b, h));
    }
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    bool attention = pos->kind == NH_ATTN;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .norm_qkv = attention, .norm_skip = !attention,
                                .pre_norm = attention && knob[0] != 0 && pos->layer == 1};
}

const struct nh_layout nh_layout_hybridnorm = {
    .name = "hybridnorm",
    .equation = "u = x + A(x), q, k, v normed per head; h = N(u); x' = h + F(h); final norm",
    .gains = "all 1",
    .law = "after attention 1 + v_f + v_a, after FFN 1 + v_f",
    .source = "arXiv:2503.04598 [secondary]; BryceZhuo/HybridNorm dense_model/olmo/model.py [read]; star = on also "
              "norms the attention input of layer 1",
    .knobs = knobs,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
