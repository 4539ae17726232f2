// SPDX-License-Identifier: GPL-3.0-or-later
/** Token data: what all sources share, and each of them but fashion-mnist. */
#include "harness/data/source.h"
#include "tests/unit/data_files.h"
#include "tests/suite.h"

#include <math.h>
#include <sys/stat.h>

/* ---- numbers ---- */

/* Steele, Lea and Flood's generator from state 0; the values stand in many public test suites, e.g. numpy's. */
START_TEST(splitmix_gives_the_published_numbers)
{
    uint64_t state = 0;
    const gsl_rng rng = nh_data_rng(&state);
    ck_assert_uint_eq(gsl_rng_get(&rng), 0xe220a839);
    ck_assert_uint_eq(gsl_rng_get(&rng), 0x6e789e6a);
    ck_assert_uint_eq(gsl_rng_get(&rng), 0x06c45d18);
    state = 0;
    ck_assert_double_eq(gsl_rng_uniform(&rng), (double)(0xe220a8397b1dcdaf >> 11) * 0x1p-53);
}
END_TEST

START_TEST(order_is_a_permutation_in_each_epoch)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 64, 65, 1000};
    const uint64_t n = sizes[_i];
    unsigned char seen[1000];
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t item = nh_data_order(7, n, epoch * n + i);
            ck_assert_uint_lt(item, n);
            ck_assert_uint_eq(seen[item]++, 0);
        }
    }
}
END_TEST

START_TEST(order_differs_by_epoch_and_seed)
{
    int by_epoch = 0, by_seed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        by_epoch += nh_data_order(7, 1000, i) == nh_data_order(7, 1000, 1000 + i);
        by_seed += nh_data_order(7, 1000, i) == nh_data_order(8, 1000, i);
    }
    ck_assert_int_lt(by_epoch, 10); /* fixed points: Poisson with mean 1 */
    ck_assert_int_lt(by_seed, 10);
}
END_TEST

/* All 120 orders of 5 items come equally often: chi-square with 119 degrees of freedom, mean 119, deviation 15.4; limit
 * at 5. */
START_TEST(order_prefers_no_permutation)
{
    enum { N = 5, TRIALS = 120000 };
    static int count[3125];
    memset(count, 0, sizeof count);
    for (uint64_t key = 0; key < TRIALS; key++) {
        int code = 0;
        for (uint64_t i = 0; i < N; i++)
            code = N * code + (int)nh_data_order(key, N, i);
        count[code]++;
    }
    double chi = 0;
    int orders = 0;
    for (int code = 0; code < 3125; code++)
        if (count[code]) {
            orders++;
            chi += pow(count[code] - TRIALS / 120.0, 2) / (TRIALS / 120.0);
        }
    ck_assert_int_eq(orders, 120);
    ck_assert_double_lt(chi, 119 + 5 * 15.4);
}
END_TEST

/* ---- the name ---- */

START_TEST(unknown_source_lists_all)
{
    must_refuse(NH_USAGE, "fashion_mnist", (struct nh_data_request){0},
                WORDS("'fashion_mnist'", "fashion-mnist", "text:FILE", "tokens:FILE", "zipf", "uniform"));
    must_refuse(NH_USAGE, "", (struct nh_data_request){0}, WORDS("text:FILE"));
    must_refuse(NH_USAGE, "tex:a", (struct nh_data_request){0}, WORDS("text:FILE"));
}
END_TEST

START_TEST(file_source_without_a_file)
{
    must_refuse(NH_USAGE, "text", (struct nh_data_request){0}, WORDS("text:FILE"));
    must_refuse(NH_USAGE, "tokens:", (struct nh_data_request){0}, WORDS("tokens:FILE"));
}
END_TEST

START_TEST(argument_where_none_is_taken)
{
    must_refuse(NH_USAGE, "zipf:2", (struct nh_data_request){0}, WORDS("--data zipf"));
    must_refuse(NH_USAGE, "fashion-mnist:", (struct nh_data_request){0}, WORDS("fashion-mnist"));
}
END_TEST

