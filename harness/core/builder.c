// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/builder.h"
#include "harness/core/init.h"

#include <stdio.h>

int nh_put_site(struct nh_builder *b, enum nh_site_name name, enum nh_role role)
{
    return nh_graph_site(b->g, b->layer, b->sublayer, name, role);
}

nh_val nh_put_value(struct nh_builder *b, int cols, enum nh_site_name name, enum nh_role role)
{
    return nh_graph_value(b->g, cols, nh_put_site(b, name, role), role);
}

int nh_cols(const struct nh_builder *b, nh_val v)
{
    return b->g->values[v].cols;
}

int nh_put_param(struct nh_builder *b, const char *name, int cols, int n_parts, const struct nh_part *parts, enum nh_role role,
                 enum nh_site_name gradient_site)
{
    return nh_put_repeated(b, name, cols, n_parts, parts, 1, role, gradient_site);
}

int nh_put_repeated(struct nh_builder *b, const char *name, int cols, int n_parts, const struct nh_part *parts, int repeat,
                    enum nh_role role, enum nh_site_name gradient_site)
{
    struct nh_param p = {.layer = b->layer, .cols = cols, .n_parts = n_parts, .repeat = repeat, .role = role};
    if (b->layer > 0 && b->sublayer != NH_SUB_FINAL)
        snprintf(p.name, sizeof p.name, "layers.%d.%s", b->layer, name);
    else
        snprintf(p.name, sizeof p.name, "%s", name);
    for (int i = 0; i < n_parts; i++) {
        p.part[i] = parts[i];
        p.rows += repeat * parts[i].rows;
    }
    p.site = nh_put_site(b, gradient_site, role);
    p.weight_site = nh_put_site(b, NH_SITE_WEIGHT, role);
    for (int i = 0; i < b->g->n_moments; i++)
        p.moment_site[i] = nh_put_site(b, i ? NH_SITE_MOMENT_2 : NH_SITE_MOMENT_1, NH_ROLE_MOMENT);
    return nh_graph_param(b->g, &p);
}

int nh_put_constant(struct nh_builder *b, const char *name, int cols, double start, enum nh_role role, enum nh_site_name where)
{
    return nh_put_param(b, name, cols, 1, &(struct nh_part){.rows = 1, .start = start}, role, where);
}

nh_val nh_put_cast(struct nh_builder *b, nh_val x, enum nh_site_name where, enum nh_role role)
{
    if (nh_fmt_same(&b->g->fmt[b->g->values[x].role], &b->g->fmt[role]))
        return x;
    nh_val y = nh_put_value(b, nh_cols(b, x), where, role);
    nh_graph_rec(b->g, NH_OP_CAST, y)->in[0] = x;
    return y;
}

nh_val nh_put_matmul_in(struct nh_builder *b, nh_val x)
{
    return nh_put_cast(b, x, NH_SITE_CAST, NH_ROLE_MATMUL_IN);
}

nh_val nh_put_linear(struct nh_builder *b, nh_val x, int weight, const char *bias, enum nh_site_name where, enum nh_role role)
{
    x = nh_put_matmul_in(b, x);
    int out = b->g->params[weight].rows;
    int bias_param = bias ? nh_put_constant(b, bias, out, 0, role, where) : -1;
    nh_val y = nh_put_value(b, out, where, role);
    int step = b->g->streamed ? nh_streamed_rows(nh_cols(b, x)) : out;
    for (int row0 = 0; row0 < out; row0 += step) {
        int rows = out - row0 < step ? out - row0 : step;
        struct nh_rec *r = nh_graph_rec(b->g, NH_OP_LINEAR, rows < out ? nh_graph_view(b->g, y, row0, rows) : y);
        r->in[0] = x, r->par[0] = weight, r->par[1] = bias_param, r->u.linear.row0 = row0;
        r->order -= row0 > 0; /* that of the first part */
    }
    return y;
}

nh_val nh_put_norm(struct nh_builder *b, nh_val x, int group, bool per_head, double gain, const char *name, enum nh_site_name where)
{
    int cols = nh_cols(b, x), n = per_head ? group : cols;
    char text[24];
    double offset = b->config->gain_offset ? 1 : 0;
    snprintf(text, sizeof text, "%s.gain", name);
    /* gains and biases are not inputs of products: they are held as what they are added to or multiplied with */
    int g = nh_put_constant(b, text, n, gain - offset, NH_ROLE_NORM_OUT, where);
    snprintf(text, sizeof text, "%s.bias", name);
    int shift = b->config->norm == NH_NORM_LAYER ? nh_put_constant(b, text, n, 0, NH_ROLE_NORM_OUT, where) : -1;
    nh_val y = nh_put_value(b, cols, where, NH_ROLE_NORM_OUT);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_NORM, y);
    r->in[0] = x, r->par[0] = g, r->par[1] = shift;
    r->u.norm.type = b->config->norm, r->u.norm.group = group, r->u.norm.per_head = per_head, r->u.norm.offset = offset;
    return y;
}

nh_val nh_put_axpby(struct nh_builder *b, double s, nh_val x, double t, nh_val y, enum nh_site_name where, enum nh_role role)
{
    nh_val z = nh_put_value(b, nh_cols(b, x), where, role);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_AXPBY, z);
    r->in[0] = x, r->in[1] = y, r->u.axpby.a = s, r->u.axpby.b = t;
    return z;
}

nh_val nh_put_gain(struct nh_builder *b, nh_val x, int width, double start, const char *name, enum nh_site_name where,
                   enum nh_role role)
{
    int cols = nh_cols(b, x);
    nh_val y = nh_put_value(b, cols, where, role);
    int p = nh_put_constant(b, name, cols / width, start, NH_ROLE_NORM_OUT, where);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_GAIN, y);
    r->in[0] = x, r->par[0] = p, r->u.gain.width = width;
    return y;
}

nh_val nh_put_activate(struct nh_builder *b, nh_val x, enum nh_act kind, enum nh_site_name where, enum nh_role role)
{
    nh_val y = nh_put_value(b, nh_cols(b, x), where, role);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_ACT, y);
    r->in[0] = x, r->u.act.kind = kind, r->u.act.cap = b->config->softcap;
    return y;
}

nh_val nh_put_mul(struct nh_builder *b, nh_val x, nh_val y, enum nh_site_name where)
{
    nh_val z = nh_put_value(b, nh_cols(b, x), where, NH_ROLE_ACTIVATION);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_MUL, z);
    r->in[0] = x, r->in[1] = y;
    return z;
}

struct nh_part nh_put_part(const struct nh_builder *b, enum nh_weight w)
{
    int out, in;
    nh_weight_shape(b->config, w, &out, &in);
    return nh_put_matrix(b, w, out, in);
}

struct nh_part nh_put_matrix(const struct nh_builder *b, enum nh_weight w, int out, int in)
{
    return (struct nh_part){.rows = out, .tensor = (int)w, .std = nh_matrix_std(b->config, w, out, in, &b->pos)};
}
