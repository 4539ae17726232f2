// SPDX-License-Identifier: GPL-3.0-or-later
/** What can be measured of a run. */
#include "harness/cli/near.h"
#include "harness/cli/study.h"
#include "harness/core/err.h"
#include "results/number.h"
#include "results/reader.h"
#include "results/schema.h"

#include <math.h>
#include <string.h>

/* What measures are made of: run.json, and what the rows of steps.csv came to. */
struct nh_run_facts {
    const json_t *record, *training, *first; /* first: first_forward */
    size_t recoveries;
};

static struct nh_reading number(double x)
{
    return (struct nh_reading){NH_READING_NUMBER, x, NULL};
}

/* run.json has "nan" and "inf" as texts. */
static struct nh_reading field(const json_t *object, const char *name)
{
    const json_t *json = json_object_get(object, name);
    double x = json_number_value(json);
    if (json_is_number(json) || (json_is_string(json) && nh_number_read(&x, json_string_value(json))))
        return number(x);
    return (struct nh_reading){.sort = NH_READING_NONE};
}

static struct nh_reading word(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return (struct nh_reading){text ? NH_READING_WORD : NH_READING_NONE, 0, text};
}

static bool has_status(const struct nh_run_facts *r, enum nh_outcome outcome)
{
    const char *status = json_string_value(json_object_get(r->record, "status"));
    return status && strcmp(status, nh_outcome_names[outcome]) == 0;
}

static struct nh_reading diverged(const struct nh_run_facts *r)
{
    return number(has_status(r, NH_OUTCOME_DIVERGED));
}

static struct nh_reading first_step(const struct nh_run_facts *r)
{
    if (json_is_object(r->first))
        return field(r->first, "step");
    const struct nh_reading done = field(r->training, "steps_done");
    return (struct nh_reading){NH_READING_BEYOND, done.number, NULL};
}

static struct nh_reading first_layer(const struct nh_run_facts *r)
{
    return field(r->first, "layer");
}

static struct nh_reading first_depth(const struct nh_run_facts *r)
{
    struct nh_reading layer = first_layer(r);
    layer.number /= field(json_object_get(r->record, "config"), "depth").number;
    return layer;
}

static struct nh_reading first_sublayer(const struct nh_run_facts *r)
{
    return word(r->first, "sublayer");
}

static struct nh_reading first_site(const struct nh_run_facts *r)
{
    return word(r->first, "site");
}

static struct nh_reading recoveries(const struct nh_run_facts *r)
{
    return number((double)r->recoveries);
}

static struct nh_reading max_abs(const struct nh_run_facts *r)
{
    return field(r->training, "max_abs");
}

static struct nh_reading max_score(const struct nh_run_facts *r)
{
    return field(r->training, "max_score");
}

static struct nh_reading steps_done(const struct nh_run_facts *r)
{
    return field(r->training, "steps_done");
}

static struct nh_reading applied_steps(const struct nh_run_facts *r)
{
    return field(r->training, "applied_steps");
}

static struct nh_reading skipped(const struct nh_run_facts *r)
{
    return field(r->training, "skipped");
}

static struct nh_reading start_loss(const struct nh_run_facts *r)
{
    return field(r->training, "start_loss");
}

static struct nh_reading final_loss(const struct nh_run_facts *r)
{
    return field(r->training, "final_loss");
}

static struct nh_reading val_loss(const struct nh_run_facts *r)
{
    return field(r->training, "val_loss");
}

static struct nh_reading capped_loss(const struct nh_run_facts *r)
{
    const struct nh_reading start = start_loss(r), final = final_loss(r);
    return has_status(r, NH_OUTCOME_DIVERGED) || !(final.number < start.number) ? start : final;
}

const struct nh_study_measure nh_study_measures[] = {
    {"diverged", "1 where the run diverged, else 0", NH_SHOW_MEDIAN, .of = diverged},
    {"first_step", "step of the first forward overflow; without one in N steps: beyond N", NH_SHOW_MEDIAN,
     .of = first_step},
    {"first_layer", "its layer", NH_SHOW_MEDIAN, .of = first_layer},
    {"first_depth", "its layer over L", NH_SHOW_MEDIAN, .of = first_depth},
    {"first_sublayer", "its sublayer", NH_SHOW_WORD, .of = first_sublayer},
    {"first_site", "its site", NH_SHOW_WORD, .of = first_site},
    {"recoveries", "how often a step without forward overflow follows one with", NH_SHOW_MEDIAN, .of_steps = true,
     .of = recoveries},
    {"max_abs", "largest |x| of the residual stream in all steps", NH_SHOW_MEDIAN, .of = max_abs},
    {"max_score", "largest |score| of attention in all steps", NH_SHOW_MEDIAN, .of = max_score},
    {"steps_done", "steps until the run ended", NH_SHOW_MEDIAN, .of = steps_done},
    {"applied_steps", "updates in them", NH_SHOW_MEDIAN, .of = applied_steps},
    {"skipped", "steps without an update", NH_SHOW_MEDIAN, .of = skipped},
    {"start_loss", "loss of the first step", NH_SHOW_MEAN, .of = start_loss},
    {"final_loss", "mean loss of the last tenth of the steps", NH_SHOW_MEAN, .of = final_loss},
    {"val_loss", "loss on what is held out, behind the last step", NH_SHOW_MEAN, .of = val_loss},
    {"capped_loss", "final loss, at most that of the start; of a diverged run that of the start", NH_SHOW_MEDIAN,
     .of = capped_loss},
    {"lr_sensitivity",
     "of a seed: mean of the capped loss over the learning rates, above the least; none where no rate trains",
     NH_SHOW_MEDIAN, .of_seed = true, .of = capped_loss},
    {.name = NULL},
};

