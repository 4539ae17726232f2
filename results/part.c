// SPDX-License-Identifier: GPL-3.0-or-later
/** Files being written, each under a name of its own until it is whole. */
#include "harness/core/err.h"
#include "results/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct nh_part {
    char *path, *name; /* name: the temporary one */
    int fd;            /* -1 once closed */
    int error;         /* errno of the first failure, 0 = none; ENOENT: the temporary file is gone */
    bool replace, committed, kept;
    struct nh_part *next; /* of those not yet destroyed */
    size_t used;
    long long size;  /* of all that was written */
    uint64_t digest; /* of the same */
    char buffer[1 << 16];
};

static struct nh_part *parts; /* all that are not yet destroyed */

/* ---- temporary names ---- */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool nh_part_is_of(const char *name, const char *path)
{
    const char *base = base_of(path);
    const size_t n = strlen(base);
    return strncmp(name, base, n) == 0 && name[n] == '.' && strspn(name + n + 1, "0123456789abcdef") == 8 &&
           strcmp(name + n + 9, ".part") == 0;
}

int nh_part_each(const char *path, nh_part_visit *visit, void *arg)
{
    const int above = (int)(base_of(path) - path);
    char *folder = above ? strndup(path, (size_t)above) : strdup(".");
    DIR *names = folder ? opendir(folder) : NULL;
    int status = !folder ? nh_file_failed("read the folder of", path, ENOMEM) : names ? NH_OK : nh_file_failed("read", folder, errno);
    while (!status) {
        errno = 0;
        const struct dirent *e = readdir(names);
        char *name = NULL;
        if (!e && errno)
            status = nh_file_failed("read", folder, errno);
        if (!e)
            break;
        if (!nh_part_is_of(e->d_name, path))
            continue;
        status = asprintf(&name, "%.*s%s", above, path, e->d_name) < 0 ? nh_file_failed("read", folder, ENOMEM) : visit(arg, name);
        free(name);
    }
    if (names)
        closedir(names);
    free(folder);
    return status;
}

/* Whoever writes it holds its lock, as long as the process lives. */
static int remove_stale(void *arg, const char *name)
{
    (void)arg;
    struct stat st;
    const int fd = open(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); /* to write: else NFS gives no exclusive lock */
    if (fd < 0)
        return NH_OK;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink(name);
    close(fd);
    return NH_OK;
}

void nh_part_tidy(const char *path)
{
    nh_part_each(path, remove_stale, NULL); /* what cannot be removed does no harm */
}

/* PATH.XXXXXXXX.ENDING with random digits. */
static int random_name(char **name, const char *path, const char *ending)
{
    unsigned r;
    *name = NULL;
    if (getrandom(&r, sizeof r, 0) != sizeof r)
        return nh_file_failed("create", path, errno);
    if (asprintf(name, "%s.%08x.%s", path, r, ending) >= 0)
        return NH_OK;
    *name = NULL;
    return nh_file_failed("create", path, ENOMEM);
}

int nh_file_set_aside(char **aside, const char *path)
{
    const int status = random_name(aside, path, "old");
    if (status || rename(path, *aside) == 0)
        return status;
    const int error = errno;
    free(*aside);
    *aside = NULL;
    return error == ENOENT ? NH_OK : nh_file_failed("rename", path, error);
}

/* Opens a new file of its own, locked. */
static int open_own(struct nh_part *p)
{
    for (;;) {
        char *name;
        const int named = random_name(&name, p->path, "part");
        if (named)
            return named;
        free(p->name);
        p->name = name;
        p->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (p->fd < 0 && errno != EEXIST)
            return nh_file_failed("create", p->path, errno);
        if (p->fd < 0)
            continue;
        struct stat st;
        const bool taken = flock(p->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; /* for stale, before it was locked */
        if (fstat(p->fd, &st) != 0)
            return nh_file_failed("create", p->path, errno);
        if (!taken && st.st_nlink > 0)
            return NH_OK;
        unlink(name);
        close(p->fd);
        p->fd = -1;
    }
}

/* ---- opening ---- */

static int check_target(const char *path, bool replace)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return NH_OK;
    if (S_ISDIR(st.st_mode))
        return nh_file_failed("write", path, EISDIR);
    if (!S_ISREG(st.st_mode)) /* a rename would put a file in the place of a device or a link */
        return nh_fail(NH_FAILED, "%s is there and is no regular file; choose another name", path);
    return replace ? NH_OK : nh_file_absent(path);
}

