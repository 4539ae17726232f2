// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/report.h"

#include "harness/core/err.h"
#include "results/schema.h"
#include "results/text.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    enum nh_column_id column;
    const char *head;
} shown[] = {
    {NH_LAYERS_RMS, "rms"},           {NH_LAYERS_RMS_THEORY, "law"},    {NH_LAYERS_MAX_ABS, "max|x|"},
    {NH_LAYERS_BRANCH_RMS, "branch"}, {NH_LAYERS_GRAD_RMS, "grad"},     {NH_LAYERS_JAC_FRO, "jac_fro"},
    {NH_LAYERS_JAC_SPEC, "jac_spec"}, {NH_LAYERS_OVERFLOW, "overflow"}, {NH_LAYERS_REL_ERR, "rel_err"},
};

enum { SHOWN = sizeof shown / sizeof *shown, OVERFLOW_AT = 7, SPREAD = 9 };

struct nh_report_layer {
    double layer, value[SHOWN];
    bool measured[SHOWN], picked;
    char sublayer[16];
};

static int not_as_written(const struct nh_reader *r)
{
    return nh_fail(NH_FAILED, "line %zu of layers.csv has no layer, step or stream that can be; it is not as harness wrote it",
                   nh_reader_line(r));
}

static void copy_cell(char to[NH_REPORT_NAME], const struct nh_reader *r, const char *name)
{
    size_t column;
    snprintf(to, NH_REPORT_NAME, "%s", nh_reader_find(r, name, &column) ? nh_reader_text(r, column) : "");
}

/** Keeps the current row among those of its step. */
static int take_layer(struct nh_reader *r, struct nh_report_table *t, const size_t at[4 + SHOWN])
{
    double step, layer, stream;
    int status = nh_report_number(r, at[0], &step);
    if (!status)
        status = nh_report_number(r, at[1], &layer);
    if (!status)
        status = nh_report_number(r, at[3], &stream);
    if (status)
        return status;
    if (!(layer >= 0 && layer < 1e6 && isfinite(step) && isfinite(stream)))
        return not_as_written(r);
    char id[NH_REPORT_NAME];
    copy_cell(id, r, "run");
    if (t->last.step >= 0 && strcmp(id, t->run) != 0)
        return nh_fail(NH_FAILED, "line %zu of layers.csv is of another run than what is before it; give folders of one run each",
                       nh_reader_line(r));
    if (t->last.step < 0)
        copy_cell(t->run, r, "run"), copy_cell(t->layout, r, "layout"), copy_cell(t->depth, r, "depth"), copy_cell(t->dtype, r, "dtype");
    if (step > t->last.step) {
        const struct nh_report_layers old = t->before;
        t->before = t->last;
        t->last = (struct nh_report_layers){.row = old.row, .room = old.room, .step = step};
    }
    if (stream != 0)
        return NH_OK;
    struct nh_report_layers *l = &t->last;
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->row = nh_have(realloc(l->row, l->room * sizeof *l->row));
    }
    struct nh_report_layer *row = &l->row[l->n++];
    *row = (struct nh_report_layer){.layer = layer};
    snprintf(row->sublayer, sizeof row->sublayer, "%s", nh_reader_text(r, at[2]));
    for (int c = 0; c < SHOWN && !status; c++) {
        const int found = at[4 + c] == SIZE_MAX ? 0 : nh_reader_real(r, at[4 + c], &row->value[c]);
        status = found == NH_FAILED ? NH_FAILED : NH_OK;
        row->measured[c] = found == 1;
    }
    return status;
}

int nh_report_read_layers(const char *path, bool part, struct nh_report_table *t)
{
    static const char *const needed[] = {"step", "layer", "sublayer", "stream"};
    struct nh_reader *r = NULL;
    size_t at[4 + SHOWN];
    int more = 1, status = nh_reader_open(&r, path);
    for (int i = 0; i < 4 && !status; i++)
        status = nh_reader_need(r, needed[i], &at[i]);
    for (int c = 0; c < SHOWN && !status; c++)
        if (!nh_reader_find(r, nh_columns[shown[c].column].name, &at[4 + c]))
            at[4 + c] = SIZE_MAX;
    while (!status && (more = nh_reader_next(r)) == 1)
        status = take_layer(r, t, at);
    if (!status && more == NH_FAILED && !part)
        status = NH_FAILED;
    nh_reader_close(r);
    if (!status && part && t->last.n < t->before.n) { /* its last step is not all there */
        const struct nh_report_layers half = t->last;
        t->last = t->before, t->before = half;
    }
    return status;
}

static bool overflows(const struct nh_report_layer *row)
{
    return row->measured[OVERFLOW_AT] && row->value[OVERFLOW_AT] > 0;
}

/** Both ends, the sublayers of the first layer, even steps between, and the rows where something overflowed: that of the first offender
 *  in any case, of the others at most SPREAD. */
static void pick(struct nh_report_layers *l, const json_t *offender)
{
    const size_t n = l->n;
    for (size_t i = 0; i < SPREAD && n; i++) {
        const size_t k = n <= SPREAD ? i : (size_t)lround((double)i * (double)(n - 2) / (SPREAD - 2));
        l->row[i == SPREAD - 1 || k > n - 1 ? n - 1 : k].picked = true;
    }
    const char *sublayer = json_string_value(json_object_get(offender, "sublayer"));
    const double layer = json_number_value(json_object_get(offender, "layer"));
    int more = 0;
    for (size_t k = 0; k < n; k++) {
        const bool first = sublayer && !(l->row[k].layer < layer || l->row[k].layer > layer) && strcmp(l->row[k].sublayer, sublayer) == 0;
        l->row[k].picked |= first || (overflows(&l->row[k]) && more++ < SPREAD);
    }
}

void nh_report_print_layers(struct nh_report_layers *l, bool trains, const json_t *offender)
{
    bool any[SHOWN] = {false};
    size_t left_out = 0;
    double lost = 0;
    pick(l, offender);
    for (size_t k = 0; k < l->n; k++)
        for (int c = 0; c < SHOWN; c++)
            any[c] |= l->row[k].measured[c];
    if (trains)
        printf("at step %.0f\n", l->step);
    printf("%5s %-6s", "layer", "");
    for (int c = 0; c < SHOWN; c++)
        if (any[c])
            printf(" %10s", shown[c].head);
    putchar('\n');
    for (size_t k = 0; k < l->n; k++) {
        const struct nh_report_layer *row = &l->row[k];
        if (!row->picked) {
            left_out += overflows(row), lost += overflows(row) ? row->value[OVERFLOW_AT] : 0;
            continue;
        }
        printf("%5.0f ", row->layer);
        for (int width = nh_text_put(stdout, row->sublayer); width < 6; width++)
            putchar(' ');
        for (int c = 0; c < SHOWN; c++)
            if (any[c] && row->measured[c])
                printf(" %10.4g", isnan(row->value[c]) ? (double)NAN : row->value[c]);
            else if (any[c])
                printf(" %10s", "");
        putchar('\n');
    }
    if (left_out)
        printf("%.0f more overflows are in %zu of the rows not shown\n", lost, left_out);
}
