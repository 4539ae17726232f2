// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/hf/family.h"

#define QWEN                                                                                                                      \
    {"layout", "pre"}, {"norm", "rms"}, {"norm-cast", "before-gain"}, {"pos", "rope"}, {"score-scale", "after"}

/* The first max_window_layers layers see all keys, where a window is used at all; 4096 is the class's. */
#define KEYS                                                                                                                      \
    NH_KEYS_SIZES, {"hidden_act", "ffn", &nh_key_word, "swiglu", NULL, NH_GATED},                                                  \
        {"rms_norm_eps", "eps", &nh_key_real, "1e-6", NULL, NULL}, {NULL, "theta", &nh_key_theta, "10000", NULL, NULL},             \
        {NULL, "pattern", &nh_key_layers_qwen, NULL, NULL, NULL},                                                                  \
        {NULL, "window", &nh_key_window, "4096", NULL, NULL},                                                           \
        {NULL, "rope-scaling", &nh_key_scaling, NULL, NULL, NULL}, {NULL, "tie", &nh_key_tie, "", NULL, NULL},     \
        NH_KEY_MUST("partial_rotary_factor", "1")

const struct nh_arch nh_arch_qwen2 = {
    .name = "qwen2",
    .what = "Llama with biases on queries, keys and values",
    .source = "huggingface/transformers models/qwen2; arXiv:2407.10671; sizes of 7B",
    .types = NH_WORDS("qwen2"),
    .class = "Qwen2ForCausalLM",
    .fixed = NH_SETTINGS(QWEN, {"bias", "qkv"}),
    .recipe = NH_SETTINGS({"ffn", "swiglu"}, {"ffn-mult", "5.285714285714286"}, {"eps", "1e-6"}, {"theta", "1000000"},
                          {"init", "normal"}),
    .keys = NH_KEYS(KEYS, {"head_dim", "head-dim", &nh_key_head_dim, "auto", NULL, NULL}),
    .tensors = NH_TENSORS(NH_TENSORS_ENDS, NH_TENSORS_PRE, NH_TENSORS_ATTENTION, NH_TENSORS_FFN),
    .prefix = {"model.", ""},
    .unread = NH_UNREAD_ROPE,
    .open = NH_WORDS("gain-form"),
};

const struct nh_arch nh_arch_qwen3 = {
    .name = "qwen3",
    .what = "Llama with a norm on queries and keys of each head",
    .source = "huggingface/transformers models/qwen3; arXiv:2505.09388; sizes of 8B",
    .types = NH_WORDS("qwen3"),
    .class = "Qwen3ForCausalLM",
    .fixed = NH_SETTINGS(QWEN, {"qk-norm", "on"}),
    .recipe = NH_SETTINGS({"ffn", "swiglu"}, {"ffn-mult", "3"}, {"eps", "1e-6"}, {"theta", "1000000"}, {"init", "normal"}),
    .keys = NH_KEYS(KEYS, {"head_dim", "head-dim", &nh_key_head_dim, "128", NULL, NULL}, {NULL, "bias", &nh_key_bias, NULL, NULL, NULL}),
    .tensors = NH_TENSORS(NH_TENSORS_ENDS, NH_TENSORS_PRE, NH_TENSORS_ATTENTION, NH_TENSORS_QK_NORM, NH_TENSORS_FFN),
    .prefix = {"model.", ""},
    .unread = NH_UNREAD_ROPE,
    .open = NH_WORDS("gain-form"),
};
