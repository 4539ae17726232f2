// SPDX-License-Identifier: GPL-3.0-or-later
/** zipf: independent tokens, id r with probability proportional to 1/(r+1), as words of a language are by rank. */
#include "harness/core/err.h"
#include "harness/data/source.h"

#include <gsl/gsl_randist.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct zipf {
    struct nh_data data;
    gsl_ran_discrete_t table;
};

static int sequence(const struct nh_data *data, uint64_t number, int *tokens)
{
    uint64_t state = nh_data_hash(data->key, number);
    const gsl_rng rng = nh_data_rng(&state);
    for (int t = 0; t < data->seq; t++)
        tokens[t] = (int)gsl_ran_discrete(&rng, &((const struct zipf *)data)->table);
    return NH_OK;
}

static void release(struct nh_data *data)
{
    free(((struct zipf *)data)->table.A);
    free(((struct zipf *)data)->table.F);
}

/* The table that gsl_ran_discrete() reads, as gsl_ran_discrete_preproc() makes it: that one uses memory that it did not get. Walker's
 * method: an event below the mean gives its rest to one above, the last of either kind first. */
static bool tabulate(gsl_ran_discrete_t *table, double *p, size_t *small, size_t *big)
{
    const size_t n = table->K;
    const double mean = 1.0 / (double)n;
    double sum = 0;
    size_t n_small = 0, n_big = 0;
    if (!table->A || !table->F || !p || !small || !big)
        return false;
    for (size_t r = 0; r < n; r++)
        sum += p[r] = 1 / (double)(r + 1);
    for (size_t r = 0; r < n; r++) {
        p[r] /= sum;
        if (p[r] < mean)
            small[n_small++] = r;
        else
            big[n_big++] = r;
        table->A[r] = r, table->F[r] = 1;
    }
    while (n_small > 0 && n_big > 0) {
        const size_t s = small[--n_small], b = big[--n_big];
        table->A[s] = b, table->F[s] = (double)n * p[s];
        p[b] -= mean - p[s];
        if (p[b] < mean)
            small[n_small++] = b;
        else if (p[b] > mean)
            big[n_big++] = b;
    }
    for (size_t r = 0; r < n; r++) /* Knuth's form, which spares a subtraction at each draw */
        table->F[r] = (table->F[r] + (double)r) / (double)n;
    return true;
}

static bool make_table(gsl_ran_discrete_t *table, size_t vocab)
{
    *table = (gsl_ran_discrete_t){.K = vocab, .A = malloc(vocab * sizeof *table->A), .F = malloc(vocab * sizeof *table->F)};
    double *p = malloc(vocab * sizeof *p);
    size_t *small = malloc(vocab * sizeof *small), *big = malloc(vocab * sizeof *big);
    const bool made = tabulate(table, p, small, big);
    free(p);
    free(small);
    free(big);
    return made;
}

static int open_zipf(struct nh_data **out, const struct nh_data_request *request)
{
    struct zipf *zipf = nh_data_new(sizeof *zipf, request);
    if (!zipf)
        return NH_FAILED;
    struct nh_data *data = &zipf->data;
    data->vocab = request->vocab ? request->vocab : 512;
    data->sequence = sequence;
    data->release = release;
    if (!make_table(&zipf->table, (size_t)data->vocab)) {
        const int vocab = data->vocab;
        nh_data_close(data);
        return nh_fail(NH_FAILED, "no memory for the table of %d token probabilities; use a smaller --vocab", vocab);
    }
    snprintf(data->what, sizeof data->what, "independent tokens, %d ids with probability ~ 1/(id+1)", data->vocab);
    *out = data;
    return NH_OK;
}

const struct nh_data_source nh_data_zipf = {
    .name = "zipf",
    .what = "synthetic: independent tokens, id r with probability ~ 1/(r+1); vocabulary 512 or --vocab",
    .holds_out = true,
    .open = open_zipf,
};
