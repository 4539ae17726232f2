// SPDX-License-Identifier: GPL-3.0-or-later
/** Reads the rows of one CSV file. */
#include "harness/cli/compare.h"
#include "harness/core/err.h"
#include "results/input.h"
#include "results/reader.h"
#include "results/schema.h"

#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(NH_LAYERS_STEP - NH_LAYERS_RUN == NH_KEY_COUNT, "the keys are the columns up to the step");

struct input {
    struct nh_comparison *c;
    const char *path, *folder;
    struct nh_reader *reader;
    enum nh_source source;      /* of its rows */
    struct nh_run_info *info;   /* of the only run, NULL where there may be more */
    size_t at[NH_COLUMN_COUNT]; /* where the columns of its table are; the keys under their names in layers */
    struct nh_compared *run;    /* of the row before */
};

static enum nh_column_id key_column(int key)
{
    return (enum nh_column_id)(NH_LAYERS_RUN + key);
}

const char *nh_key_name(enum nh_key key)
{
    return nh_columns[key_column((int)key)].name;
}

bool nh_beyond(const struct nh_measure *extreme, double value, int sign)
{
    if (!extreme->known)
        return true;
    const double so_far = sign * extreme->value;
    return !isnan(so_far) && !(isinf(so_far) && so_far > 0) && !(sign * value <= so_far);
}

/* A cell as a number; not known where it is empty. */
static int measure(const struct input *in, enum nh_column_id column, struct nh_measure *m)
{
    const int status = nh_reader_real(in->reader, in->at[column], &m->value);
    m->known = status == 1;
    return status < 0 ? status : NH_OK;
}

/* A whole number from 0; optional: 0 where the cell is empty. */
static int whole(const struct input *in, enum nh_column_id column, bool optional, double *value)
{
    struct nh_measure m;
    const int status = measure(in, column, &m);
    *value = m.known ? m.value : 0;
    if (status || (m.known ? m.value >= 0 && m.value < 0x1p53 && m.value == floor(m.value) : optional))
        return status;
    return nh_fail(NH_FAILED, "%s: '%.40s' in line %zu, column '%s', is not a whole number from 0", in->path,
                   nh_reader_text(in->reader, in->at[column]), nh_reader_line(in->reader), nh_columns[column].name);
}

static struct nh_compared *new_run(struct nh_comparison *c, const struct nh_compared *keys, struct nh_run_info *info)
{
    struct nh_compared *run = nh_alloc(&c->memory, sizeof *run);
    *run = (struct nh_compared){.depth = keys->depth, .info = info, .step = -1, .grad_step = -1, .last_step = -1};
    run->losses_end = &run->losses;
    for (int k = 0; k < NH_KEY_COUNT; k++)
        run->keys[k] = nh_copy(&c->memory, keys->keys[k]);
    *c->end = run;
    c->end = &run->next;
    return run;
}

static int compare_keys(const void *a, const void *b)
{
    const struct nh_compared *x = a, *y = b;
    int order = 0;
    for (int k = 0; k < NH_KEY_COUNT && !order; k++)
        order = strcmp(x->keys[k], y->keys[k]);
    return order;
}

int nh_compared_find(struct nh_comparison *c, struct nh_compared *keys, struct nh_run_info *info, enum nh_source source, const char *path,
                     struct nh_compared **run)
{
    void *found = tfind(keys, &c->by_keys, compare_keys);
    if (!found)
        found = tsearch(new_run(c, keys, info), &c->by_keys, compare_keys);
    if (!found)
        return nh_fail(NH_FAILED, "cannot read %s: out of memory", path);
    *run = *(struct nh_compared **)found;
    if ((*run)->source[source] && (*run)->source[source] != path)
        return nh_fail(NH_FAILED, "run '%.40s' is in %.300s and in %.300s; give each run once", (*run)->keys[NH_KEY_RUN],
                       (*run)->source[source], path);
    (*run)->source[source] = path;
    info->has_run = true;
    return NH_OK;
}

