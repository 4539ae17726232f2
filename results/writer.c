// SPDX-License-Identifier: GPL-3.0-or-later
#include "results/writer.h"

#include "harness/core/err.h"
#include "results/file.h"
#include "results/number.h"

#include <assert.h>
#include <csv.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value as it stands in the file; capacity is NH_NUMBER_SIZE at least. */
struct cell {
    char *text;
    size_t length, capacity;
    bool key; /* keeps its value from row to row */
};

struct nh_writer {
    struct nh_part *part;
    enum nh_table table;
    enum nh_column_id first;
    size_t count;
    bool no_memory; /* a text did not fit: reported by the next row */
    bool open_row;  /* a cell is set, its row not yet ended */
    struct cell cells[NH_COLUMN_COUNT];
};

static int no_memory(const char *table)
{
    return nh_fail(NH_FAILED, "cannot write %s.csv: out of memory; choose a smaller run", table);
}

/* The header line, to be freed; NULL where memory is short. */
static char *header_line(const struct nh_writer *w)
{
    size_t size = 1;
    for (size_t i = 0; i < w->count; i++)
        size += strlen(nh_columns[w->first + i].name) + 1;
    char *line = malloc(size), *end = line;
    for (size_t i = 0; line && i < w->count; i++) {
        end = stpcpy(end, nh_columns[w->first + i].name);
        end = stpcpy(end, i + 1 < w->count ? "," : "\n");
    }
    return line;
}

/* Opens the file of a table: a new one, or one that begins as `from` tells. */
static int begin(struct nh_writer **out, const char *dir, enum nh_table table, const struct nh_extent *from)
{
    *out = NULL;
    char *path = NULL, *header = NULL;
    int status = NH_OK;
    struct nh_writer *w = calloc(1, sizeof *w);
    if (!w)
        goto memory;
    w->table = table;
    w->first = (enum nh_column_id)(nh_table_columns(table, &w->count) - nh_columns);
    for (size_t i = 0; i < w->count; i++) {
        w->cells[i].capacity = NH_NUMBER_SIZE;
        w->cells[i].text = malloc(NH_NUMBER_SIZE);
        if (!w->cells[i].text)
            goto memory;
    }
    if (asprintf(&path, "%s/%s.csv", dir, nh_tables[table].name) < 0) {
        path = NULL;
        goto memory;
    }
    header = header_line(w);
    if (!header)
        goto memory;
    status = from ? nh_part_resume(&w->part, path, header, from) : nh_part_create(&w->part, path, true);
    if (status == NH_OK && !from)
        status = nh_part_write(w->part, header, strlen(header));
    if (status != NH_OK)
        goto failed;
    free(header);
    free(path);
    *out = w;
    return NH_OK;
memory:
    status = no_memory(nh_tables[table].name);
failed:
    free(header);
    free(path);
    nh_writer_destroy(w);
    return status;
}

int nh_writer_create(struct nh_writer **out, const char *dir, enum nh_table table)
{
    return begin(out, dir, table, NULL);
}

int nh_writer_resume(struct nh_writer **out, const char *dir, enum nh_table table, const struct nh_extent *from)
{
    return begin(out, dir, table, from);
}

/* The cell of a column, which must take values of one of the given types. */
static struct cell *cell(struct nh_writer *w, enum nh_column_id column, bool takes_type)
{
    assert(takes_type);
    assert(nh_columns[column].table == w->table);
    w->open_row = true;
    return &w->cells[column - w->first];
}

void nh_writer_real(struct nh_writer *w, enum nh_column_id column, double value)
{
    struct cell *c = cell(w, column, nh_columns[column].type == NH_TYPE_REAL);
    c->length = nh_number_real(c->text, value);
}

void nh_writer_int(struct nh_writer *w, enum nh_column_id column, int64_t value)
{
    struct cell *c = cell(w, column, nh_columns[column].type != NH_TYPE_TEXT);
    c->length = nh_number_int(c->text, value);
}

