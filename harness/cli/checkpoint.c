// SPDX-License-Identifier: GPL-3.0-or-later
/** checkpoint.safetensors: master weights, moments, and as metadata the trainer and the lengths of the tables. Data order and
 *  weights' randomness need no more than the step: both are functions of the seed and a number. */
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/io/safetensors.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the trainer as texts; doubles in hexadecimal, so that they come back bit by bit ---- */

enum { TEXT_SIZE = 200 };

enum kind { AN_INT, A_REAL, AN_EVENT };

static const struct field {
    const char *name;
    enum kind kind;
    size_t at;
} fields[] = {
#define FIELD(name, kind) {#name, kind, offsetof(struct nh_trainer, name)}
    FIELD(step, AN_INT),          FIELD(applied, AN_INT),
    FIELD(skipped, AN_INT),       FIELD(skipped_start, AN_INT),
    FIELD(skipped_row, AN_INT),   FIELD(start_loss, A_REAL),
    FIELD(tail_loss, A_REAL),     FIELD(loss, A_REAL),
    FIELD(val_loss, A_REAL),      FIELD(validated, AN_INT),
    FIELD(max_abs, A_REAL),       FIELD(max_score, A_REAL),
    FIELD(scaler.scale, A_REAL),  FIELD(scaler.clean, AN_INT),
    FIELD(scaler.tolerance, AN_INT), FIELD(first_forward, AN_EVENT),
    FIELD(first_backward, AN_EVENT), FIELD(first_update, AN_EVENT),
#undef FIELD
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

static void write_field(const struct nh_trainer *t, const struct field *f, char text[TEXT_SIZE])
{
    const void *p = (const char *)t + f->at;
    const struct nh_event *e = p;
    switch (f->kind) {
    case AN_INT:
        snprintf(text, TEXT_SIZE, "%d", *(const int *)p);
        break;
    case A_REAL:
        snprintf(text, TEXT_SIZE, "%a", *(const double *)p);
        break;
    case AN_EVENT:
        snprintf(text, TEXT_SIZE, "%d %d %d %d %" PRIu64 " %" PRIu64 " %a %d", e->step, (int)e->direction, (int)e->first.kind,
                 e->first.site, e->first.order, e->first.index, e->first.value, e->first.param);
        break;
    }
}

static bool read_event(struct nh_event *e, const char *text, const struct nh_graph *g)
{
    int direction, kind, end = 0;
    bool read = sscanf(text, "%d %d %d %d %" SCNu64 " %" SCNu64 " %la %d%n", &e->step, &direction, &kind, &e->first.site,
                       &e->first.order, &e->first.index, &e->first.value, &e->first.param, &end) == 8 && text[end] == '\0';
    if (!read || direction < 0 || direction >= NH_DIRECTIONS || kind < NH_NO_OFFENCE || kind > NH_UNDERFLOW || e->step < 0 ||
        e->first.site < 0 || e->first.site >= g->n_sites || e->first.param < 0 || e->first.param > g->n_params)
        return false;
    e->direction = (enum nh_direction)direction, e->first.kind = (enum nh_offence)kind;
    return true;
}

static bool read_field(struct nh_trainer *t, const struct field *f, const char *text)
{
    void *p = (char *)t + f->at;
    char *end;
    if (!text || !*text)
        return false;
    switch (f->kind) {
    case AN_INT: {
        long n = strtol(text, &end, 10);
        *(int *)p = (int)n;
        return *end == '\0' && n >= 0 && n <= t->config->train.steps + (long)t->scaler.rule.window + t->scaler.rule.hysteresis;
    }
    case A_REAL:
        *(double *)p = strtod(text, &end);
        return *end == '\0';
    case AN_EVENT:
        return read_event(p, text, t->model->graph);
    }
    return false;
}

/* ---- a digest of all texts and numbers: a bit that has turned over would go on unseen ---- */

/** FNV-1a, 8 bytes at a time. */
static void mix(uint64_t *digest, const void *bytes, size_t n)
{
    const char *from = bytes;
    for (; n > 0; n -= n < 8 ? n : 8, from += 8) {
        uint64_t word = 0;
        memcpy(&word, from, n < 8 ? n : 8);
        *digest = (*digest ^ word) * UINT64_C(0x100000001b3);
    }
}

static void write_digest(uint64_t digest, char text[TEXT_SIZE])
{
    snprintf(text, TEXT_SIZE, "%016" PRIx64, digest);
}

/* ---- tensors ---- */

static const char *const suffixes[] = {[NH_STATE_MASTER] = "", [NH_STATE_MOMENT_1] = ".m", [NH_STATE_MOMENT_2] = ".v",
                                       [NH_STATE_CHANGED] = ".changed"};
enum { NAME_SIZE = 40 };

static void tensor_name(const struct nh_run *run, int param, int state, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "%s%s", run->model.graph->params[param].name, suffixes[state]);
}

static enum nh_tensor_type tensor_type(const struct nh_run *run, int state)
{
    return state == NH_STATE_CHANGED ? NH_TENSOR_BOOL : run->model.core->bits == 64 ? NH_TENSOR_F64 : NH_TENSOR_F32;
}

static size_t state_bytes(const struct nh_run *run, int param, int state)
{
    const struct nh_param *p = &run->model.graph->params[param];
    return (size_t)p->rows * (size_t)p->cols * (state == NH_STATE_CHANGED ? 1 : (size_t)run->model.core->bits / 8);
}

/** Texts: the run, the trainer, lengths and digests of the tables, the digest of all that. */
enum { N_META = 2 + N_FIELDS + NH_TABLE_COUNT };

