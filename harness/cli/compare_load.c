// SPDX-License-Identifier: GPL-3.0-or-later
/** Which files belong to a run, and what they say together. */
#include "harness/cli/compare.h"
#include "harness/core/err.h"

#include <errno.h>
#include <fts.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define obstack_chunk_alloc malloc
#define obstack_chunk_free  free

const char *const nh_outcome_names[NH_OUTCOMES] = {"ok", "overflowed", "diverged", "interrupted"};

/* The macros of obstack.h find multiples of the alignment as distances from the null pointer. */
#define ALIGNS __attribute__((no_sanitize("pointer-overflow")))

/* They count in int. */
ALIGNS void *nh_alloc(struct obstack *memory, size_t size)
{
    if (size > INT_MAX)
        obstack_alloc_failed_handler();
    return obstack_alloc(memory, (int)size);
}

ALIGNS const char *nh_grown(struct obstack *memory)
{
    obstack_1grow(memory, '\0');
    return obstack_finish(memory);
}

const char *nh_copy(struct obstack *memory, const char *text)
{
    return strcpy(nh_alloc(memory, strlen(text) + 1), text);
}

void nh_comparison_init(struct nh_comparison *c)
{
    *c = (struct nh_comparison){.end = &c->runs};
    obstack_init(&c->memory);
}

static void keep(void *node)
{
    (void)node;
}

void nh_comparison_fini(struct nh_comparison *c)
{
    tdestroy(c->by_keys, keep);
    tdestroy(c->by_id, keep);
    obstack_free(&c->memory, NULL);
}

static int compare_ids(const void *a, const void *b)
{
    const struct nh_run_info *x = a, *y = b;
    return strcmp(x->run, y->run);
}

static struct nh_run_info *new_info(struct nh_comparison *c, const char *id)
{
    struct nh_run_info *info = nh_alloc(&c->memory, sizeof *info);
    *info = (struct nh_run_info){.run = nh_copy(&c->memory, id), .end = &info->options};
    return info;
}

struct nh_run_info *nh_run_info_find(struct nh_comparison *c, const char *id)
{
    const struct nh_run_info wanted = {.run = id};
    void *found = tfind(&wanted, &c->by_id, compare_ids);
    if (!found)
        found = tsearch(new_info(c, id), &c->by_id, compare_ids);
    if (!found)
        obstack_alloc_failed_handler();
    return *(struct nh_run_info **)found;
}

void nh_place_set(struct nh_place *place, double layer, const char *sublayer, const char *site)
{
    *place = (struct nh_place){.known = true, .layer = (int)fmax(0, fmin(layer, 0x1p30))};
    snprintf(place->sublayer, sizeof place->sublayer, "%s", sublayer);
    snprintf(place->site, sizeof place->site, "%s", site);
}

/* ---- run.json ---- */

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static int broken_json(const char *path, const char *what)
{
    return nh_fail(NH_FAILED, "%.500s: %.200s; run it again, or remove the file to do without it", path, what);
}

static int take_record(struct nh_run_info *info, const char *path, const json_t *record)
{
    int outcome = 0;
    while (outcome < NH_OUTCOMES && strcmp(nh_outcome_names[outcome], text_of(record, "status")) != 0)
        outcome++;
    if (outcome == NH_OUTCOMES)
        return broken_json(path, "its status is none of ok, overflowed, diverged, interrupted");
    info->recorded = true;
    info->outcome = (enum nh_outcome)outcome;
    const json_t *first = json_object_get(record, "first_offender");
    if (json_is_object(first))
        nh_place_set(&info->first, json_number_value(json_object_get(first, "layer")), text_of(first, "sublayer"),
                     text_of(first, "site"));
    return NH_OK;
}

static int load_json(struct nh_run_info *info, const char *path)
{
    json_error_t error;
    json_t *record = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const int status = record ? take_record(info, path, record) : broken_json(path, error.text);
    json_decref(record);
    return status;
}

/* ---- folders ---- */

