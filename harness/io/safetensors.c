// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/io/safetensors.h"

#include "harness/core/err.h"
#include "results/file.h"
#include "results/input.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they stand in the file");

enum { PREFIX = 8, MAX_HEADER = 100000000 };

static const struct {
    const char *name;
    size_t width;
} types[] = {
    [NH_TENSOR_F64] = {"F64", 8},   [NH_TENSOR_F32] = {"F32", 4}, [NH_TENSOR_F16] = {"F16", 2},
    [NH_TENSOR_BF16] = {"BF16", 2}, [NH_TENSOR_I64] = {"I64", 8}, [NH_TENSOR_I32] = {"I32", 4},
    [NH_TENSOR_U8] = {"U8", 1},     [NH_TENSOR_BOOL] = {"BOOL", 1},
};

static const char metadata[] = "__metadata__";

struct nh_safetensors {
    char *path;
    unsigned char *map; /* NULL where the bytes are the caller's */
    size_t map_size;
    int fd;         /* of the file that is mapped */
    struct stat st; /* as it was opened */
    atomic_int lost; /* pages that could not be read: zeros stand in for them */
    struct nh_safetensors *next_mapped;
    json_t *header; /* owns the names */
    struct nh_tensor *tensors;         /* in the order of their bytes */
    const struct nh_tensor **by_name;
    size_t count;
};

size_t nh_shape_count(const struct nh_shape *shape)
{
    size_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->dims[i];
    return n;
}

const char *nh_shape_text(const struct nh_shape *shape, char text[NH_SHAPE_TEXT])
{
    size_t n = (size_t)snprintf(text, NH_SHAPE_TEXT, "[");
    for (int i = 0; i < shape->rank; i++)
        n += (size_t)snprintf(text + n, NH_SHAPE_TEXT - n, "%s%zu", i ? ", " : "", shape->dims[i]);
    snprintf(text + n, NH_SHAPE_TEXT - n, "]");
    return text;
}

/* ---- reading: the header ---- */

#define REFUSE(path, t, format, ...) nh_fail(NH_FAILED, "'%s': tensor '%.80s' " format, path, (t)->name, __VA_ARGS__)

static bool read_size(const json_t *number, size_t *out)
{
    if (!json_is_integer(number) || json_integer_value(number) < 0)
        return false;
    *out = (size_t)json_integer_value(number);
    return true;
}

static int read_type(struct nh_tensor *t, const json_t *entry, const char *path)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            t->type = (enum nh_tensor_type)i;
            return NH_OK;
        }
    return REFUSE(path, t, "has the dtype '%.20s'; F64, F32, F16, BF16, I64, I32, U8 and BOOL can be read", name ? name : "none");
}

static int read_shape(struct nh_tensor *t, const json_t *entry, const char *path)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > NH_SHAPE_MAX)
        return REFUSE(path, t, "has no shape of at most %d whole numbers; write the file again", NH_SHAPE_MAX);
    t->shape.rank = (int)json_array_size(shape);
    t->count = 1;
    bool fits = true;
    for (int i = 0; i < t->shape.rank; i++) {
        if (!read_size(json_array_get(shape, (size_t)i), &t->shape.dims[i]))
            return REFUSE(path, t, "has a shape with something else than whole numbers of 0 or more at place %d", i);
        fits = fits && !__builtin_mul_overflow(t->count, t->shape.dims[i], &t->count);
    }
    size_t size;
    if (!fits || __builtin_mul_overflow(t->count, types[t->type].width, &size)) {
        char text[NH_SHAPE_TEXT];
        return REFUSE(path, t, "has the shape %s, more numbers than any file holds", nh_shape_text(&t->shape, text));
    }
    return NH_OK;
}

size_t nh_tensor_bytes(const struct nh_tensor *t)
{
    return t->count * types[t->type].width;
}

static int read_place(struct nh_tensor *t, const json_t *entry, const unsigned char *data, size_t size,
                      const char *path)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t begin, end;
    if (json_array_size(offsets) != 2 || !read_size(json_array_get(offsets, 0), &begin) ||
        !read_size(json_array_get(offsets, 1), &end) || begin > end)
        return REFUSE(path, t, "needs data_offsets of %s; write the file again", "two whole numbers, begin and end");
    if (end > size)
        return REFUSE(path, t, "ends at byte %zu of the data, but the file has %zu; get the whole file", end, size);
    if (end - begin != nh_tensor_bytes(t)) {
        char text[NH_SHAPE_TEXT];
        return REFUSE(path, t, "has %zu bytes, but %s %s takes %zu; write the file again", end - begin,
                      types[t->type].name, nh_shape_text(&t->shape, text), nh_tensor_bytes(t));
    }
    t->bytes = data + begin;
    return NH_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct nh_tensor *x = a, *y = b;
    const uintptr_t p = (uintptr_t)x->bytes, q = (uintptr_t)y->bytes;
    return p != q ? (p > q) - (p < q) : (nh_tensor_bytes(x) > nh_tensor_bytes(y)) - (nh_tensor_bytes(x) < nh_tensor_bytes(y));
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct nh_tensor *const *)a)->name, (*(const struct nh_tensor *const *)b)->name);
}

