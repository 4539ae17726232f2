// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/options.h"

#include "harness/cli/near.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"
#include "harness/core/init.h"
#include "harness/core/policy.h"
#include "harness/data/data.h"
#include "layouts/layout.h"
#include "probes/probe.h"
#include "results/file.h"
#include "results/number.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define AT(field)  .at = offsetof(struct nh_config, field)

/* Optimizers that read a number. */
#define OF_ADAMW .training = true, .optimizers = 1u << NH_OPTIMIZER_ADAMW | 1u << NH_OPTIMIZER_MUON
#define OF_SGD   .training = true, .optimizers = 1u << NH_OPTIMIZER_SGD | 1u << NH_OPTIMIZER_MUON

enum { MAX_BATCH = 1 << 15, MAX_SEQ = 1 << 15 }; /* their product is an int */

// clang-format off
/* In the order of config.csv. */
static const struct nh_option options[] = {
    {.group = "Model", .name = "arch", .kind = &nh_value_arch, AT(arch), .shown = "",
     .help = "a preset of the options below, which stand over it; 'harness list models'"},
    {.name = "model", .kind = &nh_value_text, AT(model), .max = 4000, .paths = "-d", .shown = "",
     .help = "folder of a Hugging Face checkpoint: weights, and all options that its config.json fixes"},
    {.name = "layout", .kind = &nh_value_layout, AT(layout), .start = "pre",
     .of_model = NH_MODEL_FIXED, .help = "where the norms stand; 'harness list layouts'"},
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
     .of_model = NH_MODEL_FIXED, .help = "further experts, that every token goes through"},
    {.name = "expert-mult", .kind = &nh_value_positive, AT(moe.mult), .experts = true, .start = "0.25",
     .of_model = NH_MODEL_FIXED, .help = "hidden width of an expert over the width"},
    {.name = "dense-layers", .kind = &nh_value_int, AT(moe.dense_layers), .experts = true, .start = "0", .max = 4096,
     .of_model = NH_MODEL_FIXED, .help = "first layers, which have no experts but the FFN"},
    {.name = "route-scale", .kind = &nh_value_positive, AT(moe.route_scale), .experts = true, .start = "1",
     .of_model = NH_MODEL_FIXED, .help = "factor on the weights of the chosen experts"},
    {.name = "norm", .kind = &nh_value_choice, AT(norm), .start = "rms",
     .choices = WORDS("rms", "layer"),
     .of_model = NH_MODEL_FIXED, .help = "RMS norm or LayerNorm"},
    {.name = "eps", .kind = &nh_value_real, AT(eps), .start = "1e-5", .max = 1,
     .of_model = NH_MODEL_FIXED, .help = "added to the mean square in a norm"},
    {.name = "gain-form", .kind = &nh_value_either, AT(gain_offset), .start = "w",
     .choices = WORDS("w", "1+w"),
     .of_model = NH_MODEL_FIXED, .help = "what norms multiply by, w being what they hold"},
    {.name = "pos", .kind = &nh_value_choice, AT(pos), .start = "rope",
     .choices = WORDS("rope", "nope", "learned", "interleaved"),
     .of_model = NH_MODEL_FIXED, .help = "positions by rotation, none, by an embedding, or by rotation in local layers alone"},
    {.name = "theta", .kind = &nh_value_positive, AT(theta), .start = "10000",
     .of_model = NH_MODEL_FIXED, .help = "base of the rotation's wavelengths"},
    {.name = "theta-local", .kind = &nh_value_positive, AT(theta_local), .start = "same", .word = "same",
     .shown = "same = theta", .of_model = NH_MODEL_FIXED, .help = "the same in local layers"},
    {.name = "rope-scaling", .kind = &nh_value_rope, AT(rope_scaling), .start = "none",
     .of_model = NH_MODEL_FIXED, .help = "how wavelengths are stretched, of local layers not"},
    {.name = "window", .kind = &nh_value_int, AT(window), .start = "all", .word = "all", .min = 1, .max = 1 << 24,
     .of_model = NH_MODEL_FIXED, .help = "keys that a token sees, its own included; with --pattern in local layers"},
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
     .help = "of all that is drawn"},

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
     .help = "of the order of the data"},

    {.group = "Training", .name = "steps", .kind = &nh_value_int, AT(train.steps), .start = "0", .max = 1000000000,
     .help = "steps of training, 0 = a look at the start alone"},
    {.name = "optimizer", .kind = &nh_value_choice, AT(train.optimizer), .start = "adamw", .training = true,
     .choices = WORDS("adamw", "muon", "sgd"),
     .help = "AdamW; Muon for matrices and AdamW for the rest; SGD with momentum"},
    {.name = "lr", .kind = &nh_value_positive, AT(train.lr), .start = "0.001", .training = true,
     .help = "learning rate at its height"},
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
    {.name = "probe-every", .kind = &nh_value_int, AT(train.probe_every), .start = "100", .word = "ends", .min = 1,
     .max = 1000000000, .training = true,
     .help = "steps between looks of the probes; first and last step always"},
    {.name = "val-every", .kind = &nh_value_int, AT(train.val_every), .start = "end", .word = "end", .min = 1, .max = 1000000000,
     .training = true, .help = "steps between validations, where the data holds something out; after the last step always"},
    {.name = "checkpoint-every", .kind = &nh_value_int, AT(train.checkpoint_every), .start = "never", .word = "never", .min = 1,
     .max = 1000000000, .training = true,
     .help = "steps between checkpoints, and one at the end; an interrupted run leaves one in any case"},
    {.name = "resume", .kind = &nh_value_switch, AT(train.resume), .start = "off", .elsewhere = true, .training = true,
     .choices = WORDS("off", "on"),
     .help = "go on from the checkpoint in the run's folder; from the start where there is none"},

    {.group = "Measurement", .name = "probes", .kind = &nh_value_probes, AT(probes),
     .help = "none or a comma list; 'harness list probes'; with --steps jacobian only if it is named"},
    {.name = "cotangent", .kind = &nh_value_either, AT(cotangent_random), .start = "loss",
     .choices = WORDS("loss", "random"),
     .help = "what is propagated back, random = unit variance at the final norm"},
    {.name = "jac-samples", .kind = &nh_value_int, AT(jac_samples), .start = "16", .min = 1, .max = 4096,
     .help = "random vectors for the Frobenius norm of a Jacobian"},
    {.name = "jac-iterations", .kind = &nh_value_int, AT(jac_iterations), .start = "12", .min = 1, .max = 1000,
     .help = "iterations for its largest singular value"},
    {.name = "spectrum", .kind = &nh_value_switch, AT(spectrum), .start = "off",
     .choices = WORDS("off", "on"),
     .help = "all its singular values, for a small model"},

    {.group = "Run", .name = "label", .kind = &nh_value_text, AT(label), .max = 200, .shown = "",
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
     .help = "tell parameters, operations, memory and time, and stop"},
};
// clang-format on

