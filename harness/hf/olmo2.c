// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/hf/family.h"

const struct nh_arch nh_arch_olmo2 = {
    .name = "olmo2",
    .what = "norms on the outputs of branches alone, QK-norm over the whole width",
    .source = "huggingface/transformers models/olmo2; arXiv:2501.00656; z-loss as there [secondary]",
    .types = NH_WORDS("olmo2"),
    .class = "Olmo2ForCausalLM",
    .fixed = NH_SETTINGS({"layout", "reordered"}, {"norm", "rms"}, {"norm-cast", "after-gain"}, {"pos", "rope"},
                         {"qk-norm", "width"}, {"score-scale", "after"}),
    .recipe = NH_SETTINGS({"ffn", "swiglu"}, {"ffn-mult", "2.6875"}, {"eps", "1e-6"}, {"theta", "500000"}, {"init", "normal"},
                          {"z-loss", "1e-5"}),
    .keys = NH_KEYS(NH_KEYS_SIZES, {"head_dim", "head-dim", &nh_key_head_dim, "auto", NULL, NULL},
                    {"hidden_act", "ffn", &nh_key_word, "swiglu", NULL, NH_GATED},
                    {"rms_norm_eps", "eps", &nh_key_real, "1e-5", NULL, NULL}, {NULL, "theta", &nh_key_theta, "10000", NULL, NULL},
                    {NULL, "rope-scaling", &nh_key_scaling, NULL, NULL, NULL},
                    {NULL, "tie", &nh_key_tie, "", NULL, NULL}, {NULL, "bias", &nh_key_bias, NULL, NULL, NULL}),
    .tensors = NH_TENSORS(NH_TENSORS_ENDS, NH_TENSORS_ATTENTION, NH_TENSORS_QK_NORM, NH_TENSORS_FFN,
                          {"attn.norm_post.gain", "layers.%d.post_attention_layernorm.weight", NH_WHOLE, false},
                          {"ffn.norm_post.gain", "layers.%d.post_feedforward_layernorm.weight", NH_WHOLE, false}),
    .prefix = {"model.", ""},
    .unread = NH_UNREAD_ROPE,
    .open = NH_WORDS("gain-form"),
};
