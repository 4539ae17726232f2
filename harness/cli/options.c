// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/option_table.h"

#include "harness/cli/near.h"
#include "harness/core/err.h"
#include "harness/core/init.h"
#include "harness/core/policy.h"
#include "layouts/layout.h"
#include "probes/probe.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

bool nh_options_given(const struct nh_options *o, const char *name)
{
    const struct nh_option *option = nh_option_find(name, strlen(name));
    assert(option);
    return o->given[option - nh_option_table] == NH_BY_USER;
}

static bool is_set(const struct nh_options *o, const char *name)
{
    return o->given[nh_option_find(name, strlen(name)) - nh_option_table] != NH_BY_DEFAULT;
}

void nh_options_defaults(struct nh_options *o)
{
    *o = (struct nh_options){.config.policy = nh_policies[0]};
    for (size_t i = 0; nh_probes[i]; i++) {
        assert(i < 32);
        o->config.probes |= (uint32_t)nh_probes[i]->by_default << i;
    }
    for (int i = 0; i < nh_option_count; i++) {
        const int status =
            nh_option_table[i].start ? nh_option_table[i].kind->read(&nh_option_table[i], nh_option_table[i].start, &o->config) : NH_OK;
        assert(status == NH_OK);
    }
}

/* Fills in what follows from other options or from the machine. */
static void resolve(struct nh_options *o)
{
    struct nh_config *c = &o->config;
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->pos == NH_POS_INTERLEAVED && !c->pattern)
        c->pattern = "lllg";
    if (!is_set(o, "embed-scale"))
        c->embed_scale = nh_init_embed_scale(c);
    if (c->embed_scale <= 0) /* the word sqrt */
        c->embed_scale = sqrt(c->width);
    if (!is_set(o, "data-seed"))
        c->data_seed = c->seed;
    if (!is_set(o, "dtype") && c->policy->dtype)
        nh_fmt_parse(&c->dtype, c->policy->dtype);
    if (!is_set(o, "accum"))
        c->accum = c->policy->format[NH_ROLE_ACCUM] ? NH_WIDE_FP32 : NH_WIDE_DTYPE;
    if (!is_set(o, "norm-stats"))
        c->norm_stats = c->policy->format[NH_ROLE_NORM_STAT] ? NH_WIDE_FP32 : NH_WIDE_DTYPE;
    for (size_t i = 0; nh_probes[i] && !is_set(o, "probes"); i++) {
        if (c->train.steps && nh_probes[i]->at_start_only)
            c->probes &= ~(UINT32_C(1) << i);
        if (c->model && !c->train.steps) /* of a checkpoint what one forward pass tells */
            c->probes = (c->probes & ~(UINT32_C(1) << i)) | (uint32_t)(nh_probes[i]->values != NH_READS_ANY) << i;
    }
    cpu_set_t cpus;
    if (c->threads == 0)
        c->threads = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

static int unknown(const char *name, size_t length)
{
    char wrong[80];
    snprintf(wrong, sizeof wrong, "%.*s", length < sizeof wrong ? (int)length : (int)sizeof wrong - 1, name);
    struct nh_near near = nh_near_start(wrong, "--");
    nh_near_synonym(&near, "option");
    for (int i = 0; i < nh_option_count; i++)
        nh_near_try(&near, nh_option_table[i].name);
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "there is no option '--%.60s'%s ('harness --help' shows all)", wrong, nh_near_text(&near, hint));
}

/* Reads "--NAME=VALUE" or "--NAME" and, where it takes one, the VALUE that follows; moves *at past them. */
static int split(int argc, char **argv, int *at, const struct nh_option **option, const char **value)
{
    const char *word = argv[(*at)++];
    if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
        return nh_fail(NH_USAGE,
                       "'%.60s' is no option; options are written --NAME VALUE or --NAME=VALUE, "
                       "switches --NAME or --NAME=on|off",
                       word);
    const size_t length = strcspn(word + 2, "=");
    *option = nh_option_find(word + 2, length);
    if (!*option)
        return unknown(word + 2, length);
    if (word[2 + length] == '=')
        *value = word + 2 + length + 1;
    else if ((*option)->kind->bare)
        *value = "on";
    else
        *value = *at < argc && strncmp(argv[*at], "--", 2) != 0 ? argv[(*at)++] : "";
    if (**value == '\0')
        return nh_fail(NH_USAGE, "--%s needs a value: --%s %s", (*option)->name, (*option)->name, (*option)->kind->placeholder);
    return NH_OK;
}