enum { COUNT = sizeof options / sizeof *options };
_Static_assert((int)COUNT <= (int)NH_MAX_OPTIONS, "struct nh_options has one flag for each option");

static const struct nh_option *find(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strlen(options[i].name) == length && strncmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

bool nh_options_given(const struct nh_options *o, const char *name)
{
    const struct nh_option *option = find(name, strlen(name));
    assert(option);
    return o->given[option - options] == NH_BY_USER;
}

static bool is_set(const struct nh_options *o, const char *name)
{
    return o->given[find(name, strlen(name)) - options] != NH_BY_DEFAULT;
}

static void set_defaults(struct nh_options *o)
{
    *o = (struct nh_options){.config.policy = nh_policies[0]};
    for (size_t i = 0; nh_probes[i]; i++) {
        assert(i < 32);
        o->config.probes |= (uint32_t)nh_probes[i]->by_default << i;
    }
    for (size_t i = 0; i < COUNT; i++) {
        const int status = options[i].start ? options[i].kind->read(&options[i], options[i].start, &o->config) : NH_OK;
        assert(status == NH_OK);
    }
}

/* Fills in what follows from other options or from the machine. */
static void resolve(struct nh_options *o)
{
    struct nh_config *c = &o->config;
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->pos == NH_POS_INTERLEAVED && !c->pattern)
        c->pattern = "lllg";
    if (!is_set(o, "embed-scale"))
        c->embed_scale = nh_init_embed_scale(c);
    if (c->embed_scale <= 0) /* the word sqrt */
        c->embed_scale = sqrt(c->width);
    if (!is_set(o, "data-seed"))
        c->data_seed = c->seed;
    if (!is_set(o, "dtype") && c->policy->dtype)
        nh_fmt_parse(&c->dtype, c->policy->dtype);
    if (!is_set(o, "accum"))
        c->accum = c->policy->format[NH_ROLE_ACCUM] ? NH_WIDE_FP32 : NH_WIDE_DTYPE;
    if (!is_set(o, "norm-stats"))
        c->norm_stats = c->policy->format[NH_ROLE_NORM_STAT] ? NH_WIDE_FP32 : NH_WIDE_DTYPE;
    for (size_t i = 0; nh_probes[i] && !is_set(o, "probes"); i++) {
        if (c->train.steps && nh_probes[i]->at_start_only)
            c->probes &= ~(UINT32_C(1) << i);
        if (c->model && !c->train.steps) /* of a checkpoint what one forward pass tells */
            c->probes = (c->probes & ~(UINT32_C(1) << i)) | (uint32_t)(nh_probes[i]->by_step || nh_probes[i]->in_the_end) << i;
    }
    cpu_set_t cpus;
    if (c->threads == 0)
        c->threads = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

static int unknown(const char *name, size_t length)
{
    char wrong[80];
    snprintf(wrong, sizeof wrong, "%.*s", length < sizeof wrong ? (int)length : (int)sizeof wrong - 1, name);
    struct nh_near near = nh_near_start(wrong, "--");
    for (size_t i = 0; i < COUNT; i++)
        nh_near_try(&near, options[i].name);
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "there is no option '--%.60s'%s ('harness --help' shows all)", wrong,
                   nh_near_text(&near, hint));
}

