// SPDX-License-Identifier: GPL-3.0-or-later
/** The reader of Hugging Face folders: the input is config.json, model.safetensors.index.json ("" = none) and a safetensors file, with a
 *  NUL byte behind each text. What is accepted must have every number that the model needs. */
#include "harness/cli/options.h"
#include "harness/core/err.h"
#include "harness/core/graph.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(int holds)
{
    if (!holds)
        abort();
}

static char dir[64];

static void forget(void)
{
    static const char *const names[] = {"config.json", "model.safetensors.index.json", "model.safetensors"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void put(const char *name, const void *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    must(f != NULL);
    must(fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

/** All numbers of all parameters, in two parts. */
static void read_all(const struct nh_weight_source *source, const struct nh_config *c)
{
    struct nh_graph *g;
    must(nh_graph_build(&g, c, c->batch, c->seq, c->vocab) == NH_OK);
    for (int p = 0; p < g->n_params; p++) {
        const struct nh_param *q = &g->params[p];
        size_t size = (size_t)q->rows * (size_t)q->cols, half = size / 2;
        double *numbers = malloc(size * sizeof *numbers + 1);
        must(numbers != NULL);
        source->read(source->arg, q, 0, half, 64, numbers);
        source->read(source->arg, q, half, size - half, 32, numbers);
        if (source->done)
            source->done(source->arg, q, 0, size);
        free(numbers);
    }
    nh_graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const uint8_t *config = bytes, *index, *tensors, *end = bytes + n;
    if (!*dir) {
        const char *parent = getenv("TMPDIR");
        snprintf(dir, sizeof dir, "%.40s/fuzz_XXXXXX", parent && strlen(parent) <= 40 ? parent : "/tmp");
        must(mkdtemp(dir) != NULL);
        atexit(forget);
    }
    index = n ? memchr(config, 0, n) : NULL;
    tensors = index ? memchr(index + 1, 0, (size_t)(end - index) - 1) : NULL;
    if (!tensors)
        return 0;
    forget();
    must(mkdir(dir, 0700) == 0);
    put("config.json", config, (size_t)(index - config));
    if (tensors > index + 1)
        put("model.safetensors.index.json", index + 1, (size_t)(tensors - index) - 1);
    put("model.safetensors", tensors + 1, (size_t)(end - tensors) - 1);

    struct nh_options o;
    char *words[] = {"--model", dir, "--data", "uniform", "--seq", "3", "--batch", "1"};
    int status = nh_options_parse(&o, sizeof words / sizeof *words, words);
    must(status == NH_OK || *nh_error());
    if (!status) {
        const struct nh_weight_source *source = NULL;
        FILE *notes = fopen("/dev/null", "we");
        must(notes != NULL);
        o.config.seq = 3, o.config.batch = 1;
        status = nh_hf_bind(o.checkpoint, &o.config, &source, notes);
        must((status == NH_OK) == (source != NULL));
        if (!status)
            read_all(source, &o.config);
        fclose(notes);
    }
    nh_options_free(&o);
    return 0;
}
