// SPDX-License-Identifier: GPL-3.0-or-later
/** The CSV reader: what it takes, and what it refuses with which sentence. */
#include "results/reader.h"
#include "tests/unit/result_files.h"

#include <math.h>
#include <stdint.h>

static FILE *stream;

/* A reader of n bytes in memory, or the status of the refusal. */
static int open_bytes(struct nh_reader **r, const char *bytes, size_t n)
{
    stream = fmemopen((void *)(uintptr_t)bytes, n, "r");
    ck_assert_ptr_nonnull(stream);
    return nh_reader_open_stream(r, stream, "mem.csv");
}

static struct nh_reader *must_open(const char *text)
{
    struct nh_reader *r;
    const int status = open_bytes(&r, text, strlen(text));
    ck_assert_msg(status == NH_OK, "%s", nh_error());
    return r;
}

static void close_stream(struct nh_reader *r)
{
    nh_reader_close(r);
    fclose(stream);
}

static struct nh_reader *open_data(const char *name)
{
    char path[4096];
    const char *root = getenv("NH_TEST_DATA");
    ck_assert_msg(root != NULL, "set NH_TEST_DATA to the folder tests/data");
    snprintf(path, sizeof path, "%s/csv/%s", root, name);
    struct nh_reader *r;
    ck_assert_msg(nh_reader_open(&r, path) == NH_OK, "%s", nh_error());
    return r;
}

/* Reads to the end: the number of rows, or the status of the refusal. */
static int rows(struct nh_reader *r)
{
    int n = 0, status;
    while ((status = nh_reader_next(r)) == 1)
        n++;
    return status < 0 ? status : n;
}

/* The bytes are refused, at once or in some row, and the sentence says so. */
static void refused(const char *bytes, size_t n, const char *words)
{
    struct nh_reader *r;
    int status = open_bytes(&r, bytes, n);
    if (status == NH_OK) {
        status = rows(r);
        ck_assert_int_eq(nh_reader_next(r), status); /* for good */
    } else {
        ck_assert_ptr_null(r);
    }
    close_stream(r);
    ck_assert_int_eq(status, NH_FAILED);
    ck_assert_msg(strstr(nh_error(), words) != NULL, "'%s' is missing in: %s", words, nh_error());
    ck_assert_msg(!strpbrk(nh_error(), "\n\r"), "%s", nh_error());
}

static void text_refused(const char *text, const char *words)
{
    refused(text, strlen(text), words);
}

static void row_is(struct nh_reader *r, size_t line, const char *const *cells)
{
    ck_assert_msg(nh_reader_next(r) == 1, "%s", nh_error());
    ck_assert_uint_eq(nh_reader_line(r), line);
    for (size_t i = 0; i < nh_reader_columns(r); i++)
        ck_assert_str_eq(nh_reader_text(r, i), cells[i]);
}

#define ROW(r, line, ...) row_is(r, line, (const char *const[]){__VA_ARGS__})

START_TEST(all_line_ends_give_the_same_rows)
{
    static const char *const names[] = {"ok_lf.csv", "ok_crlf.csv", "no_final_newline.csv"};
    struct nh_reader *r = open_data(names[_i]);
    ck_assert_uint_eq(nh_reader_columns(r), 7);
    ck_assert_str_eq(nh_reader_name(r, 6), "loss");
    ROW(r, 2, "pre", "12", "fp16", "0", "0.984", "0", "2.302");
    ROW(r, 3, "pre", "12", "fp16", "1", "1.272", "0", "2.1");
    ROW(r, 4, "pre", "12", "fp16", "2", "inf", "3", "nan");
    double x;
    ck_assert_int_eq(nh_reader_real(r, 4, &x), 1);
    ck_assert(isinf(x) && x > 0);
    ck_assert_int_eq(nh_reader_real(r, 6, &x), 1);
    ck_assert(isnan(x));
    ROW(r, 5, "sandwich", "12", "fp16", "0", "0.984", "0", "2.302");
    ROW(r, 6, "sandwich", "12", "fp16", "1", "1.721", "0", "1.9");
    ck_assert_int_eq(nh_reader_next(r), 0);
    ck_assert_int_eq(nh_reader_next(r), 0);
    nh_reader_close(r);
}
END_TEST

