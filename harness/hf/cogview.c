// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/hf/family.h"

/* LayerNorm sandwich of a GPT-2 style decoder, biases, learned positions, one matrix for embedding and head. */
#define COGVIEW                                                                                                                   \
    {"layout", "sandwich"}, {"norm", "layer"}, {"pos", "learned"}, {"ffn", "gelu"}, {"ffn-mult", "4"}, {"bias", "on"},            \
        {"tie", "on"}, {"score-scale", "before"}

static const struct nh_arch_tensor tensors[] = {
    {"embed", "word_embeddings.weight", NH_WHOLE, false},
    {"positions", "transformer.position_embeddings.weight", NH_WHOLE, false},
    {"attn.norm_pre.gain", "transformer.layers.%d.input_layernorm.weight", NH_WHOLE, false},
    {"attn.norm_pre.bias", "transformer.layers.%d.input_layernorm.bias", NH_WHOLE, false},
    {"attn.qkv", "transformer.layers.%d.attention.query_key_value.weight", NH_WHOLE, false},
    {"attn.qkv.bias", "transformer.layers.%d.attention.query_key_value.bias", NH_WHOLE, false},
    {"attn.out", "transformer.layers.%d.attention.dense.weight", NH_WHOLE, false},
    {"attn.out.bias", "transformer.layers.%d.attention.dense.bias", NH_WHOLE, false},
    {"attn.norm_post.gain", "transformer.layers.%d.third_layernorm.weight", NH_WHOLE, false},
    {"attn.norm_post.bias", "transformer.layers.%d.third_layernorm.bias", NH_WHOLE, false},
    {"ffn.norm_pre.gain", "transformer.layers.%d.post_attention_layernorm.weight", NH_WHOLE, false},
    {"ffn.norm_pre.bias", "transformer.layers.%d.post_attention_layernorm.bias", NH_WHOLE, false},
    {"ffn.in", "transformer.layers.%d.mlp.dense_h_to_4h.weight", NH_WHOLE, false},
    {"ffn.in.bias", "transformer.layers.%d.mlp.dense_h_to_4h.bias", NH_WHOLE, false},
    {"ffn.out", "transformer.layers.%d.mlp.dense_4h_to_h.weight", NH_WHOLE, false},
    {"ffn.out.bias", "transformer.layers.%d.mlp.dense_4h_to_h.bias", NH_WHOLE, false},
    {"ffn.norm_post.gain", "transformer.layers.%d.fourth_layernorm.weight", NH_WHOLE, false},
    {"ffn.norm_post.bias", "transformer.layers.%d.fourth_layernorm.bias", NH_WHOLE, false},
    {"norm_final.gain", "transformer.final_layernorm.weight", NH_WHOLE, false},
    {"norm_final.bias", "transformer.final_layernorm.bias", NH_WHOLE, false},
    {NULL, NULL, NH_WHOLE, false},
};

const struct nh_arch nh_arch_cogview = {
    .name = "cogview",
    .what = "LayerNorm sandwich, inputs of norms divided by max|x|/8, no PB-relax: the released code",
    .source = "THUDM/CogView mpu/sparse_transformer.py",
    .types = NH_WORDS("cogview"),
    .fixed = NH_SETTINGS(COGVIEW, {"norm-cast", "before-gain"}), /* as apex's FusedLayerNorm rounds */
    .recipe = NH_SETTINGS({"init", "gpt2"}, {"ln-relax", "8"}),
    .keys = NH_KEYS({"num_layers", "depth", &nh_key_count, NULL, NULL, NULL}, {"hidden_size", "width", &nh_key_count, NULL, NULL, NULL},
                    {"num_attention_heads", "heads", &nh_key_count, NULL, NULL, NULL},
                    {"vocab_size", "vocab", &nh_key_count, NULL, NULL, NULL},
                    {"max_sequence_length", NULL, &nh_key_positions, "", NULL, NULL},
                    {"layernorm_epsilon", "eps", &nh_key_real, "1e-5", NULL, NULL},
                    {"scale_normalization", "ln-relax", &nh_key_word, "8", NULL, NH_SETTINGS({"true", "8"}, {"false", "off"})},
                    NH_KEY_MUST("attention_mask_sep", "0")),
    .tensors = tensors,
    .prefix = {"", ""},
};

const struct nh_arch nh_arch_cogview_paper = {
    .name = "cogview-paper",
    .what = "LayerNorm sandwich, PB-relax with alpha 32, inputs of norms divided by max|x|, embedding gradient times 0.1",
    .source = "arXiv:2105.13290 section 2.4",
    .fixed = NH_SETTINGS(COGVIEW),
    .recipe = NH_SETTINGS({"init", "gpt2"}, {"ln-relax", "1"}, {"pb-relax", "32"}, {"embed-shrink", "0.1"}),
    .tensors = tensors,
    .prefix = {"", ""},
};
