// SPDX-License-Identifier: GPL-3.0-or-later
/** Groups of runs and expectations as rows. */
#include "harness/cli/study.h"

#include <assert.h>
#include <gsl/gsl_statistics.h>
#include <math.h>
#include <string.h>

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The cell of the row at hand in this column, which is made where it is new. */
static struct nh_cell *cell(struct nh_sheet *sheet, const char *name, const char *head, bool right)
{
    size_t k = 0;
    while (k < sheet->n_columns && !(same(sheet->columns[k].name, name) && same(sheet->columns[k].head, head)))
        k++;
    assert(k < NH_SHEET_COLUMNS);
    if (k == sheet->n_columns)
        sheet->columns[sheet->n_columns++] = (struct nh_sheet_column){name, head, right};
    return &sheet->cells[sheet->n_rows][k];
}

static void put_text(struct nh_sheet *sheet, const char *name, const char *head, const char *text)
{
    *cell(sheet, name, head, false) = (struct nh_cell){*text ? NH_CELL_TEXT : NH_CELL_NONE, text, 0};
}

static void put_count(struct nh_sheet *sheet, const char *name, const char *head, size_t count)
{
    *cell(sheet, name, head, true) = (struct nh_cell){NH_CELL_COUNT, NULL, (double)count};
}

static void put_real(struct nh_sheet *sheet, const char *name, double value)
{
    *cell(sheet, name, NULL, true) = (struct nh_cell){NH_CELL_REAL, NULL, value};
}

/* A number; "> 40" where it is not known but beyond. */
static void put_value(struct nh_sheet *sheet, struct obstack *memory, const char *name, struct nh_reading v)
{
    if (v.sort == NH_READING_NUMBER)
        put_real(sheet, name, v.number);
    else
        put_text(sheet, name, NULL, nh_reading_text(memory, v));
}

static const char *join(struct obstack *memory, const char *name, const char *suffix)
{
    obstack_printf(memory, "%s_%s", name, suffix);
    return nh_grown(memory);
}

/* ---- measures ---- */

static void put_median(struct nh_sheet *sheet, struct obstack *memory, const char *name,
                       const struct nh_reading *values, size_t n)
{
    const struct nh_spread s = nh_spread(memory, values, n);
    put_value(sheet, memory, join(memory, name, "median"), s.median);
    put_value(sheet, memory, join(memory, name, "min"), s.least);
    put_value(sheet, memory, join(memory, name, "max"), s.largest);
    put_text(sheet, NULL, name, nh_spread_text(memory, s));
}

/* Nothing but the number of diverged runs where there is one. */
static void put_mean(struct nh_sheet *sheet, struct obstack *memory, const char *name, const struct nh_reading *values,
                     size_t n, size_t diverged)
{
    double *numbers = nh_alloc(memory, (n + 1) * sizeof *numbers);
    size_t n_numbers = 0;
    for (size_t i = 0; i < n; i++)
        if (values[i].sort == NH_READING_NUMBER)
            numbers[n_numbers++] = values[i].number;
    const char *mean_name = join(memory, name, "mean"), *sd_name = join(memory, name, "sd");
    cell(sheet, mean_name, NULL, true);
    cell(sheet, sd_name, NULL, true);
    if (diverged > 0)
        obstack_printf(memory, "%zu of %zu diverged", diverged, n);
    else if (n_numbers > 0) {
        const double mean = gsl_stats_mean(numbers, 1, n_numbers), sd = gsl_stats_sd_m(numbers, 1, n_numbers, mean);
        put_real(sheet, mean_name, mean);
        obstack_printf(memory, "%.4g", mean);
        if (n_numbers > 1) {
            put_real(sheet, sd_name, sd);
            obstack_printf(memory, " +- %.2g", sd);
        }
    }
    put_text(sheet, NULL, name, nh_grown(memory));
}

static void put_mode(struct nh_sheet *sheet, struct obstack *memory, const char *name, const struct nh_reading *values,
                     size_t n)
{
    size_t count;
    const char *mode = nh_mode(values, n, &count);
    put_text(sheet, name, NULL, mode ? mode : "");
    put_count(sheet, join(memory, name, "runs"), NULL, count);
    if (mode)
        obstack_printf(memory, "%s (%zu of %zu)", mode, count, n);
    put_text(sheet, NULL, name, nh_grown(memory));
}

