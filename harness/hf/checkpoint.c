// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/hf/checkpoint.h"

#include "harness/core/err.h"
#include "results/file.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** A tensor of some shard. */
struct entry {
    const struct nh_tensor *tensor;
    bool read;
};

/** The tensors of one parameter, in the order of its numbers. */
struct bound {
    char name[sizeof((struct nh_param *)NULL)->name];
    struct nh_piece *pieces;
    const struct nh_tensor **tensors;
    size_t n;
};

struct nh_hf {
    char *dir, *config_path;
    json_t *file;         /**< config.json */
    const json_t *config; /**< of the text model in it */
    const struct nh_arch *arch;
    const struct nh_arch_prefix *prefix;
    struct nh_hf_reading reading;
    struct nh_safetensors **shards;
    size_t n_shards;
    struct entry *entries; /**< by name */
    size_t n_entries;
    struct bound *bound; /**< by name */
    size_t n_bound;
    struct nh_weight_source source;
};

static int no_memory(void)
{
    return nh_fail(NH_FAILED, "out of memory for the names of a checkpoint");
}

static char *path_of(const char *dir, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static int load_json(json_t **out, const char *path, const char *what)
{
    json_error_t error;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* of a pipe nothing may ever come */
        return nh_fail(NH_FAILED, "'%s' is no plain file; give a folder with %s", path, what);
    *out = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(*out))
        return NH_OK;
    if (!*out && access(path, R_OK) != 0)
        return nh_fail(NH_FAILED, "cannot read '%s': %s; give a folder with %s", path, strerror(errno), what);
    return nh_fail(NH_FAILED, "'%s' is no JSON object (%s, line %d); write it again", path, *out ? "something else" : error.text,
                   *out ? 1 : error.line);
}

/* ---- the files with tensors ---- */

static int add_shard(struct nh_hf *hf, const char *name)
{
    struct nh_safetensors **more = realloc(hf->shards, (hf->n_shards + 1) * sizeof *more);
    char *path = path_of(hf->dir, name);
    if (more)
        hf->shards = more;
    const int status = more && path ? nh_safetensors_open(&hf->shards[hf->n_shards], path) : no_memory();
    hf->n_shards += status == NH_OK;
    free(path);
    return status;
}

/** The shards that an index names, each once, and every tensor where the index has it. */
static int open_shards(struct nh_hf *hf, const char *path)
{
    json_t *index = NULL, *seen = json_object();
    int status = seen ? load_json(&index, path, "model.safetensors") : no_memory();
    const json_t *map = json_object_get(index, "weight_map");
    const char *name;
    json_t *value;
    if (!status && !json_is_object(map))
        status = nh_fail(NH_FAILED, "'%s' has no weight_map, which tells the file of each tensor; get the whole checkpoint", path);
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        const char *file = json_string_value(value);
        if (!status && (!file || !*file || *file == '.' || strchr(file, '/')))
            status = nh_fail(NH_FAILED, "'%s': the file of '%.80s' must be a plain name in the same folder", path, name);
        if (status || json_object_get(seen, file))
            continue;
        json_object_set_new(seen, file, json_integer((json_int_t)hf->n_shards));
        status = add_shard(hf, file);
    }
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        if (status)
            break;
        const json_int_t shard = json_integer_value(json_object_get(seen, json_string_value(value)));
        if (!nh_safetensors_find(hf->shards[shard], name))
            status = nh_fail(NH_FAILED, "'%s': the tensor '%.80s' is not in %s, where the index has it; get the whole checkpoint", path,
                             name, json_string_value(value));
    }
    json_decref(index), json_decref(seen);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->tensor->name, ((const struct entry *)b)->tensor->name);
}

static struct entry *find(const struct nh_hf *hf, const char *name)
{
    const struct nh_tensor key = {.name = name};
    return hf->n_entries ? bsearch(&(struct entry){.tensor = &key}, hf->entries, hf->n_entries, sizeof *hf->entries, by_name) : NULL;
}

