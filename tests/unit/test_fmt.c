// SPDX-License-Identifier: GPL-3.0-or-later
/** Formats and rounding, against tables from elsewhere and against MPFR. */
#include "tests/unit/fmt_values.h"

#include <mpfr.h>

/* ---- tools ---- */

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static struct nh_fmt format_of(int x, int y)
{
    char name[16];
    snprintf(name, sizeof name, "e%dm%d", x, y);
    return format(name);
}

/* What a stored pattern of a format means, by definition. */
static double decode(unsigned pattern, int x, int y)
{
    const unsigned exponent = pattern >> y & ((1U << x) - 1), mantissa = pattern & ((1U << y) - 1);
    const int bias = (1 << (x - 1)) - 1;
    double a;
    if (exponent == (1U << x) - 1)
        a = mantissa ? (double)NAN : HUGE_VAL;
    else if (exponent == 0)
        a = ldexp(mantissa, 1 - bias - y);
    else
        a = ldexp((double)(mantissa + (1U << y)), (int)exponent - bias - y);
    return pattern >> (x + y) ? -a : a;
}

/* One value through the span kernel, by itself and among numbers that need no rounding. */
static double through_span(const struct nh_fmt *f, double x)
{
    struct nh_span span = nh_span_zero();
    if (nh_fmt_wide(f)) {
        double v[9] = {1, 1, 1, 1, x, -1, 1, 1, 1};
        nh_round_f64(f, v, 9, &span, NULL, NULL);
        nh_round_f64(f, &x, 1, &span, NULL, NULL);
        if (!same(x, v[4]))
            ck_abort_msg("%s: alone %a, among others %a", f->name, x, v[4]);
        return x;
    }
    float v[9] = {1, 1, 1, 1, (float)x, -1, 1, 1, 1}, one = (float)x;
    nh_round_f32(f, v, 9, &span, NULL, NULL);
    nh_round_f32(f, &one, 1, &span, NULL, NULL);
    if (!same((double)one, (double)v[4]))
        ck_abort_msg("%s: alone %a, among others %a", f->name, (double)one, (double)v[4]);
    return (double)one;
}

static void check_rounds_to(const struct nh_fmt *f, double x, double expected)
{
    const double scalar = nh_round(f, x);
    if (!same(scalar, expected))
        ck_abort_msg("%s: %a rounds to %a, expected %a", f->name, x, scalar, expected);
    if (nh_fmt_wide(f) || same(x, (double)(float)x)) {
        const double span = through_span(f, x);
        if (!same(span, expected))
            ck_abort_msg("%s: %a in a span rounds to %a, expected %a", f->name, x, span, expected);
    }
}

/* ---- MPFR, the oracle ---- */

/* From a result in the precision of f without limits of exponent, and MPFR's word on which way it was rounded. */
static double finish_oracle(const struct nh_fmt *f, mpfr_t v, int ternary)
{
    if (!f->has_inf) {
        mpfr_set_emin(-6 - 3 + 1);
        ternary = mpfr_check_range(v, ternary, MPFR_RNDN);
        mpfr_subnormalize(v, ternary, MPFR_RNDN);
        const double r = mpfr_get_d(v, MPFR_RNDN);
        mpfr_set_emin(mpfr_get_emin_min());
        return fabs(r) > 448 ? (double)NAN : r;
    }
    const int bias = (1 << (f->exp_bits - 1)) - 1;
    mpfr_set_emin(1 - bias - f->man_bits + 1); /* MPFR's mantissas are in [1/2, 1) */
    mpfr_set_emax(bias + 1);
    ternary = mpfr_check_range(v, ternary, MPFR_RNDN);
    mpfr_subnormalize(v, ternary, MPFR_RNDN);
    const double r = mpfr_get_d(v, MPFR_RNDN);
    mpfr_set_emin(mpfr_get_emin_min());
    mpfr_set_emax(mpfr_get_emax_max());
    return r;
}

static double oracle_round(const struct nh_fmt *f, double x)
{
    mpfr_t v;
    mpfr_init2(v, f->man_bits + 1);
    const int ternary = mpfr_set_d(v, x, MPFR_RNDN);
    const double r = finish_oracle(f, v, ternary);
    mpfr_clear(v);
    return r;
}

