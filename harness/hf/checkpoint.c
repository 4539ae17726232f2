// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/hf/checkpoint.h"

#include "harness/core/err.h"
#include "results/file.h"
#include "results/input.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
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
    struct nh_arch_prefix prefix; /**< as the files have it; both to be freed */
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

static int load_json(json_t **out, const char *path, const char *advice)
{
    enum { LIMIT = 1 << 27 };
    unsigned char *text;
    size_t n;
    int status = nh_input_read(&text, &n, LIMIT, path, advice);
    if (status)
        return status;
    json_error_t error;
    *out = json_loadb((const char *)text, n, JSON_REJECT_DUPLICATES, &error);
    const char *kind = json_is_object(*out) ? NULL : nh_input_kind(text, n);
    free(text);
    if (json_is_object(*out))
        return NH_OK;
    return kind ? nh_fail(NH_FAILED, "'%s' is %s", path, kind)
                : nh_fail(NH_FAILED, "'%s' is no JSON object (%s, line %d); write it again", path, *out ? "something else" : error.text,
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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->tensor->name, ((const struct entry *)b)->tensor->name);
}

static struct entry *find(const struct nh_hf *hf, const char *name)
{
    const struct nh_tensor key = {.name = name};
    return hf->n_entries ? bsearch(&(struct entry){.tensor = &key}, hf->entries, hf->n_entries, sizeof *hf->entries, by_name) : NULL;
}

/** Room for n tensors. */
static int make_entries(struct nh_hf *hf, size_t n)
{
    hf->entries = calloc(n + 1, sizeof *hf->entries);
    return hf->entries ? NH_OK : no_memory();
}

/** Takes the tensors from the files that the index names, each from the one where the index has it: what else these hold, and files
 *  that it does not name, are no part of the checkpoint. */
static int take_indexed(struct nh_hf *hf, const char *path)
{
    json_t *index = NULL, *seen = json_object();
    int status = seen ? load_json(&index, path, "get the whole checkpoint") : no_memory();
    const json_t *map = json_object_get(index, "weight_map");
    const char *name;
    json_t *value;
    if (!status && !json_is_object(map))
        status = nh_fail(NH_FAILED, "'%s' has no weight_map, which tells the file of each tensor; get the whole checkpoint", path);
    if (!status)
        status = make_entries(hf, json_object_size(map));
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        const char *file = json_string_value(value);
        if (!status && (!file || !*file || *file == '.' || strchr(file, '/')))
            status = nh_fail(NH_FAILED, "'%s': the file of '%.80s' must be a plain name in the same folder", path, name);
        if (!status && !json_object_get(seen, file)) {
            if (json_object_set_new(seen, file, json_integer((json_int_t)hf->n_shards)))
                status = no_memory();
            else
                status = add_shard(hf, file);
        }
        if (status)
            break;
        const struct nh_safetensors *shard = hf->shards[json_integer_value(json_object_get(seen, file))];
        const struct nh_tensor *tensor = nh_safetensors_find(shard, name);
        if (tensor)
            hf->entries[hf->n_entries++].tensor = tensor;
        else
            status = nh_fail(NH_FAILED, "'%s': the tensor '%.80s' is not in %.80s, where the index has it; get the whole checkpoint", path,
                             name, file);
    }
    json_decref(index), json_decref(seen);
    return status;
}

/** Takes all tensors of all files. */
static int take_all(struct nh_hf *hf)
{
    size_t n = 0;
    for (size_t s = 0; s < hf->n_shards; s++)
        n += nh_safetensors_count(hf->shards[s]);
    const int status = make_entries(hf, n);
    for (size_t s = 0; !status && s < hf->n_shards; s++)
        for (size_t t = 0; t < nh_safetensors_count(hf->shards[s]); t++)
            hf->entries[hf->n_entries++].tensor = nh_safetensors_at(hf->shards[s], t);
    return status;
}

/** How many shards there are by the name of one, model-00001-of-00003.safetensors; 0: it is no such name. */
static int shard_count(const char *name)
{
    int number, count, end = 0;
    if (sscanf(name, "model-%5d-of-%5d.safetensors%n", &number, &count, &end) != 2 || !end || name[end] || number < 1 || count < number)
        return 0;
    return count;
}

