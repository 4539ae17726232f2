// SPDX-License-Identifier: GPL-3.0-or-later
/** run.json: the whole configuration, what came out, what it was computed with. Written last. */
#include "harness/cli/cli.h"
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "results/file.h"

#include <cblas.h>
#include <gsl/gsl_version.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/** A number, or the text "nan", "inf", "-inf", which JSON has no numbers for. */
static json_t *number(double v)
{
    return isnan(v) ? json_string("nan") : isinf(v) ? json_string(v < 0 ? "-inf" : "inf") : json_real(v);
}

struct nh_event nh_run_first(const struct nh_run *run, enum nh_direction direction)
{
    if (run->options.config.train.steps)
        return direction == NH_FWD ? run->trainer.first_forward
               : direction == NH_UPDATE ? run->trainer.first_update : run->trainer.first_backward;
    return nh_event_of(&run->model, direction, 0);
}

/** What stands for the run. */
static struct nh_event offender(const struct nh_run *run)
{
    return run->options.config.train.steps ? nh_trainer_offender(&run->trainer) : nh_run_first(run, NH_FWD);
}

static json_t *event(const struct nh_run *run, struct nh_event e)
{
    const struct nh_first *f = &e.first;
    if (f->kind == NH_NO_OFFENCE)
        return json_null();
    const struct nh_site *s = &run->model.graph->sites[f->site];
    json_t *tensor = f->param ? json_string(run->model.graph->params[f->param - 1].name) : json_null();
    return json_pack("{s:i, s:i, s:s, s:s, s:s, s:o, s:s, s:I, s:o}", "step", e.step, "layer", s->layer, "sublayer",
                     nh_sublayer_names[s->sublayer], "site", nh_site_names[s->name], "direction", nh_direction_names[e.direction],
                     "tensor", tensor, "kind", nh_offence_names[f->kind], "index", (json_int_t)f->index, "value", number(f->value));
}

/** A number, or null where it was not measured. */
static json_t *measured(bool is_measured, double v)
{
    return is_measured ? number(v) : json_null();
}

/** Parameters by name, and how many of their stored numbers some update has changed. */
static json_t *changed(const struct nh_run *run)
{
    size_t n;
    struct nh_changed *kinds = nh_changed_kinds(run, &n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:I, s:I}", "name", kinds[i].name, "tensors", kinds[i].tensors,
                                              "tensors_unchanged", kinds[i].unchanged, "numbers", (json_int_t)kinds[i].numbers,
                                              "numbers_changed", (json_int_t)kinds[i].numbers_changed));
    free(kinds);
    return list;
}

/** What training came to. */
static json_t *training(const struct nh_run *run)
{
    const struct nh_trainer *t = &run->trainer;
    return json_pack("{s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "steps_done", t->step, "applied_steps", t->applied,
                     "skipped", t->skipped, "skipped_at_start", t->skipped_start, "start_loss", measured(t->step > 0, t->start_loss),
                     "final_loss", measured(nh_trainer_is_done(t), nh_trainer_tail_loss(t)), "val_loss",
                     measured(t->validated > 0, t->val_loss), "max_abs", number(t->max_abs), "max_score",
                     measured(t->has_scores, t->max_score), "stopped_by", nh_stop_texts[t->stop], "changed", changed(run));
}

static int add_option(void *arg, const char *option, const char *value)
{
    return json_object_set_new(arg, option, json_string(value)) ? nh_fail(NH_FAILED, "out of memory") : NH_OK;
}

static json_t *cpu_model(void)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256], name[200] = "unknown";
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %199[^\n]", name) == 1)
            break;
    if (f)
        fclose(f);
    return json_string(name);
}

static json_t *machine(const struct nh_run *run)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:i, s:f, s:f}", "program", nh_version, "compiler", __VERSION__, "gsl",
                     gsl_version, "blas", openblas_get_config(), "blas_core", openblas_get_corename(), "cpu", cpu_model(), "threads",
                     run->options.config.threads, "wall_s", run->wall_s, "peak_rss_mib", (double)usage.ru_maxrss / 1024);
}

/** The lines of a text that print_lines writes. */
static json_t *lines(const struct nh_run *run, void (*print_lines)(FILE *, const struct nh_run *))
{
    char *text = NULL;
    size_t size;
    FILE *file = nh_have(open_memstream(&text, &size));
    print_lines(file, run);
    if (fclose(file))
        nh_no_memory();
    json_t *list = json_array();
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        json_array_append_new(list, json_stringn(line, (size_t)(end - line)));
    free(text);
    return list;
}

int nh_run_json(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    json_t *options = json_object(), *j = json_object();
    int status = options && j ? nh_options_record(&run->options, add_option, options) : nh_fail(NH_FAILED, "out of memory");
    json_object_set_new(j, "run", json_string(run->id));
    json_object_set_new(j, "sample", json_string(run->sample));
    json_object_set_new(j, "status", json_string(nh_run_status_names[run->status]));
    json_object_set_new(j, "loss", number(run->loss));
    json_object_set_new(j, "loss_scale", number(run->loss_scale));
    json_object_set_new(j, "first_forward", event(run, nh_run_first(run, NH_FWD)));
    json_object_set_new(j, "first_backward", event(run, nh_run_first(run, NH_BWD)));
    json_object_set_new(j, "first_update", event(run, nh_run_first(run, NH_UPDATE)));
    json_object_set_new(j, "first_offender", event(run, offender(run)));
    if (c->train.steps)
        json_object_set_new(j, "training", training(run));
    json_object_set_new(j, "title", lines(run, nh_report_title));
    json_object_set_new(j, "summary", lines(run, nh_report_summary));
    json_object_set_new(j, "equation", json_string(c->layout->equation));
    json_object_set_new(j, "law", json_string(c->layout->law));
    json_object_set_new(j, "data", json_string(run->data->what));
    json_object_set_new(j, "parameters", json_integer((json_int_t)nh_graph_parameters(run->model.graph)));
    json_object_set_new(j, "numerics", json_integer(NH_NUMERICS_VERSION));
    json_object_set_new(j, "config", options);
    json_t *sizes = json_object();
    for (int i = 0; nh_run_files[i] && !status; i++) {
        const long long size = nh_run_file_size(run, nh_run_files[i]);
        if (size >= 0)
            json_object_set_new(sizes, nh_run_files[i], json_integer(size));
        status = size == NH_SIZE_UNKNOWN ? NH_FAILED : NH_OK;
    }
    json_object_set_new(j, "files", sizes);
    json_t *m = machine(run);
    json_object_update(j, m);
    json_decref(m);
    char *text = status ? NULL : json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(17)), *path = nh_run_path(run, "run.json");
    if (!status && !text)
        status = nh_fail(NH_FAILED, "out of memory for %s", path);
    if (!status)
        status = nh_file_write(path, text, strlen(text));
    free(text), free(path);
    json_decref(j);
    return status;
}
