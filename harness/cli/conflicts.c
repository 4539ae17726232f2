// SPDX-License-Identifier: GPL-3.0-or-later
/** Options that are right alone and wrong together. Each check refuses with what, where, and what would work. */
#include "harness/cli/names.h"
#include "harness/cli/options.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"
#include "harness/core/graph.h"
#include "harness/core/policy.h"
#include "layouts/layout.h"
#include "probes/probe.h"
#include "results/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_attention(const struct nh_config *c)
{
    return c->branches & NH_BRANCHES_ATTN;
}

static bool rotates(const struct nh_config *c)
{
    return c->pos == NH_POS_ROPE || c->pos == NH_POS_INTERLEAVED;
}

static bool heads_fit(const struct nh_config *c, int heads)
{
    return c->width % heads == 0 && (!rotates(c) || c->width / heads % 2 == 0);
}

/* Widths that counts of tensors, which are int, have room for. */
enum { WIDEST = 1 << 22 };

static int heads(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    if (has_attention(c) && (long long)c->heads * c->head_dim > WIDEST)
        return nh_fail(NH_USAGE, "--heads %d of --head-dim %d are wider together than %d values; take fewer or narrower ones", c->heads,
                       c->head_dim, WIDEST);
    if (has_attention(c) && c->head_dim % 2 != 0 && rotates(c))
        return nh_fail(NH_USAGE, "--head-dim %d is odd, which rotation cannot pair; take an even one, or --pos nope", c->head_dim);
    if (!has_attention(c) || c->head_dim || heads_fit(c, c->heads))
        return NH_OK;
    int fit = c->heads < c->width ? c->heads : c->width;
    while (fit > 1 && !heads_fit(c, fit))
        fit--;
    char problem[128], remedy[64] = "take an even width, or --pos nope";
    if (c->width % c->heads != 0)
        snprintf(problem, sizeof problem, "--heads %d does not divide --width %d", c->heads, c->width);
    else
        snprintf(problem, sizeof problem,
                 "--heads %d at --width %d makes heads of %d values, which rotation cannot pair", c->heads, c->width,
                 c->width / c->heads);
    if (heads_fit(c, fit))
        snprintf(remedy, sizeof remedy, "--heads %d would do", fit);
    return nh_fail(NH_USAGE, "%s; %s", problem, remedy);
}

static int kv_heads(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    if (!has_attention(c) || c->heads % c->kv_heads == 0)
        return NH_OK;
    int fit = c->kv_heads < c->heads ? c->kv_heads : c->heads;
    while (c->heads % fit != 0)
        fit--;
    return nh_fail(NH_USAGE, "--kv-heads %d does not divide --heads %d; --kv-heads %d would do", c->kv_heads, c->heads,
                   fit);
}

/* The first of some options that the user gave; NULL = none of them. */
static const char *first_given(const struct nh_options *o, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (nh_options_given(o, names[i]))
            return names[i];
    return NULL;
}

/* An option, and whether it stands at a value that would do something. */
struct use {
    const char *option;
    bool on;
};

/* The first of some options that the user gave such a value; what a preset says without effect is no error. */
static const char *first_in_use(const struct nh_options *o, const struct use *uses, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (uses[i].on && nh_options_given(o, uses[i].option))
            return uses[i].option;
    return NULL;
}

static int attention_only(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    const struct use uses[] = {
        {"qk-init", c->qk_zero},
        {"qk-norm", c->qk_norm},
        {"attn-gate", c->attn_gate},
        {"query-scalar", c->query_scalar > 0},
        {"score-softcap", c->score_softcap > 0},
        {"head-dim", c->head_dim},
        {"theta-local", c->theta_local > 0},
        {"rope-scaling", c->rope_scaling.form},
        {"pattern", c->pattern},
        {"score-scale", true},
        {"pb-relax", true},
        {"softmax-grad", true},
        {"window", true},
        {"heads", true},
        {"kv-heads", true},
        {"theta", true},
    };
    const char *idle = has_attention(c) ? NULL : first_in_use(o, uses, sizeof uses / sizeof *uses);
    if (idle)
        return nh_fail(NH_USAGE, "--%s has no effect with --branches ffn, which has no attention; leave one out", idle);
    return NH_OK;
}

