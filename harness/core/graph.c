// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/graph.h"

#include "harness/core/err.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Grows an array by one element; memory for a tape is small, so that running out of it is not survived. */
static void *grow(void *array, int n, size_t size)
{
    if (n & (n - 1))
        return array; /* room up to the next power of two is there */
    void *more = realloc(array, (n ? 2 * (size_t)n : 1) * size);
    if (!more)
        nh_no_memory();
    return more;
}

#define PUSH(array, n) ((array) = grow((array), (n), sizeof *(array)), memset(&(array)[n], 0, sizeof *(array)), (n)++)

/** Rows of a unit of work: enough units for a few threads, large enough for a product to run at full rate. */
static int row_block(int rows)
{
    int units = (rows + 127) / 128;
    if (units < 2 && rows >= 32)
        units = 2;
    return (rows + units - 1) / units;
}

static bool is_wide(const struct nh_fmt *f)
{
    return f->man_bits >= 23 && f->exp_bits >= 8;
}

/** True where sums (or statistics) are rounded step by step: --accum dtype, or a narrow format of the role. */
static bool is_stepwise(const struct nh_graph *g, const struct nh_config *config, enum nh_role role, enum nh_width_of option)
{
    const char *name = config->role_format[role].name;
    return *name ? strcmp(name, "dtype") == 0 || !is_wide(&g->fmt[role]) : option == NH_WIDE_DTYPE;
}

struct nh_graph *nh_graph_new(const struct nh_config *config, int batch, int seq, int vocab)
{
    struct nh_graph *g = calloc(1, sizeof *g);
    if (!g)
        nh_no_memory();
    g->batch = batch, g->seq = seq, g->rows = batch * seq, g->vocab = vocab;
    g->row_block = row_block(g->rows);
    g->eps = config->eps;
    g->rope[0] = (struct nh_rope_table){config->theta, config->rope_scaling};
    g->rope[1] = (struct nh_rope_table){.theta = config->theta_local > 0 ? config->theta_local : config->theta};
    g->cast_before_gain = config->cast_before_gain;
    if (config->train.steps)
        g->n_moments = config->train.optimizer == NH_OPTIMIZER_SGD ? 1 : 2;
    g->sums_gradients = config->train.grad_accum > 1;
    g->streamed = config->streamed;
    nh_policy_formats(config, g->fmt);
    g->accum_dtype = is_stepwise(g, config, NH_ROLE_ACCUM, config->accum);
    g->norm_stat_dtype = is_stepwise(g, config, NH_ROLE_NORM_STAT, config->norm_stats);
    g->softmax_narrow = !is_wide(&g->fmt[NH_ROLE_SOFTMAX]);
    nh_fmt_parse(&g->fp32, nh_fmt_wide(&config->dtype) ? "fp64" : "fp32");
    g->exit_value = g->logits = g->nll = g->tied = -1;
    return g;
}

int nh_streamed_rows(int cols)
{
    enum { NUMBERS = 1 << 22, BLOCK = 512 };
    int blocks = NUMBERS / cols / BLOCK;
    return blocks > 1 ? blocks * BLOCK : BLOCK;
}

/** theta^(-2j/dim) (arXiv:2104.09864); stretched as in huggingface/transformers modeling_rope_utils.py, "linear" and "llama3". */
double nh_rope_frequency(const struct nh_graph *g, int table, int j)
{
    const struct nh_rope_table *t = &g->rope[table];
    const struct nh_rope_scaling *s = &t->scaling;
    double plain = pow(t->theta, -2.0 * j / g->rope_dim);
    if (s->form == NH_ROPE_PLAIN)
        return plain;
    if (s->form == NH_ROPE_LINEAR)
        return plain / s->factor;
    double turns = s->original * plain / (2 * M_PI), own = (turns - s->low) / (s->high - s->low);
    own = own < 0 ? 0 : own > 1 ? 1 : own;
    return own * plain + (1 - own) * plain / s->factor;
}

void nh_graph_free(struct nh_graph *g)
{
    if (!g)
        return;
    free(g->values), free(g->recs), free(g->params), free(g->sites), free(g->steps);
    free(g);
}

int nh_graph_site(struct nh_graph *g, int layer, enum nh_sublayer sublayer, enum nh_site_name name, enum nh_role role)
{
    for (int i = g->n_sites - 1; i >= 0 && g->sites[i].layer == layer && g->sites[i].sublayer == sublayer; i--)
        if (g->sites[i].name == name)
            return i;
    int s = PUSH(g->sites, g->n_sites);
    g->sites[s] = (struct nh_site){layer, sublayer, name, role, false, role};
    return s;
}

nh_val nh_graph_value(struct nh_graph *g, int cols, int site, enum nh_role role)
{
    int v = PUSH(g->values, g->n_values);
    struct nh_site *s = &g->sites[site];
    if (!s->stored || g->fmt[role].max < g->fmt[s->role].max)
        s->role = role;
    s->stored = true;
    g->values[v] = (struct nh_value){.cols = cols, .ld = cols, .base = v, .rec = -1, .site = site, .role = role};
    return v;
}

nh_val nh_graph_view(struct nh_graph *g, nh_val base, int col0, int cols)
{
    struct nh_value view = g->values[base];
    assert(view.base == base && col0 + cols <= view.cols);
    view.cols = cols, view.col0 = col0;
    int v = PUSH(g->values, g->n_values);
    g->values[v] = view;
    return v;
}

