// SPDX-License-Identifier: GPL-3.0-or-later
#include "results/file.h"

#include "harness/core/err.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What would work instead. */
static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "free some space or choose a folder on another disk";
    case EACCES:
    case EPERM:
    case EROFS:
        return "choose a folder that you may write to";
    case ENOENT:
        return "make its folder first or choose one that exists";
    case ENOTDIR:
    case EEXIST:
    case EISDIR:
        return "a file stands where a folder is needed or the other way round: choose another name";
    case EFBIG:
        return "raise the limit on file sizes (ulimit -f)";
    case EMFILE:
    case ENFILE:
        return "raise the limit on open files (ulimit -n)";
    case ENOMEM:
        return "free some memory";
    case ENAMETOOLONG:
        return "choose a shorter name";
    default:
        return "choose another folder";
    }
}

int nh_file_failed(const char *what, const char *path, int error)
{
    nh_fail(NH_FAILED, "cannot %s %s: %s; %s", what, path, strerror(error), advice(error));
    return NH_FAILED;
}

static bool is_dir(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

int nh_dir_make(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return nh_file_failed("make the folder", path, ENOMEM);
    int status = NH_OK;
    for (char *p = copy; p && status == NH_OK;) {
        p = strchr(p + (*p == '/'), '/'); /* the slash after the next name; repeated ones do no harm */
        if (p)
            *p = '\0';
        if (mkdir(copy, 0777) != 0) {
            const int error = errno;
            if (!is_dir(copy))
                status = nh_file_failed("make the folder", copy, error);
        }
        if (p)
            *p = '/';
    }
    free(copy);
    return status;
}

int nh_dir_sync(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return nh_file_failed("open the folder", path, errno);
    /* Some file systems cannot sync a folder and say so with EINVAL: there is nothing more to be had from them. */
    const int error = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return error ? nh_file_failed("sync the folder", path, error) : NH_OK;
}

uint64_t nh_digest(uint64_t digest, const void *bytes, size_t n)
{
    for (const unsigned char *p = bytes, *end = p + n; p < end; p++)
        digest = (digest ^ *p) * UINT64_C(0x100000001b3);
    return digest;
}

int nh_file_absent(const char *path)
{
    struct stat st;
    return lstat(path, &st) ? NH_OK : nh_fail(NH_USAGE, "'%s' is there already; choose another name, or --force to replace it", path);
}

int nh_file_head(const char *path, char *head, size_t most, size_t *n, bool *there)
{
    *n = 0;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    *there = fd >= 0;
    if (fd < 0)
        return errno == ENOENT ? NH_OK : nh_file_failed("read", path, errno);
    struct stat st;
    int status = fstat(fd, &st)        ? nh_file_failed("read", path, errno)
                 : S_ISREG(st.st_mode) ? NH_OK
                                       : nh_fail(NH_FAILED, "%s is no regular file; remove it or choose another folder", path);
    for (ssize_t got = 1; !status && got > 0 && *n < most;) {
        got = read(fd, head + *n, most - *n);
        if (got > 0)
            *n += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            status = nh_file_failed("read", path, errno);
    }
    close(fd);
    return status;
}

int nh_file_write(const char *path, const char *text, size_t size)
{
    struct nh_part *p;
    int status = nh_part_create(&p, path, true);
    if (status != NH_OK)
        return status;
    status = nh_part_write(p, text, size);
    if (status == NH_OK)
        status = nh_part_commit(p);
    nh_part_destroy(p);
    return status;
}