static double oracle_fma(const struct nh_fmt *f, double acc, double a, double b)
{
    mpfr_t v, x, y, z;
    mpfr_init2(v, f->man_bits + 1);
    mpfr_inits2(53, x, y, z, (mpfr_ptr)NULL);
    mpfr_set_d(x, a, MPFR_RNDN);
    mpfr_set_d(y, b, MPFR_RNDN);
    mpfr_set_d(z, acc, MPFR_RNDN);
    const int ternary = mpfr_fma(v, x, y, z, MPFR_RNDN);
    const double r = finish_oracle(f, v, ternary);
    mpfr_clears(v, x, y, z, (mpfr_ptr)NULL);
    return r;
}

/* ---- values where rounding goes wrong ---- */

/* The same for inputs in float. */
static float random_input_f32(const struct nh_fmt *f)
{
    float x = (float)random_input(f);
    const int steps = random_int(-1, 1);
    return steps ? nextafterf(x, steps > 0 ? INFINITY : -INFINITY) : x;
}

/* ---- formats ---- */

/* The table of constants: IEEE 754-2008, OCP 8-bit floating point specification, and eXmY by its formula. */
START_TEST(constants_of_the_formats)
{
    static const struct {
        const char *name;
        double max, overflow, min_normal, min_subnormal, ulp;
    } table[] = {
        {"fp16", 65504, 65520, 0x1p-14, 0x1p-24, 0x1p-10},
        {"e5m10", 65504, 65520, 0x1p-14, 0x1p-24, 0x1p-10},
        {"bf16", 0x1.fep127, 0x1.ffp127, 0x1p-126, 0x1p-133, 0x1p-7},
        {"fp32", 0x1.fffffep127, 0x1.ffffffp127, 0x1p-126, 0x1p-149, 0x1p-23},
        {"fp64", DBL_MAX, HUGE_VAL, DBL_MIN, 0x1p-1074, 0x1p-52},
        {"tf32", 0x1.ffcp127, 0x1.ffep127, 0x1p-126, 0x1p-136, 0x1p-10},
        {"fp8-e5m2", 57344, 61440, 0x1p-14, 0x1p-16, 0x1p-2},
        {"fp8-e4m3", 448, 464, 0x1p-6, 0x1p-9, 0x1p-3},
        {"e4m3", 240, 248, 0x1p-6, 0x1p-9, 0x1p-3},
        {"e4m10", 255.875, 255.9375, 0x1p-6, 0x1p-16, 0x1p-10},
        {"e3m10", 15.9921875, 15.99609375, 0x1p-2, 0x1p-12, 0x1p-10},
        {"e2m1", 3, 3.5, 1, 0.5, 0.5},
        {"e11m1", 0x1.8p1023, 0x1.cp1023, 0x1p-1022, 0x1p-1023, 0.5},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct nh_fmt f = format(table[i].name);
        const bool ocp = strcmp(f.name, "fp8-e4m3") == 0;
        ck_assert_str_eq(f.name, table[i].name);
        ck_assert(f.max == table[i].max);
        ck_assert(f.overflow == (ocp ? nextafter(464, 465) : table[i].overflow));
        ck_assert(f.min_normal == table[i].min_normal && f.min_normal == ldexp(1, f.emin));
        ck_assert(f.min_subnormal == table[i].min_subnormal);
        ck_assert(f.has_inf != ocp);

        const double last = nextafter(f.overflow, 0), ulp = table[i].ulp;
        for (int sign = -1; sign <= 1; sign += 2) {
            check_rounds_to(&f, sign * f.max, sign * f.max);
            check_rounds_to(&f, sign * last, sign * f.max);
            check_rounds_to(&f, sign * f.overflow, ocp ? (double)NAN : sign * HUGE_VAL);
            check_rounds_to(&f, sign * HUGE_VAL, ocp ? (double)NAN : sign * HUGE_VAL);
            check_rounds_to(&f, sign * f.min_subnormal, sign * f.min_subnormal);
            check_rounds_to(&f, sign * f.min_subnormal / 2, sign * 0.0);
            check_rounds_to(&f, sign * (1 + ulp), sign * (1 + ulp));
            check_rounds_to(&f, sign * (1 + ulp / 2), sign * 1);
            if (f.man_bits < 52) /* else the sum is not a double */
                check_rounds_to(&f, sign * (1 + 1.5 * ulp), sign * (1 + 2 * ulp));
            check_rounds_to(&f, sign * 0.0, sign * 0.0);
        }
        check_rounds_to(&f, (double)NAN, (double)NAN);
    }
}
END_TEST