/* Values of --set, read when the layout is known. */
struct sets {
    const char *texts[NH_MAX_KNOBS];
    size_t count;
};

static int keep_set(struct sets *sets, const char *text)
{
    const size_t length = strcspn(text, "=");
    for (size_t i = 0; i < sets->count; i++)
        if (strncmp(sets->texts[i], text, length + 1) == 0)
            return nh_fail(NH_USAGE, "--set %.*s is given twice; keep one", length < 60 ? (int)length : 60, text);
    if (sets->count == NH_MAX_KNOBS)
        return nh_fail(NH_USAGE, "--set is given more than %d times; no layout has as many knobs", NH_MAX_KNOBS);
    sets->texts[sets->count++] = text;
    return NH_OK;
}

/* Refuses what a checkpoint fixes, unless it leaves that open. */
static int check_free(const struct nh_options *o, const struct nh_option *option)
{
    if (!o->checkpoint || option->of_model != NH_MODEL_FIXED)
        return NH_OK;
    for (const char *const *open = nh_hf_arch(o->checkpoint)->open; open && *open; open++)
        if (strcmp(*open, option->name) == 0)
            return NH_OK;
    return nh_fail(NH_USAGE, "--%s is what the checkpoint says; leave it out", option->name);
}

/* True where "A,B" or "A..B" is more than one value of an option that takes one, and no list. */
static bool is_several(const struct nh_option *option, const char *text, const struct nh_config *c)
{
    struct nh_config trial = *c;
    size_t n = 0;
    if (option->kind == &nh_value_branches || option->kind == &nh_value_probes)
        return false;
    for (const char *at = text; *at; n++) {
        const size_t length = strcspn(at, ","), dots = (size_t)(strstr(at, "..") ? strstr(at, "..") - at : 0);
        const bool range = dots > 0 && dots < length;
        char part[2][64];
        if (length == 0 || length >= sizeof part[0])
            return false;
        snprintf(part[0], sizeof part[0], "%.*s", (int)(range ? dots : length), at);
        snprintf(part[1], sizeof part[1], "%.*s", range ? (int)(length - dots - 2) : 0, at + dots + 2);
        part[1][strcspn(part[1], "+*")] = '\0'; /* a step of the range */
        for (int k = 0; k <= range; k++)
            if (*part[k] == '\0' || (range && part[k][strspn(part[k], "0123456789")]) ||
                option->kind->read(option, part[k], &trial) != NH_OK)
                return false;
        n += range;
        at += length + (at[length] == ',');
    }
    return n > 1;
}

static int read_value(struct nh_options *o, const struct nh_option *option, const char *text)
{
    struct nh_config trial = o->config;
    if (option->kind->read(option, text, &trial) == NH_OK || !is_several(option, text, &o->config))
        return option->kind->read(option, text, &o->config);
    const bool seed = strcmp(option->name, "seed") == 0;
    return nh_fail(NH_USAGE, "--%s takes one value, not '%.60s'; for a run of each value: harness/sweep.sh %s%s%s%.200s", option->name,
                   text, seed ? "--seeds " : "--vary ", seed ? "" : option->name, seed ? "" : "=", text);
}

static int take(struct nh_options *o, struct sets *sets, const struct nh_option *option, const char *value)
{
    const int status = check_free(o, option);
    if (status)
        return status;
    if (option->kind == &nh_value_knob)
        return keep_set(sets, value);
    if (o->given[option - nh_option_table] == NH_BY_USER)
        return nh_fail(NH_USAGE, "--%s is given twice; keep one", option->name);
    o->given[option - nh_option_table] = NH_BY_USER;
    return read_value(o, option, value);
}

static int read_knobs(struct nh_config *c, const struct sets *sets)
{
    const struct nh_option *option = nh_option_find("set", strlen("set"));
    nh_knobs_start(c->layout, c->knobs);
    int status = NH_OK;
    for (size_t i = 0; !status && i < sets->count; i++)
        status = option->kind->read(option, sets->texts[i], c);
    return status;
}

