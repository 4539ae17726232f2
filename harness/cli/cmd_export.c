// SPDX-License-Identifier: GPL-3.0-or-later
/** harness export: a model, at its start or as a run has trained it, as a Hugging Face folder, config.json and model.safetensors, of
 *  the architecture that says the same. That it does is seen from what its config.json, read again, makes: the same tape. */
#include "harness/cli/cli.h"
#include "harness/cli/run.h"
#include "harness/cli/take.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"
#include "harness/core/threads.h"
#include "harness/io/safetensors.h"
#include "results/file.h"
#include "results/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** True where two tapes compute the same from the same parameters. */
static bool same_tape(const struct nh_graph *a, const struct nh_graph *b)
{
    bool same = a->n_recs == b->n_recs && a->n_params == b->n_params && a->eps == b->eps && a->rope_dim == b->rope_dim;
    for (int r = 0; same && r < a->n_recs; r++) {
        const struct nh_rec *x = &a->recs[r], *y = &b->recs[r];
        same = x->op == y->op && x->out == y->out && !memcmp(x->in, y->in, sizeof x->in) && !memcmp(x->par, y->par, sizeof x->par) &&
               !memcmp(&x->u, &y->u, sizeof x->u);
    }
    for (int p = 0; same && p < a->n_params; p++)
        same = !strcmp(a->params[p].name, b->params[p].name) && a->params[p].rows == b->params[p].rows &&
               a->params[p].cols == b->params[p].cols;
    for (int table = 0; same && table < 2; table++)
        for (int j = 0; same && j < a->rope_dim / 2; j++)
            for (int r = 0; same && r < a->n_recs; r++) /* of tables that are used */
                same = a->recs[r].op != NH_OP_ROPE || a->recs[r].u.rope.table != table ||
                       nh_rope_frequency(a, table, j) == nh_rope_frequency(b, table, j);
    return same;
}

static int tape(struct nh_graph **g, const struct nh_config *c)
{
    return nh_graph_build(g, c, c->batch, c->seq, c->vocab);
}

/** All parameters have published names. */
static bool has_names(const struct nh_arch *arch, const struct nh_config *c, const struct nh_graph *g)
{
    bool all = true;
    for (int p = 0; all && p < g->n_params; p++) {
        size_t n;
        free(nh_arch_pieces(arch, &arch->prefix, c, &g->params[p], &n));
        all = n > 0;
    }
    return all;
}

static const char *text_of(void *arg, const char *option)
{
    return nh_options_text(arg, option);
}

/** Whether an architecture says the same as the options: its config.json, else NULL and the options against it. */
static json_t *express(struct nh_options *o, const struct nh_arch *arch, struct nh_differences *differences)
{
    json_t *json = nh_arch_write(arch, &o->config, text_of, o);
    struct nh_hf_reading reading = {.config = json, .path = arch->name, .has_head = !o->config.tie};
    struct nh_config again;
    struct nh_graph *a = NULL, *b = NULL;
    bool same = !nh_arch_read(&reading, arch) && !nh_options_reread(o, reading.settings, &again, differences) &&
                !tape(&a, &o->config) && !tape(&b, &again) && same_tape(a, b) && has_names(arch, &o->config, a);
    nh_graph_free(a), nh_graph_free(b);
    nh_hf_reading_free(&reading);
    if (!same)
        json_decref(json);
    return same ? json : NULL;
}

/** The architecture asked for, or of the checkpoint, or the first that says the same. */
static int choose(struct nh_options *o, const struct nh_arch **arch, json_t **json)
{
    const struct nh_arch *wanted = o->checkpoint ? nh_hf_arch(o->checkpoint) : nh_arch_find(o->config.arch), *nearest = NULL;
    struct nh_differences d, least = {.n_against = 1000};
    *json = NULL;
    for (size_t i = 0; nh_archs[i] && !*json; i++) {
        if (!nh_archs[i]->keys || (wanted && wanted != nh_archs[i]))
            continue;
        *arch = nh_archs[i];
        d = (struct nh_differences){.n_against = 0};
        *json = express(o, *arch, &d);
        if (!*json && d.n_against < least.n_against)
            nearest = *arch, least = d;
    }
    if (*json && *d.again)
        nh_text_line(stderr, "harness: no checkpoint says%s: give it again beside --model", d.again);
    if (*json)
        return NH_OK;
    if (!nearest)
        return nh_fail(NH_USAGE, "--arch %s has no config.json of its own; --arch cogview has one", o->config.arch);
    return nh_fail(NH_USAGE, "no checkpoint%s%s can say%s; the nearest is %s, without that", wanted ? " of " : "",
                   wanted ? wanted->name : "", *least.against ? least.against : " these options together", nearest->name);
}

