// SPDX-License-Identifier: GPL-3.0-or-later
#include "results/input.h"

#include "harness/core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

int nh_input_open(int *fd, struct stat *st, const char *path, const char *advice)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* does not wait where it is a pipe */
    if (*fd < 0)
        return nh_fail(NH_FAILED, "cannot open '%s': %s; %s", path, strerror(errno), advice);
    int status = NH_OK;
    if (fstat(*fd, st) != 0)
        status = nh_fail(NH_FAILED, "cannot read '%s': %s; %s", path, strerror(errno), advice);
    else if (!S_ISREG(st->st_mode))
        status = nh_fail(NH_FAILED, "'%s' is %s, not a regular file; %s", path,
                         S_ISDIR(st->st_mode)    ? "a folder"
                         : S_ISFIFO(st->st_mode) ? "a pipe"
                         : S_ISSOCK(st->st_mode) ? "a socket"
                                                 : "a device",
                         advice);
    if (status) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* Reads to the end rather than by the size that the system tells: a file may grow, and files of /proc have no size. */
static int read_all(unsigned char **bytes, size_t *n, size_t limit, int fd, const char *path, const char *advice)
{
    for (size_t room = 0;;) {
        if (*n == room) {
            room = room ? 2 * room : 1 << 16;
            unsigned char *more = realloc(*bytes, room + 1);
            if (!more)
                return nh_fail(NH_FAILED, "out of memory for %zu bytes of '%s'; free some memory or give a smaller file", room, path);
            *bytes = more;
        }
        const ssize_t got = read(fd, *bytes + *n, room - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return nh_fail(NH_FAILED, "cannot read '%s': %s; %s", path, strerror(errno), advice);
        *n += (size_t)got;
        if (*n > limit)
            return nh_fail(NH_FAILED, "'%s' is larger than the %zu MiB that are read of such a file; give a smaller one", path, limit >> 20);
        if (got == 0) {
            (*bytes)[*n] = '\0';
            return NH_OK;
        }
    }
}

int nh_input_read(unsigned char **bytes, size_t *n, size_t limit, const char *path, const char *advice)
{
    int fd;
    struct stat st;
    *bytes = NULL, *n = 0;
    int status = nh_input_open(&fd, &st, path, advice);
    if (status)
        return status;
    status = read_all(bytes, n, limit, fd, path, advice);
    close(fd);
    if (status) {
        free(*bytes);
        *bytes = NULL, *n = 0;
    }
    return status;
}

/* A page of HTML or XML, whatever blanks or byte order mark it begins with. */
static bool is_page(const char *p, size_t n)
{
    static const char *const starts[] = {"<!doctype", "<html", "<head", "<?xml"};
    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3, n -= 3;
    for (; n > 0 && strchr(" \t\r\n", *p) && *p; p++, n--)
        ;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (n >= strlen(starts[i]) && strncasecmp(p, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

/* Protocol 2 to 5, and an opcode that pickles begin with: a number, a global name, an empty collection, a frame. */
static bool is_pickle(const unsigned char *p, size_t n)
{
    return n >= 3 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5 && p[2] && strchr("\x8a" "c}](\x95", p[2]);
}

const char *nh_input_kind(const void *bytes, size_t n)
{
#define MARK(text) text, sizeof text - 1
    static const struct {
        const char *mark;
        size_t n;
        const char *kind;
    } marks[] = {
        {MARK("version https://git-lfs.github.com/spec/"), "a Git LFS pointer, not the file itself; fetch the file with 'git lfs pull'"},
        {MARK("version https://hawser.github.com/spec/"), "a Git LFS pointer, not the file itself; fetch the file with 'git lfs pull'"},
        {MARK("PK\3\4"), "a zip archive (PyTorch's .bin and .pt are such); convert it to safetensors or unpack it"},
        {MARK("\x1f\x8b\x08"), "a gzip file; unpack it with gunzip"},
        {MARK("BZh"), "a bzip2 file; unpack it with bunzip2"},
        {MARK("\xfd" "7zXZ"), "an xz file; unpack it with unxz"},
        {MARK("\x28\xb5\x2f\xfd"), "a zstd file; unpack it with unzstd"},
        {MARK("7z\xbc\xaf\x27\x1c"), "a 7z archive; unpack it"},
        {MARK("GGUF"), "a GGUF file; take the safetensors files of the model"},
        {MARK("\x89HDF\r\n"), "an HDF5 file; convert it to safetensors"},
        {MARK("\x93NUMPY"), "a NumPy file; convert it to safetensors"},
    };
#undef MARK
    if (n == 0)
        return "empty; get the whole file";
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (n >= marks[i].n && memcmp(bytes, marks[i].mark, marks[i].n) == 0)
            return marks[i].kind;
    if (is_pickle(bytes, n))
        return "a Python pickle (older .bin and .pt of PyTorch are such); convert it to safetensors";
    return is_page(bytes, n) ? "a web page, as a failed download leaves it; download the file again" : NULL;
}
