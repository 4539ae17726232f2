// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/json_file.h"

#include <errno.h>
#include <stdio.h>
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