/* Sets in->run to that of the row. */
static int find_run(struct input *in)
{
    struct nh_compared row;
    for (int k = 0; k < NH_KEY_COUNT; k++)
        row.keys[k] = nh_reader_text(in->reader, in->at[key_column(k)]);
    if (in->run && compare_keys(in->run, &row) == 0)
        return NH_OK;
    struct nh_run_info *info = in->info;
    if (!info)
        info = nh_run_info_find(in->c, row.keys[NH_KEY_RUN], in->folder);
    const int status = whole(in, NH_LAYERS_DEPTH, false, &row.depth);
    return status ? status : nh_compared_find(in->c, &row, info, in->source, in->path, &in->run);
}

/* Place within a layer; 0 for what is no sublayer. */
static int rank(const char *sublayer)
{
    static const char *const names[] = {"attn", "ffn", "block"};
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], sublayer) == 0)
            return i + 1;
    return 0;
}

/* A row of layer L, stream 0, behind a sublayer: the last of the last step counts. */
static int take_final(struct input *in, double step, int sublayer)
{
    struct nh_compared *run = in->run;
    if (step < run->step || (step == run->step && sublayer < run->rank))
        return NH_OK;
    if (step == run->step && sublayer == run->rank)
        return nh_fail(NH_FAILED,
                       "%s: line %zu has layer %.0f of step %.0f of run '%.40s' a second time; give each run once",
                       in->path, nh_reader_line(in->reader), run->depth, step, run->keys[NH_KEY_RUN]);
    run->step = step;
    run->rank = sublayer;
    int status = measure(in, NH_LAYERS_RMS, &run->of[NH_FINAL_RMS]);
    if (!status)
        status = measure(in, NH_LAYERS_RMS_THEORY, &run->of[NH_LAW_RMS]);
    if (!status)
        status = measure(in, NH_LAYERS_GRAD_RMS, &run->grad_last);
    return status;
}

static int take_first_gradient(struct input *in, double step)
{
    if (step < in->run->grad_step)
        return NH_OK;
    in->run->grad_step = step;
    return measure(in, NH_LAYERS_GRAD_RMS, &in->run->grad_first);
}

static int take_stream(struct input *in, double step, double layer, const char *sublayer)
{
    double stream = 0;
    const int status = whole(in, NH_LAYERS_STREAM, false, &stream);
    if (status || stream > 0)
        return status;
    if (layer == 0)
        return take_first_gradient(in, step);
    const int r = rank(sublayer);
    return r ? take_final(in, step, r) : NH_OK;
}

static int take_layers_row(struct input *in)
{
    struct nh_compared *run = in->run;
    double step, layer, overflow = 0;
    struct nh_measure max_abs;
    int status = whole(in, NH_LAYERS_LAYER, false, &layer);
    if (!status)
        status = whole(in, NH_LAYERS_STEP, false, &step);
    if (!status)
        status = whole(in, NH_LAYERS_OVERFLOW, true, &overflow);
    if (!status)
        status = measure(in, NH_LAYERS_MAX_ABS, &max_abs);
    if (status)
        return status;
    const char *sublayer = nh_reader_text(in->reader, in->at[NH_LAYERS_SUBLAYER]);
    if (*nh_reader_text(in->reader, in->at[NH_LAYERS_OVERFLOW]))
        run->layers_overflow = (struct nh_measure){true, run->layers_overflow.value + overflow};
    if (overflow > 0 && !run->first_row.known)
        nh_place_set(&run->first_row, step, layer, sublayer, "", "fwd");
    if (max_abs.known && layer <= run->depth && nh_beyond(&run->of[NH_MAX_ABS], max_abs.value, 1))
        run->of[NH_MAX_ABS] = max_abs;
    return layer == 0 || layer == run->depth ? take_stream(in, step, layer, sublayer) : NH_OK;
}

