// SPDX-License-Identifier: GPL-3.0-or-later
/** The CSV reader on any bytes. What it accepts is written anew with every field quoted and must read back the same,
 * and a number must survive being written. */
#include "harness/core/err.h"
#include "results/number.h"
#include "results/reader.h"

#include <csv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void check_number(const char *text)
{
    double x, back;
    if (!nh_number_read(&x, text))
        return;
    char written[NH_NUMBER_SIZE];
    must(nh_number_real(written, x) == strlen(written));
    must(nh_number_read(&back, written));
    must(memcmp(&x, &back, sizeof x) == 0 || (x != x && back != back));
}

static void put(FILE *out, const char *text, size_t column)
{
    if (column > 0)
        fputc(',', out);
    csv_fwrite(out, text, strlen(text));
}

/* Reads all rows and writes them quoted to out (may be NULL); their number, or the refusal. */
static long read_all(const void *bytes, size_t n, FILE *out)
{
    FILE *in = fmemopen((void *)(uintptr_t)bytes, n, "r");
    must(in != NULL);
    struct nh_reader *r;
    long rows = nh_reader_open_stream(&r, in, "input");
    must((rows == NH_OK) == (r != NULL));
    if (r) {
        const size_t columns = nh_reader_columns(r);
        for (size_t i = 0; out && i < columns; i++)
            put(out, nh_reader_name(r, i), i);
        int status;
        for (rows = 0; (status = nh_reader_next(r)) == 1; rows++) {
            if (out)
                fputc('\n', out);
            for (size_t i = 0; i < columns; i++) {
                const char *text = nh_reader_text(r, i);
                check_number(text);
                if (out)
                    put(out, text, i);
            }
        }
        must(nh_reader_line(r) > (size_t)rows || status < 0);
        rows = status < 0 ? status : rows;
    }
    must(rows >= 0 || (strstr(nh_error(), "input") != NULL && strchr(nh_error(), '\n') == NULL));
    nh_reader_close(r);
    fclose(in);
    return rows;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return 0;
    char *once = NULL, *twice = NULL;
    size_t n_once = 0, n_twice = 0;
    FILE *out = open_memstream(&once, &n_once);
    must(out != NULL);
    const long rows = read_all(bytes, n, out);
    fclose(out);
    if (rows >= 0) {
        out = open_memstream(&twice, &n_twice);
        must(out != NULL);
        must(read_all(once, n_once, out) == rows);
        fclose(out);
        must(n_once == n_twice && memcmp(once, twice, n_once) == 0);
    }
    free(once);
    free(twice);
    return 0;
}
