// SPDX-License-Identifier: GPL-3.0-or-later
/** Rows for people and for programs. */
#ifndef NH_SHEET_H
#define NH_SHEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { NH_SHEET_COLUMNS = 128 };

struct nh_cell {
    enum nh_cell_kind { NH_CELL_NONE, NH_CELL_TEXT, NH_CELL_COUNT, NH_CELL_REAL } kind;
    const char *text;
    double number;
};

/** A column is in the printed table, in CSV and JSON, or in all. */
struct nh_sheet {
    struct nh_sheet_column {
        const char *name; /**< in CSV and JSON; NULL = not there */
        const char *head; /**< in the table; NULL = not there */
        bool right;       /**< aligned to the right */
    } columns[NH_SHEET_COLUMNS];
    size_t n_columns, n_rows;
    struct nh_cell (*cells)[NH_SHEET_COLUMNS];
};

/** Aligned, columns without any value left out; texts as nh_text_put shows them. */
void nh_sheet_print(FILE *file, const struct nh_sheet *sheet);

/** The same as a table of Markdown. */
void nh_sheet_print_markdown(FILE *file, const struct nh_sheet *sheet);

/** RFC 4180 with LF. */
void nh_sheet_print_csv(FILE *file, const struct nh_sheet *sheet);

/** An array of objects on stdout. */
int nh_sheet_print_json(const struct nh_sheet *sheet);

#endif
