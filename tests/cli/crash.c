// SPDX-License-Identifier: GPL-3.0-or-later
/** To be preloaded: the process is killed at call number NH_CRASH_AT of those that change files, half way through a write. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_last(void)
{
    static int calls;
    const char *at = getenv("NH_CRASH_AT");
    return at && ++calls == atoi(at);
}

static void maybe_die(void)
{
    if (is_last())
        raise(SIGKILL);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    bool last = fd > STDERR_FILENO && is_last();
    ssize_t done = syscall(SYS_write, fd, bytes, last ? n / 2 : n);
    if (last)
        raise(SIGKILL);
    return done;
}

int rename(const char *from, const char *to)
{
    maybe_die();
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlink(const char *path)
{
    maybe_die();
    return unlinkat(AT_FDCWD, path, 0);
}

int ftruncate(int fd, off_t size)
{
    maybe_die();
    return (int)syscall(SYS_ftruncate, fd, size);
}

int fsync(int fd)
{
    maybe_die();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    maybe_die();
    return (int)syscall(SYS_fdatasync, fd);
}

int close(int fd)
{
    maybe_die();
    return (int)syscall(SYS_close, fd);
}
