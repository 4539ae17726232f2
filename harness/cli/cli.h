// SPDX-License-Identifier: GPL-3.0-or-later
/** The commands. Each takes argv[0..argc), the words behind its own name, and returns a status of err.h; it writes data
 *  to stdout, talk to stderr, and leaves the printing of its error to main(). --help and --version never get here. */
#ifndef NH_CLI_H
#define NH_CLI_H

#include <stdio.h>

int nh_cmd_run(int argc, char **argv);
int nh_cmd_list(int argc, char **argv);
int nh_cmd_describe(int argc, char **argv);
int nh_cmd_check(int argc, char **argv);

/** What `harness list --help` says beyond its usage: the topics. */
void nh_list_help(FILE *file);

/** The version of the program, as "0.1.0". */
extern const char nh_version[];

#endif
