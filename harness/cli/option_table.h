// SPDX-License-Identifier: GPL-3.0-or-later
/** The table of a run's options, in the order of config.csv, and what options.c and options_tell.c do with its rows. */
#ifndef NH_OPTION_TABLE_H
#define NH_OPTION_TABLE_H

#include "harness/cli/options.h"
#include "harness/cli/value.h"

extern const struct nh_option nh_option_table[];
extern const int nh_option_count;

/** The row of a name of `length` bytes, without dashes; NULL where there is none. */
const struct nh_option *nh_option_find(const char *name, size_t length);

/** Why an option has no effect, and what would work; NULL where it has one. */
const char *nh_option_idle(const struct nh_option *option, const struct nh_config *c);

/** What is in force where nobody says anything. */
void nh_options_defaults(struct nh_options *o);

#endif