START_TEST(held_out_part_where_there_is_none)
{
    put_text("1 2\n");
    must_refuse(NH_USAGE, with_file("tokens"), (struct nh_data_request){.held_out = true},
                WORDS("tokens", "validation"));
}
END_TEST

START_TEST(vocabulary_beyond_the_largest_id)
{
    must_refuse(NH_USAGE, "uniform", (struct nh_data_request){.vocab = NH_DATA_MAX_ID + 2}, WORDS("--vocab 16777218"));
}
END_TEST

START_TEST(registry_is_complete)
{
    int n = 0;
    for (; nh_data_sources[n]; n++) {
        ck_assert_ptr_nonnull(nh_data_sources[n]->name);
        ck_assert_ptr_nonnull(nh_data_sources[n]->what);
        ck_assert(nh_data_sources[n]->open != NULL);
        for (int i = 0; i < n; i++)
            ck_assert_str_ne(nh_data_sources[i]->name, nh_data_sources[n]->name);
    }
    ck_assert_int_ge(n, 5);
    ck_assert_str_eq(nh_data_sources[0]->name, "fashion-mnist");
}
END_TEST

/* ---- what all sources share ---- */

static const char *any_source(int i)
{
    static const char *const all[] = {"fashion-mnist", "text", "tokens", "zipf", "uniform"};
    if (i != 1 && i != 2)
        return all[i];
    char text[4096] = "";
    for (int line = 0; line < 100; line++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d %d %d\n", line, line + 1, line + 2);
    put_text(text);
    return with_file(all[i]);
}

static struct nh_data_request small(int source, uint64_t seed)
{
    return (struct nh_data_request){.seq = source == 0 ? 51 : 3, .batch = 8, .seed = seed};
}

START_TEST(batch_is_a_function_of_seed_and_index)
{
    put_fashion(IMAGES, LABELS, 100);
    const char *source = any_source(_i);
    struct nh_data *a = must_open(source, small(_i, 1)), *b = must_open(source, small(_i, 1)),
                   *c = must_open(source, small(_i, 2));
    ck_assert_int_eq(a->batch, 8);
    ck_assert_int_eq(a->seq, _i == 0 ? 51 : 3);
    ck_assert(same_batch(a, 5, b, 5)); /* not read in order */
    ck_assert(same_batch(a, 0, b, 0));
    ck_assert(same_batch(a, 0, b, 0));
    ck_assert(!same_batch(a, 0, b, 1));
    ck_assert(!same_batch(a, 0, c, 0));
    ck_assert(same_batch(a, UINT64_MAX, b, UINT64_MAX));
    ck_assert_uint_eq(a->digest, b->digest);
    ck_assert_uint_ne(a->digest, c->digest);
    ck_assert_uint_gt(strlen(a->what), 0);
    nh_data_close(a);
    nh_data_close(b);
    nh_data_close(c);
}
END_TEST

START_TEST(batches_cut_the_same_row_of_sequences)
{
    put_fashion(IMAGES, LABELS, 100);
    const char *source = any_source(_i);
    struct nh_data_request one = small(_i, 3), six = one;
    one.batch = 1;
    six.batch = 6;
    struct nh_data *a = must_open(source, one), *b = must_open(source, six);
    int *six_rows = batch_of(b, 20);
    for (uint64_t i = 0; i < 6; i++) {
        int *row = batch_of(a, 120 + i);
        ck_assert_mem_eq(row, six_rows + i * (uint64_t)a->seq, (size_t)a->seq * sizeof *row);
        free(row);
    }
    free(six_rows);
    ck_assert_uint_ne(a->digest, b->digest);
    nh_data_close(a);
    nh_data_close(b);
}
END_TEST

START_TEST(close_takes_null)
{
    nh_data_close(NULL);
}
END_TEST

/* ---- text ---- */

START_TEST(text_windows_reach_both_edges_and_no_further)
{
    put_text("abcdefgh");
    struct nh_data *data = must_open(with_file("text"), (struct nh_data_request){.seq = 6, .batch = 50});
    ck_assert_int_eq(data->vocab, 256);
    ck_assert_uint_eq(data->sequences, 0);
    int *tokens = batch_of(data, 0), starts[3] = {0};
    for (int i = 0; i < 50; i++) {
        const int start = tokens[6 * i] - 'a';
        ck_assert_int_le(start, 2);
        starts[start]++;
        for (int t = 0; t < 6; t++)
            ck_assert_int_eq(tokens[6 * i + t], 'a' + start + t);
    }
    ck_assert(starts[0] && starts[1] && starts[2]);
    free(tokens);
    nh_data_close(data);
}
END_TEST

START_TEST(text_of_just_one_window)
{
    put(FILE_, "\0\xff", 2);
    struct nh_data *data = must_open(with_file("text"), (struct nh_data_request){.seq = 2});
    int *tokens = batch_of(data, 9);
    ck_assert_int_eq(data->batch, NH_DATA_BATCH);
    ck_assert_int_eq(tokens[6], 0);
    ck_assert_int_eq(tokens[7], 255);
    free(tokens);
    nh_data_close(data);
}
END_TEST

START_TEST(text_with_sequences_of_one)
{
    put_text("x");
    struct nh_data *data = must_open(with_file("text"), (struct nh_data_request){.seq = 1, .batch = 1});
    int *tokens = batch_of(data, 0);
    ck_assert_int_eq(tokens[0], 'x');
    free(tokens);
    nh_data_close(data);
}
END_TEST

START_TEST(text_shorter_than_a_sequence)
{
    put_text("0123456789");
    must_refuse(NH_FAILED, with_file("text"), (struct nh_data_request){.seq = 11},
                WORDS(path(FILE_), "10 bytes", "--seq 10"));
    must_refuse(NH_FAILED, with_file("text"), (struct nh_data_request){0}, WORDS("64", "--seq 10"));
}
END_TEST

START_TEST(text_beyond_the_vocabulary)
{
    put_text("ab\x80z");
    must_refuse(NH_FAILED, with_file("text"), (struct nh_data_request){.seq = 2, .vocab = 128},
                WORDS(path(FILE_), "byte 128", "offset 2", "vocabulary of 128", "--vocab 256"));
    put_text("ab\x7fz");
    struct nh_data *data = must_open(with_file("text"), (struct nh_data_request){.seq = 2, .vocab = 128});
    ck_assert_int_eq(data->vocab, 128);
    nh_data_close(data);
}
END_TEST

START_TEST(file_longer_than_the_first_buffer)
{
    enum { N = 200001 };
    static unsigned char bytes[N];
    for (size_t i = 0; i < N; i++)
        bytes[i] = (unsigned char)nh_data_hash(1, i);
    put(FILE_, bytes, N);
    struct nh_data *data = must_open(with_file("text"), (struct nh_data_request){.seq = N, .batch = 1});
    int *tokens = batch_of(data, 0);
    for (size_t i = 0; i < N; i++)
        ck_assert_int_eq(tokens[i], bytes[i]);
    free(tokens);
    nh_data_close(data);
}
END_TEST

START_TEST(file_that_is_missing_or_empty_or_a_folder)
{
    const char *source = _i ? "tokens" : "text";
    must_refuse(NH_FAILED, with_file(source), (struct nh_data_request){0}, WORDS(path(FILE_), "No such file"));
    put_text("");
    must_refuse(NH_FAILED, with_file(source), (struct nh_data_request){0}, WORDS(path(FILE_), "empty"));
    char text[600];
    snprintf(text, sizeof text, "%s:%s", source, folder);
    must_refuse(NH_FAILED, text, (struct nh_data_request){0}, WORDS(folder, "is a folder"));
}
END_TEST

START_TEST(file_without_permission)
{
    put_text("1 2");
    ck_assert_int_eq(chmod(path(FILE_), 0), 0);
    if (geteuid() != 0) /* root reads all */
        must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){0}, WORDS(path(FILE_), "denied"));
}
END_TEST