static int list_tensors(struct nh_hf *hf)
{
    for (size_t s = 0; s < hf->n_shards; s++)
        hf->n_entries += nh_safetensors_count(hf->shards[s]);
    hf->entries = calloc(hf->n_entries + 1, sizeof *hf->entries);
    if (!hf->entries)
        return no_memory();
    for (size_t s = 0, i = 0; s < hf->n_shards; s++)
        for (size_t t = 0; t < nh_safetensors_count(hf->shards[s]); t++)
            hf->entries[i++].tensor = nh_safetensors_at(hf->shards[s], t);
    qsort(hf->entries, hf->n_entries, sizeof *hf->entries, by_name);
    for (size_t i = 1; i < hf->n_entries; i++)
        if (by_name(&hf->entries[i - 1], &hf->entries[i]) == 0)
            return nh_fail(NH_FAILED, "'%s': the tensor '%.80s' is in two files; keep one", hf->dir, hf->entries[i].tensor->name);
    return NH_OK;
}

static int open_files(struct nh_hf *hf)
{
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    char *one = path_of(hf->dir, single), *many = path_of(hf->dir, index);
    int status = one && many ? NH_OK : no_memory();
    if (!status && access(one, F_OK) == 0)
        status = add_shard(hf, single);
    else if (!status && access(many, F_OK) == 0)
        status = open_shards(hf, many);
    else if (!status)
        status = nh_fail(NH_FAILED, "'%s' has neither %s nor %s; give the folder of a checkpoint", hf->dir, single, index);
    free(one), free(many);
    return status ? status : list_tensors(hf);
}

/* ---- the architecture ---- */

static bool has_type(const struct nh_arch *arch, const char *type)
{
    for (const char *const *t = arch->types; t && *t; t++)
        if (strcmp(*t, type) == 0)
            return true;
    return false;
}

static int unknown_type(const struct nh_hf *hf, const char *type)
{
    char list[512] = "";
    for (size_t i = 0, n = 0; nh_archs[i]; i++)
        for (const char *const *t = nh_archs[i]->types; t && *t && n < sizeof list; t++)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", *t);
    return nh_fail(NH_FAILED, "'%s': the model_type '%.60s' is not known here; these are: %s", hf->config_path, type, list);
}

static int find_arch(struct nh_hf *hf)
{
    const json_t *type = json_object_get(hf->file, "model_type");
    hf->config = hf->file;
    for (size_t i = 0; nh_archs[i] && !hf->arch; i++)
        if (json_is_string(type) ? has_type(nh_archs[i], json_string_value(type)) : nh_archs[i]->mark && find(hf, nh_archs[i]->mark))
            hf->arch = nh_archs[i];
    if (!hf->arch)
        return unknown_type(hf, json_is_string(type) ? json_string_value(type) : "(none)");
    if (json_is_object(json_object_get(hf->file, "text_config")))
        hf->config = json_object_get(hf->file, "text_config");
    const char *inner = json_string_value(json_object_get(hf->config, "model_type"));
    if (inner && !has_type(hf->arch, inner))
        return nh_fail(NH_FAILED, "'%s': its text_config is of the model_type '%.60s', which inside %s is not known here", hf->config_path,
                       inner, hf->arch->name);
    const json_t *codes[] = {json_object_get(hf->file, "quantization_config"), json_object_get(hf->config, "quantization_config")};
    if ((codes[0] && !json_is_null(codes[0])) || (codes[1] && !json_is_null(codes[1])))
        return nh_fail(NH_FAILED, "'%s' has a quantization_config: its weights are codes, not numbers; give the checkpoint that is not "
                                  "quantised", hf->config_path);
    return NH_OK;
}

/** The prefix with which the embedding is there. */
static int find_prefix(struct nh_hf *hf)
{
    const struct nh_param embed = {.name = "embed", .rows = 1, .cols = 1};
    const struct nh_config any = {.heads = 1, .kv_heads = 1};
    char name[112] = "";
    for (const struct nh_arch_prefix *p = hf->arch->prefixes; p->body; p++) {
        size_t n;
        struct nh_piece *piece = nh_arch_pieces(hf->arch, p, &any, &embed, &n);
        assert(n == 1);
        const bool there = find(hf, piece->name);
        memcpy(name, piece->name, sizeof name);
        free(piece);
        if (there) {
            hf->prefix = p;
            return NH_OK;
        }
    }
    return nh_fail(NH_FAILED, "'%s': there is no tensor '%s', which a checkpoint of %s has; get the whole checkpoint", hf->dir, name,
                   hf->arch->name);
}

static int read_config(struct nh_hf *hf)
{
    const struct nh_param head = {.name = "head", .rows = 1, .cols = 1};
    const struct nh_config any = {.heads = 1, .kv_heads = 1};
    size_t n;
    struct nh_piece *piece = nh_arch_pieces(hf->arch, hf->prefix, &any, &head, &n);
    hf->reading = (struct nh_hf_reading){.config = hf->config, .path = hf->config_path, .has_head = n && find(hf, piece->name)};
    free(piece);
    return nh_arch_read(&hf->reading, hf->arch);
}

