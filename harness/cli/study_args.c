// SPDX-License-Identifier: GPL-3.0-or-later
/** The words that a study gives to harness/sweep.sh, checked before anything runs: otherwise a wrong one in the last sweep would
 * be found when all others are done. A study is data from others: it may set the options listed here and no others, so that it
 * names no file outside its folder. */
#include "harness/cli/option_table.h"
#include "harness/cli/study.h"
#include "harness/core/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The same limit as in harness/sweep.sh. */
enum { MAX_CELLS = 100000 };

/* Values of --data that name a file are refused separately. */
static const char *const allowed[] = {
    "arch", "layout", "set", "depth", "width", "heads", "kv-heads", "head-dim", "ffn", "ffn-mult", "experts", "experts-active",
    "experts-shared", "expert-mult", "dense-layers", "route-scale", "norm", "eps", "pos", "theta", "theta-local", "rope-scaling",
    "window", "pattern", "branches", "qk-norm", "attn-gate", "query-scalar", "score-softcap", "score-scale", "pb-relax", "ln-relax",
    "softcap", "z-loss", "embed-scale", "embed-shrink", "tie", "bias", "dtype", "policy", "accum", "norm-stats", "roles",
    "norm-cast", "softmax-grad", "init", "branch-init", "embed-rms", "qk-init", "post-gain", "post-gain-frozen", "data", "seq",
    "batch", "vocab", "image-grid", "image-levels", "data-seed", "steps", "optimizer", "lr", "warmup", "schedule", "beta1", "beta2",
    "adam-eps", "momentum", "weight-decay", "clip", "grad-accum", "loss-scale", "scale-window", "probe-every", "val-every",
    "checkpoint-every", "probes", "cotangent", "jac-samples", "jac-iterations", "spectrum", "label", NULL};

/** An option that varies. */
struct varied {
    const char *field, *name; /**< field: of study.json, for errors */
    const char **values;      /**< each as "--NAME=VALUE"; no more than MAX_CELLS are written out */
    double n;
};

struct args {
    struct obstack *memory;
    const char *place, *field;
    char **fixed;
    struct varied *varied;
    size_t n_fixed, n_varied;
};

static char *copy(struct obstack *memory, const char *text, size_t length)
{
    char *to = nh_alloc(memory, length + 1);
    memcpy(to, text, length);
    to[length] = '\0';
    return to;
}

/* name: without dashes, up to its end or a '='. A name that is no option at all is refused when the options are read. */
static int check_allowed(const struct args *a, const char *name)
{
    const size_t length = strcspn(name, "=");
    for (size_t i = 0; allowed[i]; i++)
        if (strlen(allowed[i]) == length && strncmp(name, allowed[i], length) == 0)
            return NH_OK;
    static const char *const of_sweep[] = {"seed", "seeds", "jobs", "harness", "called", "print", "help", "version", NULL};
    bool is_option = nh_option_find(name, length) != NULL;
    for (size_t i = 0; of_sweep[i]; i++)
        is_option |= strlen(of_sweep[i]) == length && strncmp(name, of_sweep[i], length) == 0;
    return is_option ? nh_fail(NH_FAILED, "%.500s: '%s': --%.*s is not for a study to say; leave it out", a->place, a->field,
                               length < 60 ? (int)length : 60, name)
                     : NH_OK;
}

/* ---- values ---- */

static bool takes_ranges(const char *name)
{
    const struct nh_option *o = nh_option_find(name, strlen(name));
    return o && (o->kind == &nh_value_int || o->kind == &nh_value_pick || o->kind == &nh_value_seed);
}

