// SPDX-License-Identifier: GPL-3.0-or-later
#include "results/reader.h"

#include "harness/core/err.h"
#include "results/input.h"
#include "results/number.h"

#include <assert.h>
#include <csv.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_COLUMNS = 4096, MAX_ROW = 1 << 20 };

/* The file is taken line by line. A line without quotes needs no more than to be cut at its commas, where it stands;
 * all others go through libcsv, which so never sees a blank line (it drops them) and shows after each line by its state
 * whether a quote is open. */
struct nh_reader {
    char *name;
    FILE *stream;
    bool own_stream, at_eof, failed;
    struct csv_parser parser;

    char *block; /* MAX_ROW bytes of the file and a NUL; [at, end) is not yet parsed */
    size_t at, end;
    size_t line;       /* number of the line parsed last */
    size_t row_line;   /* where the row starts */
    size_t quote_line; /* where the open quote stands; 0 = none is open */

    const char *cells; /* the row's fields, each with a NUL behind it: in block or in row */
    size_t fields;
    uint32_t start[MAX_COLUMNS];
    char *row; /* where libcsv's fields are gathered */
    size_t row_size, used;
    bool row_done, stray; /* stray: fields in the same line after the row's end */

    char *header; /* the names, as cells */
    size_t columns;
    uint32_t name_start[MAX_COLUMNS];
};

static int out_of_memory(const char *name)
{
    nh_fail(NH_FAILED, "cannot read %s: out of memory", name);
    return NH_FAILED;
}

/* Text of the file fit for an error sentence: short, no control characters. */
struct excerpt {
    char text[48];
};

