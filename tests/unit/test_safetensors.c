// SPDX-License-Identifier: GPL-3.0-or-later
/** Reading and writing safetensors: known files, each dtype, each refusal. */
#include "harness/io/safetensors.h"
#include "tests/unit/result_files.h"

#include <inttypes.h>
#include <math.h>

static struct nh_safetensors *open_data(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/st/%s.safetensors", getenv("NH_TEST_DATA"), name);
    struct nh_safetensors *s;
    ok(nh_safetensors_open(&s, path));
    return s;
}

static const struct nh_tensor *has(const struct nh_safetensors *s, const char *name, const char *shape)
{
    const struct nh_tensor *t = nh_safetensors_find(s, name);
    ck_assert_msg(t != NULL, "no %s", name);
    char text[NH_SHAPE_TEXT];
    ck_assert_str_eq(nh_shape_text(&t->shape, text), shape);
    return t;
}

static void holds(const struct nh_tensor *t, size_t n, const double *want)
{
    double got[64];
    ck_assert_uint_eq(t->count, n);
    ck_assert_uint_le(n, 64);
    nh_tensor_read(t, got);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg((isnan(got[i]) && isnan(want[i])) || memcmp(&got[i], &want[i], sizeof *got) == 0,
                      "number %zu of %s is %.17g, not %.17g", i, t->name, got[i], want[i]);
}

#define HOLDS(t, ...) holds(t, sizeof((const double[]){__VA_ARGS__}) / sizeof(double), (const double[]){__VA_ARGS__})

/* ---- known files ---- */

START_TEST(three_dtypes)
{
    struct nh_safetensors *s = open_data("ok_three_dtypes");
    ck_assert_uint_eq(nh_safetensors_count(s), 3);
    static const char *const names[] = {"a.f32", "b.f16", "c.bf16"};
    for (int i = 0; i < 3; i++)
        HOLDS(has(s, names[i], "[2, 4]"), 0, .25, .5, .75, 1, 1.25, 1.5, 1.75);
    ck_assert_ptr_null(nh_safetensors_find(s, "__metadata__"));
    ck_assert_ptr_null(nh_safetensors_meta(s, "none"));
    ck_assert_ptr_null(nh_safetensors_find(s, "a"));
    nh_safetensors_close(s);
}
END_TEST

START_TEST(unordered_keys)
{
    struct nh_safetensors *s = open_data("ok_unordered_keys");
    HOLDS(has(s, "a", "[2]"), 1, 2);
    HOLDS(has(s, "b", "[2]"), 3, 4);
    HOLDS(has(s, "c", "[1]"), 5);
    for (size_t i = 0; i < 3; i++) /* in the order of the data */
        ck_assert_int_eq(nh_safetensors_at(s, i)->name[0], "abc"[i]);
    nh_safetensors_close(s);
}
END_TEST

START_TEST(models)
{
    static const struct {
        const char *name;
        size_t count;
        bool head;
    } files[] = {{"tiny_pre_f32", 21, true}, {"tiny_pre_tied_nohead", 20, false}, {"tiny_sandwich_f32", 25, true}};
    for (size_t i = 0; i < 3; i++) {
        struct nh_safetensors *s = open_data(files[i].name);
        ck_assert_uint_eq(nh_safetensors_count(s), files[i].count);
        has(s, "model.embed_tokens.weight", "[8, 8]");
        ck_assert_int_eq(nh_safetensors_find(s, "lm_head.weight") != NULL, files[i].head);
        nh_safetensors_close(s);
    }
}
END_TEST

