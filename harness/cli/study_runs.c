// SPDX-License-Identifier: GPL-3.0-or-later
/** The runs of a study: which there are, and which belong together. */
#include "harness/cli/json_file.h"
#include "harness/cli/study.h"
#include "harness/core/err.h"
#include "results/number.h"
#include "results/reader.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- reading ---- */

static const char *id_of(const struct nh_study_run *run)
{
    const char *id = json_string_value(json_object_get(run->record, "run"));
    return id ? id : "";
}

/* The run of a cell; none, and run->record NULL, where it has not finished. */
static int read_run(struct nh_study *study, struct nh_study_run *run)
{
    obstack_printf(&study->memory, "%s/run.json", run->folder);
    const char *path = nh_grown(&study->memory);
    if (access(path, F_OK))
        return NH_OK;
    json_error_t error;
    run->record = nh_json_load(path, NH_RECORD_BYTES, &error);
    if (!run->record)
        return nh_fail(NH_FAILED, "%.500s is no record of a run: %.200s; remove its folder to have it run again", path, error.text);
    const char *status = json_string_value(json_object_get(run->record, "status"));
    const enum nh_outcome outcome = nh_outcome_find(status);
    if (outcome == NH_OUTCOMES || !json_is_object(json_object_get(run->record, "config")))
        return nh_fail(NH_FAILED, "%.500s lacks a status or its config; remove its folder to have it run again", path);
    run->outcome = outcome;
    run->sample = json_string_value(json_object_get(run->record, "sample"));
    run->values = nh_alloc(&study->memory, (study->n_measured + 1) * sizeof *run->values);
    return nh_measure_run(run->values, study->measured, study->n_measured, run->record, run->folder);
}