int nh_graph_param(struct nh_graph *g, const struct nh_param *param)
{
    int p = PUSH(g->params, g->n_params);
    g->params[p] = *param;
    g->sites[param->site].weight_role = param->role;
    return p;
}

struct nh_rec *nh_graph_rec(struct nh_graph *g, enum nh_op op, nh_val out)
{
    int r = PUSH(g->recs, g->n_recs);
    struct nh_rec *rec = &g->recs[r];
    *rec = (struct nh_rec){.op = op, .in = {-1, -1, -1}, .out = out, .par = {-1, -1}, .order = r ? rec[-1].order + 1 : 0};
    g->values[out].rec = r;
    return rec;
}

void nh_graph_close(struct nh_graph *g)
{
    for (int p = 0; p < g->n_params; p++) {
        g->params[p].offset = g->n_weights;
        size_t n = (size_t)g->params[p].rows * (size_t)g->params[p].cols;
        g->n_weights += (n + 15) / 16 * 16; /* each starts at a cache line */
    }
    bool *used = calloc((size_t)g->n_params + 1, sizeof *used);
    if (!used)
        nh_no_memory();
    for (int r = 0; r < g->n_recs; r++) {
        struct nh_rec *rec = &g->recs[r];
        for (int i = 0; i < 2; i++) {
            if (rec->par[i] < 0)
                continue;
            rec->par_first[i] = !used[rec->par[i]];
            used[rec->par[i]] = true;
        }
        if (rec->op == NH_OP_NORM) {
            rec->aux = g->n_aux;
            g->n_aux += NH_NORM_AUX * (size_t)g->rows * (size_t)(g->values[rec->in[0]].cols / rec->u.norm.group);
        } else if (rec->op == NH_OP_XENT) {
            rec->aux = g->n_aux; /* maximum and sum of a row */
            g->n_aux += 2 * (size_t)g->rows;
        } else if (rec->op == NH_OP_RELAX) {
            rec->aux = g->n_aux++; /* c */
        } else if (rec->op == NH_OP_ROUTE) {
            rec->aux = g->n_aux; /* the chosen of a row */
            g->n_aux += (size_t)g->rows * (size_t)g->values[rec->out].cols;
        }
    }
    free(used);
    for (int v = 0; v < g->n_values; v++)
        g->values[v].rec = g->values[g->values[v].base].rec;
}

const struct nh_fmt *nh_grad_fmt(const struct nh_graph *g, enum nh_role role)
{
    return is_wide(&g->fmt[role]) ? &g->fp32 : &g->fmt[NH_ROLE_GRADIENT];
}

const struct nh_fmt *nh_weight_grad_fmt(const struct nh_graph *g, enum nh_role role)
{
    return is_wide(&g->fmt[role]) ? &g->fp32 : &g->fmt[NH_ROLE_WEIGHT_GRADIENT];
}

double nh_graph_flops(const struct nh_graph *g)
{
    double sum = 0;
    for (const struct nh_rec *r = g->recs; r < g->recs + g->n_recs; r++) {
        if (r->op == NH_OP_LINEAR)
            sum += 2. * g->rows * g->values[r->in[0]].cols * g->values[r->out].cols;
        if (r->op == NH_OP_EXPERTS) /* of the chosen alone: the output has a slot for each */
            sum += 2. * g->rows * g->params[r->par[0]].cols * g->values[r->out].cols;
        if (r->op == NH_OP_SDPA) /* q.k and p.v over the causal half */
            sum += 2. * g->rows * g->seq * r->u.sdpa.heads * r->u.sdpa.head_dim;
    }
    return sum;
}

struct span {
    size_t at, size;
    int to;
};

static int by_place(const void *a, const void *b)
{
    size_t x = ((const struct span *)a)->at, y = ((const struct span *)b)->at;
    return (x > y) - (x < y);
}

size_t nh_plan(int n, const int *from, const int *to, const size_t *size, size_t *offset)
{
    struct span *live = malloc(((size_t)n + 1) * sizeof *live);
    int *order = malloc(((size_t)n + 1) * sizeof *order), n_live = 0, last = 0;
    if (!live || !order)
        nh_no_memory();
    for (int i = 0; i < n; i++)
        if (from[i] > last)
            last = from[i];
    /* counting sort by start: order[] lists the values, first those that start early */
    int *head = calloc((size_t)last + 2, sizeof *head), m = 0;
    if (!head)
        nh_no_memory();
    for (int i = 0; i < n; i++)
        if (from[i] >= 0)
            head[from[i] + 1]++, m++;
    for (int t = 0; t <= last; t++)
        head[t + 1] += head[t];
    for (int i = 0; i < n; i++)
        if (from[i] >= 0)
            order[head[from[i]]++] = i;
    size_t peak = 0;
    for (int k = 0; k < m; k++) {
        int i = order[k], kept = 0;
        for (int j = 0; j < n_live; j++)
            if (live[j].to >= from[i])
                live[kept++] = live[j];
        n_live = kept;
        size_t at = 0, need = (size[i] + 15) / 16 * 16;
        for (int j = 0; j < n_live && live[j].at < at + need; j++) /* live[] is sorted by place: first gap that fits */
            at = live[j].at + live[j].size;
        offset[i] = at;
        live[n_live++] = (struct span){at, need, to[i]};
        qsort(live, (size_t)n_live, sizeof *live, by_place);
        if (at + need > peak)
            peak = at + need;
    }
    free(live), free(order), free(head);
    return peak;
}
