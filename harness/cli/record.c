// SPDX-License-Identifier: GPL-3.0-or-later
/** The tables of a run: layers.csv, sites.csv, spectrum.csv, steps.csv, config.csv. */
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/core/init.h"
#include "harness/io/safetensors.h"
#include "results/file.h"
#include "results/input.h"
#include "results/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct nh_record {
    int lock; /**< a file of the folder, locked: one process at a time writes into it */
    struct nh_writer *tables[NH_TABLE_COUNT]; /**< each from its first row on */
};

const char *const nh_run_files[] = {"layers.csv", "sites.csv", "spectrum.csv", "steps.csv", "config.csv", NULL};

#define LOCK ".lock"

double nh_headroom_bits(const struct nh_fmt *format, const struct nh_counts *c)
{
    if (c->overflow && !format->has_inf) /* what left the format is stored as NaN */
        return -(double)INFINITY;
    return nh_fmt_headroom(format, nh_largest(c));
}

const struct nh_fmt *nh_site_format(const struct nh_graph *g, int site, enum nh_direction direction)
{
    if (direction == NH_WGRAD)
        return nh_weight_grad_fmt(g, g->sites[site].weight_role);
    return direction == NH_BWD ? nh_grad_fmt(g, g->sites[site].role) : &g->fmt[g->sites[site].role];
}

char *nh_run_path(const struct nh_run *run, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", run->dir, name) < 0)
        nh_no_memory();
    return path;
}

long long nh_run_file_size(const struct nh_run *run, const char *name)
{
    struct stat st;
    char *path = nh_run_path(run, name);
    const int missing = stat(path, &st), error = errno;
    free(path);
    if (missing && error != ENOENT && error != ENOTDIR) {
        nh_fail(NH_FAILED, "%s/%s: %s; give the program the right to look at it", run->dir, name, strerror(error));
        return NH_SIZE_UNKNOWN;
    }
    return missing ? NH_SIZE_MISSING : (long long)st.st_size;
}

/* ---- what is there already ---- */