static int is_cell(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* All finished cells of a folder, whatever sweep has left them there. */
static int read_cells(struct nh_study *study, const char *sweep, const char *folder, struct nh_study_run **runs, size_t *n)
{
    struct dirent **entries = NULL;
    const int n_entries = scandir(folder, &entries, is_cell, alphasort);
    if (n_entries < 0)
        return nh_fail(NH_FAILED, "cannot read %.500s: %s", folder, strerror(errno));
    *runs = nh_alloc(&study->memory, ((size_t)n_entries + 1) * sizeof **runs);
    int status = NH_OK;
    for (int i = 0; i < n_entries; i++) {
        obstack_printf(&study->memory, "%s/%s", folder, entries[i]->d_name);
        struct nh_study_run *run = &(*runs)[*n];
        *run = (struct nh_study_run){.sweep = sweep, .folder = nh_grown(&study->memory)};
        if (!status)
            status = read_run(study, run);
        *n += run->record != NULL;
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Moves the runs of the sweep to the front, in the order of its config.csv; *n: how many they are. */
static int sort_runs(struct nh_study *study, const char *folder, struct nh_study_run *runs, size_t n_runs, size_t *n)
{
    obstack_printf(&study->memory, "%s/config.csv", folder);
    const char *path = nh_grown(&study->memory);
    struct nh_reader *r = NULL;
    size_t column;
    int more = 0, status = nh_reader_open(&r, path);
    if (!status)
        status = nh_reader_need(r, "run", &column);
    while (!status && (more = nh_reader_next(r)) == 1) {
        const char *id = nh_reader_text(r, column);
        if (*n > 0 && strcmp(id_of(&runs[*n - 1]), id) == 0)
            continue;
        size_t i = *n;
        while (i < n_runs && strcmp(id_of(&runs[i]), id) != 0)
            i++;
        if (i == n_runs) {
            status = nh_fail(NH_FAILED, "%.500s tells of run '%.40s', which is in no folder beside it; remove it to have them run again",
                             path, id);
        } else {
            const struct nh_study_run run = runs[i];
            runs[i] = runs[*n];
            runs[(*n)++] = run;
        }
    }
    nh_reader_close(r);
    return status ? status : more;
}

int nh_study_load(struct nh_study *study, const char *sweep, const char *folder)
{
    struct nh_study_run *runs = NULL;
    size_t n_runs = 0, n = 0;
    int status = read_cells(study, sweep, folder, &runs, &n_runs);
    if (!status)
        status = sort_runs(study, folder, runs, n_runs, &n);
    for (size_t i = status ? 0 : n; i < n_runs; i++)
        json_decref(runs[i].record);
    if (status)
        return status;
    struct nh_study_run *all = realloc(study->runs, (study->n_runs + n + 1) * sizeof *all);
    if (!all)
        return nh_fail(NH_FAILED, "out of memory for the runs of %.500s", folder);
    study->runs = all;
    for (size_t i = 0; i < n; i++)
        study->runs[study->n_runs++] = runs[i];
    return NH_OK;
}

/* ---- samples ---- */

static bool is_finished(const struct nh_study_run *run)
{
    return run->outcome != NH_OUTCOME_INTERRUPTED;
}

static bool are_one_sample(const struct nh_study_run *a, const struct nh_study_run *b)
{
    return a->sample && b->sample && strcmp(a->sample, b->sample) == 0;
}

/* Two runs of one sample as one: what only b has measured is added to a. A run that has not finished adds nothing to one that has. */
static const struct nh_study_run *join(struct nh_study *study, const struct nh_study_run *a, const struct nh_study_run *b)
{
    if (is_finished(a) != is_finished(b))
        return is_finished(a) ? a : b;
    struct nh_study_run *both = nh_alloc(&study->memory, sizeof *both);
    *both = *a;
    both->values = nh_alloc(&study->memory, (study->n_measured + 1) * sizeof *both->values);
    for (size_t i = 0; i < study->n_measured; i++)
        both->values[i] = a->values[i].sort == NH_READING_NONE ? b->values[i] : a->values[i];
    if (a->outcome == NH_OUTCOME_OK && b->outcome == NH_OUTCOME_OVERFLOWED)
        both->outcome = b->outcome;
    return both;
}

static struct nh_study_group join_samples(struct nh_study *study, struct nh_study_group g)
{
    struct nh_study_group samples = {nh_alloc(&study->memory, (g.n + 1) * sizeof *samples.runs), 0};
    for (size_t i = 0; i < g.n; i++) {
        size_t k = 0;
        while (k < samples.n && !are_one_sample(samples.runs[k], g.runs[i]))
            k++;
        if (k == samples.n)
            samples.runs[samples.n++] = g.runs[i];
        else
            samples.runs[k] = join(study, samples.runs[k], g.runs[i]);
    }
    return samples;
}

static bool agree(struct nh_reading a, struct nh_reading b)
{
    if (a.sort == NH_READING_NONE || b.sort == NH_READING_NONE)
        return true;
    if (a.sort != b.sort)
        return false;
    return a.sort == NH_READING_WORD ? strcmp(a.word, b.word) == 0 : a.number == b.number || (isnan(a.number) && isnan(b.number));
}

/* With all digits of a number, so that different ones look different. */
static const char *exact_text(struct obstack *memory, struct nh_reading v)
{
    char text[NH_NUMBER_SIZE];
    if (v.sort != NH_READING_NUMBER)
        return nh_reading_text(memory, v);
    nh_number_real(text, v.number);
    return nh_copy(memory, text);
}

/* How two runs of one sample differ, as a sentence; NULL where they agree. */
static const char *difference(struct nh_study *study, const struct nh_study_run *a, const struct nh_study_run *b)
{
    struct obstack *memory = &study->memory;
    const char *what = "status", *x = nh_outcome_names[a->outcome], *y = nh_outcome_names[b->outcome];
    size_t m = 0;
    if ((a->outcome == NH_OUTCOME_DIVERGED) == (b->outcome == NH_OUTCOME_DIVERGED)) {
        while (m < study->n_measured && agree(a->values[m], b->values[m]))
            m++;
        if (m == study->n_measured)
            return NULL;
        what = study->measured[m].name;
        x = exact_text(memory, a->values[m]);
        y = exact_text(memory, b->values[m]);
    }
    obstack_printf(memory, "%s and %s are runs of one sample, but their %s is %s and %s; the first counts", a->folder, b->folder, what, x,
                   y);
    return nh_grown(memory);
}

const char *nh_study_conflict(struct nh_study *study)
{
    for (size_t i = 0; i < study->n_runs; i++)
        for (size_t k = 0; k < i; k++) {
            const struct nh_study_run *a = &study->runs[k], *b = &study->runs[i];
            const char *sentence = are_one_sample(a, b) && is_finished(a) == is_finished(b) ? difference(study, a, b) : NULL;
            if (sentence)
                return sentence;
        }
    return NULL;
}

/* ---- which belong together ---- */

const char *nh_study_option(const struct nh_study_run *run, const char *name)
{
    if (strcmp(name, "sweep") == 0)
        return run->sweep;
    return json_string_value(json_object_get(json_object_get(run->record, "config"), name));
}

/* As text, or as numbers: "0.1" is 0.10 and "1e-1". */
static bool is_value(const char *have, const json_t *want)
{
    const char *text = json_string_value(want);
    double a, b = json_number_value(want);
    if (text && strcmp(have, text) == 0)
        return true;
    return nh_number_read(&a, have) && (!text || nh_number_read(&b, text)) && a == b;
}

static bool has(const struct nh_study_run *run, const char *option, const json_t *values)
{
    const char *have = nh_study_option(run, option);
    if (have && !json_is_array(values))
        return is_value(have, values);
    for (size_t i = 0; have && i < json_array_size(values); i++)
        if (is_value(have, json_array_get(values, i)))
            return true;
    return false;
}

static bool belongs(const struct nh_study_run *run, const json_t *where, const json_t *other)
{
    const char *option;
    json_t *values;
    json_object_foreach ((json_t *)where, option, values)
        if (!json_object_get(other, option) && !has(run, option, values))
            return false;
    json_object_foreach ((json_t *)other, option, values)
        if (!has(run, option, values))
            return false;
    return true;
}

struct nh_study_group nh_study_select(struct nh_study *study, const json_t *where, const json_t *other)
{
    struct nh_study_group g = {nh_alloc(&study->memory, (study->n_runs + 1) * sizeof *g.runs), 0};
    for (size_t i = 0; i < study->n_runs; i++)
        if (belongs(&study->runs[i], where, other))
            g.runs[g.n++] = &study->runs[i];
    return g;
}

static bool are_alike(const struct nh_study_run *a, const struct nh_study_run *b, struct nh_words by)
{
    for (size_t i = 0; i < by.n; i++) {
        const char *x = nh_study_option(a, by.words[i]), *y = nh_study_option(b, by.words[i]);
        if (strcmp(x ? x : "", y ? y : "") != 0)
            return false;
    }
    return true;
}

struct nh_study_group *nh_study_groups(struct nh_study *study, struct nh_study_group all, struct nh_words by, size_t *n)
{
    struct nh_study_group *groups = nh_alloc(&study->memory, (all.n + 1) * sizeof *groups);
    *n = 0;
    for (size_t i = 0; i < all.n; i++) {
        size_t k = 0;
        while (k < *n && !are_alike(groups[k].runs[0], all.runs[i], by))
            k++;
        if (k == *n)
            groups[(*n)++] = (struct nh_study_group){nh_alloc(&study->memory, all.n * sizeof *all.runs), 0};
        groups[k].runs[groups[k].n++] = all.runs[i];
    }
    for (size_t k = 0; k < *n; k++)
        groups[k] = join_samples(study, groups[k]);
    return groups;
}

/* ---- their values ---- */

/* Over the runs of one seed; none where one of them has no value, or all have the same: those of the start. */
static struct nh_reading value_of_seed(struct nh_study *study, struct nh_study_group g, size_t measure)
{
    double *losses = nh_alloc(&study->memory, g.n * sizeof *losses);
    for (size_t i = 0; i < g.n; i++) {
        if (g.runs[i]->values[measure].sort != NH_READING_NUMBER)
            return (struct nh_reading){.sort = NH_READING_NONE};
        losses[i] = g.runs[i]->values[measure].number;
    }
    const double sensitivity = nh_lr_sensitivity(losses, g.n);
    return (struct nh_reading){sensitivity > 0 ? NH_READING_NUMBER : NH_READING_NONE, sensitivity, NULL};
}

/* A seed with less runs than others has no value. */
static struct nh_reading *values_of_seeds(struct nh_study *study, struct nh_study_group group, size_t measure, size_t *n)
{
    struct nh_study_group *seeds = nh_study_groups(study, group, (struct nh_words){(const char *[]){"seed"}, 1}, n);
    struct nh_reading *values = nh_alloc(&study->memory, (*n + 1) * sizeof *values);
    size_t most = 0;
    for (size_t i = 0; i < *n; i++)
        most = seeds[i].n > most ? seeds[i].n : most;
    for (size_t i = 0; i < *n; i++) {
        values[i] = (struct nh_reading){.sort = NH_READING_NONE};
        if (seeds[i].n == most)
            values[i] = value_of_seed(study, seeds[i], measure);
    }
    return values;
}

struct nh_reading *nh_study_values(struct nh_study *study, struct nh_study_group group, const char *name, size_t *n)
{
    size_t measure = 0;
    while (strcmp(study->measured[measure].name, name) != 0)
        measure++;
    const struct nh_study_measure *m = study->measured[measure].measure;
    if (m && m->of_seed)
        return values_of_seeds(study, group, measure, n);
    group = join_samples(study, group);
    struct nh_reading *values = nh_alloc(&study->memory, (group.n + 1) * sizeof *values);
    for (*n = 0; *n < group.n; ++*n)
        values[*n] = group.runs[*n]->values[measure];
    return values;
}
