// SPDX-License-Identifier: GPL-3.0-or-later
/** What overflowed, and what would overflow elsewhere: the tables behind a run that has the probe headroom, and of `harness report`. */
#ifndef NH_HEADROOM_H
#define NH_HEADROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Forward values stored at one site of one sublayer. */
struct nh_site_line {
    int layer;
    const char *site; /**< a name of nh_site_names */
    uint64_t overflow; /**< in the run's own formats */
    double max_abs;    /**< in fp32; nan = not known */
};

/** Sites by overflow count; the headroom of every site, least first, in the formats of half precision; what would overflow in them,
 *  and the largest power of two that all values may be multiplied with. Lines in the order of execution. False where no
 *  value in fp32 is known: then only the first table is printed. */
bool nh_headroom_print(FILE *file, const struct nh_site_line *lines, size_t n);

#endif