/* ---- tokens ---- */

static void must_be(const struct nh_data *data, uint64_t index, const int *expected)
{
    int *tokens = batch_of(data, index);
    for (int i = 0; i < data->batch * data->seq; i++)
        ck_assert_msg(tokens[i] == expected[i], "token %d is %d, not %d", i, tokens[i], expected[i]);
    free(tokens);
}

START_TEST(tokens_are_one_batch_in_order)
{
    static const char *const texts[] = {"3 1 4\n1 5 9\n",     "3 1 4\r\n1 5 9\r\n",     "3 1 4\n1 5 9",
                                        "3 1 4\r\n1 5 9\r",   " 3\t1  4 \n001 5 9\t\n", "3 1 4\n1 5 9\n\n\n",
                                        "3 1 4\n1 5 9\n \r\n"};
    put_text(texts[_i]);
    struct nh_data *data = must_open(with_file("tokens"), (struct nh_data_request){.seed = 5});
    ck_assert_int_eq(data->seq, 3);
    ck_assert_int_eq(data->batch, 2);
    ck_assert_int_eq(data->vocab, 10);
    ck_assert_uint_eq(data->sequences, 2);
    must_be(data, 0, (int[]){3, 1, 4, 1, 5, 9});
    must_be(data, 1, (int[]){3, 1, 4, 1, 5, 9});
    put_text(texts[0]);
    struct nh_data *plain = must_open(with_file("tokens"), (struct nh_data_request){.seed = 5});
    ck_assert_uint_eq(data->digest, plain->digest);
    nh_data_close(data);
    nh_data_close(plain);
}
END_TEST