void nh_writer_count(struct nh_writer *w, enum nh_column_id column, uint64_t value)
{
    struct cell *c = cell(w, column, nh_columns[column].type != NH_TYPE_TEXT);
    c->length = nh_number_count(c->text, value);
}

void nh_writer_text(struct nh_writer *w, enum nh_column_id column, const char *value)
{
    struct cell *c = cell(w, column, nh_columns[column].type == NH_TYPE_TEXT);
    const size_t length = value ? strlen(value) : 0;
    const size_t most = 2 * length + 2; /* every character a quote, and the two around */
    if (most > c->capacity) {
        char *text = realloc(c->text, most);
        if (!text) {
            w->no_memory = true;
            return;
        }
        c->text = text;
        c->capacity = most;
    }
    if (length > 0 && strpbrk(value, ",\"\r\n")) { /* RFC 4180 asks for quotes around these and no others */
        c->length = csv_write(c->text, c->capacity, value, length);
    } else {
        if (length > 0)
            memcpy(c->text, value, length);
        c->length = length;
    }
}

/* NH_KEYS puts the same columns at the head of every table. */
#define KEY(id) ((enum nh_column_id)(w->first + (NH_LAYERS_##id - NH_LAYERS_RUN)))

void nh_writer_keys(struct nh_writer *w, const struct nh_keys *keys)
{
    const bool open_row = w->open_row;
    nh_writer_text(w, KEY(RUN), keys->run);
    w->cells[0].key = true;
    if (w->table != NH_TABLE_CONFIG) {
        nh_writer_text(w, KEY(LABEL), keys->label);
        nh_writer_text(w, KEY(LAYOUT), keys->layout);
        nh_writer_int(w, KEY(DEPTH), keys->depth);
        nh_writer_text(w, KEY(DTYPE), keys->dtype);
        nh_writer_text(w, KEY(POLICY), keys->policy);
        nh_writer_text(w, KEY(INIT), keys->init);
        nh_writer_count(w, KEY(SEED), keys->seed);
        nh_writer_int(w, KEY(STEP), keys->step);
        for (size_t i = 0; KEY(RUN) + i <= KEY(STEP); i++)
            w->cells[i].key = true;
    }
    w->open_row = open_row;
}

int nh_writer_row(struct nh_writer *w)
{
    if (w->no_memory)
        return no_memory(nh_tables[w->table].name);
    for (size_t i = 0; i < w->count; i++) {
        struct cell *c = &w->cells[i];
        if (nh_part_write(w->part, c->text, c->length) != NH_OK ||
            nh_part_write(w->part, i + 1 < w->count ? "," : "\n", 1) != NH_OK)
            return NH_FAILED;
        if (!c->key)
            c->length = 0;
    }
    w->open_row = false;
    return NH_OK;
}

/* Whether all rows so far are in the part. */
static int between_rows(const struct nh_writer *w)
{
    assert(!w->open_row);
    return w->no_memory ? no_memory(nh_tables[w->table].name) : NH_OK;
}

int nh_writer_flush(struct nh_writer *w)
{
    const int status = between_rows(w);
    return status ? status : nh_part_flush(w->part);
}

int nh_writer_sync(struct nh_writer *w, struct nh_extent *extent)
{
    const int status = between_rows(w);
    return status ? status : nh_part_sync(w->part, extent);
}

void nh_writer_keep(struct nh_writer *w)
{
    nh_part_keep(w->part);
}

int nh_writer_commit(struct nh_writer *w)
{
    const int status = between_rows(w);
    return status ? status : nh_part_commit(w->part);
}

int nh_writer_verify(const struct nh_writer *w)
{
    return nh_part_verify(w->part);
}

void nh_writer_destroy(struct nh_writer *w)
{
    if (!w)
        return;
    nh_part_destroy(w->part);
    for (size_t i = 0; i < w->count; i++)
        free(w->cells[i].text);
    free(w);
}