/* Reads "--NAME=VALUE" or "--NAME" and, where it takes one, the VALUE that follows; moves *at past them. */
static int split(int argc, char **argv, int *at, const struct nh_option **option, const char **value)
{
    const char *word = argv[(*at)++];
    if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
        return nh_fail(NH_USAGE,
                       "'%.60s' stands where an option is expected; options are --NAME VALUE or --NAME=VALUE, "
                       "switches --NAME or --NAME=on|off",
                       word);
    const size_t length = strcspn(word + 2, "=");
    *option = find(word + 2, length);
    if (!*option)
        return unknown(word + 2, length);
    if (word[2 + length] == '=')
        *value = word + 2 + length + 1;
    else if ((*option)->kind->bare)
        *value = "on";
    else
        *value = *at < argc && strncmp(argv[*at], "--", 2) != 0 ? argv[(*at)++] : "";
    if (**value == '\0')
        return nh_fail(NH_USAGE, "--%s needs a value: --%s %s", (*option)->name, (*option)->name,
                       (*option)->kind->placeholder);
    return NH_OK;
}

/* Values of --set, read when the layout is known. */
struct sets {
    const char *texts[NH_MAX_KNOBS];
    size_t count;
};

static int keep_set(struct sets *sets, const char *text)
{
    const size_t length = strcspn(text, "=");
    for (size_t i = 0; i < sets->count; i++)
        if (strncmp(sets->texts[i], text, length + 1) == 0)
            return nh_fail(NH_USAGE, "--set %.*s is given twice; keep one", length < 60 ? (int)length : 60, text);
    if (sets->count == NH_MAX_KNOBS)
        return nh_fail(NH_USAGE, "--set is given more than %d times; no layout has as many knobs", NH_MAX_KNOBS);
    sets->texts[sets->count++] = text;
    return NH_OK;
}

/* Refuses what a checkpoint fixes, unless it leaves that open. */
static int check_free(const struct nh_options *o, const struct nh_option *option)
{
    if (!o->checkpoint || option->of_model != NH_MODEL_FIXED)
        return NH_OK;
    for (const char *const *open = nh_hf_arch(o->checkpoint)->open; open && *open; open++)
        if (strcmp(*open, option->name) == 0)
            return NH_OK;
    return nh_fail(NH_USAGE, "--%s is what the checkpoint says; leave it out", option->name);
}

static int take(struct nh_options *o, struct sets *sets, const struct nh_option *option, const char *value)
{
    const int status = check_free(o, option);
    if (status)
        return status;
    if (option->kind == &nh_value_knob)
        return keep_set(sets, value);
    if (o->given[option - options] == NH_BY_USER)
        return nh_fail(NH_USAGE, "--%s is given twice; keep one", option->name);
    o->given[option - options] = NH_BY_USER;
    return option->kind->read(option, value, &o->config);
}