START_TEST(headroom_of_every_format_is_the_distance_of_logarithms)
{
    static const struct {
        const char *name;
        double x, bits;
    } cases[] = {{"fp64", 0.5, 1025}, {"fp64", 1, 1024}, {"fp64", 0x1p-1022, 2046}, {"fp64", 0x1p-1074, 2098}, {"e11m4", 0x1p-1, 1025},
                 {"fp32", 0.5, 129},  {"fp32", 0x1p-1074, 1202}, {"fp16", 0x1p15, 1},  {"fp16", 0, HUGE_VAL},   {"fp64", HUGE_VAL, -HUGE_VAL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_fmt f;
        ck_assert_int_eq(nh_fmt_parse(&f, cases[i].name), NH_OK);
        double bits = nh_fmt_headroom(&f, cases[i].x);
        ck_assert_msg(isinf(cases[i].bits) ? bits == cases[i].bits : fabs(bits - cases[i].bits) < 0.05, "%s %g: %.17g", cases[i].name,
                      cases[i].x, bits);
    }
}
END_TEST

START_TEST(every_exmy_parses_and_obeys_the_formula)
{
    for (int x = 2; x <= 11; x++) {
        for (int y = 1; y <= 52; y++) {
            const struct nh_fmt f = format_of(x, y);
            const int bias = (1 << (x - 1)) - 1;
            ck_assert_int_eq(f.exp_bits, x);
            ck_assert_int_eq(f.man_bits, y);
            ck_assert_int_eq(f.emin, 1 - bias);
            ck_assert(f.has_inf && f.max == ldexp(2 - ldexp(1, -y), bias));
            ck_assert(f.min_normal == ldexp(1, 1 - bias) && f.min_subnormal == ldexp(1, 1 - bias - y));
            ck_assert_int_eq(nh_fmt_wide(&f), !((x <= 8 && y <= 10) || (x == 8 && y == 23)));
        }
    }
}
END_TEST

START_TEST(names_that_are_no_format)
{
    static const char *const names[] = {"",
                                        "fp17",
                                        "fp8",
                                        "FP16",
                                        "E5M10",
                                        "e",
                                        "e5",
                                        "e5m",
                                        "m10",
                                        "e0m3",
                                        "e1m3",
                                        "e12m3",
                                        "e5m0",
                                        "e5m53",
                                        "e5m10x",
                                        "e5 m10",
                                        " e5m10",
                                        "e5m10 ",
                                        "e05m10",
                                        "e5m010",
                                        "e+5m1",
                                        "e5m-1",
                                        "e5M10",
                                        "e5m1.5",
                                        "e111m3",
                                        "e5m100",
                                        "e5m10\n",
                                        "fp16\n",
                                        "fp8-e3m4",
                                        "fp8-e4m3fn",
                                        "half",
                                        "float",
                                        "e4294967301m10",
                                        "e5m4294967306"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct nh_fmt f = {.exp_bits = 77};
        if (nh_fmt_parse(&f, names[i]) != NH_USAGE)
            ck_abort_msg("'%s' was taken for a format", names[i]);
        ck_assert_int_eq(f.exp_bits, 77);
        ck_assert_ptr_nonnull(strstr(nh_error(), "e4m10"));
    }
}
END_TEST

/* ---- conversion ---- */

START_TEST(all_patterns_survive_widening_and_narrowing)
{
    static const struct {
        const char *name;
        int x, y;
    } narrow[] = {{"fp16", 5, 10}, {"bf16", 8, 7}, {"fp8-e5m2", 5, 2}, {"e4m3", 4, 3}, {"e6m9", 6, 9}};
    static float wide[65536];
    const struct nh_fmt f = format(narrow[_i].name);
    const unsigned n = 1U << (1 + narrow[_i].x + narrow[_i].y);
    struct nh_span span = nh_span_zero();
    for (unsigned u = 0; u < n; u++) {
        const double x = decode(u, narrow[_i].x, narrow[_i].y);
        check_rounds_to(&f, x, x);
        wide[u] = (float)x;
    }
    nh_round_f32(&f, wide, n, &span, NULL, NULL);
    for (unsigned u = 0; u < n; u++)
        if (!same((double)wide[u], decode(u, narrow[_i].x, narrow[_i].y)))
            ck_abort_msg("%s: %x became %a", f.name, u, (double)wide[u]);
    const uint64_t tail = (uint64_t)1 << narrow[_i].y;
    ck_assert_uint_eq(span.nonfinite, 2 * tail);
    ck_assert_uint_eq(span.subnormal, 2 * (tail - 1));
    ck_assert_uint_eq(span.underflow, 0);
    ck_assert(span.max_abs == HUGE_VAL && span.min_abs == f.min_subnormal);
}
END_TEST

static FILE *open_data(const char *name)
{
    const char *root = getenv("NH_TEST_DATA");
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root ? root : "tests/data", name);
    FILE *file = fopen(path, "r");
    if (!file)
        ck_abort_msg("cannot read %s: set NH_TEST_DATA to the folder tests/data", path);
    return file;
}