START_TEST(unterminated_last_row_is_kept)
{
    struct nh_reader *r = must_open("a,b\n1,2\n3,4");
    ck_assert_int_eq(rows(r), 2);
    close_stream(r);
    r = must_open("a,b\n1,2\n3,\"4\"");
    ROW(r, 2, "1", "2");
    ROW(r, 3, "3", "4");
    ck_assert_int_eq(nh_reader_next(r), 0);
    close_stream(r);
}
END_TEST

START_TEST(empty_last_field_is_missing)
{
    struct nh_reader *r = open_data("empty_last_field.csv");
    ROW(r, 2, "pre", "12", "fp16", "0", "0.984", "0", "");
    double x = 0;
    ck_assert_int_eq(nh_reader_real(r, 6, &x), 0);
    ck_assert(isnan(x));
    ck_assert_int_eq(nh_reader_real(r, 4, &x), 1);
    ck_assert_double_eq(x, 0.984);
    ck_assert_int_eq(rows(r), 1);
    nh_reader_close(r);
}
END_TEST

START_TEST(open_quote_is_refused_with_its_line)
{
    struct nh_reader *r = open_data("open_quote.csv");
    ck_assert_int_eq(rows(r), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "line 3 ") != NULL, "%s", nh_error());
    nh_reader_close(r);

    text_refused("a,b\n1,\"2\n", "line 2 ");
    text_refused("a,b\n1,\"2", "line 2 ");
    text_refused("a,\"b\n1,2\n", "line 1 ");
    text_refused("a,b\n\"1\n2\",\"3\n4\n", "line 3 ");              /* the second quote, not the first */
    text_refused("a,b\n\"1,2\n3,4\n5,\"6\"\n", "opens in line 2 "); /* closed by a quote that opens another field */
}
END_TEST

START_TEST(open_quote_does_not_eat_the_memory)
{
    const size_t n = 8 << 20;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', n);
    memcpy(text, "a\n1\n\"2", 6);
    for (size_t i = 99; i < n; i += 100)
        text[i] = '\n';
    struct nh_reader *r;
    ck_assert_int_eq(open_bytes(&r, text, n), NH_OK);
    ck_assert_int_eq(rows(r), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "line 3 ") != NULL, "%s", nh_error());
    ck_assert_int_lt(ftell(stream), 4 << 20); /* refused long before the end */
    close_stream(r);
    free(text);
}
END_TEST

START_TEST(stray_quotes_are_refused)
{
    text_refused("a,b\n1,2\n3\"3,4\n", "line 3");
    text_refused("a,b\n1,2\n\"3\"3,4\n", "line 3");
    text_refused("a,b\n1, \"2\"\n", "line 2");
}
END_TEST

START_TEST(repeated_header_is_refused_with_its_line)
{
    struct nh_reader *r = open_data("dup_header.csv");
    ck_assert_int_eq(rows(r), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "line 3 repeats the header") != NULL, "%s", nh_error());
    nh_reader_close(r);
    text_refused("a,b\n1,2\n\"a\",\"b\"\n", "line 3 repeats");
    r = must_open("a,b\na,1\n");
    ROW(r, 2, "a", "1");
    close_stream(r);
}
END_TEST

START_TEST(a_name_twice_in_the_header_is_refused)
{
    text_refused("a,rms,b,rms\n", "'rms' twice");
    text_refused("a,,\n", "'' twice");
}
END_TEST

START_TEST(wrong_field_count_is_refused_with_line_and_counts)
{
    text_refused("a,b,c\n1,2,3\n\n1,2\n", "line 4 has 2 fields, the header has 3");
    text_refused("a,b,c\n1,2,3,\n", "line 2 has 4 fields, the header has 3");
    text_refused("a,b,c\n\"1\n1\n1\",2\n", "line 2 has 2 fields");
    struct nh_reader *r = open_data("comma_decimal_bad.csv");
    ck_assert_int_eq(rows(r), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "line 2 has 3 fields, the header has 2") != NULL, "%s", nh_error());
    nh_reader_close(r);
}
END_TEST

