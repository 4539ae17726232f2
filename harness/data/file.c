// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/err.h"
#include "harness/data/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t limit = (size_t)1 << 30;

/* Reads to the end rather than by the size the system tells: pipes have none, and a file may grow. */
static int read_all(unsigned char **bytes, size_t *n, FILE *file, const char *path)
{
    size_t room = 0;
    for (;;) {
        if (*n == room) {
            if (room >= limit)
                return nh_fail(NH_FAILED, "'%s' is larger than 1 GiB; take a part of it", path);
            room = room ? 2 * room : 1 << 16;
            unsigned char *more = realloc(*bytes, room);
            if (!more)
                return nh_fail(NH_FAILED, "no memory for %zu bytes of '%s'; take a part of it", room, path);
            *bytes = more;
        }
        const size_t got = fread(*bytes + *n, 1, room - *n, file);
        *n += got;
        if (ferror(file))
            return nh_fail(NH_FAILED, "cannot read '%s': %s; give a readable file", path, strerror(errno));
        if (got == 0)
            return NH_OK;
    }
}

int nh_data_file(unsigned char **bytes, size_t *n, const char *path)
{
    *bytes = NULL;
    *n = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return nh_fail(NH_FAILED, "cannot open '%s': %s; give a readable file", path, strerror(errno));
    int status = read_all(bytes, n, file, path);
    fclose(file);
    if (!status && *n == 0)
        status = nh_fail(NH_FAILED, "'%s' is empty; give a file with data", path);
    if (status) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}