/* Expected bits, or "NaN", in a format of 16 bits. */
static void check_pattern(const struct nh_fmt *f, uint32_t input, const char *expected)
{
    const double x = (double)float_of(input);
    const bool nan = strcmp(expected, "NaN") == 0;
    check_rounds_to(f, x, nan ? (double)NAN : decode((unsigned)strtoul(expected, NULL, 16), f->exp_bits, f->man_bits));
}

START_TEST(conversion_agrees_with_the_tables)
{
    static const char *const files[] = {"fp16_round.csv", "bf16_round.csv"};
    static const char *const names[] = {"fp16", "bf16"};
    const struct nh_fmt f = format(names[_i]);
    FILE *file = open_data(files[_i]);
    char line[128], expected[16];
    uint32_t input;
    int rows = 0;
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    for (; fgets(line, sizeof line, file); rows++) {
        ck_assert_int_eq(sscanf(line, "%" SCNx32 ",%15[0-9a-fA-FN]", &input, expected), 2);
        check_pattern(&f, input, expected);
    }
    fclose(file);
    ck_assert_int_eq(rows, 4000);
}
END_TEST

START_TEST(conversion_agrees_with_the_reported_cases)
{
    const struct nh_fmt fp16 = format("fp16"), bf16 = format("bf16");
    FILE *file = open_data("conv/f32_to_half_bf16.csv");
    char line[128], half[16], bfloat[16];
    uint32_t input;
    int rows = 0;
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    for (; fgets(line, sizeof line, file); rows++) {
        ck_assert_int_eq(sscanf(line, "%" SCNx32 ",%*[^,],%15[0-9a-fA-FN],%15[0-9a-fA-FN]", &input, half, bfloat), 3);
        check_pattern(&fp16, input, half);
        check_pattern(&bf16, input, bfloat);
    }
    fclose(file);
    ck_assert_int_eq(rows, 39);
}
END_TEST

START_TEST(conversion_keeps_values_just_above_half_of_min_subnormal)
{
    const struct nh_fmt f = format("fp16");
    check_rounds_to(&f, 0x1p-25, 0);
    check_rounds_to(&f, (double)nextafterf(0x1p-25F, 1), 0x1p-24);
    check_rounds_to(&f, nextafter(0x1p-25, 1), 0x1p-24);
    check_rounds_to(&f, -nextafter(0x1p-25, 1), -0x1p-24);
}
END_TEST

START_TEST(conversion_keeps_subnormals)
{
    const struct nh_fmt fp16 = format("fp16"), bf16 = format("bf16");
    check_rounds_to(&fp16, 0x1.8p-24, 0x1p-23);
    check_rounds_to(&fp16, 0x1.008p-15, 0x1.008p-15);
    check_rounds_to(&bf16, 0x1p-133, 0x1p-133);
    check_rounds_to(&bf16, -0x1.8p-133, -0x1p-132);
}
END_TEST