static int read_knobs(struct nh_config *c, const struct sets *sets)
{
    const struct nh_option *option = find("set", strlen("set"));
    nh_knobs_start(c->layout, c->knobs);
    int status = NH_OK;
    for (size_t i = 0; !status && i < sets->count; i++)
        status = option->kind->read(option, sets->texts[i], c);
    return status;
}

/* Why an option has no effect, and what would work; NULL where it has one. */
static const char *idle(const struct nh_option *option, const struct nh_config *c)
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

/* Settings, as if they had been typed. */
static int read_settings(struct nh_options *o, const struct nh_setting *settings)
{
    int status = NH_OK;
    for (const struct nh_setting *s = settings; !status && s->option; s++) {
        const struct nh_option *option = find(s->option, strlen(s->option));
        assert(option);
        status = option->kind->read(option, s->value, &o->config);
        o->given[option - options] = NH_BY_PRESET;
    }
    return status;
}

static int read_checkpoint(struct nh_options *o)
{
    int status = nh_hf_open(&o->checkpoint, o->config.model);
    if (status)
        return status;
    status = read_settings(o, nh_hf_settings(o->checkpoint));
    if (!status) {
        struct nh_options alone = *o;
        resolve(&alone);
        nh_knobs_start(alone.config.layout, alone.config.knobs);
        status = nh_options_conflicts(&alone);
    }
    if (!status)
        return status;
    char why[512];
    snprintf(why, sizeof why, "%s", nh_error());
    return nh_fail(NH_FAILED, "'%s/config.json' is no model of the program's, as options: %s", o->config.model, why);
}

static bool is_preset(const struct nh_option *option)
{
    return option->kind == &nh_value_arch || option->at == offsetof(struct nh_config, model);
}

static int use_preset(struct nh_options *o)
{
    const struct nh_arch *arch = nh_arch_find(o->config.arch);
    if (arch && o->config.model)
        return nh_fail(NH_USAGE, "--arch makes a random model, --model reads one; leave one out");
    int status = arch ? read_settings(o, arch->fixed) : NH_OK;
    if (arch && !status)
        status = read_settings(o, arch->recipe);
    return !status && o->config.model ? read_checkpoint(o) : status;
}

/* What stands under the options of the command line is looked for first: an architecture or a checkpoint. */
static int read_preset(struct nh_options *o, int argc, char **argv)
{
    int status = NH_OK;
    for (int i = 0; !status && i < argc;) {
        const struct nh_option *option = NULL;
        const char *value = NULL;
        status = split(argc, argv, &i, &option, &value);
        if (!status && is_preset(option))
            status = option->kind->read(option, value, &o->config);
    }
    return status ? status : use_preset(o);
}

int nh_options_parse(struct nh_options *o, int argc, char **argv)
{
    set_defaults(o);
    struct sets sets = {.count = 0};
    int status = read_preset(o, argc, argv);
    for (int i = 0; !status && i < argc;) {
        const struct nh_option *option = NULL;
        const char *value = NULL;
        status = split(argc, argv, &i, &option, &value);
        if (!status)
            status = take(o, &sets, option, value);
    }
    if (!status)
        status = read_knobs(&o->config, &sets);
    if (status)
        return status;
    resolve(o);
    for (size_t i = 0; i < COUNT && !status; i++)
        if (o->given[i] == NH_BY_USER && idle(&options[i], &o->config))
            status = nh_fail(NH_USAGE, "--%s has no effect %s", options[i].name, idle(&options[i], &o->config));
    return status ? status : nh_options_conflicts(o);
}

const char *nh_options_text(struct nh_options *o, const char *name)
{
    const struct nh_option *option = find(name, strlen(name));
    assert(option);
    return option->kind->write(option, &o->config, o->text);
}

/* Adds " --NAME VALUE". */
static void tell_option(char list[NH_VALUE_SIZE], const struct nh_option *option, const char *value)
{
    const size_t n = strlen(list);
    snprintf(list + n, NH_VALUE_SIZE - n, " --%s %s", option->name, *value ? value : "''");
}