START_TEST(blank_lines_are_skipped_but_counted)
{
    struct nh_reader *r = must_open("\n\r\na,b\n\n1,2\r\n\r\n\n\"3\",4\n\n");
    ROW(r, 5, "1", "2");
    ROW(r, 8, "3", "4");
    ck_assert_int_eq(nh_reader_next(r), 0);
    close_stream(r);
}
END_TEST

START_TEST(quoted_text_is_read_as_written)
{
    struct nh_reader *r = must_open("a,\"b,\"\"c\"\n\"1,\"\"x\"\"\",\"two\nlines\"\r\n\"\",\" \"\n");
    ck_assert_str_eq(nh_reader_name(r, 1), "b,\"c");
    ROW(r, 2, "1,\"x\"", "two\nlines");
    ROW(r, 4, "", " ");
    ck_assert_int_eq(nh_reader_next(r), 0);
    close_stream(r);
}
END_TEST

START_TEST(blanks_belong_to_the_value)
{
    struct nh_reader *r = must_open("a,b\n x ,\t\n\"q\", y \n 1 ,\t-2.5e1\n");
    ROW(r, 2, " x ", "\t");
    ROW(r, 3, "q", " y ");
    ROW(r, 4, " 1 ", "\t-2.5e1");
    double x;
    ck_assert_int_eq(nh_reader_real(r, 1, &x), 1);
    ck_assert_double_eq(x, -25);
    close_stream(r);
}
END_TEST

START_TEST(byte_order_mark_is_not_part_of_a_name)
{
    static const char *const texts[] = {"\xef\xbb\xbf"
                                        "a,b\n1,2\n",
                                        "\xef\xbb\xbf\"a\",b\n1,2\n"};
    struct nh_reader *r = must_open(texts[_i]);
    ck_assert_str_eq(nh_reader_name(r, 0), "a");
    ROW(r, 2, "1", "2");
    close_stream(r);
}
END_TEST

START_TEST(what_is_no_csv_file_is_refused)
{
    refused("a,b\n1,\0\n", 8, "line 2 holds a NUL byte");
    text_refused("a,b\r1,2\r3,4\r", "carriage return inside line 1");
    text_refused("a,b\n\"1\",2\r3,4\n", "carriage return inside line 2");
    text_refused("a,b\n\"1\",2\r3", "carriage return inside line 2");
    text_refused("\n", "is empty");
    text_refused("\xef\xbb\xbf\n", "is empty");
    const size_t n = 3 << 20;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    memset(text, ',', n);
    refused(text, n, "line 1 is longer than 1 MiB");
    text[5000] = '\n';
    refused(text, n, "has 5001 columns");
    free(text);
}
END_TEST

START_TEST(empty_and_absent_files_are_refused)
{
    struct nh_reader *r;
    ck_assert_int_eq(nh_reader_open(&r, "/dev/null"), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "'/dev/null' is a device") != NULL, "%s", nh_error());
    ck_assert_int_eq(nh_reader_open(&r, "/no/such/file.csv"), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "/no/such/file.csv") != NULL, "%s", nh_error());
    ck_assert_int_eq(nh_reader_open(&r, "/"), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "'/' is a folder") != NULL, "%s", nh_error());
    ck_assert_ptr_null(r);
}
END_TEST

START_TEST(missing_column_is_named_with_those_that_are_there)
{
    struct nh_reader *r = must_open("layer,extra,\"odd\nname\"\n1,2,3\n");
    size_t column = 99;
    ck_assert_int_eq(nh_reader_need(r, "extra", &column), NH_OK);
    ck_assert_uint_eq(column, 1);
    ck_assert_int_eq(nh_reader_find(r, "rms", &column), 0);
    ck_assert_int_eq(nh_reader_need(r, "rms", &column), NH_FAILED);
    ck_assert_str_eq(nh_error(), "mem.csv has no column 'rms'; it has layer, extra, odd?name");
    close_stream(r);

    char many[8000] = "c0";
    for (int i = 1; i < 1000; i++)
        sprintf(many + strlen(many), ",c%d", i);
    r = must_open(many);
    ck_assert_int_eq(nh_reader_need(r, "rms", &column), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "c0, c1, c2") && strstr(nh_error(), "..."), "%s", nh_error());
    close_stream(r);
}
END_TEST

