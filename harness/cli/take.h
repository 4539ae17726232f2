// SPDX-License-Identifier: GPL-3.0-or-later
/** Options of commands that have few of them. */
#ifndef NH_TAKE_H
#define NH_TAKE_H

/** Takes --NAME=VALUE or --NAME VALUE, name with its dashes, at argv[*at]: 1 and *value, 0 where the word is another
 * one, NH_USAGE where the value is missing. */
int nh_take_value(int argc, char **argv, int *at, const char *name, const char *placeholder, const char **value);

#endif
