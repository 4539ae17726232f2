// SPDX-License-Identifier: GPL-3.0-or-later
#include "results/schema.h"

const struct nh_table_info nh_tables[NH_TABLE_COUNT] = {
#define NH_TABLE(id, name, row) {name, row},
#define NH_COLUMN(table, id, name, type, unit, meaning)
#include "results/schema.def"
};

const struct nh_column nh_columns[NH_COLUMN_COUNT] = {
#define NH_TABLE(id, name, row)
#define NH_COLUMN(table, id, name, type, unit, meaning) {NH_TABLE_##table, NH_TYPE_##type, name, unit, meaning},
#include "results/schema.def"
};

const struct nh_column *nh_table_columns(enum nh_table table, size_t *count)
{
    size_t first = 0;
    while (nh_columns[first].table != table)
        first++;
    size_t end = first;
    while (end < NH_COLUMN_COUNT && nh_columns[end].table == table)
        end++;
    *count = end - first;
    return &nh_columns[first];
}

const char *nh_column_type_name(enum nh_column_type type)
{
    static const char *const names[] = {[NH_TYPE_TEXT] = "text", [NH_TYPE_INT] = "int", [NH_TYPE_REAL] = "real"};
    return names[type];
}
