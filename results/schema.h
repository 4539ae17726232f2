// SPDX-License-Identifier: GPL-3.0-or-later
/** Tables and columns of the result files as data, made from schema.def. */
#ifndef NH_SCHEMA_H
#define NH_SCHEMA_H

#include <stddef.h>

/** NH_TABLE_LAYERS, NH_TABLE_SITES, ... */
enum nh_table {
#define NH_TABLE(id, name, row) NH_TABLE_##id,
#define NH_COLUMN(table, id, name, type, unit, meaning)
#include "results/schema.def"
    NH_TABLE_COUNT
};

/** NH_LAYERS_RMS, NH_SITES_OVERFLOW, ...: indexes into nh_columns, the columns of a table side by side. */
enum nh_column_id {
#define NH_TABLE(id, name, row)
#define NH_COLUMN(table, id, name, type, unit, meaning) NH_##table##_##id,
#include "results/schema.def"
    NH_COLUMN_COUNT
};

enum nh_column_type { NH_TYPE_TEXT, NH_TYPE_INT, NH_TYPE_REAL };

struct nh_table_info {
    const char *name; /**< of the file, without .csv */
    const char *row;  /**< what one row is */
};

struct nh_column {
    enum nh_table table;
    enum nh_column_type type;
    const char *name, *unit, *meaning;
};

extern const struct nh_table_info nh_tables[NH_TABLE_COUNT];
extern const struct nh_column nh_columns[NH_COLUMN_COUNT];

/** The columns of a table in the order of its file; count of them in *count. */
const struct nh_column *nh_table_columns(enum nh_table table, size_t *count);

/** "text", "int" or "real". */
const char *nh_column_type_name(enum nh_column_type type);

#endif
