// SPDX-License-Identifier: GPL-3.0-or-later
/** Headroom in bits, and the tables of what overflowed and what would overflow in other formats. */
#include "harness/cli/headroom.h"
#include "harness/cli/run.h"
#include "tests/suite.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct nh_fmt format(const char *name)
{
    struct nh_fmt f;
    ck_assert_int_eq(nh_fmt_parse(&f, name), NH_OK);
    return f;
}

START_TEST(headroom_is_log2_of_maximum_over_largest)
{
    static const struct {
        const char *format;
        struct nh_counts counts;
        double bits;
    } cases[] = {
        {"fp16", {.total = 9, .max_abs = 65504}, 0},
        {"fp16", {.total = 9, .max_abs = 65504 / 1024.0}, 10},
        {"fp8-e4m3", {.total = 9, .max_abs = 7}, 6}, /* 448 / 7 */
        {"fp16", {.total = 9, .max_abs = HUGE_VAL, .overflow = 1}, -HUGE_VAL},
        /* without an inf, what overflowed is stored as NaN, which is no largest value: the rest is far below */
        {"fp8-e4m3", {.total = 9, .max_abs = 7, .overflow = 1}, -HUGE_VAL},
        {"fp8-e4m3", {.total = 9, .max_abs = 0, .overflow = 9}, -HUGE_VAL},
        /* an inf that an input brought has left no format here, but the room is gone as well */
        {"fp16", {.total = 9, .max_abs = HUGE_VAL, .propagated = 1}, -HUGE_VAL},
        {"fp16", {.total = 9, .max_abs = 0}, HUGE_VAL},
        {"fp16", {.total = 9, .max_abs = 0, .nan_made = 4, .propagated = 5}, (double)NAN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct nh_fmt f = format(cases[i].format);
        const double bits = nh_headroom_bits(&f, &cases[i].counts), want = cases[i].bits;
        ck_assert_msg(isnan(want)   ? isnan(bits)
                      : isinf(want) ? bits == want
                                    : fabs(bits - want) < 1e-12,
                      "case %zu: %g, not %g", i, bits, want);
    }
}
END_TEST

/** What is printed of these lines; to be freed. */
static char *printed(const struct nh_site_line *lines, size_t n, bool known)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(nh_headroom_print(file, lines, n), known);
    fclose(file);
    return text;
}

/** The words of the line that begins with a text, blanks in a row being one; "" where there is none. */
static const char *line_of(const char *text, const char *begin)
{
    static char line[256];
    size_t n = 0;
    while (text && strncmp(text, begin, strlen(begin)) != 0)
        text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
    for (; text && *text && *text != '\n' && n + 1 < sizeof line; text++)
        if (*text != ' ' || (n && line[n - 1] != ' '))
            line[n++] = *text;
    line[n] = '\0';
    return line;
}

/** 65504 is the largest half, and what is below 65520 rounds to it: both are safe as they are. */
START_TEST(safe_scale_is_that_of_rounded_values)
{
    static const struct {
        double x;
        const char *scale, *half;
    } cases[] = {
        {65504, "2^0", "nothing would overflow; safe with all values times 2^0"},
        {65505, "2^0", "nothing would overflow; safe with all values times 2^0"},
        {0x1.ffdfffffffffep+15, "2^0", "nothing would overflow; safe with all values times 2^0"},
        {65520, "2^-1", "1 of 1 sites would overflow, the first residual of layer 3; safe with all values times 2^-1"},
        {131039, "2^-1", "1 of 1 sites would overflow, the first residual of layer 3; safe with all values times 2^-1"},
        {131040, "2^-2", "1 of 1 sites would overflow, the first residual of layer 3; safe with all values times 2^-2"},
        {32759, "2^1", "nothing would overflow; safe with all values times 2^1"},
        {1, "2^15", "nothing would overflow; safe with all values times 2^15"},
        {0, "2^0", "nothing would overflow; safe with all values times 2^0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct nh_site_line one = {.layer = 3, .site = "residual", .max_abs = cases[i].x};
        char *text = printed(&one, 1, true);
        const char *row = line_of(text, "residual"), *scale = strrchr(row, ' ');
        ck_assert_msg(scale && strcmp(scale + 1, cases[i].scale) == 0, "%.17g: '%s', not %s", cases[i].x, row, cases[i].scale);
        ck_assert_str_eq(line_of(text, "in fp16") + strlen("in fp16 "), cases[i].half);
        free(text);
    }
}
END_TEST

START_TEST(sites_are_summed_over_layers_and_sorted)
{
    static const struct nh_site_line lines[] = {
        {1, "qkv", 0, 3},    {1, "scores", 2, 100},   {1, "residual", 0, 50},   {2, "qkv", 4, 7},
        {2, "scores", 3, 9}, {2, "residual", 5, 3e5}, {3, "residual", 0, 1000},
    };
    char *text = printed(lines, 7, true);
    /* values, layers, the first of them; scores and residual have five each, and scores come first */
    const char *scores = strstr(text, "scores "), *residual = strstr(text, "residual "), *qkv = strstr(text, "qkv ");
    ck_assert(scores && residual && qkv && scores < residual && residual < qkv);
    ck_assert_str_eq(line_of(text, "scores"), "scores 5 2 1");
    ck_assert_str_eq(line_of(text, "residual"), "residual 5 1 2");
    ck_assert_str_eq(line_of(text, "qkv"), "qkv 4 1 2");
    const char *table = strstr(text, "headroom in fp32");
    ck_assert_ptr_nonnull(table);
    /* log2 of 65504, 3.39e38, 448, 57344 over the largest */
    ck_assert_str_eq(line_of(table, "residual"), "residual 2 3e+05 -2.2 109.8 -9.4 -2.4 2^-3");
    ck_assert_str_eq(line_of(table, "scores"), "scores 1 100 9.4 121.4 2.2 9.2 2^9");
    ck_assert_str_eq(line_of(table, "qkv"), "qkv 2 7 13.2 125.2 6.0 13.0 2^13");
    ck_assert_str_eq(line_of(table, "in fp8-e4m3"),
                     "in fp8-e4m3 2 of 7 sites would overflow, the first residual of layer 2; safe with all values times 2^-10");
    ck_assert_str_eq(line_of(table, "in bf16"), "in bf16 nothing would overflow; safe with all values times 2^109");
    free(text);
}
END_TEST

START_TEST(an_inf_in_fp32_has_no_safe_scale_and_nan_is_told)
{
    const struct nh_site_line lines[] = {{1, "qkv", 0, (double)NAN}, {1, "scores", 0, HUGE_VAL}};
    char *text = printed(lines, 2, true);
    ck_assert_ptr_nonnull(strstr(text, "1 of 2 sites hold nothing but nan"));
    ck_assert_ptr_nonnull(strstr(line_of(text, "scores"), "none"));
    ck_assert_ptr_nonnull(strstr(line_of(text, "in bf16"), "safe with no scale"));
    free(text);
    text = printed(lines, 1, false);
    ck_assert_str_eq(text, "");
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("headroom");
    TCase *t = tcase_create("headroom");
    tcase_add_test(t, headroom_is_log2_of_maximum_over_largest);
    tcase_add_test(t, safe_scale_is_that_of_rounded_values);
    tcase_add_test(t, sites_are_summed_over_layers_and_sorted);
    tcase_add_test(t, an_inf_in_fp32_has_no_safe_scale_and_nan_is_told);
    return run_suite(s, t);
}