int nh_part_create(struct nh_part **out, const char *path, bool replace)
{
    *out = NULL;
    int status = check_target(path, replace);
    if (status)
        return status;
    struct nh_part *p = malloc(sizeof *p);
    if (!p)
        return nh_file_failed("write", path, ENOMEM);
    *p = (struct nh_part){.path = strdup(path), .fd = -1, .replace = replace, .digest = NH_DIGEST_START, .next = parts};
    parts = p;
    status = p->path ? open_own(p) : nh_file_failed("write", path, ENOMEM);
    if (status)
        nh_part_destroy(p);
    else
        *out = p;
    return status;
}

/* ---- going on with what a checkpoint tells of ---- */

/* Reads the first bytes of a file and takes their digest; into: they are added to it, NULL = they are only looked at. */
static int take_bytes(int fd, const char *name, const char *head, const struct nh_extent *from, struct nh_part *into)
{
    static _Thread_local char block[1 << 16];
    const size_t n_head = strlen(head);
    assert(n_head > 0 && n_head <= sizeof block);
    uint64_t digest = NH_DIGEST_START;
    char last = 0;
    int status = NH_OK;
    for (long long at = 0; at < from->bytes && !status;) {
        const size_t left = (size_t)(from->bytes - at), want = left < sizeof block ? left : sizeof block;
        const ssize_t n = pread(fd, block, want, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return nh_file_failed("read", name, n < 0 ? errno : EIO);
        if (at == 0 && ((size_t)n < n_head || memcmp(block, head, n_head) != 0))
            return nh_fail(NH_FAILED,
                           "cannot go on with %s: it does not begin with the header line of this program; --force starts anew, "
                           "or use the program that wrote it",
                           name);
        last = block[n - 1];
        digest = nh_digest(digest, block, (size_t)n);
        at += n;
        if (into)
            status = nh_part_write(into, block, (size_t)n);
    }
    if (!status && last != '\n')
        return nh_fail(NH_FAILED, "cannot go on with %s at byte %lld: no line ends there; --force starts anew", name, from->bytes);
    if (!status && digest != from->digest)
        return nh_fail(NH_FAILED, "cannot go on with %s: its first %lld bytes are not those that were written; --force starts anew", name,
                       from->bytes);
    return status;
}

struct source {
    const char *head;
    const struct nh_extent *from;
    int fd, tried; /* fd: of the file that holds the extent, -1 = none yet */
    char name[PATH_MAX];
};

enum { FOUND = 1 };

/* Opens a file and looks whether it holds the extent; FOUND where it does, else what is wrong is the last sentence. */
static int try_source(void *arg, const char *name)
{
    struct source *s = arg;
    struct stat st;
    s->tried++;
    s->fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int status = NH_OK;
    if (s->fd < 0 && errno == ENOENT)
        status = nh_fail(NH_FAILED, "cannot go on with %s: it is missing; --force starts anew", name);
    else if (s->fd < 0 || fstat(s->fd, &st))
        status = nh_file_failed("read", name, errno);
    if (!status && !S_ISREG(st.st_mode))
        status = nh_fail(NH_FAILED, "cannot go on with %s: it is no regular file; --force starts anew", name);
    if (!status && st.st_size < s->from->bytes)
        status = nh_fail(NH_FAILED, "cannot go on with %s at byte %lld: it has only %lld; --force starts anew", name, s->from->bytes,
                         (long long)st.st_size);
    if (!status)
        status = take_bytes(s->fd, name, s->head, s->from, NULL);
    if (!status) {
        snprintf(s->name, sizeof s->name, "%s", name);
        return FOUND;
    }
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    return NH_OK;
}

int nh_part_resume(struct nh_part **out, const char *path, const char *head, const struct nh_extent *from)
{
    struct source s = {.head = head, .from = from, .fd = -1};
    struct stat st;
    *out = NULL;
    int status = nh_part_each(path, try_source, &s);
    if (!status && (!s.tried || lstat(path, &st) == 0))
        status = try_source(&s, path);
    if (status != FOUND)
        return NH_FAILED; /* with the sentence of the last that was tried */
    status = nh_part_create(out, path, true);
    if (!status)
        status = take_bytes(s.fd, s.name, head, from, *out);
    if (status) {
        nh_part_destroy(*out);
        *out = NULL;
    }
    close(s.fd);
    return status;
}

/* ---- writing ---- */

static int part_status(const struct nh_part *p)
{
    if (p->error == ENOENT)
        return nh_fail(NH_FAILED,
                       "cannot write %s: another process has removed its temporary file; wait for that one or choose another "
                       "folder",
                       p->path);
    return p->error ? nh_file_failed("write", p->path, p->error) : NH_OK;
}

int nh_part_flush(struct nh_part *p)
{
    for (size_t done = 0; done < p->used && !p->error;) {
        const ssize_t n = write(p->fd, p->buffer + done, p->used - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            p->error = n < 0 ? errno : EIO;
    }
    p->used = 0;
    return part_status(p);
}

int nh_part_write(struct nh_part *p, const void *data, size_t size)
{
    const char *from = data;
    p->digest = nh_digest(p->digest, data, size);
    p->size += (long long)size;
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

int nh_part_sync(struct nh_part *p, struct nh_extent *extent)
{
    struct stat st;
    if (nh_part_flush(p) != NH_OK)
        return NH_FAILED;
    if (fdatasync(p->fd) != 0 || lstat(p->name, &st) != 0)
        p->error = errno;
    if (extent)
        *extent = (struct nh_extent){.bytes = p->size, .digest = p->digest};
    return part_status(p);
}

void nh_part_keep(struct nh_part *p)
{
    p->kept = true;
}

/* Renames the temporary file, over another one only where that was asked for. */
static int give_name(const struct nh_part *p)
{
    if (p->replace)
        return rename(p->name, p->path);
    if (renameat2(AT_FDCWD, p->name, AT_FDCWD, p->path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return -1;
    if (link(p->name, p->path) != 0) /* a file system that cannot rename so */
        return -1;
    unlink(p->name); /* else it is removed as stale */
    return 0;
}

int nh_part_commit(struct nh_part *p)
{
    assert(!p->committed);
    if (nh_part_flush(p) != NH_OK)
        return NH_FAILED;
    if (fsync(p->fd) != 0 || give_name(p) != 0)
        p->error = errno;
    p->committed = !p->error;
    close(p->fd); /* only now, as its lock goes with it; after fsync nothing can be lost any more */
    p->fd = -1;
    if (p->error == EEXIST && !p->replace)
        return nh_file_absent(p->path);
    if (p->committed) /* not before: of two writers that no lock keeps apart the first to end leaves the other nothing to commit */
        nh_part_tidy(p->path);
    return part_status(p);
}

int nh_part_verify(const struct nh_part *p)
{
    assert(p->committed);
    static _Thread_local char block[1 << 16];
    const int fd = open(p->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return nh_file_failed("read", p->path, errno);
    uint64_t digest = NH_DIGEST_START;
    long long size = 0;
    ssize_t n = fd < 0 ? 0 : 1;
    while (n > 0 || (n < 0 && errno == EINTR)) {
        n = read(fd, block, sizeof block);
        if (n > 0)
            digest = nh_digest(digest, block, (size_t)n), size += n;
    }
    const int error = n < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (error)
        return nh_file_failed("read", p->path, error);
    if (size == p->size && digest == p->digest)
        return NH_OK;
    return nh_fail(NH_FAILED,
                   "%s is not what was written, as another process writes into the same folder; wait for that one or choose "
                   "another folder",
                   p->path);
}

void nh_part_destroy(struct nh_part *p)
{
    if (!p)
        return;
    if (p->name && !p->committed && !p->kept)
        unlink(p->name);
    if (p->fd >= 0)
        close(p->fd);
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
        if (p->name && !p->committed && !p->kept)
            unlink(p->name);
}