/* Writes what stands for what follows from other options: auto, same. */
static struct nh_config spelt_out(const struct nh_config *c)
{
    struct nh_config full = *c;
    full.head_dim = nh_head_dim(c);
    full.query_scalar = c->query_scalar > 0 ? c->query_scalar : full.head_dim;
    full.theta_local = c->theta_local > 0 ? c->theta_local : c->theta;
    return full;
}

int nh_options_reread(const struct nh_options *o, const struct nh_setting *settings, struct nh_config *config,
                      struct nh_differences *d)
{
    struct nh_options told;
    set_defaults(&told);
    int status = read_settings(&told, settings);
    if (status)
        return status;
    resolve(&told);
    nh_knobs_start(told.config.layout, told.config.knobs);
    const struct nh_config mine = spelt_out(&o->config), its = spelt_out(&told.config);
    *config = o->config;
    memcpy(config->knobs, told.config.knobs, sizeof config->knobs);
    for (size_t i = 0; i < COUNT && !status; i++) {
        const struct nh_option *option = &options[i];
        char own_text[NH_VALUE_SIZE], told_text[NH_VALUE_SIZE];
        if (option->kind == &nh_value_knob || (option->of_model != NH_MODEL_FIXED && option->of_model != NH_MODEL_TOLD))
            continue;
        const char *own = option->kind->write(option, &mine, own_text), *value = option->kind->write(option, &its, told_text);
        const bool fixed = option->of_model == NH_MODEL_FIXED;
        if (strcmp(own, value) != 0) {
            tell_option(fixed ? d->against : d->again, option, own);
            d->n_against += fixed;
        }
        if (fixed)
            status = option->kind->read(option, value, config);
    }
    return status;
}

void nh_options_free(struct nh_options *o)
{
    nh_hf_close(o->checkpoint);
    free(o->record);
    o->checkpoint = NULL, o->record = NULL;
}

struct nh_piece *nh_options_pieces(const struct nh_options *o, const struct nh_param *param, size_t *n)
{
    const struct nh_arch *arch = nh_arch_find(o->config.arch);
    struct nh_piece *pieces = o->checkpoint ? nh_hf_pieces(o->checkpoint, &o->config, param, n)
                                            : nh_arch_pieces(arch, arch ? arch->prefixes : NULL, &o->config, param, n);
    if (*n)
        return pieces;
    pieces = malloc(sizeof *pieces);
    if (!pieces)
        abort();
    const size_t rows = (size_t)param->rows, cols = (size_t)param->cols;
    *pieces = (struct nh_piece){.n = rows * cols, .rows = rows > 1 ? rows : 0, .cols = cols};
    snprintf(pieces->name, sizeof pieces->name, "%s", param->name);
    *n = 1;
    return pieces;
}

static int record_knobs(const struct nh_config *c, nh_option_visit *visit, void *arg)
{
    const struct nh_knob *knobs = c->layout->knobs;
    int status = NH_OK;
    for (size_t i = 0; !status && knobs && knobs[i].name; i++) {
        char name[64], value[NH_NUMBER_SIZE];
        snprintf(name, sizeof name, "set.%s", knobs[i].name);
        nh_number_real(value, c->knobs[i]);
        status = visit(arg, name, knobs[i].words ? knobs[i].words[(int)c->knobs[i]] : value);
    }
    return status;
}

int nh_options_record(const struct nh_options *o, nh_option_visit *visit, void *arg)
{
    int status = NH_OK;
    for (size_t i = 0; !status && i < COUNT; i++) {
        char text[NH_VALUE_SIZE];
        if (options[i].kind == &nh_value_knob)
            status = record_knobs(&o->config, visit, arg);
        else if (!options[i].elsewhere && !idle(&options[i], &o->config))
            status = visit(arg, options[i].name, options[i].kind->write(&options[i], &o->config, text));
    }
    return status;
}

/* The name or value behind this one. */
static const char *behind(const char *text)
{
    return text + strlen(text) + 1;
}

/* Rows of a record in the order in which they are read: what stands under the others comes first, knobs need the layout. */
enum part { PRESETS, OPTIONS, KNOBS };

