// SPDX-License-Identifier: GPL-3.0-or-later
/** From a configuration to the tape: embedding, sublayers as the layout says, exit, head, loss. */
#include "harness/core/builder.h"
#include "harness/core/err.h"
#include "harness/core/init.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What a norm reads under --ln-relax: x / c, in x's format. */
static nh_val relax(struct nh_builder *b, nh_val x)
{
    nh_val y = nh_put_value(b, nh_cols(b, x), NH_SITE_NORM_RELAX, b->g->values[x].role);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_RELAX, y);
    r->in[0] = x, r->u.relax.bound = b->config->ln_relax;
    return y;
}

nh_val nh_norm(struct nh_builder *b, enum nh_norm_slot slot, nh_val x, double gain)
{
    static const struct {
        const char *name;
        enum nh_site_name site;
    } places[] = {
        [NH_N1] = {"norm_pre", NH_SITE_NORM_PRE},
        [NH_SECOND] = {"norm_second", NH_SITE_NORM_PRE},
        [NH_N2] = {"norm_post", NH_SITE_NORM_POST},
        [NH_OUTER] = {"norm_post", NH_SITE_NORM_POST},
        [NH_FINAL] = {"norm_final", NH_SITE_NORM_FINAL},
    };
    static const char *const sublayers[] = {
        [NH_SUB_ATTN] = "attn.", [NH_SUB_FFN] = "ffn.", [NH_SUB_BLOCK] = "block.", [NH_SUB_FINAL] = ""};
    char name[20];
    snprintf(name, sizeof name, "%s%s", sublayers[b->sublayer], places[slot].name);
    b->g->n_norms++;
    if (b->config->ln_relax > 0)
        x = relax(b, x);
    if (*b->g->fmt[NH_ROLE_NORM_IN].name)
        x = nh_put_cast(b, x, NH_SITE_NORM_IN, NH_ROLE_NORM_IN);
    double factor = slot == NH_N2 ? b->config->post_gain : 1;
    nh_val y = nh_put_norm(b, x, nh_cols(b, x), false, gain * factor, name, places[slot].site);
    b->g->params[b->g->recs[b->g->values[y].rec].par[0]].frozen = slot == NH_N2 && b->config->post_gain_frozen;
    return y;
}

nh_val nh_add_scaled(struct nh_builder *b, double skip, nh_val x, nh_val f)
{
    if (b->n_added < NH_STREAMS) /* the first add is to stream 0 */
        b->branch[b->n_added++] = f;
    return nh_put_axpby(b, skip, x, 1, f, NH_SITE_RESIDUAL, NH_ROLE_RESIDUAL);
}

nh_val nh_add(struct nh_builder *b, nh_val x, nh_val f)
{
    return nh_add_scaled(b, 1, x, f);
}

nh_val nh_join(struct nh_builder *b, nh_val a, nh_val f)
{
    return nh_put_axpby(b, 1, a, 1, f, NH_SITE_BRANCH, NH_ROLE_ACTIVATION);
}

nh_val nh_read_both(struct nh_builder *b, nh_val x, nh_val y)
{
    return nh_put_axpby(b, 1, x, 1, y, NH_SITE_BRANCH_IN, NH_ROLE_ACTIVATION);
}

nh_val nh_scale(struct nh_builder *b, nh_val x, double c)
{
    return nh_put_axpby(b, c, x, 0, -1, NH_SITE_NORM_SCALE, NH_ROLE_NORM_OUT);
}

nh_val nh_scale_branch(struct nh_builder *b, nh_val f, double c)
{
    return nh_put_axpby(b, c, f, 0, -1, NH_SITE_BRANCH, NH_ROLE_ACTIVATION);
}

nh_val nh_gain(struct nh_builder *b, nh_val f, bool per_channel, double start)
{
    return nh_put_gain(b, f, per_channel ? 1 : nh_cols(b, f), start, b->sublayer == NH_SUB_ATTN ? "attn.gain" : "ffn.gain", NH_SITE_BRANCH,
                       NH_ROLE_ACTIVATION);
}

nh_val nh_skip_gain(struct nh_builder *b, nh_val x)
{
    nh_val y = nh_put_gain(b, x, 1, 1, b->sublayer == NH_SUB_ATTN ? "attn.skip" : "ffn.skip", NH_SITE_SKIP, NH_ROLE_RESIDUAL);
    b->g->params[b->g->recs[b->g->values[y].rec].par[0]].profiled = true;
    return y;
}

nh_val nh_shrink(struct nh_builder *b, nh_val x, double start)
{
    nh_val y = nh_put_value(b, nh_cols(b, x), NH_SITE_SHRINK, NH_ROLE_RESIDUAL);
    int p = nh_put_constant(b, b->sublayer == NH_SUB_ATTN ? "attn.shrink" : "ffn.shrink", 1, start, NH_ROLE_NORM_OUT, NH_SITE_SHRINK);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_SHRINK, y);
    r->in[0] = x, r->par[0] = p;
    return y;
}