/* The format wants every byte of the data to be of one tensor: a file that is not so was written by mistake. */
static int check_places(const struct nh_safetensors *s, const unsigned char *data, size_t size, const char *path)
{
    size_t end = 0;
    for (size_t i = 0; i < s->count; i++) {
        const size_t begin = (size_t)(s->tensors[i].bytes - data);
        if (begin != end)
            return REFUSE(path, &s->tensors[i],
                          "begins at byte %zu of the data, but what is before it ends at %zu: "
                          "the file has %s; write it again",
                          begin, end, begin > end ? "a hole" : "an overlap");
        end = begin + nh_tensor_bytes(&s->tensors[i]);
    }
    return end == size
               ? NH_OK
               : nh_fail(NH_FAILED, "'%s' has %zu bytes behind its last tensor; write it again", path, size - end);
}

static int check_metadata(const struct nh_safetensors *s)
{
    json_t *texts = json_object_get(s->header, metadata), *text;
    if (texts && !json_is_object(texts))
        return nh_fail(NH_FAILED, "'%s': %s is no JSON object; write texts by name there", s->path, metadata);
    const char *name;
    json_object_foreach(texts, name, text)
    {
        if (!json_is_string(text))
            return nh_fail(NH_FAILED, "'%s': the metadata '%.80s' is no text; write it between quotes", s->path, name);
    }
    return NH_OK;
}

static int read_header(struct nh_safetensors *s, const unsigned char *data, size_t size)
{
    const char *path = s->path;
    s->tensors = calloc(json_object_size(s->header) + 1, sizeof *s->tensors);
    s->by_name = calloc(json_object_size(s->header) + 1, sizeof(const struct nh_tensor *));
    if (!s->tensors || !s->by_name)
        return nh_fail(NH_FAILED, "no memory for the header of '%s'", path);
    const char *name;
    json_t *entry;
    json_object_foreach(s->header, name, entry)
    {
        if (strcmp(name, metadata) == 0)
            continue;
        struct nh_tensor *t = &s->tensors[s->count++];
        t->name = name, t->file = s;
        int status = read_type(t, entry, path);
        if (!status)
            status = read_shape(t, entry, path);
        if (!status)
            status = read_place(t, entry, data, size, path);
        if (status)
            return status;
    }
    qsort(s->tensors, s->count, sizeof *s->tensors, by_place);
    for (size_t i = 0; i < s->count; i++)
        s->by_name[i] = &s->tensors[i];
    qsort(s->by_name, s->count, sizeof(const struct nh_tensor *), by_name);
    return check_places(s, data, size, path);
}

/* What is no safetensors file at all: told by its first bytes where these are known. */
static int refuse_kind(const char *path, const unsigned char *bytes, size_t size, const char *otherwise)
{
    enum { SHOWN = 40 };
    const char *kind = nh_input_kind(bytes, size);
    if (kind)
        return nh_fail(NH_FAILED, "'%s' is %s", path, kind);
    size_t n = 0;
    while (n < size && n < SHOWN && bytes[n] >= ' ' && bytes[n] < 0x7f)
        n++;
    if (n > PREFIX || (n == size && n > 0))
        return nh_fail(NH_FAILED, "'%s' is a text that begins with '%.*s'; give a safetensors file", path, (int)n, (const char *)bytes);
    return nh_fail(NH_FAILED, "'%s' %s", path, otherwise);
}

