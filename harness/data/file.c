// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/err.h"
#include "harness/data/source.h"
#include "results/input.h"

#include <stdlib.h>

int nh_data_file(unsigned char **bytes, size_t *n, const char *path)
{
    static const size_t limit = (size_t)1 << 30;
    const int status = nh_input_read(bytes, n, limit, path, "give a file of data");
    if (status || *n > 0)
        return status;
    free(*bytes);
    *bytes = NULL;
    return nh_fail(NH_FAILED, "'%s' is empty; give a file with data", path);
}