struct tensors {
    struct nh_tensor_out *out;
    size_t n;
};

/** One published tensor; w: the numbers of its parameter. */
static int add_tensor(struct tensors *t, const struct nh_piece *p, const double *w, enum nh_tensor_type type)
{
    struct nh_tensor_out *more = realloc(t->out, (t->n + 1) * sizeof *more);
    double *wide = more ? malloc((p->n + 1) * sizeof *wide) : NULL;
    char *name = wide ? strdup(p->name) : NULL;
    t->out = more ? more : t->out;
    if (!name) {
        free(wide);
        return nh_fail(NH_FAILED, "out of memory for the tensors; try a smaller model");
    }
    for (size_t i = 0; i < p->n; i++)
        wide[nh_piece_place(p, i)] = w[p->first + i];
    float *narrow = (float *)wide; /* number by number no later than it is read */
    for (size_t i = 0; type == NH_TENSOR_F32 && i < p->n; i++) {
        const float x = (float)wide[i];
        memcpy(narrow + i, &x, sizeof x);
    }
    t->out[t->n++] = (struct nh_tensor_out){name, type, nh_piece_shape(p), wide};
    return NH_OK;
}

static int add_param(struct tensors *t, const struct nh_model *m, int param, const struct nh_arch *arch, const struct nh_config *c,
                     enum nh_tensor_type type)
{
    const struct nh_param *p = &m->graph->params[param];
    size_t n;
    struct nh_piece *pieces = nh_arch_pieces(arch, &arch->prefix, c, p, &n);
    double *w = malloc((size_t)p->rows * (size_t)p->cols * sizeof *w);
    int status = w ? NH_OK : nh_fail(NH_FAILED, "out of memory for the tensors; try a smaller model");
    if (!status)
        nh_model_masters(m, param, w);
    for (size_t i = 0; !status && i < n; i++)
        status = add_tensor(t, &pieces[i], w, type);
    free(pieces), free(w);
    return status;
}

/** The text with as few digits as read back to the same numbers. */
static char *shortest(const json_t *json)
{
    char *text = NULL;
    for (size_t digits = 6; digits <= 17; digits++) {
        free(text);
        text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        json_t *again = text ? json_loads(text, 0, NULL) : NULL;
        const bool same = json_equal(json, again);
        json_decref(again);
        if (same)
            break;
    }
    return text;
}

/** The files of a checkpoint that are written or removed. */
enum { CONFIG, TENSORS, INDEX, N_FILES };

static void free_paths(char *paths[N_FILES])
{
    for (size_t i = 0; i < N_FILES; i++)
        free(paths[i]);
}

/** To be freed by free_paths(), after a failure too. */
static int paths_of(const char *dir, char *paths[N_FILES])
{
    static const char *const names[] = {[CONFIG] = "config.json", [TENSORS] = "model.safetensors", [INDEX] = "model.safetensors.index.json"};
    int status = NH_OK;
    for (size_t i = 0; i < N_FILES; i++)
        if (asprintf(&paths[i], "%s/%s", dir, names[i]) < 0) {
            paths[i] = NULL;
            status = nh_fail(NH_FAILED, "out of memory for the names of files");
        }
    return status;
}