START_TEST(what_is_no_number_is_refused_with_line_and_column)
{
    struct nh_reader *r = must_open("rms,b\n\n\"1,5\",2x\n");
    ck_assert_int_eq(nh_reader_next(r), 1);
    double x;
    ck_assert_int_eq(nh_reader_real(r, 0, &x), NH_FAILED);
    ck_assert_msg(strstr(nh_error(), "'1,5' in line 3, column 'rms'") != NULL, "%s", nh_error());
    ck_assert_int_eq(nh_reader_real(r, 1, &x), NH_FAILED);
    close_stream(r);
}
END_TEST

START_TEST(nan_and_inf_in_a_column_are_values)
{
    static const double expected[] = {1, 2, (double)NAN, 4, (double)INFINITY, 8, (double)NAN, 0, 16};
    struct nh_reader *r = open_data("mixed_gap.csv");
    double x;
    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(nh_reader_next(r), 1);
        ck_assert_int_eq(nh_reader_real(r, 1, &x), 1);
        ck_assert(isnan(expected[i]) ? isnan(x) : x == expected[i]);
    }
    ck_assert_int_eq(nh_reader_next(r), 0);
    nh_reader_close(r);
    static const struct {
        const char *name;
        int rows;
    } files[] = {{"all_nan.csv", 3}, {"scaler_events.csv", 14}, {"sweep_with_diverged.csv", 8}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        r = open_data(files[i].name);
        ck_assert_int_eq(rows(r), files[i].rows);
        nh_reader_close(r);
    }
}
END_TEST

/* Rows lie across the reader's blocks of 1 MiB in every way. */
START_TEST(long_files_keep_their_rows_and_lines)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    fputs("i,text\n", file);
    const int n = 100000;
    for (int i = 0; i < n; i++)
        fprintf(file, i % 3 ? "%d,plain text\n" : "%d,\"a \"\"quoted\"\"\ntext\"\n", i);
    rewind(file);
    struct nh_reader *r;
    ck_assert_int_eq(nh_reader_open_stream(&r, file, "tmp"), NH_OK);
    size_t line = 2;
    for (int i = 0; i < n; i++) {
        double x;
        ck_assert_msg(nh_reader_next(r) == 1, "%s", nh_error());
        ck_assert_int_eq(nh_reader_real(r, 0, &x), 1);
        ck_assert_double_eq(x, i);
        ck_assert_str_eq(nh_reader_text(r, 1), i % 3 ? "plain text" : "a \"quoted\"\ntext");
        ck_assert_uint_eq(nh_reader_line(r), line);
        line += i % 3 ? 1 : 2;
    }
    ck_assert_int_eq(nh_reader_next(r), 0);
    nh_reader_close(r);
    fclose(file);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("reader");
    TCase *t = tcase_create("reader");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, all_line_ends_give_the_same_rows, 0, 3);
    tcase_add_test(t, unterminated_last_row_is_kept);
    tcase_add_test(t, empty_last_field_is_missing);
    tcase_add_test(t, open_quote_is_refused_with_its_line);
    tcase_add_test(t, open_quote_does_not_eat_the_memory);
    tcase_add_test(t, stray_quotes_are_refused);
    tcase_add_test(t, repeated_header_is_refused_with_its_line);
    tcase_add_test(t, a_name_twice_in_the_header_is_refused);
    tcase_add_test(t, wrong_field_count_is_refused_with_line_and_counts);
    tcase_add_test(t, blank_lines_are_skipped_but_counted);
    tcase_add_test(t, quoted_text_is_read_as_written);
    tcase_add_test(t, blanks_belong_to_the_value);
    tcase_add_loop_test(t, byte_order_mark_is_not_part_of_a_name, 0, 2);
    tcase_add_test(t, what_is_no_csv_file_is_refused);
    tcase_add_test(t, empty_and_absent_files_are_refused);
    tcase_add_test(t, missing_column_is_named_with_those_that_are_there);
    tcase_add_test(t, what_is_no_number_is_refused_with_line_and_column);
    tcase_add_test(t, nan_and_inf_in_a_column_are_values);
    tcase_add_test(t, long_files_keep_their_rows_and_lines);
    return run_suite(s, t);
}