static int take_sites_row(struct input *in)
{
    struct nh_compared *run = in->run;
    if (strcmp(nh_reader_text(in->reader, in->at[NH_SITES_DIRECTION]), "fwd") != 0)
        return NH_OK;
    double step, layer, overflow = 0;
    struct nh_measure bits;
    int status = whole(in, NH_SITES_LAYER, false, &layer);
    if (!status)
        status = whole(in, NH_SITES_STEP, false, &step);
    if (!status)
        status = whole(in, NH_SITES_OVERFLOW, true, &overflow);
    if (!status)
        status = measure(in, NH_SITES_HEADROOM_BITS, &bits);
    if (status)
        return status;
    const char *sublayer = nh_reader_text(in->reader, in->at[NH_SITES_SUBLAYER]);
    const char *site = nh_reader_text(in->reader, in->at[NH_SITES_SITE]);
    if (overflow > 0 && !run->first_site.known)
        nh_place_set(&run->first_site, step, layer, sublayer, site, "fwd");
    if (bits.known && nh_beyond(&run->of[NH_HEADROOM], bits.value, -1)) {
        run->of[NH_HEADROOM] = bits;
        nh_place_set(&run->tightest, step, layer, sublayer, site, "fwd");
    }
    return NH_OK;
}

/* Steps stand in their order; one that is there again is of the same run a second time. */
static int take_steps_row(struct input *in)
{
    struct nh_compared *run = in->run;
    double step, skipped, overflow;
    struct nh_measure loss, scale, val_loss, max_abs;
    int status = whole(in, NH_STEPS_STEP, false, &step);
    if (!status)
        status = whole(in, NH_STEPS_SKIPPED, true, &skipped);
    if (!status)
        status = whole(in, NH_STEPS_OVERFLOW_FWD, true, &overflow);
    if (!status)
        status = measure(in, NH_STEPS_LOSS, &loss);
    if (!status)
        status = measure(in, NH_STEPS_LOSS_SCALE, &scale);
    if (!status)
        status = measure(in, NH_STEPS_VAL_LOSS, &val_loss);
    if (!status)
        status = measure(in, NH_STEPS_MAX_ABS, &max_abs);
    if (status)
        return status;
    if (step <= run->last_step)
        return nh_fail(NH_FAILED, "%s: line %zu has step %.0f of run '%.40s' behind step %.0f; give each run once", in->path,
                       nh_reader_line(in->reader), step, run->keys[NH_KEY_RUN], run->last_step);
    run->last_step = step;
    run->of[NH_STEPS_DONE] = (struct nh_measure){true, step + 1};
    run->of[NH_SKIPPED] = (struct nh_measure){true, run->of[NH_SKIPPED].value + skipped};
    run->of[NH_OVERFLOWS] = (struct nh_measure){true, run->of[NH_OVERFLOWS].value + overflow};
    if (overflow > 0 && !run->first_step.known)
        nh_place_set(&run->first_step, step, -1, "", "", "fwd");
    run->of[NH_LOSS_SCALE] = scale;
    if (val_loss.known)
        run->of[NH_VAL_LOSS] = val_loss;
    if (max_abs.known && nh_beyond(&run->of[NH_MAX_ABS], max_abs.value, 1))
        run->of[NH_MAX_ABS] = max_abs;
    if (!loss.known)
        return NH_OK;
    struct nh_loss *entry = nh_alloc(&in->c->memory, sizeof *entry);
    *entry = (struct nh_loss){step, loss.value, NULL};
    *run->losses_end = entry;
    run->losses_end = &entry->next;
    return NH_OK;
}

static int take_config_row(struct input *in)
{
    const char *name = nh_reader_text(in->reader, in->at[NH_CONFIG_OPTION]), *value = nh_reader_text(in->reader, in->at[NH_CONFIG_VALUE]);
    const char *id = nh_reader_text(in->reader, in->at[NH_CONFIG_RUN]);
    nh_run_info_add(in->c, in->info ? in->info : nh_run_info_find(in->c, id, in->folder), name, value);
    if (!in->info) /* for rows in another folder, which has no config.csv */
        nh_run_info_add(in->c, nh_run_info_find(in->c, id, ""), name, value);
    return NH_OK;
}