/* FIRST..LAST or FIRST..LAST*FACTOR; *factor = 0 in the first case. */
static bool read_range(const char *text, double *first, double *last, double *factor)
{
    char ends[2][16], by[16];
    int n = 0, m = 0;
    if (sscanf(text, "%15[0-9]..%15[0-9]%n", ends[0], ends[1], &n) != 2 || !n)
        return false;
    *first = strtod(ends[0], NULL), *last = strtod(ends[1], NULL), *factor = 0;
    if (text[n] == '*' && sscanf(text + n, "*%9[0-9]%n", by, &m) == 1)
        *factor = strtod(by, NULL);
    return text[n + m] == '\0';
}

static void add_value(const struct args *a, struct varied *v, const char *value)
{
    if (v->values && v->n < MAX_CELLS) {
        obstack_printf(a->memory, "--%s=%s", v->name, value);
        v->values[(size_t)v->n] = nh_grown(a->memory);
    }
    v->n++;
}

static int add_values(const struct args *a, struct varied *v, const char *item)
{
    double first = 0, last = 0, factor = 0;
    if (!takes_ranges(v->name) || !read_range(item, &first, &last, &factor)) {
        add_value(a, v, item);
        return NH_OK;
    }
    const bool by_factor = strchr(item, '*') != NULL;
    if (first > last || (by_factor && (first < 1 || factor < 2)))
        return nh_fail(NH_FAILED, "%.500s: '%s': %.60s: a range goes up, as 6..12, or by a factor from 2, as 6..96*2", a->place,
                       v->field, item);
    if (!by_factor && last - first >= MAX_CELLS) {
        v->n += last - first + 1;
        return NH_OK;
    }
    for (double x = first; x <= last; x = by_factor ? x * factor : x + 1) {
        char text[32];
        snprintf(text, sizeof text, "%.0f", x);
        add_value(a, v, text);
    }
    return NH_OK;
}

static int add_list(const struct args *a, struct varied *v, const char *list)
{
    const char *separator = strchr(list, ';') ? ";" : ",";
    int status = NH_OK;
    for (char *rest = copy(a->memory, list, strlen(list)), *item; !status && (item = strsep(&rest, separator));)
        status = add_values(a, v, item);
    return status;
}

/* list: V1,V2,... or, with a ';' in it, V1;V2;... */
static int read_varied(struct args *a, const char *field, const char *name, const char *list)
{
    struct varied *v = &a->varied[a->n_varied++];
    *v = (struct varied){field, name, NULL, 0};
    int status = add_list(a, v, list); /* counts them */
    if (status)
        return status;
    v->values = nh_alloc(a->memory, (size_t)fmin(v->n, MAX_CELLS) * sizeof *v->values);
    v->n = 0;
    return add_list(a, v, list);
}

static int split(struct args *a, const char *text)
{
    char *rest = copy(a->memory, text, strlen(text)), *word;
    int status = NH_OK;
    while (!status && (word = strsep(&rest, " "))) {
        const size_t name = strcspn(word, "=");
        if (!*word)
            continue;
        if (strcmp(word, "-h") == 0)
            return nh_fail(NH_FAILED, "%.500s: '%s': -h is not for a study to say; leave it out", a->place, a->field);
        if (name != strlen("--vary") || strncmp(word, "--vary", name) != 0) {
            a->fixed[a->n_fixed++] = word;
            status = strncmp(word, "--", 2) == 0 ? check_allowed(a, word + 2) : NH_OK;
            continue;
        }
        const char *vary = word[name] == '=' ? word + name + 1 : strsep(&rest, " ");
        const char *equals = vary ? strchr(vary, '=') : NULL;
        if (!equals || equals == vary || !equals[1])
            return nh_fail(NH_FAILED, "%.500s: '%s': --vary takes OPTION=V1,V2,...", a->place, a->field);
        status = check_allowed(a, vary);
        if (!status)
            status = read_varied(a, a->field, copy(a->memory, vary, (size_t)(equals - vary)), equals + 1);
    }
    return status;
}

/* ---- cells ---- */

