// SPDX-License-Identifier: GPL-3.0-or-later
/** tokens:FILE: sequences of ids from a text file.
 *  Without --seq and --batch the whole file is one batch, in its own order. With one of them each line is cut into windows
 *  of seq ids, the last of which ends with the line (so that it may begin inside the one before it), and the windows of
 *  all lines come in an order permuted by the seed: every id is in some window. */
#include "harness/data/tokens.h"

#include "harness/core/err.h"
#include "harness/data/source.h"
#include "results/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_text(const unsigned char *bytes, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char b = bytes[i];
        const bool return_ok = b == '\r' && (i + 1 == n || bytes[i + 1] == '\n');
        if ((b < ' ' || b == 0x7f) && b != '\t' && b != '\n' && !return_ok)
            return nh_fail(NH_FAILED,
                           "'%s' is no text file of token ids: byte 0x%02x at offset %zu; write the ids as decimal "
                           "numbers, one sequence a line",
                           name, b, i);
    }
    return NH_OK;
}

static bool is_blank(unsigned char b)
{
    return b == ' ' || b == '\t' || b == '\r';
}

static const unsigned char *skip(const unsigned char *p, const unsigned char *end, bool blank)
{
    while (p < end && is_blank(*p) == blank)
        p++;
    return p;
}

/* The id that stands from word to end, or -1. */
static int id_of(const unsigned char *word, const unsigned char *end)
{
    int id = 0;
    for (; word < end; word++) {
        if (*word < '0' || *word > '9')
            return -1;
        id = 10 * id + (*word - '0');
        if (id > NH_DATA_MAX_ID)
            return -1;
    }
    return id;
}

static int bad_word(const unsigned char *word, const unsigned char *end, const char *name, size_t line, size_t position)
{
    char shown[24] = "";
    for (size_t i = 0; i + 1 < sizeof shown && word + i < end; i++)
        shown[i] = word[i] < 0x7f ? (char)word[i] : '?';
    return nh_fail(NH_FAILED,
                   "'%s', line %zu, position %zu (from 0): '%s' is not a token id; ids are whole numbers from 0 to %d",
                   name, line, position, shown, NH_DATA_MAX_ID);
}

static int parse_line(struct nh_tokens *tokens, const unsigned char *p, const unsigned char *end, int vocab,
                      const char *name)
{
    const size_t line = tokens->lines + 1, first = tokens->start[tokens->lines];
    size_t n = first;
    for (p = skip(p, end, true); p < end; p = skip(p, end, true)) {
        const unsigned char *word = p;
        p = skip(p, end, false);
        const int id = id_of(word, p);
        if (id < 0)
            return bad_word(word, p, name, line, n - first);
        if (vocab && id >= vocab)
            return nh_fail(NH_FAILED,
                           "'%s', line %zu, position %zu (from 0): id %d is outside the vocabulary of %d; use --vocab %d or "
                           "more, or leave it out; with --model take the ids of its own tokenizer",
                           name, line, n - first, id, vocab, id + 1);
        tokens->largest = id > tokens->largest ? id : tokens->largest;
        tokens->ids[n++] = id;
    }
    tokens->start[line] = n;
    tokens->lines = line;
    return NH_OK;
}

int nh_tokens_parse(struct nh_tokens *tokens, const unsigned char *bytes, size_t n, int vocab, const char *name)
{
    *tokens = (struct nh_tokens){0};
    int status = check_text(bytes, n, name);
    if (status)
        return status;
    while (n > 0 && (is_blank(bytes[n - 1]) || bytes[n - 1] == '\n'))
        n--;
    if (n == 0)
        return nh_fail(NH_FAILED, "'%s' holds no token ids; write them as decimal numbers, one sequence a line", name);

    size_t lines = 1;
    for (size_t i = 0; i < n; i++)
        lines += bytes[i] == '\n';
    tokens->ids = malloc((n / 2 + 1) * sizeof *tokens->ids); /* a digit and a separator each, at least */
    tokens->start = malloc((lines + 1) * sizeof *tokens->start);
    if (!tokens->ids || !tokens->start)
        return nh_fail(NH_FAILED, "no memory for the %zu bytes of '%s'; take a part of it", n, name);
    tokens->start[0] = 0;
    for (const unsigned char *p = bytes, *end = bytes + n; p < end;) {
        const unsigned char *newline = memchr(p, '\n', (size_t)(end - p));
        const unsigned char *stop = newline ? newline : end;
        status = parse_line(tokens, p, stop, vocab, name);
        if (status)
            return status;
        if (tokens->start[tokens->lines] == tokens->start[tokens->lines - 1])
            return nh_fail(NH_FAILED, "'%s', line %zu is blank; blank lines may stand at the end only", name,
                           tokens->lines);
        p = stop + 1;
    }
    return NH_OK;
}

void nh_tokens_free(struct nh_tokens *tokens)
{
    free(tokens->ids);
    free(tokens->start);
    *tokens = (struct nh_tokens){0};
}

struct file {
    struct nh_data data;
    struct nh_tokens tokens;
    size_t *windows; /* windows of the lines before line i; the last: of all */
    bool in_order;
};

static size_t length_of(const struct nh_tokens *tokens, size_t line)
{
    return tokens->start[line + 1] - tokens->start[line];
}

