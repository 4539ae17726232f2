// SPDX-License-Identifier: GPL-3.0-or-later
/** harness completion: a completion script for bash. What can be completed is written into it from the tables. */
#include "harness/cli/cli.h"
#include "harness/cli/names.h"
#include "harness/cli/op.h"
#include "harness/cli/options.h"
#include "harness/cli/study.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"
#include "harness/data/data.h"
#include "harness/hf/arch.h"
#include "layouts/layout.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void words(const char *const *list, const char *between)
{
    for (; list && *list; list++)
        printf("%s%s", between, *list);
}

static void names(const struct nh_names *registry)
{
    for (size_t i = 0; registry->name(i); i++) {
        printf(" %s", registry->name(i));
        words(registry->aliases(i), " ");
    }
}

/* ---- commands ---- */

static void option_name(void *arg, const struct nh_option *o, const char *left, const char *text)
{
    (void)arg, (void)left, (void)text;
    printf(" --%s", o->name);
}

static void switch_name(void *arg, const struct nh_option *o, const char *left, const char *text)
{
    if (o->kind->bare)
        option_name(arg, o, left, text);
}

/* The words that open the lines of a command's help: options as in "  --by NAME  text" or "  --csv, --json  text", those of
 * them without a value, those whose value is a FILE or a DIR, or topics as in "  layouts  text". */
enum opening { OPTIONS, SWITCHES, FILES, FOLDERS, TOPICS };

static bool is_opened(enum opening which, const char *end)
{
    switch (which) {
    case SWITCHES:
        return (*end != ' ' && *end != '=') || !isupper((unsigned char)end[1]);
    case FILES:
        return strncmp(end, " FILE ", strlen(" FILE ")) == 0;
    case FOLDERS:
        return strncmp(end, " DIR ", strlen(" DIR ")) == 0;
    default:
        return true;
    }
}

static void openings(const char *help, enum opening which)
{
    for (const char *line = help; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strspn(line, " ") != 2)
            continue;
        const char *word = line + 2;
        if (which == TOPICS && *word != '-')
            printf(" %.*s", (int)strcspn(word, " \n"), word);
        while (which != TOPICS && strncmp(word, "--", 2) == 0) {
            const char *end = word + strcspn(word, " ,=[\n");
            if (is_opened(which, end))
                printf(" %.*s", (int)(end - word), word);
            word = strncmp(end, ", ", 2) == 0 ? end + 2 : "";
        }
    }
}

static void commands(void)
{
    for (const struct nh_command *c = nh_commands; c->name; c++)
        printf(" %s", c->name);
}

static void studies(void)
{
    const char *cells[2];
    char room[1024];
    for (size_t i = 0; nh_study_row(NH_STUDIES, i, cells, room, sizeof room); i++)
        printf(" %s", cells[0]);
}

/* What may follow a command, from "[LAYOUT|all]". */
static void arguments(const struct nh_command *c, const char *help)
{
    char text[64], *rest = text;
    snprintf(text, sizeof text, "%s", c->arguments);
    for (char *word; (word = strsep(&rest, "[]| ."));) {
        if (strcmp(word, "LAYOUT") == 0)
            names(&nh_layout_names);
        else if (strcmp(word, "TOPIC") == 0)
            openings(help, TOPICS);
        else if (strcmp(word, "COMMAND") == 0)
            commands();
        else if (strcmp(word, "NAME") == 0 && c->run == nh_cmd_study)
            studies();
        else if (strcmp(word, "NAME") == 0)
            for (size_t i = 0; i < nh_operation_count; i++)
                printf(" %s", nh_operations[i].name);
        else if (islower((unsigned char)*word))
            printf(" %s", word);
    }
}

static int command(const struct nh_command *c)
{
    char *help = nh_command_help(c);
    if (!help)
        return NH_FAILED;
    const bool runs = c->help == nh_options_help || c->help == nh_export_help;
    printf("    %s) options+='", c->name);
    if (runs)
        nh_options_tell(option_name, NULL);
    if (c->help != nh_options_help)
        openings(help, OPTIONS);
    printf("' switches+='");
    runs ? nh_options_tell(switch_name, NULL) : openings(help, SWITCHES);
    printf("' files='");
    openings(help, FILES);
    printf("' folders='");
    openings(help, FOLDERS);
    printf("' words+='");
    arguments(c, help);
    printf("'%s ;;\n", strstr(c->arguments, "DIR") ? " paths=-f" : "");
    free(help);
    return NH_OK;
}

/* ---- options ---- */

