// SPDX-License-Identifier: GPL-3.0-or-later
/** harness report: what overflowed in runs that are there, and what would overflow in other formats. */
#include "harness/cli/cli.h"
#include "harness/cli/headroom.h"
#include "harness/core/err.h"
#include "harness/core/site.h"
#include "results/reader.h"
#include "results/text.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** The columns that are read. */
struct columns {
    size_t run, step, layer, site, direction, dtype, overflow, max_abs, wide;
    bool has_wide;
};

/** What is kept: the rows of one step. */
struct lines {
    struct nh_site_line *line;
    size_t n;
    double step;
    char run[64]; /**< whose rows they are */
};

static int find_columns(const struct nh_reader *r, struct columns *c)
{
    const struct {
        const char *name;
        size_t *at;
    } needed[] = {{"run", &c->run},             {"step", &c->step},           {"layer", &c->layer}, {"site", &c->site},         {"direction", &c->direction},
                  {"overflow", &c->overflow}, {"dtype", &c->dtype}, {"max_abs", &c->max_abs}};
    int status = NH_OK;
    for (size_t i = 0; i < sizeof needed / sizeof *needed && !status; i++)
        status = nh_reader_need(r, needed[i].name, needed[i].at);
    c->has_wide = nh_reader_find(r, "max_abs_fp32", &c->wide);
    return status;
}

/** A number of the current row; nan where the cell is empty. */
static int number(struct nh_reader *r, size_t column, double *value)
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

/** Keeps the current row; those of an earlier step are dropped. */
static int take_row(struct nh_reader *r, const struct columns *c, struct lines *lines)
{
    struct nh_site_line line = {.layer = 0};
    double step, layer, overflow, wide = (double)NAN, own;
    int status = number(r, c->step, &step);
    if (!status)
        status = number(r, c->layer, &layer);
    if (!status)
        status = number(r, c->overflow, &overflow);
    if (!status)
        status = number(r, c->max_abs, &own);
    if (!status && c->has_wide)
        status = number(r, c->wide, &wide);
    if (status || strcmp(nh_reader_text(r, c->direction), "fwd") != 0)
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
        lines->n = 0, lines->step = step;
    const char *dtype = nh_reader_text(r, c->dtype);
    const bool is_wide = strcmp(dtype, "fp32") == 0 || strcmp(dtype, "fp64") == 0;
    line.layer = (int)layer, line.overflow = (uint64_t)overflow;
    line.max_abs = isnan(wide) && is_wide ? own : wide;
    for (int i = 0; i < NH_SITE_COUNT && !line.site; i++)
        line.site = strcmp(nh_site_names[i], nh_reader_text(r, c->site)) == 0 ? nh_site_names[i] : NULL;
    if (!line.site)
        return nh_fail(NH_FAILED, "line %zu of sites.csv: there is no site '%.40s' ('harness list sites' shows all)", nh_reader_line(r),
                       nh_reader_text(r, c->site));
    return keep(lines, &line);
}

static int report(const char *dir)
{
    struct nh_reader *r = NULL;
    struct columns c;
    struct lines lines = {.step = -1};
    char path[4096];
    int more = 1;
    if (snprintf(path, sizeof path, "%s/sites.csv", dir) >= (int)sizeof path)
        return nh_fail(NH_USAGE, "the name '%.60s...' is too long", dir);
    if (access(path, F_OK) != 0)
        return nh_fail(NH_FAILED, "'%s' has no sites.csv; give the folder of a run with the probe overflow", dir);
    int status = nh_reader_open(&r, path);
    if (status)
        return status;
    status = find_columns(r, &c);
    while (!status && (more = nh_reader_next(r)) == 1)
        status = take_row(r, &c, &lines);
    if (!status && more == NH_FAILED)
        status = NH_FAILED;
    if (!status && lines.n == 0)
        status = nh_fail(NH_FAILED, "%s has no forward values", path);
    if (!status) {
        nh_text_line(stdout, "%s, step %.0f", dir, lines.step);
        if (!nh_headroom_print(stdout, lines.line, lines.n))
            puts("headroom in fp32 is not known: run with --dtype fp32, or add headroom to --probes");
    }
    free(lines.line);
    nh_reader_close(r);
    return status;
}

int nh_cmd_report(int argc, char **argv)
{
    int status = NH_OK;
    if (argc == 0)
        return nh_fail(NH_USAGE, "report takes the folders of one run or more, with a sites.csv in each (probe overflow)");
    for (int i = 0; i < argc && !status; i++) {
        if (argv[i][0] == '-')
            return nh_fail(NH_USAGE, "report has no option '%.60s'; it takes folders of runs", argv[i]);
        if (i)
            putchar('\n');
        status = report(argv[i]);
    }
    return status;
}