int nh_hf_open(struct nh_hf **out, const char *dir)
{
    struct nh_hf *hf = *out = calloc(1, sizeof *hf);
    if (!hf)
        return no_memory();
    hf->dir = strdup(dir), hf->config_path = path_of(dir, "config.json");
    int status = hf->dir && hf->config_path ? load_json(&hf->file, hf->config_path, "config.json") : no_memory();
    if (!status)
        status = open_files(hf);
    if (!status)
        status = find_arch(hf);
    if (!status)
        status = find_prefix(hf);
    if (!status)
        status = read_config(hf);
    if (status) {
        nh_hf_close(hf);
        *out = NULL;
    }
    return status;
}

void nh_hf_close(struct nh_hf *hf)
{
    if (!hf)
        return;
    for (size_t i = 0; i < hf->n_bound; i++)
        free(hf->bound[i].pieces), free(hf->bound[i].tensors);
    for (size_t i = 0; i < hf->n_shards; i++)
        nh_safetensors_close(hf->shards[i]);
    nh_hf_reading_free(&hf->reading);
    json_decref(hf->file);
    free(hf->bound), free(hf->entries), free(hf->shards), free(hf->dir), free(hf->config_path);
    free(hf);
}

const struct nh_arch *nh_hf_arch(const struct nh_hf *hf)
{
    return hf->arch;
}

const struct nh_setting *nh_hf_settings(const struct nh_hf *hf)
{
    return hf->reading.settings;
}

const struct nh_shape *nh_hf_shape(const struct nh_hf *hf, const char *name)
{
    const struct entry *e = find(hf, name);
    return e ? &e->tensor->shape : NULL;
}

struct nh_piece *nh_hf_pieces(const struct nh_hf *hf, const struct nh_config *config, const struct nh_param *param, size_t *n)
{
    struct nh_piece *pieces = nh_arch_pieces(hf->arch, hf->prefix, config, param, n), *stacked;
    size_t n_stacked;
    if (!*n || find(hf, pieces->name) || !(stacked = nh_arch_stacked(hf->arch, hf->prefix, config, param, &n_stacked)))
        return pieces;
    if (find(hf, stacked->name)) {
        free(pieces);
        *n = n_stacked;
        return stacked;
    }
    free(stacked);
    return pieces;
}

/* ---- which tensor is which parameter ---- */

static bool is_positions(const struct nh_param *p)
{
    return strcmp(p->name, "positions") == 0;
}

/** A table of positions may be longer than the sequences; else the shape must be the piece's. */
static int check_shape(const struct nh_hf *hf, const struct nh_param *p, const struct nh_piece *piece, const struct nh_tensor *t)
{
    const struct nh_shape want = nh_piece_shape(piece);
    bool fits = t->shape.rank == want.rank;
    for (int d = 0; fits && d < want.rank; d++)
        fits = t->shape.dims[d] == want.dims[d] || (is_positions(p) && d == 0 && t->shape.dims[d] > want.dims[d]);
    char is[NH_SHAPE_TEXT], should[NH_SHAPE_TEXT];
    if (!fits && is_positions(p) && t->shape.rank == 2 && t->shape.dims[1] == want.dims[1])
        return nh_fail(NH_USAGE, "sequences of %zu tokens are longer than the %zu positions of '%s'; take --seq %zu or less", want.dims[0],
                       t->shape.dims[0], hf->dir, t->shape.dims[0]);
    if (!fits)
        return nh_fail(NH_FAILED, "'%s': the tensor '%s' has the shape %s, but config.json makes it %s; get the files that belong together",
                       hf->dir, t->name, nh_shape_text(&t->shape, is), nh_shape_text(&want, should));
    if (!nh_tensor_is_real(t))
        return nh_fail(NH_FAILED, "'%s': the tensor '%s' holds whole numbers; weights are F64, F32, F16 or BF16", hf->dir, t->name);
    return NH_OK;
}

static int by_place(const void *a, const void *b)
{
    const size_t x = ((const struct nh_piece *)a)->first, y = ((const struct nh_piece *)b)->first;
    return (x > y) - (x < y);
}