/** Opens the shards of a folder without an index: model-00001-of-0000N.safetensors and so on, all N of them. */
static int add_shards(struct nh_hf *hf)
{
    DIR *dir = opendir(hf->dir);
    if (!dir)
        return nh_fail(NH_FAILED, "cannot read the folder '%s': %s; give the folder of a checkpoint", hf->dir, strerror(errno));
    int count = 0, other = 0;
    for (const struct dirent *d; (d = readdir(dir));) {
        const int n = shard_count(d->d_name);
        other = n && count && n != count ? n : other;
        count = n && !count ? n : count;
    }
    closedir(dir);
    if (!count)
        return nh_fail(NH_FAILED, "'%s' has neither model.safetensors, model.safetensors.index.json nor shards such as "
                                  "model-00001-of-00002.safetensors; give the folder of a checkpoint in safetensors", hf->dir);
    if (other)
        return nh_fail(NH_FAILED, "'%s' has shards of %d and of %d files, and no index that tells which count; keep those of one checkpoint",
                       hf->dir, count, other);
    int status = NH_OK;
    for (int i = 1; !status && i <= count; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i, count);
        status = add_shard(hf, name);
    }
    return status;
}

/** With an index what it says; else the single file, else all shards. */
static int open_files(struct nh_hf *hf)
{
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    char *one = path_of(hf->dir, single), *many = path_of(hf->dir, index);
    int status = one && many ? NH_OK : no_memory();
    if (!status && access(many, F_OK) == 0) {
        status = take_indexed(hf, many);
    } else if (!status) {
        status = access(one, F_OK) == 0 ? add_shard(hf, single) : add_shards(hf);
        if (!status)
            status = take_all(hf);
    }
    free(one), free(many);
    if (status)
        return status;
    qsort(hf->entries, hf->n_entries, sizeof *hf->entries, by_name);
    for (size_t i = 1; i < hf->n_entries; i++)
        if (by_name(&hf->entries[i - 1], &hf->entries[i]) == 0)
            return nh_fail(NH_FAILED, "'%s': the tensor '%.80s' is in two files; keep one", hf->dir, hf->entries[i].tensor->name);
    return NH_OK;
}

int nh_hf_check(const struct nh_hf *hf)
{
    int status = NH_OK;
    for (size_t s = 0; !status && s < hf->n_shards; s++)
        status = nh_safetensors_check(hf->shards[s]);
    return status;
}

/* ---- the architecture ---- */

static bool has_type(const struct nh_arch *arch, const char *type)
{
    for (const char *const *t = arch->types; t && *t; t++)
        if (strcmp(*t, type) == 0)
            return true;
    return false;
}

/** Where `name` begins in a published name that is `name` or ends in it behind a dot; NULL where it does not. */
static const char *behind_prefix(const char *published, const char *name)
{
    const size_t n = strlen(published), m = strlen(name);
    if (n < m || strcmp(published + n - m, name) != 0 || (n > m && published[n - m - 1] != '.'))
        return NULL;
    return published + n - m;
}