START_TEST(broken_files)
{
    static const struct {
        const char *name, *words;
    } files[] = {
        {"bad_hdrlen_max", "18446744073709551615"},
        {"bad_hdrlen_past_eof", "claims a header"},
        {"bad_short_7bytes", "7 bytes"},
        {"bad_offset_past_eof", "tensor 't' ends at byte 4000000"},
        {"bad_shape_vs_offsets", "tensor 't' has 65536 bytes, but F32 [32, 8] takes 1024"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/st/%s.safetensors", getenv("NH_TEST_DATA"), files[i].name);
        struct nh_safetensors *s;
        fails(nh_safetensors_open(&s, path), files[i].words);
        ck_assert_ptr_null(s);
        ck_assert_ptr_nonnull(strstr(nh_error(), files[i].name));
    }
}
END_TEST

START_TEST(no_files)
{
    struct nh_safetensors *s;
    fails(nh_safetensors_open(&s, in_folder("nothing")), "No such file");
    fails(nh_safetensors_open(&s, folder), "not a regular file");
    fails(nh_safetensors_open(&s, "/dev/null"), "not a regular file");
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
    fails(nh_safetensors_open(&s, in_folder("pipe")), "not a regular file");
    FILE *file = fopen(in_folder("empty"), "w");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    fails(nh_safetensors_open(&s, in_folder("empty")), "is empty");
    nh_safetensors_close(NULL);
}
END_TEST

/* What is given in the place of a safetensors file is named. */
START_TEST(other_files)
{
#define BYTES(text) text, sizeof text - 1
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } files[] = {
        {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:4665ce\nsize 135\n"), "is a Git LFS pointer"},
        {BYTES("<!DOCTYPE html><html>404</html>"), "is a web page"},
        {BYTES("\xef\xbb\xbf \n<HTML lang=en>"), "is a web page"},
        {BYTES("\x1f\x8b\x08\0\0\0\0\0\0\3abcdefgh"), "is a gzip file"},
        {BYTES("PK\3\4\0\0\0\0abcdefgh"), "is a zip archive"},
        {BYTES("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."), "is a Python pickle"},
        {BYTES("\x80\4\x95\1\0\0\0\0\0\0\0}."), "is a Python pickle"},
        {BYTES("GGUF\3\0\0\0\0\0\0\0"), "is a GGUF file"},
        {BYTES("\x93NUMPY\1\0v\0"), "is a NumPy file"},
        {BYTES("Entry not found"), "is a text that begins with 'Entry not found'"},
        {BYTES("abc"), "is a text that begins with 'abc'"},
        {BYTES("{\"error\":\"no\"}"), "is a text that begins with '{"},
        {BYTES(""), "is empty"},
        /* the beginning of a header of 640 bytes, which a pickle's two first bytes are too */
        {BYTES("\x80\2\0\0\0\0\0\0{\"a\":"), "claims a header of 640 bytes"},
    };
#undef BYTES
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct nh_safetensors *s;
        fails(nh_safetensors_parse(&s, files[i].bytes, files[i].n, "F"), files[i].words);
        ck_assert_ptr_nonnull(strstr(nh_error(), "'F'"));
    }
}
END_TEST