static void put_measure(struct nh_study *study, struct nh_sheet *sheet, struct nh_study_group g, const char *name,
                        size_t diverged)
{
    size_t n, i = 0;
    const struct nh_reading *values = nh_study_values(study, g, name, &n);
    while (strcmp(study->measured[i].name, name) != 0)
        i++;
    const struct nh_study_measure *m = study->measured[i].measure;
    switch (m ? m->showing : NH_SHOW_MEDIAN) {
    case NH_SHOW_MEDIAN:
        put_median(sheet, &study->memory, name, values, n);
        break;
    case NH_SHOW_MEAN:
        put_mean(sheet, &study->memory, name, values, n, diverged);
        break;
    case NH_SHOW_WORD:
        put_mode(sheet, &study->memory, name, values, n);
        break;
    }
}

/* ---- rows ---- */

/* Counts, and how often runs of this group diverge. */
static size_t put_outcomes(struct nh_sheet *sheet, struct obstack *memory, struct nh_study_group g)
{
    size_t outcomes[NH_OUTCOMES] = {0};
    for (size_t i = 0; i < g.n; i++)
        outcomes[g.runs[i]->outcome]++;
    const size_t diverged = outcomes[NH_OUTCOME_DIVERGED];
    double low, high;
    nh_wilson(diverged, g.n, &low, &high);
    put_count(sheet, "n", "n", g.n);
    put_count(sheet, nh_outcome_names[NH_OUTCOME_OK], "ok", outcomes[NH_OUTCOME_OK]);
    put_count(sheet, nh_outcome_names[NH_OUTCOME_OVERFLOWED], "overflowed", outcomes[NH_OUTCOME_OVERFLOWED]);
    put_count(sheet, nh_outcome_names[NH_OUTCOME_DIVERGED], NULL, diverged);
    put_count(sheet, nh_outcome_names[NH_OUTCOME_INTERRUPTED], NULL, outcomes[NH_OUTCOME_INTERRUPTED]);
    put_real(sheet, "diverged_low", low);
    put_real(sheet, "diverged_high", high);
    obstack_printf(memory, "%zu/%zu [%.2g, %.2g]", diverged, g.n, low, high);
    put_text(sheet, NULL, "diverged", nh_grown(memory));
    return diverged;
}

static void put_groups(struct nh_study *study, struct nh_sheet *sheet, const struct nh_study_table *table)
{
    size_t n;
    const struct nh_study_group all = nh_study_select(study, table->where, NULL),
                                *groups = nh_study_groups(study, all, table->by, &n);
    for (size_t i = 0; i < n; i++) {
        put_text(sheet, "table", NULL, table->title);
        for (size_t k = 0; k < table->by.n; k++) {
            const char *value = nh_study_option(groups[i].runs[0], table->by.words[k]);
            put_text(sheet, table->by.words[k], table->by.words[k], value ? value : "");
        }
        const size_t diverged = put_outcomes(sheet, &study->memory, groups[i]);
        for (size_t k = 0; k < table->measures.n; k++)
            put_measure(study, sheet, groups[i], table->measures.words[k], diverged);
        sheet->n_rows++;
    }
}

static struct nh_sheet empty_sheet(struct nh_study *study, size_t rows)
{
    struct nh_sheet sheet = {.cells = nh_alloc(&study->memory, (rows + 1) * sizeof *sheet.cells)};
    memset(sheet.cells, 0, (rows + 1) * sizeof *sheet.cells);
    return sheet;
}

struct nh_sheet nh_study_sheet(struct nh_study *study, const struct nh_study_table *table)
{
    struct nh_sheet sheet = empty_sheet(study, study->n_runs);
    put_groups(study, &sheet, table);
    return sheet;
}

struct nh_sheet nh_study_all(struct nh_study *study)
{
    struct nh_sheet sheet = empty_sheet(study, study->n_runs * study->n_tables);
    for (size_t i = 0; i < study->n_tables; i++)
        put_groups(study, &sheet, &study->tables[i]);
    return sheet;
}

struct nh_sheet nh_study_findings(struct nh_study *study, const struct nh_finding *findings)
{
    struct nh_sheet sheet = empty_sheet(study, study->n_expectations);
    for (size_t i = 0; i < study->n_expectations; i++, sheet.n_rows++) {
        const struct nh_expectation *e = &study->expectations[i];
        put_text(&sheet, "text", "expectation", e->text);
        put_text(&sheet, "where", NULL, nh_where_text(&study->memory, e->where));
        put_text(&sheet, "measure", "measure", e->measure);
        put_text(&sheet, "wanted", "wanted", findings[i].wanted);
        put_text(&sheet, "measured", "measured", findings[i].measured);
        put_text(&sheet, "verdict", "verdict", nh_verdict_names[findings[i].verdict]);
        put_text(&sheet, "decides", "decides", nh_decides_names[e->decides]);
    }
    return sheet;
}