/* The same sizes asked for by hand mean another order, and the digest says so. */
START_TEST(tokens_are_permuted_only_if_cut)
{
    put_text("0\n1\n2\n3\n4\n5\n6\n7\n");
    struct nh_data *whole = must_open(with_file("tokens"), (struct nh_data_request){0});
    struct nh_data *cut = must_open(with_file("tokens"), (struct nh_data_request){.seq = 1, .batch = 8});
    must_be(whole, 0, (int[]){0, 1, 2, 3, 4, 5, 6, 7});
    ck_assert(!same_batch(whole, 0, cut, 0));
    ck_assert_uint_ne(whole->digest, cut->digest);
    nh_data_close(whole);
    nh_data_close(cut);
}
END_TEST

/* Windows of 3 ids: the last of a line ends with it, so that every id is in one, and none reaches into another line. */
START_TEST(tokens_cut_and_permuted)
{
    static const int windows[6][3] = {{0, 1, 2}, {3, 4, 5}, {5, 6, 7}, {8, 9, 10}, {11, 12, 13}, {12, 13, 14}};
    put_text("0 1 2 3 4 5 6 7\n8 9 10\n11 12 13 14\n");
    struct nh_data *data = must_open(with_file("tokens"), (struct nh_data_request){.seq = 3, .batch = 6, .seed = 1});
    ck_assert_uint_eq(data->sequences, 6);
    ck_assert_ptr_nonnull(strstr(data->what, "6 windows of 3 ids, which hold all 15 of 3 lines"));
    int order[2][6];
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        int *tokens = batch_of(data, epoch);
        bool seen[6] = {false};
        for (int i = 0; i < 6; i++) {
            int w = 0;
            while (w < 6 && memcmp(windows[w], tokens + 3 * i, sizeof windows[w]) != 0)
                w++;
            ck_assert_int_lt(w, 6);
            ck_assert(!seen[w]);
            seen[w] = true, order[epoch][i] = w;
        }
        free(tokens);
    }
    ck_assert_mem_ne(order[0], order[1], sizeof order[0]);
    nh_data_close(data);
}
END_TEST