static int bind_param(struct nh_hf *hf, const struct nh_config *config, const struct nh_param *p)
{
    struct bound *b = &hf->bound[hf->n_bound++];
    memcpy(b->name, p->name, sizeof b->name);
    b->pieces = nh_hf_pieces(hf, config, p, &b->n);
    b->tensors = calloc(b->n + 1, sizeof(const struct nh_tensor *));
    if (!b->tensors)
        return no_memory();
    if (!b->n)
        return nh_fail(NH_FAILED, "'%s': no tensor of %s is the parameter %s, which the options ask for; leave them out", hf->dir,
                       hf->arch->name, p->name);
    qsort(b->pieces, b->n, sizeof *b->pieces, by_place);
    int status = NH_OK;
    for (size_t i = 0; i < b->n && !status; i++) {
        struct entry *e = find(hf, b->pieces[i].name);
        if (!e)
            return nh_fail(NH_FAILED, "'%s': the tensor '%s' is missing; get the whole checkpoint", hf->dir, b->pieces[i].name);
        e->read = true;
        b->tensors[i] = e->tensor;
        status = check_shape(hf, p, &b->pieces[i], e->tensor);
    }
    return status;
}

static int bound_by_name(const void *a, const void *b)
{
    return strcmp(((const struct bound *)a)->name, ((const struct bound *)b)->name);
}

/** The end of a name, or where it ends in a dot any part of it. */
static bool fits(const char *name, const char *pattern)
{
    const size_t n = strlen(name), m = strlen(pattern);
    return pattern[m - 1] == '.' ? strstr(name, pattern) != NULL : n >= m && strcmp(name + n - m, pattern) == 0;
}

/** Every tensor is read, or is one of those that take no part, or a head beside a tied one. */
static int check_unread(const struct nh_hf *hf, const struct nh_config *config, FILE *notes)
{
    const struct nh_param head = {.name = "head", .rows = config->vocab, .cols = config->width};
    size_t n;
    struct nh_piece *piece = nh_hf_pieces(hf, config, &head, &n);
    int status = NH_OK;
    for (size_t i = 0; i < hf->n_entries && !status; i++) {
        const char *name = hf->entries[i].tensor->name;
        bool left = hf->entries[i].read;
        for (const char *const *u = hf->arch->unread; u && *u && !left; u++)
            left = fits(name, *u);
        if (!left && n && config->tie && strcmp(name, piece->name) == 0) {
            fprintf(notes, "harness: %s is left unread, as config.json ties the head to the embedding\n", name);
            left = true;
        }
        if (!left)
            status = nh_fail(NH_FAILED, "'%s': the tensor '%.80s' is no part of the model that config.json tells; get the files that "
                                        "belong together", hf->dir, name);
    }
    free(piece);
    return status;
}

/* ---- the numbers ---- */

/** Numbers [first, first + n) of a matrix that is stored as its transpose: some rows of the matrix at a time, so that what is read
 *  of a stored row lies together. */
static void read_transposed(const struct nh_piece *p, const struct nh_tensor *t, size_t first, size_t n, int bits, void *out)
{
    enum { ROWS = 64 };
    const size_t size = (size_t)bits / 8, end = first + n;
    unsigned char strip[ROWS * sizeof(double)], *to = out;
    for (size_t r0 = first / p->cols; r0 * p->cols < end; r0 += ROWS) {
        const size_t rows = p->rows - r0 < ROWS ? p->rows - r0 : ROWS;
        for (size_t c = 0; c < p->cols; c++) {
            nh_tensor_convert(t, c * p->rows + r0, rows, bits, strip);
            for (size_t r = 0; r < rows; r++) {
                const size_t at = (r0 + r) * p->cols + c;
                if (at >= first && at < end)
                    memcpy(to + (at - first) * size, strip + r * size, size);
            }
        }
    }
}

static const struct bound *bound_of(const struct nh_hf *hf, const struct nh_param *param)
{
    struct bound key;
    memcpy(key.name, param->name, sizeof key.name);
    const struct bound *b = bsearch(&key, hf->bound, hf->n_bound, sizeof key, bound_by_name);
    assert(b);
    return b;
}

