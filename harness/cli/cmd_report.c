// SPDX-License-Identifier: GPL-3.0-or-later
/** harness report, and what a run prints when it ends: from the files of its folder, whoever wrote them and whether or not it has ended. */
#include "harness/cli/cli.h"
#include "harness/cli/headroom.h"
#include "harness/cli/json_file.h"
#include "harness/cli/report.h"
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/core/site.h"
#include "results/file.h"
#include "results/reader.h"
#include "results/text.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** The columns that are read. */
struct columns {
    size_t run, step, layer, site, direction, dtype, overflow, max_abs, wide, total, propagated, bits;
    bool has_wide, has_total, has_propagated, has_bits;
};

/** Sums over the rows of one step, and where the least room is left above the largest value. */
struct totals {
    double overflow[NH_DIRECTIONS], stored; /**< stored: forward values */
    bool in[NH_DIRECTIONS];                 /**< there are rows of this direction */
    double broken, broken_layer;            /**< weights that were inf or nan before they were stored */
    double bits, max_abs, layer;            /**< of the forward site with the least headroom */
    const char *site;                       /**< NULL: no headroom is known */
};

/** What is kept: the rows of one step. */
struct lines {
    struct totals totals;
    struct nh_site_line *line;
    size_t n;
    double step;
    bool has_wide; /**< values of the fp32 twin are there */
    char run[64];  /**< whose rows they are */
};

static int find_columns(const struct nh_reader *r, struct columns *c)
{
    const struct {
        const char *name;
        size_t *at;
    } needed[] = {{"run", &c->run},     {"step", &c->step},           {"layer", &c->layer},
                  {"site", &c->site},   {"direction", &c->direction}, {"overflow", &c->overflow},
                  {"dtype", &c->dtype}, {"max_abs", &c->max_abs}};
    int status = NH_OK;
    for (size_t i = 0; i < sizeof needed / sizeof *needed && !status; i++)
        status = nh_reader_need(r, needed[i].name, needed[i].at);
    c->has_wide = nh_reader_find(r, "max_abs_fp32", &c->wide), c->has_total = nh_reader_find(r, "total", &c->total);
    c->has_propagated = nh_reader_find(r, "propagated", &c->propagated), c->has_bits = nh_reader_find(r, "headroom_bits", &c->bits);
    return status;
}

int nh_report_number(struct nh_reader *r, size_t column, double *value)
{
    const int found = nh_reader_real(r, column, value);
    return found == NH_FAILED ? NH_FAILED : NH_OK;
}

static int keep(struct lines *lines, const struct nh_site_line *line)
{
    if ((lines->n & (lines->n - 1)) == 0) { /* room up to the next power of two is there */
        struct nh_site_line *more = realloc(lines->line, (lines->n ? 2 * lines->n : 1) * sizeof *more);
        if (!more)
            return nh_fail(NH_FAILED, "out of memory");
        lines->line = more;
    }
    lines->line[lines->n++] = *line;
    return NH_OK;
}

static void add_totals(struct totals *t, const char *direction, const struct nh_site_line *line, double total, double propagated,
                       double bits, double own)
{
    int d = 0;
    while (d < NH_DIRECTIONS && strcmp(nh_direction_names[d], direction) != 0)
        d++;
    if (d == NH_DIRECTIONS)
        return;
    t->overflow[d] += (double)line->overflow;
    t->in[d] = true;
    if (d != NH_FWD)
        return;
    t->stored += total;
    if (strcmp(line->site, nh_site_names[NH_SITE_WEIGHT]) == 0 && propagated > 0) {
        t->broken_layer = t->broken > 0 ? t->broken_layer : line->layer;
        t->broken += propagated;
    }
    if (!isnan(bits) && (!t->site || bits < t->bits))
        t->bits = bits, t->site = line->site, t->layer = line->layer, t->max_abs = own;
}

static void print_totals(const struct totals *t)
{
    if (t->site) {
        printf("headroom  %.1f bits at %s of layer %.0f (largest |x| %.4g", t->bits, t->site, t->layer, t->max_abs);
        if (isfinite(t->bits) && isfinite(t->max_abs))
            printf(", format maximum %.6g", t->max_abs * exp2(t->bits));
        puts(")");
    }
    printf("overflow  %.0f of %.0f values forward, %.0f in gradients, %.0f in weight gradients", t->overflow[NH_FWD], t->stored,
           t->overflow[NH_BWD], t->overflow[NH_WGRAD]);
    if (t->in[NH_UPDATE])
        printf(", %.0f in the optimizer", t->overflow[NH_UPDATE]);
    putchar('\n');
    if (t->broken > 0)
        printf("weights   %.0f are inf or nan by themselves, the first in layer %.0f\n", t->broken, t->broken_layer);
}

