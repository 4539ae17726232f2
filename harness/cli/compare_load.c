// SPDX-License-Identifier: GPL-3.0-or-later
/** Which files belong to a run, and what they say together. */
#include "harness/cli/compare.h"
#include "harness/core/err.h"
#include "results/file.h"
#include "results/reader.h"
#include "results/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define obstack_chunk_alloc malloc
#define obstack_chunk_free  free

const char *const nh_outcome_names[NH_OUTCOMES] = {"ok", "overflowed", "diverged", "interrupted", "broken off"};

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
    tdestroy(c->seen, keep);
    obstack_free(&c->memory, NULL);
}

static int compare_ids(const void *a, const void *b)
{
    const struct nh_run_info *x = a, *y = b;
    const int order = strcmp(x->run, y->run);
    return order ? order : strcmp(x->folder, y->folder);
}

static struct nh_run_info *new_info(struct nh_comparison *c, const char *id, const char *folder)
{
    struct nh_run_info *info = nh_alloc(&c->memory, sizeof *info);
    *info = (struct nh_run_info){.run = nh_copy(&c->memory, id), .folder = nh_copy(&c->memory, folder), .end = &info->options};
    return info;
}

struct nh_run_info *nh_run_info_find(struct nh_comparison *c, const char *id, const char *folder)
{
    const struct nh_run_info wanted = {.run = id, .folder = folder};
    void *found = tfind(&wanted, &c->by_id, compare_ids);
    if (!found)
        found = tsearch(new_info(c, id, folder), &c->by_id, compare_ids);
    if (!found)
        obstack_alloc_failed_handler();
    return *(struct nh_run_info **)found;
}

void nh_run_info_add(struct nh_comparison *c, struct nh_run_info *info, const char *name, const char *value)
{
    struct nh_run_option *option = nh_alloc(&c->memory, sizeof *option);
    *option = (struct nh_run_option){nh_copy(&c->memory, name), nh_copy(&c->memory, value), NULL};
    *info->end = option;
    info->end = &option->next;
}

void nh_place_set(struct nh_place *place, double step, double layer, const char *sublayer, const char *site, const char *direction)
{
    *place = (struct nh_place){.known = true, .step = (int)fmax(-1, fmin(step, 0x1p30)), .layer = (int)fmax(-1, fmin(layer, 0x1p30))};
    snprintf(place->sublayer, sizeof place->sublayer, "%s", sublayer);
    snprintf(place->site, sizeof place->site, "%s", site);
    snprintf(place->direction, sizeof place->direction, "%s", direction);
}

/* ---- files ---- */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* True, and *path the name that a file has by any way to it, where it was not met before. */
static bool is_new(struct nh_comparison *c, const char *path)
{
    char *real = realpath(path, NULL);
    if (!real && errno == ENOMEM)
        nh_no_memory();
    const char *name = nh_copy(&c->memory, real ? real : path);
    free(real);
    const void *found = tsearch(name, &c->seen, compare_paths);
    if (!found)
        obstack_alloc_failed_handler();
    return *(const char *const *)found == name;
}

/* 1 where the file of a folder is there, with its path on the obstack; 0; NH_FAILED where that cannot be known. */
static int in_folder(struct nh_comparison *c, const char *folder, const char *name, const char **path)
{
    obstack_printf(&c->memory, "%s/%s", folder, name);
    *path = nh_grown(&c->memory);
    struct stat s;
    if (stat(*path, &s) == 0)
        return 1;
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return 0;
    return nh_fail(NH_FAILED, "cannot read %s: %s", *path, strerror(errno));
}

static const char *const tables[] = {"layers.csv", "sites.csv", "steps.csv", "config.csv"};
enum { N_TABLES = sizeof tables / sizeof *tables, CONFIG = N_TABLES - 1 };

/* The longest temporary file of a table: a run that goes on copies the older one first. */
struct longest {
    struct nh_comparison *c;
    const char *path;
    off_t size;
};

static int take_longest(void *arg, const char *name)
{
    struct longest *l = arg;
    struct stat s;
    if (stat(name, &s))
        return errno == ENOENT ? NH_OK : nh_fail(NH_FAILED, "cannot read %s: %s", name, strerror(errno));
    if (!l->path || s.st_size > l->size) {
        l->path = nh_copy(&l->c->memory, name);
        l->size = s.st_size;
    }
    return NH_OK;
}

