// SPDX-License-Identifier: GPL-3.0-or-later
/** A scratch folder for the test at hand: fixtures of a test case. */
#ifndef NH_TEST_FOLDER_H
#define NH_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

static char folder[256];

static inline void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/nh-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder))
        perror(folder), abort();
}

static inline void remove_folder(void)
{
    char command[sizeof folder + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        perror(folder);
}

#endif
