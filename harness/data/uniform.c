// SPDX-License-Identifier: GPL-3.0-or-later
/** uniform: independent tokens, all ids equally likely. Nothing can be learned from them: the best loss is log(vocab).
 */
#include "harness/core/err.h"
#include "harness/data/source.h"

#include <stdio.h>

static int sequence(const struct nh_data *data, uint64_t number, int *tokens)
{
    uint64_t state = nh_data_hash(data->key, number);
    const gsl_rng rng = nh_data_rng(&state);
    for (int t = 0; t < data->seq; t++)
        tokens[t] = (int)gsl_rng_uniform_int(&rng, (unsigned long)data->vocab);
    return NH_OK;
}

static int open_uniform(struct nh_data **out, const struct nh_data_request *request)
{
    struct nh_data *data = nh_data_new(sizeof *data, request);
    if (!data)
        return NH_FAILED;
    data->vocab = request->vocab ? request->vocab : 512;
    data->sequence = sequence;
    snprintf(data->what, sizeof data->what, "independent tokens, %d ids equally likely", data->vocab);
    *out = data;
    return NH_OK;
}

const struct nh_data_source nh_data_uniform = {
    .name = "uniform",
    .what = "synthetic: independent tokens, all equally likely; vocabulary 512 or --vocab",
    .holds_out = true,
    .open = open_uniform,
};