/** The run.json of a run of this program; *j = NULL where there is none. */
static int load_json(const struct nh_run *run, json_t **j)
{
    *j = NULL;
    const long long size = nh_run_file_size(run, "run.json");
    if (size < 0)
        return size == NH_SIZE_UNKNOWN ? NH_FAILED : NH_OK;
    enum { LIMIT = 1 << 26 };
    char *path = nh_run_path(run, "run.json");
    unsigned char *text;
    size_t n;
    int status = nh_input_read(&text, &n, LIMIT, path, "remove it or choose another folder"); /* what cannot be read is told as that */
    if (!status)
        *j = json_loadb((const char *)text, n, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    if (!status && !(json_is_string(json_object_get(*j, "run")) && json_is_string(json_object_get(*j, "status"))))
        status = nh_fail(NH_USAGE, "%s is not the record of a run; choose another --out, or --force to replace it", path);
    free(path);
    return status;
}

/** True where every file is there with the size that run.json tells; each run has a config.csv. */
static bool whole(const struct nh_run *run, const json_t *sizes)
{
    for (int i = 0; nh_run_files[i]; i++) {
        const json_t *size = json_object_get(sizes, nh_run_files[i]);
        if (size && nh_run_file_size(run, nh_run_files[i]) != json_integer_value(size))
            return false;
    }
    return json_object_get(sizes, "config.csv") != NULL;
}

static int not_of_this_run(const char *path)
{
    return nh_fail(NH_USAGE, "%s is not of this run; choose another --out, or --force to replace it", path);
}

/** Refuses a CSV file that this run cannot have written. part: it may end anywhere, as a killed process left it. */
static int refuse_foreign(const struct nh_run *run, const char *path, bool part)
{
    char head[1024];
    size_t n;
    bool there; /* told by the same call: another machine may give the file its name in between */
    const int status = nh_file_head(path, head, sizeof head, &n, &there);
    if (status || !there || (n == 0 && part))
        return status;
    const char *end = memchr(head, '\n', n), *row = end ? end + 1 : head + n;
    const size_t have = (size_t)(head + n - row), id = strlen(run->id);
    return (part || have >= id) && memcmp(row, run->id, have < id ? have : id) == 0 ? NH_OK : not_of_this_run(path);
}

static int refuse_foreign_part(void *run, const char *name)
{
    return refuse_foreign(run, name, true);
}

static int other_run(const struct nh_run *run, const char *id)
{
    return nh_fail(NH_USAGE, "%s holds the results of another configuration (run %.16s); choose another --out, or --force to replace "
                             "them", run->dir, id);
}

/** Whether there is a checkpoint of this run. */
static int find_checkpoint(const struct nh_run *run, enum nh_found *found)
{
    const long long size = nh_run_file_size(run, NH_CHECKPOINT);
    if (size < 0)
        return size == NH_SIZE_UNKNOWN ? NH_FAILED : NH_OK;
    struct nh_safetensors *s = NULL;
    char *path = nh_run_path(run, NH_CHECKPOINT);
    int status = nh_safetensors_open(&s, path);
    const char *id = status ? NULL : nh_safetensors_meta(s, "run");
    if (!status && !id)
        status = nh_fail(NH_FAILED, "%s is not the checkpoint of a run; choose another --out, or --force to start anew", path);
    else if (!status && strcmp(id, run->id) != 0)
        status = other_run(run, id);
    if (!status)
        *found = NH_FOUND_BROKEN_OFF;
    nh_safetensors_close(s);
    free(path);
    return status;
}

/** Refuses tables that this run cannot have written: parts of a table, or tables under their names. */
static int refuse_tables(struct nh_run *run, bool parts)
{
    int status = NH_OK;
    for (int i = 0; nh_run_files[i] && !status; i++) {
        char *path = nh_run_path(run, nh_run_files[i]);
        status = parts ? nh_part_each(path, refuse_foreign_part, run) : refuse_foreign(run, path, false);
        free(path);
    }
    return status;
}

int nh_record_find(struct nh_run *run, enum nh_found *found)
{
    struct stat st;
    *found = NH_FOUND_NOTHING;
    if (stat(run->dir, &st) && errno == ENOENT)
        return NH_OK;
    json_t *j;
    int status = load_json(run, &j);
    const char *id = json_string_value(json_object_get(j, "run")), *how = json_string_value(json_object_get(j, "status"));
    if (!status && id && strcmp(id, run->id) != 0)
        status = other_run(run, id);
    if (!status && id && strcmp(how, nh_run_status_names[NH_RUN_INTERRUPTED]) != 0 && whole(run, json_object_get(j, "files")))
        *found = NH_FOUND_FINISHED;
    if (!status && !id)
        status = refuse_tables(run, false);
    if (!status && *found == NH_FOUND_NOTHING)
        status = find_checkpoint(run, found);
    if (!status && !id && *found == NH_FOUND_NOTHING)
        status = refuse_tables(run, true);
    json_decref(j);
    return status;
}

/* ---- opening and closing ---- */

static int take_away(const struct nh_run *run, const char *name)
{
    char *path = nh_run_path(run, name);
    int failed = unlink(path) && errno != ENOENT ? errno : 0;
    free(path);
    return failed ? nh_fail(NH_FAILED, "cannot replace %s/%s: %s; choose another --out", run->dir, name, strerror(failed)) : NH_OK;
}

/** Removes what a killed process has left of a file of the folder. */
static void tidy(const struct nh_run *run, const char *name)
{
    char *path = nh_run_path(run, name);
    nh_part_tidy(path);
    free(path);
}

/** Takes the files of an older run away, all but run.json. */
static int clear(const struct nh_run *run)
{
    int status = take_away(run, NH_CHECKPOINT);
    for (int i = 0; nh_run_files[i] && !status; i++) {
        status = take_away(run, nh_run_files[i]);
        tidy(run, nh_run_files[i]);
    }
    return status;
}

static struct nh_keys keys_of(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    return (struct nh_keys){.run = run->id, .label = c->label ? c->label : "", .layout = c->layout->name,
                            .depth = c->depth, .dtype = c->dtype.name, .policy = c->policy->name,
                            .init = c->model ? "checkpoint" : nh_init_names[c->init], .seed = c->seed};
}

static void set_keys(const struct nh_run *run, struct nh_writer *w, int step)
{
    struct nh_keys keys = keys_of(run);
    keys.step = step;
    nh_writer_keys(w, &keys);
}

/** Copies of the tables of a checkpoint, cut to where they were. */
static int reopen(struct nh_run *run, const struct nh_extent extents[NH_TABLE_COUNT])
{
    int status = NH_OK;
    for (int t = 0; t < NH_TABLE_COUNT && !status; t++)
        if (extents[t].bytes)
            status = nh_writer_resume(&run->record->tables[t], run->dir, (enum nh_table)t, &extents[t]);
    return status;
}

/** Locks a file of the folder, which is open for writing, as a folder or one open for reading has no lock that reaches over NFS. */
static int take_lock(const struct nh_run *run, int *lock, bool patient)
{
    char *path = nh_run_path(run, LOCK);
    int status = NH_OK;
    for (bool same = false; !same && !status;) {
        struct stat own, named;
        *lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (*lock < 0 || fstat(*lock, &own))
            status = nh_file_failed("write", path, errno);
        else if (!S_ISREG(own.st_mode))
            status = nh_fail(NH_FAILED, "%s is no regular file; remove it or choose another --out", path);
        else if (flock(*lock, patient ? LOCK_EX : LOCK_EX | LOCK_NB))
            status = errno == EWOULDBLOCK
                         ? nh_fail(NH_FAILED, "another process is at work in %s; wait for it or choose another --out", run->dir)
                         : nh_file_failed("lock", path, errno);
        else if (stat(path, &named) == 0)
            same = own.st_dev == named.st_dev && own.st_ino == named.st_ino;
        else if (errno != ENOENT)
            status = nh_file_failed("lock", path, errno);
        if (*lock >= 0 && !same)
            close(*lock), *lock = -1; /* whoever had it has removed it */
    }
    free(path);
    return status;
}

static int any_part(void *arg, const char *name)
{
    (void)arg, (void)name;
    return 1;
}

int nh_record_open(struct nh_run *run, const struct nh_extent extents[NH_TABLE_COUNT], bool *finished)
{
    bool trains = run->options.config.train.steps > 0;
    int status = nh_dir_make(run->dir);
    if (status)
        return status;
    run->record = calloc(1, sizeof *run->record);
    if (!run->record)
        return nh_fail(NH_FAILED, "out of memory");
    /* who has only looked waits for the other one to write the same; one that trains would be waited for for hours */
    char *steps = nh_run_path(run, "steps.csv");
    bool patient = !trains && nh_part_each(steps, any_part, NULL) == NH_OK;
    free(steps);
    status = take_lock(run, &run->record->lock, patient);
    enum nh_found found = NH_FOUND_NOTHING;
    if (!status && !run->options.config.force) /* another run may have come before, while this one was computing */
        status = nh_record_find(run, &found);
    *finished = found == NH_FOUND_FINISHED;
    if (status || *finished)
        return status;
    tidy(run, NH_CHECKPOINT);
    status = extents ? reopen(run, extents) : NH_OK; /* before anything is changed */
    if (!status)
        status = take_away(run, "run.json"); /* first: what is left never looks finished */
    return status || extents ? status : clear(run);
}

/** The writer of a table, started where this is its first row; keys set. */
static int table(struct nh_run *run, enum nh_table t, int step, struct nh_writer **w)
{
    struct nh_writer **have = &run->record->tables[t];
    int status = *have ? NH_OK : nh_writer_create(have, run->dir, t);
    *w = *have;
    if (!status)
        set_keys(run, *w, step);
    return status;
}

void nh_record_keep(struct nh_run *run)
{
    for (int t = 0; t < NH_TABLE_COUNT; t++)
        if (run->record->tables[t])
            nh_writer_keep(run->record->tables[t]);
}

void nh_record_close(struct nh_run *run)
{
    if (!run->record)
        return;
    for (int t = 0; t < NH_TABLE_COUNT; t++)
        nh_writer_destroy(run->record->tables[t]);
    if (run->record->lock >= 0) {
        char *path = nh_run_path(run, LOCK);
        unlink(path);
        free(path);
        close(run->record->lock);
    }
    free(run->record);
    run->record = NULL;
}

/* ---- rows ---- */

static int write_layers(struct nh_run *run, int step)
{
    struct nh_writer *w = NULL;
    int status = table(run, NH_TABLE_LAYERS, step, &w);
    for (int k = 0; k < run->rows.n && !status; k++) {
        const struct nh_step *s = &run->model.graph->steps[k / NH_STREAMS];
        if (s->after[k % NH_STREAMS] < 0)
            continue;
        nh_writer_int(w, NH_LAYERS_LAYER, s->layer);
        nh_writer_text(w, NH_LAYERS_SUBLAYER, nh_sublayer_names[s->sublayer]);
        nh_writer_int(w, NH_LAYERS_STREAM, k % NH_STREAMS);
        for (int c = 0; c < NH_COLUMN_COUNT; c++) {
            size_t i = (size_t)k * NH_COLUMN_COUNT + (size_t)c;
            if (!run->rows.measured[i])
                continue;
            if (nh_columns[c].type == NH_TYPE_INT)
                nh_writer_int(w, (enum nh_column_id)c, (int64_t)run->rows.cells[i]);
            else
                nh_writer_real(w, (enum nh_column_id)c, run->rows.cells[i]);
        }
        status = nh_writer_row(w);
    }
    return status;
}

double nh_wide_max(const struct nh_run *run, int site)
{
    const struct nh_graph *g = run->wide.graph;
    const struct nh_site *s = &run->model.graph->sites[site];
    for (int i = 0; g && i < g->n_sites; i++)
        if (g->sites[i].layer == s->layer && g->sites[i].sublayer == s->sublayer && g->sites[i].name == s->name)
            return nh_largest(&run->wide.core->counts(run->wide.exec)[i * NH_DIRECTIONS + NH_FWD]);
    return (double)NAN;
}

int nh_record_sites(struct nh_run *run, int step)
{
    const struct nh_graph *g = run->model.graph;
    struct nh_writer *w = NULL;
    int status = table(run, NH_TABLE_SITES, step, &w);
    for (int i = 0; i < g->n_sites * NH_DIRECTIONS && !status; i++) {
        const struct nh_site *s = &g->sites[i / NH_DIRECTIONS];
        enum nh_direction d = (enum nh_direction)(i % NH_DIRECTIONS);
        const struct nh_counts *c = &run->counts[i];
        if (!c->total) /* nothing is stored there in this direction */
            continue;
        nh_writer_int(w, NH_SITES_LAYER, s->layer);
        nh_writer_text(w, NH_SITES_SUBLAYER, nh_sublayer_names[s->sublayer]);
        nh_writer_text(w, NH_SITES_SITE, nh_site_names[s->name]);
        nh_writer_text(w, NH_SITES_DIRECTION, nh_direction_names[d]);
        nh_writer_count(w, NH_SITES_OVERFLOW, c->overflow);
        nh_writer_count(w, NH_SITES_NAN_MADE, c->nan_made);
        nh_writer_count(w, NH_SITES_PROPAGATED, c->propagated);
        nh_writer_count(w, NH_SITES_ZERO_MADE, c->zero_made);
        nh_writer_count(w, NH_SITES_UNDERFLOW, c->underflow);
        nh_writer_count(w, NH_SITES_SUBNORMAL, c->subnormal);
        nh_writer_count(w, NH_SITES_TOTAL, c->total);
        nh_writer_real(w, NH_SITES_MAX_ABS, nh_largest(c));
        if (isfinite(c->min_abs)) /* inf = every value is zero: there is no smallest */
            nh_writer_real(w, NH_SITES_MIN_ABS, c->min_abs);
        nh_writer_real(w, NH_SITES_HEADROOM_BITS, nh_headroom_bits(nh_site_format(g, i / NH_DIRECTIONS, d), c));
        const double wide = d == NH_FWD ? nh_wide_max(run, i / NH_DIRECTIONS) : (double)NAN;
        if (!isnan(wide))
            nh_writer_real(w, NH_SITES_MAX_ABS_FP32, wide);
        status = nh_writer_row(w);
    }
    return status;
}

static int write_spectrum(struct nh_run *run, int step)
{
    struct nh_writer *w = NULL;
    int status = table(run, NH_TABLE_SPECTRUM, step, &w);
    for (size_t i = 0; i < run->rows.n_spectrum && !status; i++) {
        const struct nh_singular *v = &run->rows.spectrum[i];
        if (!v->index) /* a step that has no map */
            continue;
        const struct nh_step *s = &run->model.graph->steps[v->row / NH_STREAMS];
        nh_writer_int(w, NH_SPECTRUM_LAYER, s->layer);
        nh_writer_text(w, NH_SPECTRUM_SUBLAYER, nh_sublayer_names[s->sublayer]);
        nh_writer_int(w, NH_SPECTRUM_INDEX, v->index);
        nh_writer_real(w, NH_SPECTRUM_SINGULAR_VALUE, v->value);
        status = nh_writer_row(w);
    }
    return status;
}

int nh_record_measured(struct nh_run *run, int step)
{
    int status = write_layers(run, step);
    if (!status && run->rows.sites)
        status = nh_record_sites(run, step);
    if (!status && run->rows.n_spectrum)
        status = write_spectrum(run, step);
    return status;
}

int nh_record_step(struct nh_run *run, const struct nh_train_step *s)
{
    const struct nh_trainer *t = &run->trainer;
    const struct nh_config *c = &run->options.config;
    struct nh_writer *w = NULL;
    int status = table(run, NH_TABLE_STEPS, t->step - 1, &w);
    if (status)
        return status;
    nh_writer_real(w, NH_STEPS_LOSS, s->loss);
    nh_writer_real(w, NH_STEPS_LR, s->lr);
    nh_writer_real(w, NH_STEPS_GRAD_NORM, s->grad_norm);
    nh_writer_real(w, NH_STEPS_LOSS_SCALE, s->loss_scale);
    nh_writer_int(w, NH_STEPS_SKIPPED, s->skipped);
    nh_writer_count(w, NH_STEPS_OVERFLOW_FWD, s->overflow_fwd);
    nh_writer_count(w, NH_STEPS_OVERFLOW_BWD, s->overflow_bwd);
    nh_writer_int(w, NH_STEPS_APPLIED_STEP, t->applied);
    if (run->validated)
        nh_writer_real(w, NH_STEPS_VAL_LOSS, t->val_loss);
    nh_writer_real(w, NH_STEPS_MAX_ABS, s->max_abs);
    if (t->has_scores)
        nh_writer_real(w, NH_STEPS_MAX_SCORE, s->max_score);
    nh_writer_real(w, NH_STEPS_CHANGED, s->changed);
    nh_writer_int(w, NH_STEPS_TOKENS, (int64_t)t->step * c->batch * c->seq * c->train.grad_accum);
    status = nh_writer_row(w);
    for (int i = 0; i < NH_TABLE_COUNT && !status; i++)
        if (run->record->tables[i])
            status = nh_writer_flush(run->record->tables[i]);
    return status;
}

int nh_record_sync(struct nh_run *run, struct nh_extent extents[NH_TABLE_COUNT])
{
    int status = NH_OK;
    for (int t = 0; t < NH_TABLE_COUNT && !status; t++) {
        struct nh_writer *w = run->record->tables[t];
        extents[t] = (struct nh_extent){0};
        if (w)
            status = nh_writer_sync(w, &extents[t]);
    }
    return status;
}

struct config_row {
    const struct nh_run *run;
    struct nh_writer *writer;
};

static int write_option(void *arg, const char *option, const char *value)
{
    struct config_row *row = arg;
    nh_writer_text(row->writer, NH_CONFIG_RUN, row->run->id);
    nh_writer_text(row->writer, NH_CONFIG_OPTION, option);
    nh_writer_text(row->writer, NH_CONFIG_VALUE, value);
    return nh_writer_row(row->writer);
}

int nh_record_config(struct nh_run *run)
{
    struct config_row row = {run, NULL};
    int status = nh_writer_create(&row.writer, run->dir, NH_TABLE_CONFIG);
    if (!status)
        status = nh_options_record(&run->options, write_option, &row);
    if (!status)
        status = write_option(&row, NH_SAMPLE_ROW, run->sample);
    if (!status)
        status = nh_writer_commit(row.writer);
    if (!status)
        status = nh_writer_verify(row.writer);
    nh_writer_destroy(row.writer);
    return status;
}

int nh_record_finish(struct nh_run *run)
{
    struct nh_writer **tables = run->record->tables;
    int status = nh_record_config(run);
    for (int t = 0; t < NH_TABLE_COUNT && !status; t++)
        if (tables[t])
            status = nh_writer_commit(tables[t]);
    for (int t = 0; t < NH_TABLE_COUNT && !status; t++) /* where no lock reaches another process, it may have put its own there */
        if (tables[t])
            status = nh_writer_verify(tables[t]);
    if (!status)
        status = nh_run_json(run);
    /* what an interruption left is of no more use, unless checkpoints were asked for */
    if (!status && run->status != NH_RUN_INTERRUPTED && !run->options.config.train.checkpoint_every)
        status = take_away(run, NH_CHECKPOINT);
    return status ? status : nh_dir_sync(run->dir);
}
