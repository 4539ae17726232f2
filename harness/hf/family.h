// SPDX-License-Identifier: GPL-3.0-or-later
/** What the descendants of Llama have in common: keys, names of tensors. Source: huggingface/transformers, models/llama. */
#ifndef NH_FAMILY_H
#define NH_FAMILY_H

#include "harness/hf/arch.h"

#define NH_SETTINGS(...) (const struct nh_setting[]){__VA_ARGS__, {NULL, NULL}}
#define NH_KEYS(...)     (const struct nh_arch_key[]){__VA_ARGS__, {NULL, NULL, NULL, NULL, NULL, NULL}}
#define NH_TENSORS(...)  (const struct nh_arch_tensor[]){__VA_ARGS__, {NULL, NULL, NH_WHOLE, false}}
#define NH_WORDS(...)    (const char *const[]){__VA_ARGS__, NULL}

/* Sizes, by the keys of all descendants; of some, values without the key. */
#define NH_KEYS_SIZES_OR(heads, kv_heads, vocab)                                                                       \
    {"num_hidden_layers", "depth", &nh_key_count, NULL, NULL, NULL},                                                   \
        {"hidden_size", "width", &nh_key_count, NULL, NULL, NULL},                                                     \
        {"num_attention_heads", "heads", &nh_key_count, heads, NULL, NULL},                                            \
        {"num_key_value_heads", "kv-heads", &nh_key_count, kv_heads, NULL, NULL},                                      \
        {"intermediate_size", "ffn-mult", &nh_key_ratio, NULL, NULL, NULL},                                            \
        {"vocab_size", "vocab", &nh_key_count, vocab, NULL, NULL},                                                     \
        {"max_position_embeddings", NULL, &nh_key_positions, "", NULL, NULL}

#define NH_KEYS_SIZES NH_KEYS_SIZES_OR(NULL, "heads", NULL)

/* A gated FFN; "gelu" without more is the exact form, which the core has not. */
#define NH_GATED                                                                                                                  \
    NH_SETTINGS({"silu", "swiglu"}, {"swish", "swiglu"}, {"gelu_pytorch_tanh", "geglu"}, {"gelu_new", "geglu"})

/* A key that may be there with one value alone. */
#define NH_KEY_MUST(name, value) {name, NULL, &nh_key_word, "", NULL, NH_SETTINGS({value, ""})}

#define NH_TENSORS_ENDS                                                                                                           \
    {"embed", "embed_tokens.weight", NH_WHOLE, false}, {"norm_final.gain", "norm.weight", NH_WHOLE, false},                       \
        {"head", "lm_head.weight", NH_WHOLE, false}
#define NH_TENSORS_ATTENTION                                                                                                      \
    {"attn.qkv", "layers.%d.self_attn.q_proj.weight", NH_SLICE_Q, false},                                                         \
        {"attn.qkv", "layers.%d.self_attn.k_proj.weight", NH_SLICE_K, false},                                                     \
        {"attn.qkv", "layers.%d.self_attn.v_proj.weight", NH_SLICE_V, false},                                                     \
        {"attn.qkv.bias", "layers.%d.self_attn.q_proj.bias", NH_SLICE_Q, false},                                                  \
        {"attn.qkv.bias", "layers.%d.self_attn.k_proj.bias", NH_SLICE_K, false},                                                  \
        {"attn.qkv.bias", "layers.%d.self_attn.v_proj.bias", NH_SLICE_V, false},                                                  \
        {"attn.out", "layers.%d.self_attn.o_proj.weight", NH_WHOLE, false},                                                       \
        {"attn.out.bias", "layers.%d.self_attn.o_proj.bias", NH_WHOLE, false}
#define NH_TENSORS_FFN                                                                                                            \
    {"ffn.in", "layers.%d.mlp.gate_proj.weight", NH_SLICE_GATE, false},                                                           \
        {"ffn.in", "layers.%d.mlp.up_proj.weight", NH_SLICE_UP, false},                                                           \
        {"ffn.in.bias", "layers.%d.mlp.gate_proj.bias", NH_SLICE_GATE, false},                                                    \
        {"ffn.in.bias", "layers.%d.mlp.up_proj.bias", NH_SLICE_UP, false},                                                        \
        {"ffn.out", "layers.%d.mlp.down_proj.weight", NH_WHOLE, false},                                                           \
        {"ffn.out.bias", "layers.%d.mlp.down_proj.bias", NH_WHOLE, false}
#define NH_TENSORS_QK_NORM                                                                                                        \
    {"attn.q_norm.gain", "layers.%d.self_attn.q_norm.weight", NH_WHOLE, false},                                                   \
        {"attn.k_norm.gain", "layers.%d.self_attn.k_norm.weight", NH_WHOLE, false}
/* Norms before the branches, by the names of Llama. */
#define NH_TENSORS_PRE                                                                                                            \
    {"attn.norm_pre.gain", "layers.%d.input_layernorm.weight", NH_WHOLE, false},                                                  \
        {"ffn.norm_pre.gain", "layers.%d.post_attention_layernorm.weight", NH_WHOLE, false}

#define NH_UNREAD_ROPE NH_WORDS("rotary_emb.inv_freq")

#endif
