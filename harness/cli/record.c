// SPDX-License-Identifier: GPL-3.0-or-later
/** The files of a run: layers.csv, sites.csv, spectrum.csv, config.csv, and run.json, which is written last. */
#include "harness/cli/cli.h"
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/core/init.h"
#include "results/file.h"
#include "results/writer.h"

#include <cblas.h>
#include <errno.h>
#include <fcntl.h>
#include <gsl/gsl_version.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

double nh_headroom_bits(const struct nh_fmt *format, const struct nh_counts *c)
{
    if (c->overflow && !format->has_inf) /* what left the format is stored as NaN */
        return -(double)INFINITY;
    return log2(format->max / nh_largest(c));
}

const struct nh_fmt *nh_site_format(const struct nh_graph *g, int site, enum nh_direction direction)
{
    if (direction == NH_WGRAD)
        return nh_weight_grad_fmt(g, g->sites[site].weight_role);
    return direction == NH_BWD ? nh_grad_fmt(g, g->sites[site].role) : &g->fmt[g->sites[site].role];
}

static char *join(const char *dir, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        abort();
    return path;
}

static json_t *load_record(const struct nh_run *run)
{
    char *path = join(run->dir, "run.json");
    json_t *j = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    free(path);
    return j;
}

/** The files of a run but run.json, which comes last. */
static const char *const files[] = {"layers.csv", "sites.csv", "spectrum.csv", "config.csv"};

enum { N_FILES = sizeof files / sizeof *files };

/** Size of a file of the run, -1 where there is none. */
static json_int_t file_size(const struct nh_run *run, const char *name)
{
    struct stat st;
    char *path = join(run->dir, name);
    int missing = stat(path, &st);
    free(path);
    return missing ? -1 : (json_int_t)st.st_size;
}

/** True where no file is missing or shorter than run.json tells. */
static bool whole(const struct nh_run *run, const json_t *sizes)
{
    for (int i = 0; i < N_FILES; i++) {
        const json_t *size = json_object_get(sizes, files[i]);
        if (size && file_size(run, files[i]) < json_integer_value(size))
            return false;
    }
    return sizes != NULL;
}

/** True where a CSV file in the folder is not what a killed run of this configuration may have left there. */
static bool foreign(const struct nh_run *run, const char *name)
{
    char *path = join(run->dir, name), line[64] = "";
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
    bool other = f != NULL;
    free(path);
    while (f && fgets(line, sizeof line, f) && !strchr(line, '\n')) /* over the header */
        continue;
    if (f && fgets(line, sizeof line, f))
        other = strncmp(line, run->id, strlen(run->id)) != 0;
    if (f)
        fclose(f);
    return other;
}

int nh_record_find(const struct nh_run *run, bool *finished)
{
    json_t *j = load_record(run);
    const char *id = json_string_value(json_object_get(j, "run"));
    int status = NH_OK;
    *finished = id && strcmp(id, run->id) == 0 && whole(run, json_object_get(j, "files"));
    if (id && strcmp(id, run->id) != 0)
        status = nh_fail(NH_USAGE, "%s holds the results of another configuration (run %.16s); choose another --out, or --force to "
                                   "replace them", run->dir, id);
    for (int i = 0; i < N_FILES && !status && !id; i++)
        if (foreign(run, files[i]))
            status = nh_fail(NH_USAGE, "%s/%s is not of this run; choose another --out, or --force to replace it", run->dir, files[i]);
    json_decref(j);
    return status;
}

static struct nh_keys keys_of(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    return (struct nh_keys){.run = run->id, .label = c->label ? c->label : "", .layout = c->layout->name, .depth = c->depth,
                            .dtype = c->dtype.name, .policy = c->policy->name, .init = nh_init_names[c->init], .seed = c->seed};
}

static int begin_table(struct nh_writer **w, const struct nh_run *run, enum nh_table table)
{
    int status = nh_writer_create(w, run->dir, table);
    struct nh_keys keys = keys_of(run);
    if (!status)
        nh_writer_keys(*w, &keys);
    return status;
}

/** Commits where all went well; frees the writer in any case. */
static int end_table(struct nh_writer *w, int status)
{
    if (!status)
        status = nh_writer_commit(w);
    nh_writer_destroy(w);
    return status;
}

static int write_layers(const struct nh_run *run)
{
    struct nh_writer *w = NULL;
    int status = begin_table(&w, run, NH_TABLE_LAYERS);
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
    return end_table(w, status);
}

static int write_sites(const struct nh_run *run)
{
    const struct nh_graph *g = run->model.graph;
    const struct nh_counts *counts = run->model.core->counts(run->model.exec);
    struct nh_writer *w = NULL;
    int status = begin_table(&w, run, NH_TABLE_SITES);
    for (int i = 0; i < g->n_sites * NH_DIRECTIONS && !status; i++) {
        const struct nh_site *s = &g->sites[i / NH_DIRECTIONS];
        enum nh_direction d = (enum nh_direction)(i % NH_DIRECTIONS);
        const struct nh_counts *c = &counts[i];
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
        status = nh_writer_row(w);
    }
    return end_table(w, status);
}

