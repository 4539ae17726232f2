// SPDX-License-Identifier: GPL-3.0-or-later
/** zipf: independent tokens, id r with probability proportional to 1/(r+1), as words of a language are by rank. */
#include "harness/core/err.h"
#include "harness/data/source.h"

#include <gsl/gsl_randist.h>
#include <stdio.h>
#include <stdlib.h>

struct zipf {
    struct nh_data data;
    gsl_ran_discrete_t *table;
};

static int sequence(const struct nh_data *data, uint64_t number, int *tokens)
{
    uint64_t state = nh_data_hash(data->key, number);
    const gsl_rng rng = nh_data_rng(&state);
    for (int t = 0; t < data->seq; t++)
        tokens[t] = (int)gsl_ran_discrete(&rng, ((const struct zipf *)data)->table);
    return NH_OK;
}

static void release(struct nh_data *data)
{
    gsl_ran_discrete_free(((struct zipf *)data)->table); /* takes NULL */
}

static gsl_ran_discrete_t *tabulate(size_t vocab)
{
    double *weight = malloc(vocab * sizeof *weight);
    for (size_t r = 0; weight && r < vocab; r++)
        weight[r] = 1 / (double)(r + 1);
    gsl_ran_discrete_t *table = weight ? gsl_ran_discrete_preproc(vocab, weight) : NULL;
    free(weight);
    return table;
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
    zipf->table = tabulate((size_t)data->vocab);
    if (!zipf->table) {
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
