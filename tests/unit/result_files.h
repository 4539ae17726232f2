// SPDX-License-Identifier: GPL-3.0-or-later
/** For the tests of result files: a folder of the test's own, what is in it, and refusals. */
#ifndef NH_TESTS_RESULT_FILES_H
#define NH_TESTS_RESULT_FILES_H

#include "harness/core/err.h"
#include "results/file.h"
#include "tests/folder.h"
#include "tests/suite.h"

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

/* The temporary file of a name in the folder, the only one; "" where there is none. */
static inline const char *part_of(const char *name)
{
    static char found[2][256];
    static int next;
    char *part = found[next++ % 2];
    *part = '\0';
    DIR *names = opendir(folder);
    ck_assert_ptr_nonnull(names);
    for (const struct dirent *e; (e = readdir(names));) {
        if (!nh_part_is_of(e->d_name, name))
            continue;
        ck_assert_str_eq(part, "");
        snprintf(part, sizeof found[0], "%s", e->d_name);
    }
    closedir(names);
    return part;
}

/* Files may not grow above this many bytes, as on a full disk. */
static inline void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

#define ok(call) ck_assert_msg((call) == NH_OK, "%s", nh_error())
#define fails(call, words)                                                                                             \
    do {                                                                                                               \
        ck_assert_int_eq(call, NH_FAILED);                                                                             \
        ck_assert_msg(strstr(nh_error(), words) != NULL, "'%s' is missing in: %s", words, nh_error());                 \
    } while (0)

#endif