/* Settings, as if they had been typed. */
static int read_settings(struct nh_options *o, const struct nh_setting *settings)
{
    int status = NH_OK;
    for (const struct nh_setting *s = settings; !status && s->option; s++) {
        const struct nh_option *option = nh_option_find(s->option, strlen(s->option));
        assert(option);
        status = option->kind->read(option, s->value, &o->config);
        o->given[option - nh_option_table] = NH_BY_PRESET;
    }
    return status;
}

static int read_checkpoint(struct nh_options *o)
{
    int status = nh_hf_open(&o->checkpoint, o->config.model);
    if (status)
        return status;
    status = read_settings(o, nh_hf_settings(o->checkpoint));
    if (!status) {
        struct nh_options alone = *o;
        resolve(&alone);
        nh_knobs_start(alone.config.layout, alone.config.knobs);
        status = nh_options_conflicts(&alone);
    }
    if (!status)
        return status;
    char why[512];
    snprintf(why, sizeof why, "%s", nh_error());
    return nh_fail(NH_FAILED, "'%s/config.json' is no model of the program's, as options: %s", o->config.model, why);
}

static bool is_preset(const struct nh_option *option)
{
    return option->kind == &nh_value_arch || option->at == offsetof(struct nh_config, model);
}

static int use_preset(struct nh_options *o)
{
    const struct nh_arch *arch = nh_arch_find(o->config.arch);
    if (arch && o->config.model)
        return nh_fail(NH_USAGE, "--arch makes a random model, --model reads one; leave one out");
    int status = arch ? read_settings(o, arch->fixed) : NH_OK;
    if (arch && !status)
        status = read_settings(o, arch->recipe);
    return !status && o->config.model ? read_checkpoint(o) : status;
}

/* What stands under the options of the command line is looked for first: an architecture or a checkpoint. */
static int read_preset(struct nh_options *o, int argc, char **argv)
{
    int status = NH_OK;
    for (int i = 0; !status && i < argc;) {
        const struct nh_option *option = NULL;
        const char *value = NULL;
        status = split(argc, argv, &i, &option, &value);
        if (!status && is_preset(option))
            status = read_value(o, option, value);
    }
    return status ? status : use_preset(o);
}

int nh_options_parse(struct nh_options *o, int argc, char **argv)
{
    nh_options_defaults(o);
    struct sets sets = {.count = 0};
    int status = read_preset(o, argc, argv);
    for (int i = 0; !status && i < argc;) {
        const struct nh_option *option = NULL;
        const char *value = NULL;
        status = split(argc, argv, &i, &option, &value);
        if (!status)
            status = take(o, &sets, option, value);
    }
    if (!status)
        status = read_knobs(&o->config, &sets);
    if (status)
        return status;
    resolve(o);
    for (int i = 0; i < nh_option_count && !status; i++)
        if (o->given[i] == NH_BY_USER && nh_option_idle(&nh_option_table[i], &o->config))
            status = nh_fail(NH_USAGE, "--%s has no effect %s", nh_option_table[i].name, nh_option_idle(&nh_option_table[i], &o->config));
    return status ? status : nh_options_conflicts(o);
}

const char *nh_options_text(struct nh_options *o, const char *name)
{
    const struct nh_option *option = nh_option_find(name, strlen(name));
    assert(option);
    return option->kind->write(option, &o->config, o->text);
}

/* Adds " --NAME VALUE". */
static void tell_option(char list[NH_VALUE_SIZE], const struct nh_option *option, const char *value)
{
    const size_t n = strlen(list);
    snprintf(list + n, NH_VALUE_SIZE - n, " --%s %s", option->name, *value ? value : "''");
}

/* Writes what stands for what follows from other options: auto, same. */
static struct nh_config spelt_out(const struct nh_config *c)
{
    struct nh_config full = *c;
    full.head_dim = nh_head_dim(c);
    full.query_scalar = c->query_scalar > 0 ? c->query_scalar : full.head_dim;
    full.theta_local = c->theta_local > 0 ? c->theta_local : c->theta;
    return full;
}

