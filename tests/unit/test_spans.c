// SPDX-License-Identifier: GPL-3.0-or-later
/** Spans: rounding and counting of many values, against one value at a time; and the machine below. */
#include "tests/unit/fmt_values.h"

#include <fenv.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

/* ---- spans ---- */

enum { LONGEST = 4200 };

struct heard {
    size_t n, index[LONGEST];
    double before[LONGEST];
};

static void hear(void *arg, size_t index, double before)
{
    struct heard *h = arg;
    h->index[h->n] = index;
    h->before[h->n++] = before;
}

/* What a span must report, one value at a time and by the definitions alone. */
static struct nh_span expected_span(const struct nh_fmt *f, const double *x, size_t n, struct heard *heard)
{
    struct nh_span s = nh_span_zero();
    heard->n = 0;
    for (size_t i = 0; i < n; i++) {
        const double r = nh_round(f, x[i]), a = fabs(r);
        s.total++;
        if (!isfinite(r)) {
            s.nonfinite++;
            hear(heard, i, x[i]);
        }
        if (r == 0 && x[i] != 0)
            s.underflow++;
        if (r != 0 && a < f->min_normal)
            s.subnormal++;
        if (a > s.max_abs)
            s.max_abs = a;
        if (r != 0 && a < s.min_abs)
            s.min_abs = a;
    }
    return s;
}

static void check_span(const struct nh_fmt *f, const struct nh_span *got, const struct nh_span *expected)
{
    const bool ok = got->total == expected->total && got->underflow == expected->underflow &&
                    got->subnormal == expected->subnormal && got->nonfinite == expected->nonfinite &&
                    got->max_abs == expected->max_abs && got->min_abs == expected->min_abs;
    if (!ok)
        ck_abort_msg("%s: total %" PRIu64 " underflow %" PRIu64 " subnormal %" PRIu64 " nonfinite %" PRIu64
                     " max %a min %a, expected %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %a %a",
                     f->name, got->total, got->underflow, got->subnormal, got->nonfinite, got->max_abs, got->min_abs,
                     expected->total, expected->underflow, expected->subnormal, expected->nonfinite, expected->max_abs,
                     expected->min_abs);
}

static void check_heard(const struct heard *got, const struct heard *expected)
{
    if (got->n != expected->n)
        ck_abort_msg("%zu non-finite values were reported, not %zu", got->n, expected->n);
    for (size_t i = 0; i < got->n; i++)
        if (got->index[i] != expected->index[i] || !same(got->before[i], expected->before[i]))
            ck_abort_msg("non-finite value %zu was reported as index %zu", expected->index[i], got->index[i]);
}

/* Kinds of data, from healthy to broken; a span of kind k has values of the kinds up to k. */
enum kind { HEALTHY, ZEROS, SUBNORMALS, UNDERFLOWS, OVERFLOWS, SPECIALS, ANYTHING, KINDS };

static double value_of_kind(const struct nh_fmt *f, enum kind kind)
{
    const double sign = random_bits() & 1 ? -1 : 1, u = (double)(random_bits() >> 11) * 0x1p-53;
    if (random_int(0, 9) > 0)
        kind = HEALTHY;
    switch (kind) {
    case ZEROS:
        return sign * 0.0;
    case SUBNORMALS:
        return sign * (f->min_subnormal + u * (f->min_normal - f->min_subnormal));
    case UNDERFLOWS:
        return sign * u * f->min_subnormal;
    case OVERFLOWS:
        return sign * f->max * (1 + u);
    case SPECIALS:
        return random_bits() & 1 ? (double)NAN : sign * HUGE_VAL;
    case ANYTHING:
        return random_input(f);
    default:
        return sign * f->min_normal * exp2(u * (ilogb(f->max) - f->emin));
    }
}

