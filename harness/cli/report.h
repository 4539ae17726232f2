// SPDX-License-Identifier: GPL-3.0-or-later
/** The rows of layers.csv that a report shows. */
#ifndef NH_REPORT_H
#define NH_REPORT_H

#include "results/reader.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { NH_REPORT_NAME = 64 };

/** The rows of stream 0 of one step. */
struct nh_report_layers {
    struct nh_report_layer *row;
    size_t n, room;
    double step;
};

/** What a file holds of its last steps, and keys of its run. Starts with both steps at -1; the rows are to be freed. */
struct nh_report_table {
    struct nh_report_layers last, before; /**< before: the step before the last one */
    char run[NH_REPORT_NAME], layout[NH_REPORT_NAME], depth[NH_REPORT_NAME], dtype[NH_REPORT_NAME];
};

/** A number of the current row; nan where the cell is empty. NH_FAILED where it is no number. */
int nh_report_number(struct nh_reader *r, size_t column, double *value);

/** Reads the last step of a file. part: it may end in the middle of a row, and its last step may not be all there. NH_FAILED where the
 *  file cannot be read or holds rows of several runs. */
int nh_report_read_layers(const char *path, bool part, struct nh_report_table *table);

/** Prints about ten rows to stdout, those where something overflowed among them. offender: of run.json, or NULL. */
void nh_report_print_layers(struct nh_report_layers *layers, bool trains, const json_t *offender);

#endif
