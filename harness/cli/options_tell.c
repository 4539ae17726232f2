// SPDX-License-Identifier: GPL-3.0-or-later
/** What is told of options: the record of a run, its digest, the help. */
#include "harness/cli/option_table.h"
#include "harness/core/err.h"
#include "layouts/layout.h"
#include "results/file.h"
#include "results/number.h"

#include <stdio.h>
#include <string.h>

static int record_knobs(const struct nh_config *c, nh_option_visit *visit, void *arg)
{
    const struct nh_knob *knobs = c->layout->knobs;
    int status = NH_OK;
    for (size_t i = 0; !status && knobs && knobs[i].name; i++) {
        char name[64], value[NH_NUMBER_SIZE];
        snprintf(name, sizeof name, "set.%s", knobs[i].name);
        nh_number_real(value, c->knobs[i]);
        status = visit(arg, name, knobs[i].words ? knobs[i].words[(int)c->knobs[i]] : value);
    }
    return status;
}

static int record_option(const struct nh_options *o, const struct nh_option *option, nh_option_visit *visit, void *arg)
{
    char text[NH_VALUE_SIZE];
    if (option->kind == &nh_value_knob)
        return record_knobs(&o->config, visit, arg);
    if (option->elsewhere || nh_option_idle(option, &o->config))
        return NH_OK;
    return visit(arg, option->name, option->kind->write(option, &o->config, text));
}

int nh_options_record(const struct nh_options *o, nh_option_visit *visit, void *arg)
{
    int status = NH_OK;
    for (int i = 0; !status && i < nh_option_count; i++)
        status = record_option(o, &nh_option_table[i], visit, arg);
    return status;
}

static void mix(uint64_t *hash, const char *text)
{
    *hash = nh_digest(*hash, text, strlen(text));
}

static int mix_option(void *hash, const char *option, const char *value)
{
    mix(hash, option);
    mix(hash, "=");
    mix(hash, value);
    mix(hash, "\n"); /* stands in no value */
    return NH_OK;
}

static void name_of(char letter, uint64_t digest, const char *extra, char name[NH_NAME_SIZE])
{
    mix(&digest, extra ? extra : "");
    snprintf(name, NH_NAME_SIZE, "%c%08x", letter, (unsigned)(digest ^ digest >> 32));
}

void nh_options_hash(const struct nh_options *o, const char *extra, char hash[NH_NAME_SIZE])
{
    uint64_t digest = NH_DIGEST_START;
    nh_options_record(o, mix_option, &digest);
    name_of('r', digest, extra, hash);
}

void nh_options_sample(const struct nh_options *o, const char *extra, char sample[NH_NAME_SIZE])
{
    uint64_t digest = NH_DIGEST_START;
    for (int i = 0; i < nh_option_count; i++)
        if (!nh_option_table[i].measures)
            record_option(o, &nh_option_table[i], mix_option, &digest);
    name_of('s', digest, extra, sample);
}

enum { HELP_WIDTH = 100, HELP_COLUMN = 26 };

/* Writes left and, in its own column, text broken between words. */
static void help_entry(FILE *file, const char *left, const char *text)
{
    size_t column = (size_t)fprintf(file, "  %s", left);
    while (*text) {
        const size_t length = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + length > HELP_WIDTH) {
            fputc('\n', file);
            column = 0;
        }
        const size_t blanks = column < HELP_COLUMN ? HELP_COLUMN - column : 1;
        fprintf(file, "%*s%.*s", (int)blanks, "", (int)length, text);
        column += blanks + length;
        text += length + (text[length] == ' ');
    }
    fputc('\n', file);
}

void nh_options_tell(nh_option_tell *tell, void *arg)
{
    struct nh_options defaults;
    nh_options_defaults(&defaults);
    for (int i = 0; i < nh_option_count; i++) {
        const struct nh_option *o = &nh_option_table[i];
        char left[64], range[NH_VALUE_SIZE] = "", start[NH_VALUE_SIZE], text[4 * NH_VALUE_SIZE];
        if (o->kind->tell_range)
            o->kind->range(o, range);
        const char *shown = o->shown ? o->shown : o->start ? o->start : o->kind->write(o, &defaults.config, start);
        snprintf(left, sizeof left, o->kind->bare ? "--%s[=%s]" : "--%s %s", o->name, o->kind->placeholder);
        snprintf(text, sizeof text, "%s%s%s%s%s%s", o->help, *range ? ": " : "", range, *shown ? " [" : "", shown,
                 *shown ? "]" : "");
        tell(arg, o, left, text);
    }
}

static void help_option(void *file, const struct nh_option *o, const char *left, const char *text)
{
    if (o->group)
        fprintf(file, "%s%s\n", o > nh_option_table ? "\n" : "", o->group);
    help_entry(file, left, text);
}

void nh_options_help(FILE *file)
{
    nh_options_tell(help_option, file);
}