/* One long line: 156 windows side by side, and one that ends with it. */
START_TEST(tokens_in_one_long_line)
{
    static char text[30000];
    static bool seen[5000];
    for (int i = 0, n = 0; i < 5000; i++)
        n += sprintf(text + n, "%d ", i);
    put_text(text);
    struct nh_data *data = must_open(with_file("tokens"), (struct nh_data_request){.seq = 32, .batch = 4});
    ck_assert_uint_eq(data->sequences, 157);
    for (uint64_t i = 0; i < 40; i++) { /* 160 sequences */
        int *tokens = batch_of(data, i), *again = batch_of(data, i);
        ck_assert_mem_eq(tokens, again, 128 * sizeof *tokens);
        for (int t = 0; t < 128; t++)
            ck_assert_int_eq(tokens[t] - tokens[t / 32 * 32], t % 32);
        for (int t = 0; t < 128; t++)
            seen[tokens[t]] = true;
        free(tokens), free(again);
    }
    for (int i = 0; i < 5000; i++)
        ck_assert(seen[i]);
    nh_data_close(data);
}
END_TEST

START_TEST(tokens_with_only_one_of_seq_and_batch)
{
    put_text("0 0\n1 1\n2 2\n");
    struct nh_data *data = must_open(with_file("tokens"), (struct nh_data_request){.batch = 7});
    ck_assert_int_eq(data->seq, 2);
    ck_assert_int_eq(data->batch, 7);
    free(batch_of(data, 0)); /* more rows than lines: epochs follow each other within the batch */
    nh_data_close(data);
    data = must_open(with_file("tokens"), (struct nh_data_request){.seq = 1});
    ck_assert_int_eq(data->seq, 1);
    ck_assert_int_eq(data->batch, NH_DATA_BATCH);
    free(batch_of(data, 0));
    nh_data_close(data);
}
END_TEST

START_TEST(tokens_vocabulary_given)
{
    put_text("0 16777216\n");
    struct nh_data *data = must_open(with_file("tokens"), (struct nh_data_request){0});
    ck_assert_int_eq(data->vocab, NH_DATA_MAX_ID + 1);
    nh_data_close(data);
    put_text("0 7\n");
    data = must_open(with_file("tokens"), (struct nh_data_request){.vocab = 8});
    ck_assert_int_eq(data->vocab, 8);
    nh_data_close(data);
    data = must_open(with_file("tokens"), (struct nh_data_request){.vocab = 100});
    ck_assert_int_eq(data->vocab, 100);
    nh_data_close(data);
}
END_TEST

START_TEST(tokens_outside_the_vocabulary)
{
    put_text("0 1 2 3\n0 1 2 8\n");
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){.vocab = 8},
                WORDS(path(FILE_), "line 2", "position 3", "id 8", "vocabulary of 8", "--vocab 9"));
}
END_TEST

START_TEST(tokens_that_are_no_ids)
{
    static const struct {
        const char *text, *where, *what;
    } cases[] = {
        {"0 1\n2 -1\n", "line 2, position 1", "'-1'"},
        {"0 1 x2\n", "line 1, position 2", "'x2'"},
        {"1.5\n", "line 1, position 0", "'1.5'"},
        {"1,2,3\n", "line 1, position 0", "'1,2,3'"},
        {"1e3\n", "line 1, position 0", "'1e3'"},
        {"+1\n", "line 1, position 0", "'+1'"},
        {"0x10\n", "line 1, position 0", "'0x10'"},
        {"1 16777217\n", "line 1, position 1", "16777216"},
        {"99999999999999999999999999999999\n", "line 1, position 0", "99999999"},
        {"4294967297\n", "line 1, position 0", "16777216"},
        {"\xef\xbb\xbf"
         "1\n",
         "line 1, position 0", "'???1'"},
    };
    put_text(cases[_i].text);
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){0},
                WORDS(path(FILE_), cases[_i].where, cases[_i].what));
}
END_TEST