static bool has_mark(const struct nh_hf *hf, const struct nh_arch *arch)
{
    bool there = false;
    for (size_t i = 0; arch->mark && !there && i < hf->n_entries; i++)
        there = behind_prefix(hf->entries[i].tensor->name, arch->mark);
    return there;
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
        if (json_is_string(type) ? has_type(nh_archs[i], json_string_value(type)) : has_mark(hf, nh_archs[i]))
            hf->arch = nh_archs[i];
    if (!hf->arch)
        return unknown_type(hf, json_is_string(type) ? json_string_value(type) : "(none)");
    const json_t *window = json_object_get(hf->file, "sliding_window");
    if (!json_is_string(type) && json_is_number(window) && !json_is_false(json_object_get(hf->file, "use_sliding_window")))
        return nh_fail(NH_FAILED, "'%s' has sliding_window and no model_type: whether a window is seen through depends on that; write the "
                                  "model_type into it, or set sliding_window to null", hf->config_path);
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

/** The own name of the tensor of a parameter that needs no sizes, with no prefix; to be freed. NULL: the architecture has none. */
static char *own_name(const struct nh_arch *arch, const char *param)
{
    static const struct nh_arch_prefix none = {"", ""};
    static const struct nh_config any = {.heads = 1, .kv_heads = 1};
    struct nh_param p = {.rows = 1, .cols = 1};
    snprintf(p.name, sizeof p.name, "%s", param);
    size_t n;
    struct nh_piece *piece = nh_arch_pieces(arch, &none, &any, &p, &n);
    char *name = n ? strdup(piece->name) : NULL;
    free(piece);
    return name;
}

/** What stands before the names of all tensors is what stands before the embedding's: "model.", nothing, "language_model.model.", or
 *  what a wrapper has put there. Of several embeddings it is that with the final norm beside it. */
static int find_body(struct nh_hf *hf)
{
    char *embed = own_name(hf->arch, "embed"), *norm = own_name(hf->arch, "norm_final.gain"), *found = NULL;
    int status = embed && norm ? NH_OK : no_memory();
    for (size_t i = 0, n = 0; !status && i < hf->n_entries; i++) {
        const char *name = hf->entries[i].tensor->name, *at = behind_prefix(name, embed);
        if (!at)
            continue;
        char *body = strndup(name, (size_t)(at - name)), *beside = NULL;
        if (!body || asprintf(&beside, "%s%s", body, norm) < 0) {
            free(body);
            status = no_memory();
            break;
        }
        const bool whole = find(hf, beside);
        free(beside);
        if (whole && n++)
            status = nh_fail(NH_FAILED, "'%s' holds two models, of '%s%s' and of '%.80s'; keep the files of one", hf->dir, found, embed, name);
        if (whole || !found)
            free(found), found = body;
        else
            free(body);
    }
    if (!status && !found)
        status = nh_fail(NH_FAILED, "'%s': there is no tensor '%s%s', which a checkpoint of %s has; get the whole checkpoint", hf->dir,
                         hf->arch->prefix.body, embed, hf->arch->name);
    free(embed), free(norm);
    if (status)
        free(found);
    else
        hf->prefix.body = found;
    return status;
}

/** The head's is all of that, or the first of its parts ("a.b.", "a.", ""), whichever has a head; else as it is published. */
static int find_head(struct nh_hf *hf)
{
    char *own = own_name(hf->arch, "head"), *prefix = strdup(hf->prefix.body);
    int status = prefix ? NH_OK : no_memory();
    for (char *end = prefix ? prefix + strlen(prefix) : NULL; !status && own;) {
        char *name;
        *end = '\0';
        if (asprintf(&name, "%s%s", prefix, own) < 0) {
            status = no_memory();
            break;
        }
        hf->reading.has_head = find(hf, name);
        free(name);
        if (hf->reading.has_head || end == prefix)
            break;
        do
            end--;
        while (end > prefix && end[-1] != '.');
    }
    free(own);
    if (!status && !hf->reading.has_head) {
        free(prefix);
        prefix = strdup(hf->arch->prefix.head);
        status = prefix ? NH_OK : no_memory();
    }
    if (status)
        free(prefix);
    else
        hf->prefix.head = prefix;
    return status;
}

static int read_config(struct nh_hf *hf)
{
    hf->reading.config = hf->config, hf->reading.path = hf->config_path;
    hf->reading.outer = hf->config == hf->file ? NULL : hf->file;
    return nh_arch_read(&hf->reading, hf->arch);
}

int nh_hf_open(struct nh_hf **out, const char *dir)
{
    struct nh_hf *hf = *out = calloc(1, sizeof *hf);
    if (!hf)
        return no_memory();
    hf->dir = strdup(dir), hf->config_path = path_of(dir, "config.json");
    int status = hf->dir && hf->config_path ? load_json(&hf->file, hf->config_path, "give a folder with config.json") : no_memory();
    if (!status)
        status = open_files(hf);
    if (!status)
        status = find_arch(hf);
    if (!status)
        status = find_body(hf);
    if (!status)
        status = find_head(hf);
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
    free((char *)(uintptr_t)hf->prefix.body), free((char *)(uintptr_t)hf->prefix.head);
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
    struct nh_piece *pieces = nh_arch_pieces(hf->arch, &hf->prefix, config, param, n), *stacked;
    size_t n_stacked;
    if (!*n || find(hf, pieces->name) || !(stacked = nh_arch_stacked(hf->arch, &hf->prefix, config, param, &n_stacked)))
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

bool nh_hf_is_wide(const struct nh_hf *hf)
{
    bool wide = false;
    for (size_t i = 0; !wide && i < hf->n_entries; i++)
        wide = hf->entries[i].read && hf->entries[i].tensor->type == NH_TENSOR_F64;
    return wide;
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