static int ffn_only(const struct nh_options *o)
{
    const struct use uses[] = {{"experts", o->config.moe.experts}, {"ffn", true}, {"ffn-mult", true}};
    const bool has_ffn = o->config.branches & NH_BRANCHES_FFN;
    const char *idle = has_ffn ? NULL : first_in_use(o, uses, sizeof uses / sizeof *uses);
    if (idle)
        return nh_fail(NH_USAGE, "--%s has no effect with --branches attn, which has no FFN; leave one out", idle);
    return NH_OK;
}

/* The hidden width of one of n FFNs side by side. */
static int hidden_fits(const char *option, double mult, int width, int n)
{
    const double hidden = round(mult * width);
    if (hidden >= 1 && hidden <= WIDEST / n)
        return NH_OK;
    char mult_text[NH_NUMBER_SIZE], hidden_text[NH_NUMBER_SIZE];
    nh_number_real(mult_text, mult);
    nh_number_real(hidden_text, hidden);
    return nh_fail(NH_USAGE, "--%s %s at --width %d makes a hidden width of %s; it must be in 1..%d", option, mult_text, width,
                   hidden_text, WIDEST / n);
}

static int hidden_width(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    const struct nh_moe *moe = &c->moe;
    const int status = hidden_fits("ffn-mult", c->ffn_mult, c->width, 1);
    if (status || !moe->experts)
        return status;
    return hidden_fits("expert-mult", moe->mult, c->width, moe->experts > moe->shared ? moe->experts : moe->shared);
}

static int rotation(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    const struct use uses[] = {{"theta-local", c->theta_local > 0}, {"rope-scaling", c->rope_scaling.form}, {"theta", true}};
    const char *idle = first_in_use(o, uses, sizeof uses / sizeof *uses);
    if (idle && !rotates(c))
        return nh_fail(NH_USAGE, "--%s has no effect without rotation; leave it out or use --pos rope", idle);
    if (c->pos == NH_POS_INTERLEAVED && c->rope_scaling.form)
        return nh_fail(NH_USAGE, "--rope-scaling has no effect with --pos interleaved, which rotates in local layers alone; leave one out");
    if (c->pos == NH_POS_INTERLEAVED && c->theta_local > 0 && nh_options_given(o, "theta"))
        return nh_fail(NH_USAGE, "--theta has no effect beside --theta-local with --pos interleaved, which rotates in local layers alone; "
                                 "leave one out");
    return NH_OK;
}

/* Local and global layers. */
static int pattern(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    int local = 0;
    for (int l = 1; l <= c->depth; l++)
        local += nh_layer_is_local(c, l);
    if (c->theta_local > 0 && local == 0 && nh_options_given(o, "theta-local"))
        return nh_fail(NH_USAGE, "--theta-local has no effect without local layers; leave it out or add --pattern lg");
    if (nh_options_given(o, "window") && c->pattern && *c->pattern && local == 0)
        return nh_fail(NH_USAGE, "--window has no effect, as no layer of --pattern %.40s is local; leave one out", c->pattern);
    if (nh_options_given(o, "pattern") && c->window == 0 && c->theta_local == 0 && c->pos != NH_POS_INTERLEAVED)
        return nh_fail(NH_USAGE, "--pattern has no effect where local layers are as global ones; add --window, --theta-local or --pos "
                                 "interleaved");
    return NH_OK;
}

/* True where the layout norms what the last matrix of an FFN reads. */
static int norms_ffn(const struct nh_config *config, bool *found)
{
    struct nh_config plain = *config;
    struct nh_graph *g;
    plain.moe.experts = 0;
    const int status = nh_graph_build(&g, &plain, 1, 1, 1);
    if (status)
        return status;
    *found = false;
    for (int s = 0; s < g->n_sites; s++)
        *found |= g->sites[s].sublayer == NH_SUB_FFN && g->sites[s].name == NH_SITE_NORM_INNER;
    nh_graph_free(g);
    return NH_OK;
}

static int experts(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    if (!c->moe.experts)
        return NH_OK;
    if (c->moe.active > c->moe.experts)
        return nh_fail(NH_USAGE, "--experts-active %d is more than --experts %d; --experts-active %d would do", c->moe.active,
                       c->moe.experts, c->moe.experts);
    if (nh_options_given(o, "experts") && c->moe.dense_layers >= c->depth)
        return nh_fail(NH_USAGE, "--experts has no effect, as all %d layers are dense; take fewer --dense-layers", c->depth);
    bool inner = false;
    const int status = norms_ffn(c, &inner);
    if (inner)
        return nh_fail(NH_USAGE, "the layout %s norms inside the FFN, which experts have no place for; take --layout sandwich-depth",
                       c->layout->name);
    return status;
}

