// SPDX-License-Identifier: GPL-3.0-or-later
/** The tables of a run: layers.csv, sites.csv, spectrum.csv, steps.csv, config.csv. */
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/core/init.h"
#include "harness/io/safetensors.h"
#include "results/file.h"
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
    int lock; /**< of the folder: one process at a time writes into it */
    struct nh_writer *tables[NH_TABLE_COUNT]; /**< each from its first row on */
};

const char *const nh_run_files[] = {"layers.csv", "sites.csv", "spectrum.csv", "steps.csv", "config.csv", NULL};

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

static json_t *load_json(const struct nh_run *run)
{
    char *path = nh_run_path(run, "run.json");
    json_t *j = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    free(path);
    return j;
}

/** True where no file is missing or shorter than run.json tells; each run has a config.csv. */
static bool whole(const struct nh_run *run, const json_t *sizes)
{
    for (int i = 0; nh_run_files[i]; i++) {
        const json_t *size = json_object_get(sizes, nh_run_files[i]);
        if (size && nh_run_file_size(run, nh_run_files[i]) < json_integer_value(size))
            return false;
    }
    return json_object_get(sizes, "config.csv") != NULL;
}

/** True where a CSV file in the folder is not what a killed run of this configuration may have left there; a part may end
 *  anywhere. */
static bool foreign(const struct nh_run *run, const char *name, bool part)
{
    char *path = nh_run_path(run, name), line[64] = "";
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
    bool other = f && !part;
    free(path);
    while (f && fgets(line, sizeof line, f) && !strchr(line, '\n')) /* over the header */
        continue;
    if (f && fgets(line, sizeof line, f)) {
        size_t n = strlen(run->id);
        other = strncmp(line, run->id, part && strlen(line) < n ? strlen(line) : n) != 0;
    }
    if (f)
        fclose(f);
    return other;
}

/** part: of a run that was killed. */
static int refuse_foreign(const struct nh_run *run, const char *name, bool part)
{
    char file[32];
    snprintf(file, sizeof file, "%s%s", name, part ? ".part" : "");
    return foreign(run, file, part) ? nh_fail(NH_USAGE, "%s/%s is not of this run; choose another --out, or --force to replace it",
                                              run->dir, file)
                                    : NH_OK;
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
    if (!id)
        status = nh_fail(NH_FAILED, "%s cannot be read as the checkpoint of a run; choose another --out, or --force to start anew", path);
    else if (!status && strcmp(id, run->id) != 0)
        status = other_run(run, id);
    if (!status)
        *found = NH_FOUND_BROKEN_OFF;
    nh_safetensors_close(s);
    free(path);
    return status;
}

