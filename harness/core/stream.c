// SPDX-License-Identifier: GPL-3.0-or-later
/** One forward pass over a model that need not fit in memory: values are placed by their lives, weights are those of one operation
 *  at a time. The same operations on the same numbers, so the same bits as a pass over a model that is there as a whole. */
#include "harness/core/err.h"
#include "harness/core/exec.h"

#include <assert.h>
#include <stdlib.h>

static size_t whole_lines(size_t n)
{
    return (n + 15) / 16 * 16;
}

size_t NH_T(nh_stream_place)(const struct nh_graph *g, size_t *at)
{
    size_t n = (size_t)g->n_values, *size = calloc(n + 1, sizeof *size), *place = at ? at : calloc(n + 1, sizeof *place);
    int *from = malloc(2 * (n + 1) * sizeof *from), *to = from + n + 1;
    if (!size || !place || !from)
        nh_no_memory(); /* a few kilobytes */
    for (int v = 0; v < g->n_values; v++) {
        from[v] = to[v] = -1;
        size[v] = g->values[v].base == v ? (size_t)g->rows * (size_t)g->values[v].cols : 0;
    }
    for (int r = 0; r < g->n_recs; r++)
        for (int i = -1; i < 3; i++) {
            int v = i < 0 ? g->recs[r].out : g->recs[r].in[i];
            if (v >= 0)
                v = g->values[v].base, from[v] = from[v] < 0 ? r : from[v], to[v] = r;
        }
    for (const struct nh_step *s = g->steps; s < g->steps + g->n_steps; s++) /* what probes look at behind the step */
        for (int i = 0; i <= 2 * NH_STREAMS; i++) {
            nh_val v = i == 0 ? s->raw : i <= NH_STREAMS ? s->after[i - 1] : s->branch[i - 1 - NH_STREAMS];
            if (v >= 0 && to[g->values[v].base] < s->end_rec)
                to[g->values[v].base] = s->end_rec;
        }
    if (g->nll >= 0)
        to[g->nll] = g->n_recs;
    size_t peak = nh_plan(g->n_values, from, to, size, place);
    free(size), free(from);
    if (!at)
        free(place);
    return peak;
}

/** Rows of parameter slot i that an operation reads, and the first of them; of a table those of the tokens, at the most. */
static int rows_read(const struct nh_graph *g, const struct nh_rec *r, int i, int *row0)
{
    *row0 = 0;
    if (r->op == NH_OP_LINEAR && i == 0) {
        *row0 = r->u.linear.row0;
        return g->values[r->out].cols;
    }
    int rows = g->params[r->par[i]].rows;
    return r->op == NH_OP_EMBED && i == 0 && g->rows < rows ? g->rows : rows;
}

static size_t need(const struct nh_graph *g, const struct nh_rec *r)
{
    size_t n = 0;
    int row0;
    for (int i = 0; i < 2; i++)
        if (r->par[i] >= 0)
            n += whole_lines((size_t)rows_read(g, r, i, &row0) * (size_t)g->params[r->par[i]].cols);
    return n;
}

size_t NH_T(nh_stream_weights)(const struct nh_graph *g)
{
    size_t most = 0;
    for (int r = 0; r < g->n_recs; r++) {
        size_t n = need(g, &g->recs[r]);
        most = n > most ? n : most;
    }
    return most;
}

static int by_id(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/** All of the table goes by and is counted; the rows of the tokens stay, each once, in the order of their ids. */
static void load_table(struct nh_exec *x, const struct nh_weight_source *source, int param, real *to)
{
    enum { PIECE = 1 << 18 };
    const struct nh_graph *g = x->g;
    const struct nh_param *p = &g->params[param];
    size_t cols = (size_t)p->cols;
    int step = PIECE / p->cols + 1, kept = 0, n = 0;
    int *ids = malloc((size_t)g->rows * sizeof *ids);
    real *piece = NH_T(nh_take)((size_t)step * cols, sizeof *piece);
    if (!ids || !piece)
        nh_no_memory(); /* some megabytes */
    memcpy(ids, x->tokens, (size_t)g->rows * sizeof *ids);
    qsort(ids, (size_t)g->rows, sizeof *ids, by_id);
    for (int i = 0; i < g->rows; i++)
        if (i == 0 || ids[i] != ids[i - 1])
            ids[n++] = ids[i];
    for (int row = 0; row < p->rows; row += step) {
        int rows = p->rows - row < step ? p->rows - row : step;
        NH_T(nh_load_param)(x, source, param, row, rows, piece, true);
        for (; kept < n && ids[kept] < row + rows; kept++)
            memcpy(to + (size_t)kept * cols, piece + (size_t)(ids[kept] - row) * cols, cols * sizeof *to);
    }
    for (int i = 0; i < g->rows; i++)
        x->token_row[i] = (int)((int *)bsearch(&x->tokens[i], ids, (size_t)n, sizeof *ids, by_id) - ids);
    free(ids), free(piece);
}

void NH_T(nh_stream_load)(struct nh_exec *x, const struct nh_weight_source *source, int rec)
{
    const struct nh_graph *g = x->g;
    const struct nh_rec *r = &g->recs[rec];
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        if (r->par[i] < 0)
            continue;
        const struct nh_param *p = &g->params[r->par[i]];
        int row0, rows = rows_read(g, r, i, &row0);
        x->param_at[r->par[i]] = at;
        if (r->op == NH_OP_EMBED && i == 0)
            load_table(x, source, r->par[i], x->weights + at);
        else /* a table that is the head's matrix too has been counted as the table */
            NH_T(nh_load_param)(x, source, r->par[i], row0, rows, x->weights + at,
                                r->par_first[i] || (row0 > 0 && p->role != NH_ROLE_EMBEDDING));
        if (r->op == NH_OP_LINEAR && r->u.linear.tied)
            NH_T(nh_cast_tied)(x, (size_t)row0 * (size_t)p->cols, (size_t)rows * (size_t)p->cols, x->weights + at);
        at += whole_lines((size_t)rows * (size_t)p->cols);
    }
}
