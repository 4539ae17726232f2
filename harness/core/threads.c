// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/threads.h"

#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>

int nh_threads_available(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

void nh_threads_start(int n)
{
    /* workspaces come and go by the thousand: keep their pages instead of having the system clear new ones each time */
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    omp_set_dynamic(0);
    omp_set_max_active_levels(1);
    cpu_set_t set;
    if (n < 2 || sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) != n)
        return;
#pragma omp parallel num_threads(n)
    {
        int skip = omp_get_thread_num();
        size_t cpu = 0;
        while (!CPU_ISSET(cpu, &set) || skip-- > 0)
            cpu++;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one); /* a wish: where it is refused, the run is only slower */
    }
}
