// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/hf/arch.h"

#include "harness/core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct nh_arch nh_arch_llama, nh_arch_llama_sandwich, nh_arch_qwen2, nh_arch_qwen3, nh_arch_gpt2, nh_arch_gemma2,
    nh_arch_gemma3, nh_arch_olmo2, nh_arch_trinity, nh_arch_cogview, nh_arch_cogview_paper;

/* Of those that are told by a tensor the first that fits counts: the special before the general. */
const struct nh_arch *const nh_archs[] = {
    &nh_arch_llama_sandwich, &nh_arch_llama,  &nh_arch_qwen2,   &nh_arch_qwen3,   &nh_arch_gpt2,          &nh_arch_gemma2,
    &nh_arch_gemma3,         &nh_arch_olmo2,  &nh_arch_trinity, &nh_arch_cogview, &nh_arch_cogview_paper, NULL,
};

const struct nh_arch *nh_arch_find(const char *name)
{
    for (size_t i = 0; name && nh_archs[i]; i++)
        if (strcmp(nh_archs[i]->name, name) == 0)
            return nh_archs[i];
    return NULL;
}

/** Where a slice begins and ends among `of` equal shares of its parameter. */
static void share(const struct nh_config *c, enum nh_slice slice, size_t *begin, size_t *end, size_t *of)
{
    const size_t q = (size_t)c->heads, kv = (size_t)c->kv_heads, all = q + 2 * kv;
    const size_t shares[NH_SLICE_COUNT][3] = {
        [NH_WHOLE] = {0, 1, 1},          [NH_SLICE_Q] = {0, q, all},        [NH_SLICE_K] = {q, q + kv, all},
        [NH_SLICE_V] = {q + kv, all, all}, [NH_SLICE_GATE] = {0, 1, 2},     [NH_SLICE_UP] = {1, 2, 2},
    };
    *begin = shares[slice][0], *end = shares[slice][1], *of = shares[slice][2];
}

/** Gains and biases are tensors of one dimension. */
static bool is_vector(const struct nh_param *p)
{
    const size_t n = strlen(p->name);
    return p->rows == 1 && n > 5 && (strcmp(p->name + n - 5, ".gain") == 0 || strcmp(p->name + n - 4, "bias") == 0);
}

/** Writes the name of a published tensor: %d first the layer, then the expert. */
static void tensor_name(char name[112], const char *prefix, const char *pattern, int layer, int expert)
{
    const char *at[] = {strstr(pattern, "%d"), NULL};
    at[1] = at[0] ? strstr(at[0] + 2, "%d") : NULL;
    if (!at[0])
        snprintf(name, 112, "%s%s", prefix, pattern);
    else if (!at[1])
        snprintf(name, 112, "%s%.*s%d%s", prefix, (int)(at[0] - pattern), pattern, layer, at[0] + 2);
    else
        snprintf(name, 112, "%s%.*s%d%.*s%d%s", prefix, (int)(at[0] - pattern), pattern, layer, (int)(at[1] - at[0] - 2), at[0] + 2,
                 expert, at[1] + 2);
}

struct nh_shape nh_piece_shape(const struct nh_piece *p)
{
    if (!p->rows)
        return (struct nh_shape){1, {p->cols}};
    if (p->stack)
        return (struct nh_shape){3, {p->stack, p->rows / p->stack, p->cols}};
    return p->transposed ? (struct nh_shape){2, {p->cols, p->rows}} : (struct nh_shape){2, {p->rows, p->cols}};
}

static struct nh_piece *pieces_of(const struct nh_arch_tensor *t, const struct nh_arch_prefix *prefix, const struct nh_config *config,
                                  const struct nh_param *param, size_t *n)
{
    static const char layers[] = "layers.";
    const char *name = param->name;
    int layer = 0, length = 0;
    if (strncmp(name, layers, strlen(layers)) == 0 && sscanf(name, "layers.%d.%n", &layer, &length) == 1)
        name += length;
    struct nh_piece *pieces = NULL;
    *n = 0;
    for (; t && t->param; t++) {
        if (strcmp(t->param, name) != 0)
            continue;
        const bool each = strstr(t->tensor, "%d") && strstr(strstr(t->tensor, "%d") + 2, "%d");
        const size_t experts = each ? (size_t)config->moe.experts : 1, size = (size_t)param->rows * (size_t)param->cols / experts;
        size_t begin, end, of;
        share(config, t->slice, &begin, &end, &of);
        struct nh_piece *more = realloc(pieces, (*n + experts) * sizeof *more);
        if (!more)
            nh_no_memory(); /* some hundred bytes a tensor */
        pieces = more;
        for (size_t e = 0; e < experts; e++) {
            struct nh_piece *p = &pieces[(*n)++];
            *p = (struct nh_piece){.first = e * size + size / of * begin, .n = size / of * (end - begin), .transposed = t->transposed};
            p->cols = is_vector(param) ? p->n : (size_t)param->cols;
            p->rows = is_vector(param) ? 0 : p->n / p->cols;
            tensor_name(p->name, strcmp(t->param, "head") == 0 ? prefix->head : prefix->body, t->tensor, layer - 1, (int)e);
        }
    }
    return pieces;
}

struct nh_piece *nh_arch_pieces(const struct nh_arch *arch, const struct nh_arch_prefix *prefix, const struct nh_config *config,
                                const struct nh_param *param, size_t *n)
{
    return pieces_of(arch ? arch->tensors : NULL, prefix, config, param, n);
}

struct nh_piece *nh_arch_stacked(const struct nh_arch *arch, const struct nh_arch_prefix *prefix, const struct nh_config *config,
                                 const struct nh_param *param, size_t *n)
{
    struct nh_piece *pieces = pieces_of(arch->stacked, prefix, config, param, n);
    for (size_t i = 0; i < *n; i++)
        pieces[i].stack = (size_t)config->moe.experts;
    return pieces;
}
