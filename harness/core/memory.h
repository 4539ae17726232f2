// SPDX-License-Identifier: GPL-3.0-or-later
/** How much memory there is, and the buffers of the BLAS library. */
#ifndef NH_MEMORY_H
#define NH_MEMORY_H

#include <stdbool.h>

/** Bytes that a process of the memory cgroups listed in the file `list` (/proc/self/cgroup) may still have: the least that its own
 *  cgroup and those above it leave below `mount` (/sys/fs/cgroup), version 1 or 2. Page cache counts as free. Infinity without limit. */
double nh_cgroup_room(const char *list, const char *mount);

enum { NH_SHORTAGE_SIZE = 256 };

/** Whether `bytes` are too many for the machine, for the limits of this process (ulimit -v, -d) or for its cgroups, where `threads`
 *  threads call BLAS. Then `shortage` is what to print behind "this run ", with the limit that would do, up to "try ". */
bool nh_memory_is_short(double bytes, int threads, char shortage[NH_SHORTAGE_SIZE]);

/** Lets OpenBLAS map now the buffers that it would map when n threads first call it at once: it asks for them again and again for
 *  ever where there is no room. False where there is none. One thread at a time. */
bool nh_blas_take(int n);

/** To be called first in main(). OpenBLAS starts a thread for each CPU as it is loaded, each with a buffer, and waits for them at the
 *  end. Where memory is limited, the program starts again and tells OpenBLAS to start none. */
void nh_blas_alone(char **argv);

#endif