int nh_checkpoint_write(struct nh_run *run)
{
    const struct nh_graph *g = run->model.graph;
    struct nh_tensor_out *tensors = calloc((size_t)g->n_params * NH_STATES + 1, sizeof *tensors);
    char(*names)[NAME_SIZE] = calloc((size_t)g->n_params * NH_STATES + 1, sizeof *names);
    struct nh_meta_out meta[N_META];
    char texts[N_META][TEXT_SIZE];
    struct nh_extent extents[NH_TABLE_COUNT];
    uint64_t digest = 0;
    size_t n = 0, m = 0;
    char *path = nh_run_path(run, NH_CHECKPOINT);
    int status = tensors && names ? nh_record_sync(run, extents) : nh_fail(NH_FAILED, "out of memory for %s", path);
    for (int s = 0; s < NH_STATES && !status; s++) /* bytes last: what follows them would not be aligned */
        for (int p = 0; p < g->n_params; p++) {
            const void *numbers = run->model.core->state(run->model.exec, p, (enum nh_state)s);
            if (!numbers)
                continue;
            tensor_name(run, p, s, names[n]);
            tensors[n] = (struct nh_tensor_out){.name = names[n], .type = tensor_type(run, s), .numbers = numbers,
                                                .shape = {2, {(size_t)g->params[p].rows, (size_t)g->params[p].cols}}};
            mix(&digest, numbers, state_bytes(run, p, s));
            n++;
        }
    meta[m++] = (struct nh_meta_out){"run", run->id};
    for (int i = 0; i < N_FIELDS; i++, m++) {
        write_field(&run->trainer, &fields[i], texts[m]);
        meta[m] = (struct nh_meta_out){fields[i].name, texts[m]};
    }
    for (int t = 0; t < NH_TABLE_COUNT && !status; t++, m++) {
        snprintf(texts[m], TEXT_SIZE, "%lld %016llx", extents[t].bytes, (unsigned long long)extents[t].digest);
        meta[m] = (struct nh_meta_out){nh_tables[t].name, texts[m]};
    }
    for (size_t i = 0; i < m; i++)
        mix(&digest, meta[i].text, strlen(meta[i].text));
    write_digest(digest, texts[m]);
    meta[m] = (struct nh_meta_out){"digest", texts[m]}, m++;
    if (!status)
        status = nh_safetensors_write(path, true, tensors, n, meta, m);
    if (!status)
        nh_record_keep(run);
    if (!status)
        status = nh_record_config(run); /* whoever is killed has told what the checkpoint is of */
    free(tensors), free(names), free(path);
    return status;
}

static int read_states(struct nh_run *run, const struct nh_safetensors *s, uint64_t *digest)
{
    const struct nh_graph *g = run->model.graph;
    int status = NH_OK;
    for (int i = 0; i < NH_STATES; i++)
        for (int p = 0; p < g->n_params && !status; p++) {
            void *to = run->model.core->state(run->model.exec, p, (enum nh_state)i);
            char name[NAME_SIZE];
            tensor_name(run, p, i, name);
            if (to)
                status = nh_safetensors_copy(s, name, tensor_type(run, i), to,
                                             (size_t)g->params[p].rows * (size_t)g->params[p].cols);
            if (to && !status)
                mix(digest, to, state_bytes(run, p, i));
        }
    return status;
}

/** The digest of what has been read so far and of all texts is the one that was written. */
static bool is_whole(const struct nh_safetensors *s, uint64_t digest)
{
    const char *text = nh_safetensors_meta(s, "run"), *written = nh_safetensors_meta(s, "digest");
    char wanted[TEXT_SIZE];
    mix(&digest, text, strlen(text));
    for (int i = 0; i < N_FIELDS; i++)
        text = nh_safetensors_meta(s, fields[i].name), mix(&digest, text, strlen(text));
    for (int t = 0; t < NH_TABLE_COUNT; t++)
        text = nh_safetensors_meta(s, nh_tables[t].name), mix(&digest, text, strlen(text));
    write_digest(digest, wanted);
    return written && strcmp(written, wanted) == 0;
}

int nh_checkpoint_read(struct nh_run *run, struct nh_extent extents[NH_TABLE_COUNT])
{
    struct nh_safetensors *s = NULL;
    char *path = nh_run_path(run, NH_CHECKPOINT);
    int status = nh_safetensors_open(&s, path);
    const char *broken = NULL, *id = status ? NULL : nh_safetensors_meta(s, "run");
    uint64_t digest = 0;
    if (!status && (!id || strcmp(id, run->id) != 0))
        broken = "run";
    for (int i = 0; i < N_FIELDS && !status && !broken; i++)
        if (!read_field(&run->trainer, &fields[i], nh_safetensors_meta(s, fields[i].name)))
            broken = fields[i].name;
    for (int t = 0; t < NH_TABLE_COUNT && !status && !broken; t++) {
        const char *text = nh_safetensors_meta(s, nh_tables[t].name);
        int end = 0;
        unsigned long long sum = 0;
        if (!text || sscanf(text, "%lld %llx%n", &extents[t].bytes, &sum, &end) != 2 || text[end] || extents[t].bytes < 0)
            broken = nh_tables[t].name;
        extents[t].digest = sum;
    }
    if (broken)
        status = nh_fail(NH_FAILED, "%s: '%s' of its metadata is missing or wrong; --force starts the run anew", path, broken);
    if (!status)
        status = read_states(run, s, &digest);
    if (!status)
        status = nh_safetensors_check(s);
    if (!status && !is_whole(s, digest))
        status = nh_fail(NH_FAILED, "%s: what it holds is not what was written; --force starts the run anew", path);
    if (!status && run->trainer.applied > 0) /* before the first update weights are as they started */
        run->model.core->recast(run->model.exec);
    nh_safetensors_close(s);
    free(path);
    return status;
}