START_TEST(tokens_with_blank_lines_among_them)
{
    put_text("1 2\n\n3 4\n");
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){0}, WORDS(path(FILE_), "line 2", "blank"));
    put_text("\n1 2\n");
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){0}, WORDS(path(FILE_), "line 1", "blank"));
    put_text(" \n\r\n\t\n");
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){0}, WORDS(path(FILE_), "no token ids"));
}
END_TEST

START_TEST(tokens_in_lines_of_different_length)
{
    put_text("1 2 3\n1 2 3\n1 2\n");
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){0},
                WORDS(path(FILE_), "line 3", "2 ids", "--seq 2"));
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){.batch = 1},
                WORDS(path(FILE_), "line 3", "--seq 2"));
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){.seq = 3},
                WORDS(path(FILE_), "line 3", "2 ids", "--seq 2"));
    nh_data_close(must_open(with_file("tokens"), (struct nh_data_request){.seq = 2}));
}
END_TEST

START_TEST(tokens_with_a_lone_carriage_return)
{
    put_text("1 2\r3 4\r");
    must_refuse(NH_FAILED, with_file("tokens"), (struct nh_data_request){0}, WORDS(path(FILE_), "0x0d", "offset 3"));
}
END_TEST

START_TEST(tokens_in_a_binary_file)
{
    static const char *const binary[] = {"u16_vocab8_ok.bin", "u16_vocab8_id8_oob.bin", "odd_length.bin"};
    const char *root = getenv("NH_TEST_DATA");
    char text[600];
    snprintf(text, sizeof text, "tokens:%s/tok/%s", root ? root : "tests/data", binary[_i]);
    must_refuse(NH_FAILED, text, (struct nh_data_request){.vocab = 8}, WORDS(binary[_i], "no text file", "decimal"));
}
END_TEST

START_TEST(tokens_digest_knows_lines_and_ids)
{
    static const char *const texts[] = {"1 2\n3 4\n", "1 2 3 4\n", "1\n2\n3\n4\n", "1 2\n4 3\n", "3 4\n1 2\n"};
    uint64_t digest[5];
    for (int i = 0; i < 5; i++) {
        put_text(texts[i]);
        struct nh_data *data = must_open(with_file("tokens"), (struct nh_data_request){0});
        digest[i] = data->digest;
        nh_data_close(data);
        for (int j = 0; j < i; j++)
            ck_assert_uint_ne(digest[i], digest[j]);
    }
}
END_TEST

/* ---- synthetic ---- */

/* Frequencies of the first ids within 5 binomial deviations. */
static void must_have_frequencies(const char *source, int vocab, const double *p, int n_p)
{
    struct nh_data *data = must_open(source, (struct nh_data_request){.seq = 1000, .batch = 100, .vocab = vocab});
    ck_assert_int_eq(data->vocab, vocab ? vocab : 512);
    const double n = 1000 * 100;
    int *tokens = batch_of(data, 3);
    for (int id = 0; id < n_p; id++) {
        int count = 0;
        for (int i = 0; i < 1000 * 100; i++)
            count += tokens[i] == id;
        ck_assert_double_le(fabs(count - n * p[id]), 5 * sqrt(n * p[id] * (1 - p[id])));
    }
    free(tokens);
    nh_data_close(data);
}

START_TEST(zipf_has_its_frequencies)
{
    double harmonic = 0, p[8];
    for (int r = 1; r <= 512; r++)
        harmonic += 1.0 / r;
    for (int r = 0; r < 8; r++)
        p[r] = 1 / (harmonic * (r + 1));
    must_have_frequencies("zipf", 0, p, 8);
    must_have_frequencies("zipf", 2, (double[]){2.0 / 3, 1.0 / 3}, 2);
}
END_TEST

