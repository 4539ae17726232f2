// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/policy.h"

#include <assert.h>
#include <string.h>

const char *const nh_role_names[] = {
    [NH_ROLE_WEIGHT] = "weight",
    [NH_ROLE_MATMUL_IN] = "matmul-in",
    [NH_ROLE_MATMUL_OUT] = "matmul-out",
    [NH_ROLE_ACCUM] = "accum",
    [NH_ROLE_ACTIVATION] = "activation",
    [NH_ROLE_NORM_IN] = "norm-in",
    [NH_ROLE_NORM_STAT] = "norm-stat",
    [NH_ROLE_NORM_OUT] = "norm-out",
    [NH_ROLE_SOFTMAX] = "softmax",
    [NH_ROLE_RESIDUAL] = "residual",
    [NH_ROLE_EMBEDDING] = "embedding",
    [NH_ROLE_LOGITS] = "logits",
    [NH_ROLE_LOSS] = "loss",
    [NH_ROLE_GRADIENT] = "gradient",
    [NH_ROLE_WEIGHT_GRADIENT] = "weight-gradient",
    [NH_ROLE_MASTER] = "master",
    [NH_ROLE_MOMENT] = "moment",
    [NH_ROLE_COUNT] = NULL,
};

/* What no recipe gives up: loss, master weights and moments in fp32. */
#define OPTIMIZER_WIDE [NH_ROLE_LOSS] = "fp32", [NH_ROLE_MASTER] = "fp32", [NH_ROLE_MOMENT] = "fp32"
/* Sums, statistics and exponentials inside operations in fp32. */
#define INSIDE_WIDE [NH_ROLE_ACCUM] = "fp32", [NH_ROLE_NORM_STAT] = "fp32", [NH_ROLE_SOFTMAX] = "fp32"

#define DYNAMIC {.start = 0x1p16, .window = 2000, .hysteresis = 1, .floor = 1}

static const struct nh_policy plain = {
    .name = "plain",
    .what = "all stored tensors in --dtype; sums, norm statistics, softmax, loss, master weights and moments in fp32",
    .source = "ours; the scaler is torch's GradScaler with a floor of 1",
    .format = {INSIDE_WIDE, OPTIMIZER_WIDE},
    .scaler = DYNAMIC,
};

static const struct nh_policy all_half = {
    .name = "all-half",
    .what = "everything in --dtype, sums, norm statistics and softmax too; only loss, master weights and moments in fp32",
    .source = "ours, a stress control; apex O3 comes close, without master weights",
    .dtype = "fp16",
    .format = {OPTIMIZER_WIDE},
    .scaler = DYNAMIC,
};

static const struct nh_policy amp_o1 = {
    .name = "amp-o1",
    .aliases = (const char *const[]){"apex-o1", NULL},
    .what = "products in --dtype, their inputs cast; embeddings, norms, softmax and so the stream in fp32",
    .source = "NVIDIA/apex amp/lists/functional_overrides.py and torch_overrides.py, amp/scaler.py",
    .dtype = "fp16",
    .format = {INSIDE_WIDE, OPTIMIZER_WIDE, [NH_ROLE_NORM_OUT] = "fp32", [NH_ROLE_RESIDUAL] = "fp32",
               [NH_ROLE_EMBEDDING] = "fp32"},
    .scaler = {.start = 0x1p16, .window = 2000, .hysteresis = 1, .floor = 0x1p-24, .ceiling = 0x1p24},
};

static const struct nh_policy amp_o2 = {
    .name = "amp-o2",
    .aliases = (const char *const[]){"apex-o2", NULL},
    .what = "model and stream in --dtype, outputs cast to fp32; sums, statistics, softmax inside, master weights in fp32",
    .source = "NVIDIA/apex amp/frontend.py and _initialize.py, amp/scaler.py",
    .dtype = "fp16",
    .format = {INSIDE_WIDE, OPTIMIZER_WIDE},
    .scaler = {.start = 0x1p16, .window = 2000, .hysteresis = 1, .floor = 0x1p-24, .ceiling = 0x1p24},
};

static const struct nh_policy cogview = {
    .name = "cogview",
    .aliases = (const char *const[]){"cogview-paper", NULL},
    .what = "model and stream in --dtype; sums, statistics and softmax inside in fp32; logits and master weights in fp32",
    .source = "THUDM/CogView fp16/ and pretrain_gpt2.py; its other cures are model switches: --arch cogview",
    .dtype = "fp16",
    .format = {INSIDE_WIDE, OPTIMIZER_WIDE, [NH_ROLE_LOGITS] = "fp32"},
    .scaler = {.start = 0x1p32, .window = 1000, .hysteresis = 2, .floor = 1},
};