/* ---- by name ---- */

static int find_column(struct nh_measured *m, const char *place)
{
    struct nh_near near = nh_near_start(m->column, "");
    size_t n;
    const struct nh_column *columns = nh_table_columns(NH_TABLE_STEPS, &n);
    for (size_t i = 0; i < n; i++) {
        if (columns[i].type == NH_TYPE_TEXT)
            continue;
        nh_near_try(&near, columns[i].name);
        if (strcmp(columns[i].name, m->column) == 0)
            return NH_OK;
    }
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_FAILED, "%.500s: '%.60s': steps.csv has no number of that name%s", place, m->name,
                   nh_near_text(&near, hint));
}

int nh_measured_find(struct nh_measured *m, struct obstack *memory, const char *name, const char *place)
{
    *m = (struct nh_measured){.name = name};
    const char *at = strchr(name, '@');
    if (at) {
        char *column = strcpy(nh_alloc(memory, strlen(name) + 1), name);
        column[at - name] = '\0';
        m->column = column;
        if (!nh_number_read(&m->step, at + 1) || m->step < 0 || m->step != floor(m->step))
            return nh_fail(NH_FAILED, "%.500s: '%.60s' must end in a step, such as max_abs@20", place, name);
        return find_column(m, place);
    }
    struct nh_near near = nh_near_start(name, "");
    for (const struct nh_study_measure *k = nh_study_measures; k->name; k++) {
        nh_near_try(&near, k->name);
        if (strcmp(k->name, name) == 0) {
            m->measure = k;
            return NH_OK;
        }
    }
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_FAILED, "%.500s: there is no measure '%.60s'%s ('harness list measures' shows all)", place, name,
                   nh_near_text(&near, hint));
}

/* ---- steps.csv ---- */

/* One row; *overflowed: the one before had overflows. */
static int take_row(struct nh_reader *r, const size_t at[2], struct nh_reading *values,
                    const struct nh_measured *measured, size_t n, bool *overflowed, size_t *recoveries)
{
    double step, overflows;
    int status = nh_reader_real(r, at[0], &step);
    if (status >= 0)
        status = nh_reader_real(r, at[1], &overflows);
    if (status < 0)
        return status;
    *recoveries += *overflowed && overflows == 0;
    *overflowed = overflows > 0;
    for (size_t i = 0; i < n; i++) {
        size_t column;
        if (!measured[i].column || measured[i].step != step || !nh_reader_find(r, measured[i].column, &column))
            continue;
        values[i] = number(0);
        status = nh_reader_real(r, column, &values[i].number);
        if (status < 0)
            return status;
        if (status == 0)
            values[i].sort = NH_READING_NONE;
    }
    return NH_OK;
}

static int read_steps(const char *folder, struct nh_reading *values, const struct nh_measured *measured, size_t n,
                      size_t *recoveries)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/steps.csv", folder);
    struct nh_reader *r = NULL;
    size_t at[2];
    bool overflowed = false;
    int more = 0, status = nh_reader_open(&r, path);
    if (!status)
        status = nh_reader_need(r, nh_columns[NH_STEPS_STEP].name, &at[0]);
    if (!status)
        status = nh_reader_need(r, nh_columns[NH_STEPS_OVERFLOW_FWD].name, &at[1]);
    while (!status && (more = nh_reader_next(r)) == 1)
        status = take_row(r, at, values, measured, n, &overflowed, recoveries);
    nh_reader_close(r);
    return status ? status : more;
}

int nh_measure_run(struct nh_reading *values, const struct nh_measured *measured, size_t n, const json_t *record,
                   const char *folder)
{
    struct nh_run_facts facts = {record, json_object_get(record, "training"), json_object_get(record, "first_forward"),
                                 0};
    bool steps = false;
    for (size_t i = 0; i < n; i++) {
        values[i] = (struct nh_reading){.sort = NH_READING_NONE};
        steps = steps || !measured[i].measure || measured[i].measure->of_steps;
    }
    const int status = steps && facts.training ? read_steps(folder, values, measured, n, &facts.recoveries) : NH_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (measured[i].measure)
            values[i] = measured[i].measure->of(&facts);
    return status;
}