static int sequence(const struct nh_data *data, uint64_t number, int *tokens)
{
    const struct file *file = (const struct file *)data;
    const uint64_t n = data->sequences;
    const size_t window = (size_t)(file->in_order ? number % n : nh_data_order(data->key, n, number)), seq = (size_t)data->seq;
    size_t line = 0, end = file->tokens.lines; /* windows[line] <= window < windows[end] */
    while (end - line > 1) {
        const size_t middle = (line + end) / 2;
        if (file->windows[middle] <= window)
            line = middle;
        else
            end = middle;
    }
    const size_t at = (window - file->windows[line]) * seq, last = length_of(&file->tokens, line) - seq;
    memcpy(tokens, file->tokens.ids + file->tokens.start[line] + (at < last ? at : last), seq * sizeof *tokens);
    return NH_OK;
}

static void release(struct nh_data *data)
{
    nh_tokens_free(&((struct file *)data)->tokens);
    free(((struct file *)data)->windows);
}

/* Lines must be as long as --seq at least, or all of one length without it. */
static int check_lengths(const struct file *file, const struct nh_data_request *request)
{
    const size_t *start = file->tokens.start, first = start[1];
    size_t shortest = 0, length = first;
    for (size_t i = 0; i < file->tokens.lines; i++)
        if (start[i + 1] - start[i] < length || i == 0) {
            shortest = i;
            length = start[i + 1] - start[i];
        }
    if (request->seq && length < (size_t)request->seq)
        return nh_fail(NH_FAILED, "'%s', line %zu has %zu ids, fewer than --seq %d; use --seq %zu or less",
                       request->argument, shortest + 1, length, request->seq, length);
    for (size_t i = 0; !request->seq && i < file->tokens.lines; i++)
        if (start[i + 1] - start[i] != first)
            return nh_fail(NH_FAILED,
                           "'%s', line %zu has %zu ids, but line 1 has %zu; cut all lines with --seq %zu or less",
                           request->argument, i + 1, start[i + 1] - start[i], first, length);
    return NH_OK;
}

/* Counts the windows of seq ids of each line. */
static int cut(struct file *file)
{
    const struct nh_tokens *tokens = &file->tokens;
    const size_t seq = (size_t)file->data.seq;
    file->windows = malloc((tokens->lines + 1) * sizeof *file->windows);
    if (!file->windows)
        return nh_fail(NH_FAILED, "out of memory for the lines of a file of tokens; take a part of it");
    file->windows[0] = 0;
    for (size_t i = 0; i < tokens->lines; i++)
        file->windows[i + 1] = file->windows[i] + (length_of(tokens, i) + seq - 1) / seq;
    file->data.sequences = file->windows[tokens->lines];
    return NH_OK;
}

static int load(struct file *file, const struct nh_data_request *request)
{
    unsigned char *bytes;
    size_t n;
    int status = nh_data_file(&bytes, &n, request->argument);
    if (status)
        return status;
    status = nh_tokens_parse(&file->tokens, bytes, n, request->vocab, request->argument);
    const char *kind = status ? nh_input_kind(bytes, n) : NULL;
    if (kind)
        status = nh_fail(NH_FAILED, "'%s' is %s", request->argument, kind);
    free(bytes);
    if (!status)
        status = check_lengths(file, request);
    if (!status && !request->seq)
        file->data.seq = (int)file->tokens.start[1];
    return status ? status : cut(file);
}

static int open_tokens(struct nh_data **out, const struct nh_data_request *request)
{
    struct file *file = nh_data_new(sizeof *file, request);
    if (!file)
        return NH_FAILED;
    struct nh_data *data = &file->data;
    struct nh_tokens *tokens = &file->tokens;
    data->sequence = sequence;
    data->release = release;
    const int status = load(file, request);
    if (status) {
        nh_data_close(data);
        return status;
    }
    file->in_order = !request->seq && !request->batch;
    if (file->in_order)
        data->batch = (int)tokens->lines; /* a file holds at most 2^30 bytes */
    if (!request->vocab)
        data->vocab = tokens->largest + 1;
    nh_data_digest_number(data, file->in_order);
    for (size_t i = 0; i < tokens->lines; i++) {
        nh_data_digest_number(data, length_of(tokens, i));
        for (size_t t = tokens->start[i]; t < tokens->start[i + 1]; t++)
            nh_data_digest_number(data, (uint64_t)tokens->ids[t]);
    }
    const size_t n = tokens->start[tokens->lines];
    if (file->in_order)
        snprintf(data->what, sizeof data->what, "%zu sequences of %d ids from %s, as one batch", tokens->lines, data->seq, request->argument);
    else
        snprintf(data->what, sizeof data->what, "%llu windows of %d ids, which hold all %zu of %zu %s in %s, in an order by the seed",
                 (unsigned long long)data->sequences, data->seq, n, tokens->lines, tokens->lines == 1 ? "line" : "lines", request->argument);
    *out = data;
    return NH_OK;
}

const struct nh_data_source nh_data_tokens = {
    .name = "tokens",
    .argument = "FILE",
    .what = "token ids as decimal text; without --seq and --batch one batch, a sequence a line; else all windows of --seq ids of all lines",
    .open = open_tokens,
};
