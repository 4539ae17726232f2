// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/threads.h"

#include "harness/core/err.h"
#include "harness/core/memory.h"

#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

int nh_threads_available(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static void *wait_for(void *mutex)
{
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    return NULL;
}

/* Whether n threads can be there at once: OpenMP ends the program where they cannot. */
static bool can_start(int n)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = nh_have(malloc(((size_t)n + 1) * sizeof *threads));
    int i = 0;
    pthread_mutex_lock(&mutex);
    while (i < n && pthread_create(&threads[i], NULL, wait_for, &mutex) == 0)
        i++;
    pthread_mutex_unlock(&mutex);
    for (int k = 0; k < i; k++)
        pthread_join(threads[k], NULL);
    free(threads);
    return i == n;
}

int nh_threads_start(int n)
{
    /* workspaces come and go by the thousand: keep their pages instead of having the system clear new ones each time */
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    char shortage[NH_SHORTAGE_SIZE];
    if (nh_memory_is_short(0, n, shortage))
        return nh_fail(NH_FAILED, "BLAS %s try fewer threads", shortage);
    if (!nh_blas_take(n))
        return nh_fail(NH_FAILED, "BLAS finds no memory for its buffers; free some, raise the limit on it or try fewer threads");
    if (!can_start(n - 1))
        return nh_fail(NH_FAILED, "the system does not start %d threads; raise the limit (ulimit -v, -u) or try fewer --threads", n);
    omp_set_dynamic(0);
    omp_set_max_active_levels(1);
    cpu_set_t set;
    const bool bound = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == n;
    if (n < 2)
        return NH_OK;
#pragma omp parallel num_threads(n)
    if (bound) {
        int skip = omp_get_thread_num();
        size_t cpu = 0;
        while (!CPU_ISSET(cpu, &set) || skip-- > 0)
            cpu++;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one); /* a wish: where it is refused, the run is only slower */
    }
    return NH_OK;
}
