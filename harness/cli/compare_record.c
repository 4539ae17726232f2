// SPDX-License-Identifier: GPL-3.0-or-later
/** What run.json says of a run. */
#include "harness/cli/compare.h"
#include "harness/cli/json_file.h"
#include "harness/core/err.h"
#include "results/number.h"

#include <jansson.h>
#include <string.h>

enum nh_outcome nh_outcome_find(const char *status)
{
    enum nh_outcome outcome = 0;
    while (outcome < NH_OUTCOME_BROKEN_OFF && (!status || strcmp(nh_outcome_names[outcome], status) != 0))
        outcome++;
    return outcome == NH_OUTCOME_BROKEN_OFF ? NH_OUTCOMES : outcome; /* that is none of a run.json */
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* A number, or a text where JSON has no number for it; null and nothing are not measured. */
static struct nh_measure measure_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    struct nh_measure m = {json_is_number(value), json_number_value(value)};
    if (json_is_string(value))
        m.known = nh_number_read(&m.value, json_string_value(value));
    return m;
}

static int broken(const char *path, const char *what)
{
    return nh_fail(NH_FAILED, "%.500s: %.200s; run it again, or remove the file to do without it", path, what);
}

static void take_place(struct nh_place *place, const json_t *event)
{
    const struct nh_measure step = measure_of(event, "step"), layer = measure_of(event, "layer");
    if (json_is_object(event))
        nh_place_set(place, step.known ? step.value : -1, layer.known ? layer.value : -1, text_of(event, "sublayer"),
                     text_of(event, "site"), text_of(event, "direction"));
}

static void take_training(struct nh_run_info *info, const json_t *record)
{
    static const struct {
        enum nh_quantity quantity;
        const char *name;
    } fields[] = {{NH_FINAL_LOSS, "final_loss"}, {NH_VAL_LOSS, "val_loss"}, {NH_SKIPPED, "skipped"}, {NH_STEPS_DONE, "steps_done"}};
    const json_t *training = json_object_get(record, "training");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        info->of[fields[i].quantity] = measure_of(training, fields[i].name);
    if (training)
        info->of[NH_LOSS_SCALE] = measure_of(record, "loss_scale");
}

/* Those of config.csv, where that was not read. */
static void take_options(struct nh_comparison *c, struct nh_run_info *info, const json_t *record)
{
    const char *name;
    json_t *value;
    json_object_foreach (json_object_get(record, "config"), name, value)
        nh_run_info_add(c, info, name, json_is_string(value) ? json_string_value(value) : "");
    if (*text_of(record, "sample"))
        nh_run_info_add(c, info, "sample", text_of(record, "sample"));
}

/* A run of which no table has a row. */
static int take_run(struct nh_comparison *c, const char *path, struct nh_run_info *info, const json_t *record)
{
    const json_t *config = json_object_get(record, "config");
    if (!json_is_object(config) || !*text_of(record, "run"))
        return broken(path, "it lacks the run or its config, and no table beside it has rows");
    struct nh_compared keys = {.keys[NH_KEY_RUN] = text_of(record, "run")}, *run;
    for (int k = NH_KEY_LABEL; k < NH_KEY_COUNT; k++)
        keys.keys[k] = text_of(config, nh_key_name((enum nh_key)k));
    if (!nh_number_read(&keys.depth, keys.keys[NH_KEY_DEPTH]))
        return broken(path, "its depth is no number");
    return nh_compared_find(c, &keys, info, NH_FROM_RECORD, path, &run);
}

static int take_record(struct nh_comparison *c, const char *path, const char *folder, struct nh_run_info *info, bool check,
                       const json_t *record)
{
    const enum nh_outcome outcome = nh_outcome_find(text_of(record, "status"));
    if (outcome == NH_OUTCOMES)
        return broken(path, "its status is none of ok, overflowed, diverged, interrupted");
    if (!info)
        info = nh_run_info_find(c, text_of(record, "run"), folder);
    info->recorded = true;
    info->outcome = outcome;
    take_place(&info->first, json_object_get(record, "first_offender"));
    take_training(info, record);
    if (!info->options)
        take_options(c, info, record);
    int status = check ? nh_record_check(record, folder) : NH_OK;
    if (!status && check && !info->has_run)
        status = take_run(c, path, info, record);
    return status;
}

int nh_record_read(struct nh_comparison *c, const char *path, const char *folder, struct nh_run_info *info, bool check)
{
    json_error_t error;
    json_t *record = nh_json_load(path, NH_RECORD_BYTES, &error);
    const int status = record ? take_record(c, path, folder, info, check, record) : broken(path, error.text);
    json_decref(record);
    return status;
}
