// SPDX-License-Identifier: GPL-3.0-or-later
/** Chooses the command, prints its error, makes the exit code. The locale stays "C": setlocale is never called. */
#include "harness/cli/cli.h"
#include "harness/cli/near.h"
#include "harness/cli/options.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"
#include "harness/core/fmt.h"

#include <errno.h>
#include <fcntl.h>
#include <gsl/gsl_errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *arguments;
    const char *what;
    void (*help)(FILE *file); /* what follows its usage, or NULL */
} commands[] = {
    {"run", nh_cmd_run, "[OPTIONS]", "initialise a model, run it on one batch, probe it, write the results",
     nh_options_help},
    {"list", nh_cmd_list, "TOPIC", "names and one line on each", nh_list_help},
    {"describe", nh_cmd_describe, "LAYOUT", "equation, gains, law, source, cost of a layout", NULL},
    {"check", nh_cmd_check, "[LAYOUT|all]", "numerical self-tests of a layout", NULL},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void command_help(const struct command *command)
{
    printf("Usage: harness %s %s\n\n%c%s.\n", command->name, command->arguments, command->what[0] - 'a' + 'A',
           command->what + 1);
    if (command->help) {
        putchar('\n');
        command->help(stdout);
    }
}

static void help(void)
{
    puts("harness: numerical stability of deep transformer stacks in emulated half precision\n\nUsage:");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char call[64];
        snprintf(call, sizeof call, i ? "harness %s %s" : "harness [%s] %s", commands[i].name, commands[i].arguments);
        printf("  %-29s%s\n", call, commands[i].what);
    }
    puts("  --help, --version            alone or behind any command\n");
    nh_options_help(stdout);
    puts("\nExamples\n"
         "  harness --layout sandwich --depth 60 --dtype fp16\n"
         "  harness --layout pre --depth 60 --dtype e4m10 --probes rms,overflow --out results/runs/pre-e4m10\n"
         "  harness list layouts\n\n"
         "Exit codes: 0 done, a diverged run too; 1 failed; 2 usage.");
}

static bool has_word(int argc, char **argv, const char *word, const char *other)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], word) == 0 || strcmp(argv[i], other) == 0)
            return true;
    return false;
}

static int find_command(const struct command **command, const char *name)
{
    struct nh_near near = nh_near_start(name, "");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        nh_near_try(&near, commands[i].name);
        if (strcmp(commands[i].name, name) == 0) {
            *command = &commands[i];
            return NH_OK;
        }
    }
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "there is no command '%.60s'%s ('harness --help' shows all)", name,
                   nh_near_text(&near, hint));
}

static int dispatch(int argc, char **argv)
{
    const struct command *command = NULL;
    if (argc > 0 && argv[0][0] != '-') {
        const int status = find_command(&command, argv[0]);
        if (status)
            return status;
        argc--, argv++;
    }
    if (has_word(argc, argv, "--help", "-h"))
        command ? command_help(command) : help();
    else if (has_word(argc, argv, "--version", "--version"))
        printf("harness %s\n", nh_version);
    else
        return (command ? command : commands)->run(argc, argv);
    return NH_OK;
}

/* A descriptor 0, 1 or 2 that came closed would be the next file opened, and talk would go into results. */
static void occupy_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY); /* takes the lowest, fd; its use is an error */
}

/* One line, whatever the user's words in it: bytes that are no printable character become \xNN. */
static void print_error(const char *sentence)
{
    char line[4 * 1024 + 16];
    size_t n = (size_t)snprintf(line, sizeof line, "harness: ");
    while (*sentence && n + 8 < sizeof line) {
        const size_t length = nh_utf8(sentence);
        if (length == 0)
            n += (size_t)snprintf(line + n, sizeof line - n, "\\x%02x", (unsigned char)*sentence);
        else
            memcpy(line + n, sentence, length), n += length;
        sentence += length ? length : 1;
    }
    line[n++] = '\n';
    fwrite(line, 1, n, stderr);
}

int main(int argc, char **argv)
{
    occupy_standard_streams();
    gsl_set_error_handler_off();
    int status = nh_fmt_self_check();
    if (!status)
        status = dispatch(argc > 0 ? argc - 1 : 0, argv + 1);
    if ((fflush(stdout) || ferror(stdout)) && !status)
        status = nh_fail(NH_FAILED, "cannot write to standard output: %s; give it a place with room", strerror(errno));
    if (status)
        print_error(nh_error());
    return status == NH_OK ? 0 : status == NH_USAGE ? 2 : 1;
}