static struct excerpt excerpt(const char *text)
{
    struct excerpt e;
    const size_t length = strlen(text), room = sizeof e.text - 4;
    const size_t n = length < room ? length : room;
    for (size_t i = 0; i < n; i++)
        e.text[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : text[i];
    strcpy(e.text + n, n < length ? "..." : "");
    return e;
}

static void add_field(struct nh_reader *r, size_t start)
{
    if (r->fields < MAX_COLUMNS)
        r->start[r->fields] = (uint32_t)start;
    r->fields++;
}

static void on_field(void *text, size_t length, void *arg)
{
    struct nh_reader *r = arg;
    if (r->row_done)
        r->stray = true;
    add_field(r, r->used);
    memcpy(r->row + r->used, text, length); /* there is room: see parse_quoted */
    r->used += length;
    r->row[r->used++] = '\0';
}

static void on_row(int end, void *arg)
{
    struct nh_reader *r = arg;
    (void)end;
    r->cells = r->row;
    r->row_done = true;
}

static int no_blank(unsigned char c)
{
    (void)c;
    return 0;
}

/* The next line with its LF, or what is left of the file; length 0 at its end. */
static int take_line(struct nh_reader *r, char **line, size_t *length)
{
    for (;;) {
        const size_t have = r->end - r->at;
        char *from = r->block + r->at;
        const char *lf = memchr(from, '\n', have);
        if (lf || r->at_eof) {
            *line = from;
            *length = lf ? (size_t)(lf - from) + 1 : have;
            r->at += *length;
            return NH_OK;
        }
        if (have == MAX_ROW)
            return nh_fail(NH_FAILED, "%s: line %zu is longer than 1 MiB; is this a CSV file?", r->name, r->line + 1);
        memmove(r->block, from, have);
        r->at = 0;
        r->end = have + fread(r->block + have, 1, MAX_ROW - have, r->stream);
        if (ferror(r->stream))
            return nh_fail(NH_FAILED, "cannot read %s: %s", r->name, strerror(errno));
        r->at_eof = feof(r->stream) != 0;
    }
}

static int open_quote(const struct nh_reader *r)
{
    return nh_fail(NH_FAILED, "%s: the quote that opens in line %zu is not closed; close it or double it", r->name,
                   r->quote_line);
}

static int carriage_return(const struct nh_reader *r)
{
    return nh_fail(NH_FAILED, "%s: carriage return inside line %zu; end lines with LF or CR LF", r->name, r->line);
}

static int cut_line(struct nh_reader *r, char *line, size_t length)
{
    if (length > 0 && line[length - 1] == '\n')
        length--;
    if (length > 0 && line[length - 1] == '\r')
        length--;
    if (length == 0)
        return NH_OK;
    if (memchr(line, '\r', length))
        return carriage_return(r);
    line[length] = '\0';
    r->cells = line;
    r->row_done = true;
    char *comma;
    for (char *p = line;; p = comma + 1) {
        add_field(r, (size_t)(p - line));
        comma = memchr(p, ',', length - (size_t)(p - line));
        if (!comma)
            return NH_OK;
        *comma = '\0';
    }
}

/* A line with quotes, or one inside a quoted field. */
static int parse_quoted(struct nh_reader *r, const char *line, size_t length)
{
    const size_t pending = r->parser.entry_pos; /* of a quoted field that goes on in this line */
    if (r->used + pending + length > MAX_ROW)
        return r->quote_line ? open_quote(r)
                             : nh_fail(NH_FAILED, "%s: line %zu is longer than 1 MiB", r->name, r->line);
    /* A field takes a delimiter or the end of the file away and gets a NUL. */
    if (r->row_size < r->used + pending + length + 1) {
        const size_t size = 2 * (r->used + pending + length + 1);
        char *row = realloc(r->row, size);
        if (!row)
            return out_of_memory(r->name);
        r->row = row;
        r->row_size = size;
    }
    /* libcsv trims blanks that belong to the value; told that there are none it is right, but slower. */
    const bool blanks = memchr(line, ' ', length) || memchr(line, '\t', length);
    csv_set_space_func(&r->parser, blanks ? no_blank : NULL);

    const size_t fields = r->fields;
    if (csv_parse(&r->parser, line, length, on_field, on_row, r) != length) {
        if (csv_error(&r->parser) != CSV_EPARSE)
            return out_of_memory(r->name);
        if (r->quote_line && r->fields == fields)
            return open_quote(r);
        return nh_fail(NH_FAILED, "%s: stray quote in line %zu; quote the whole field and double the quotes inside it",
                       r->name, r->line);
    }
    if (r->stray || (r->row_done && (r->parser.entry_pos > 0 || r->parser.quoted)))
        return carriage_return(r);
    if (!r->parser.quoted)
        r->quote_line = 0;
    else if (!r->quote_line || r->fields > fields)
        r->quote_line = r->line;
    return NH_OK;
}

static int parse_line(struct nh_reader *r, char *line, size_t length)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'}; /* byte order mark, which some spreadsheets put first */
    r->line++;
    if (r->line == 1 && length >= sizeof mark && memcmp(line, mark, sizeof mark) == 0) {
        line += sizeof mark;
        length -= sizeof mark;
    }
    if (memchr(line, '\0', length))
        return nh_fail(NH_FAILED, "%s: line %zu holds a NUL byte; is this a CSV file in UTF-8?", r->name, r->line);
    if (!r->quote_line) {
        r->row_line = r->line;
        if (!memchr(line, '"', length))
            return cut_line(r, line, length);
    }
    return parse_quoted(r, line, length);
}

/* Parses up to the end of a row: 1, or 0 at the end of the file. */
static int parse_row(struct nh_reader *r)
{
    r->used = r->fields = 0;
    r->row_done = false;
    while (!r->row_done) {
        char *line = NULL;
        size_t length = 0;
        int status = take_line(r, &line, &length);
        if (status == NH_OK && length > 0)
            status = parse_line(r, line, length);
        if (status != NH_OK)
            return status;
        if (length == 0) {
            /* Without this call the last row is lost where it has no newline. */
            if (csv_fini(&r->parser, on_field, on_row, r) != 0)
                return open_quote(r);
            return r->row_done;
        }
    }
    return 1;
}

static int read_header(struct nh_reader *r)
{
    const int status = parse_row(r);
    if (status < 0)
        return status;
    if (status == 0)
        return nh_fail(NH_FAILED, "%s is empty; a CSV file starts with a line of column names", r->name);
    if (r->fields > MAX_COLUMNS)
        return nh_fail(NH_FAILED, "%s has %zu columns; at most %d can be read", r->name, r->fields, MAX_COLUMNS);
    const char *last = r->cells + r->start[r->fields - 1];
    const size_t size = (size_t)(last - r->cells) + strlen(last) + 1;
    r->header = malloc(size);
    if (!r->header)
        return out_of_memory(r->name);
    memcpy(r->header, r->cells, size);
    memcpy(r->name_start, r->start, r->fields * sizeof *r->start);
    for (r->columns = 0; r->columns < r->fields; r->columns++) {
        const char *name = r->header + r->name_start[r->columns];
        size_t before;
        if (nh_reader_find(r, name, &before))
            return nh_fail(NH_FAILED, "%s: the header names column '%s' twice; rename one of them", r->name,
                           excerpt(name).text);
    }
    return NH_OK;
}