static void check_one_span(const struct nh_fmt *f, const double *source, size_t n, size_t offset)
{
    static double x64[LONGEST + 8], seen[LONGEST];
    static float x32[LONGEST + 8];
    static struct heard got, expected;
    const double guard = 1.0 + 0x1p-23; /* must stay: it is not a value of narrow formats */

    const bool narrow = !nh_fmt_wide(f);
    for (int pass = narrow ? 0 : 1; pass < 2; pass++) { /* 0: float, 1: double */
        for (size_t i = 0; i < n; i++) {
            x32[offset + i] = (float)source[i];
            x64[offset + i] = source[i];
            seen[i] = pass ? source[i] : (double)x32[offset + i];
        }
        if (offset > 0) {
            x32[offset - 1] = (float)guard;
            x64[offset - 1] = guard;
        }
        x32[offset + n] = (float)guard;
        x64[offset + n] = guard;

        const struct nh_span e = expected_span(f, seen, n, &expected);
        struct nh_span s = nh_span_zero();
        got.n = 0;
        if (pass)
            nh_round_f64(f, x64 + offset, n, &s, hear, &got);
        else
            nh_round_f32(f, x32 + offset, n, &s, hear, &got);
        check_span(f, &s, &e);
        check_heard(&got, &expected);
        for (size_t i = 0; i < n; i++)
            if (!same(pass ? x64[offset + i] : (double)x32[offset + i], nh_round(f, seen[i])))
                ck_abort_msg("%s: value %zu of %zu, %a, became %a", f->name, i, n, seen[i],
                             pass ? x64[offset + i] : (double)x32[offset + i]);
        const bool kept = x64[offset + n] == guard && (double)x32[offset + n] == guard;
        if (!kept || (offset > 0 && (x64[offset - 1] != guard || (double)x32[offset - 1] != guard)))
            ck_abort_msg("%s: wrote outside %zu values", f->name, n);
    }
}

static const char *const span_formats[] = {"fp16", "bf16",     "fp32", "tf32", "e4m10",  "e3m10",  "e2m1",  "fp8-e4m3",
                                           "e7m1", "fp8-e5m2", "fp64", "e8m1", "e11m10", "e10m52", "e9m51", "e6m30"};

START_TEST(spans_count_and_round_as_one_value_at_a_time)
{
    static double x[LONGEST];
    static const size_t longer[] = {127, 128, 129, 511, 1000, 1023, 1024, 1025, 2047, 2048, 2049, LONGEST};
    const struct nh_fmt f = format(span_formats[_i]);
    state = seed + 5000 + (uint64_t)_i;
    for (int kind = HEALTHY; kind < KINDS; kind++) {
        for (size_t n = 0; n <= 70; n++) {
            for (size_t offset = 0; offset < 5; offset++) {
                for (size_t i = 0; i < n; i++)
                    x[i] = value_of_kind(&f, (enum kind)random_int(0, kind));
                check_one_span(&f, x, n, offset);
            }
        }
        for (size_t k = 0; k < sizeof longer / sizeof *longer; k++) {
            for (size_t i = 0; i < longer[k]; i++)
                x[i] = value_of_kind(&f, (enum kind)random_int(0, kind));
            check_one_span(&f, x, longer[k], k % 5);
        }
    }
}
END_TEST

/* A single odd value at each place of a healthy span of three strips. */
START_TEST(spans_see_a_single_value_wherever_it_is)
{
    static float x[3000], y[3000];
    const struct nh_fmt f = format("fp16");
    static const struct {
        double value;
        uint64_t underflow, subnormal, nonfinite;
    } odd[] = {{0x1p-26, 1, 0, 0}, {-0x1p-20, 0, 1, 0}, {65520, 0, 0, 1}, {-HUGE_VAL, 0, 0, 1}, {(double)NAN, 0, 0, 1}};
    for (size_t i = 0; i < 3000; i++)
        x[i] = 1 + (float)i * 0x1p-20F;
    for (size_t at = 0; at < 3000; at += at < 200 || at > 2800 ? 1 : 37) {
        for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
            memcpy(y, x, sizeof y);
            y[at] = (float)odd[k].value;
            struct nh_span s = nh_span_zero();
            nh_round_f32(&f, y, 3000, &s, NULL, NULL);
            ck_assert(s.underflow == odd[k].underflow && s.subnormal == odd[k].subnormal);
            ck_assert(s.nonfinite == odd[k].nonfinite);
            ck_assert(same((double)y[at], nh_round(&f, odd[k].value)));
        }
    }
}
END_TEST

