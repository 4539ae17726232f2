// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/init.h"

#include "harness/core/rng.h"

#include <gsl/gsl_randist.h>
#include <math.h>

/** Deviation of a standard normal cut at +-3: sqrt(1 - 6 phi(3) / erf(3/sqrt(2))), phi the normal density. */
static const double cut_std = 0.98657839255810862;
static const double cut = 3;

const char *const nh_init_names[] = {
    [NH_INIT_UNIT] = "unit",       [NH_INIT_GPT2] = "gpt2",   [NH_INIT_NORMAL] = "normal", [NH_INIT_XAVIER] = "xavier",
    [NH_INIT_TRINITY] = "trinity", [NH_INIT_PANGU] = "pangu", [NH_INIT_PANGU + 1] = NULL,
};

const char *const nh_init_helps[] = {
    [NH_INIT_UNIT] = "matrices N(0, 1/fan_in), embeddings N(0, 1), head N(0, 1/width)",
    [NH_INIT_GPT2] = "std 0.02, output projections 0.02/sqrt(2L) (GPT-2; Megatron and CogView start alike)",
    [NH_INIT_NORMAL] = "std 0.02 everywhere (OLMo 2)",
    [NH_INIT_XAVIER] =
        "matrices N(0, 2/(fan_in+fan_out)), embeddings and head N(0, 1/width), embeddings times sqrt(width) "
        "in the model (fairseq)",
    [NH_INIT_TRINITY] = "sigma 0.5/sqrt(width) cut at 3 sigma everywhere, embeddings times sqrt(width) in the model "
                        "(arXiv:2602.17004 section 2.4)",
    [NH_INIT_PANGU] = "std 1/sqrt(2 width L), embeddings 0.5 (Pangu Ultra, section 2.3)",
    [NH_INIT_PANGU + 1] = NULL,
};

void nh_weight_shape(const struct nh_config *config, enum nh_weight weight, int *out, int *in)
{
    int width = config->width, dim = nh_head_dim(config), q = config->heads * dim, kv = config->kv_heads * dim;
    int hidden = nh_ffn_hidden(config);
    switch (weight) {
    case NH_W_Q:
    case NH_W_ATTN_GATE:
        *out = q, *in = width;
        break;
    case NH_W_O:
        *out = width, *in = q;
        break;
    case NH_W_K:
    case NH_W_V:
        *out = kv, *in = width;
        break;
    case NH_W_IN:
    case NH_W_GATE:
        *out = hidden, *in = width;
        break;
    case NH_W_OUT:
        *out = width, *in = hidden;
        break;
    }
}

/** A matrix of the recipe, without factors. */
static double recipe_std(const struct nh_config *config, int out, int in)
{
    switch (config->init) {
    case NH_INIT_UNIT:
        return 1 / sqrt(in);
    case NH_INIT_GPT2:
    case NH_INIT_NORMAL:
        return 0.02;
    case NH_INIT_XAVIER:
        return sqrt(2.0 / (out + in));
    case NH_INIT_TRINITY:
        return cut_std * 0.5 / sqrt(config->width);
    case NH_INIT_PANGU:
        return 1 / sqrt(2.0 * config->width * config->depth);
    }
    return (double)NAN;
}

/** The factor on W_O and W_OUT. */
static double projection_factor(const struct nh_config *config, const struct nh_pos *pos)
{
    switch (config->branch_init) {
    case NH_BRANCH_INIT_OWN:
        return config->init == NH_INIT_GPT2 ? 1 / sqrt(2.0 * pos->depth) : 1;
    case NH_BRANCH_INIT_1:
        return 1;
    case NH_BRANCH_INIT_INVSQRT2L:
        return 1 / sqrt(2.0 * pos->depth);
    case NH_BRANCH_INIT_INVSQRT2K:
        return 1 / sqrt(2.0 * pos->layer);
    }
    return (double)NAN;
}

double nh_weight_std(const struct nh_config *config, enum nh_weight weight, const struct nh_pos *pos)
{
    int out, in;
    nh_weight_shape(config, weight, &out, &in);
    return nh_matrix_std(config, weight, out, in, pos);
}

double nh_matrix_std(const struct nh_config *config, enum nh_weight weight, int out, int in, const struct nh_pos *pos)
{
    if (weight == NH_W_Q && config->qk_zero)
        return 0;
    double std = recipe_std(config, out, in);
    if (weight == NH_W_O || weight == NH_W_OUT)
        std *= projection_factor(config, pos);
    if (config->layout->weight_gain)
        std *= config->layout->weight_gain(weight, pos, config->knobs);
    return std;
}

double nh_router_std(const struct nh_config *config)
{
    return recipe_std(config, config->moe.experts, config->width);
}

double nh_embed_std(const struct nh_config *config)
{
    switch (config->init) {
    case NH_INIT_UNIT:
        return 1;
    case NH_INIT_GPT2:
    case NH_INIT_NORMAL:
        return 0.02;
    case NH_INIT_XAVIER:
        return 1 /
               sqrt(config->width); /* facebookresearch/fairseq models/transformer/transformer_base.py, Embedding() */
    case NH_INIT_TRINITY:
        return cut_std * 0.5 / sqrt(config->width);
    case NH_INIT_PANGU:
        return 0.5;
    }
    return (double)NAN;
}

double nh_init_embed_scale(const struct nh_config *config)
{
    bool scaled = config->init == NH_INIT_TRINITY || config->init == NH_INIT_XAVIER;
    return scaled ? sqrt(config->width) : 1;
}

double nh_head_std(const struct nh_config *config)
{
    if (config->init == NH_INIT_XAVIER)
        return 1 / sqrt(config->width); /* as fairseq's output projection: 2/(fan_in+fan_out) would depend on the
                                           vocabulary */
    return recipe_std(config, config->width, config->width);
}

void nh_draw(const struct nh_config *config, int layer, int tensor, double std, double *w, size_t n)
{
    struct nh_rng_state state;
    gsl_rng rng = {nh_rng_type, &state};
    nh_rng_start(&rng, config->seed, (uint64_t)layer, (uint64_t)tensor);
    bool truncated = config->init == NH_INIT_TRINITY;
    double sigma = truncated ? std / cut_std : std;
    for (size_t i = 0; i < n; i++) {
        double z = gsl_ran_gaussian_ziggurat(&rng, 1);
        while (truncated && fabs(z) > cut)
            z = gsl_ran_gaussian_ziggurat(&rng, 1);
        w[i] = sigma * z;
    }
}