int nh_reader_open_stream(struct nh_reader **out, FILE *stream, const char *name)
{
    *out = NULL;
    struct nh_reader *r = calloc(1, sizeof *r);
    if (!r)
        return out_of_memory(name);
    r->stream = stream;
    csv_init(&r->parser, CSV_STRICT | CSV_STRICT_FINI);
    csv_set_blk_size(&r->parser, 4096);
    r->name = strdup(name);
    r->block = malloc(MAX_ROW + 1);
    const int status = r->name && r->block ? read_header(r) : out_of_memory(name);
    if (status != NH_OK) {
        nh_reader_close(r);
        return status;
    }
    *out = r;
    return NH_OK;
}

int nh_reader_open(struct nh_reader **out, const char *path)
{
    *out = NULL;
    int fd;
    struct stat st;
    int status = nh_input_open(&fd, &st, path, "give a CSV file");
    if (status)
        return status;
    FILE *stream = fdopen(fd, "rb");
    if (!stream) {
        close(fd);
        return out_of_memory(path);
    }
    status = nh_reader_open_stream(out, stream, path);
    if (status != NH_OK)
        fclose(stream);
    else
        (*out)->own_stream = true;
    return status;
}

void nh_reader_close(struct nh_reader *r)
{
    if (!r)
        return;
    if (r->own_stream)
        fclose(r->stream);
    csv_free(&r->parser);
    free(r->name);
    free(r->block);
    free(r->row);
    free(r->header);
    free(r);
}

size_t nh_reader_columns(const struct nh_reader *r)
{
    return r->columns;
}

const char *nh_reader_name(const struct nh_reader *r, size_t column)
{
    assert(column < r->columns);
    return r->header + r->name_start[column];
}

int nh_reader_find(const struct nh_reader *r, const char *name, size_t *column)
{
    for (size_t i = 0; i < r->columns; i++) {
        if (strcmp(nh_reader_name(r, i), name) == 0) {
            *column = i;
            return 1;
        }
    }
    return 0;
}

int nh_reader_need(const struct nh_reader *r, const char *name, size_t *column)
{
    if (nh_reader_find(r, name, column))
        return NH_OK;
    char list[512];
    size_t used = 0;
    for (size_t i = 0; i < r->columns && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 excerpt(nh_reader_name(r, i)).text);
    if (used >= sizeof list)
        strcpy(list + sizeof list - 4, "...");
    return nh_fail(NH_FAILED, "%s has no column '%s'; it has %s", r->name, name, list);
}

static bool repeats_header(const struct nh_reader *r)
{
    for (size_t i = 0; i < r->columns; i++)
        if (strcmp(nh_reader_text(r, i), nh_reader_name(r, i)) != 0)
            return false;
    return true;
}

int nh_reader_next(struct nh_reader *r)
{
    if (r->failed)
        return NH_FAILED;
    int status = parse_row(r);
    if (status == 1 && r->fields != r->columns)
        status = nh_fail(NH_FAILED,
                         "%s: line %zu has %zu fields, the header has %zu; a comma inside a value needs quotes, "
                         "decimals take a dot, files with other columns cannot be joined",
                         r->name, r->row_line, r->fields, r->columns);
    else if (status == 1 && repeats_header(r))
        status = nh_fail(NH_FAILED, "%s: line %zu repeats the header; remove it, or give the joined files one by one",
                         r->name, r->row_line);
    r->failed = status < 0;
    return status;
}

size_t nh_reader_line(const struct nh_reader *r)
{
    return r->row_line;
}

const char *nh_reader_text(const struct nh_reader *r, size_t column)
{
    assert(column < r->columns);
    return r->cells + r->start[column];
}

int nh_reader_real(const struct nh_reader *r, size_t column, double *value)
{
    const char *text = nh_reader_text(r, column);
    *value = (double)NAN;
    if (*text == '\0')
        return 0;
    if (!nh_number_read(value, text))
        return nh_fail(NH_FAILED, "%s: '%s' in line %zu, column '%s', is not a number; decimals take a dot", r->name,
                       excerpt(text).text, r->row_line, excerpt(nh_reader_name(r, column)).text);
    return 1;
}
