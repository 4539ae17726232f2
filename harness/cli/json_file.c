// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/json_file.h"

#include "harness/core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

json_t *nh_json_load(const char *path, size_t most, json_error_t *error)
{
    struct stat st;
    *error = (json_error_t){.line = -1};
    if (stat(path, &st))
        snprintf(error->text, sizeof error->text, "%s", strerror(errno));
    else if (!S_ISREG(st.st_mode) || (size_t)st.st_size > most)
        snprintf(error->text, sizeof error->text, "it is not a regular file of at most %zu bytes", most);
    else
        return json_load_file(path, JSON_REJECT_DUPLICATES, error);
    return NULL;
}

static int check_file(const char *file, long long size)
{
    struct stat st;
    if (stat(file, &st))
        return nh_fail(NH_FAILED, "%.500s is missing, which run.json beside it tells of; run it again with --force", file);
    if (!S_ISREG(st.st_mode))
        return nh_fail(NH_FAILED, "%.500s is not a regular file; run it again with --force", file);
    if (st.st_size != size)
        return nh_fail(NH_FAILED, "%.500s has %lld bytes, not the %lld that run.json beside it tells of; run it again with --force", file,
                       (long long)st.st_size, size);
    return NH_OK;
}

int nh_record_check(const json_t *record, const char *folder)
{
    const char *name;
    json_t *size;
    json_object_foreach (json_object_get(record, "files"), name, size) {
        char *file = NULL;
        if (strchr(name, '/'))
            return nh_fail(NH_FAILED, "%.500s/run.json: one of its files is in another folder; run it again, or remove the file to do without it",
                           folder);
        if (asprintf(&file, "%s/%s", folder, name) < 0)
            nh_no_memory();
        const int status = check_file(file, json_integer_value(size));
        free(file);
        if (status)
            return status;
    }
    return NH_OK;
}
