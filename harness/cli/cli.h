// SPDX-License-Identifier: GPL-3.0-or-later
/** The commands. Each takes argv[0..argc), the words behind its own name, and returns a status of err.h; it writes data
 *  to stdout, talk to stderr, and leaves the printing of its error to main(). --help and --version never get here. */
#ifndef NH_CLI_H
#define NH_CLI_H

#include <stdio.h>

int nh_cmd_run(int argc, char **argv);
int nh_cmd_list(int argc, char **argv);
int nh_cmd_describe(int argc, char **argv);
int nh_cmd_export(int argc, char **argv);
int nh_cmd_check(int argc, char **argv);
int nh_cmd_report(int argc, char **argv);
int nh_cmd_manual(int argc, char **argv);
int nh_cmd_completion(int argc, char **argv);

/** What `harness list --help` says beyond its usage: the topics. */
void nh_list_help(FILE *file);

/** What `harness export --help` says beyond its usage: the option of its own. */
void nh_export_help(FILE *file);

/** The version of the program, as "0.1.0". */
extern const char nh_version[];

/* What the program says of itself, in main.c: help, manual and completion are made of it. */

struct nh_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *arguments;    /**< "[LAYOUT|all]": what is to be put in is in capitals */
    const char *what;         /**< one line */
    void (*help)(FILE *file); /**< what follows its usage, or NULL */
};

/** All commands, closed by a NULL name; the name of the first may be left out. */
extern const struct nh_command nh_commands[];
extern const char nh_title[];              /**< one line: what the program is about */
extern const char nh_examples[];           /**< lines, each behind two blanks */
extern const char *const nh_exit_codes[3]; /**< what each means */

/** What the command's help writes, "" where it has none; to be freed. NULL and nh_fail where there is no memory. */
char *nh_command_help(const struct nh_command *command);

#endif
