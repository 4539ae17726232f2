// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/option_table.h"
#include "harness/core/init.h"
#include "harness/data/data.h"

#include <stddef.h>
#include <string.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define AT(field)  .at = offsetof(struct nh_config, field)

/* Optimizers that read a number. */
#define OF_ADAMW .training = true, .optimizers = 1u << NH_OPTIMIZER_ADAMW | 1u << NH_OPTIMIZER_MUON
#define OF_SGD   .training = true, .optimizers = 1u << NH_OPTIMIZER_SGD | 1u << NH_OPTIMIZER_MUON

enum { MAX_BATCH = 1 << 15, MAX_SEQ = 1 << 15 }; /* their product is an int */

// clang-format off
/* In the order of config.csv. */
const struct nh_option nh_option_table[] = {
    {.group = "Model", .name = "arch", .kind = &nh_value_arch, AT(arch), .shown = "",
     .help = "an architecture's values of the options below; what is given beside it overrides it; 'harness list models'"},
    {.name = "model", .kind = &nh_value_text, AT(model), .max = 4000, .paths = "-d", .shown = "",
     .help = "folder of a Hugging Face checkpoint: weights, and all options that its config.json fixes"},
    {.name = "layout", .kind = &nh_value_layout, AT(layout), .start = "pre",
     .of_model = NH_MODEL_FIXED, .help = "where the norms are; 'harness list layouts'"},
    {.name = "set", .kind = &nh_value_knob, .shown = "",
     .of_model = NH_MODEL_FIXED, .help = "a knob of the layout's own, may be repeated; 'harness describe LAYOUT'"},
    {.name = "depth", .kind = &nh_value_int, AT(depth), .start = "12", .min = 1, .max = 4096,
     .of_model = NH_MODEL_FIXED, .help = "layers"},
    {.name = "width", .kind = &nh_value_int, AT(width), .start = "128", .min = 1, .max = 65536,
     .of_model = NH_MODEL_FIXED, .help = "values of the stream per token"},
    {.name = "heads", .kind = &nh_value_int, AT(heads), .start = "4", .min = 1, .max = 65536,
     .of_model = NH_MODEL_FIXED, .help = "attention heads, must divide the width"},
    {.name = "kv-heads", .kind = &nh_value_int, AT(kv_heads), .start = "heads", .word = "heads", .min = 1, .max = 65536,
     .of_model = NH_MODEL_FIXED, .help = "heads of keys and values, must divide the heads"},
    {.name = "head-dim", .kind = &nh_value_int, AT(head_dim), .start = "auto", .word = "auto", .min = 1, .max = 65536,
     .shown = "auto = width / heads", .of_model = NH_MODEL_FIXED, .help = "width of a head"},
    {.name = "ffn", .kind = &nh_value_choice, AT(ffn), .start = "gelu",
     .choices = WORDS("gelu", "relu", "swiglu", "geglu"),
     .of_model = NH_MODEL_FIXED, .help = "activation of the FFN"},
    {.name = "ffn-mult", .kind = &nh_value_positive, AT(ffn_mult), .start = "4",
     .of_model = NH_MODEL_FIXED, .help = "hidden width of the FFN over the width"},
    {.name = "experts", .kind = &nh_value_int, AT(moe.experts), .start = "none", .word = "none", .min = 1, .max = 4096,
     .of_model = NH_MODEL_FIXED, .help = "experts of a mixture in place of the FFN"},
    {.name = "experts-active", .kind = &nh_value_int, AT(moe.active), .experts = true, .start = "8", .min = 1, .max = 4096,
     .of_model = NH_MODEL_FIXED, .help = "experts that a token goes through"},
    {.name = "experts-shared", .kind = &nh_value_int, AT(moe.shared), .experts = true, .start = "0", .max = 4096,
     .of_model = NH_MODEL_FIXED, .help = "experts that every token goes through besides the active ones"},
    {.name = "expert-mult", .kind = &nh_value_positive, AT(moe.mult), .experts = true, .start = "0.25",
     .of_model = NH_MODEL_FIXED, .help = "hidden width of an expert over the width"},
    {.name = "dense-layers", .kind = &nh_value_int, AT(moe.dense_layers), .experts = true, .start = "0", .max = 4096,
     .of_model = NH_MODEL_FIXED, .help = "number of first layers that have the FFN in place of experts"},
    {.name = "route-scale", .kind = &nh_value_positive, AT(moe.route_scale), .experts = true, .start = "1",
     .of_model = NH_MODEL_FIXED, .help = "factor on the weights of the chosen experts"},
    {.name = "norm", .kind = &nh_value_choice, AT(norm), .start = "rms",
     .choices = WORDS("rms", "layer"),
     .of_model = NH_MODEL_FIXED, .help = "RMS norm or LayerNorm"},
    {.name = "eps", .kind = &nh_value_real, AT(eps), .start = "1e-5", .max = 1,
     .of_model = NH_MODEL_FIXED, .help = "added to the mean square in a norm"},
    {.name = "gain-form", .kind = &nh_value_either, AT(gain_offset), .start = "w",
     .choices = WORDS("w", "1+w"),
     .of_model = NH_MODEL_FIXED, .help = "what a norm multiplies by, where w is the stored gain"},
    {.name = "pos", .kind = &nh_value_choice, AT(pos), .start = "rope",
     .choices = WORDS("rope", "nope", "learned", "interleaved"),
     .of_model = NH_MODEL_FIXED, .help = "positions by rotation, none, by an embedding, or by rotation in local layers alone"},
    {.name = "theta", .kind = &nh_value_positive, AT(theta), .start = "10000",
     .of_model = NH_MODEL_FIXED, .help = "base of the rotation's wavelengths"},
    {.name = "theta-local", .kind = &nh_value_positive, AT(theta_local), .start = "same", .word = "same",
     .shown = "same = theta", .of_model = NH_MODEL_FIXED, .help = "the same for local layers"},
    {.name = "rope-scaling", .kind = &nh_value_rope, AT(rope_scaling), .start = "none",
     .of_model = NH_MODEL_FIXED, .help = "how the rotation's wavelengths are stretched, except in local layers"},
    {.name = "window", .kind = &nh_value_int, AT(window), .start = "all", .word = "all", .min = 1, .max = 1 << 24,
     .of_model = NH_MODEL_FIXED, .help = "keys that a token sees, its own included; with --pattern, in local layers only"},
    {.name = "pattern", .kind = &nh_value_pattern, AT(pattern), .max = 4096, .shown = "lllg with --pos interleaved",
     .of_model = NH_MODEL_FIXED, .help = "local and global layers, repeated"},
    {.name = "branches", .kind = &nh_value_branches, AT(branches), .start = "attn,ffn",
     .choices = WORDS("attn,ffn", "attn", "ffn"),
     .of_model = NH_MODEL_FIXED, .help = "sublayers of a layer"},
    {.name = "qk-norm", .kind = &nh_value_level, AT(qk_norm), .start = "off",
     .choices = WORDS("off", "on", "width"),
     .of_model = NH_MODEL_FIXED, .help = "norm on queries and keys, of each head or of all heads together"},
    {.name = "attn-gate", .kind = &nh_value_switch, AT(attn_gate), .start = "off",
     .choices = WORDS("off", "on"),
     .of_model = NH_MODEL_FIXED, .help = "heads times sigmoid(W x), x the input of attention"},
    {.name = "query-scalar", .kind = &nh_value_positive, AT(query_scalar), .start = "auto", .word = "auto",
     .shown = "auto = the head width", .of_model = NH_MODEL_FIXED, .help = "scores are divided by its root"},
    {.name = "score-softcap", .kind = &nh_value_positive, AT(score_softcap), .start = "off", .max = 1e30, .word = "off",
     .of_model = NH_MODEL_FIXED, .help = "scores become C tanh(scores / C)"},
    {.name = "score-scale", .kind = &nh_value_either, AT(scale_after), .start = "before",
     .choices = WORDS("before", "after"),
     .of_model = NH_MODEL_TOLD, .help = "the divisor of scores before or after the product"},
    {.name = "pb-relax", .kind = &nh_value_relax, AT(pb_relax), .start = "off", .word = "layer", .max = 1e30, .min = 32,
     .of_model = NH_MODEL_TOLD, .help = "scores are held divided by alpha, on = 32, layer = the layer's index (CogView, GLM-130B)"},
    {.name = "ln-relax", .kind = &nh_value_relax, AT(ln_relax), .start = "off", .max = 1e30, .min = 8,
     .of_model = NH_MODEL_TOLD, .help = "a norm's input is first divided by max|x|/C over the whole tensor, on = 8 (CogView)"},
    {.name = "softcap", .kind = &nh_value_positive, AT(softcap), .start = "off", .max = 1e30, .word = "off",
     .of_model = NH_MODEL_FIXED, .help = "logits become C tanh(logits / C)"},
    {.name = "z-loss", .kind = &nh_value_positive, AT(z_loss), .start = "off", .word = "off",
     .of_model = NH_MODEL_TOLD, .help = "C log^2 Z is added to the loss of each token"},
    {.name = "embed-scale", .kind = &nh_value_positive, AT(embed_scale), .start = "1", .shown = "the init's own", .word = "sqrt",
     .of_model = NH_MODEL_FIXED, .help = "factor on the embedding, sqrt = root of the width"},
    {.name = "embed-shrink", .kind = &nh_value_positive, AT(embed_shrink), .start = "1",
     .of_model = NH_MODEL_TOLD, .help = "factor on the gradient of the embedding, the head left out"},
    {.name = "tie", .kind = &nh_value_switch, AT(tie), .start = "off",
     .choices = WORDS("off", "on"),
     .of_model = NH_MODEL_FIXED, .help = "the embedding matrix is the head"},
    {.name = "bias", .kind = &nh_value_level, AT(bias), .start = "off",
     .choices = WORDS("off", "on", "qkv", "attn", "ffn"),
     .of_model = NH_MODEL_FIXED, .help = "biases in attention and FFN, or in parts of them"},

    {.group = "Precision", .name = "dtype", .kind = &nh_value_format, AT(dtype), .start = "fp32",
     .choices = WORDS("fp32", "fp64", "bf16", "fp16", "tf32", "fp8-e4m3", "fp8-e5m2"), /* and eXmY */
     .help = "format of what is stored: fp32, fp64, bf16, fp16, tf32, fp8-e4m3, fp8-e5m2, or eXmY of X exponent and "
             "Y mantissa bits"},
    {.name = "policy", .kind = &nh_value_policy, AT(policy),
     .help = "which role has which format; 'harness list policies'"},
    {.name = "accum", .kind = &nh_value_choice, AT(accum), .start = "fp32",
     .choices = WORDS("fp32", "dtype"),
     .shown = "the policy's", .help = "format of the sums in products"},
    {.name = "norm-stats", .kind = &nh_value_choice, AT(norm_stats), .start = "fp32",
     .choices = WORDS("fp32", "dtype"),
     .shown = "the policy's", .help = "format of a norm's statistics"},
    {.name = "roles", .kind = &nh_value_roles, .shown = "",
     .help = "formats of single roles over the policy's: residual=fp32,norm-in=dtype; 'harness list policies'"},
    {.name = "norm-cast", .kind = &nh_value_either, AT(cast_before_gain), .start = "after-gain",
     .choices = WORDS("after-gain", "before-gain"),
     .of_model = NH_MODEL_TOLD, .help = "where a norm's result is rounded"},
    {.name = "softmax-grad", .kind = &nh_value_either, AT(softmax_stored), .start = "exact",
     .choices = WORDS("exact", "stored"),
     .help = "the softmax's derivative takes probabilities before or after they were rounded"},

    {.group = "Start", .name = "init", .kind = &nh_value_choice, AT(init), .start = "unit",
     .choices = nh_init_names,
     .of_model = NH_MODEL_DRAWN, .help = "recipe of the weights"},
    {.name = "branch-init", .kind = &nh_value_choice, AT(branch_init), .start = "own",
     .choices = WORDS("own", "1", "invsqrt2L", "invsqrt2l"),
     .shown = "own = the recipe's", .of_model = NH_MODEL_DRAWN, .help = "factor on output projections"},
    {.name = "embed-rms", .kind = &nh_value_positive, AT(embed_rms), .start = "own", .word = "own",
     .shown = "own = the recipe's", .of_model = NH_MODEL_DRAWN, .help = "RMS that the embedding's output is scaled to"},
    {.name = "qk-init", .kind = &nh_value_either, AT(qk_zero), .start = "1",
     .choices = WORDS("1", "0"),
     .of_model = NH_MODEL_DRAWN, .help = "factor on W_Q, 0 = uniform attention"},
    {.name = "post-gain", .kind = &nh_value_positive, AT(post_gain), .start = "1",
     .of_model = NH_MODEL_DRAWN, .help = "factor on the gain of the norm on a branch's output"},
    {.name = "post-gain-frozen", .kind = &nh_value_switch, AT(post_gain_frozen), .start = "off",
     .choices = WORDS("off", "on"), .training = true,
     .help = "that gain is not trained"},
    {.name = "seed", .kind = &nh_value_seed, AT(seed), .start = "0",
     .help = "seed of all random numbers"},

    {.group = "Data", .name = "data", .kind = &nh_value_data, AT(data), .start = "fashion-mnist", .max = 4096,
     .help = "where the tokens come from; 'harness list data'"},
    {.name = "seq", .kind = &nh_value_int, AT(seq), .start = "auto", .word = "auto", .min = 1, .max = MAX_SEQ,
     .shown = "auto = as the data has it, else 64", .help = "tokens of a sequence"},
    {.name = "batch", .kind = &nh_value_int, AT(batch), .start = "auto", .word = "auto", .min = 1, .max = MAX_BATCH,
     .shown = "auto = as the data has it, else 4", .help = "sequences of a batch"},
    {.name = "vocab", .kind = &nh_value_int, AT(vocab), .start = "auto", .word = "auto", .min = 1,
     .max = NH_DATA_MAX_ID + 1,
     .shown = "auto = as the data has it", .of_model = NH_MODEL_FIXED, .help = "token ids"},
    {.name = "image-grid", .kind = &nh_value_pick, AT(image_grid), .start = "7",
     .choices = WORDS("7", "14", "28"),
     .help = "patches along the edge of an image"},
    {.name = "image-levels", .kind = &nh_value_int, AT(image_levels), .start = "32", .min = 2, .max = 256,
     .help = "grey levels of an image"},
    {.name = "data-seed", .kind = &nh_value_seed, AT(data_seed), .start = "0", .shown = "the seed",
     .help = "seed of the order of the data"},

    {.group = "Training", .name = "steps", .kind = &nh_value_int, AT(train.steps), .start = "0", .max = 1000000000,
     .help = "steps of training, 0 = measure the model at its start only"},
    {.name = "optimizer", .kind = &nh_value_choice, AT(train.optimizer), .start = "adamw", .training = true,
     .choices = WORDS("adamw", "muon", "sgd"),
     .help = "AdamW; Muon for matrices and AdamW for the rest; SGD with momentum"},
    {.name = "lr", .kind = &nh_value_positive, AT(train.lr), .start = "0.001", .training = true,
     .help = "learning rate after the warmup"},
    {.name = "warmup", .kind = &nh_value_int, AT(train.warmup), .start = "0", .max = 1000000000, .training = true,
     .help = "first steps, over which the rate rises: step t (from 0) has (t+1)/N of it"},
    {.name = "schedule", .kind = &nh_value_choice, AT(train.schedule), .start = "constant", .training = true,
     .choices = WORDS("constant", "linear", "cosine", "wsd"),
     .help = "the rate after the warmup: constant, down to 0 linearly or as a cosine, or linearly over the last fifth"},
    {.name = "beta1", .kind = &nh_value_real, AT(train.beta1), .start = "0.9", .max = 0.9999999, OF_ADAMW,
     .help = "of AdamW"},
    {.name = "beta2", .kind = &nh_value_real, AT(train.beta2), .start = "0.95", .max = 0.9999999, OF_ADAMW,
     .help = "of AdamW"},
    {.name = "adam-eps", .kind = &nh_value_positive, AT(train.adam_eps), .start = "1e-8", OF_ADAMW,
     .help = "of AdamW"},
    {.name = "momentum", .kind = &nh_value_real, AT(train.momentum), .start = "0.95", .max = 0.9999999, OF_SGD,
     .help = "of SGD and Muon"},
    {.name = "weight-decay", .kind = &nh_value_real, AT(train.weight_decay), .start = "0", .max = 1000, .training = true,
     .help = "decoupled, times the rate; norms, biases and single numbers left out"},
    {.name = "clip", .kind = &nh_value_positive, AT(train.clip), .start = "1", .word = "off", .training = true,
     .help = "largest norm of the gradient, after the loss scale is taken out"},
    {.name = "grad-accum", .kind = &nh_value_int, AT(train.grad_accum), .start = "1", .min = 1, .max = 65536, .training = true,
     .help = "batches whose gradients make one step"},
    {.name = "loss-scale", .kind = &nh_value_scale, AT(train.loss_scale), .start = "auto", .training = true,
     .help = "auto = the policy's scaler, a fixed number, off = 1"},
    {.name = "scale-window", .kind = &nh_value_int, AT(train.scale_window), .start = "policy", .word = "policy", .min = 1,
     .max = 1000000000, .training = true, .shown = "the policy's",
     .help = "clean steps before the scale is doubled"},
    {.name = "probe-every", .measures = true, .kind = &nh_value_int, AT(train.probe_every), .start = "100", .word = "ends", .min = 1,
     .max = 1000000000, .training = true,
     .help = "steps between measurements of the probes; the first and the last step are always measured"},
    {.name = "val-every", .measures = true, .kind = &nh_value_int, AT(train.val_every), .start = "end", .word = "end", .min = 1, .max = 1000000000,
     .training = true, .help = "steps between validations, if the data keeps examples for them; always one after the last step"},
    {.name = "checkpoint-every", .measures = true, .kind = &nh_value_int, AT(train.checkpoint_every), .start = "never", .word = "never", .min = 1,
     .max = 1000000000, .training = true,
     .help = "steps between checkpoints, and one at the end; an interrupted run leaves one in any case"},
    {.name = "resume", .kind = &nh_value_switch, AT(train.resume), .start = "off", .elsewhere = true, .training = true,
     .choices = WORDS("off", "on"),
     .help = "go on from the checkpoint in the run's folder; from the start where there is none"},

    {.group = "Measurement", .name = "probes", .measures = true, .kind = &nh_value_probes, AT(probes),
     .help = "none or a comma list; 'harness list probes'; with --steps, jacobian runs only if it is named"},
    {.name = "cotangent", .kind = &nh_value_either, AT(cotangent_random), .start = "loss",
     .choices = WORDS("loss", "random"),
     .help = "what is propagated back, random = unit variance at the final norm"},
    {.name = "jac-samples", .kind = &nh_value_int, AT(jac_samples), .start = "16", .min = 1, .max = 4096,
     .help = "random vectors for the Frobenius norm of a Jacobian"},
    {.name = "jac-iterations", .kind = &nh_value_int, AT(jac_iterations), .start = "12", .min = 1, .max = 1000,
     .help = "iterations for its largest singular value"},
    {.name = "spectrum", .measures = true, .kind = &nh_value_switch, AT(spectrum), .start = "off",
     .choices = WORDS("off", "on"),
     .help = "all its singular values, for a small model"},

    {.group = "Run", .name = "label", .measures = true, .kind = &nh_value_text, AT(label), .max = 200, .shown = "",
     .help = "your own name for the run, in every row"},
    {.name = "threads", .kind = &nh_value_int, AT(threads), .start = "all", .word = "all", .min = 1, .max = 4096,
     .elsewhere = true,
     .help = "the results do not depend on it"},
    {.name = "dump", .kind = &nh_value_text, AT(dump), .max = 4000, .paths = "-f", .shown = "", .elsewhere = true,
     .help = "safetensors file for stream, branches, logits, losses and all gradients of the batch"},
    {.name = "out", .kind = &nh_value_text, AT(out), .max = 4000, .paths = "-d", .shown = "", .elsewhere = true,
     .help = "folder of the results [results/runs/<layout>-L<depth>-<dtype>-s<seed>-<run>]"},
    {.name = "force", .kind = &nh_value_switch, AT(force), .start = "off", .elsewhere = true,
     .choices = WORDS("off", "on"),
     .help = "run again what has been run"},
    {.name = "dry-run", .kind = &nh_value_switch, AT(dry_run), .start = "off", .elsewhere = true,
     .choices = WORDS("off", "on"),
     .help = "print parameters, operations, memory and time, and stop"},
};
// clang-format on

const int nh_option_count = sizeof nh_option_table / sizeof *nh_option_table;
_Static_assert(sizeof nh_option_table / sizeof *nh_option_table <= NH_MAX_OPTIONS, "struct nh_options has one flag for each option");

const struct nh_option *nh_option_find(const char *name, size_t length)
{
    for (int i = 0; i < nh_option_count; i++)
        if (strlen(nh_option_table[i].name) == length && strncmp(nh_option_table[i].name, name, length) == 0)
            return &nh_option_table[i];
    return NULL;
}

const char *nh_option_idle(const struct nh_option *option, const struct nh_config *c)
{
    if (option->of_model == NH_MODEL_DRAWN && c->model)
        return "with --model, whose weights are not drawn; leave it out";
    if (option->experts && !c->moe.experts)
        return "without experts; leave it out or add --experts N";
    if (option->training && !c->train.steps)
        return "without training; leave it out or add --steps N";
    if (option->optimizers && !(option->optimizers >> c->train.optimizer & 1))
        return "with this --optimizer; leave it out";
    return NULL;
}
