// SPDX-License-Identifier: GPL-3.0-or-later
/** Reads study.json: which fields an object has, of which kind, and whether what they name is there. */
#include "harness/cli/json_file.h"
#include "harness/cli/near.h"
#include "harness/cli/options.h"
#include "harness/cli/study.h"
#include "harness/cli/study_fields.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define obstack_chunk_alloc malloc
#define obstack_chunk_free  free

const char *const nh_test_names[] = {"share", "rarer", "ratio", "slope", "order", NULL};
const char *const nh_decides_names[] = {"nothing", "claim", "scale", NULL};

/* Where in the file something is read, for errors: "FILE: expectations[3]". */
struct input {
    struct nh_study *study;
    const char *place;
    const char *names[NH_MAX_OPTIONS + 1]; /* of options, "sweep" first */
    size_t n_names;
};

/* ---- names ---- */

static void add_option(void *arg, const struct nh_option *option, const char *left, const char *help)
{
    (void)left, (void)help;
    struct input *in = arg;
    if (!option->elsewhere)
        in->names[in->n_names++] = option->name;
}

static int check_option(const struct input *in, const char *name)
{
    struct nh_near near = nh_near_start(name, "");
    for (size_t i = 0; i < in->n_names; i++) {
        nh_near_try(&near, in->names[i]);
        if (strcmp(in->names[i], name) == 0)
            return NH_OK;
    }
    if (strncmp(name, "set.", 4) == 0) /* a knob of some layout's own */
        return NH_OK;
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_FAILED, "%.500s: '%.60s' is no option of a run%s ('harness --help' shows all)", in->place, name,
                   nh_near_text(&near, hint));
}

static int check_sweep(const struct input *in, const json_t *name)
{
    const struct nh_study *s = in->study;
    struct nh_near near = nh_near_start(json_is_string(name) ? json_string_value(name) : "", "");
    for (size_t i = 0; i < s->n_sweeps; i++) {
        nh_near_try(&near, s->sweeps[i].name);
        if (strcmp(s->sweeps[i].name, near.wrong) == 0)
            return NH_OK;
    }
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_FAILED, "%.500s: there is no sweep '%.60s'%s", in->place, near.wrong, nh_near_text(&near, hint));
}

static int check_where(const struct input *in, const json_t *object)
{
    int status = NH_OK;
    const char *option;
    json_t *value;
    json_object_foreach ((json_t *)object, option, value) {
        status = check_option(in, option);
        const bool sweeps = !status && strcmp(option, "sweep") == 0, several = json_is_array(value);
        for (size_t i = 0; sweeps && i < (several ? json_array_size(value) : 1) && !status; i++)
            status = check_sweep(in, several ? json_array_get(value, i) : value);
        if (status)
            return status;
    }
    return NH_OK;
}

static int check_options(const struct input *in, struct nh_words names)
{
    int status = NH_OK;
    for (size_t i = 0; i < names.n && !status; i++)
        status = check_option(in, names.words[i]);
    return status;
}

/* The number of a name in a list closed by NULL. */
static int find_name(const struct input *in, const char *field, const char *const *names, const char *name, int *number)
{
    struct nh_near near = nh_near_start(name, "");
    for (*number = 0; names[*number]; ++*number) {
        nh_near_try(&near, names[*number]);
        if (strcmp(names[*number], name) == 0)
            return NH_OK;
    }
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_FAILED, "%.500s: there is no %s '%.60s'%s (docs/studies.md tells all)", in->place, field, name,
                   nh_near_text(&near, hint));
}

