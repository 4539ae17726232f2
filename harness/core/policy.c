// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/policy.h"

#include <assert.h>
#include <string.h>

const char *const nh_role_names[NH_ROLE_COUNT] = {
    [NH_ROLE_WEIGHT] = "weight",
    [NH_ROLE_MATMUL_IN] = "matmul-in",
    [NH_ROLE_MATMUL_OUT] = "matmul-out",
    [NH_ROLE_ACTIVATION] = "activation",
    [NH_ROLE_NORM_STAT] = "norm-stat",
    [NH_ROLE_NORM_OUT] = "norm-out",
    [NH_ROLE_SOFTMAX] = "softmax",
    [NH_ROLE_RESIDUAL] = "residual",
    [NH_ROLE_EMBEDDING] = "embedding",
    [NH_ROLE_LOGITS] = "logits",
    [NH_ROLE_GRADIENT] = "gradient",
    [NH_ROLE_WEIGHT_GRADIENT] = "weight-gradient",
    [NH_ROLE_LOSS] = "loss",
};

static const struct nh_policy plain = {
    .name = "plain",
    .what = "all stored tensors in --dtype; norm statistics, softmax and loss in fp32",
    .source = "ours; what most half-precision code keeps in fp32",
    .format = {[NH_ROLE_NORM_STAT] = "fp32", [NH_ROLE_SOFTMAX] = "fp32", [NH_ROLE_LOSS] = "fp32"},
};

const struct nh_policy *const nh_policies[] = {&plain, NULL};

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
        if (role == NH_ROLE_NORM_STAT && config->norm_stats == NH_WIDE_DTYPE)
            name = NULL;
        if (name)
            formats[role] = fixed(name, &config->dtype);
        else
            formats[role] = role == NH_ROLE_WEIGHT || role == NH_ROLE_MATMUL_IN ? input : stored;
    }
}
