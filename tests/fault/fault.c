// SPDX-License-Identifier: GPL-3.0-or-later
/** To be preloaded: calls of one kind fail, with errno set and nothing done.
 *  NH_FAULT=KIND:K:ERRNO[:all] lets call number K (from 1) of KIND fail, with `all` every one from there on.
 *  Processes that this one starts are left alone.
 *  NH_FAULT_COUNT=FILE writes how many calls of each kind there were, at the end. Only calls while main() runs are counted:
 *  before that the loader and the constructors of libraries are at work, after it nothing of the program. */
#undef _FILE_OFFSET_BITS /* else open() here would be called open64() */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { MEMORY, OPEN, READ, WRITE, SYNC, RENAME, CLOSE, MMAP, STAT, UNLINK, MKDIR, TRUNCATE, KINDS };
static const char *const names[KINDS] = {"memory", "open", "read", "write", "sync", "rename", "close", "mmap", "stat", "unlink", "mkdir",
                                         "truncate"};
static enum kind failing = KINDS;
static long at;
static int error;
static bool all;
static atomic_bool running;
static atomic_long calls[KINDS];

/* Whether this call fails; errno is then set. */
static bool fails(enum kind kind)
{
    if (!running)
        return false;
    const long n = ++calls[kind];
    const bool now = kind == failing && (all ? n >= at : n == at);
    if (now)
        errno = error;
    return now;
}

/* The function that this library stands before. */
#define NEXT(name)                                                                                                                         \
    static __typeof__(&name) next;                                                                                                         \
    if (!next)                                                                                                                             \
        *(void **)&next = dlsym(RTLD_NEXT, #name)

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    return fails(MEMORY) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails(MEMORY) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails(MEMORY) ? NULL : __libc_realloc(p, size);
}

void *reallocarray(void *p, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, n * size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(MEMORY) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
    if (fails(MEMORY))
        return ENOMEM;
    *p = __libc_memalign(alignment, size);
    return *p ? 0 : ENOMEM;
}

static int vopen(int dir, const char *path, int flags, va_list args)
{
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    NEXT(openat);
    return fails(OPEN) ? -1 : next(dir, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const int fd = vopen(AT_FDCWD, path, flags, args);
    va_end(args);
    return fd;
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const int fd = vopen(dir, path, flags, args);
    va_end(args);
    return fd;
}

int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));

int creat(const char *path, mode_t mode)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

/* Streams and folders open inside libc, where nothing can stand between. */
FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    return fails(OPEN) ? NULL : next(path, mode);
}

FILE *fopen64(const char *path, const char *mode) __attribute__((alias("fopen")));

DIR *opendir(const char *path)
{
    NEXT(opendir);
    return fails(OPEN) ? NULL : next(path);
}

size_t fread(void *bytes, size_t size, size_t n, FILE *file)
{
    NEXT(fread);
    if (!fails(READ))
        return next(bytes, size, n, file);
    file->_flags |= 0x20; /* as ferror() finds it: no other way sets it */
    return 0;
}

ssize_t read(int fd, void *bytes, size_t n)
{
    NEXT(read);
    return fails(READ) ? -1 : next(fd, bytes, n);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t from)
{
    NEXT(pread);
    return fails(READ) ? -1 : next(fd, bytes, n, from);
}

ssize_t pread64(int fd, void *bytes, size_t n, off_t from) __attribute__((alias("pread")));