/* A name of a folder or a file. */
static int check_file_name(const struct input *in, const char *name)
{
    enum { LONGEST = 100 };
    if (strlen(name) <= LONGEST && *name != '.' && name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")] == '\0')
        return NH_OK;
    return nh_fail(NH_FAILED, "%.500s: '%.60s' becomes a name of a file; it takes at most %d letters, digits, '-' and '.'",
                   in->place, name, LONGEST);
}

/* Adds a measure to those that occur. */
static int use_measure(const struct input *in, const char *name, struct nh_measured *all)
{
    struct nh_study *s = in->study;
    for (size_t i = 0; i < s->n_measured; i++)
        if (strcmp(all[i].name, name) == 0)
            return NH_OK;
    return nh_measured_find(&all[s->n_measured++], &s->memory, name, in->place);
}

/* ---- parts of a study ---- */

const char *nh_sweep_args(const struct nh_study_sweep *sweep, bool quick)
{
    return quick && sweep->quick_args ? sweep->quick_args : sweep->args;
}

const char *nh_sweep_seeds(const struct nh_study_sweep *sweep, bool quick)
{
    return quick && sweep->quick_seeds ? sweep->quick_seeds : sweep->seeds;
}

#define FIELD(type, member, kind, optional)                                                                            \
    {                                                                                                                  \
#member, &kind, offsetof(struct type, member), optional                                                        \
    }

static const struct nh_field sweep_fields[] = {
    FIELD(nh_study_sweep, name, nh_field_text, false),
    FIELD(nh_study_sweep, args, nh_field_text, false),
    FIELD(nh_study_sweep, seeds, nh_field_text, false),
    FIELD(nh_study_sweep, quick_args, nh_field_text, true),
    FIELD(nh_study_sweep, quick_seeds, nh_field_text, true),
    FIELD(nh_study_sweep, quick, nh_field_flag, true),
    {.name = NULL},
};

/* What the sweep is called with, --quick or not. */
static int check_calls(const struct input *in, const struct nh_study_sweep *sweep)
{
    struct nh_study_call call = {"args", sweep->args, "seeds", sweep->seeds, in->study->options};
    const int status = nh_study_check_call(&in->study->memory, in->place, call);
    if (status || !(sweep->quick_args || sweep->quick_seeds))
        return status;
    if (sweep->quick_args)
        call.args_field = "quick_args", call.args = sweep->quick_args;
    if (sweep->quick_seeds)
        call.seeds_field = "quick_seeds", call.seeds = sweep->quick_seeds;
    return nh_study_check_call(&in->study->memory, in->place, call);
}

static int read_sweep(struct input *in, const json_t *json, size_t i)
{
    struct nh_study *s = in->study;
    struct nh_study_sweep *sweep = &s->sweeps[i];
    *sweep = (struct nh_study_sweep){.quick = true};
    int status = nh_fields_read(in->place, &in->study->memory, json, sweep_fields, NULL, sweep);
    if (!status)
        status = check_file_name(in, sweep->name);
    if (!status)
        status = check_calls(in, sweep);
    for (size_t k = 0; k < i && !status; k++)
        if (strcmp(s->sweeps[k].name, sweep->name) == 0)
            status = nh_fail(NH_FAILED, "%.500s: another sweep is called '%.60s', too", in->place, sweep->name);
    return status;
}

static const struct nh_field table_fields[] = {
    FIELD(nh_study_table, title, nh_field_text, false),
    FIELD(nh_study_table, where, nh_field_where, false),
    FIELD(nh_study_table, by, nh_field_words, false),
    FIELD(nh_study_table, measures, nh_field_words, false),
    {.name = NULL},
};

static int read_table(struct input *in, const json_t *json, size_t i)
{
    struct nh_study_table *table = &in->study->tables[i];
    int status = nh_fields_read(in->place, &in->study->memory, json, table_fields, NULL, table);
    if (!status)
        status = check_where(in, table->where);
    return status ? status : check_options(in, table->by);
}

static const struct nh_field expectation_fields[] = {
    FIELD(nh_expectation, text, nh_field_text, false),
    FIELD(nh_expectation, where, nh_field_where, false),
    FIELD(nh_expectation, measure, nh_field_text, false),
    FIELD(nh_expectation, runs, nh_field_count, false),
    {"test", &nh_field_text, offsetof(struct nh_expectation, test_name), false},
    {"decides", &nh_field_text, offsetof(struct nh_expectation, decides_name), true},
    {.name = NULL},
};

static const struct nh_field test_fields[NH_TESTS][5] = {
    [NH_TEST_SHARE] = {FIELD(nh_expectation, within, nh_field_range, true),
                       FIELD(nh_expectation, is, nh_field_words, true),
                       FIELD(nh_expectation, at_least, nh_field_share, true)},
    [NH_TEST_RARER] = {FIELD(nh_expectation, within, nh_field_range, true),
                       FIELD(nh_expectation, is, nh_field_words, true),
                       FIELD(nh_expectation, than, nh_field_where, false),
                       FIELD(nh_expectation, p, nh_field_share, true)},
    [NH_TEST_RATIO] = {FIELD(nh_expectation, to, nh_field_where, false),
                       FIELD(nh_expectation, within, nh_field_range, false)},
    [NH_TEST_SLOPE] = {FIELD(nh_expectation, on, nh_field_text, false),
                       FIELD(nh_expectation, within, nh_field_range, false)},
    [NH_TEST_ORDER] = {FIELD(nh_expectation, of, nh_field_wheres, false)},
};

/* Words are for measures that are words, numbers for the others and for all tests but share and rarer. */
static int check_values(const struct input *in, const struct nh_expectation *e, const struct nh_measured *m)
{
    const bool words_wanted = m->measure && m->measure->showing == NH_SHOW_WORD;
    if (e->test > NH_TEST_RARER)
        return words_wanted ? nh_fail(NH_FAILED, "%.500s: %s is a word, which has no %s; use the test share or rarer",
                                      in->place, e->measure, nh_test_names[e->test])
                            : NH_OK;
    if ((e->is.n > 0) == words_wanted && isnan(e->within.low) == words_wanted)
        return NH_OK;
    return nh_fail(NH_FAILED, "%.500s: the values of %s are told by '%s'", in->place, e->measure,
                   words_wanted ? "is" : "within");
}

static int check_groups(const struct input *in, const struct nh_expectation *e)
{
    const json_t *const others[] = {e->where, e->than, e->to};
    int status = e->on ? check_option(in, e->on) : NH_OK;
    for (size_t i = 0; i < 3 && !status; i++)
        status = check_where(in, others[i]);
    for (size_t i = 0; i < json_array_size(e->of) && !status; i++)
        status = check_where(in, json_array_get(e->of, i));
    return status;
}

static int read_expectation(struct input *in, const json_t *json, size_t i)
{
    struct nh_expectation *e = &in->study->expectations[i];
    *e = (struct nh_expectation){
        .within = {(double)NAN, (double)NAN}, .at_least = 1, .p = 0.05, .decides_name = "nothing"};
    const char *name = json_string_value(json_object_get(json, "test"));
    int test = NH_TESTS, decides = 0, status = name ? find_name(in, "test", nh_test_names, name, &test) : NH_OK;
    if (!status)
        status = nh_fields_read(in->place, &in->study->memory, json, expectation_fields,
                                test < NH_TESTS ? test_fields[test] : NULL, e);
    if (!status)
        status = find_name(in, "use for decides:", nh_decides_names, e->decides_name, &decides);
    if (status)
        return status;
    e->test = (enum nh_test)test;
    e->decides = (enum nh_decides)decides;
    return check_groups(in, e);
}

static const struct nh_field figure_fields[] = {
    FIELD(nh_study_figure, figure, nh_field_text, false), FIELD(nh_study_figure, file, nh_field_text, false),
    FIELD(nh_study_figure, set, nh_field_text, true),     FIELD(nh_study_figure, caption, nh_field_text, false),
    FIELD(nh_study_figure, where, nh_field_where, false), {.name = NULL},
};

/* Its ending is that of a figure, so that it is no other file of the study, and no other figure goes there. */
static int check_figure_file(const struct input *in, const char *file, size_t i)
{
    const char *dot = strrchr(file, '.');
    if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0 && strcmp(dot, ".pdf") != 0))
        return nh_fail(NH_FAILED, "%.500s: '%.60s' must end in .svg, .png or .pdf", in->place, file);
    for (size_t k = 0; k < i; k++)
        if (strcmp(in->study->figures[k].file, file) == 0)
            return nh_fail(NH_FAILED, "%.500s: another figure has the file '%.60s', too", in->place, file);
    return NH_OK;
}

