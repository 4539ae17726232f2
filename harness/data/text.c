// SPDX-License-Identifier: GPL-3.0-or-later
/** text:FILE: bytes as tokens. Each sequence is a window that starts anywhere in the file with equal chance. */
#include "harness/core/err.h"
#include "harness/data/source.h"

#include <stdio.h>
#include <stdlib.h>

struct text {
    struct nh_data data;
    unsigned char *bytes;
    size_t n;
};

static int sequence(const struct nh_data *data, uint64_t number, int *tokens)
{
    const struct text *text = (const struct text *)data;
    const size_t seq = (size_t)data->seq;
    uint64_t state = nh_data_hash(data->key, number);
    const gsl_rng rng = nh_data_rng(&state);
    const unsigned char *window = text->bytes + gsl_rng_uniform_int(&rng, text->n - seq + 1);
    for (size_t t = 0; t < seq; t++)
        tokens[t] = window[t];
    return NH_OK;
}

static void release(struct nh_data *data)
{
    free(((struct text *)data)->bytes);
}

static int check(const struct text *text, const char *path)
{
    const int vocab = text->data.vocab;
    if (text->n < (size_t)text->data.seq)
        return nh_fail(NH_FAILED, "'%s' has %zu bytes, fewer than a sequence of %d; use --seq %zu or a longer file",
                       path, text->n, text->data.seq, text->n);
    for (size_t i = 0; vocab < 256 && i < text->n; i++)
        if (text->bytes[i] >= vocab)
            return nh_fail(NH_FAILED,
                           "'%s' has the byte %d at offset %zu, outside the vocabulary of %d; use --vocab 256 or leave it out; "
                           "with --model take --data tokens:FILE",
                           path, text->bytes[i], i, vocab);
    return NH_OK;
}

static int open_text(struct nh_data **out, const struct nh_data_request *request)
{
    struct text *text = nh_data_new(sizeof *text, request);
    if (!text)
        return NH_FAILED;
    text->data.vocab = request->vocab ? request->vocab : 256;
    text->data.sequence = sequence;
    text->data.release = release;
    int status = nh_data_file(&text->bytes, &text->n, request->argument);
    if (!status)
        status = check(text, request->argument);
    if (status) {
        nh_data_close(&text->data);
        return status;
    }
    nh_data_digest(&text->data, text->bytes, text->n);
    snprintf(text->data.what, sizeof text->data.what, "%zu bytes of %s, in windows of %d", text->n, request->argument,
             text->data.seq);
    *out = &text->data;
    return NH_OK;
}

const struct nh_data_source nh_data_text = {
    .name = "text",
    .argument = "FILE",
    .what = "the bytes of a file, in windows that start at random positions; vocabulary 256",
    .open = open_text,
};