/** Keeps the current row; those of an earlier step are dropped. */
static int take_row(struct nh_reader *r, const struct columns *c, struct lines *lines)
{
    struct nh_site_line line = {.layer = 0};
    double step, layer, overflow, wide = (double)NAN, own, total = 0, propagated = 0, bits = (double)NAN;
    int status = nh_report_number(r, c->step, &step);
    if (!status)
        status = nh_report_number(r, c->layer, &layer);
    if (!status)
        status = nh_report_number(r, c->overflow, &overflow);
    if (!status)
        status = nh_report_number(r, c->max_abs, &own);
    if (!status && c->has_wide)
        status = nh_report_number(r, c->wide, &wide);
    if (!status && c->has_total)
        status = nh_report_number(r, c->total, &total);
    if (!status && c->has_propagated)
        status = nh_report_number(r, c->propagated, &propagated);
    if (!status && c->has_bits)
        status = nh_report_number(r, c->bits, &bits);
    if (status)
        return status;
    if (!(layer >= 0 && layer < 1e6 && overflow >= 0 && overflow < 0x1p63 && isfinite(step)))
        return nh_fail(NH_FAILED, "line %zu of sites.csv has no layer, step or count that can be; it is not as harness wrote it",
                       nh_reader_line(r));
    if (lines->step < 0)
        snprintf(lines->run, sizeof lines->run, "%s", nh_reader_text(r, c->run));
    else if (strncmp(lines->run, nh_reader_text(r, c->run), sizeof lines->run - 1) != 0)
        return nh_fail(NH_FAILED, "line %zu of sites.csv is of another run than what is before it; give folders of one run each",
                       nh_reader_line(r));
    if (step > lines->step)
        lines->n = 0, lines->step = step, lines->totals = (struct totals){.site = NULL};
    lines->has_wide |= !isnan(wide);
    const char *dtype = nh_reader_text(r, c->dtype);
    const bool is_wide = strcmp(dtype, "fp32") == 0 || strcmp(dtype, "fp64") == 0;
    line.layer = (int)layer, line.overflow = (uint64_t)overflow;
    line.max_abs = isnan(wide) && is_wide ? own : wide;
    for (int i = 0; i < NH_SITE_COUNT && !line.site; i++)
        line.site = strcmp(nh_site_names[i], nh_reader_text(r, c->site)) == 0 ? nh_site_names[i] : NULL;
    if (!line.site)
        return nh_fail(NH_FAILED, "line %zu of sites.csv: there is no site '%.40s' ('harness list sites' shows all)", nh_reader_line(r),
                       nh_reader_text(r, c->site));
    const char *direction = nh_reader_text(r, c->direction);
    add_totals(&lines->totals, direction, &line, total, propagated, bits, own);
    return strcmp(direction, "fwd") == 0 ? keep(lines, &line) : NH_OK;
}

/** Reads rows of the last step, while there are any. part: the file may end in the middle of a row. */
static int read_sites(const char *path, bool part, struct lines *lines)
{
    struct nh_reader *r = NULL;
    struct columns c;
    int more = 1, status = nh_reader_open(&r, path);
    if (!status)
        status = find_columns(r, &c);
    while (!status && (more = nh_reader_next(r)) == 1)
        status = take_row(r, &c, lines);
    if (!status && more == NH_FAILED && !part)
        status = NH_FAILED;
    nh_reader_close(r);
    return status;
}

/* ---- the files of a folder ---- */

static char *in_folder(const char *dir, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        nh_no_memory();
    return path;
}

struct newest {
    char *name;
    struct timespec time;
};

static int keep_newest(void *arg, const char *name)
{
    struct newest *n = arg;
    struct stat st;
    if (lstat(name, &st))
        return errno == ENOENT ? NH_OK : nh_file_failed("read", name, errno);
    if (!S_ISREG(st.st_mode) ||
        (n->name && (st.st_mtim.tv_sec < n->time.tv_sec || (st.st_mtim.tv_sec == n->time.tv_sec && st.st_mtim.tv_nsec < n->time.tv_nsec))))
        return NH_OK;
    free(n->name);
    n->name = nh_have(strdup(name));
    n->time = st.st_mtim;
    return NH_OK;
}

/** Whether there is such a file; NH_FAILED where that cannot be known. */
static int look_for(const char *path, bool *there)
{
    *there = access(path, F_OK) == 0;
    return *there || errno == ENOENT ? NH_OK : nh_file_failed("read", path, errno);
}

/** A table of the folder, or of a run that is broken off or under way the newest of its temporary files; *path = NULL: there is none.
 *  To be freed, after a failure too. */
static int find_table(char **path, const char *dir, const char *name, bool ended, bool *part)
{
    bool there;
    struct newest newest = {.name = NULL};
    *path = in_folder(dir, name);
    int status = look_for(*path, &there);
    if (!status && !ended)
        status = nh_part_each(*path, keep_newest, &newest);
    *part = newest.name != NULL;
    if (*part || status || !there) {
        free(*path);
        *path = newest.name;
    }
    return status;
}

static int load_record(const char *dir, json_t **record)
{
    json_error_t error;
    char *path = in_folder(dir, "run.json");
    *record = NULL;
    bool there;
    int status = look_for(path, &there);
    if (there) {
        *record = nh_json_load(path, NH_RECORD_BYTES, &error);
        if (!json_is_string(json_object_get(*record, "status")))
            status =
                nh_fail(NH_FAILED, "%s is not the record of a run%s%s; run it again", path, *record ? "" : ": ", *record ? "" : error.text);
    }
    free(path);
    return status;
}