static int read_figure(struct input *in, const json_t *json, size_t i)
{
    struct nh_study_figure *figure = &in->study->figures[i];
    *figure = (struct nh_study_figure){.set = NULL};
    int status = nh_fields_read(in->place, &in->study->memory, json, figure_fields, NULL, figure);
    if (!status)
        status = check_file_name(in, figure->figure);
    if (!status)
        status = check_file_name(in, figure->file);
    if (!status)
        status = check_figure_file(in, figure->file, i);
    return status ? status : check_where(in, figure->where);
}

/* ---- the whole ---- */

/* Reads each object of a list. */
static int read_all(struct input *in, const char *name, const json_t *json,
                    int (*read)(struct input *in, const json_t *json, size_t i))
{
    int status = NH_OK;
    for (size_t i = 0; i < json_array_size(json) && !status; i++) {
        obstack_printf(&in->study->memory, "%s: %s[%zu]", in->study->path, name, i);
        in->place = nh_grown(&in->study->memory);
        status = read(in, json_array_get(json, i), i);
    }
    return status;
}

/* A verdict needs something to follow from, and a row of table.csv has an end. */
static int check_whole(struct input *in)
{
    const struct nh_study *s = in->study;
    enum { OTHER_COLUMNS = 8, COLUMNS_OF_MEASURE = 3 };
    size_t columns = OTHER_COLUMNS + COLUMNS_OF_MEASURE * s->n_measured, claims = 0;
    for (size_t i = 0; i < s->n_tables; i++)
        columns += s->tables[i].by.n;
    for (size_t i = 0; i < s->n_expectations; i++)
        claims += s->expectations[i].decides == NH_DECIDES_CLAIM;
    if (claims == 0)
        return nh_fail(NH_FAILED, "%.500s: no expectation has \"decides\": \"claim\"; nothing could refute this study",
                       s->path);
    return columns <= NH_SHEET_COLUMNS
               ? NH_OK
               : nh_fail(NH_FAILED, "%.500s: too many measures and groupings; split the study", s->path);
}