int nh_record_find(const struct nh_run *run, enum nh_found *found)
{
    json_t *j = load_json(run);
    const char *id = json_string_value(json_object_get(j, "run")), *how = json_string_value(json_object_get(j, "status"));
    bool interrupted = how && strcmp(how, nh_run_status_names[NH_RUN_INTERRUPTED]) == 0;
    int status = id && strcmp(id, run->id) != 0 ? other_run(run, id) : NH_OK;
    *found = id && !status && !interrupted && whole(run, json_object_get(j, "files")) ? NH_FOUND_FINISHED : NH_FOUND_NOTHING;
    for (int i = 0; nh_run_files[i] && !status && !id; i++)
        status = refuse_foreign(run, nh_run_files[i], false);
    if (!status && *found == NH_FOUND_NOTHING)
        status = find_checkpoint(run, found);
    for (int i = 0; nh_run_files[i] && !status && !id && *found == NH_FOUND_NOTHING; i++)
        status = refuse_foreign(run, nh_run_files[i], true);
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

/** Takes the files of an older run away, all but run.json. */
static int clear(const struct nh_run *run)
{
    int status = take_away(run, NH_CHECKPOINT);
    for (int i = 0; nh_run_files[i] && !status; i++) {
        char part[32];
        snprintf(part, sizeof part, "%s.part", nh_run_files[i]);
        status = take_away(run, nh_run_files[i]);
        if (!status)
            status = take_away(run, part);
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

/** Whether all tables of a checkpoint are there as they were. */
static int check_tables(const struct nh_run *run, const struct nh_extent extents[NH_TABLE_COUNT])
{
    int status = NH_OK;
    for (int t = 0; t < NH_TABLE_COUNT && !status; t++) {
        uint64_t digest = extents[t].digest;
        if (extents[t].bytes)
            status = nh_writer_check(run->dir, (enum nh_table)t, extents[t].bytes, &digest);
        if (!status && digest != extents[t].digest)
            status = nh_fail(NH_FAILED, "cannot go on with %s/%s.csv: before byte %lld it is not what was written; --force starts anew",
                             run->dir, nh_tables[t].name, extents[t].bytes);
    }
    return status;
}

/** The tables of a checkpoint, cut to where they were. */
static int reopen(struct nh_run *run, const struct nh_extent extents[NH_TABLE_COUNT])
{
    int status = NH_OK;
    for (int t = 0; t < NH_TABLE_COUNT && !status; t++)
        if (extents[t].bytes)
            status = nh_writer_resume(&run->record->tables[t], run->dir, (enum nh_table)t, extents[t].bytes);
    return status;
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
    run->record->lock = open(run->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* who has only looked waits for the other one to write the same; one of them that trains would be waited for for hours */
    bool patient = !trains && nh_run_file_size(run, "steps.csv.part") < 0;
    if (run->record->lock < 0 || flock(run->record->lock, patient ? LOCK_EX : LOCK_EX | LOCK_NB)) {
        if (errno == EWOULDBLOCK)
            return nh_fail(NH_FAILED, "another process is at work in %s; wait for it or choose another --out", run->dir);
        return nh_fail(NH_FAILED, "%s: %s; choose another --out", run->dir, strerror(errno));
    }
    enum nh_found found = NH_FOUND_NOTHING;
    if (!run->options.config.force) /* another run may have come before, while this one was computing */
        status = nh_record_find(run, &found);
    *finished = found == NH_FOUND_FINISHED;
    if (status || *finished)
        return status;
    status = extents ? check_tables(run, extents) : NH_OK; /* before anything is changed */
    if (!status)
        status = take_away(run, "run.json"); /* first: what is left never looks finished */
    if (!status)
        status = extents ? reopen(run, extents) : clear(run);
    return status;
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

void nh_record_close(struct nh_run *run)
{
    if (!run->record)
        return;
    bool keep = nh_run_file_size(run, NH_CHECKPOINT) != NH_SIZE_MISSING;
    for (int t = 0; t < NH_TABLE_COUNT; t++) {
        if (keep && run->record->tables[t])
            nh_writer_keep(run->record->tables[t]);
        nh_writer_destroy(run->record->tables[t]);
    }
    if (run->record->lock >= 0)
        close(run->record->lock);
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

static int write_sites(struct nh_run *run, int step)
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
        status = write_sites(run, step);
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
    if (!isnan(run->val_loss))
        nh_writer_real(w, NH_STEPS_VAL_LOSS, run->val_loss);
    nh_writer_real(w, NH_STEPS_MAX_ABS, s->max_abs);
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
            status = nh_writer_sync(w, &extents[t].bytes), extents[t].digest = nh_writer_digest(w);
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
    nh_writer_destroy(row.writer);
    return status;
}

int nh_record_finish(struct nh_run *run)
{
    int status = nh_record_config(run);
    for (int t = 0; t < NH_TABLE_COUNT && !status; t++) {
        struct nh_writer **w = &run->record->tables[t];
        if (*w)
            status = nh_writer_commit(*w);
        if (!status)
            nh_writer_destroy(*w), *w = NULL;
    }
    if (!status)
        status = nh_run_json(run);
    /* what an interruption left is of no more use, unless checkpoints were asked for */
    if (!status && run->status != NH_RUN_INTERRUPTED && !run->options.config.train.checkpoint_every)
        status = take_away(run, NH_CHECKPOINT);
    return status ? status : nh_dir_sync(run->dir);
}