/* The format's own rules: the JSON object begins with the first byte, and only spaces follow it. */
static int parse(struct nh_safetensors *s, const unsigned char *bytes, size_t size)
{
    const char *path = s->path, *header = (const char *)bytes + PREFIX;
    char why[200];
    uint64_t length = 0;
    snprintf(why, sizeof why, "has %zu bytes, too few for a safetensors file; get the whole file", size);
    if (size < PREFIX)
        return refuse_kind(path, bytes, size, why);
    memcpy(&length, bytes, sizeof length);
    snprintf(why, sizeof why, "claims a header of %llu bytes, but %zu follow and %d are the most that is read; give a whole safetensors file",
             (unsigned long long)length, size - PREFIX, MAX_HEADER);
    if (length > MAX_HEADER || length > size - PREFIX)
        return refuse_kind(path, bytes, size, why);
    if (length == 0 || *header != '{')
        return refuse_kind(path, bytes, size, "has a header that does not begin with '{', as the format wants it; write it again");
    size_t end = (size_t)length;
    while (header[end - 1] == ' ')
        end--;
    json_error_t error;
    s->header = json_loadb(header, end, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &error);
    if (!json_is_object(s->header))
        return nh_fail(NH_FAILED, "'%s': the header is no JSON object (%s, byte %d); give a safetensors file", path, error.text,
                       error.position);
    if ((size_t)error.position != end)
        return nh_fail(NH_FAILED, "'%s': byte %d of the header follows the JSON object and is no space; write it again", path,
                       error.position);
    const int status = check_metadata(s);
    return status ? status : read_header(s, bytes + PREFIX + length, size - PREFIX - (size_t)length);
}

int nh_safetensors_parse(struct nh_safetensors **out, const void *bytes, size_t size, const char *path)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return nh_fail(NH_FAILED, "no memory for '%s'", path);
    (*out)->fd = -1;
    (*out)->path = strdup(path);
    const int status = (*out)->path ? parse(*out, bytes, size) : nh_fail(NH_FAILED, "no memory for '%s'", path);
    if (status) {
        nh_safetensors_close(*out);
        *out = NULL;
    }
    return status;
}

/* ---- reading: the file ---- */

/* Files that are mapped. Whoever reads a page that the file no longer has, because it was cut or its disk failed, gets the signal
 * SIGBUS: zeros are put in the place of what is gone, and the file is marked, so that nh_safetensors_check refuses it. */
static struct nh_safetensors *_Atomic mapped;
static struct sigaction before;

