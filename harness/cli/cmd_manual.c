// SPDX-License-Identifier: GPL-3.0-or-later
/** harness manual: the help as a manual page, harness(1), in the man(7) macros. */
#include "harness/cli/cli.h"
#include "harness/cli/options.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"
#include "results/schema.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void put(char c)
{
    static const char special[] = "\\-'`^~\"";
    static const char *const escapes[] = {"\\e", "\\-", "\\(aq", "\\(ga", "\\(ha", "\\(ti", "\\(dq"};
    const char *at = strchr(special, c);
    if (at)
        fputs(escapes[at - special], stdout);
    else
        putchar(c);
}

/* Writes plain text. A dot would begin a request where it begins a line, so something empty goes before it. */
static void text(const char *s)
{
    if (*s == '.')
        fputs("\\&", stdout);
    for (; *s; s++)
        put(*s);
}

/* Writes a line of a synopsis: capitals stand for something and are italic, other words are typed as they are, bold. */
static void synopsis(const char *s)
{
    char font = 'R';
    if (*s == '.')
        fputs("\\&", stdout);
    for (; *s; s++) {
        const char new = font != 'R' && (isalnum((unsigned char)*s) || strchr("-_.", *s)) ? font
                         : isupper((unsigned char)*s)                                     ? 'I'
                         : isalnum((unsigned char)*s) || *s == '-'                        ? 'B'
                                                                                          : 'R';
        if (new != font)
            printf("\\f%c", new);
        font = new;
        put(*s);
    }
    puts(font == 'R' ? "" : "\\fR");
}

static void entry(const char *left, const char *what)
{
    puts(".TP");
    synopsis(left);
    text(what);
    putchar('\n');
}

/* What a command's help says, in its two columns, as paragraphs and entries. */
static void columns(char *help)
{
    bool in_text = false;
    for (char *line; (line = strsep(&help, "\n"));) {
        const size_t blanks = strspn(line, " ");
        char *words = line + blanks;
        if (*words == '\0') {
            in_text = false;
            continue;
        }
        char *right = blanks == 2 ? strstr(words, "  ") : NULL;
        if (right) {
            *right++ = '\0';
            puts(".TP");
            synopsis(words);
            words = right + strspn(right, " ");
        } else if (blanks < 3 && !in_text) {
            puts(".PP");
        }
        in_text = blanks < 3 && !right;
        text(words);
        putchar('\n');
    }
}

/* "harness list TOPIC", from the given form of the first two words. */
static const char *call(const struct nh_command *c, const char *form)
{
    static char text[64];
    const int n = snprintf(text, sizeof text, form, c->name);
    snprintf(text + n, sizeof text - (size_t)n, "%s%s", *c->arguments ? " " : "", c->arguments);
    return text;
}

static int command(const struct nh_command *c)
{
    entry(call(c, "harness %s"), c->what);
    if (c->help == nh_options_help) /* has a section of its own */
        return NH_OK;
    char *help = nh_command_help(c);
    if (!help)
        return NH_FAILED;
    if (*help) {
        puts(".RS");
        columns(help);
        puts(".RE");
    }
    free(help);
    return NH_OK;
}

static void option(void *arg, const struct nh_option *o, const char *left, const char *what)
{
    (void)arg;
    if (o->group) {
        fputs(".SS ", stdout);
        text(o->group);
        putchar('\n');
    }
    entry(left, what);
}

static void file(enum nh_table table)
{
    char name[64];
    snprintf(name, sizeof name, "%s.csv", nh_tables[table].name);
    entry(name, nh_tables[table].row);
    size_t n;
    const struct nh_column *c = nh_table_columns(table, &n);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? " " : "(columns ", stdout);
        text(c[i].name);
    }
    puts(")");
}

int nh_cmd_manual(int argc, char **argv)
{
    if (argc > 0)
        return nh_fail(NH_USAGE, "'%.60s' is too much; it is 'harness manual' alone", argv[0]);
    printf(".TH HARNESS 1 \"\" \"harness %s\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\nharness \\- %s\n.SH SYNOPSIS\n",
           nh_version, nh_title);
    for (const struct nh_command *c = nh_commands; c->name; c++) {
        synopsis(call(c, c > nh_commands ? "harness %s" : "harness [%s]"));
        if (c[1].name)
            puts(".br");
    }
    puts(".SH DESCRIPTION\n"
         "Builds a transformer stack of any depth with the block layout that is named, runs it on one batch in an\n"
         "emulated number format, and tells for every layer how large the residual stream and its gradient are, how\n"
         "each sublayer\\(aqs Jacobian stretches, and which stored value left the format first.\n"
         ".SH COMMANDS");
    int status = NH_OK;
    for (const struct nh_command *c = nh_commands; c->name && !status; c++)
        status = command(c);
    puts(".SH OPTIONS\nOptions of");
    synopsis("harness run");
    puts("with their defaults in brackets. An option is given as");
    synopsis("--NAME VALUE");
    puts("or");
    synopsis("--NAME=VALUE");
    puts("and a switch may stand alone.");
    nh_options_tell(option, NULL);
    puts(".SS General");
    entry("--help, --version", "alone or behind any command");
    puts(".SH FILES\nA run writes into its folder:");
    for (int i = 0; i < NH_TABLE_COUNT; i++)
        file((enum nh_table)i);
    entry("run.json", "configuration, versions, status, first offenders, wall time and memory; written last");
    puts(".PP");
    synopsis("harness list columns");
    puts("tells what each column means.\n.SH EXIT STATUS");
    for (size_t i = 0; i < sizeof nh_exit_codes / sizeof *nh_exit_codes; i++) {
        const char code[] = {(char)('0' + i), '\0'};
        entry(code, nh_exit_codes[i]);
    }
    puts(".SH EXAMPLES\n.nf");
    for (const char *s = nh_examples + strspn(nh_examples, " "); *s; s += strspn(s, " "))
        do
            put(*s);
        while (*s++ != '\n');
    puts(".fi");
    return status;
}