ssize_t write(int fd, const void *bytes, size_t n)
{
    NEXT(write);
    return fd != STDERR_FILENO && fails(WRITE) ? -1 : next(fd, bytes, n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t to)
{
    NEXT(pwrite);
    return fails(WRITE) ? -1 : next(fd, bytes, n, to);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t to) __attribute__((alias("pwrite")));

ssize_t writev(int fd, const struct iovec *v, int n)
{
    NEXT(writev);
    return fd != STDERR_FILENO && fails(WRITE) ? -1 : next(fd, v, n);
}

/* What a stream writes when its buffer is emptied. */
int fflush(FILE *file)
{
    NEXT(fflush);
    if (file == stderr || !fails(WRITE))
        return next(file);
    return EOF;
}

int fsync(int fd)
{
    NEXT(fsync);
    return fails(SYNC) ? -1 : next(fd);
}

int fdatasync(int fd)
{
    NEXT(fdatasync);
    return fails(SYNC) ? -1 : next(fd);
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    return fails(RENAME) ? -1 : next(from, to);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    NEXT(renameat);
    return fails(RENAME) ? -1 : next(from_dir, from, to_dir, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    NEXT(renameat2);
    return fails(RENAME) ? -1 : next(from_dir, from, to_dir, to, flags);
}

int link(const char *from, const char *to)
{
    NEXT(link);
    return fails(RENAME) ? -1 : next(from, to);
}

/* The descriptor is closed all the same, as the kernel does. */
int close(int fd)
{
    NEXT(close);
    const bool now = fails(CLOSE);
    const int result = next(fd);
    if (now)
        errno = error;
    return now ? -1 : result;
}

void *mmap(void *to, size_t n, int protection, int flags, int fd, off_t from)
{
    NEXT(mmap);
    return fails(MMAP) ? MAP_FAILED : next(to, n, protection, flags, fd, from);
}

void *mmap64(void *to, size_t n, int protection, int flags, int fd, off_t from) __attribute__((alias("mmap")));

#define STAT_OF(name)                                                                                                                      \
    int name(const char *restrict path, struct stat *restrict s)                                                                           \
    {                                                                                                                                      \
        NEXT(name);                                                                                                                        \
        return fails(STAT) ? -1 : next(path, s);                                                                                           \
    }
STAT_OF(stat)
STAT_OF(lstat)
int stat64(const char *restrict path, struct stat64 *restrict s) __attribute__((alias("stat")));
int lstat64(const char *restrict path, struct stat64 *restrict s) __attribute__((alias("lstat")));

int fstat(int fd, struct stat *s)
{
    NEXT(fstat);
    return fails(STAT) ? -1 : next(fd, s);
}

int fstat64(int fd, struct stat64 *s) __attribute__((alias("fstat")));

int fstatat(int dir, const char *restrict path, struct stat *restrict s, int flags)
{
    NEXT(fstatat);
    return fails(STAT) ? -1 : next(dir, path, s, flags);
}

int fstatat64(int dir, const char *restrict path, struct stat64 *restrict s, int flags) __attribute__((alias("fstatat")));

int access(const char *path, int mode)
{
    NEXT(access);
    return fails(STAT) ? -1 : next(path, mode);
}

int unlink(const char *path)
{
    NEXT(unlink);
    return fails(UNLINK) ? -1 : next(path);
}

int unlinkat(int dir, const char *path, int flags)
{
    NEXT(unlinkat);
    return fails(UNLINK) ? -1 : next(dir, path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    return fails(MKDIR) ? -1 : next(path, mode);
}

int ftruncate(int fd, off_t size)
{
    NEXT(ftruncate);
    return fails(TRUNCATE) ? -1 : next(fd, size);
}

int ftruncate64(int fd, off_t size) __attribute__((alias("ftruncate")));

static int (*program)(int, char **, char **);

static int counted(int argc, char **argv, char **envp)
{
    running = true;
    return program(argc, argv, envp);
}

__attribute__((destructor)) static void tell(void)
{
    running = false;
    const char *path = getenv("NH_FAULT_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    for (int k = 0; f && k < KINDS; k++)
        fprintf(f, "%s %ld\n", names[k], calls[k]);
    if (f)
        fclose(f);
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    NEXT(__libc_start_main);
    char kind[16], tail[8] = "";
    const char *fault = getenv("NH_FAULT");
    if (fault && sscanf(fault, "%15[a-z]:%ld:%d:%7[a-z]", kind, &at, &error, tail) >= 3)
        for (int k = 0; k < KINDS; k++)
            if (strcmp(kind, names[k]) == 0)
                failing = (enum kind)k;
    all = strcmp(tail, "all") == 0;
    unsetenv("LD_PRELOAD");
    program = main;
    return next(counted, argc, argv, init, fini, rtld_fini, stack_end);
}
