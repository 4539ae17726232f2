// SPDX-License-Identifier: GPL-3.0-or-later
/** One team of threads for the whole run, single-threaded BLAS inside. */
#ifndef NH_THREADS_H
#define NH_THREADS_H

/** CPUs that this process may run on. */
int nh_threads_available(void);

/** Prepares n OpenMP threads. Where they are as many as the CPUs, each is bound to one, so that none waits for another to be
 *  moved; fewer threads stay free, since other runs may be beside this one. NH_FAILED where there is no room for n threads or for
 *  what BLAS needs for each. */
int nh_threads_start(int n);

#endif