nh_val nh_branch_with(struct nh_builder *b, nh_val x, const struct nh_inner *inner)
{
    assert(b->pos.kind != NH_BLOCK);
    b->g->n_norms += b->pos.kind == NH_ATTN ? (inner->norm_qkv ? 3 : 0) + inner->norm_out : inner->norm_out;
    nh_val (*ffn)(struct nh_builder *, nh_val, const struct nh_inner *) =
        nh_layer_has_experts(b->config, b->layer) ? nh_put_experts : nh_put_feed_forward;
    return b->raw = b->pos.kind == NH_ATTN ? nh_put_attention(b, x, inner) : ffn(b, x, inner);
}

nh_val nh_branch(struct nh_builder *b, nh_val x)
{
    return nh_branch_with(b, x, &(struct nh_inner){0});
}

static enum nh_sublayer sublayer_of(enum nh_kind kind)
{
    static const enum nh_sublayer sublayers[] = {[NH_ATTN] = NH_SUB_ATTN, [NH_FFN] = NH_SUB_FFN, [NH_BLOCK] = NH_SUB_BLOCK};
    return sublayers[kind];
}

void nh_at(struct nh_builder *b, enum nh_kind kind)
{
    b->pos.kind = kind;
    b->sublayer = sublayer_of(kind);
}

nh_val nh_exit_norm(struct nh_builder *b, const nh_val *x)
{
    return nh_norm(b, NH_FINAL, x[0], 1);
}

nh_val nh_exit_bare(struct nh_builder *b, const nh_val *x)
{
    (void)b;
    return x[0];
}

/** A row of the results: from the streams `before` (NULL: from nothing) to the n streams `after`. */
static void step(struct nh_builder *b, const nh_val *before, int first_rec, const nh_val *after, int n)
{
    struct nh_graph *g = b->g;
    struct nh_step *more = realloc(g->steps, ((size_t)g->n_steps + 1) * sizeof *more);
    if (!more)
        nh_no_memory();
    g->steps = more;
    struct nh_step *s = &g->steps[g->n_steps++];
    /* a block has no one output of a branch, and no one addition where it adds more than once to a stream */
    bool block = b->sublayer == NH_SUB_BLOCK;
    int n_added = block && b->n_added > n ? 0 : b->n_added;
    *s = (struct nh_step){.layer = b->layer, .sublayer = b->sublayer, .first_rec = first_rec, .end_rec = g->n_recs,
                          .raw = block ? -1 : b->raw};
    for (int i = 0; i < NH_STREAMS; i++) {
        s->before[i] = before ? before[i] : -1;
        s->after[i] = i < n ? after[i] : -1;
        s->branch[i] = i < n_added ? b->branch[i] : -1;
        if (i < n)
            g->values[after[i]].watched = true;
    }
    if (s->raw >= 0 && b->config->dump)
        g->values[s->raw].watched = true;
    b->raw = -1, b->n_added = 0;
}

static void at(struct nh_builder *b, int layer, enum nh_sublayer sublayer)
{
    b->layer = layer, b->sublayer = sublayer;
}

/** Records the embedding and the streams that start from it; returns the table's parameter. */
static int embed(struct nh_builder *b, nh_val *streams)
{
    const struct nh_config *c = b->config;
    at(b, 0, NH_SUB_EMBED);
    struct nh_part tok = {.rows = b->g->vocab, .tensor = NH_TENSOR_EMBED, .std = nh_embed_std(c)};
    struct nh_part pos = {.rows = b->g->seq, .tensor = NH_TENSOR_POSITION, .std = nh_embed_std(c)};
    int table = nh_put_param(b, "embed", c->width, 1, &tok, NH_ROLE_EMBEDDING, NH_SITE_EMBED);
    int position = c->pos == NH_POS_LEARNED ? nh_put_param(b, "positions", c->width, 1, &pos, NH_ROLE_EMBEDDING, NH_SITE_EMBED) : -1;
    nh_val x = nh_put_value(b, c->width, NH_SITE_EMBED, NH_ROLE_RESIDUAL);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_EMBED, x);
    r->par[0] = table, r->par[1] = position;
    /* a constant is held in the format of what it multiplies: sqrt(3072) is 55.5 in bf16 */
    r->u.embed.scale = nh_round(&b->g->fmt[NH_ROLE_EMBEDDING], c->embed_scale), r->u.embed.shrink = c->embed_shrink;
    streams[0] = x;
    for (int i = 1; i < b->g->n_streams; i++) /* a value of its own, so that each stream has its own derivative */
        streams[i] = nh_put_axpby(b, 1, x, 0, -1, NH_SITE_EMBED, NH_ROLE_RESIDUAL);
    step(b, NULL, 0, streams, b->g->n_streams);
    return table;
}