int nh_options_reread(const struct nh_options *o, const struct nh_setting *settings, struct nh_config *config, struct nh_differences *d)
{
    struct nh_options told;
    nh_options_defaults(&told);
    int status = read_settings(&told, settings);
    if (status)
        return status;
    resolve(&told);
    nh_knobs_start(told.config.layout, told.config.knobs);
    const struct nh_config mine = spelt_out(&o->config), its = spelt_out(&told.config);
    *config = o->config;
    memcpy(config->knobs, told.config.knobs, sizeof config->knobs);
    for (int i = 0; i < nh_option_count && !status; i++) {
        const struct nh_option *option = &nh_option_table[i];
        char own_text[NH_VALUE_SIZE], told_text[NH_VALUE_SIZE];
        if (option->kind == &nh_value_knob || (option->of_model != NH_MODEL_FIXED && option->of_model != NH_MODEL_TOLD))
            continue;
        const char *own = option->kind->write(option, &mine, own_text), *value = option->kind->write(option, &its, told_text);
        const bool fixed = option->of_model == NH_MODEL_FIXED;
        if (strcmp(own, value) != 0) {
            tell_option(fixed ? d->against : d->again, option, own);
            d->n_against += fixed;
        }
        if (fixed)
            status = option->kind->read(option, value, config);
    }
    return status;
}

void nh_options_free(struct nh_options *o)
{
    nh_hf_close(o->checkpoint);
    free(o->record);
    o->checkpoint = NULL, o->record = NULL;
}

struct nh_piece *nh_options_pieces(const struct nh_options *o, const struct nh_param *param, size_t *n)
{
    const struct nh_arch *arch = nh_arch_find(o->config.arch);
    struct nh_piece *pieces = o->checkpoint ? nh_hf_pieces(o->checkpoint, &o->config, param, n)
                                            : nh_arch_pieces(arch, arch ? &arch->prefix : NULL, &o->config, param, n);
    if (*n)
        return pieces;
    pieces = malloc(sizeof *pieces);
    if (!pieces)
        nh_no_memory();
    const size_t rows = (size_t)param->rows, cols = (size_t)param->cols;
    *pieces = (struct nh_piece){.n = rows * cols, .rows = rows > 1 ? rows : 0, .cols = cols};
    snprintf(pieces->name, sizeof pieces->name, "%s", param->name);
    *n = 1;
    return pieces;
}

/* The name or value behind this one. */
static const char *behind(const char *text)
{
    return text + strlen(text) + 1;
}

/* Rows of a record in the order in which they are read: what stands under the others comes first, knobs need the layout. */
enum part { PRESETS, OPTIONS, KNOBS };

static int recall_part(struct nh_options *o, enum part part)
{
    int status = NH_OK;
    for (const char *name = o->record, *value; !status && *name; name = behind(value)) {
        value = behind(name);
        const bool is_knob = strncmp(name, "set.", 4) == 0;
        const struct nh_option *option = is_knob ? nh_option_find("set", 3) : nh_option_find(name, strlen(name));
        if (!option)
            return unknown(name, strlen(name));
        if (*value == '\0' || part != (is_knob ? KNOBS : is_preset(option) ? PRESETS : OPTIONS))
            continue;
        char knob[NH_VALUE_SIZE];
        snprintf(knob, sizeof knob, "%s=%s", is_knob ? name + 4 : "", value);
        status = option->kind->read(option, is_knob ? knob : value, &o->config);
        o->given[option - nh_option_table] = NH_BY_PRESET;
    }
    return status;
}

static int misplaced(const char *option)
{
    return nh_fail(NH_FAILED, "'%.60s' is not there as this version of the program writes it; take the version that wrote it", option);
}

/* Moves *at, in a record, past the row that is as it would be written. */
static int hold_row(void *at, const char *option, const char *value)
{
    const char **row = at;
    if (strcmp(*row, option) != 0 || strcmp(behind(*row), value) != 0)
        return misplaced(option);
    *row = behind(behind(*row));
    return NH_OK;
}

int nh_options_recall(struct nh_options *o, char *record)
{
    const char *row = record;
    nh_options_defaults(o);
    o->record = record;
    int status = recall_part(o, PRESETS);
    if (!status)
        status = use_preset(o);
    if (!status)
        status = recall_part(o, OPTIONS);
    if (status)
        return status;
    nh_knobs_start(o->config.layout, o->config.knobs);
    status = recall_part(o, KNOBS);
    resolve(o);
    if (!status)
        status = nh_options_conflicts(o);
    if (!status)
        status = nh_options_record(o, hold_row, &row);
    return !status && *row ? misplaced(row) : status;
}