START_TEST(conversion_rounds_and_does_not_truncate)
{
    const struct nh_fmt bf16 = format("bf16");
    check_rounds_to(&bf16, (double)float_of(0x3e89ccd5), 0.26953125);
    check_rounds_to(&bf16, (double)float_of(0x7f7f7fff), 0x1.fep127);
    check_rounds_to(&bf16, (double)float_of(0x7f7f8000), HUGE_VAL);
}
END_TEST

START_TEST(conversion_keeps_nan_with_low_payload)
{
    static const char *const names[] = {"fp16", "bf16", "fp32", "fp8-e4m3", "e2m1", "tf32"};
    static const uint32_t payloads[] = {0x7f800001, 0xff800001, 0x7f802000, 0x7f80ffff, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct nh_fmt f = format(names[i]);
        for (size_t j = 0; j < sizeof payloads / sizeof *payloads; j++) {
            struct nh_span span = nh_span_zero();
            float x = float_of(payloads[j]);
            nh_round_f32(&f, &x, 1, &span, NULL, NULL);
            ck_assert(isnan(x));
            ck_assert_uint_eq(span.nonfinite, 1);
        }
    }
}
END_TEST

/* ---- against MPFR ---- */

START_TEST(narrow_formats_agree_with_mpfr)
{
    state = seed + (uint64_t)_i;
    for (int k = 0; k < 40; k++) {
        const struct nh_fmt f = k ? format_of(random_int(2, 8), random_int(1, 10)) : format("fp8-e4m3");
        for (int i = 0; i < 500; i++) {
            const float x = random_input_f32(&f);
            check_rounds_to(&f, (double)x, oracle_round(&f, (double)x));
            const double y = random_input(&f);
            check_rounds_to(&f, y, oracle_round(&f, y));
        }
    }
}
END_TEST

START_TEST(wide_formats_agree_with_mpfr)
{
    state = seed + 1000 + (uint64_t)_i;
    for (int k = 0; k < 40; k++) {
        const int x = random_int(2, 11), y = k % 4 ? random_int(1, 52) : random_int(49, 52);
        const struct nh_fmt f = k ? format_of(x, y) : format("fp32");
        for (int i = 0; i < 1000; i++) {
            double v = random_input(&f);
            const double expected = oracle_round(&f, v);
            check_rounds_to(&f, v, expected);
            struct nh_span span = nh_span_zero();
            nh_round_f64(&f, &v, 1, &span, NULL, NULL);
            if (!same(v, expected))
                ck_abort_msg("%s in the double core: %a, expected %a", f.name, v, expected);
        }
    }
}
END_TEST

/* Two values whose product lies near v and its neighbourhood of rounding. */
static void random_factors(const struct nh_fmt *f, double acc, double *a, double *b)
{
    *a = random_value(f);
    *b = random_value(f);
    if (random_bits() & 1 && acc != 0 && isfinite(acc)) { /* of the size of acc, or of its last bits */
        const int target = ilogb(acc) - random_int(-2, f->man_bits + 3);
        *b = nh_round(f, ldexp(*b, target - ilogb(*a == 0 ? 1 : *a) - ilogb(*b == 0 ? 1 : *b)));
        if (!isfinite(*b)) /* for then there is nothing to round */
            *b = 1;
    }
    if (random_bits() % 16 == 0) { /* the product has one bit only: ties */
        *a = nh_round(f, ldexp(1, random_int(f->emin, -f->emin)));
        *b = nh_round(f, ldexp(1, random_int(f->emin, -f->emin)));
    }
}

static void check_fma(const struct nh_fmt *f, double acc, double a, double b)
{
    const double got = nh_fma_round(f, acc, a, b), expected = oracle_fma(f, acc, a, b);
    if (!same(got, expected))
        ck_abort_msg("%s: %a + %a * %a gives %a, expected %a", f->name, acc, a, b, got, expected);
}