/* As in_folder(), of a table that is still written. */
static int part_in_folder(struct nh_comparison *c, const char *folder, const char *name, const char **path)
{
    struct longest l = {.c = c};
    obstack_printf(&c->memory, "%s/%s", folder, name);
    const int status = nh_part_each(nh_grown(&c->memory), take_longest, &l);
    *path = l.path;
    return status ? status : l.path != NULL;
}

/* What a folder is by the files in it. */
struct kind {
    bool record, table, part; /* run.json; a table that has rows of a run; such a table that is still written */
};

static int look(struct nh_comparison *c, const char *folder, struct kind *kind)
{
    const char *path;
    int found = in_folder(c, folder, "run.json", &path);
    *kind = (struct kind){.record = found > 0};
    for (int i = 0; i < CONFIG && found >= 0; i++) {
        found = in_folder(c, folder, tables[i], &path);
        kind->table = kind->table || found > 0;
        if (found >= 0)
            found = part_in_folder(c, folder, tables[i], &path);
        kind->part = kind->part || found > 0;
    }
    return found < 0 ? found : NH_OK;
}

/* A run that has no record yet: its tables as far as they have come. */
static int load_broken_off(struct nh_comparison *c, const char *folder)
{
    struct nh_run_info *info = new_info(c, "", folder);
    info->broken_off = true;
    int status = NH_OK;
    for (int i = 0; i < N_TABLES && !status; i++) {
        const char *path;
        int found = part_in_folder(c, folder, tables[i], &path);
        if (!found)
            found = in_folder(c, folder, tables[i], &path);
        status = found > 0 ? nh_comparison_read(c, path, info, folder, true) : found;
    }
    if (!status && !info->has_run)
        nh_text_line(stderr, "harness: %s is a run that was broken off before its first row; it is left out", folder);
    return status;
}