/* How often an operation stands on the tape of the model. */
static int count(const struct nh_config *c, enum nh_op op, int *n)
{
    struct nh_graph *g;
    const int status = nh_graph_build(&g, c, 1, 1, 1);
    if (status)
        return status;
    *n = 0;
    for (int r = 0; r < g->n_recs; r++)
        *n += g->recs[r].op == op;
    nh_graph_free(g);
    return NH_OK;
}

static int norms(const struct nh_options *o)
{
    static const char *const names[] = {"norm", "eps", "norm-stats", "norm-cast"};
    const char *idle = first_given(o, names, sizeof names / sizeof *names);
    int n = 0, status = idle ? count(&o->config, NH_OP_NORM, &n) : NH_OK;
    if (status || !idle || n > 0)
        return status;
    return nh_fail(NH_USAGE, "--%s has no effect in the layout %s, which has no norm; leave it out", idle,
                   o->config.layout->name);
}

static int qk_norm(const struct nh_options *o)
{
    if (!o->config.qk_norm || !nh_options_given(o, "qk-norm"))
        return NH_OK;
    struct nh_config own = o->config;
    own.qk_norm = NH_QK_NORM_OFF;
    int with = 0, without = 0, status = count(&o->config, NH_OP_NORM, &with);
    if (!status)
        status = count(&own, NH_OP_NORM, &without);
    if (status || with > without)
        return status;
    return nh_fail(NH_USAGE,
                   "--qk-norm has no effect in the layout %s, which norms queries and keys by itself; leave it out",
                   own.layout->name);
}

static bool has_post_norm(const struct nh_layout *layout, int depth, const double *knobs)
{
    if (!layout->law_term)
        return true; /* nothing is known against it */
    for (int layer = 1; layer <= depth; layer++) {
        const struct nh_pos attn = {.layer = layer, .depth = depth, .kind = NH_ATTN};
        const struct nh_pos ffn = {.layer = layer, .depth = depth, .kind = NH_FFN};
        if (layout->law_term(&attn, knobs).post_norm || layout->law_term(&ffn, knobs).post_norm)
            return true;
    }
    return false;
}

static int post_gain(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    const char *idle = nh_options_given(o, "post-gain") ? "post-gain" : "post-gain-frozen";
    if (!nh_options_given(o, idle) || has_post_norm(c->layout, c->depth, c->knobs))
        return NH_OK;
    char list[NH_VALUE_SIZE] = "";
    for (size_t i = 0, n = 0; nh_layouts[i] && n < sizeof list; i++) {
        double knobs[NH_MAX_KNOBS] = {0};
        nh_knobs_start(nh_layouts[i], knobs);
        if (nh_layouts[i]->law_term && has_post_norm(nh_layouts[i], c->depth, knobs))
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", nh_layouts[i]->name);
    }
    return nh_fail(NH_USAGE,
                   "--%s has no effect in the layout %s, which has no norm on a branch's output; "
                   "these have one: %s",
                   idle, c->layout->name, list);
}

static int images(const struct nh_options *o)
{
    static const char *const names[] = {"image-grid", "image-levels"};
    const char *idle = first_given(o, names, sizeof names / sizeof *names);
    if (!idle || strcmp(o->config.data, "fashion-mnist") == 0)
        return NH_OK;
    return nh_fail(NH_USAGE, "--%s has no effect with --data %.60s; leave it out or use --data fashion-mnist", idle,
                   o->config.data);
}

static int cotangent(const struct nh_options *o)
{
    if (!nh_options_given(o, "cotangent"))
        return NH_OK;
    char list[NH_VALUE_SIZE] = "";
    size_t n = 0;
    for (size_t i = 0; nh_probes[i] && n < sizeof list; i++) {
        if (nh_probes[i]->gradients == NH_GRADIENTS_NOT_READ)
            continue;
        if (o->config.probes >> i & 1)
            return NH_OK;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? " or " : "", nh_probes[i]->name);
    }
    return nh_fail(NH_USAGE,
                   "--cotangent has no effect, as no probe needs the backward pass; leave it out or add %s to "
                   "--probes",
                   list);
}

