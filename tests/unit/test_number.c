// SPDX-License-Identifier: GPL-3.0-or-later
/** Numbers as text and back, against printf and strtod of the C library. */
#include "results/number.h"
#include "tests/unit/result_files.h"

#include <float.h>
#include <math.h>
#include <stdint.h>

static uint64_t next_random(void)
{
    static uint64_t s = 88172645463325252;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

START_TEST(numbers_have_the_expected_text)
{
    static const struct {
        double x;
        const char *text;
    } cases[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {-65504, "-65504"},
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {0.0001, "0.0001"},
        {0.00001, "1e-05"},
        {1.25e-7, "1.25e-07"},
        {123456.75, "123456.75"},
        {9007199254740991, "9007199254740991"},
        {9007199254740994, "9007199254740994"},
        {1e16, "1e+16"},
        {1e23, "1e+23"},
        {0x1p-24, "5.9604644775390625e-08"},
        {0x1p-44, "5.6843418860808015e-14"},
        {9.5367431640625e-07, "9.5367431640625e-07"},
        {5e-324, "5e-324"},
        {DBL_MIN, "2.2250738585072014e-308"},
        {-DBL_MAX, "-1.7976931348623157e+308"},
        {(double)NAN, "nan"},
        {-(double)NAN, "nan"},
        {(double)INFINITY, "inf"},
        {-(double)INFINITY, "-inf"},
    };
    char text[NH_NUMBER_SIZE];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(nh_number_real(text, cases[i].x), strlen(cases[i].text));
        ck_assert_str_eq(text, cases[i].text);
    }
    nh_number_int(text, INT64_MIN);
    ck_assert_str_eq(text, "-9223372036854775808");
    nh_number_int(text, INT64_MAX);
    ck_assert_str_eq(text, "9223372036854775807");
    nh_number_count(text, UINT64_MAX);
    ck_assert_str_eq(text, "18446744073709551615");
}
END_TEST

static int digits_in(const char *text)
{
    int n = 0, zeros = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text > '0' && *text <= '9') {
            n += zeros + 1;
            zeros = 0;
        } else if (*text == '0') {
            zeros += n > 0; /* those at the end do not count */
        }
    }
    return n;
}

/* Against printf and strtod of the C library: the same bits come back, in no more digits than it needs. */
START_TEST(every_double_reads_back_in_the_fewest_digits)
{
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = next_random();
        if (i % 4 == 0)
            bits &= ~(UINT64_C(0x7ff) << 52); /* subnormal */
        else if (i % 4 == 1)
            bits &= ~((UINT64_C(1) << 52) - 1); /* a power of two: the interval is lopsided */
        double x = from_bits(bits), back = 0;
        if (i % 4 == 2)
            x = (double)(float)ldexp((double)(bits >> 11), (int)(bits % 200) - 150);
        if (isnan(x))
            continue;
        char text[NH_NUMBER_SIZE], printed[40];
        nh_number_real(text, x);
        ck_assert_msg(nh_number_read(&back, text) && memcmp(&back, &x, sizeof x) == 0, "%s for %a", text, x);
        back = strtod(text, NULL);
        ck_assert_msg(memcmp(&back, &x, sizeof x) == 0, "%s for %a", text, x);
        int digits = fabs(x) < DBL_MIN ? 1 : 15; /* what reads back in less than 15 has zeros at the end of 15 */
        do
            snprintf(printed, sizeof printed, "%.*e", digits - 1, x);
        while (strtod(printed, NULL) != x && ++digits);
        ck_assert_msg(digits_in(text) <= digits_in(printed), "%s is longer than %s", text, printed);
    }
}
END_TEST

/* Against strtod: decimals of any length and size, among them ties and what lies next to them. */
START_TEST(decimals_read_as_the_nearest_double)
{
    for (int i = 0; i < 100000; i++) {
        char text[64];
        const uint64_t m = next_random() >> (next_random() % 64), k = next_random();
        const double x = from_bits((k >> 12) | (1013 + k % 20) << 52);
        switch (i % 4) {
        case 0:
            snprintf(text, sizeof text, "%llue%d", (unsigned long long)m, (int)(k % 660) - 340);
            break;
        case 1:
            snprintf(text, sizeof text, "%llu.%llu", (unsigned long long)(k >> 60), (unsigned long long)m);
            break;
        case 2: /* between x and its neighbour */
            snprintf(text, sizeof text, "%.*Lg", 17 + (int)(m % 30),
                     ((long double)x + (long double)nextafter(x, 2e9)) / 2);
            break;
        default:
            snprintf(text, sizeof text, "%.*g", 1 + (int)(m % 40), x);
        }
        const double expected = strtod(text, NULL);
        double got = 0;
        ck_assert_msg(nh_number_read(&got, text) == !isinf(expected), "%s", text);
        ck_assert_msg(isinf(expected) || memcmp(&got, &expected, sizeof got) == 0, "%s: %a, not %a", text, got,
                      expected);
    }
}
END_TEST

START_TEST(what_is_no_number_is_refused)
{
    static const char *const bad[] = {"",     " ",     "1,5", "1.5x", "1.5.2", ".",     "-",
                                      "+-1",  "e5",    "1e",  "1e+",  "0x1",   "nan(", "na",
                                      "infi", "1e400", "--1", "1 2",  "1_0",   "1e5.0", "inf inf"};
    static const char *const good[] = {"1",  "+1",  " 1",    "1\t",  "1.",
                                       "01", "1e0", "10e-1", ".1e1", "1.0000000000000000000000"};
    static const char *const nans[] = {"nan", "-nan", "NaN", "+NAN", "nan()", "NAN(0x1)"}, *const infs[] = {"inf", "Infinity", "+INF"};
    double x;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!nh_number_read(&x, bad[i]), "'%s'", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(nh_number_read(&x, good[i]) && x == 1, "'%s'", good[i]);
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++)
        ck_assert_msg(nh_number_read(&x, nans[i]) && isnan(x), "'%s'", nans[i]);
    for (size_t i = 0; i < sizeof infs / sizeof *infs; i++)
        ck_assert_msg(nh_number_read(&x, infs[i]) && isinf(x) && x > 0, "'%s'", infs[i]);
    ck_assert(nh_number_read(&x, "-inf") && isinf(x) && x < 0);
}
END_TEST

/* The same list is read by the figures' reader in tests/plots/inputs.sh: what each number is, a tab, its text. */
START_TEST(numbers_are_of_the_kind_that_figures_read)
{
    char path[512], line[256];
    snprintf(path, sizeof path, "%s/csv/numbers.tsv", getenv("NH_TEST_DATA"));
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    int n = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *text = strchr(line, '\t');
        ck_assert_ptr_nonnull(text);
        *text++ = '\0';
        double x;
        const char *kind = !nh_number_read(&x, text) ? "text" : isnan(x) ? "nan" : isinf(x) ? x < 0 ? "-inf" : "inf" : "finite";
        ck_assert_msg(strcmp(kind, line) == 0, "'%s' is %s, not %s", text, kind, line);
        n++;
    }
    ck_assert_int_ge(n, 40);
    fclose(file);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("number");
    TCase *t = tcase_create("number");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, numbers_have_the_expected_text);
    tcase_add_test(t, every_double_reads_back_in_the_fewest_digits);
    tcase_add_test(t, decimals_read_as_the_nearest_double);
    tcase_add_test(t, what_is_no_number_is_refused);
    tcase_add_test(t, numbers_are_of_the_kind_that_figures_read);
    return run_suite(s, t);
}
