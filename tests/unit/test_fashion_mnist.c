// SPDX-License-Identifier: GPL-3.0-or-later
/** The source fashion-mnist, on small files of its form and, where it is installed, on the data set. */
#include "tests/unit/data_files.h"
#include "tests/suite.h"

#include <sys/stat.h>

START_TEST(fashion_tokens_are_caption_and_patch_means)
{
    static const struct {
        int grid, levels;
    } cases[] = {{0, 0}, {7, 32}, {14, 32}, {28, 256}, {28, 1}, {1, 7}};
    static const int kinds[10] = {0, 1, 0, 2, 3, 4, 0, 4, 5, 4}; /* t-shirt, pullover, shirt: upper; three shoes */
    const int grid = cases[_i].grid ? cases[_i].grid : 7, levels = cases[_i].levels ? cases[_i].levels : 32;
    const int side = 28 / grid;
    put_fashion(IMAGES, LABELS, 300);
    struct nh_data *data = must_open(
        "fashion-mnist",
        (struct nh_data_request){.batch = 300, .image_grid = cases[_i].grid, .image_levels = cases[_i].levels});
    ck_assert_int_eq(data->seq, 2 + grid * grid);
    ck_assert_int_eq(data->vocab, levels + 16);
    ck_assert_uint_eq(data->sequences, 300);
    int *tokens = batch_of(data, 0);
    bool seen[300] = {false};
    for (int row = 0; row < 300; row++) {
        const int *t = tokens + row * data->seq;
        int image = -1; /* the one of this order whose tokens these are */
        for (int i = 0; i < 300 && image < 0; i++) {
            const int rest = (i % 256) * levels / 256;
            const int first = (255 + (side * side - 1) * (i % 256)) * levels / (256 * side * side);
            bool same = !seen[i] && t[0] == levels + kinds[i % 10] && t[1] == levels + 6 + i % 10 && t[2] == first;
            for (int p = 1; same && p < grid * grid; p++)
                same = t[2 + p] == rest;
            image = same ? i : -1;
        }
        ck_assert_int_ge(image, 0);
        seen[image] = true;
    }
    free(tokens);
    nh_data_close(data);
}
END_TEST

START_TEST(fashion_test_set_is_held_out)
{
    put_fashion(IMAGES, LABELS, 30);
    put_fashion(TEST_IMAGES, TEST_LABELS, 20);
    struct nh_data *train = must_open("fashion-mnist", (struct nh_data_request){0});
    struct nh_data *test = must_open("fashion-mnist", (struct nh_data_request){.held_out = true});
    ck_assert_uint_eq(train->sequences, 30);
    ck_assert_uint_eq(test->sequences, 20);
    nh_data_close(train);
    nh_data_close(test);
}
END_TEST

/* Sequences that are no whole example are cut from the row of all examples. */
START_TEST(fashion_sequences_of_another_length)
{
    enum { EXAMPLE = 2 + 49, IMAGES_ = 30, ALL = IMAGES_ * EXAMPLE };
    static const int lengths[] = {1, 17, 50, 52, 64, 102, 500, ALL};
    const int seq = lengths[_i], n = ALL / seq;
    put_fashion(IMAGES, LABELS, IMAGES_);
    struct nh_data *whole = must_open("fashion-mnist", (struct nh_data_request){.batch = IMAGES_});
    struct nh_data *cut = must_open("fashion-mnist", (struct nh_data_request){.batch = n, .seq = seq});
    ck_assert_uint_eq(cut->sequences, (uint64_t)n);
    ck_assert_uint_ne(cut->digest, whole->digest);
    int *all = batch_of(whole, 0), *tokens = batch_of(cut, 0);
    ck_assert_mem_eq(tokens, all, (size_t)(n * seq) * sizeof *all);
    free(all);
    free(tokens);
    nh_data_close(whole);
    nh_data_close(cut);
}
END_TEST

START_TEST(fashion_digest_knows_pixels_labels_and_levels)
{
    struct nh_data_request request = {.vocab = 300};
    uint64_t digest[4];
    for (int i = 0; i < 4; i++) {
        unsigned char *images = idx_images(20), *labels = idx_labels(20);
        images[16 + 19 * PIXELS + 500] = i == 1 ? 200 : 19;
        labels[8 + 19] = i == 2 ? 3 : 9;
        request.image_levels = i == 3 ? 31 : 32;
        put_gz(IMAGES, images, 16 + 20 * PIXELS);
        put_gz(LABELS, labels, 8 + 20);
        struct nh_data *data = must_open("fashion-mnist", request);
        digest[i] = data->digest;
        nh_data_close(data);
        free(images);
        free(labels);
        for (int j = 0; j < i; j++)
            ck_assert_uint_ne(digest[i], digest[j]);
    }
}
END_TEST