static int write_spectrum(const struct nh_run *run)
{
    struct nh_writer *w = NULL;
    int status = begin_table(&w, run, NH_TABLE_SPECTRUM);
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
    return end_table(w, status);
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

static int write_config(const struct nh_run *run)
{
    struct config_row row = {run, NULL};
    int status = nh_writer_create(&row.writer, run->dir, NH_TABLE_CONFIG);
    if (!status)
        status = nh_options_record(&run->options, write_option, &row);
    return end_table(row.writer, status);
}

/* ---- run.json ---- */

/** A number, or the text "nan", "inf", "-inf", which JSON has no numbers for. */
static json_t *number(double v)
{
    return isnan(v) ? json_string("nan") : isinf(v) ? json_string(v < 0 ? "-inf" : "inf") : json_real(v);
}

static json_t *offender(const struct nh_run *run, enum nh_direction direction)
{
    struct nh_first f = run->model.core->first(run->model.exec, direction);
    if (f.kind == NH_NO_OFFENCE)
        return json_null();
    const struct nh_site *s = &run->model.graph->sites[f.site];
    return json_pack("{s:i, s:i, s:s, s:s, s:s, s:s, s:I, s:o}", "step", 0, "layer", s->layer, "sublayer",
                     nh_sublayer_names[s->sublayer], "site", nh_site_names[s->name], "direction", nh_direction_names[direction],
                     "kind", nh_offence_names[f.kind], "index", (json_int_t)f.index, "value", number(f.value));
}

static json_t *first_backward(const struct nh_run *run)
{
    json_t *first = offender(run, NH_BWD);
    return json_is_null(first) ? offender(run, NH_WGRAD) : first;
}

static int add_option(void *arg, const char *option, const char *value)
{
    return json_object_set_new(arg, option, json_string(value)) ? nh_fail(NH_FAILED, "out of memory") : NH_OK;
}

static json_t *cpu_model(void)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256], name[200] = "unknown";
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %199[^\n]", name) == 1)
            break;
    if (f)
        fclose(f);
    return json_string(name);
}

static json_t *machine(const struct nh_run *run)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:i, s:f, s:f}", "program", nh_version, "compiler", __VERSION__, "gsl",
                     gsl_version, "blas", openblas_get_config(), "blas_core", openblas_get_corename(), "cpu", cpu_model(), "threads",
                     run->options.config.threads, "wall_s", run->wall_s, "peak_rss_mib", (double)usage.ru_maxrss / 1024);
}

static int write_json(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    json_t *options = json_object(), *j = json_object();
    int status = options && j ? nh_options_record(&run->options, add_option, options) : nh_fail(NH_FAILED, "out of memory");
    json_object_set_new(j, "run", json_string(run->id));
    json_object_set_new(j, "status", json_string(nh_run_status_names[run->status]));
    json_object_set_new(j, "loss", number(run->loss));
    json_object_set_new(j, "loss_scale", number(run->loss_scale));
    json_object_set_new(j, "first_forward", offender(run, NH_FWD));
    json_object_set_new(j, "first_backward", first_backward(run));
    json_object_set_new(j, "first_offender", offender(run, NH_FWD)); /* without training no backward overflow stops a run */
    json_object_set_new(j, "equation", json_string(c->layout->equation));
    json_object_set_new(j, "law", json_string(c->layout->law));
    json_object_set_new(j, "data", json_string(run->data->what));
    json_object_set_new(j, "parameters", json_integer((json_int_t)nh_graph_parameters(run->model.graph)));
    json_object_set_new(j, "numerics", json_integer(NH_NUMERICS_VERSION));
    json_object_set_new(j, "config", options);
    json_t *sizes = json_object();
    for (int i = 0; i < N_FILES; i++)
        if (file_size(run, files[i]) >= 0)
            json_object_set_new(sizes, files[i], json_integer(file_size(run, files[i])));
    json_object_set_new(j, "files", sizes);
    json_t *m = machine(run);
    json_object_update(j, m);
    json_decref(m);
    char *text = status ? NULL : json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(17)), *path = join(run->dir, "run.json");
    if (!status && !text)
        status = nh_fail(NH_FAILED, "out of memory for %s", path);
    if (!status)
        status = nh_file_write(path, text, strlen(text));
    free(text), free(path);
    json_decref(j);
    return status;
}

/** Takes the files of an older run away, run.json first: what is left of it never looks finished. */
static int clear(const struct nh_run *run)
{
    for (int i = -1; i < N_FILES; i++) {
        const char *name = i < 0 ? "run.json" : files[i];
        char *path = join(run->dir, name);
        int failed = unlink(path) && errno != ENOENT ? errno : 0;
        free(path);
        if (failed)
            return nh_fail(NH_FAILED, "cannot replace %s/%s: %s; choose another --out", run->dir, name, strerror(failed));
    }
    return NH_OK;
}

static int write_all(const struct nh_run *run)
{
    int status = clear(run);
    if (!status)
        status = write_layers(run);
    if (!status && run->rows.sites)
        status = write_sites(run);
    if (!status && run->rows.n_spectrum)
        status = write_spectrum(run);
    if (!status)
        status = write_config(run);
    if (!status)
        status = write_json(run);
    return status ? status : nh_dir_sync(run->dir);
}

int nh_record_run(const struct nh_run *run)
{
    int status = nh_dir_make(run->dir);
    if (status)
        return status;
    int fd = open(run->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX)) /* one writer at a time */
        status = nh_fail(NH_FAILED, "%s: %s; choose another --out", run->dir, strerror(errno));
    bool finished = false;
    if (!status && !run->options.config.force) /* another run may have come before, while this one was computing */
        status = nh_record_find(run, &finished);
    if (!status && !finished)
        status = write_all(run);
    if (fd >= 0)
        close(fd);
    return status;
}