/** One sublayer, or one block, with its row of the results. */
static void build_step(struct nh_builder *b, int layer, enum nh_kind kind, nh_val *streams)
{
    const struct nh_layout *layout = b->config->layout;
    nh_val before[NH_STREAMS];
    memcpy(before, streams, sizeof before);
    b->pos = (struct nh_pos){.layer = layer, .depth = b->config->depth, .kind = kind};
    struct nh_pos pos = b->pos;
    at(b, layer, sublayer_of(kind));
    int first = b->g->n_recs;
    if (kind == NH_BLOCK)
        layout->block(b, &pos, b->config->knobs, streams);
    else
        layout->sublayer(b, &pos, b->config->knobs, streams);
    b->sublayer = sublayer_of(kind); /* a block hook may have left it at one of its branches */
    step(b, before, first, streams, b->g->n_streams);
}

/** Logits and loss; where the model is streamed, by blocks of the vocabulary. */
static void head(struct nh_builder *b, nh_val x, int weight)
{
    const struct nh_config *c = b->config;
    struct nh_graph *g = b->g;
    int block = g->streamed && g->vocab > NH_VOCAB_BLOCK ? NH_VOCAB_BLOCK : g->vocab;
    x = nh_put_matmul_in(b, x);
    for (int c0 = 0, order = g->recs[g->n_recs - 1].order; c0 < g->vocab; c0 += block) {
        bool part = c0 + block < g->vocab;
        int begin = g->n_recs;
        g->logits = nh_put_value(b, part ? block : g->vocab - c0, NH_SITE_LOGITS, NH_ROLE_LOGITS);
        struct nh_rec *r = nh_graph_rec(g, NH_OP_LINEAR, g->logits);
        r->in[0] = x, r->par[0] = weight, r->u.linear.row0 = c0, r->u.linear.tied = g->tied >= 0;
        if (c->softcap > 0)
            g->logits = nh_put_activate(b, g->logits, NH_ACT_SOFTCAP, NH_SITE_SOFTCAP, NH_ROLE_LOGITS);
        g->values[g->logits].watched = c->dump != NULL;
        nh_val before = g->nll;
        g->nll = nh_put_value(b, part ? NH_LOSS_PART : 1, NH_SITE_LOSS, NH_ROLE_LOSS);
        r = nh_graph_rec(g, NH_OP_XENT, g->nll);
        r->in[0] = g->logits, r->in[1] = before;
        r->u.xent.z_loss = c->z_loss, r->u.xent.col0 = c0, r->u.xent.part = part;
        for (int i = begin; i < g->n_recs; i++)
            g->recs[i].order = order + 1 + i - begin;
    }
}

int nh_graph_build(struct nh_graph **out, const struct nh_config *config, int batch, int seq, int vocab)
{
    const struct nh_layout *layout = config->layout;
    if (layout->block && config->branches != NH_BRANCHES_BOTH)
        return nh_fail(NH_USAGE, "layout %s is a block around both branches; leave --branches out", layout->name);
    struct nh_builder b = {.g = nh_graph_new(config, batch, seq, vocab), .config = config, .raw = -1};
    struct nh_graph *g = b.g;
    g->n_streams = layout->n_streams;
    nh_val streams[NH_STREAMS] = {-1, -1};
    int table = embed(&b, streams);
    for (int l = 1; l <= config->depth; l++) {
        if (layout->block)
            build_step(&b, l, NH_BLOCK, streams);
        if (layout->sublayer && config->branches & NH_BRANCHES_ATTN)
            build_step(&b, l, NH_ATTN, streams);
        if (layout->sublayer && config->branches & NH_BRANCHES_FFN)
            build_step(&b, l, NH_FFN, streams);
    }
    at(&b, config->depth + 1, NH_SUB_FINAL);
    int first = g->n_recs;
    nh_val y = g->exit_value = layout->exit(&b, streams);
    b.n_added = 0; /* an exit may add streams: that is no branch */
    step(&b, streams, first, &y, 1);
    g->head_rec = g->n_recs;
    if (!config->tie) {
        struct nh_part own = {.rows = vocab, .tensor = NH_TENSOR_HEAD, .std = nh_head_std(config)};
        table = nh_put_param(&b, "head", config->width, 1, &own, NH_ROLE_WEIGHT, NH_SITE_LOGITS);
    }
    if (config->tie && !nh_fmt_same(&g->fmt[NH_ROLE_EMBEDDING], &g->fmt[NH_ROLE_WEIGHT]))
        g->tied = table, g->tied_site = nh_put_site(&b, NH_SITE_WEIGHT, NH_ROLE_WEIGHT);
    head(&b, y, table);
    nh_graph_close(g);
    *out = g;
    return NH_OK;
}