/* ---- files ---- */

/* The tables that are read: the keys if they have them, then columns up to NH_COLUMN_COUNT. The first column is one
 * that no other table has; a file with none of these is taken for layers, and told what it lacks. */
static const struct table {
    bool keys;
    enum nh_source source;
    int (*take)(struct input *in);
    enum nh_column_id columns[10];
} tables[] = {
    {false, NH_SOURCES, take_config_row, {NH_CONFIG_OPTION, NH_CONFIG_RUN, NH_CONFIG_VALUE, NH_COLUMN_COUNT}},
    {true,
     NH_FROM_SITES,
     take_sites_row,
     {NH_SITES_HEADROOM_BITS, NH_SITES_STEP, NH_SITES_LAYER, NH_SITES_SUBLAYER, NH_SITES_SITE, NH_SITES_DIRECTION, NH_SITES_OVERFLOW,
      NH_COLUMN_COUNT}},
    {true,
     NH_FROM_STEPS,
     take_steps_row,
     {NH_STEPS_LOSS_SCALE, NH_STEPS_STEP, NH_STEPS_LOSS, NH_STEPS_SKIPPED, NH_STEPS_OVERFLOW_FWD, NH_STEPS_VAL_LOSS, NH_STEPS_MAX_ABS,
      NH_COLUMN_COUNT}},
    {true,
     NH_FROM_LAYERS,
     take_layers_row,
     {NH_LAYERS_RMS, NH_LAYERS_LAYER, NH_LAYERS_SUBLAYER, NH_LAYERS_STEP, NH_LAYERS_STREAM, NH_LAYERS_RMS_THEORY, NH_LAYERS_MAX_ABS,
      NH_LAYERS_GRAD_RMS, NH_LAYERS_OVERFLOW, NH_COLUMN_COUNT}},
};
enum { LAST_TABLE = sizeof tables / sizeof *tables - 1 };

static int need(struct input *in, enum nh_column_id column)
{
    return nh_reader_need(in->reader, nh_columns[column].name, &in->at[column]);
}

static int read_rows(struct input *in)
{
    const struct table *t = tables;
    size_t column;
    while (t < tables + LAST_TABLE && !nh_reader_find(in->reader, nh_columns[t->columns[0]].name, &column))
        t++;
    in->source = t->source;
    int status = NH_OK, more = 0;
    for (int k = 0; k < NH_KEY_COUNT && t->keys && !status; k++)
        status = need(in, key_column(k));
    for (const enum nh_column_id *id = t->columns; *id != NH_COLUMN_COUNT && !status; id++)
        status = need(in, *id);
    while (!status && (more = nh_reader_next(in->reader)) == 1) {
        if (t->keys)
            status = find_run(in);
        if (!status)
            status = t->take(in);
    }
    return status ? status : more;
}

/* A file that is still written: its whole lines, as a stream of *text; *lines = NULL where there are none. */
static int open_whole_lines(const char *path, unsigned char **text, FILE **lines)
{
    size_t n;
    const int status = nh_input_read(text, &n, SIZE_MAX, path, "give a folder that can be read");
    while (!status && n > 0 && (*text)[n - 1] != '\n')
        n--;
    *lines = !status && n > 0 ? nh_have(fmemopen(*text, n, "re")) : NULL;
    return status;
}

int nh_comparison_read(struct nh_comparison *c, const char *path, struct nh_run_info *info, const char *folder, bool broken_off)
{
    struct input in = {.c = c, .path = nh_copy(&c->memory, path), .folder = folder, .info = info};
    unsigned char *text = NULL;
    FILE *lines = NULL;
    int status = broken_off ? open_whole_lines(path, &text, &lines) : nh_reader_open(&in.reader, in.path);
    if (!status && lines)
        status = nh_reader_open_stream(&in.reader, lines, in.path);
    if (!status && in.reader)
        status = read_rows(&in);
    nh_reader_close(in.reader);
    if (lines)
        fclose(lines);
    free(text);
    return status;
}
