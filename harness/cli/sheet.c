// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/sheet.h"
#include "harness/core/err.h"
#include "results/number.h"
#include "results/text.h"

#include <csv.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

/* ---- for people ---- */

/* The cell as a text; room may be used for it. */
static const char *shown(const struct nh_cell *cell, char room[NH_NUMBER_SIZE])
{
    switch (cell->kind) {
    case NH_CELL_TEXT:
        return cell->text;
    case NH_CELL_COUNT:
        nh_number_real(room, cell->number);
        return room;
    case NH_CELL_REAL:
        snprintf(room, NH_NUMBER_SIZE, "%.4g", isnan(cell->number) ? (double)NAN : cell->number); /* without a sign */
        return room;
    case NH_CELL_NONE:
        break;
    }
    return "";
}

/* Of a column with its head; 0 where no row has a value. */
static int column_width(const struct nh_sheet *sheet, size_t column)
{
    char room[NH_NUMBER_SIZE];
    int width = 0;
    for (size_t i = 0; i < sheet->n_rows && sheet->columns[column].head; i++) {
        const int cell = nh_text_put(NULL, shown(&sheet->cells[i][column], room));
        width = cell > width ? cell : width;
    }
    const int head = width ? nh_text_put(NULL, sheet->columns[column].head) : 0;
    return head > width ? head : width;
}

/* *blanks: those still owed, so that none end a line. */
static void print_aligned(FILE *file, const char *text, int width, bool right, int *blanks)
{
    const int fill = width - nh_text_put(NULL, text);
    fprintf(file, "%*s", *blanks + (right ? fill : 0), "");
    nh_text_put(file, text);
    *blanks = 2 + (right ? 0 : fill);
}

void nh_sheet_print(FILE *file, const struct nh_sheet *sheet)
{
    int widths[NH_SHEET_COLUMNS];
    for (size_t k = 0; k < sheet->n_columns; k++)
        widths[k] = column_width(sheet, k);
    for (size_t line = 0; line <= sheet->n_rows; line++) { /* the heads, then the rows */
        int blanks = 0;
        for (size_t k = 0; k < sheet->n_columns; k++) {
            char room[NH_NUMBER_SIZE];
            const char *text = line ? shown(&sheet->cells[line - 1][k], room) : sheet->columns[k].head;
            if (widths[k])
                print_aligned(file, *text ? text : "-", widths[k], sheet->columns[k].right, &blanks);
        }
        putc('\n', file);
    }
}

/* The bar would end the cell. */
static void put_markdown(FILE *file, const char *text)
{
    char next[NH_TEXT_STEP];
    while (nh_text_next(&text, next))
        fprintf(file, "%s%s", strcmp(next, "|") == 0 ? "\\" : "", next);
}

void nh_sheet_print_markdown(FILE *file, const struct nh_sheet *sheet)
{
    enum { HEADS, RULE, ROWS };
    char room[NH_NUMBER_SIZE];
    for (size_t line = HEADS; line < ROWS + sheet->n_rows; line++) {
        for (size_t k = 0; k < sheet->n_columns; k++) {
            if (!column_width(sheet, k))
                continue;
            fputs("| ", file);
            if (line == RULE)
                fputs(sheet->columns[k].right ? "--:" : "---", file);
            else
                put_markdown(file, line == HEADS ? sheet->columns[k].head : shown(&sheet->cells[line - ROWS][k], room));
            putc(' ', file);
        }
        fputs("|\n", file);
    }
}

/* ---- for programs ---- */

static void put_csv(FILE *file, const char *text)
{
    if (strpbrk(text, ",\"\r\n"))
        csv_fwrite(file, text, strlen(text));
    else
        fputs(text, file);
}

void nh_sheet_print_csv(FILE *file, const struct nh_sheet *sheet)
{
    for (size_t line = 0; line <= sheet->n_rows; line++) {
        const char *comma = "";
        for (size_t k = 0; k < sheet->n_columns; k++) {
            if (!sheet->columns[k].name)
                continue;
            fputs(comma, file);
            comma = ",";
            const struct nh_cell *cell = line ? &sheet->cells[line - 1][k] : NULL;
            char number[NH_NUMBER_SIZE];
            if (!cell)
                put_csv(file, sheet->columns[k].name);
            else if (cell->kind == NH_CELL_TEXT)
                put_csv(file, cell->text);
            else if (cell->kind != NH_CELL_NONE && nh_number_real(number, cell->number))
                fputs(number, file);
        }
        putc('\n', file);
    }
}

/* What JSON has no number for is a text, as in run.json. */
static json_t *json_cell(const struct nh_cell *cell)
{
    char number[NH_NUMBER_SIZE];
    switch (cell->kind) {
    case NH_CELL_TEXT:
        return json_string(cell->text);
    case NH_CELL_COUNT:
        if (cell->number < 0x1p53)
            return json_integer((json_int_t)cell->number);
        return json_real(cell->number);
    case NH_CELL_REAL:
        if (isfinite(cell->number))
            return json_real(cell->number);
        nh_number_real(number, cell->number);
        return json_string(number);
    case NH_CELL_NONE:
        break;
    }
    return json_null();
}

int nh_sheet_print_json(const struct nh_sheet *sheet)
{
    json_t *rows = json_array();
    int failed = !rows;
    for (size_t i = 0; i < sheet->n_rows && !failed; i++) {
        json_t *row = json_object();
        for (size_t k = 0; k < sheet->n_columns && !failed; k++)
            if (sheet->columns[k].name)
                failed = json_object_set_new(row, sheet->columns[k].name, json_cell(&sheet->cells[i][k]));
        failed = json_array_append_new(rows, row) || failed;
    }
    int status = NH_OK;
    if (failed)
        status =
            nh_fail(NH_FAILED, "cannot write these rows as JSON: a name in them is not UTF-8; --csv takes it as it is");
    else if (json_dumpf(rows, stdout, JSON_INDENT(2)) == 0) /* what fails here, main() reports */
        putchar('\n');
    json_decref(rows);
    return status;
}
