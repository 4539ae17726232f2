// SPDX-License-Identifier: GPL-3.0-or-later
/** For the tests of result files: a folder of the test's own, what is in it, and refusals. */
#ifndef NH_TESTS_RESULT_FILES_H
#define NH_TESTS_RESULT_FILES_H

#include "harness/core/err.h"
#include "tests/folder.h"
#include "tests/suite.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A name in the folder; four live at a time. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline bool exists(const char *name)
{
    struct stat s;
    return lstat(in_folder(name), &s) == 0;
}

/* The whole file; the caller frees it. */
static inline char *content(const char *name)
{
    FILE *file = fopen(in_folder(name), "rb");
    ck_assert_msg(file != NULL, "no %s", name);
    char *text = calloc(1, 1 << 20);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_lt(fread(text, 1, (1 << 20) - 1, file), (1 << 20) - 1);
    fclose(file);
    return text;
}

static inline void content_is(const char *name, const char *expected)
{
    char *text = content(name);
    ck_assert_str_eq(text, expected);
    free(text);
}

#define ok(call) ck_assert_msg((call) == NH_OK, "%s", nh_error())
#define fails(call, words)                                                                                             \
    do {                                                                                                               \
        ck_assert_int_eq(call, NH_FAILED);                                                                             \
        ck_assert_msg(strstr(nh_error(), words) != NULL, "'%s' is missing in: %s", words, nh_error());                 \
    } while (0)

#endif