/* Sequences of another length are cut from the row of all examples. */
START_TEST(fashion_in_another_length)
{
    enum { EXAMPLES = 4, LENGTH = 51, SEQ = 68 };
    put_fashion(IMAGES, LABELS, 10);
    int whole[EXAMPLES * LENGTH], cut[SEQ];
    struct nh_data *a = must_open("fashion-mnist", (struct nh_data_request){.batch = EXAMPLES, .seed = 3});
    struct nh_data *b = must_open("fashion-mnist", (struct nh_data_request){.batch = 1, .seq = SEQ, .seed = 3});
    ck_assert_int_eq(nh_data_batch(a, 0, whole), 0);
    for (uint64_t i = 0; i < EXAMPLES * LENGTH / SEQ; i++) {
        ck_assert_int_eq(nh_data_batch(b, i, cut), 0);
        ck_assert_mem_eq(cut, whole + i * SEQ, sizeof cut);
    }
    nh_data_close(a), nh_data_close(b);
}
END_TEST

START_TEST(fashion_in_sizes_it_does_not_have)
{
    put_fashion(IMAGES, LABELS, 10);
    must_refuse(NH_USAGE, "fashion-mnist", (struct nh_data_request){.vocab = 47}, WORDS("--vocab 47", "--vocab 48"));
    must_refuse(NH_USAGE, "fashion-mnist", (struct nh_data_request){.image_grid = 8},
                WORDS("--image-grid 8", "7, 14 or 28"));
    must_refuse(NH_USAGE, "fashion-mnist", (struct nh_data_request){.image_grid = -7}, WORDS("--image-grid -7"));
    must_refuse(NH_USAGE, "fashion-mnist", (struct nh_data_request){.image_grid = 56}, WORDS("--image-grid 56"));
    must_refuse(NH_USAGE, "fashion-mnist", (struct nh_data_request){.image_levels = 257},
                WORDS("--image-levels 257", "1 to 256"));
    must_refuse(NH_USAGE, "fashion-mnist", (struct nh_data_request){.image_levels = -1}, WORDS("--image-levels -1"));
    struct nh_data *data = must_open("fashion-mnist", (struct nh_data_request){.seq = 51, .vocab = 64});
    ck_assert_int_eq(data->vocab, 64);
    nh_data_close(data);
}
END_TEST

START_TEST(fashion_missing)
{
    must_refuse(NH_FAILED, "fashion-mnist", (struct nh_data_request){0},
                WORDS(path(IMAGES), "install", "dataset-fashion-mnist"));
    put_fashion(IMAGES, LABELS, 10);
    unlink(path(LABELS));
    must_refuse(NH_FAILED, "fashion-mnist", (struct nh_data_request){0}, WORDS(path(LABELS), "dataset-fashion-mnist"));
    ck_assert_int_eq(mkdir(path(LABELS), 0700), 0);
    must_refuse(NH_FAILED, "fashion-mnist", (struct nh_data_request){0}, WORDS(path(LABELS)));
    rmdir(path(LABELS));
}
END_TEST

/* Headers that lie: byte `at` of the images (or labels) file is changed. */
START_TEST(fashion_header_that_lies)
{
    static const struct {
        bool labels;
        int at, value;
        const char *word;
    } cases[] = {
        {false, 0, 1, "starts with 01000803"},    /* magic */
        {false, 2, 13, "starts with 00000d03"},   /* floats */
        {false, 3, 1, "starts with 00000801"},    /* a labels file in place of images */
        {true, 3, 3, "starts with 00000803"},     /* and the other way round */
        {false, 4, 255, "claims 4278190090"},     /* 4 billion images */
        {false, 7, 11, "claims 11 images"},       /* one more than there are labels */
        {false, 7, 9, "claims 9 images"},         /* one fewer */
        {false, 11, 29, "claims images of 29 x"}, /* taller */
        {false, 12, 128, "x 2147483676"},         /* 2 billion wide */
        {true, 4, 255, "claims 4278190090"},      /* 4 billion labels */
        {true, 7, 0, "claims 0 labels"},          /* none */
        {true, 7, 9, "goes on"},                  /* one fewer than the file holds */
        {true, 7, 11, "ends in its labels"},      /* one more */
        {true, 8, 10, "label 10 at item 0"},      /* class 10 */
    };
    unsigned char *images = idx_images(10), *labels = idx_labels(10);
    (cases[_i].labels ? labels : images)[cases[_i].at] = (unsigned char)cases[_i].value;
    put_gz(IMAGES, images, 16 + 10 * PIXELS);
    put_gz(LABELS, labels, 8 + 10);
    must_refuse(NH_FAILED, "fashion-mnist", (struct nh_data_request){0},
                WORDS(path(cases[_i].labels ? LABELS : IMAGES), cases[_i].word));
    free(images);
    free(labels);
}
END_TEST

