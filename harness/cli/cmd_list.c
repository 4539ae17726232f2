// SPDX-License-Identifier: GPL-3.0-or-later
/** harness list TOPIC: tables straight from the registries. */
#include "harness/cli/cli.h"
#include "harness/cli/names.h"
#include "harness/cli/near.h"
#include "harness/cli/op.h"
#include "harness/cli/study.h"
#include "harness/core/err.h"
#include "harness/core/init.h"
#include "harness/core/policy.h"
#include "harness/core/site.h"
#include "harness/data/data.h"
#include "harness/hf/arch.h"
#include "layouts/layout.h"
#include "probes/probe.h"
#include "results/schema.h"
#include "results/text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CELLS = 6, ROOM = 1024, SCALER_ROOM = 80 };

/* A topic's rows: fills the cells of row i, with room for one that has to be put together; false behind the last. */
typedef bool row_function(size_t i, const char *cells[MAX_CELLS], char room[ROOM]);

static const char *join(const char *const *words, char room[ROOM])
{
    size_t n = 0;
    room[0] = '\0';
    for (; words && *words && n < ROOM; words++)
        n += (size_t)snprintf(room + n, ROOM - n, "%s%s", n ? "," : "", *words);
    return room;
}

static bool layouts(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    const struct nh_layout *layout = nh_layouts[i];
    if (!layout)
        return false;
    cells[0] = layout->name;
    cells[1] = join(layout->aliases, room);
    cells[2] = layout->equation;
    return true;
}

static bool probes(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    const struct nh_probe *probe = nh_probes[i];
    if (!probe)
        return false;
    cells[0] = probe->name;
    cells[1] = join(probe->aliases, room);
    cells[2] = probe->by_default ? "default" : "on request";
    cells[3] = probe->columns;
    cells[4] = probe->what;
    return true;
}

static bool policies(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    const struct nh_policy *policy = nh_policies[i];
    if (!policy)
        return false;
    cells[0] = policy->name;
    cells[1] = join(policy->aliases, room);
    char *scaler = room + strlen(room) + 1, *wide = scaler + SCALER_ROOM;
    const struct nh_scaler_rule *s = &policy->scaler;
    if (s->window)
        snprintf(scaler, SCALER_ROOM, "start=2^%d,window=%d,hysteresis=%d,floor=2^%d", ilogb(s->start), s->window, s->hysteresis,
                 ilogb(s->floor));
    else
        snprintf(scaler, SCALER_ROOM, "none");
    if (s->ceiling > 0)
        snprintf(scaler + strlen(scaler), SCALER_ROOM - strlen(scaler), ",ceiling=2^%d", ilogb(s->ceiling));
    size_t n = 0, left = ROOM - (size_t)(wide - room);
    for (int role = 0; role < NH_ROLE_COUNT && n < left; role++)
        if (policy->format[role])
            n += (size_t)snprintf(wide + n, left - n, "%s%s=%s", n ? "," : "", nh_role_names[role], policy->format[role]);
    cells[2] = scaler;
    cells[3] = wide;
    cells[4] = policy->what;
    cells[5] = policy->source;
    return true;
}

static bool models(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    const struct nh_arch *arch = nh_archs[i];
    if (!arch)
        return false;
    cells[0] = arch->name;
    cells[1] = join(arch->aliases, room);
    cells[2] = arch->what;
    cells[3] = arch->source;
    char *options = room + strlen(room) + 1;
    const size_t left = ROOM - (size_t)(options - room);
    const struct nh_setting *const lists[] = {arch->fixed, arch->recipe};
    size_t n = 0;
    for (int k = 0; k < 2; k++)
        for (const struct nh_setting *s = lists[k]; s->option && n < left; s++)
            n += (size_t)snprintf(options + n, left - n, "%s--%s=%s", n ? " " : "", s->option, s->value);
    cells[4] = options;
    return true;
}

static bool inits(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    (void)room;
    cells[0] = nh_init_names[i];
    cells[1] = cells[0] ? nh_init_helps[i] : NULL;
    return cells[0];
}

static bool sites(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    (void)room;
    cells[0] = nh_site_names[i];
    cells[1] = cells[0] ? nh_site_helps[i] : NULL;
    return cells[0];
}

static bool ops(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    if (i == nh_operation_count)
        return false;
    const struct nh_operation *op = &nh_operations[i];
    cells[0] = op->name;
    cells[1] = nh_operation_tensors(op, room, ROOM / 2);
    cells[2] = nh_operation_attributes(op, room + ROOM / 2, ROOM / 2);
    cells[3] = op->what;
    return true;
}

