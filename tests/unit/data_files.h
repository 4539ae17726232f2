// SPDX-License-Identifier: GPL-3.0-or-later
/** For the tests of token data: files in a folder of the test's own; opening what should open and what should not. */
#ifndef NH_TESTS_DATA_FILES_H
#define NH_TESTS_DATA_FILES_H

#include "harness/core/err.h"
#include "harness/data/data.h"
#include "tests/folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* ---- files of a test: all in one folder, gone after it ---- */

static const char *const names[] = {"file", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                    "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
enum { FILE_, IMAGES, LABELS, TEST_IMAGES, TEST_LABELS, N_NAMES };

static inline const char *path(int name)
{
    static char text[512];
    snprintf(text, sizeof text, "%s/%s", folder, names[name]);
    return text;
}

static inline void begin_files(void)
{
    make_folder();
    ck_assert_int_eq(setenv("NH_FASHION_MNIST", folder, 1), 0);
}

static inline void end_files(void)
{
    remove_folder();
    unsetenv("NH_FASHION_MNIST");
}

static inline void put(int name, const void *bytes, size_t n)
{
    FILE *file = fopen(path(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

static inline void put_text(const char *text)
{
    put(FILE_, text, strlen(text));
}

static inline void put_gz(int name, const void *bytes, size_t n)
{
    gzFile file = gzopen(path(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, bytes, (unsigned)n), (int)n);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

/* ---- opening, and being refused ---- */

static inline struct nh_data *must_open(const char *text, struct nh_data_request request)
{
    struct nh_data *data = NULL;
    const int status = nh_data_open(&data, text, &request);
    ck_assert_msg(status == NH_OK, "%s: %s", text, nh_error());
    ck_assert_ptr_nonnull(data);
    return data;
}

/* The sentence has all words, NULL ends them. */
static inline void must_refuse(int status, const char *text, struct nh_data_request request, const char *const *words)
{
    struct nh_data *data = (struct nh_data *)folder;
    const int got = nh_data_open(&data, text, &request);
    ck_assert_msg(got == status, "%s: status %d, not %d (%s)", text, got, status, got ? nh_error() : "");
    ck_assert_ptr_null(data);
    ck_assert_msg(!strchr(nh_error(), '\n'), "%s", nh_error());
    for (; *words; words++)
        ck_assert_msg(strstr(nh_error(), *words) != NULL, "'%s' is missing in: %s", *words, nh_error());
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline const char *with_file(const char *source)
{
    static char text[600];
    snprintf(text, sizeof text, "%s:%s", source, path(FILE_));
    return text;
}

static inline int *batch_of(const struct nh_data *data, uint64_t index)
{
    const size_t n = (size_t)data->batch * (size_t)data->seq;
    int *tokens = malloc(n * sizeof *tokens); /* of the exact size: a sanitizer sees a write past it */
    ck_assert_ptr_nonnull(tokens);
    ck_assert_int_eq(nh_data_batch(data, index, tokens), NH_OK);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(tokens[i] >= 0 && tokens[i] < data->vocab, "id %d, vocab %d", tokens[i], data->vocab);
    return tokens;
}

static inline bool same_batch(const struct nh_data *a, uint64_t i, const struct nh_data *b, uint64_t j)
{
    ck_assert_int_eq(a->batch * a->seq, b->batch * b->seq);
    int *x = batch_of(a, i), *y = batch_of(b, j);
    const bool same = !memcmp(x, y, (size_t)a->batch * (size_t)a->seq * sizeof *x);
    free(x);
    free(y);
    return same;
}

/* ---- Fashion-MNIST, made up: image i has brightness i % 256 but for a first pixel of 255, its class is i % 10 ---- */

enum { PIXELS = 28 * 28 };

static inline void big_endian(unsigned char *to, size_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (24 - 8 * i));
}

static inline unsigned char *idx_labels(size_t n)
{
    unsigned char *bytes = calloc(1, 8 + n + 1);
    ck_assert_ptr_nonnull(bytes);
    bytes[2] = 8;
    bytes[3] = 1;
    big_endian(bytes + 4, n);
    for (size_t i = 0; i < n; i++)
        bytes[8 + i] = (unsigned char)(i % 10);
    return bytes;
}

static inline unsigned char *idx_images(size_t n)
{
    unsigned char *bytes = calloc(1, 16 + n * PIXELS + 1);
    ck_assert_ptr_nonnull(bytes);
    bytes[2] = 8;
    bytes[3] = 3;
    big_endian(bytes + 4, n);
    big_endian(bytes + 8, 28);
    big_endian(bytes + 12, 28);
    for (size_t i = 0; i < n; i++) {
        memset(bytes + 16 + i * PIXELS, (int)(i % 256), PIXELS);
        bytes[16 + i * PIXELS] = 255;
    }
    return bytes;
}

static inline void put_fashion(int images, int labels, size_t n)
{
    unsigned char *image_bytes = idx_images(n), *label_bytes = idx_labels(n);
    put_gz(images, image_bytes, 16 + n * PIXELS);
    put_gz(labels, label_bytes, 8 + n);
    free(image_bytes);
    free(label_bytes);
}

#endif