static void on_bus(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (struct nh_safetensors *s = mapped; s; s = s->next_mapped) {
        const uintptr_t map = (uintptr_t)s->map, page = (uintptr_t)sysconf(_SC_PAGESIZE);
        if (at < map || at - map >= s->map_size)
            continue;
        s->lost = 1;
        unsigned char *from = s->map + (at - map) / page * page;
        if (mmap(from, s->map_size - (size_t)(from - s->map), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
            return;
        break;
    }
    sigaction(SIGBUS, &before, NULL); /* not ours: the same access again, with what was there before */
}

/* Opened and closed by one thread, while no other reads. */
static void guard(struct nh_safetensors *s)
{
    static bool listening;
    s->next_mapped = mapped;
    mapped = s;
    if (!listening) {
        struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
        listening = sigaction(SIGBUS, &action, &before) == 0;
    }
}

static void unguard(const struct nh_safetensors *s)
{
    if (mapped == s)
        mapped = s->next_mapped;
    for (struct nh_safetensors *other = mapped; other; other = other->next_mapped)
        if (other->next_mapped == s)
            other->next_mapped = s->next_mapped;
}

int nh_safetensors_check(const struct nh_safetensors *s)
{
    struct stat now;
    if (!s->map)
        return NH_OK;
    if (fstat(s->fd, &now) != 0)
        return nh_fail(NH_FAILED, "cannot read '%s' to its end: %s; get it again", s->path, strerror(errno));
    if (now.st_size != s->st.st_size)
        return nh_fail(NH_FAILED, "'%s' went from %lld bytes to %lld while it was read; run again when it is whole", s->path,
                       (long long)s->st.st_size, (long long)now.st_size);
    if (s->lost)
        return nh_fail(NH_FAILED, "cannot read '%s' to its end: %s; get it again", s->path, strerror(EIO));
    if (now.st_mtim.tv_sec != s->st.st_mtim.tv_sec || now.st_mtim.tv_nsec != s->st.st_mtim.tv_nsec)
        return nh_fail(NH_FAILED, "'%s' was written to while it was read; run again when it is whole", s->path);
    return NH_OK;
}

int nh_safetensors_open(struct nh_safetensors **out, const char *path)
{
    struct nh_safetensors *s = *out = calloc(1, sizeof *s);
    if (!s || !(s->path = strdup(path))) {
        free(s);
        *out = NULL;
        return nh_fail(NH_FAILED, "no memory for '%s'", path);
    }
    int status = nh_input_open(&s->fd, &s->st, path, "give a safetensors file");
    const size_t size = status ? 0 : (size_t)s->st.st_size;
    if (size) {
        void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, s->fd, 0);
        if (map == MAP_FAILED) {
            status = nh_fail(NH_FAILED, "cannot map '%s' into memory: %s; free some memory", path, strerror(errno));
        } else {
            s->map = map, s->map_size = size;
            guard(s);
        }
    }
    if (!status)
        status = parse(s, s->map, size);
    if (nh_safetensors_check(s)) /* what looks broken may have been cut meanwhile */
        status = NH_FAILED;
    if (status) {
        nh_safetensors_close(s);
        *out = NULL;
    }
    return status;
}

void nh_safetensors_close(struct nh_safetensors *s)
{
    if (!s)
        return;
    if (s->map) {
        unguard(s);
        munmap(s->map, s->map_size);
    }
    if (s->fd >= 0)
        close(s->fd);
    json_decref(s->header);
    free(s->by_name), free(s->tensors);
    free(s->path);
    free(s);
}

size_t nh_safetensors_count(const struct nh_safetensors *s)
{
    return s->count;
}

const struct nh_tensor *nh_safetensors_at(const struct nh_safetensors *s, size_t index)
{
    assert(index < s->count);
    return &s->tensors[index];
}

const struct nh_tensor *nh_safetensors_find(const struct nh_safetensors *s, const char *name)
{
    const struct nh_tensor wanted = {.name = name}, *key = &wanted;
    const struct nh_tensor *const *found = bsearch(&key, s->by_name, s->count, sizeof(const struct nh_tensor *), by_name);
    return found ? *found : NULL;
}

const char *nh_safetensors_meta(const struct nh_safetensors *s, const char *name)
{
    return json_string_value(json_object_get(json_object_get(s->header, metadata), name));
}

/* ---- reading: numbers ---- */

bool nh_tensor_is_real(const struct nh_tensor *t)
{
    return t->type <= NH_TENSOR_BF16;
}

/* Exponent and mantissa moved to their places in a float, whose exponent is then 112 too small: one exact product. */
static inline float from_f16(uint16_t bits)
{
    const uint32_t low = bits & 0x7fffu, sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t moved = low << 13, special = low >= 0x7c00u ? moved | 0x7f800000u : 0;
    float x;
    memcpy(&x, &moved, sizeof x);
    x *= 0x1p112f;
    uint32_t wide;
    memcpy(&wide, &x, sizeof wide);
    wide = (special ? special : wide) | sign;
    memcpy(&x, &wide, sizeof x);
    return x;
}

static inline float from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

#define AS_IT_IS(x) (x)

/* out[i] = what `from` makes of the i-th number, as `to`; tensors may lie at any byte. */
#define CONVERT(type, from, to)                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        type x;                                                                                                        \
        memcpy(&x, bytes + i * sizeof x, sizeof x);                                                                    \
        ((to *)out)[i] = (to)from(x);                                                                                  \
    }                                                                                                                  \
    break

#define CONVERT_ALL(to)                                                                                                \
    switch (t->type) {                                                                                                 \
    case NH_TENSOR_F64:                                                                                                \
        CONVERT(double, AS_IT_IS, to);                                                                                 \
    case NH_TENSOR_F32:                                                                                                \
        CONVERT(float, AS_IT_IS, to);                                                                                  \
    case NH_TENSOR_F16:                                                                                                \
        CONVERT(uint16_t, from_f16, to);                                                                               \
    case NH_TENSOR_BF16:                                                                                               \
        CONVERT(uint16_t, from_bf16, to);                                                                              \
    case NH_TENSOR_I64:                                                                                                \
        CONVERT(int64_t, AS_IT_IS, to);                                                                                \
    case NH_TENSOR_I32:                                                                                                \
        CONVERT(int32_t, AS_IT_IS, to);                                                                                \
    case NH_TENSOR_U8:                                                                                                 \
    case NH_TENSOR_BOOL:                                                                                               \
        CONVERT(uint8_t, AS_IT_IS, to);                                                                                \
    }                                                                                                                  \
    break

void nh_tensor_convert(const struct nh_tensor *t, size_t first, size_t n, int bits, void *out)
{
    const unsigned char *bytes = t->bytes + first * types[t->type].width;
    assert(first <= t->count && n <= t->count - first);
    switch (bits) {
    case 32:
        CONVERT_ALL(float);
    default:
        CONVERT_ALL(double);
    }
}

void nh_tensor_read(const struct nh_tensor *t, double *out)
{
    nh_tensor_convert(t, 0, t->count, 64, out);
}