START_TEST(fma_agrees_with_mpfr)
{
    state = seed + 2000 + (uint64_t)_i;
    for (int k = 0; k < 40; k++) {
        const struct nh_fmt f = k == 0   ? format("fp32")
                                : k == 1 ? format("fp8-e4m3")
                                : k < 20 ? format_of(random_int(2, 8), random_int(1, 10))
                                         : format_of(random_int(2, 10), random_int(1, 25));
        for (int i = 0; i < 1000; i++) {
            const double acc = random_value(&f);
            double a, b;
            random_factors(&f, acc, &a, &b);
            check_fma(&f, acc, a, b);
        }
    }
}
END_TEST

/* As far as double carries: fp64 itself, and up to 50 bits where the product's last bit is above 2^-1074. */
START_TEST(fma_of_long_formats_agrees_with_mpfr)
{
    state = seed + 3000 + (uint64_t)_i;
    for (int k = 0; k < 40; k++) {
        const struct nh_fmt f = k == 0   ? format("fp64")
                                : k < 20 ? format_of(random_int(2, 9), random_int(26, 50))
                                         : format_of(11, random_int(1, 50));
        for (int i = 0; i < 1000; i++) {
            const double acc = random_value(&f);
            double a, b;
            random_factors(&f, acc, &a, &b);
            const double product = fabs(a * b);
            if (f.man_bits == 52 || product == 0 || (product > 0x1p-960 && product < 0x1p1000))
                check_fma(&f, acc, a, b);
        }
    }
}
END_TEST

/* 1 + 2^-11 is a tie in fp16; what decides it is too small for the sum in double to keep. */
START_TEST(fma_rounds_once_and_not_twice)
{
    const struct nh_fmt f = format("fp16");
    const double tie = 0x1p-11, least = 0x1p-24;
    ck_assert(nh_fma_round(&f, 1, tie, 1) == 1);
    ck_assert(nh_fma_round(&f, 2048, 1 + 0x1p-10, 1) == 2050);
    ck_assert(nh_fma_round(&f, -2048, 1 + 0x1p-10, -1) == -2050);
    const struct nh_fmt g = format("e8m10");
    ck_assert(nh_fma_round(&g, least * least, 1 + tie * 2, 1 + tie * 2) == 1 + tie * 4);
    ck_assert(nh_fma_round(&g, 0x1p-100, tie * 2049 / 2048, 0) == 0x1p-100);
    /* (1 + 2^-10)(1 + 2^-1) = 1.5 + 1.5 * 2^-10: a tie of e8m10, broken by an accumulator of +-2^-100. */
    ck_assert(nh_fma_round(&g, 0, 1 + 0x1p-10, 1.5) == 1.5 + 0x1p-9);
    ck_assert(nh_fma_round(&g, 0x1p-100, 1 + 0x1p-10, 1.5) == 1.5 + 0x1p-9);
    ck_assert(nh_fma_round(&g, -0x1p-100, 1 + 0x1p-10, 1.5) == 1.5 + 0x1p-10);
    ck_assert(nh_fma_round(&g, 0x1p-100, 1 + 0x1p-10, -1.5) == -(1.5 + 0x1p-10));
    /* (1.5 + u)(1 + u) = 1.5 + 2.5 u + u^2: above a tie by less than the product in double has bits for. */
    const struct nh_fmt h = format("e8m27");
    const double u = 0x1p-27;
    ck_assert(nh_fma_round(&h, 0, 1.5 + u, 1 + u) == 1.5 + 3 * u);
}
END_TEST

START_TEST(fma_passes_inf_and_nan)
{
    static const char *const names[] = {"fp16", "bf16", "fp32", "e9m30", "fp64"};
    const double inf = HUGE_VAL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct nh_fmt f = format(names[i]);
        ck_assert(nh_fma_round(&f, inf, 1, 1) == inf);
        ck_assert(nh_fma_round(&f, 1, -inf, 2) == -inf);
        ck_assert(isnan(nh_fma_round(&f, inf, -inf, 2)));
        ck_assert(isnan(nh_fma_round(&f, 1, inf, 0)));
        ck_assert(isnan(nh_fma_round(&f, (double)NAN, 1, 1)));
        ck_assert(nh_fma_round(&f, f.max, f.max, 1) == inf);
        ck_assert(nh_fma_round(&f, -f.max, f.max, 1) == 0);
        if (!nh_fmt_wide(&f)) /* the fused multiply-add of valgrind loses this sign */
            ck_assert(same(nh_fma_round(&f, -0.0, -0.0, 1), -0.0));
    }
    const struct nh_fmt ocp = format("fp8-e4m3");
    ck_assert(isnan(nh_fma_round(&ocp, 448, 448, 1)));
    ck_assert(nh_fma_round(&ocp, 448, 16, 1) == 448);
}
END_TEST