static int find_measures(struct input *in)
{
    struct nh_study *s = in->study;
    size_t n = s->n_expectations;
    for (size_t i = 0; i < s->n_tables; i++)
        n += s->tables[i].measures.n;
    struct nh_measured *all = nh_alloc(&s->memory, (n + 1) * sizeof *all);
    int status = NH_OK;
    in->place = s->path;
    for (size_t i = 0; i < s->n_tables; i++)
        for (size_t k = 0; k < s->tables[i].measures.n && !status; k++)
            status = use_measure(in, s->tables[i].measures.words[k], all);
    for (size_t i = 0; i < s->n_expectations && !status; i++) {
        const struct nh_expectation *e = &s->expectations[i];
        status = use_measure(in, e->measure, all);
        for (size_t k = 0; k < s->n_measured && !status; k++)
            if (strcmp(all[k].name, e->measure) == 0)
                status = check_values(in, e, &all[k]);
    }
    s->measured = all;
    return status;
}

static const struct nh_field study_fields[] = {
    FIELD(nh_study, title, nh_field_text, false),
    FIELD(nh_study, claim, nh_field_text, false),
    FIELD(nh_study, source, nh_field_text, false),
    FIELD(nh_study, cannot_show, nh_field_text, false),
    FIELD(nh_study, cost, nh_field_text, false),
    FIELD(nh_study, options, nh_field_text, true),
    FIELD(nh_study, sweeps, nh_field_list, false),
    FIELD(nh_study, tables, nh_field_list, false),
    FIELD(nh_study, expectations, nh_field_list, false),
    FIELD(nh_study, figures, nh_field_list, true),
    {.name = NULL},
};

static int read_parts(struct input *in)
{
    struct nh_study *s = in->study;
    const json_t *sweeps = json_object_get(s->root, "sweeps"), *tables = json_object_get(s->root, "tables"),
                 *expectations = json_object_get(s->root, "expectations"),
                 *figures = json_object_get(s->root, "figures");
    s->n_sweeps = json_array_size(sweeps);
    s->n_tables = json_array_size(tables);
    s->n_expectations = json_array_size(expectations);
    s->n_figures = json_array_size(figures);
    s->sweeps = nh_alloc(&s->memory, (s->n_sweeps + 1) * sizeof *s->sweeps);
    s->tables = nh_alloc(&s->memory, (s->n_tables + 1) * sizeof *s->tables);
    s->expectations = nh_alloc(&s->memory, (s->n_expectations + 1) * sizeof *s->expectations);
    s->figures = nh_alloc(&s->memory, (s->n_figures + 1) * sizeof *s->figures);
    int status = read_all(in, "sweeps", sweeps, read_sweep);
    if (!status)
        status = read_all(in, "tables", tables, read_table);
    if (!status)
        status = read_all(in, "expectations", expectations, read_expectation);
    if (!status)
        status = read_all(in, "figures", figures, read_figure);
    if (!status)
        status = find_measures(in);
    return status ? status : check_whole(in);
}

void nh_study_init(struct nh_study *s)
{
    *s = (struct nh_study){.options = ""};
    obstack_init(&s->memory);
}

int nh_study_read(struct nh_study *s, const char *folder)
{
    const char *slash = strrchr(folder, '/');
    s->name = nh_copy(&s->memory, slash ? slash + 1 : folder);
    obstack_printf(&s->memory, "%s/study.json", folder);
    s->path = nh_grown(&s->memory);
    json_error_t error;
    s->root = nh_json_load(s->path, NH_STUDY_BYTES, &error);
    if (!s->root && error.line < 0)
        return nh_fail(NH_FAILED, "cannot read %.500s: %.200s", s->path, error.text);
    if (!s->root)
        return nh_fail(NH_FAILED, "%.500s: line %d is not valid JSON: %.200s", s->path, error.line, error.text);
    struct input in = {.study = s, .place = s->path, .names = {"sweep"}, .n_names = 1};
    nh_options_tell(add_option, &in);
    const int status = nh_fields_read(s->path, &s->memory, s->root, study_fields, NULL, s);
    return status ? status : read_parts(&in);
}

void nh_study_fini(struct nh_study *s)
{
    for (size_t i = 0; i < s->n_runs; i++)
        json_decref(s->runs[i].record);
    free(s->runs);
    json_decref(s->root);
    obstack_free(&s->memory, NULL);
}