static void data_sources(void)
{
    printf("words='");
    for (size_t i = 0; nh_data_sources[i]; i++)
        printf(" %s%s", nh_data_sources[i]->name, nh_data_sources[i]->argument ? ":" : "");
    printf("'\n        case $value in");
    for (size_t i = 0; nh_data_sources[i]; i++)
        if (nh_data_sources[i]->argument)
            printf("\n        %s:*) head+=%s: value=${value#*:} paths=-f ;;", nh_data_sources[i]->name, nh_data_sources[i]->name);
    printf("\n        esac");
}

static void option(void *arg, const struct nh_option *o, const char *left, const char *text)
{
    (void)arg, (void)left, (void)text;
    printf("    --%s) ", o->name);
    if (o->kind == &nh_value_knob)
        printf("_harness_knobs");
    else if (o->kind == &nh_value_data)
        data_sources();
    else if (o->paths)
        printf("paths=%s", o->paths);
    else {
        printf("words='");
        if (o->kind == &nh_value_layout)
            names(&nh_layout_names);
        else if (o->kind == &nh_value_arch)
            names(&nh_arch_names);
        else if (o->kind == &nh_value_policy)
            names(&nh_policy_names);
        else if (o->kind == &nh_value_probes)
            names(&nh_probe_names);
        words(o->choices, " ");
        printf("%s%s'%s", o->word ? " " : "", o->word ? o->word : "", o->kind == &nh_value_probes ? "\n        _harness_list none" : "");
    }
    puts(" ;;");
}

static void recorded(void *arg, const struct nh_option *o, const char *left, const char *text)
{
    (void)arg, (void)left, (void)text;
    if (!o->elsewhere && o->kind != &nh_value_knob)
        printf(" %s", o->name);
}

/* What runs are told apart by: options in config.csv, knobs as set.NAME, among them the key columns. */
static void groups(void)
{
    printf("    --by) words='");
    nh_options_tell(recorded, NULL);
    for (size_t i = 0; nh_layouts[i]; i++)
        for (const struct nh_knob *k = nh_layouts[i]->knobs; k && k->name; k++)
            printf(" set.%s", k->name);
    puts("' ;;");
}

/* Architectures that have the layout. */
static void archs_of(const struct nh_layout *layout)
{
    for (size_t i = 0; nh_archs[i]; i++)
        for (const struct nh_setting *s = nh_archs[i]->fixed; s->option; s++)
            if (strcmp(s->option, "layout") == 0 && strcmp(s->value, layout->name) == 0) {
                printf(" | --arch=%s", nh_archs[i]->name);
                for (const char *const *alias = nh_archs[i]->aliases; alias && *alias; alias++)
                    printf(" | --arch=%s", *alias);
            }
}

static void knobs(const struct nh_layout *layout)
{
    if (!layout->knobs || !layout->knobs[0].name)
        return;
    printf("    %s", layout->name);
    words(layout->aliases, " | ");
    archs_of(layout);
    printf(") words='");
    for (const struct nh_knob *k = layout->knobs; k->name; k++)
        if (k->words)
            for (size_t i = 0; k->words[i]; i++)
                printf(" %s=%s", k->name, k->words[i]);
        else
            printf(" %s=", k->name);
    puts("' ;;");
}

/* ---- the script ---- */

static const char of_command[] =
    "# bash completion for harness, written by 'harness completion'\n"
    "# shellcheck shell=bash disable=SC2034\n"
    "\n"
    "# These set variables of _harness: options, those of them without a value (switches), those whose value is a file or a\n"
    "# folder, words to choose from, and paths, the way compgen finds files, where they are looked for.\n"
    "_harness_command() {\n"
    "    case $1 in\n";

static const char of_option[] = "    esac\n"
                                "}\n"
                                "\n"
                                "_harness_option() {\n"
                                "    case $1 in\n";

static const char of_layout[] = "    esac\n"
                                "}\n"
                                "\n"
                                "# NAME=VALUE where a layout is given, or an architecture that has one.\n"
                                "_harness_knobs() {\n"
                                "    local layout='' i\n"
                                "    for ((i = 0; i < ${#line[@]}; i++)); do\n"
                                "        case ${line[i]} in\n"
                                "        --layout) layout=${line[i + 1]-} ;;\n"
                                "        --layout=*) layout=${line[i]#*=} ;;\n"
                                "        --arch) layout=--arch=${line[i + 1]-} ;;\n"
                                "        --arch=*) layout=${line[i]} ;;\n"
                                "        esac\n"
                                "    done\n"
                                "    case $layout in\n";