/* The cell with the i-th value of the k-th varied option and the first ones of all others; *value: as it would be recorded. */
static int check_cell(const struct args *a, size_t k, size_t i, const char **value)
{
    char **words = nh_alloc(a->memory, (a->n_fixed + a->n_varied + 1) * sizeof *words), sentence[800];
    size_t n = a->n_fixed;
    memcpy(words, a->fixed, n * sizeof *words);
    for (size_t j = 0; j < a->n_varied; j++)
        words[n++] = copy(a->memory, a->varied[j].values[j == k ? i : 0], strlen(a->varied[j].values[j == k ? i : 0]));
    const struct varied *v = a->n_varied ? &a->varied[k] : NULL;
    const struct nh_option *option = v ? nh_option_find(v->name, strlen(v->name)) : NULL;
    struct nh_options options;
    int status = nh_options_parse(&options, (int)n, words);
    snprintf(sentence, sizeof sentence, "%s", status ? nh_error() : "");
    if (!status && strchr(options.config.data, ':')) {
        status = NH_FAILED;
        snprintf(sentence, sizeof sentence, "--data %.60s names a file, which is not for a study to say; take data without a file",
                 options.config.data);
    }
    if (!status && option) {
        const char *text = option->kind == &nh_value_knob ? v->values[i] : nh_options_text(&options, v->name);
        *value = copy(a->memory, text, strlen(text));
    }
    nh_options_free(&options);
    return status ? nh_fail(NH_FAILED, "%.500s: '%s': %s", a->place, v ? v->field : a->field, sentence) : NH_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each value is one that the program takes, and none is there twice, whatever it is called. */
static int check_values(const struct args *a, size_t k)
{
    const struct varied *v = &a->varied[k];
    const size_t n = (size_t)v->n;
    const char **texts = nh_alloc(a->memory, n * sizeof *texts);
    int status = NH_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = check_cell(a, k, i, &texts[i]);
    if (status)
        return status;
    qsort(texts, n, sizeof *texts, by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(texts[i - 1], texts[i]) == 0)
            return nh_fail(NH_FAILED, "%.500s: '%s': %s=%.60s is there twice; name each value once", a->place, v->field, v->name,
                           texts[i]);
    return NH_OK;
}

static int check_count(const struct args *a)
{
    double cells = 1;
    for (size_t k = 0; k < a->n_varied; k++)
        cells *= a->varied[k].n;
    return cells <= MAX_CELLS ? NH_OK
                              : nh_fail(NH_FAILED, "%.500s: this sweep has %.15g cells, the largest possible one %d; vary less",
                                        a->place, cells, MAX_CELLS);
}

static int check_seeds(const char *place, const char *field, const char *text)
{
    static const char digits[] = "0123456789";
    for (const char *s = text;; s++) {
        size_t n = strspn(s, digits);
        s += n;
        if (n && strncmp(s, "..", 2) == 0) {
            n = strspn(s + 2, digits);
            s += 2 + n;
        }
        if (!n || (*s && *s != ','))
            return nh_fail(NH_FAILED, "%.500s: '%s' must be a list of seeds, such as 0..4 or 0,3,7", place, field);
        if (!*s)
            return NH_OK;
    }
}

int nh_study_check_call(struct obstack *memory, const char *place, struct nh_study_call call)
{
    const size_t room = strlen(call.args) + strlen(call.options) + 2;
    struct args a = {.memory = memory, .place = place, .field = call.args_field, .fixed = nh_alloc(memory, room * sizeof *a.fixed),
                     .varied = nh_alloc(memory, room * sizeof *a.varied)};
    int status = split(&a, call.args);
    if (!status)
        status = split(&a, call.options);
    if (!status)
        status = check_seeds(place, call.seeds_field, call.seeds);
    if (!status)
        status = read_varied(&a, call.seeds_field, "seed", call.seeds);
    if (!status)
        status = check_count(&a);
    for (size_t k = 0; k < a.n_varied && !status; k++)
        status = check_values(&a, k);
    return status;
}
