// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/preset.h"

#include <stddef.h>
#include <string.h>

#define OPTIONS(...) (const struct nh_preset_option[]){__VA_ARGS__, {NULL, NULL}}

/* LayerNorm sandwich of a GPT-2 style decoder, biases, learned positions, one matrix for embedding and head. */
#define COGVIEW                                                                                                        \
    {"layout", "sandwich"}, {"norm", "layer"}, {"pos", "learned"}, {"init", "gpt2"}, {"ffn", "gelu"}, {"bias", "on"},  \
        {"tie", "on"}, {"score-scale", "before"}

static const struct nh_preset cogview = {
    .name = "cogview",
    .what = "LayerNorm sandwich, inputs of norms divided by max|x|/8, no PB-relax: the released code",
    .source = "THUDM/CogView mpu/sparse_transformer.py",
    .options = OPTIONS(COGVIEW, {"ln-relax", "8"}, {"norm-cast", "before-gain"}), /* as apex's FusedLayerNorm rounds */
};

static const struct nh_preset cogview_paper = {
    .name = "cogview-paper",
    .what = "LayerNorm sandwich, PB-relax with alpha 32, inputs of norms divided by max|x|, embedding gradient times 0.1",
    .source = "arXiv:2105.13290 section 2.4",
    .options = OPTIONS(COGVIEW, {"ln-relax", "1"}, {"pb-relax", "32"}, {"embed-shrink", "0.1"}),
};

const struct nh_preset *const nh_presets[] = {&cogview, &cogview_paper, NULL};

const struct nh_preset *nh_preset_find(const char *name)
{
    for (size_t i = 0; name && nh_presets[i]; i++)
        if (strcmp(nh_presets[i]->name, name) == 0)
            return nh_presets[i];
    return NULL;
}