/* A sum of equal values stalls where half a unit exceeds them. */
START_TEST(sum_stagnates_where_the_format_says)
{
    const struct nh_fmt formats[] = {format("fp16"), format("bf16"), format("fp32")};
    const double sums[] = {2048, 256, 4096};
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        for (int k = 0; k < 4096; k++)
            sum = nh_fma_round(&formats[i], sum, 1, 1);
        ck_assert(sum == sums[i]);
    }
}
END_TEST

START_TEST(axpy_is_fma_in_a_loop)
{
    static const char *const names[] = {"fp16",     "bf16",  "fp32",  "tf32",   "e4m10",  "e2m1",
                                        "fp8-e4m3", "e10m5", "e9m25", "e11m10", "e10m40", "fp64"};
    enum { N = 67 };
    state = seed + 4000;
    const struct nh_fmt f = format(names[_i]);
    for (int round = 0; round < 300; round++) {
        const double x = ldexp((double)(int64_t)random_bits() * 0x1p-63, random_int(-12, 2));
        const double a = nh_round(&f, random_int(0, 99) || round % 3 ? x : random_input(&f));
        double b[N], acc[N], expected[N];
        float b32[N], acc32[N];
        for (int i = 0; i < N; i++) {
            const double y = ldexp((double)(int64_t)random_bits() * 0x1p-63, random_int(-12, 2));
            b[i] = nh_round(&f, random_int(0, 99) || round % 3 ? y : random_input(&f));
            acc[i] = round % 2 ? random_value(&f) : b[i];
            b32[i] = (float)b[i], acc32[i] = (float)acc[i];
            expected[i] = nh_fma_round(&f, acc[i], a, b[i]);
        }
        nh_axpy_round_f64(&f, acc, a, b, N);
        if (!nh_fmt_wide(&f))
            nh_axpy_round(&f, acc32, (float)a, b32, N);
        for (int i = 0; i < N; i++) {
            ck_assert(same(acc[i], expected[i]));
            ck_assert(nh_fmt_wide(&f) || same((double)acc32[i], expected[i]));
        }
    }
}
END_TEST

int main(void)
{
    const char *given = getenv("NH_TEST_SEED");
    if (given)
        seed = strtoull(given, NULL, 10);
    printf("# random values from NH_TEST_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);

    const struct {
        const TTest *test;
        int loops;
    } tests[] = {
        {constants_of_the_formats, 1},
        {headroom_of_every_format_is_the_distance_of_logarithms, 1},
        {every_exmy_parses_and_obeys_the_formula, 1},
        {names_that_are_no_format, 1},
        {all_patterns_survive_widening_and_narrowing, 5},
        {conversion_agrees_with_the_tables, 2},
        {conversion_agrees_with_the_reported_cases, 1},
        {conversion_keeps_values_just_above_half_of_min_subnormal, 1},
        {conversion_keeps_subnormals, 1},
        {conversion_rounds_and_does_not_truncate, 1},
        {conversion_keeps_nan_with_low_payload, 1},
        {narrow_formats_agree_with_mpfr, 4},
        {wide_formats_agree_with_mpfr, 4},
        {fma_agrees_with_mpfr, 4},
        {fma_of_long_formats_agrees_with_mpfr, 4},
        {fma_rounds_once_and_not_twice, 1},
        {fma_passes_inf_and_nan, 1},
        {sum_stagnates_where_the_format_says, 1},
        {axpy_is_fma_in_a_loop, 12},
    };
    TCase *all = tcase_create("fmt");
    tcase_set_timeout(all, 120);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_loop_test(all, tests[i].test, 0, tests[i].loops);
    Suite *suite = suite_create("fmt");
    const int failed = run_suite(suite, all);
    mpfr_free_cache();
    return failed;
}
