// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/memory.h"

#include "harness/core/err.h"

#include <cblas.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

/* Of OpenBLAS, not in its headers; another library has no such buffers. */
extern void *blas_memory_alloc(int place) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

/* The number behind `key` in a file, which is its first word or, with key = "", the first of the file; infinity where it is not there. */
static double number_in(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    char line[256];
    double value = (double)INFINITY, x;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), " %lf", &x) == 1) {
            value = x;
            break;
        }
    if (f)
        fclose(f);
    return value;
}

/* What one cgroup leaves: its limit less what is in use and cannot be given back. */
static double left_in(const char *folder, const char *limit, const char *usage, const char *cache)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, limit);
    const double most = number_in(path, "");
    snprintf(path, sizeof path, "%s/%s", folder, usage);
    const double used = number_in(path, "");
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    const double given_back = number_in(path, cache);
    const double left = most - (isinf(used) ? 0 : used) + (isinf(given_back) ? 0 : given_back);
    return left > 0 ? left : 0;
}

double nh_cgroup_room(const char *list, const char *mount)
{
    FILE *f = fopen(list, "re");
    char line[4096 + 64], folder[4300];
    double room = (double)INFINITY;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        const bool second = strcmp(line, "0:") == 0 || strcmp(controllers, ":") == 0;
        char named[80];
        snprintf(named, sizeof named, ",%.70s,", controllers + 1);
        if (!second && !strstr(named, ",memory,"))
            continue;
        const int root = snprintf(folder, sizeof folder, "%s%s", mount, second ? "" : "/memory");
        snprintf(folder + root, sizeof folder - (size_t)root, "%s", path);
        for (;;) { /* from the own cgroup up to the root */
            room = fmin(room, second ? left_in(folder, "memory.max", "memory.current", "inactive_file ")
                                     : left_in(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "));
            char *slash = strrchr(folder, '/');
            if (!slash || slash < folder + root)
                break;
            *slash = '\0';
        }
    }
    if (f)
        fclose(f);
    return room;
}

/* ---- buffers of OpenBLAS ---- */

static double buffer_size = 0x1p27; /* as it is on most machines, until one has been measured */
static int buffers_taken;

struct use {
    double space, data; /* bytes of address space; of those, writable ones of this process alone */
};

static struct use use_now(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    double size = 0, data = 0, page = (double)sysconf(_SC_PAGESIZE);
    if (f && fscanf(f, "%lf %*f %*f %*f %*f %lf", &size, &data) != 2)
        size = data = 0;
    if (f)
        fclose(f);
    return (struct use){size * page, data * page};
}

static bool has_room(double bytes)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return false;
    munmap(p, (size_t)bytes);
    return true;
}

static void out_of_time(int signal)
{
    (void)signal;
    nh_no_memory();
}

/* Between the look for room and the mapping others may take it: then OpenBLAS would ask for ever. This much time of the CPU is never
 * needed for mappings. */
static void watch(int seconds)
{
    const struct itimerval time = {.it_value.tv_sec = seconds};
    signal(SIGPROF, seconds ? out_of_time : SIG_DFL);
    setitimer(ITIMER_PROF, &time, NULL);
}

/* Threads that OpenBLAS was built for; it ends the program where more than twice as many buffers are in use. */
static int most_buffers(void)
{
    const char *text = strstr(openblas_get_config(), "MAX_THREADS=");
    const int n = text ? atoi(text + strlen("MAX_THREADS=")) : 0;
    return n > 0 ? n : 1;
}

bool nh_blas_take(int n)
{
    if (!blas_memory_alloc || !blas_memory_free)
        return true;
    n = n < most_buffers() ? n : most_buffers();
    if (n <= buffers_taken)
        return true;
    void **held = nh_have(malloc((size_t)n * sizeof *held));
    int i = 0;
    watch(2);
    for (; i < n && (i < buffers_taken || has_room(buffer_size)); i++) {
        const double before = use_now().space;
        held[i] = blas_memory_alloc(0);
        const double size = use_now().space - before;
        if (buffers_taken == 0 && i == 0 && size > 0)
            buffer_size = size;
    }
    watch(0);
    buffers_taken = i > buffers_taken ? i : buffers_taken;
    for (int k = 0; k < i; k++)
        blas_memory_free(held[k]);
    free(held);
    return i == n;
}

static double limit(int resource)
{
    struct rlimit r;
    return getrlimit((__rlimit_resource_t)resource, &r) || r.rlim_cur == RLIM_INFINITY ? (double)INFINITY : (double)r.rlim_cur;
}

void nh_blas_alone(char **argv)
{
    const char *set = getenv("OPENBLAS_NUM_THREADS");
    if (isinf(limit(RLIMIT_AS)) && isinf(limit(RLIMIT_DATA)))
        return;
    mallopt(M_ARENA_MAX, 1); /* each further arena of malloc takes 128 MiB of address space */
    if (set && strcmp(set, "1") == 0)
        return;
    if (setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0)
        execv("/proc/self/exe", argv);
}

/* ---- the whole ---- */

static double machine_room(void)
{
    /* MemAvailable counts what the page cache would give back; free pages are the floor where /proc is not there */
    const double kib = number_in("/proc/meminfo", "MemAvailable:");
    return isinf(kib) ? (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) : kib * 1024;
}

bool nh_memory_is_short(double bytes, int threads, char shortage[NH_SHORTAGE_SIZE])
{
    const double free_bytes = machine_room(), group = nh_cgroup_room("/proc/self/cgroup", "/sys/fs/cgroup");
    if (bytes > free_bytes) {
        snprintf(shortage, NH_SHORTAGE_SIZE, "needs %.1f GiB of memory and %.1f GiB are free;", bytes / 0x1p30, free_bytes / 0x1p30);
        return true;
    }
    if (bytes > group) {
        snprintf(shortage, NH_SHORTAGE_SIZE, "needs %.0f MiB of memory and the limit of its cgroup leaves %.0f MiB; raise it by %.0f MiB, or",
                 ceil(bytes / 0x1p20), floor(group / 0x1p20), ceil((bytes - group) / 0x1p20));
        return true;
    }
    const struct {
        int resource;
        const char *what, *option;
    } limits[] = {{RLIMIT_AS, "address space", "-v"}, {RLIMIT_DATA, "data", "-d"}};
    nh_blas_take(1); /* to measure a buffer, where there is room for one */
    const double stack = fmin(limit(RLIMIT_STACK), 0x1p23), buffers = fmax(threads - buffers_taken, 0) * buffer_size;
    const double more = bytes + bytes / 4 + 0x1p26 + buffers + (threads - 1) * stack; /* with what comes and goes, and gaps */
    for (int i = 0; i < 2; i++) {
        const double have = limit(limits[i].resource), now = i ? use_now().data : use_now().space;
        if (now + more <= have)
            continue;
        snprintf(shortage, NH_SHORTAGE_SIZE,
                 "needs %.0f MiB of %s, buffers of BLAS for %d thread%s included, and the limit is %.0f MiB; raise it with ulimit %s %.0f, or",
                 ceil((now + more) / 0x1p20), limits[i].what, threads, threads > 1 ? "s" : "", floor(have / 0x1p20), limits[i].option,
                 ceil((now + more) / 1024) + 1024); /* what is in use now differs by some pages from start to start */
        return true;
    }
    return false;
}