void nh_tensor_let_go(const struct nh_tensor *t, size_t first, size_t n)
{
    enum { AROUND = 1 << 21 }; /* with a missing page Linux maps its neighbours, up to these; some had been let go before */
    const uintptr_t map = (uintptr_t)t->file->map, width = types[t->type].width, numbers = (uintptr_t)t->bytes;
    if (!map)
        return;
    const uintptr_t begin = (numbers + first * width) / AROUND * AROUND, end = (numbers + (first + n) * width + AROUND) / AROUND * AROUND;
    const uintptr_t from = begin < map ? map : begin, to = end > map + t->file->map_size ? map + t->file->map_size : end;
    madvise((void *)from, to - from, MADV_DONTNEED); /* who still reads such a page gets it from the file again */
}

int nh_safetensors_copy(const struct nh_safetensors *s, const char *name, enum nh_tensor_type type, void *out, size_t n)
{
    assert(type == NH_TENSOR_F64 || type == NH_TENSOR_F32 || type == NH_TENSOR_BOOL);
    const struct nh_tensor *t = nh_safetensors_find(s, name);
    if (!t)
        return nh_fail(NH_FAILED, "'%s' has no tensor '%.80s', which must hold %zu numbers of %s", s->path, name, n,
                       types[type].name);
    if (t->type != type || t->count != n)
        return REFUSE(s->path, t, "holds %zu numbers of %s, but it must hold %zu of %s", t->count, types[t->type].name,
                      n, types[type].name);
    if (n > 0)
        memcpy(out, t->bytes, nh_tensor_bytes(t));
    return NH_OK;
}

/* ---- writing ---- */

static size_t bytes_out(const struct nh_tensor_out *t)
{
    return nh_shape_count(&t->shape) * types[t->type].width;
}

/* The header as text, to be freed; NULL where memory is short, names are equal or a text is no UTF-8. */
static char *header_text(const struct nh_tensor_out *tensors, size_t n, const struct nh_meta_out *meta, size_t n_meta)
{
    json_t *header = json_object(), *texts = json_object();
    for (size_t i = 0; i < n_meta; i++)
        json_object_set_new(texts, meta[i].name, json_string(meta[i].text));
    bool whole = json_object_size(texts) == n_meta;
    if (n_meta > 0)
        json_object_set(header, metadata, texts);
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *shape = json_array();
        for (int d = 0; d < tensors[i].shape.rank; d++)
            json_array_append_new(shape, json_integer((json_int_t)tensors[i].shape.dims[d]));
        const size_t begin = end;
        end += bytes_out(&tensors[i]);
        json_object_set_new(header, tensors[i].name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", types[tensors[i].type].name, "shape", shape,
                                      "data_offsets", (json_int_t)begin, (json_int_t)end));
    }
    whole = whole && json_object_size(header) == n + (n_meta > 0);
    char *text = whole ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(texts);
    json_decref(header);
    return text;
}

int nh_safetensors_prepare(struct nh_part **out, const char *path, bool replace, const struct nh_tensor_out *tensors, size_t n,
                           const struct nh_meta_out *meta, size_t n_meta)
{
    char *text = header_text(tensors, n, meta, n_meta);
    *out = NULL;
    if (!text)
        return nh_fail(
            NH_FAILED,
            "cannot make the header of '%s': a name is there twice, something is no UTF-8, or memory is short", path);
    const size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    const uint64_t prefix = padded;
    struct nh_part *p = NULL;
    int status = nh_part_create(&p, path, replace);
    if (!status)
        status = nh_part_write(p, &prefix, sizeof prefix);
    if (!status)
        status = nh_part_write(p, text, length);
    if (!status)
        status = nh_part_write(p, "        ", padded - length);
    for (size_t i = 0; i < n && !status; i++) {
        assert(tensors[i].type == NH_TENSOR_F64 || tensors[i].type == NH_TENSOR_F32 || tensors[i].type == NH_TENSOR_BOOL);
        status = nh_part_write(p, tensors[i].numbers, bytes_out(&tensors[i]));
    }
    if (!status)
        status = nh_part_sync(p, NULL);
    if (status)
        nh_part_destroy(p);
    else
        *out = p;
    free(text);
    return status;
}

int nh_safetensors_write(const char *path, bool replace, const struct nh_tensor_out *tensors, size_t n,
                         const struct nh_meta_out *meta, size_t n_meta)
{
    struct nh_part *p;
    int status = nh_safetensors_prepare(&p, path, replace, tensors, n, meta, n_meta);
    if (!status)
        status = nh_part_commit(p);
    nh_part_destroy(p);
    return status;
}
