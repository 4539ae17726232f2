// SPDX-License-Identifier: GPL-3.0-or-later
/** How a test program ends: its suite, run in one process, told as TAP. And the sum of products that many tests need. */
#ifndef NH_TEST_SUITE_H
#define NH_TEST_SUITE_H

#include <check.h>
#include <stddef.h>

/** Runs a suite of one case; the exit code of the program. No fork: threads may have run, and a fork would hang. */
static inline int run_suite(Suite *suite, TCase *tests)
{
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

static inline double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

#endif