static const char the_rest[] =
    "    esac\n"
    "}\n"
    "\n"
    "# A comma list: what stands in it is not offered again, and $1 only alone.\n"
    "_harness_list() {\n"
    "    local word left=\n"
    "    for word in $words; do\n"
    "        [[ ,$value == *,$word,* ]] || left+=\" $word\"\n"
    "    done\n"
    "    words=$left\n"
    "    case $value in\n"
    "    *,*) head+=${value%,*}, value=${value##*,} ;;\n"
    "    *) words+=\" $1\" ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "_harness() {\n"
    "    local IFS=$' \\t\\n' line=() word glue='' i\n"
    "    # What bash breaks at = and : is put together again.\n"
    "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD}\"; do\n"
    "        if [[ ${#line[@]} -gt 0 && ($glue || $word == [=:]*) ]]; then\n"
    "            line[-1]+=$word\n"
    "        else\n"
    "            line+=(\"$word\")\n"
    "        fi\n"
    "        glue=\n"
    "        [[ ! $word || ${word//[=:]/} ]] || glue=1\n"
    "    done\n"
    "    local last=$((${#line[@]} - 1))\n"
    "    ((last >= 0)) || return 0\n"
    "    local cur=${line[last]} before='' command=run\n"
    "    if ((last > 0)); then\n"
    "        before=${line[last - 1]}\n"
    "        [[ ${line[0]} == -* ]] || command=${line[0]}\n"
    "    fi\n"
    "\n"
    "    # The value is what is completed; the head stands before it in the same word.\n"
    "    local options='--help --version' switches='--help --version' files='' folders='' words='' paths='' head='' value=$cur option=''\n"
    "    _harness_command \"$command\"\n"
    "    if [[ $cur == --*=* ]]; then\n"
    "        option=${cur%%=*} head=$option= value=${cur#*=}\n"
    "    elif [[ $before == --* && $before != *=* && \" $switches \" != *\" $before \"* ]]; then\n"
    "        option=$before\n"
    "    fi\n"
    "    if [[ $option ]]; then\n"
    "        words='' paths=''\n"
    "        # Options of other commands have names of run's where they take the same values.\n"
    "        case \" $files \" in *\" $option \"*) paths=-f ;; esac\n"
    "        case \" $folders \" in *\" $option \"*) paths=-d ;; esac\n"
    "        [[ $paths ]] || _harness_option \"$option\"\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        words=$options paths=''\n"
    "    elif ((last == 0)); then\n"
    "        _harness_command ''\n"
    "    fi\n"
    "    if [[ $paths ]]; then\n"
    "        value=${value#[\\\"\\']} value=${value//\\\\/}\n"
    "        mapfile -t COMPREPLY < <(compgen \"$paths\" -- \"$value\")\n"
    "        compopt -o filenames 2>/dev/null || :\n"
    "    else\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$value\")\n"
    "        [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *[=:] ]] || compopt -o nospace 2>/dev/null || :\n"
    "    fi\n"
    "\n"
    "    # bash wants a word from its last = or : on.\n"
    "    local breaks=${COMP_WORDBREAKS//[^=:]/} broken=''\n"
    "    [[ ! $breaks ]] || broken=${cur%\"${cur##*[\"$breaks\"]}\"}\n"
    "    for i in \"${!COMPREPLY[@]}\"; do\n"
    "        word=$head${COMPREPLY[i]}\n"
    "        COMPREPLY[i]=${word#\"$broken\"}\n"
    "    done\n"
    "    return 0\n"
    "}\n"
    "\n"
    "# run.sh of this program, not every script of that name.\n"
    "_harness_run_sh() {\n"
    "    if [[ -d ${COMP_WORDS[0]%run.sh}layouts ]]; then\n"
    "        _harness\n"
    "    else\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"${COMP_WORDS[COMP_CWORD]}\")\n"
    "        compopt -o filenames 2>/dev/null || :\n"
    "    fi\n"
    "}\n"
    "\n"
    "complete -F _harness harness\n"
    "complete -F _harness_run_sh run.sh\n";

int nh_cmd_completion(int argc, char **argv)
{
    if (argc > 0)
        return nh_fail(NH_USAGE, "'%.60s' is too much; it is 'harness completion' alone", argv[0]);
    printf("%s    '') words='", of_command);
    commands();
    puts("' ;;");
    int status = NH_OK;
    for (const struct nh_command *c = nh_commands; c->name && !status; c++)
        status = command(c);
    fputs(of_option, stdout);
    nh_options_tell(option, NULL);
    groups();
    fputs(of_layout, stdout);
    for (size_t i = 0; nh_layouts[i]; i++)
        knobs(nh_layouts[i]);
    fputs(the_rest, stdout);
    return status;
}
