// SPDX-License-Identifier: GPL-3.0-or-later
/** The model of a run, from the folder that it left: options of config.csv, weights of the checkpoint. The data is not needed. */
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "results/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Writes the rows as nh_options_recall takes them, and takes the run's name. */
static int read_rows(struct nh_run *run, struct nh_reader *r, FILE *rows)
{
    size_t id, option, value;
    int more = 1, status = nh_reader_need(r, "run", &id);
    if (!status)
        status = nh_reader_need(r, "option", &option);
    if (!status)
        status = nh_reader_need(r, "value", &value);
    while (!status && (more = nh_reader_next(r)) == 1) {
        snprintf(run->id, sizeof run->id, "%s", nh_reader_text(r, id));
        if (strcmp(nh_reader_text(r, option), NH_SAMPLE_ROW) == 0) /* no option: it follows from them and the data */
            continue;
        fprintf(rows, "%s%c%s%c", nh_reader_text(r, option), '\0', nh_reader_text(r, value), '\0');
    }
    return status ? status : more;
}

static int recall(struct nh_run *run, char *record, const char *path)
{
    const struct nh_config *c = &run->options.config;
    int status = nh_options_recall(&run->options, record);
    if (!status && (!c->train.steps || !c->batch || !c->seq || !c->vocab))
        status = nh_fail(NH_FAILED, "a run that trains has numbers for steps, batch, seq and vocab; train again");
    if (!status)
        return NH_OK;
    char why[1024];
    snprintf(why, sizeof why, "%s", nh_error());
    return nh_fail(NH_FAILED, "%s: %s", path, why);
}

int nh_trained_open(struct nh_run *run, const char *dir)
{
    struct nh_reader *r = NULL;
    char *record = NULL;
    size_t size;
    run->dir = strdup(dir);
    FILE *rows = open_memstream(&record, &size);
    if (!run->dir || !rows)
        nh_no_memory();
    char *path = nh_run_path(run, "config.csv");
    int status = nh_run_file_size(run, NH_CHECKPOINT) == NH_SIZE_MISSING
                     ? nh_fail(NH_FAILED, "%s has no " NH_CHECKPOINT "; train with --checkpoint-every N", dir)
                     : nh_reader_open(&r, path);
    if (!status)
        status = read_rows(run, r, rows);
    nh_reader_close(r);
    if (fclose(rows)) /* puts a NUL behind the rows */
        nh_no_memory();
    if (status)
        free(record);
    else
        status = recall(run, record, path);
    free(path);
    return status;
}

int nh_trained_load(struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    struct nh_extent extents[NH_TABLE_COUNT];
    /* gradients: without them there are no moments either; any tokens will do, as what is drawn is written over */
    int *tokens = calloc((size_t)c->batch * (size_t)c->seq, sizeof *tokens);
    int status = tokens ? nh_model_create(&run->model, c, c->batch, c->seq, c->vocab, tokens, true)
                        : nh_fail(NH_FAILED, "out of memory for a batch");
    if (!status)
        status = nh_trainer_create(&run->trainer, c, &run->model);
    if (!status)
        status = nh_checkpoint_read(run, extents);
    free(tokens);
    return status;
}