static void print_lines(const json_t *lines)
{
    for (size_t i = 0; i < json_array_size(lines); i++)
        if (json_string_value(json_array_get(lines, i)))
            nh_text_line(stdout, "%s", json_string_value(json_array_get(lines, i)));
}

/** What steps.csv tells of a training that has no record yet: its last whole row. */
static int print_steps(const char *path, bool part)
{
    struct nh_reader *r = NULL;
    size_t step, loss;
    double last = -1, value = (double)NAN;
    int more = 1, status = nh_reader_open(&r, path);
    if (!status)
        status = nh_reader_need(r, "step", &step);
    if (!status)
        status = nh_reader_need(r, "loss", &loss);
    while (!status && (more = nh_reader_next(r)) == 1) {
        status = nh_report_number(r, step, &last);
        if (!status)
            status = nh_report_number(r, loss, &value);
    }
    if (!status && more == NH_FAILED && !part)
        status = NH_FAILED;
    nh_reader_close(r);
    if (!status && last >= 0)
        printf("training  %.0f steps so far, loss %.4f at the last one\n", last + 1, isnan(value) ? (double)NAN : value);
    return status;
}

static void print_status(const json_t *record, const char *dir)
{
    const json_t *loss = json_object_get(record, "loss");
    char text[32] = "";
    if (json_is_number(loss))
        snprintf(text, sizeof text, ", loss %.6g", json_number_value(loss));
    else if (json_is_string(loss))
        snprintf(text, sizeof text, ", loss %.6s", json_string_value(loss));
    if (record)
        nh_text_line(stdout, "status    %s%s, %.2f s", json_string_value(json_object_get(record, "status")), text,
                     json_number_value(json_object_get(record, "wall_s")));
    else
        puts("status    broken off or under way");
    nh_text_line(stdout, "results   %s", dir);
}

static int nothing_there(const char *dir)
{
    return nh_fail(NH_FAILED, "'%s' holds no run: there is neither a run.json nor a table in it; give the folder of one run", dir);
}

int nh_report_folder(const char *dir, bool asked)
{
    json_t *record = NULL;
    struct nh_report_table table = {.last.step = -1, .before.step = -1};
    struct lines lines = {.step = -1};
    bool layers_part, sites_part, steps_part;
    char *layers = NULL, *sites = NULL, *steps = NULL;
    struct stat st;
    int status = stat(dir, &st) ? nh_fail(NH_FAILED, "cannot read '%s': %s; give the folder of a run", dir, strerror(errno))
                                : load_record(dir, &record);
    const bool ended = record != NULL;
    if (!status && record)
        status = nh_record_check(record, dir);
    if (!status)
        status = find_table(&layers, dir, "layers.csv", ended, &layers_part);
    if (!status)
        status = find_table(&sites, dir, "sites.csv", ended, &sites_part);
    if (!status)
        status = find_table(&steps, dir, "steps.csv", ended, &steps_part);
    if (!status && !record && !layers && !sites && !steps)
        status = nothing_there(dir);
    if (!status && layers)
        status = nh_report_read_layers(layers, layers_part, &table);
    if (!status && sites)
        status = read_sites(sites, sites_part, &lines);
    if (!status && sites && asked && !lines.n && !sites_part)
        status = nh_fail(NH_FAILED, "%s has no forward values", sites);
    if (!status && record)
        print_lines(json_object_get(record, "title"));
    else if (!status && table.last.step >= 0)
        nh_text_line(stdout, "%s  L %s  %s", table.layout, table.depth, table.dtype);
    if (!status && table.last.n)
        nh_report_print_layers(&table.last, steps != NULL, json_object_get(record, "first_forward"));
    if (!status && lines.n) {
        if (steps)
            printf("at step %.0f\n", lines.step);
        print_totals(&lines.totals);
    }
    if (!status && !record && steps)
        status = print_steps(steps, steps_part);
    if (!status) {
        print_lines(json_object_get(record, "summary"));
        if (lines.n && (asked || lines.has_wide) && !nh_headroom_print(stdout, lines.line, lines.n))
            puts("headroom in fp32 is not known: run with --dtype fp32, or add headroom to --probes");
        print_status(record, dir);
    }
    free(table.last.row), free(table.before.row), free(lines.line);
    free(layers), free(sites), free(steps);
    json_decref(record);
    return status;
}

int nh_cmd_report(int argc, char **argv)
{
    int status = NH_OK;
    if (argc == 0)
        return nh_fail(NH_USAGE, "report takes the folders of one run or more, such as 'harness report results/runs/*'");
    for (int i = 0; i < argc && !status; i++) {
        if (argv[i][0] == '-')
            return nh_fail(NH_USAGE, "report has no option '%.60s'; it takes folders of runs", argv[i]);
        if (i)
            putchar('\n');
        status = nh_report_folder(argv[i], true);
    }
    return status;
}
