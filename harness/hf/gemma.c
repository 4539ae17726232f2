// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/hf/family.h"

#define GEMMA                                                                                                                     \
    {"layout", "sandwich"}, {"norm", "rms"}, {"norm-cast", "after-gain"}, {"gain-form", "1+w"}, {"pos", "rope"},                  \
        {"score-scale", "after"}, {"embed-scale", "sqrt"}
#define RECIPE {"ffn", "geglu"}, {"ffn-mult", "4"}, {"eps", "1e-6"}, {"tie", "on"}, {"init", "normal"}

#define KEYS                                                                                                                      \
    {"head_dim", "head-dim", &nh_key_head_dim, "256", NULL, NULL},                                                     \
        {"hidden_activation", "ffn", &nh_key_word, "geglu", NULL, NH_GATED},                                                       \
        {"rms_norm_eps", "eps", &nh_key_real, "1e-6", NULL, NULL},                                                                 \
        {"query_pre_attn_scalar", "query-scalar", &nh_key_query_scalar, "256", NULL, NULL},                                                \
        {NULL, "tie", &nh_key_tie, "on", NULL, NULL}, {NULL, "bias", &nh_key_bias, NULL, NULL, NULL},              \
        NH_KEY_MUST("use_bidirectional_attention", "false")

#define TENSORS                                                                                                                   \
    NH_TENSORS_ENDS, NH_TENSORS_ATTENTION, NH_TENSORS_FFN,                                                                        \
        {"attn.norm_pre.gain", "layers.%d.input_layernorm.weight", NH_WHOLE, false},                                              \
        {"attn.norm_post.gain", "layers.%d.post_attention_layernorm.weight", NH_WHOLE, false},                                    \
        {"ffn.norm_pre.gain", "layers.%d.pre_feedforward_layernorm.weight", NH_WHOLE, false},                                     \
        {"ffn.norm_post.gain", "layers.%d.post_feedforward_layernorm.weight", NH_WHOLE, false}

const struct nh_arch nh_arch_gemma2 = {
    .name = "gemma2",
    .what = "sandwich, gains 1 + w, soft caps, every second layer sees a window",
    .source = "huggingface/transformers models/gemma2; arXiv:2408.00118; init is not published, 0.02 here",
    .types = NH_WORDS("gemma2"),
    .class = "Gemma2ForCausalLM",
    .fixed = NH_SETTINGS(GEMMA),
    .recipe = NH_SETTINGS(RECIPE, {"pattern", "lg"}, {"window", "4096"}, {"score-softcap", "50"}, {"softcap", "30"}),
    .keys = NH_KEYS(NH_KEYS_SIZES, KEYS, {NULL, "theta", &nh_key_theta, "10000", NULL, NULL},
                    {NULL, "pattern", &nh_key_layers, NULL, NULL, NH_SETTINGS({"", "2"})},
                    {NULL, "window", &nh_key_window, "4096", NULL, NULL},
                    {NULL, "rope-scaling", &nh_key_scaling, NULL, NULL, NULL},
                    {"attn_logit_softcapping", "score-softcap", &nh_key_real, "50", "off", NULL},
                    {"final_logit_softcapping", "softcap", &nh_key_real, "30", "off", NULL}),
    .tensors = NH_TENSORS(TENSORS),
    .prefix = {"model.", ""},
    .unread = NH_UNREAD_ROPE,
};

const struct nh_arch nh_arch_gemma3 = {
    .name = "gemma3",
    .what = "sandwich, gains 1 + w, QK-norm, five layers with a window and a base of their own, then a global one",
    .source = "huggingface/transformers models/gemma3; arXiv:2503.19786; init is not published, 0.02 here",
    .types = NH_WORDS("gemma3_text", "gemma3"),
    .class = "Gemma3ForCausalLM",
    .fixed = NH_SETTINGS(GEMMA, {"qk-norm", "on"}),
    .recipe = NH_SETTINGS(RECIPE, {"pattern", "lllllg"}, {"window", "1024"}, {"theta", "1000000"}, {"theta-local", "10000"}),
    .keys = NH_KEYS(NH_KEYS_SIZES_OR("8", "4", "262208"), KEYS, {NULL, "theta", &nh_key_theta, "1000000", NULL, NULL},
                    {NULL, "pattern", &nh_key_layers, NULL, NULL, NH_SETTINGS({"sliding_window_pattern|_sliding_window_pattern", "6"})},
                    {NULL, "window", &nh_key_window, "4096", NULL, NULL},
                    {NULL, "theta-local", &nh_key_theta_local, "10000", NULL, NULL},
                    {NULL, "rope-scaling", &nh_key_scaling_global, NULL, NULL, NULL},
                    {"attn_logit_softcapping", "score-softcap", &nh_key_real, "off", NULL, NULL},
                    {"final_logit_softcapping", "softcap", &nh_key_real, "off", NULL, NULL}),
    .tensors = NH_TENSORS(TENSORS, NH_TENSORS_QK_NORM),
    .prefix = {"model.", ""},
    .unread = NH_WORDS("rotary_emb.inv_freq", "vision_tower.", "multi_modal_projector."), /* text alone goes through */
};