/* The run of a folder, or runs in joined tables. */
static int load_run(struct nh_comparison *c, const char *folder, struct kind kind)
{
    if (kind.part && !kind.record)
        return load_broken_off(c, folder);
    struct nh_run_info *info = kind.record ? new_info(c, "", folder) : NULL;
    const char *path;
    int status = NH_OK;
    for (int i = 0; i < N_TABLES && !status; i++) {
        const int found = in_folder(c, folder, tables[i], &path);
        status = found > 0 ? nh_comparison_read(c, path, info, folder, false) : found;
    }
    if (!status && kind.record) {
        in_folder(c, folder, "run.json", &path);
        status = nh_record_read(c, path, folder, info, true);
    }
    return status;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_entry(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

/* The folders directly in a folder, in the order of their names, up to NULL. */
static int folders_in(struct nh_comparison *c, const char *folder, const char ***folders)
{
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, is_entry, by_name);
    if (n < 0)
        return nh_fail(NH_FAILED, "cannot read %s: %s", folder, strerror(errno));
    const char **next = *folders = nh_alloc(&c->memory, ((size_t)n + 1) * sizeof *next);
    int status = NH_OK;
    for (int i = 0; i < n; i++) {
        obstack_printf(&c->memory, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", entries[i]->d_name);
        const char *path = nh_grown(&c->memory);
        struct stat s;
        if (!status && stat(path, &s) == 0) {
            if (S_ISDIR(s.st_mode))
                *next++ = path;
        } else if (!status && errno != ENOENT && errno != ELOOP) {
            status = nh_fail(NH_FAILED, "cannot read %s: %s", path, strerror(errno));
        }
        free(entries[i]);
    }
    free(entries);
    *next = NULL;
    return status;
}

/* Whether a folder directly below is one of a run. */
static int has_cells(struct nh_comparison *c, const char *folder)
{
    const char **below = NULL;
    int status = folders_in(c, folder, &below);
    for (; !status && *below; below++) {
        struct kind kind;
        status = look(c, *below, &kind);
        if (!status && (kind.record || kind.table || kind.part))
            return 1;
    }
    return status;
}

/* *found: the folder is one of a run, or of joined tables without their cells. */
static int load_entry(struct nh_comparison *c, const char *folder, bool *found)
{
    struct kind kind;
    int status = look(c, folder, &kind);
    *found = kind.record || kind.table || kind.part;
    if (!status && *found && !kind.record && !kind.part) {
        const int cells = has_cells(c, folder);
        status = cells < 0 ? cells : NH_OK;
        if (cells > 0) {
            struct nh_folder *sweep = nh_alloc(&c->memory, sizeof *sweep);
            *sweep = (struct nh_folder){nh_copy(&c->memory, folder), c->sweeps};
            c->sweeps = sweep;
            *found = false;
        }
    }
    return !status && *found ? load_run(c, folder, kind) : status;
}

/* The runs of a folder and of those below it; *any: there is one. */
static int load_tree(struct nh_comparison *c, const char *folder, bool *any)
{
    bool found = true;
    int status = is_new(c, folder) ? load_entry(c, folder, &found) : NH_OK;
    *any = *any || found;
    if (status || found)
        return status;
    const char **below = NULL;
    status = folders_in(c, folder, &below);
    for (; !status && *below; below++)
        status = load_tree(c, *below, any);
    return status;
}

static int load_folder(struct nh_comparison *c, const char *folder)
{
    bool any = false;
    const int status = load_tree(c, folder, &any);
    if (!status && !any)
        return nh_fail(NH_FAILED, "%s holds no run: there is no layers.csv, steps.csv or run.json in it or in folders below it", folder);
    return status;
}

/* ---- files by themselves ---- */

/* The records in a folder and in those directly in it, which may be of runs in a joined table. */
static int load_records(struct nh_comparison *c, const char *folder)
{
    const char **below = NULL, *path;
    int found = in_folder(c, folder, "run.json", &path), status = found > 0 ? nh_record_read(c, path, folder, NULL, false) : found;
    if (!status)
        status = folders_in(c, folder, &below);
    for (; !status && *below; below++) /* those that may not be looked into are of others: /tmp has such */
        if (in_folder(c, *below, "run.json", &path) > 0)
            status = nh_record_read(c, path, folder, NULL, false);
    return status;
}

static int load_file(struct nh_comparison *c, const char *path)
{
    const char *slash = strrchr(path, '/'), *config;
    if (slash)
        obstack_printf(&c->memory, "%.*s", (int)(slash - path + (slash == path)), path);
    else
        obstack_1grow(&c->memory, '.');
    const char *folder = nh_grown(&c->memory);
    if (!is_new(c, path))
        return NH_OK;
    int status = nh_comparison_read(c, path, NULL, folder, false);
    const int found = in_folder(c, folder, tables[CONFIG], &config);
    if (!status && found < 0)
        status = found;
    if (!status && found > 0 && is_new(c, config))
        status = nh_comparison_read(c, config, NULL, folder, false);
    obstack_printf(&c->memory, "%s/*", folder);
    if (!status && is_new(c, nh_grown(&c->memory)))
        status = load_records(c, folder);
    return status;
}

int nh_comparison_load(struct nh_comparison *c, const char *path)
{
    struct stat s;
    if (stat(path, &s))
        return nh_fail(NH_FAILED, "cannot read %s: %s; give run folders or CSV files", path, strerror(errno));
    return S_ISDIR(s.st_mode) ? load_folder(c, path) : load_file(c, path);
}

/* ---- what the files say together ---- */

/* Measured, and NaN or infinite. */
static bool is_lost(struct nh_measure m)
{
    return m.known && !isfinite(m.value);
}

/* Loss of the last step. */
static struct nh_measure last_loss(const struct nh_compared *run)
{
    struct nh_measure last = {.known = false};
    for (const struct nh_loss *l = run->losses; l; l = l->next)
        last = (struct nh_measure){true, l->loss};
    return last;
}

/* What the rows alone tell. A training that diverges stops before its last step. */
static enum nh_outcome outcome_of(const struct nh_compared *run, double steps)
{
    const struct nh_measure loss = run->of[NH_FINAL_LOSS], done = run->of[NH_STEPS_DONE];
    if (run->info->broken_off)
        return NH_OUTCOME_BROKEN_OFF;
    if (is_lost(run->of[NH_FINAL_RMS]) || is_lost(run->of[NH_VAL_LOSS]) || is_lost(last_loss(run)))
        return NH_OUTCOME_DIVERGED;
    if (done.known ? done.value < steps : run->rank == 0) /* the last step, the last layer is missing */
        return NH_OUTCOME_INTERRUPTED;
    if (loss.known && !(loss.value <= run->losses->loss + 1))
        return NH_OUTCOME_DIVERGED;
    return run->of[NH_OVERFLOWS].value > 0 ? NH_OUTCOME_OVERFLOWED : NH_OUTCOME_OK;
}

/* Mean over the last tenth of the steps. */
static struct nh_measure tail_loss(const struct nh_compared *run, double steps)
{
    double sum = 0, n = 0;
    for (const struct nh_loss *l = run->losses; l; l = l->next)
        if (l->step >= steps - ceil(steps / 10)) {
            sum += l->loss;
            n++;
        }
    return (struct nh_measure){n > 0, n > 0 ? sum / n : 0};
}

/* The earlier of two, the first of equals. */
static struct nh_place earlier(struct nh_place a, struct nh_place b)
{
    return !a.known || (b.known && b.step < a.step) ? b : a;
}

/* Options from a config.csv that was given by itself, where none lies beside the rows. */
static void complete(struct nh_comparison *c, struct nh_compared *run)
{
    const struct nh_run_info wanted = {.run = run->keys[NH_KEY_RUN], .folder = ""}, *own = run->info;
    struct nh_run_info *const *found = tfind(&wanted, &c->by_id, compare_ids);
    if (own->options || !found)
        return;
    struct nh_run_info *info = nh_alloc(&c->memory, sizeof *info);
    *info = *own;
    info->options = (*found)->options;
    run->info = info;
}

static void finish_run(struct nh_comparison *c, struct nh_compared *run)
{
    complete(c, run);
    if (run->grad_first.known && run->grad_last.known && run->grad_step == run->step)
        run->of[NH_LOG_GRAD_RATIO] = (struct nh_measure){true, 2 * (log(run->grad_first.value) - log(run->grad_last.value))};
    if (!run->of[NH_OVERFLOWS].known) /* steps.csv knows more steps */
        run->of[NH_OVERFLOWS] = run->layers_overflow;
    const char *asked = nh_compared_value(run, "steps");
    const double steps = asked ? strtod(asked, NULL) : run->last_step + 1;
    run->of[NH_FINAL_LOSS] = tail_loss(run, steps);
    run->first = earlier(earlier(run->first_site, run->first_row), run->first_step);
    run->outcome = outcome_of(run, steps);
    if (!run->info->recorded)
        return;
    run->outcome = run->info->outcome;
    run->first = run->info->first;
    for (enum nh_quantity q = 0; q < NH_QUANTITIES; q++)
        if (run->info->of[q].known)
            run->of[q] = run->info->of[q];
}

static bool is_loaded(const struct nh_comparison *c, const char *id)
{
    const struct nh_compared *run = c->runs;
    while (run && strcmp(run->keys[NH_KEY_RUN], id) != 0)
        run = run->next;
    return run;
}

/* All runs of a sweep's config.csv must have been found in its cells. */
static int check_sweep(struct nh_comparison *c, const char *folder)
{
    const char *path;
    struct nh_reader *r = NULL;
    size_t column;
    const int found = in_folder(c, folder, tables[CONFIG], &path);
    if (found <= 0)
        return found;
    int more = 0, status = nh_reader_open(&r, path);
    if (!status)
        status = nh_reader_need(r, "run", &column);
    char last[64] = "";
    while (!status && (more = nh_reader_next(r)) == 1) {
        const char *id = nh_reader_text(r, column);
        if (strcmp(last, id) == 0)
            continue;
        snprintf(last, sizeof last, "%s", id);
        if (!is_loaded(c, id))
            status = nh_fail(NH_FAILED,
                             "%.500s tells of run '%.40s', which is in no folder beside it; run the sweep again, or give its "
                             "layers.csv itself",
                             path, id);
    }
    nh_reader_close(r);
    return status ? status : more;
}

int nh_comparison_finish(struct nh_comparison *c)
{
    int status = NH_OK;
    for (const struct nh_folder *sweep = c->sweeps; sweep && !status; sweep = sweep->next)
        status = check_sweep(c, sweep->path);
    for (struct nh_compared **run = &c->runs; *run;) {
        if ((*run)->source[NH_FROM_LAYERS] || (*run)->source[NH_FROM_STEPS] || (*run)->source[NH_FROM_RECORD]) {
            finish_run(c, *run);
            run = &(*run)->next;
        } else {
            *run = (*run)->next; /* it has sites alone */
        }
    }
    if (status)
        return status;
    return c->runs ? NH_OK : nh_fail(NH_FAILED, "there are no runs to compare: no file has rows of layers.csv or steps.csv");
}