/* A file that is cut or written to while it is mapped gives zeros, no signal, and is refused. */
START_TEST(files_that_change)
{
    enum { NUMBERS = 100000 };
    static float numbers[NUMBERS];
    static double out[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = 1;
    for (int change = 0; change < 3; change++) {
        struct nh_safetensors *s, *other;
        const struct nh_tensor_out t = {"x", NH_TENSOR_F32, {1, {NUMBERS}}, numbers};
        ok(nh_safetensors_write(in_folder("other"), true, &t, 1, NULL, 0));
        ok(nh_safetensors_open(&other, in_folder("other")));
        ok(nh_safetensors_write(in_folder("changes"), true, &t, 1, NULL, 0));
        ok(nh_safetensors_open(&s, in_folder("changes")));
        nh_tensor_read(nh_safetensors_find(s, "x"), out);
        ok(nh_safetensors_check(s));
        nh_tensor_let_go(nh_safetensors_find(s, "x"), 0, NUMBERS);
        FILE *file = fopen(in_folder("changes"), "r+");
        ck_assert_ptr_nonnull(file);
        if (change == 0)
            ck_assert_int_eq(truncate(in_folder("changes"), 5000), 0);
        else if (change == 1) /* within the last page, where no signal tells */
            ck_assert_int_eq(truncate(in_folder("changes"), NUMBERS * 4), 0);
        else
            ck_assert_int_eq(futimens(fileno(file), (const struct timespec[]){{1, 0}, {1, 0}}), 0);
        fclose(file);
        nh_tensor_read(nh_safetensors_find(s, "x"), out);
        ck_assert_double_eq(out[0], 1);
        ck_assert_double_eq(out[NUMBERS - 1], change < 2 ? 0 : 1);
        fails(nh_safetensors_check(s), change < 2 ? "while it was read; run again when it is whole" : "was written to while it was read");
        ok(nh_safetensors_check(other));
        nh_safetensors_close(s);
        nh_tensor_read(nh_safetensors_find(other, "x"), out);
        ck_assert_double_eq(out[NUMBERS - 1], 1);
        nh_safetensors_close(other);
    }
}
END_TEST

/* ---- headers in memory ---- */

/* A file of this header and n_data bytes of data, in memory of exactly its size. */
static int parse(struct nh_safetensors **s, unsigned char **bytes, const char *header, const void *data, size_t n_data)
{
    const uint64_t length = strlen(header);
    const size_t size = 8 + length + n_data;
    *bytes = malloc(size);
    ck_assert_ptr_nonnull(*bytes);
    memcpy(*bytes, &length, 8);
    memcpy(*bytes + 8, header, length);
    if (n_data)
        memcpy(*bytes + 8 + length, data, n_data);
    return nh_safetensors_parse(s, *bytes, size, "F");
}

#define DONE nh_safetensors_close(s), free(bytes)

START_TEST(dtypes)
{
    static const uint16_t halves[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0001,
                                      0x03ff, 0x0400, 0x7c00, 0xfc00, 0x7e00};
    static const uint16_t brains[] = {0x3f80, 0x8000, 0x7f7f, 0x0001, 0xff80, 0x7fc0};
    static const double doubles[] = {1.0 / 3, -0.0, 5e-324};
    static const int64_t longs[] = {-1, INT64_MAX, 1ll << 53};
    static const int32_t ints[] = {-1, INT32_MIN};
    static const float floats[] = {0x1p-149f, -1.5f};
    struct nh_safetensors *s;
    unsigned char *bytes;
    const double nan = (double)NAN, inf = (double)INFINITY;
#define ONE(type, n, size, array)                                                                                      \
    ok(parse(&s, &bytes, "{\"x\":{\"dtype\":\"" type "\",\"shape\":[" n "],\"data_offsets\":[0," size "]}}", array,    \
             sizeof array))
    ONE("F16", "11", "22", halves);
    HOLDS(has(s, "x", "[11]"), 0, -0.0, 1, -2, 65504, 0x1p-24, 1023 * 0x1p-24, 0x1p-14, inf, -inf, nan);
    DONE;
    ONE("BF16", "6", "12", brains);
    HOLDS(has(s, "x", "[6]"), 1, -0.0, 0x1.fep127, 0x1p-133, -inf, nan);
    DONE;
    ONE("F64", "3", "24", doubles);
    HOLDS(has(s, "x", "[3]"), 1.0 / 3, -0.0, 5e-324);
    DONE;
    ONE("F32", "2", "8", floats);
    HOLDS(has(s, "x", "[2]"), 0x1p-149, -1.5);
    DONE;
    ONE("I64", "3", "24", longs);
    HOLDS(has(s, "x", "[3]"), -1, 0x1p63, 0x1p53);
    DONE;
    ONE("I32", "2", "8", ints);
    HOLDS(has(s, "x", "[2]"), -1, -0x1p31);
    DONE;
}
END_TEST

START_TEST(shapes)
{
    static const float one = 7;
    struct nh_safetensors *s;
    unsigned char *bytes;
    ok(parse(&s, &bytes, "{}", NULL, 0));
    ck_assert_uint_eq(nh_safetensors_count(s), 0);
    DONE;
    ok(parse(&s, &bytes, "{\"x\":{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":\"F32\"}}   ", &one, 4));
    HOLDS(has(s, "x", "[]"), 7);
    DONE;
    ok(parse(&s, &bytes, "{\"x\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[0,0]}}", NULL, 0));
    ck_assert_uint_eq(has(s, "x", "[3, 0]")->count, 0);
    DONE;
    ok(parse(&s, &bytes, "{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", &one, 4));
    HOLDS(has(s, "x", "[1, 1, 1, 1, 1, 1, 1, 1]"), 7);
    DONE;
    /* an empty tensor at the place where another begins, listed behind it */
    ok(parse(&s, &bytes,
             "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
             "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
             &one, 4));
    DONE;
}
END_TEST

START_TEST(headers)
{
    static const unsigned char data[16];
    static const struct {
        const char *header, *words;
    } cases[] = {
        {"", "does not begin with '{'"},
        {"[]", "does not begin with '{'"},
        {" {}", "does not begin with '{'"},
        {"\n{}", "does not begin with '{'"},
        {"\xef\xbb\xbf{}", "does not begin with '{'"},
        {"{}\n", "byte 2 of the header follows the JSON object and is no space"},
        {"{} \t ", "byte 2 of the header follows the JSON object and is no space"},
        {"{\"a\xff\":1}", "no JSON object"},
        {"{", "no JSON object"},
        {"{} x", "byte 2 of the header"},
        {"{}{}", "byte 2 of the header"},
        {"{\"x\":1}", "tensor 'x' has the dtype 'none'"},
        {"{\"x\":{}}", "dtype 'none'"},
        {"{\"x\":{\"dtype\":1,\"shape\":[4],\"data_offsets\":[0,16]}}", "dtype 'none'"},
        {"{\"x\":{\"dtype\":\"I8\",\"shape\":[16],\"data_offsets\":[0,16]}}", "dtype 'I8'; F64"},
        {"{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", "no shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", "no shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,16]}}", "at most 8"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", "at place 0"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,4.0],\"data_offsets\":[0,16]}}", "at place 1"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[\"4\"],\"data_offsets\":[0,16]}}", "at place 0"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,16]}}", "no JSON object"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4611686018427387908],\"data_offsets\":[0,16]}}", "more numbers than"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967300],\"data_offsets\":[0,16]}}", "more numbers than"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4]}}", "data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,16]}}", "data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", "data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-16,0]}}", "data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":{\"0\":0,\"1\":16}}}", "data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}", "ends at byte 20"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[9223372036854775791,9223372036854775807]}}",
         "ends at"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}", "16 bytes, but F32 [3] takes 12"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", "4 bytes behind its last tensor"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[4,16]}}", "a hole"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
         "\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
         "tensor 'y' begins at byte 8 of the data, but what is before it ends at 12: the file has an overlap"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
         "\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "duplicate"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"shape\":[4],\"data_offsets\":[0,16]}}", "duplicate"},
        {"{\"__metadata__\":[]}", "__metadata__ is no JSON object"},
        {"{\"__metadata__\":null}", "__metadata__ is no JSON object"},
        {"{\"__metadata__\":{\"a\":\"b\",\"step\":12}}", "the metadata 'step' is no text"},
        {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", "the metadata 'a' is no text"},
        {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", "duplicate"},
        {"{\"x\\u0000\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "no JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_safetensors *s;
        unsigned char *bytes;
        fails(parse(&s, &bytes, cases[i].header, data, sizeof data), cases[i].words);
        ck_assert_ptr_null(s);
        ck_assert_ptr_nonnull(strstr(nh_error(), "'F'"));
        free(bytes);
    }
}
END_TEST

/* ---- writing ---- */

START_TEST(round_trip)
{
    static const double doubles[] = {0, -0.0, 1.0 / 3, 1e300, -1e-310, (double)INFINITY, (double)NAN};
    static const float floats[] = {0x1p-149f, -0.0f, 3};
    const struct nh_tensor_out out[] = {{"y", NH_TENSOR_F64, {2, {1, 7}}, doubles},
                                        {"a \"b\"\\", NH_TENSOR_F32, {0, {0}}, floats + 2},
                                        {"none", NH_TENSOR_F64, {1, {0}}, NULL},
                                        {"f", NH_TENSOR_F32, {1, {3}}, floats}};
    const struct nh_meta_out meta[] = {{"step", "12"},
                                       {"", ""},
                                       {"a \"text\"\n", "Gr\xc3\xb6\xc3\x9f"
                                                        "e\\"}};
    for (int again = 0; again < 2; again++) {
        ok(nh_safetensors_write(in_folder("out"), true, out, 4, meta, 3));
        ck_assert_str_eq(part_of("out"), "");
        char *text = content("out");
        ck_assert_str_eq(text + 8,
                         "{\"__metadata__\":{\"step\":\"12\",\"\":\"\",\"a \\\"text\\\"\\n\":\"Gr\xc3\xb6\xc3\x9f"
                         "e\\\\\"},"
                         "\"y\":{\"dtype\":\"F64\",\"shape\":[1,7],\"data_offsets\":[0,56]},"
                         "\"a \\\"b\\\"\\\\\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[56,60]},"
                         "\"none\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[60,60]},"
                         "\"f\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[60,72]}}  ");
        free(text);
    }
    struct nh_safetensors *s;
    ok(nh_safetensors_open(&s, in_folder("out")));
    const struct nh_tensor *y = has(s, "y", "[1, 7]");
    ck_assert_int_eq(y->type, NH_TENSOR_F64);
    ck_assert_uint_eq((uintptr_t)y->bytes % 8, 0);
    holds(y, 7, doubles);
    HOLDS(has(s, "a \"b\"\\", "[]"), 3);
    ck_assert_uint_eq(has(s, "none", "[0]")->count, 0);
    for (size_t i = 0; i < 3; i++)
        ck_assert_str_eq(nh_safetensors_meta(s, meta[i].name), meta[i].text);
    ck_assert_ptr_null(nh_safetensors_meta(s, "y"));
    nh_safetensors_close(s);

    ok(nh_safetensors_write(in_folder("bare"), true, out, 0, NULL, 0));
    content_is("bare", "\x08");
    ok(nh_safetensors_open(&s, in_folder("bare")));
    ck_assert_uint_eq(nh_safetensors_count(s), 0);
    ck_assert_ptr_null(nh_safetensors_meta(s, "step"));
    nh_safetensors_close(s);
}
END_TEST

START_TEST(copies_are_exact)
{
    static const uint32_t floats[] = {0x7fa00001, 0xffc12345, 0x80000000, 1}; /* NaNs with a payload */
    static const uint64_t doubles[] = {0x7ff4000000000001, 0x8000000000000000};
    const struct nh_tensor_out out[] = {{"f", NH_TENSOR_F32, {2, {2, 2}}, floats},
                                        {"d", NH_TENSOR_F64, {1, {2}}, doubles},
                                        {"none", NH_TENSOR_F32, {2, {3, 0}}, NULL}};
    struct nh_safetensors *s;
    float f[4] = {0};
    double d[2] = {0};
    ok(nh_safetensors_write(in_folder("out"), true, out, 3, NULL, 0));
    ok(nh_safetensors_open(&s, in_folder("out")));
    ok(nh_safetensors_copy(s, "f", NH_TENSOR_F32, f, 4));
    ck_assert_mem_eq(f, floats, sizeof floats);
    ok(nh_safetensors_copy(s, "d", NH_TENSOR_F64, d, 2));
    ck_assert_mem_eq(d, doubles, sizeof doubles);
    ok(nh_safetensors_copy(s, "none", NH_TENSOR_F32, NULL, 0));
    fails(nh_safetensors_copy(s, "f", NH_TENSOR_F32, f, 3),
          "out': tensor 'f' holds 4 numbers of F32, but it must hold 3 of F32");
    fails(nh_safetensors_copy(s, "d", NH_TENSOR_F32, f, 4),
          "tensor 'd' holds 2 numbers of F64, but it must hold 4 of F32");
    fails(nh_safetensors_copy(s, "g", NH_TENSOR_F64, d, 2), "has no tensor 'g', which must hold 2 numbers of F64");
    nh_safetensors_close(s);
}
END_TEST

START_TEST(large_file)
{
    enum { N = 3000001 };
    float *x = malloc(2 * N * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    const struct nh_tensor_out out[] = {{"a", NH_TENSOR_F32, {1, {N}}, x}, {"b", NH_TENSOR_F32, {1, {N - 1}}, x + 1}};
    struct nh_safetensors *s;
    ok(nh_safetensors_write(in_folder("out"), true, out, 2, NULL, 0));
    ok(nh_safetensors_open(&s, in_folder("out")));
    ok(nh_safetensors_copy(s, "a", NH_TENSOR_F32, x + N, N));
    ck_assert(memcmp(x, x + N, N * sizeof *x) == 0);
    ok(nh_safetensors_copy(s, "b", NH_TENSOR_F32, x + N, N - 1));
    ck_assert(memcmp(x + 1, x + N, (N - 1) * sizeof *x) == 0);
    nh_safetensors_close(s);
    free(x);
}
END_TEST

START_TEST(what_cannot_be_written)
{
    const struct nh_tensor_out out[] = {{"y", NH_TENSOR_F64, {0, {0}}, &(const double){1}},
                                        {"y", NH_TENSOR_F64, {0, {0}}, &(const double){2}}};
    const struct nh_meta_out twice[] = {{"a", "1"}, {"a", "2"}}, no_text = {"a", "\xff"};
    fails(nh_safetensors_write(in_folder("nowhere/out"), true, out, 1, NULL, 0), "nowhere");
    fails(nh_safetensors_write(in_folder("out"), true, out, 2, NULL, 0), "out': a name is there twice");
    fails(nh_safetensors_write(in_folder("out"), true, out, 1, twice, 2), "a name is there twice");
    fails(nh_safetensors_write(in_folder("out"), true, out, 1, &no_text, 1), "no UTF-8");
    ck_assert(!exists("out"));
    ck_assert_str_eq(part_of("out"), "");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, three_dtypes);
    tcase_add_test(t, unordered_keys);
    tcase_add_test(t, models);
    tcase_add_test(t, broken_files);
    tcase_add_test(t, no_files);
    tcase_add_test(t, other_files);
    tcase_add_test(t, files_that_change);
    tcase_add_test(t, dtypes);
    tcase_add_test(t, shapes);
    tcase_add_test(t, headers);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, copies_are_exact);
    tcase_add_test(t, large_file);
    tcase_add_test(t, what_cannot_be_written);
    return run_suite(s, t);
}
