// SPDX-License-Identifier: GPL-3.0-or-later
/** Text from files and users as people are shown it. */
#include "results/text.h"
#include "tests/suite.h"

#include <stdlib.h>
#include <string.h>

START_TEST(utf8_characters_are_told)
{
    static const struct {
        const char *text;
        size_t length;
    } cases[] = {{"", 0},
                 {"a", 1},
                 {" ", 1},
                 {"\x7f", 0},
                 {"\n", 0},
                 {"ö", 2},
                 {"✓", 3},
                 {"𝄞", 4},
                 {"\xc3", 0},
                 {"\xc0\x80", 0},
                 {"\xc2\x85", 0},
                 {"\xe2\x9c", 0},
                 {"\x80", 0},
                 {"\xe0\x80\xaf", 0},
                 {"\xed\xa0\x80", 0},
                 {"\xf0\x80\x80\x80", 0},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xf4\x8f\xbf\xbf", 4},
                 {"\xff", 0},
                 {"\xc3(", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_uint_eq(nh_utf8(cases[i].text), cases[i].length);
}
END_TEST

/* What nh_text_put writes; to be freed. */
static char *put(const char *text, int *characters)
{
    char *shown = NULL;
    size_t size;
    FILE *file = open_memstream(&shown, &size);
    ck_assert_ptr_nonnull(file);
    *characters = nh_text_put(file, text);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_uint_eq(strlen(shown), size);
    return shown;
}

START_TEST(what_acts_on_a_terminal_is_shown_as_its_bytes)
{
    static const struct {
        const char *text, *shown;
        int characters;
    } cases[] = {
        {"", "", 0},
        {"pre-norm, 60 %s", "pre-norm, 60 %s", 15},
        {"a\\x1b", "a\\x1b", 5},
        {"größe ✓ 𝄞 層", "größe ✓ 𝄞 層", 11},
        {"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m", 18},
        {"two\nlines\r\t\a\b", "two\\x0alines\\x0d\\x09\\x07\\x08", 28},
        {"\x7f", "\\x7f", 4},
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b2J", 10}, /* C1: CSI */
        {"\xff\xfe", "\\xff\\xfe", 8},
        {"cut \xe2\x9c", "cut \\xe2\\x9c", 12},
        {"\u2028", "\\xe2\\x80\\xa8", 12},
        {"\u2029", "\\xe2\\x80\\xa9", 12},
        {"gnp.\u202eexe", "gnp.\\xe2\\x80\\xaeexe", 19},
        {"\u2066x\u2069", "\\xe2\\x81\\xa6x\\xe2\\x81\\xa9", 25},
        {"\u200b", "\\xe2\\x80\\x8b", 12},
        {"\u200f", "\\xe2\\x80\\x8f", 12},
        {"\u061c", "\\xd8\\x9c", 8},
        {"\ufeff", "\\xef\\xbb\\xbf", 12},
        {"\U000e0041", "\\xf3\\xa0\\x81\\x81", 16},
        {"\uffff", "\\xef\\xbf\\xbf", 12},
        {"‐–’ﬀ\U000e1000", "‐–’ﬀ\U000e1000", 5}, /* beside the ranges */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int characters;
        char *shown = put(cases[i].text, &characters);
        ck_assert_str_eq(shown, cases[i].shown);
        ck_assert_int_eq(characters, cases[i].characters);
        ck_assert_int_eq(nh_text_put(NULL, cases[i].text), characters);
        free(shown);
    }
}
END_TEST

START_TEST(every_control_of_one_byte_is_shown_as_its_byte)
{
    for (int c = 1; c < 256; c++) {
        if (c >= ' ' && c < 0x7f)
            continue;
        char text[] = {(char)c, '\0'}, wanted[8];
        snprintf(wanted, sizeof wanted, "\\x%02x", (unsigned)c);
        int characters;
        char *shown = put(text, &characters);
        ck_assert_str_eq(shown, wanted);
        free(shown);
    }
}
END_TEST

START_TEST(a_line_is_one_line_of_any_length)
{
    static const size_t lengths[] = {0, 1, 4095, 4096, 16370, 16384, 100000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int control = 0; control < 2; control++) {
            const size_t n = lengths[i], step = control ? 4 : 1;
            char *text = malloc(n + 1), *line = NULL;
            ck_assert_ptr_nonnull(text);
            memset(text, control ? '\n' : 'x', n);
            text[n] = '\0';
            size_t size;
            FILE *file = open_memstream(&line, &size);
            nh_text_line(file, "<%s>%d", text, 7);
            ck_assert_int_eq(fclose(file), 0);
            ck_assert_uint_eq(size, n * step + 4);
            ck_assert_int_eq(line[0], '<');
            ck_assert_str_eq(line + size - 3, ">7\n");
            ck_assert_ptr_eq(strchr(line, '\n'), line + size - 1);
            free(text);
            free(line);
        }
}
END_TEST

int main(void)
{
    TCase *all = tcase_create("text");
    tcase_add_test(all, utf8_characters_are_told);
    tcase_add_test(all, what_acts_on_a_terminal_is_shown_as_its_bytes);
    tcase_add_test(all, every_control_of_one_byte_is_shown_as_its_byte);
    tcase_add_test(all, a_line_is_one_line_of_any_length);
    return run_suite(suite_create("text"), all);
}