START_TEST(uniform_has_its_frequencies)
{
    must_have_frequencies("uniform", 4, (double[]){.25, .25, .25, .25}, 4);
    must_have_frequencies("uniform", 0, (double[]){1.0 / 512, 1.0 / 512}, 2);
}
END_TEST

START_TEST(synthetic_defaults_and_smallest_sizes)
{
    const char *source = _i ? "zipf" : "uniform";
    struct nh_data *data = must_open(source, (struct nh_data_request){0});
    ck_assert_int_eq(data->seq, 64);
    ck_assert_int_eq(data->batch, 4);
    ck_assert_uint_eq(data->sequences, 0);
    nh_data_close(data);
    data = must_open(source, (struct nh_data_request){.seq = 1, .batch = 1, .vocab = 1});
    must_be(data, 0, (int[]){0});
    nh_data_close(data);
}
END_TEST

START_TEST(synthetic_held_out_part_is_another)
{
    const char *source = _i ? "zipf" : "uniform";
    struct nh_data *data = must_open(source, (struct nh_data_request){0});
    struct nh_data *other = must_open(source, (struct nh_data_request){.held_out = true});
    ck_assert(!same_batch(data, 0, other, 0));
    ck_assert_uint_ne(data->digest, other->digest);
    nh_data_close(data);
    nh_data_close(other);
}
END_TEST

int main(void)
{
    const struct {
        const TTest *test;
        int loops;
    } tests[] = {
        {splitmix_gives_the_published_numbers, 1},
        {order_is_a_permutation_in_each_epoch, 10},
        {order_differs_by_epoch_and_seed, 1},
        {order_prefers_no_permutation, 1},
        {unknown_source_lists_all, 1},
        {file_source_without_a_file, 1},
        {argument_where_none_is_taken, 1},
        {held_out_part_where_there_is_none, 1},
        {vocabulary_beyond_the_largest_id, 1},
        {registry_is_complete, 1},
        {batch_is_a_function_of_seed_and_index, 5},
        {batches_cut_the_same_row_of_sequences, 5},
        {close_takes_null, 1},
        {text_windows_reach_both_edges_and_no_further, 1},
        {text_of_just_one_window, 1},
        {text_with_sequences_of_one, 1},
        {text_shorter_than_a_sequence, 1},
        {text_beyond_the_vocabulary, 1},
        {file_longer_than_the_first_buffer, 1},
        {file_that_is_missing_or_empty_or_a_folder, 2},
        {file_without_permission, 1},
        {tokens_are_one_batch_in_order, 7},
        {tokens_are_permuted_only_if_cut, 1},
        {tokens_cut_and_permuted, 1},
        {tokens_in_one_long_line, 1},
        {tokens_with_only_one_of_seq_and_batch, 1},
        {tokens_vocabulary_given, 1},
        {tokens_outside_the_vocabulary, 1},
        {tokens_that_are_no_ids, 11},
        {tokens_with_blank_lines_among_them, 1},
        {tokens_in_lines_of_different_length, 1},
        {tokens_with_a_lone_carriage_return, 1},
        {tokens_in_a_binary_file, 3},
        {tokens_digest_knows_lines_and_ids, 1},
        {zipf_has_its_frequencies, 1},
        {uniform_has_its_frequencies, 1},
        {synthetic_defaults_and_smallest_sizes, 2},
        {synthetic_held_out_part_is_another, 2},
    };
    TCase *all = tcase_create("data");
    tcase_add_checked_fixture(all, begin_files, end_files);
    tcase_set_timeout(all, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_loop_test(all, tests[i].test, 0, tests[i].loops);
    Suite *suite = suite_create("data");
    return run_suite(suite, all);
}