START_TEST(spans_add_up)
{
    const struct nh_fmt f = format("fp16");
    state = seed + 6000;
    float x[300];
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 300; i++)
            x[i] = (float)value_of_kind(&f, (enum kind)random_int(0, round % KINDS));
        float y[300];
        memcpy(y, x, sizeof y);
        struct nh_span whole = nh_span_zero(), running = nh_span_zero();
        nh_round_f32(&f, x, 300, &whole, NULL, NULL);
        memcpy(x, y, sizeof x);
        nh_round_f32(&f, x, 77, &running, NULL, NULL);
        nh_round_f32(&f, x + 77, 223, &running, NULL, NULL);
        check_span(&f, &running, &whole);
    }
    const struct nh_span empty = nh_span_zero();
    ck_assert(empty.total == 0 && empty.max_abs == 0 && empty.min_abs == HUGE_VAL);
}
END_TEST

/* Under -ffast-math these counts were 0. */
START_TEST(nan_and_inf_of_the_input_are_counted)
{
    static const char *const names[] = {"fp16", "bf16", "fp32", "fp64", "fp8-e4m3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct nh_fmt f = format(names[i]);
        double x[] = {1, (double)NAN, HUGE_VAL, -HUGE_VAL, 2};
        struct nh_span s = nh_span_zero();
        nh_round_f64(&f, x, 5, &s, NULL, NULL);
        ck_assert_uint_eq(s.nonfinite, 3);
        ck_assert_uint_eq(s.total, 5);
    }
}
END_TEST

/* ---- the machine ---- */

START_TEST(self_check_passes_here)
{
    ck_assert_int_eq(nh_fmt_self_check(), NH_OK);
}
END_TEST

/* Valgrind runs in the default modes whatever is set. */
static bool modes_are_obeyed(void)
{
    volatile double x = 1;
    fesetround(FE_UPWARD);
    x += 0x1p-60;
    fesetround(FE_TONEAREST);
    return x > 1;
}

START_TEST(self_check_sees_flushed_subnormals)
{
#ifdef __SSE2__
    if (!modes_are_obeyed())
        return;
    static const unsigned modes[] = {0x8000, 0x0040, 0x8040}; /* FTZ, DAZ, both */
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | modes[i]);
        const int status = nh_fmt_self_check();
        _mm_setcsr(before);
        ck_assert_int_eq(status, NH_FAILED);
        ck_assert_ptr_nonnull(strstr(nh_error(), "subnormal"));
    }
#endif
}
END_TEST

START_TEST(self_check_sees_another_rounding_mode)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    if (!modes_are_obeyed())
        return;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        ck_assert_int_eq(fesetround(modes[i]), 0);
        const int status = nh_fmt_self_check();
        fesetround(FE_TONEAREST);
        ck_assert_int_eq(status, NH_FAILED);
        ck_assert_ptr_nonnull(strstr(nh_error(), "ties to even"));
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
        {spans_count_and_round_as_one_value_at_a_time, sizeof span_formats / sizeof *span_formats},
        {spans_see_a_single_value_wherever_it_is, 1},
        {spans_add_up, 1},
        {nan_and_inf_of_the_input_are_counted, 1},
        {self_check_passes_here, 1},
        {self_check_sees_flushed_subnormals, 1},
        {self_check_sees_another_rounding_mode, 1},
    };
    TCase *all = tcase_create("spans");
    tcase_set_timeout(all, 120);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_loop_test(all, tests[i].test, 0, tests[i].loops);
    Suite *suite = suite_create("spans");
    return run_suite(suite, all);
}