/** All bytes of config.json, on the disk and not yet in their place. */
static int prepare_json(struct nh_part **out, const char *path, const json_t *json)
{
    char *text = shortest(json);
    int status = text ? nh_part_create(out, path, true) : nh_fail(NH_FAILED, "out of memory for config.json");
    if (!status)
        status = nh_part_write(*out, text, strlen(text));
    if (!status)
        status = nh_part_write(*out, "\n", 1);
    if (!status)
        status = nh_part_sync(*out, NULL);
    free(text);
    return status;
}

/** The model at its start, in fp32 or fp64. */
static int start(struct nh_run *run, bool wide)
{
    const struct nh_config *c = &run->options.config;
    struct nh_config plain;
    (wide ? nh_config_shadow : nh_config_wide)(&plain, c);
    int *tokens = malloc((size_t)c->batch * (size_t)c->seq * sizeof *tokens);
    int status = tokens ? nh_data_batch(run->data, 0, tokens) : nh_fail(NH_FAILED, "out of memory for a batch");
    if (!status)
        status = nh_model_create(&run->model, &plain, c->batch, c->seq, c->vocab, tokens, false);
    if (!status && run->options.checkpoint)
        status = nh_hf_check(run->options.checkpoint);
    free(tokens);
    return status;
}

/** After a failure: the first n files get their names back, config.json last, and what was not there is not there. The sentence of the
 *  failure stays, with what is left to do by hand. */
static void put_back(size_t n, char *const old[N_FILES], char *const paths[N_FILES])
{
    for (size_t i = n; i-- > 0;) {
        if ((old[i] ? rename(old[i], paths[i]) : unlink(paths[i])) == 0 || (!old[i] && errno == ENOENT))
            continue;
        char why[512];
        snprintf(why, sizeof why, "%s", nh_error());
        if (old[i])
            nh_fail(NH_FAILED, "%s; the old files have names that end in .old now, as %s: rename them", why, old[i]);
        else
            nh_fail(NH_FAILED, "%s; remove %s", why, paths[i]);
        return;
    }
}

/** Puts the files in their places, config.json last: a folder without it is no checkpoint. A failure leaves what was there, a process
 *  that is killed what was there, what is new, or a folder without config.json with the old files under names that end in .old. */
static int replace(const char *dir, struct nh_part *tensors, struct nh_part *config, char *const paths[N_FILES])
{
    char *old[N_FILES] = {NULL};
    size_t n = 0;
    int status = NH_OK;
    while (!status && n < N_FILES) { /* the index too, which would decide which files are read */
        status = nh_file_set_aside(&old[n], paths[n]);
        n += !status;
    }
    if (!status)
        status = nh_dir_sync(dir);
    if (!status)
        status = nh_part_commit(tensors);
    if (!status)
        status = nh_dir_sync(dir);
    if (!status)
        status = nh_part_commit(config);
    if (status)
        put_back(n, old, paths);
    else
        status = nh_dir_sync(dir);
    for (size_t i = 0, whole = !status; whole && i < N_FILES; i++)
        if (old[i] && unlink(old[i]))
            status = nh_fail(NH_FAILED, "%s holds the new model, but %s cannot be removed: %s; remove it", dir, old[i], strerror(errno));
    free_paths(old);
    return status;
}

static int write_folder(struct nh_run *run, const char *dir, const struct nh_arch *arch, json_t *json)
{
    const struct nh_config *c = &run->options.config;
    const bool wide = nh_fmt_wide(&c->dtype) || (!run->dir && run->options.checkpoint && nh_hf_is_wide(run->options.checkpoint));
    struct tensors t = {NULL, 0};
    struct nh_part *tensors = NULL, *config = NULL;
    char *paths[N_FILES];
    json_object_set_new(json, "torch_dtype", json_string(wide ? "float64" : "float32"));
    int status = paths_of(dir, paths);
    if (!status)
        status = run->dir ? nh_trained_load(run) : start(run, wide);
    for (int p = 0; !status && p < run->model.graph->n_params; p++)
        status = add_param(&t, &run->model, p, arch, c, wide ? NH_TENSOR_F64 : NH_TENSOR_F32);
    if (!status)
        status = nh_dir_make(dir);
    if (!status)
        status = nh_safetensors_prepare(&tensors, paths[TENSORS], true, t.out, t.n, &(struct nh_meta_out){"format", "pt"}, 1);
    if (!status)
        status = prepare_json(&config, paths[CONFIG], json);
    if (!status)
        status = replace(dir, tensors, config, paths);
    nh_part_destroy(tensors), nh_part_destroy(config);
    for (size_t i = 0; i < t.n; i++)
        free((char *)(uintptr_t)t.out[i].name), free((void *)(uintptr_t)t.out[i].numbers);
    free(t.out);
    free_paths(paths);
    return status;
}

