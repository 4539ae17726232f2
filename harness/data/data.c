// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/data/data.h"

#include "harness/core/err.h"
#include "harness/data/source.h"
#include "results/file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const uint64_t stream =
    0x6e685f64617461; /* "nh_data": sets these numbers apart from others drawn by the same seed */

void *nh_data_new(size_t size, const struct nh_data_request *request)
{
    struct nh_data *data = calloc(1, size);
    if (!data) {
        nh_fail(NH_FAILED, "no memory for the data");
        return NULL;
    }
    data->seq = request->seq ? request->seq : NH_DATA_SEQ;
    data->batch = request->batch ? request->batch : NH_DATA_BATCH;
    data->vocab = request->vocab;
    data->key = nh_data_hash(request->seed ^ stream, request->held_out);
    data->digest = NH_DIGEST_START;
    return data;
}

void nh_data_digest(struct nh_data *data, const void *bytes, size_t n)
{
    data->digest = nh_digest(data->digest, bytes, n);
}

void nh_data_digest_number(struct nh_data *data, uint64_t number)
{
    for (int shift = 0; shift < 64; shift += 8)
        nh_data_digest(data, &(unsigned char){number >> shift & 0xff}, 1);
}

static const struct nh_data_source *find(const char *text, size_t length)
{
    for (size_t i = 0; nh_data_sources[i]; i++)
        if (strlen(nh_data_sources[i]->name) == length && !strncmp(nh_data_sources[i]->name, text, length))
            return nh_data_sources[i];
    return NULL;
}

static int unknown(const char *text)
{
    char list[512] = "";
    for (size_t i = 0, n = 0; nh_data_sources[i] && n < sizeof list; i++) {
        const struct nh_data_source *s = nh_data_sources[i];
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s%s%s", i ? ", " : "", s->name, s->argument ? ":" : "",
                              s->argument ? s->argument : "");
    }
    return nh_fail(NH_USAGE, "there is no data source '%s'; the sources are %s", text, list);
}

int nh_data_open(struct nh_data **out, const char *text, const struct nh_data_request *request)
{
    *out = NULL;
    assert(request->seq >= 0 && request->batch >= 0 && request->vocab >= 0);
    struct nh_data_request asked = *request;
    const size_t length = strcspn(text, ":");
    const struct nh_data_source *source = find(text, length);
    asked.argument = text[length] ? text + length + 1 : NULL;
    if (!source)
        return unknown(text);
    if (source->argument && !(asked.argument && *asked.argument))
        return nh_fail(NH_USAGE, "--data %s needs a file; write --data %s:%s", source->name, source->name,
                       source->argument);
    if (!source->argument && asked.argument)
        return nh_fail(NH_USAGE, "--data %s takes nothing after its name; write --data %s", source->name, source->name);
    if (asked.held_out && !source->holds_out)
        return nh_fail(NH_USAGE, "--data %s keeps no part for validation; fashion-mnist does", source->name);
    if (asked.vocab > NH_DATA_MAX_ID + 1)
        return nh_fail(NH_USAGE, "--vocab %d is too large; it may be 1 to %d", asked.vocab, NH_DATA_MAX_ID + 1);

    struct nh_data *data = NULL;
    const int status = source->open(&data, &asked);
    if (status)
        return status;
    data->source = source;
    nh_data_digest(data, source->name, strlen(source->name));
    nh_data_digest_number(data, (uint64_t)data->vocab);
    nh_data_digest_number(data, (uint64_t)data->seq);
    nh_data_digest_number(data, (uint64_t)data->batch);
    nh_data_digest_number(data, data->key);
    *out = data;
    return NH_OK;
}

const char *nh_data_guess(const char *path)
{
    struct stat about;
    FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
    if (!file)
        return NULL;
    char start[4096];
    start[fread(start, 1, sizeof start - 1, file)] = '\0';
    fclose(file);
    const size_t blanks = strspn(start, " \t\r\n");
    return start[blanks] && start[strspn(start, "0123456789 \t\r\n")] == '\0' ? "tokens" : "text";
}

int nh_data_batch(const struct nh_data *data, uint64_t index, int *tokens)
{
    const size_t batch = (size_t)data->batch, seq = (size_t)data->seq;
    int status = NH_OK;
    for (size_t i = 0; !status && i < batch; i++)
        status = data->sequence(data, index * batch + i, tokens + i * seq);
    return status;
}

void nh_data_close(struct nh_data *data)
{
    if (data && data->release)
        data->release(data);
    free(data);
}