START_TEST(fashion_with_something_behind_the_images)
{
    put_fashion(IMAGES, LABELS, 10);
    unsigned char *images = idx_images(10);
    put_gz(IMAGES, images, 16 + 10 * PIXELS + 1);
    must_refuse(NH_FAILED, "fashion-mnist", (struct nh_data_request){0}, WORDS(path(IMAGES), "goes on"));
    free(images);
}
END_TEST

/* What is packed is cut, at every length of the labels file and at some of the images file. */
START_TEST(fashion_cut_in_its_gz_stream)
{
    const int name = _i ? IMAGES : LABELS;
    put_fashion(IMAGES, LABELS, 40);
    FILE *file = fopen(path(name), "rb");
    ck_assert_ptr_nonnull(file);
    unsigned char bytes[4096];
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    ck_assert_uint_lt(n, sizeof bytes);
    for (size_t cut = 0; cut < n; cut++) {
        put(name, bytes, cut);
        must_refuse(NH_FAILED, "fashion-mnist", (struct nh_data_request){0}, WORDS(path(name)));
    }
    put(name, bytes, n);
    nh_data_close(must_open("fashion-mnist", (struct nh_data_request){0}));
    bytes[n - 6] ^= 1; /* checksum */
    put(name, bytes, n);
    must_refuse(NH_FAILED, "fashion-mnist", (struct nh_data_request){0}, WORDS(path(name), "incorrect data check"));
}
END_TEST

START_TEST(fashion_not_packed)
{
    put_fashion(IMAGES, LABELS, 10);
    unsigned char *images = idx_images(10);
    put(IMAGES, images, 16 + 10 * PIXELS);
    nh_data_close(must_open("fashion-mnist", (struct nh_data_request){0}));
    put(IMAGES, images, 16 + 10 * PIXELS - 1);
    must_refuse(NH_FAILED, "fashion-mnist", (struct nh_data_request){0}, WORDS(path(IMAGES), "ends in its images"));
    free(images);
}
END_TEST

START_TEST(fashion_package)
{
    unsetenv("NH_FASHION_MNIST");
    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK))
        return;
    for (int held_out = 0; held_out < 2; held_out++) {
        struct nh_data *data =
            must_open("fashion-mnist", (struct nh_data_request){.batch = 1000, .held_out = held_out});
        ck_assert_uint_eq(data->sequences, held_out ? 10000 : 60000);
        int *tokens = batch_of(data, 0), classes[10] = {0};
        for (int i = 0; i < 1000; i++)
            classes[tokens[i * data->seq + 1] - 38]++;
        for (int c = 0; c < 10; c++) /* 100 of each, deviation 9.5 */
            ck_assert_int_lt(abs(classes[c] - 100), 50);
        free(tokens);
        nh_data_close(data);
    }
}
END_TEST

int main(void)
{
    const struct {
        const TTest *test;
        int loops;
    } tests[] = {
        {fashion_tokens_are_caption_and_patch_means, 6},
        {fashion_test_set_is_held_out, 1},
        {fashion_sequences_of_another_length, 8},
        {fashion_digest_knows_pixels_labels_and_levels, 1},
        {fashion_in_another_length, 1},
        {fashion_in_sizes_it_does_not_have, 1},
        {fashion_missing, 1},
        {fashion_header_that_lies, 14},
        {fashion_with_something_behind_the_images, 1},
        {fashion_cut_in_its_gz_stream, 2},
        {fashion_not_packed, 1},
        {fashion_package, 1},
    };
    TCase *all = tcase_create("fashion-mnist");
    tcase_add_checked_fixture(all, begin_files, end_files);
    tcase_set_timeout(all, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_loop_test(all, tests[i].test, 0, tests[i].loops);
    Suite *suite = suite_create("fashion-mnist");
    return run_suite(suite, all);
}