static const struct nh_policy glm130b = {
    .name = "glm130b",
    .what = "as amp-o2 with logits in fp32 and DeepSpeed's scaler",
    .source = "arXiv:2210.02414 sections 2.2 and 2.3; its score scaling by layer is --pb-relax=layer, its shrink --embed-shrink 0.1",
    .dtype = "fp16",
    .format = {INSIDE_WIDE, OPTIMIZER_WIDE, [NH_ROLE_LOGITS] = "fp32"},
    .scaler = {.start = 0x1p16, .window = 1000, .hysteresis = 2, .floor = 1},
};

static const struct nh_policy megatron = {
    .name = "megatron-fp16",
    .aliases = (const char *const[]){"megatron", NULL},
    .what = "model and stream in --dtype, softmax and logits in fp32, master weights in fp32; --roles residual=fp32 is its option",
    .source = "NVIDIA/Megatron-LM megatron/training/arguments.py, core/optimizer/grad_scaler.py",
    .dtype = "fp16",
    .format = {INSIDE_WIDE, OPTIMIZER_WIDE, [NH_ROLE_LOGITS] = "fp32"},
    .scaler = {.start = 0x1p32, .window = 1000, .hysteresis = 2, .floor = 1},
};

static const struct nh_policy bf16_mixed = {
    .name = "bf16-mixed",
    .what = "products and stream in --dtype; norms, softmax, logits, weight gradients and master weights in fp32; no scaler",
    .source = "bigscience-workshop/bigscience train/tr11-176B-ml; google-deepmind/nanodo model.py",
    .dtype = "bf16",
    .format = {INSIDE_WIDE, OPTIMIZER_WIDE, [NH_ROLE_NORM_OUT] = "fp32", [NH_ROLE_LOGITS] = "fp32",
               [NH_ROLE_WEIGHT_GRADIENT] = "fp32"},
    .scaler = {.start = 1, .floor = 1},
};

const struct nh_policy *const nh_policies[] = {&plain, &all_half, &amp_o1, &amp_o2, &cogview, &glm130b, &megatron, &bf16_mixed, NULL};

static struct nh_fmt named(const char *name)
{
    struct nh_fmt f;
    int status = nh_fmt_parse(&f, name);
    assert(status == 0); /* the tables of this file name formats that exist */
    (void)status;
    return f;
}

/** A format that a policy fixes. fp32 stands for "wide enough", so it gives way where it would be the narrower one:
 *  with --dtype fp64 everything is fp64. */
static struct nh_fmt fixed(const char *name, const struct nh_fmt *dtype)
{
    bool too_narrow = dtype->exp_bits > 8 || dtype->man_bits > 23;
    return named(too_narrow && strcmp(name, "fp32") == 0 ? "fp64" : name);
}

void nh_policy_formats(const struct nh_config *config, struct nh_fmt formats[NH_ROLE_COUNT])
{
    /* tf32 is a format of inputs of products; what is stored is fp32. */
    const struct nh_fmt input = config->dtype;
    const struct nh_fmt stored = strcmp(input.name, "tf32") == 0 ? named("fp32") : input;
    for (int role = 0; role < NH_ROLE_COUNT; role++) {
        const char *name = config->policy->format[role];
        if (role == NH_ROLE_ACCUM || role == NH_ROLE_NORM_STAT)
            name = (role == NH_ROLE_ACCUM ? config->accum : config->norm_stats) == NH_WIDE_DTYPE ? NULL : "fp32";
        bool follows = strcmp(config->role_format[role].name, "dtype") == 0;
        if (*config->role_format[role].name && !follows)
            formats[role] = config->role_format[role];
        else if (name && !follows)
            formats[role] = fixed(name, &config->dtype);
        else if (role == NH_ROLE_NORM_IN && !follows)
            formats[role] = (struct nh_fmt){.name = ""};
        else
            formats[role] = role == NH_ROLE_WEIGHT || role == NH_ROLE_MATMUL_IN ? input : stored;
    }
}

struct nh_scaler_rule nh_policy_scaler(const struct nh_config *config)
{
    struct nh_fmt formats[NH_ROLE_COUNT];
    nh_policy_formats(config, formats);
    struct nh_scaler_rule rule = config->policy->scaler;
    if (config->train.loss_scale > 0)
        return (struct nh_scaler_rule){.start = config->train.loss_scale, .floor = config->train.loss_scale};
    if (formats[NH_ROLE_GRADIENT].exp_bits >= 8 && formats[NH_ROLE_WEIGHT_GRADIENT].exp_bits >= 8)
        return (struct nh_scaler_rule){.start = 1, .floor = 1};
    if (config->train.scale_window && rule.window)
        rule.window = config->train.scale_window;
    return rule;
}