/** What is there is not written over unasked. */
static int check_folder(const char *dir, bool force)
{
    char *paths[N_FILES];
    int status = paths_of(dir, paths);
    for (size_t i = 0; !status && !force && i < N_FILES; i++) {
        struct stat st;
        if (lstat(paths[i], &st) == 0)
            status = nh_fail(NH_USAGE, "'%s' is there already; choose another folder, or --force to replace it", paths[i]);
    }
    free_paths(paths);
    return status;
}

void nh_export_help(FILE *file)
{
    fputs("  --run DIR     the model that a run has trained, from its config.csv and checkpoint.safetensors\n"
          "                (train with --checkpoint-every N); beside it --force alone\n\n"
          "Without --run the options are those of run, but --steps, and the model is the one that it starts from.\n"
          "--force replaces what is in DIR.\n",
          file);
}

/** The folder of --run, NULL where it is not among the words; beside it stands --force alone. */
static int take_run(int argc, char **argv, const char **folder, bool *force)
{
    const char *other = NULL, *value;
    for (int i = 0; i < argc; i++) {
        const int taken = nh_take_value(argc, argv, &i, "--run", "DIR", &value);
        if (taken < 0)
            return taken;
        if (taken && *folder)
            return nh_fail(NH_USAGE, "--run is given twice; keep one");
        if (taken)
            *folder = value;
        else if (strcmp(argv[i], "--force") == 0)
            *force = true;
        else if (!other)
            other = argv[i];
    }
    return *folder && other ? nh_fail(NH_USAGE, "--run tells the whole model; leave out '%.60s'", other) : NH_OK;
}

static int open_start(struct nh_run *run, int argc, char **argv)
{
    static const char *const idle[] = {"dump", "out", "dry-run", "probes", NULL};
    int status = nh_options_parse(&run->options, argc, argv);
    if (!status && run->options.config.train.steps)
        status = nh_fail(NH_USAGE, "export writes the model at its start; leave out --steps, or train first and give --run DIR");
    for (const char *const *w = idle; !status && *w; w++)
        if (nh_options_given(&run->options, *w))
            status = nh_fail(NH_USAGE, "--%s has no effect on export, which runs no model; leave it out", *w);
    return status;
}

int nh_cmd_export(int argc, char **argv)
{
    const char *folder = NULL;
    bool force = false;
    struct nh_run run = {.signal = 0};
    const struct nh_arch *arch = NULL;
    json_t *json = NULL;
    if (argc < 1 || strncmp(argv[0], "--", 2) == 0)
        return nh_fail(NH_USAGE, "export takes a folder and options of a run, such as 'harness export gpt2 --arch gpt2 --depth 4'");
    int status = take_run(argc - 1, argv + 1, &folder, &force);
    if (!status)
        status = folder ? nh_trained_open(&run, folder) : open_start(&run, argc - 1, argv + 1);
    if (!status)
        status = check_folder(argv[0], force || run.options.config.force);
    if (!status && !folder)
        status = nh_run_open(&run);
    if (!status)
        status = choose(&run.options, &arch, &json);
    if (!status) {
        status = nh_threads_start(run.options.config.threads);
        if (!status)
            status = write_folder(&run, argv[0], arch, json);
    }
    if (!status)
        nh_text_line(stdout, "%s: %s, %zu parameters", argv[0], arch->name, nh_graph_parameters(run.model.graph));
    json_decref(json);
    nh_trainer_destroy(&run.trainer);
    nh_model_destroy(&run.model);
    nh_data_close(run.data);
    nh_options_free(&run.options);
    free(run.dir);
    return status;
}