static int jacobian(const struct nh_options *o)
{
    const char *idle = nh_options_given(o, "jac-samples")      ? "jac-samples"
                       : nh_options_given(o, "jac-iterations") ? "jac-iterations"
                       : o->config.spectrum                    ? "spectrum"
                                                               : NULL;
    size_t i;
    if (!idle || (nh_names_find(&nh_probe_names, "jacobian", &i) == NH_OK && o->config.probes >> i & 1))
        return NH_OK;
    return nh_fail(NH_USAGE, "--%s has no effect without the probe jacobian; leave it out or add jacobian to --probes",
                   idle);
}

static int relax(const struct nh_options *o)
{
    if (o->config.pb_relax == 0 || !o->config.scale_after)
        return NH_OK;
    return nh_fail(NH_USAGE, "--pb-relax divides queries before the product, --score-scale after scales behind it; leave one out");
}

/* Norms on the stream and on branches alone are relaxed. */
static int norm_relax(const struct nh_options *o)
{
    int n = 0;
    if (o->config.ln_relax == 0)
        return NH_OK;
    const int status = count(&o->config, NH_OP_RELAX, &n);
    if (status || n > 0)
        return status;
    return nh_fail(NH_USAGE, "--ln-relax has no effect in the layout %s, which has no norms; leave it out",
                   o->config.layout->name);
}

static int scaler(const struct nh_options *o)
{
    if (!o->config.train.scale_window || nh_policy_scaler(&o->config).window)
        return NH_OK;
    return nh_fail(NH_USAGE, "--scale-window has no effect, as the loss scale is fixed; leave it out, or use --loss-scale auto with "
                             "--dtype fp16");
}

static int training_cotangent(const struct nh_options *o)
{
    if (!o->config.cotangent_random || !o->config.train.steps)
        return NH_OK;
    return nh_fail(NH_USAGE, "--cotangent random and --steps exclude each other: training follows the loss; leave one out");
}

static int resume(const struct nh_options *o)
{
    if (!o->config.train.resume || !o->config.force)
        return NH_OK;
    return nh_fail(NH_USAGE, "--resume goes on and --force starts anew; leave one out");
}

static int warmup(const struct nh_options *o)
{
    const struct nh_training *t = &o->config.train;
    if (!t->steps || t->warmup < t->steps || t->schedule == NH_SCHEDULE_CONSTANT)
        return NH_OK;
    return nh_fail(NH_USAGE, "--warmup %d is not over within --steps %d, so that --schedule has no effect; take fewer steps of warmup",
                   t->warmup, t->steps);
}

static int probe_every(const struct nh_options *o)
{
    if (o->config.probes || !nh_options_given(o, "probe-every"))
        return NH_OK;
    return nh_fail(NH_USAGE, "--probe-every has no effect with --probes none; leave one out");
}

static int dump(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    if (c->dump && c->train.steps)
        return nh_fail(NH_USAGE, "--dump shows one batch before any training; leave out --steps");
    if (c->dump && c->cotangent_random)
        return nh_fail(NH_USAGE, "--dump has the gradients of the loss; leave out --cotangent random");
    return NH_OK;
}

/* Roles that have an option of their own. */
static int roles(const struct nh_options *o)
{
    const struct nh_config *c = &o->config;
    const char *twice = *c->role_format[NH_ROLE_ACCUM].name && nh_options_given(o, "accum")            ? "accum"
                        : *c->role_format[NH_ROLE_NORM_STAT].name && nh_options_given(o, "norm-stats") ? "norm-stats"
                                                                                                       : NULL;
    return twice ? nh_fail(NH_USAGE, "--%s and --roles speak of the same; leave one out", twice) : NH_OK;
}

static int numbers(const struct nh_options *o)
{
    return nh_numbers_fit(&o->config);
}

int nh_options_conflicts(const struct nh_options *o)
{
    static int (*const checks[])(const struct nh_options *) = {
        numbers, attention_only, ffn_only,   heads,     kv_heads, rotation,           hidden_width,
        experts, /* before all that build the model */
        norms,          qk_norm,    post_gain, images,   cotangent,          jacobian,
        pattern,
        relax,          norm_relax, roles,     scaler,   training_cotangent,
        resume,         warmup,     probe_every, dump,
    };
    int status = NH_OK;
    for (size_t i = 0; !status && i < sizeof checks / sizeof *checks; i++)
        status = checks[i](o);
    return status;
}
