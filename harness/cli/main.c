// SPDX-License-Identifier: GPL-3.0-or-later
/** Chooses the command, prints its error, makes the exit code. The locale stays "C": setlocale is never called. */
#include "harness/cli/cli.h"
#include "harness/cli/compare.h"
#include "harness/cli/near.h"
#include "harness/cli/op.h"
#include "harness/cli/options.h"
#include "harness/cli/study.h"
#include "harness/core/err.h"
#include "harness/core/fmt.h"
#include "harness/core/memory.h"
#include "results/file.h"
#include "results/text.h"

#include <errno.h>
#include <fcntl.h>
#include <gsl/gsl_errno.h>
#include <jansson.h>
#include <obstack.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int help_command(int argc, char **argv);

const struct nh_command nh_commands[] = {
    {"run", nh_cmd_run, "[OPTIONS]", "initialise a model, run it on one batch, probe it, write the results", nh_options_help},
    {"list", nh_cmd_list, "TOPIC", "names and one line on each", nh_list_help},
    {"describe", nh_cmd_describe, "LAYOUT", "equation, gains, law, source, cost of a layout", NULL},
    {"check", nh_cmd_check, "[LAYOUT|all|laws|gradients]", "derivatives of a layout or of all; laws, gradient laws", NULL},
    {"compare", nh_cmd_compare, "DIR|CSV ...", "runs in groups side by side, or against a baseline", nh_compare_help},
    {"export", nh_cmd_export, "DIR [OPTIONS]", "a model, at its start or trained, as a Hugging Face folder", nh_export_help},
    {"report", nh_cmd_report, "DIR ...", "what overflowed in a run, and what would in fp16, bf16 and fp8", NULL},
    {"study", nh_cmd_study, "NAME [OPTIONS]", "a claim put to the test: its runs, tables, figures, verdict", nh_study_help},
    {"op", nh_cmd_op, "NAME --in FILE ...", "one operation on the tensors of a file, with its counters", nh_op_help},
    {"manual", nh_cmd_manual, "", "this help as a manual page: man -l <(harness manual)", NULL},
    {"completion", nh_cmd_completion, "", "completion for bash: source <(harness completion)", NULL},
    {"help", help_command, "[COMMAND]", "this help, or that of a command", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

const char nh_title[] = "numerical stability of deep transformer stacks in emulated half precision";

const char nh_examples[] = "  harness --layout sandwich --depth 60 --dtype fp16\n"
                           "  harness --layout pre --depth 60 --dtype e4m10 --probes rms,overflow --out results/runs/pre-e4m10\n"
                           "  harness list layouts\n";

const char *const nh_exit_codes[3] = {"done, a diverged run too", "failed", "usage"};

char *nh_command_help(const struct nh_command *command)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    if (file && command->help)
        command->help(file);
    if (!file || fclose(file)) {
        free(text);
        text = NULL;
        nh_fail(NH_FAILED, "out of memory");
    }
    return text;
}

static void command_help(const struct nh_command *command)
{
    printf("Usage: harness %s%s%s\n\n%c%s.\n", command->name, *command->arguments ? " " : "", command->arguments,
           command->what[0] - 'a' + 'A', command->what + 1);
    if (command->help) {
        putchar('\n');
        command->help(stdout);
    }
}

static void help(void)
{
    printf("harness: %s\n\nUsage:\n", nh_title);
    for (const struct nh_command *c = nh_commands; c->name; c++) {
        char call[64];
        snprintf(call, sizeof call, c > nh_commands ? "harness %s %s" : "harness [%s] %s", c->name, c->arguments);
        if (strlen(call) < 29)
            printf("  %-29s%s\n", call, c->what);
        else
            printf("  %s\n%31s%s\n", call, "", c->what);
    }
    puts("  --help, --version            alone or behind any command\n");
    nh_options_help(stdout);
    printf("\nExamples\n%s\nExit codes: 0 %s; 1 %s; 2 %s.\n", nh_examples, nh_exit_codes[0], nh_exit_codes[1], nh_exit_codes[2]);
}

static bool has_word(int argc, char **argv, const char *word, const char *other)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], word) == 0 || strcmp(argv[i], other) == 0)
            return true;
    return false;
}

static int find_command(const struct nh_command **command, const char *name)
{
    struct nh_near near = nh_near_start(name, "");
    nh_near_synonym(&near, "command");
    for (const struct nh_command *c = nh_commands; c->name; c++) {
        nh_near_try(&near, c->name);
        if (strcmp(c->name, name) == 0) {
            *command = c;
            return NH_OK;
        }
    }
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "there is no command '%.60s'%s ('harness --help' shows all)", name, nh_near_text(&near, hint));
}

static int help_command(int argc, char **argv)
{
    const struct nh_command *command = NULL;
    if (argc > 1)
        return nh_fail(NH_USAGE, "help takes one command, such as 'harness help list'");
    const int status = argc ? find_command(&command, argv[0]) : NH_OK;
    if (!status)
        command ? command_help(command) : help();
    return status;
}

static int dispatch(int argc, char **argv)
{
    const struct nh_command *command = NULL;
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
        return (command ? command : nh_commands)->run(argc, argv);
    return NH_OK;
}

/* A descriptor 0, 1 or 2 that came closed would be the next file opened, and talk would go into results. */
static void occupy_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY); /* takes the lowest, fd; its use is an error */
}

static void end_without_memory(void)
{
    nh_parts_remove();
    nh_text_line(stderr, "harness: %s", nh_error());
}

static void *json_memory(size_t size)
{
    return nh_have(malloc(size));
}

/* GSL's own callers of its allocators do not all look at what they get. Its other errors are told by status. */
static void gsl_failed(const char *reason, const char *file, int line, int error)
{
    (void)reason, (void)file, (void)line;
    if (error == GSL_ENOMEM)
        nh_no_memory();
}

/* Libraries that do not always tell that memory has run out end the program. */
static void prepare_for_no_memory(void)
{
    nh_on_no_memory(end_without_memory);
    obstack_alloc_failed_handler = nh_no_memory;
    json_set_alloc_funcs(json_memory, free);
    gsl_set_error_handler(gsl_failed);
}

static volatile sig_atomic_t reader_gone;

static void on_limit(int number)
{
    if (number == SIGPIPE)
        reader_gone = true;
}

/* A limit on file sizes, or a pipe whose reader has gone, is an error of the write and not the end: a training outlives the reader of
 * its talk. Signals that have a handler are themselves again in a program that is started; ignored ones would not be. */
static void listen_to_limits(void)
{
    const struct sigaction action = {.sa_handler = on_limit, .sa_flags = (int)SA_RESTART};
    sigaction(SIGXFSZ, &action, NULL);
    sigaction(SIGPIPE, &action, NULL);
}

/* Who has read enough wants no word about it: the end is that of any program whose reader has gone. */
static void end_like_a_pipe(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
}

int main(int argc, char **argv)
{
    nh_blas_alone(argv);
    listen_to_limits();
    occupy_standard_streams();
    prepare_for_no_memory();
    int status = nh_fmt_self_check();
    if (!status)
        status = dispatch(argc > 0 ? argc - 1 : 0, argv + 1);
    const bool unsaid = fflush(stdout) || ferror(stdout);
    if (unsaid && reader_gone && !status)
        end_like_a_pipe();
    if (unsaid && !status)
        status = nh_fail(NH_FAILED, "cannot write to standard output: %s; give it a place with room", strerror(errno));
    if (status)
        nh_text_line(stderr, "harness: %s", nh_error());
    return status == NH_OK ? 0 : status == NH_USAGE ? 2 : 1;
}