/* The file of a folder, on the obstack; NULL where it is not there. */
static const char *in_folder(struct nh_comparison *c, const char *folder, const char *name)
{
    obstack_printf(&c->memory, "%s/%s", folder, name);
    const char *path = nh_grown(&c->memory);
    return access(path, F_OK) == 0 ? path : NULL;
}

/* *found: the folder is one of a run. */
static int load_run(struct nh_comparison *c, const char *folder, bool *found)
{
    static const char *const names[] = {"layers.csv", "sites.csv", "config.csv", "run.json"};
    *found = in_folder(c, folder, names[0]);
    struct nh_run_info *info = new_info(c, "");
    int status = NH_OK;
    for (int i = 0; i < 4 && *found && !status; i++) {
        const char *path = in_folder(c, folder, names[i]);
        if (path)
            status = i < 3 ? nh_comparison_read(c, path, info) : load_json(info, path);
    }
    return status;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strverscmp((*a)->fts_name, (*b)->fts_name);
}

static int load_folder(struct nh_comparison *c, const char *folder)
{
    char *const roots[] = {strcpy(nh_alloc(&c->memory, strlen(folder) + 1), folder), NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    if (!tree)
        return nh_fail(NH_FAILED, "cannot read %s: %s", folder, strerror(errno));
    int status = NH_OK;
    bool any = false, found = false;
    FTSENT *e;
    while (!status && (e = fts_read(tree))) {
        if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR)
            status = nh_fail(NH_FAILED, "cannot read %s: %s", e->fts_path, strerror(e->fts_errno));
        if (e->fts_info != FTS_D)
            continue;
        status = load_run(c, e->fts_path, &found);
        if (found)
            fts_set(tree, e, FTS_SKIP);
        any = any || found;
    }
    fts_close(tree);
    if (!status && !any)
        status = nh_fail(NH_FAILED, "%s holds no run: there is no layers.csv in it or in folders below it", folder);
    return status;
}

int nh_comparison_load(struct nh_comparison *c, const char *path)
{
    struct stat s;
    if (stat(path, &s))
        return nh_fail(NH_FAILED, "cannot read %s: %s; give run folders or CSV files", path, strerror(errno));
    return S_ISDIR(s.st_mode) ? load_folder(c, path) : nh_comparison_read(c, path, NULL);
}

/* What the rows alone tell. */
static enum nh_outcome outcome_of(const struct nh_compared *run)
{
    const struct nh_measure rms = run->of[NH_FINAL_RMS];
    if (run->rank == 0) /* the last layer is missing */
        return NH_OUTCOME_INTERRUPTED;
    if (rms.known && !isfinite(rms.value))
        return NH_OUTCOME_DIVERGED;
    return run->of[NH_OVERFLOWS].value > 0 ? NH_OUTCOME_OVERFLOWED : NH_OUTCOME_OK;
}

static void finish_run(struct nh_comparison *c, struct nh_compared *run)
{
    if (run->grad_first.known && run->grad_last.known && run->grad_step == run->step)
        run->of[NH_LOG_GRAD_RATIO] =
            (struct nh_measure){true, 2 * (log(run->grad_first.value) - log(run->grad_last.value))};
    if (!run->info)
        run->info = nh_run_info_find(c, run->keys[NH_KEY_RUN]);
    if (run->info->recorded) {
        run->outcome = run->info->outcome;
        run->first = run->info->first;
    } else {
        run->outcome = outcome_of(run);
        run->first = run->first_site.known ? run->first_site : run->first;
    }
}

int nh_comparison_finish(struct nh_comparison *c)
{
    for (struct nh_compared **run = &c->runs; *run;) {
        if ((*run)->source) {
            finish_run(c, *run);
            run = &(*run)->next;
        } else {
            *run = (*run)->next; /* it has sites alone */
        }
    }
    return c->runs ? NH_OK : nh_fail(NH_FAILED, "there are no runs to compare: no file has rows of layers.csv");
}