static int recall_part(struct nh_options *o, enum part part)
{
    int status = NH_OK;
    for (const char *name = o->record, *value; !status && *name; name = behind(value)) {
        value = behind(name);
        const bool is_knob = strncmp(name, "set.", 4) == 0;
        const struct nh_option *option = is_knob ? find("set", 3) : find(name, strlen(name));
        if (!option)
            return unknown(name, strlen(name));
        if (*value == '\0' || part != (is_knob ? KNOBS : is_preset(option) ? PRESETS : OPTIONS))
            continue;
        char knob[NH_VALUE_SIZE];
        snprintf(knob, sizeof knob, "%s=%s", is_knob ? name + 4 : "", value);
        status = option->kind->read(option, is_knob ? knob : value, &o->config);
        o->given[option - options] = NH_BY_PRESET;
    }
    return status;
}

static int misplaced(const char *option)
{
    return nh_fail(NH_FAILED, "'%.60s' is not there as this version of the program writes it; take the version that wrote it", option);
}

/* Moves *at, in a record, past the row that is as it would be written. */
static int hold_row(void *at, const char *option, const char *value)
{
    const char **row = at;
    if (strcmp(*row, option) != 0 || strcmp(behind(*row), value) != 0)
        return misplaced(option);
    *row = behind(behind(*row));
    return NH_OK;
}

int nh_options_recall(struct nh_options *o, char *record)
{
    const char *row = record;
    set_defaults(o);
    o->record = record;
    int status = recall_part(o, PRESETS);
    if (!status)
        status = use_preset(o);
    if (!status)
        status = recall_part(o, OPTIONS);
    if (status)
        return status;
    nh_knobs_start(o->config.layout, o->config.knobs);
    status = recall_part(o, KNOBS);
    resolve(o);
    if (!status)
        status = nh_options_conflicts(o);
    if (!status)
        status = nh_options_record(o, hold_row, &row);
    return !status && *row ? misplaced(row) : status;
}

static void mix(uint64_t *hash, const char *text)
{
    *hash = nh_digest(*hash, text, strlen(text));
}

static int mix_option(void *hash, const char *option, const char *value)
{
    mix(hash, option);
    mix(hash, "=");
    mix(hash, value);
    mix(hash, "\n"); /* stands in no value */
    return NH_OK;
}

void nh_options_hash(const struct nh_options *o, const char *extra, char hash[9])
{
    uint64_t h = NH_DIGEST_START;
    nh_options_record(o, mix_option, &h);
    mix(&h, extra ? extra : "");
    snprintf(hash, 9, "%08x", (unsigned)(h ^ h >> 32));
}

enum { HELP_WIDTH = 100, HELP_COLUMN = 26 };

/* Writes left and, in its own column, text broken between words. */
static void help_entry(FILE *file, const char *left, const char *text)
{
    size_t column = (size_t)fprintf(file, "  %s", left);
    while (*text) {
        const size_t length = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + length > HELP_WIDTH) {
            fputc('\n', file);
            column = 0;
        }
        const size_t blanks = column < HELP_COLUMN ? HELP_COLUMN - column : 1;
        fprintf(file, "%*s%.*s", (int)blanks, "", (int)length, text);
        column += blanks + length;
        text += length + (text[length] == ' ');
    }
    fputc('\n', file);
}

void nh_options_tell(nh_option_tell *tell, void *arg)
{
    struct nh_options defaults;
    set_defaults(&defaults);
    for (size_t i = 0; i < COUNT; i++) {
        const struct nh_option *o = &options[i];
        char left[64], range[NH_VALUE_SIZE] = "", start[NH_VALUE_SIZE], text[4 * NH_VALUE_SIZE];
        if (o->kind->tell_range)
            o->kind->range(o, range);
        const char *shown = o->shown ? o->shown : o->start ? o->start : o->kind->write(o, &defaults.config, start);
        snprintf(left, sizeof left, o->kind->bare ? "--%s[=%s]" : "--%s %s", o->name, o->kind->placeholder);
        snprintf(text, sizeof text, "%s%s%s%s%s%s", o->help, *range ? ": " : "", range, *shown ? " [" : "", shown,
                 *shown ? "]" : "");
        tell(arg, o, left, text);
    }
}

static void help_option(void *file, const struct nh_option *o, const char *left, const char *text)
{
    if (o->group)
        fprintf(file, "%s%s\n", o > options ? "\n" : "", o->group);
    help_entry(file, left, text);
}

void nh_options_help(FILE *file)
{
    nh_options_tell(help_option, file);
}
