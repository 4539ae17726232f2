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

struct nh_part {
    char *path, *name; /* name = path.part */
    int fd;            /* -1 once closed */
    int error;         /* errno of the first failure, 0 = none */
    bool committed, kept;
    struct nh_part *next; /* of those not yet destroyed */
    size_t used;
    uint64_t digest;   /* of all that was written */
    char buffer[1 << 16];
};

static struct nh_part *parts; /* all that are not yet destroyed */

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
    default:
        return "choose another folder";
    }
}

static int fail(const char *what, const char *path, int error)
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
        return fail("make the folder", path, ENOMEM);
    int status = NH_OK;
    for (char *p = copy; p && status == NH_OK;) {
        p = strchr(p + (*p == '/'), '/'); /* the slash after the next name; repeated ones do no harm */
        if (p)
            *p = '\0';
        if (mkdir(copy, 0777) != 0) {
            const int error = errno;
            if (!is_dir(copy))
                status = fail("make the folder", copy, error);
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
        return fail("open the folder", path, errno);
    /* Some file systems cannot sync a folder and say so with EINVAL: there is nothing more to be had from them. */
    const int error = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return error ? fail("sync the folder", path, error) : NH_OK;
}

/* What will write PATH, not yet open. Kept until something of ours is there. */
static int part_new(struct nh_part **out, const char *path)
{
    *out = NULL;
    struct stat st;
    bool there = lstat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        return fail("write", path, EISDIR);
    if (there && !S_ISREG(st.st_mode)) /* a rename would put a file in the place of a device or a link */
        return nh_fail(NH_FAILED, "%s is there and is no regular file; choose another name", path);
    struct nh_part *p = malloc(sizeof *p);
    if (!p)
        return fail("write", path, ENOMEM);
    *p = (struct nh_part){.path = strdup(path), .fd = -1, .kept = true, .digest = NH_DIGEST_START};
    if (!p->path || asprintf(&p->name, "%s.part", path) < 0) {
        free(p->path);
        free(p);
        return fail("write", path, ENOMEM);
    }
    p->next = parts, parts = p;
    *out = p;
    return NH_OK;
}

int nh_part_create(struct nh_part **out, const char *path)
{
    struct nh_part *p;
    int status = part_new(out, path);
    if (status != NH_OK)
        return status;
    p = *out;
    p->fd = open(p->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (p->fd < 0) {
        status = fail("create", p->name, errno);
        nh_part_destroy(p);
        *out = NULL;
        return status;
    }
    p->kept = false;
    return NH_OK;
}

uint64_t nh_digest(uint64_t digest, const void *bytes, size_t n)
{
    for (const unsigned char *p = bytes, *end = p + n; p < end; p++)
        digest = (digest ^ *p) * UINT64_C(0x100000001b3);
    return digest;
}

/* The digest of the first `size` bytes of the file that is open. */
static int digest_of_old(struct nh_part *p, const char *name, long long size)
{
    for (long long at = 0; at < size;) {
        const size_t left = (size_t)(size - at), want = left < sizeof p->buffer ? left : sizeof p->buffer;
        const ssize_t n = pread(p->fd, p->buffer, want, at);
        if (n <= 0 && errno != EINTR)
            return fail("go on with", name, n < 0 ? errno : EIO);
        if (n > 0)
            p->digest = nh_digest(p->digest, p->buffer, (size_t)n), at += n;
    }
    return NH_OK;
}

/* Whether the file at `name`, open as p->fd, can be gone on with behind `size` bytes. */
static int check_resumable(struct nh_part *p, const char *name, const char *head, long long size)
{
    const size_t n = strlen(head);
    assert(n > 0 && n <= sizeof p->buffer);
    struct stat st;
    if (fstat(p->fd, &st) != 0)
        return fail("go on with", name, errno);
    if (!S_ISREG(st.st_mode))
        return nh_fail(NH_FAILED, "cannot go on with %s: it is no regular file; --force starts anew", name);
    if (st.st_size < size)
        return nh_fail(NH_FAILED, "cannot go on with %s behind byte %lld: it has only %lld; --force starts anew", name, size,
                       (long long)st.st_size);
    char last;
    if (size < (long long)n || pread(p->fd, p->buffer, n, 0) != (ssize_t)n || memcmp(p->buffer, head, n) != 0)
        return nh_fail(NH_FAILED,
                       "cannot go on with %s behind byte %lld: it does not begin with the header line of this program; "
                       "--force starts anew, or use the program that wrote it",
                       name, size);
    if (pread(p->fd, &last, 1, size - 1) != 1 || last != '\n')
        return nh_fail(NH_FAILED, "cannot go on with %s behind byte %lld: no line ends there; --force starts anew", name, size);
    return digest_of_old(p, name, size);
}

/* Opens what can be gone on with; nothing is changed. *found: which of the two it is. */
static int open_resumable(struct nh_part *p, const char *head, long long size, const char **found)
{
    const char *name = p->name;
    p->fd = open(name, O_RDWR | O_CLOEXEC);
    if (p->fd < 0 && errno == ENOENT) {
        name = p->path;
        p->fd = open(name, O_RDWR | O_CLOEXEC);
        if (p->fd < 0 && errno == ENOENT)
            return nh_fail(NH_FAILED, "cannot go on with %s: it is missing, and %s too; --force starts anew", p->name, p->path);
    }
    if (p->fd < 0)
        return fail("go on with", name, errno);
    *found = name;
    return check_resumable(p, name, head, size);
}

static int resume(struct nh_part *p, const char *head, long long size)
{
    const char *name;
    const int status = open_resumable(p, head, size, &name);
    if (status != NH_OK)
        return status;
    if ((name == p->path && rename(name, p->name) != 0) || ftruncate(p->fd, size) != 0 ||
        lseek(p->fd, size, SEEK_SET) < 0)
        return fail("go on with", name, errno);
    return NH_OK;
}

int nh_part_resume(struct nh_part **out, const char *path, const char *head, long long size)
{
    int status = part_new(out, path);
    if (status == NH_OK)
        status = resume(*out, head, size);
    if (status != NH_OK) {
        nh_part_destroy(*out);
        *out = NULL;
    }
    return status;
}

int nh_part_check(const char *path, const char *head, long long size, uint64_t *digest)
{
    struct nh_part *p;
    const char *name;
    int status = part_new(&p, path);
    if (status == NH_OK)
        status = open_resumable(p, head, size, &name);
    if (status == NH_OK)
        *digest = p->digest;
    nh_part_destroy(p);
    return status;
}

static int part_status(const struct nh_part *p)
{
    return p->error ? fail("write", p->name, p->error) : NH_OK;
}

int nh_part_flush(struct nh_part *p)
{
    for (size_t done = 0; done < p->used && !p->error;) {
        const ssize_t n = write(p->fd, p->buffer + done, p->used - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            p->error = errno;
    }
    p->used = 0;
    return part_status(p);
}

int nh_part_write(struct nh_part *p, const void *data, size_t size)
{
    const char *from = data;
    p->digest = nh_digest(p->digest, data, size);
    while (size > sizeof p->buffer - p->used) {
        const size_t n = sizeof p->buffer - p->used;
        memcpy(p->buffer + p->used, from, n);
        p->used += n;
        from += n;
        size -= n;
        if (nh_part_flush(p) != NH_OK)
            return NH_FAILED;
    }
    if (p->error)
        return part_status(p);
    if (size > 0)
        memcpy(p->buffer + p->used, from, size);
    p->used += size;
    return NH_OK;
}

int nh_part_sync(struct nh_part *p, long long *size)
{
    if (nh_part_flush(p) != NH_OK)
        return NH_FAILED;
    *size = lseek(p->fd, 0, SEEK_CUR);
    if (*size < 0 || fdatasync(p->fd) != 0)
        p->error = errno;
    return part_status(p);
}

uint64_t nh_part_digest(const struct nh_part *p)
{
    return p->digest;
}

void nh_part_keep(struct nh_part *p)
{
    p->kept = true;
}

int nh_part_commit(struct nh_part *p)
{
    assert(!p->committed);
    if (nh_part_flush(p) != NH_OK)
        return NH_FAILED;
    if (fsync(p->fd) != 0)
        p->error = errno;
    if (close(p->fd) != 0 && !p->error)
        p->error = errno;
    p->fd = -1;
    if (!p->error && rename(p->name, p->path) != 0)
        p->error = errno;
    p->committed = !p->error;
    return part_status(p);
}

void nh_part_destroy(struct nh_part *p)
{
    if (!p)
        return;
    if (p->fd >= 0)
        close(p->fd);
    if (!p->committed && !p->kept)
        unlink(p->name);
    struct nh_part **at = &parts;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    free(p->path);
    free(p->name);
    free(p);
}

void nh_parts_remove(void)
{
    for (const struct nh_part *p = parts; p; p = p->next)
        if (!p->committed && !p->kept)
            unlink(p->name);
}

int nh_file_write(const char *path, const char *text, size_t size)
{
    struct nh_part *p;
    int status = nh_part_create(&p, path);
    if (status != NH_OK)
        return status;
    status = nh_part_write(p, text, size);
    if (status == NH_OK)
        status = nh_part_commit(p);
    nh_part_destroy(p);
    return status;
}
