// SPDX-License-Identifier: GPL-3.0-or-later
/** A model under construction, and what may be recorded for it: used by build.c (the whole), branch.c (attention and FFN) and
 *  experts.c; layouts use layouts/layout.h. Every nh_put function that returns a value records what makes it, to be stored at the
 *  site `where` of the sublayer under construction, in the format of a role. */
#ifndef NH_BUILDER_H
#define NH_BUILDER_H

#include "harness/core/graph.h"

struct nh_builder {
    struct nh_graph *g;
    const struct nh_config *config;
    struct nh_pos pos;
    int layer;
    enum nh_sublayer sublayer;
    nh_val raw, branch[NH_STREAMS]; /**< of the sublayer under construction */
    int n_added;                    /**< residual adds in it so far */
};

int nh_cols(const struct nh_builder *b, nh_val v);
int nh_put_site(struct nh_builder *b, enum nh_site_name name, enum nh_role role);
nh_val nh_put_value(struct nh_builder *b, int cols, enum nh_site_name name, enum nh_role role);

/** A parameter of n_parts parts one above the other; its gradient is counted at gradient_site. */
int nh_put_param(struct nh_builder *b, const char *name, int cols, int n_parts, const struct nh_part *parts, enum nh_role role,
                 enum nh_site_name gradient_site);
/** The same with all parts `repeat` times over. */
int nh_put_repeated(struct nh_builder *b, const char *name, int cols, int n_parts, const struct nh_part *parts, int repeat,
                    enum nh_role role, enum nh_site_name gradient_site);
/** A row of `cols` numbers that start at `start`. */
int nh_put_constant(struct nh_builder *b, const char *name, int cols, double start, enum nh_role role, enum nh_site_name where);
/** A branch matrix at the start, as recipe and layout have it. */
struct nh_part nh_put_part(const struct nh_builder *b, enum nh_weight w);
/** The same with out rows and in columns. */
struct nh_part nh_put_matrix(const struct nh_builder *b, enum nh_weight w, int out, int in);

/** x in the format of a role: cast where it has another one. */
nh_val nh_put_cast(struct nh_builder *b, nh_val x, enum nh_site_name where, enum nh_role role);
nh_val nh_put_matmul_in(struct nh_builder *b, nh_val x);
/** x W^T, plus a bias of this name, or none where it is NULL. */
nh_val nh_put_linear(struct nh_builder *b, nh_val x, int weight, const char *bias, enum nh_site_name where, enum nh_role role);
/** Norm over groups of `group` columns; per_head: one gain for all groups. */
nh_val nh_put_norm(struct nh_builder *b, nh_val x, int group, bool per_head, double gain, const char *name, enum nh_site_name where);
/** s x + t y; y = -1: s x. */
nh_val nh_put_axpby(struct nh_builder *b, double s, nh_val x, double t, nh_val y, enum nh_site_name where, enum nh_role role);
nh_val nh_put_mul(struct nh_builder *b, nh_val x, nh_val y, enum nh_site_name where);
/** One trained factor for every `width` columns. */
nh_val nh_put_gain(struct nh_builder *b, nh_val x, int width, double start, const char *name, enum nh_site_name where,
                   enum nh_role role);
nh_val nh_put_activate(struct nh_builder *b, nh_val x, enum nh_act kind, enum nh_site_name where, enum nh_role role);

/** Matrices of an FFN with `hidden` columns at the start; returns how many `in` has: gate and up, or up alone. */
int nh_put_ffn_parts(const struct nh_builder *b, int hidden, struct nh_part in[2], struct nh_part *out);
/** What the last product of an FFN reads: activation, or activation of the gates times the values, of the first product h; stored at
 *  `act` and `glu`. */
nh_val nh_put_hidden(struct nh_builder *b, nh_val h, enum nh_site_name act, enum nh_site_name glu);

nh_val nh_put_attention(struct nh_builder *b, nh_val x, const struct nh_inner *inner);
nh_val nh_put_feed_forward(struct nh_builder *b, nh_val x, const struct nh_inner *inner);
nh_val nh_put_experts(struct nh_builder *b, nh_val x, const struct nh_inner *inner);

#endif
