// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/hf/family.h"

#define LLAMA                                                                                                                     \
    {"norm", "rms"}, {"norm-cast", "before-gain"}, {"pos", "rope"}, {"score-scale", "after"}
#define RECIPE {"ffn", "swiglu"}, {"ffn-mult", "2.6875"}, {"init", "normal"}

static const struct nh_arch_key keys[] = {
    NH_KEYS_SIZES,
    {"head_dim", "head-dim", &nh_key_head_dim, "auto", NULL, NULL},
    {"hidden_act", "ffn", &nh_key_word, "swiglu", NULL, NH_GATED},
    {"rms_norm_eps", "eps", &nh_key_real, "1e-6", NULL, NULL},
    {NULL, "theta", &nh_key_theta, "10000", NULL, NULL},
    {NULL, "rope-scaling", &nh_key_scaling, NULL, NULL, NULL},
    {NULL, "tie", &nh_key_tie, "", NULL, NULL},
    {NULL, "bias", &nh_key_bias, NULL, NULL, NULL},
    NH_KEY_MUST("partial_rotary_factor", "1"),
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

const struct nh_arch nh_arch_llama = {
    .name = "llama",
    .what = "pre-norm, RMSNorm, SwiGLU, rotation",
    .source = "huggingface/transformers models/llama; arXiv:2302.13971; init 0.02 [from memory]",
    .types = NH_WORDS("llama"),
    .class = "LlamaForCausalLM",
    .mark = "layers.0.mlp.gate_proj.weight",
    .fixed = NH_SETTINGS(LLAMA, {"layout", "pre"}),
    .recipe = NH_SETTINGS(RECIPE),
    .keys = keys,
    .tensors = NH_TENSORS(NH_TENSORS_ENDS, NH_TENSORS_PRE, NH_TENSORS_ATTENTION, NH_TENSORS_FFN),
    .prefix = {"model.", ""},
    .unread = NH_UNREAD_ROPE,
    .open = NH_WORDS("gain-form", "embed-scale"),
};

const struct nh_arch nh_arch_llama_sandwich = {
    .name = "llama-sandwich",
    .what = "Llama with a second norm on the output of each branch",
    .source = "no published model: to be compared with llama; names of tensors as AFMoE has them",
    .types = NH_WORDS("llama-sandwich"),
    .mark = "layers.0.pre_mlp_layernorm.weight",
    .fixed = NH_SETTINGS(LLAMA, {"layout", "sandwich"}),
    .recipe = NH_SETTINGS(RECIPE),
    .keys = keys,
    .tensors = NH_TENSORS(NH_TENSORS_ENDS, NH_TENSORS_ATTENTION, NH_TENSORS_FFN,
                          {"attn.norm_pre.gain", "layers.%d.input_layernorm.weight", NH_WHOLE, false},
                          {"attn.norm_post.gain", "layers.%d.post_attention_layernorm.weight", NH_WHOLE, false},
                          {"ffn.norm_pre.gain", "layers.%d.pre_mlp_layernorm.weight", NH_WHOLE, false},
                          {"ffn.norm_post.gain", "layers.%d.post_mlp_layernorm.weight", NH_WHOLE, false}),
    .prefix = {"model.", ""},
    .unread = NH_UNREAD_ROPE,
    .open = NH_WORDS("gain-form", "embed-scale"),
};