/** The first piece that ends behind a number of the parameter. */
static size_t piece_at(const struct bound *b, size_t number)
{
    size_t low = 0, high = b->n - 1;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (b->pieces[middle].first + b->pieces[middle].n > number)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void read_numbers(void *arg, const struct nh_param *param, size_t first, size_t n, int bits, void *out)
{
    const struct bound *b = bound_of(arg, param);
    unsigned char *to = out;
    for (size_t i = piece_at(b, first), end = first + n; first < end; i++) {
        const struct nh_piece *p = &b->pieces[i];
        const size_t stop = p->first + p->n < end ? p->first + p->n : end;
        if (p->transposed)
            read_transposed(p, b->tensors[i], first - p->first, stop - first, bits, to);
        else
            nh_tensor_convert(b->tensors[i], first - p->first, stop - first, bits, to);
        to += (stop - first) * (size_t)bits / 8;
        first = stop;
    }
}

static bool is_wide(void *arg, const struct nh_param *param)
{
    const struct bound *b = bound_of(arg, param);
    for (size_t i = 0; i < b->n; i++)
        if (b->tensors[i]->type == NH_TENSOR_F64)
            return true;
    return false;
}

static void done_with(void *arg, const struct nh_param *param, size_t first, size_t n)
{
    const struct bound *b = bound_of(arg, param);
    for (size_t i = piece_at(b, first), end = first + n; i < b->n && b->pieces[i].first < end; i++) {
        const struct nh_piece *p = &b->pieces[i];
        const size_t from = first > p->first ? first - p->first : 0, to = (end < p->first + p->n ? end : p->first + p->n) - p->first;
        if (!p->transposed)
            nh_tensor_let_go(b->tensors[i], from, to - from);
        else if (to == p->n)
            nh_tensor_let_go(b->tensors[i], 0, p->n);
    }
}

/** What norms multiply by is near 1 or above 0 in every published model: gains near 0 are most likely w of 1 + w. */
static void check_gains(const struct nh_hf *hf, const struct nh_graph *g, FILE *notes)
{
    double sum = 0, n = 0;
    for (int r = 0; r < g->n_recs; r++) {
        if (g->recs[r].op != NH_OP_NORM)
            continue;
        const struct nh_param *p = &g->params[g->recs[r].par[0]];
        double *gain = malloc((size_t)p->cols * sizeof *gain);
        if (!gain)
            return;
        read_numbers((void *)(uintptr_t)hf, p, 0, (size_t)p->cols, 64, gain);
        for (int c = 0; c < p->cols; c++)
            sum += gain[c] + g->recs[r].u.norm.offset;
        n += p->cols;
        free(gain);
    }
    if (n > 0 && sum / n < 0.2)
        fprintf(notes, "harness: the mean gain of all norms is %.2g: they may hold w of 1 + w, which --gain-form 1+w multiplies by\n",
                sum / n);
}

int nh_hf_bind(struct nh_hf *hf, const struct nh_config *config, const struct nh_weight_source **source, FILE *notes)
{
    struct nh_graph *g = NULL;
    int status = nh_graph_build(&g, config, config->batch, config->seq, config->vocab);
    if (!status) {
        hf->bound = calloc((size_t)g->n_params + 1, sizeof *hf->bound);
        status = hf->bound ? NH_OK : no_memory();
    }
    for (int p = 0; !status && p < g->n_params; p++)
        status = bind_param(hf, config, &g->params[p]);
    if (!status)
        status = check_unread(hf, config, notes);
    if (!status) {
        qsort(hf->bound, hf->n_bound, sizeof *hf->bound, bound_by_name);
        hf->source = (struct nh_weight_source){.arg = hf, .read = read_numbers, .wide = is_wide, .done = done_with};
        *source = &hf->source;
        check_gains(hf, g, notes);
    }
    nh_graph_free(g);
    return status;
}

/* ---- which checkpoint it is ---- */

uint64_t nh_hf_digest(const struct nh_hf *hf)
{
    enum { SAMPLE = 1024, SAMPLES = 3 };
    uint64_t hash = NH_DIGEST_START;
    char *text = json_dumps(hf->file, JSON_SORT_KEYS | JSON_COMPACT);
    hash = text ? nh_digest(hash, text, strlen(text)) : hash;
    free(text);
    for (size_t i = 0; i < hf->n_entries; i++) {
        const struct nh_tensor *t = hf->entries[i].tensor;
        const size_t size = nh_tensor_bytes(t), part = size < SAMPLE ? size : SAMPLE;
        hash = nh_digest(hash, t->name, strlen(t->name) + 1);
        hash = nh_digest(hash, &t->type, sizeof t->type);
        hash = nh_digest(hash, t->shape.dims, (size_t)t->shape.rank * sizeof *t->shape.dims);
        for (size_t s = 0; s < SAMPLES; s++)
            hash = nh_digest(hash, t->bytes + (size - part) / (SAMPLES - 1) * s, part);
    }
    return hash;
}
