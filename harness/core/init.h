// SPDX-License-Identifier: GPL-3.0-or-later
/** Start weights: their standard deviations by recipe, and the draw itself. */
#ifndef NH_INIT_H
#define NH_INIT_H

#include "harness/core/config.h"
#include "layouts/layout.h"

/** Keys of the random streams of tensors that are no branch matrices (those have enum nh_weight). Further ones of a kind, as experts
 *  have them, stand NH_TENSOR_STEP apart. */
enum { NH_TENSOR_EMBED = 100, NH_TENSOR_POSITION, NH_TENSOR_HEAD, NH_TENSOR_ROUTER, NH_TENSOR_STEP = 128 };

/** Shape of a branch matrix: out rows, in columns (y = W x). kv_heads must be known (> 0). */
void nh_weight_shape(const struct nh_config *config, enum nh_weight weight, int *out, int *in);

/** Standard deviation of a branch matrix at the start: recipe, factor on the output projections (W_O and W_OUT, never
 *  the gate), the layout's own factor. 0 where the matrix starts at zero (--qk-init 0). For trinity the deviation after
 *  the cut. */
double nh_weight_std(const struct nh_config *config, enum nh_weight weight, const struct nh_pos *pos);

/** The same of a matrix in that place with out rows and in columns: of an expert. */
double nh_matrix_std(const struct nh_config *config, enum nh_weight weight, int out, int in, const struct nh_pos *pos);

/** Standard deviation of a router at the start: the recipe's of a matrix experts x width, without factors. */
double nh_router_std(const struct nh_config *config);

/** Standard deviation of the stored embeddings, of tokens and of positions. */
double nh_embed_std(const struct nh_config *config);

/** The recipe's own factor on the embeddings inside the model, in force where --embed-scale is not given: sqrt(width) for
 *  trinity and xavier, so that their streams start at RMS 0.4933 and 1; else 1. */
double nh_init_embed_scale(const struct nh_config *config);

/** Standard deviation of a head of its own (--tie has none). */
double nh_head_std(const struct nh_config *config);

/** Fills w[0..n) with normal numbers of the given deviation; for the trinity recipe cut at 3 deviations of the normal
 *  before the cut, std being the deviation after it. A pure function of (seed, layer, tensor) times std, so that all
 *  layouts, depths, formats and cores start from the same numbers. May run in several threads. */
void nh_draw(const struct nh_config *config, int layer, int tensor, double std, double *w, size_t n);

/** The names of the recipes, in the order of enum nh_init, closed by NULL; and one line on each. */
extern const char *const nh_init_names[];
extern const char *const nh_init_helps[];

#endif
