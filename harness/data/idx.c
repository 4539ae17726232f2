// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/data/idx.h"

#include "harness/core/err.h"

#include <assert.h>
#include <string.h>

/* A cut gz file reads short without a failure of gzread; only gzerror tells. */
static int broken(gzFile file, const char *what, const char *name)
{
    int code;
    const char *reason = gzerror(file, &code), *colon = strrchr(reason, ':'); /* "PATH: why" */
    if (code == Z_OK || code == Z_BUF_ERROR)
        return nh_fail(NH_FAILED, "'%s' ends in its %s; get the file again", name, what);
    return nh_fail(NH_FAILED, "cannot read '%s': %s; get the file again", name, colon ? colon + 2 : reason);
}

int nh_idx_read(gzFile file, void *to, unsigned n, const char *what, const char *name)
{
    return gzread(file, to, n) == (int)n ? NH_OK : broken(file, what, name);
}

int nh_idx_header(gzFile file, int rank, uint32_t *sizes, const char *name)
{
    unsigned char bytes[4 + 4 * 3];
    assert(rank >= 1 && rank <= 3);
    int status = nh_idx_read(file, bytes, 4, "header", name);
    if (status)
        return status;
    if (bytes[0] || bytes[1] || bytes[2] != 8 || bytes[3] != rank)
        return nh_fail(NH_FAILED,
                       "'%s' starts with %02x%02x%02x%02x, but an IDX file of bytes with %d sizes starts with "
                       "000008%02x; get the file again",
                       name, bytes[0], bytes[1], bytes[2], bytes[3], rank, (unsigned)rank);
    status = nh_idx_read(file, bytes + 4, 4 * (unsigned)rank, "header", name);
    if (status)
        return status;
    for (int i = 0; i < rank; i++) {
        const unsigned char *b = bytes + 4 + 4 * i;
        sizes[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    return NH_OK;
}

int nh_idx_end(gzFile file, const char *name)
{
    unsigned char more;
    const int got = gzread(file, &more, 1);
    int code;
    gzerror(file, &code);
    if (got > 0)
        return nh_fail(NH_FAILED, "'%s' goes on after the last item that its header counts; get the file again", name);
    return got == 0 && code == Z_OK ? NH_OK : broken(file, "checksum", name);
}