static bool data(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    const struct nh_data_source *source = nh_data_sources[i];
    if (!source)
        return false;
    snprintf(room, ROOM, "%s%s%s", source->name, source->argument ? ":" : "", source->argument ? source->argument : "");
    cells[0] = room;
    cells[1] = source->what;
    return true;
}

static bool columns(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    if (i == NH_COLUMN_COUNT)
        return false;
    const struct nh_column *column = &nh_columns[i];
    snprintf(room, ROOM, "%s.csv", nh_tables[column->table].name);
    cells[0] = column->name;
    cells[1] = nh_column_type_name(column->type);
    cells[2] = column->unit;
    cells[3] = room;
    cells[4] = column->meaning;
    return true;
}

static bool studies(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    return nh_study_row(NH_STUDIES, i, cells, room, ROOM);
}

static bool measures(size_t i, const char *cells[MAX_CELLS], char room[ROOM])
{
    (void)room;
    cells[0] = nh_study_measures[i].name;
    cells[1] = nh_study_measures[i].what;
    return cells[0];
}

static const struct topic {
    const char *name;
    row_function *row;
    const char *what;
} topics[] = {
    {"layouts", layouts, "name, aliases, equation"},
    {"probes", probes, "name, aliases, when it runs, columns it fills, what it measures"},
    {"policies", policies, "name, aliases, loss scaler, roles with a format of their own, what it is, source"},
    {"models", models, "name as --arch takes it, aliases, what it is, source, options"},
    {"inits", inits, "name, recipe"},
    {"columns", columns, "name, type, unit, file, meaning"},
    {"sites", sites, "name, what is stored there"},
    {"ops", ops, "name as harness op takes it, tensors ([optional]), attributes, what it computes"},
    {"data", data, "name as --data takes it, where the tokens come from"},
    {"studies", studies, "name as harness study takes it, title"},
    {"measures", measures, "name as a study takes it, what it is of a run"},
};

enum { N_TOPICS = sizeof topics / sizeof *topics };

/* Prints the rows with aligned cells; "-" for an empty one, so that the cells can be counted. */
static void print_table(row_function *row)
{
    const char *cells[MAX_CELLS] = {NULL};
    char room[ROOM];
    int widths[MAX_CELLS] = {0};
    for (size_t i = 0; row(i, cells, room); i++)
        for (size_t k = 0; k < MAX_CELLS && cells[k]; k++) {
            const int width = nh_text_put(NULL, cells[k]);
            widths[k] = width > widths[k] ? width : widths[k];
        }
    for (size_t i = 0; row(i, cells, room); i++)
        for (size_t k = 0; k < MAX_CELLS && cells[k]; k++) {
            const bool last = k + 1 == MAX_CELLS || !cells[k + 1];
            const int width = nh_text_put(stdout, *cells[k] ? cells[k] : "-");
            printf("%*s", last ? 0 : widths[k] - width + 2, "");
            if (last)
                putchar('\n');
        }
}

void nh_list_help(FILE *file)
{
    fputs("Topics, and what their lines say\n", file);
    for (size_t i = 0; i < N_TOPICS; i++)
        fprintf(file, "  %-10s%s\n", topics[i].name, topics[i].what);
}

static int unknown_topic(const char *wrong)
{
    struct nh_near near = nh_near_start(wrong, "");
    nh_near_synonym(&near, "topic");
    const char *names[N_TOPICS + 1] = {NULL};
    for (size_t i = 0; i < N_TOPICS; i++) {
        names[i] = topics[i].name;
        nh_near_try(&near, names[i]);
    }
    char hint[NH_NEAR_SIZE], all[ROOM];
    return nh_fail(NH_USAGE, "there is no topic '%.60s'%s (topics: %s)", wrong, nh_near_text(&near, hint),
                   join(names, all));
}

int nh_cmd_list(int argc, char **argv)
{
    if (argc != 1)
        return nh_fail(NH_USAGE,
                       "list takes one topic, such as 'harness list layouts' ('harness list --help' shows all)");
    for (size_t i = 0; i < N_TOPICS; i++)
        if (strcmp(topics[i].name, argv[0]) == 0) {
            print_table(topics[i].row);
            return NH_OK;
        }
    return unknown_topic(argv[0]);
}
