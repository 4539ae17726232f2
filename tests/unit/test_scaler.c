// SPDX-License-Identifier: GPL-3.0-or-later
/** Loss scales by hand, along a recorded trace, and by the rule of each policy. */
#include "tests/property/model_config.h"
#include "tests/suite.h"

#include <check.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static struct nh_scaler scaler_of(struct nh_scaler_rule rule)
{
    struct nh_scaler s;
    nh_scaler_start(&s, &rule);
    return s;
}

/** One step for each letter, x = overflow; returns the scale behind them. All must be mendable. */
static double after(struct nh_scaler *s, const char *steps)
{
    for (; *steps; steps++)
        ck_assert(nh_scaler_update(s, *steps == 'x'));
    return s->scale;
}

START_TEST(trace)
{
    static const double scales[] = {65536, 65536, 32768, 32768, 32768, 32768, 65536,
                                    65536, 32768, 16384, 16384, 16384, 16384, 32768};
    struct nh_scaler s = scaler_of((struct nh_scaler_rule){.start = 65536, .window = 4, .hysteresis = 1, .floor = 1});
    char path[1024];
    snprintf(path, sizeof path, "%s/csv/scaler_events.csv", getenv("NH_TEST_DATA"));
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "step,grad_nonfinite "), 0);
    int step, overflow, n = 0;
    for (; fscanf(file, "%d,%d ", &step, &overflow) == 2; n++) {
        ck_assert_int_eq(step, n + 1);
        ck_assert(nh_scaler_update(&s, overflow));
        ck_assert_double_eq(s.scale, scales[n]);
    }
    ck_assert_int_eq(n, COUNT(scales));
    fclose(file);
}
END_TEST

START_TEST(hysteresis)
{
    struct nh_scaler s = scaler_of((struct nh_scaler_rule){.start = 1024, .window = 3, .hysteresis = 2, .floor = 1});
    ck_assert_double_eq(after(&s, "x"), 1024);  /* the first one is let pass */
    ck_assert_double_eq(after(&s, "..x"), 512); /* clean steps that do not make it grow forgive nothing */
    ck_assert_double_eq(after(&s, "x"), 256);
    ck_assert_double_eq(after(&s, "..x.."), 128);
    ck_assert_double_eq(after(&s, "."), 256); /* growth does */
    ck_assert_double_eq(after(&s, "x"), 256);
    ck_assert_double_eq(after(&s, "x"), 128);
}
END_TEST

START_TEST(clean_steps_in_a_row)
{
    struct nh_scaler s = scaler_of((struct nh_scaler_rule){.start = 64, .window = 3, .hysteresis = 2, .floor = 1});
    ck_assert_double_eq(after(&s, "..x.."), 64); /* an overflow that is let pass breaks the row too */
    ck_assert_double_eq(after(&s, "."), 128);
    ck_assert_double_eq(after(&s, ".."), 128);
    ck_assert_double_eq(after(&s, "."), 256);
}
END_TEST

START_TEST(floor_of_the_scale)
{
    struct nh_scaler s = scaler_of((struct nh_scaler_rule){.start = 12, .window = 2, .hysteresis = 1, .floor = 1});
    ck_assert_double_eq(after(&s, "xxx"), 1.5);
    ck_assert_double_eq(after(&s, "x"), 1);
    for (int i = 0; i < 3; i++) {
        ck_assert(!nh_scaler_update(&s, true));
        ck_assert_double_eq(s.scale, 1);
    }
    ck_assert_double_eq(after(&s, ".."), 2);
}
END_TEST

START_TEST(ceiling_of_the_scale)
{
    struct nh_scaler s =
        scaler_of((struct nh_scaler_rule){.start = 12, .window = 1, .hysteresis = 1, .floor = 1, .ceiling = 64});
    ck_assert_double_eq(after(&s, ".."), 48);
    ck_assert_double_eq(after(&s, "."), 64);
    ck_assert_double_eq(after(&s, "..."), 64);
    ck_assert_double_eq(after(&s, "x"), 32);
}
END_TEST

START_TEST(fixed_scale)
{
    struct nh_scaler s = scaler_of((struct nh_scaler_rule){.start = 1000, .floor = 1000});
    for (int i = 0; i < 5000; i++)
        ck_assert(nh_scaler_update(&s, false));
    ck_assert(!nh_scaler_update(&s, true));
    ck_assert_double_eq(s.scale, 1000);
}
END_TEST

/** From the start down to the floor and one more; up again by one growth. */
START_TEST(rules_of_the_policies)
{
    for (const struct nh_policy *const *p = nh_policies; *p; p++) {
        const struct nh_scaler_rule *r = &(*p)->scaler;
        int exponent;
        ck_assert_double_eq(frexp(r->start, &exponent), 0.5);
        ck_assert_double_eq(frexp(r->floor, &exponent), 0.5);
        ck_assert(r->floor <= r->start && (r->ceiling == 0 || r->ceiling >= r->start));
        if (r->window == 0) {
            ck_assert_double_eq(r->start, 1);
            continue;
        }
        ck_assert_int_ge(r->hysteresis, 1);
        struct nh_scaler s = scaler_of(*r);
        int overflows = r->hysteresis - 1 + (int)lround(log2(r->start / r->floor));
        for (int i = 0; i < overflows; i++)
            ck_assert(nh_scaler_update(&s, true));
        ck_assert_double_eq(s.scale, r->floor);
        ck_assert(!nh_scaler_update(&s, true));
        for (int i = 0; i < r->window; i++) {
            ck_assert_double_eq(s.scale, r->floor);
            ck_assert(nh_scaler_update(&s, false));
        }
        ck_assert_double_eq(s.scale, 2 * r->floor);
    }
}
END_TEST

START_TEST(scalers_of_runs)
{
    static const struct {
        const char *words;
        double start, floor, ceiling;
        int window, hysteresis;
    } cases[] = {
        {"--dtype fp16", 65536, 1, 0, 2000, 1},
        {"--dtype e5m2", 65536, 1, 0, 2000, 1},
        {"--dtype fp8-e4m3", 65536, 1, 0, 2000, 1},
        {"--dtype fp16 --scale-window 7", 65536, 1, 0, 7, 1},
        {"--policy amp-o1", 65536, 0x1p-24, 0x1p24, 2000, 1},
        {"--policy amp-o2", 65536, 0x1p-24, 0x1p24, 2000, 1},
        {"--policy cogview", 0x1p32, 1, 0, 1000, 2},
        {"--policy glm130b --scale-window 500", 65536, 1, 0, 500, 2},
        {"--policy megatron", 0x1p32, 1, 0, 1000, 2},
        {"--policy all-half", 65536, 1, 0, 2000, 1},
        /* gradients of the range of fp32 need none */
        {"--dtype fp32", 1, 1, 0, 0, 0},
        {"--dtype fp64", 1, 1, 0, 0, 0},
        {"--dtype tf32", 1, 1, 0, 0, 0},
        {"--dtype bf16", 1, 1, 0, 0, 0},
        {"--dtype e8m3", 1, 1, 0, 0, 0},
        {"--policy bf16-mixed", 1, 1, 0, 0, 0},
        {"--policy megatron --dtype bf16", 1, 1, 0, 0, 0},
        {"--dtype fp16 --roles gradient=fp32", 0x1p16, 1, 0, 2000, 1}, /* weight gradients are still fp16 */
        {"--dtype fp16 --roles gradient=fp32,weight-gradient=fp32", 1, 1, 0, 0, 0},
        /* a number is a number */
        {"--dtype fp16 --loss-scale 1000", 1000, 1000, 0, 0, 0},
        {"--dtype fp16 --loss-scale off", 1, 1, 0, 0, 0},
        {"--dtype fp32 --loss-scale 0.5", 0.5, 0.5, 0, 0, 0},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        char words[128];
        snprintf(words, sizeof words, "--steps 1 %s", cases[i].words);
        struct nh_config c = config_of(words);
        struct nh_scaler_rule r = nh_policy_scaler(&c);
        ck_assert_msg(r.start == cases[i].start && r.floor == cases[i].floor && r.ceiling == cases[i].ceiling &&
                          r.window == cases[i].window && r.hysteresis == cases[i].hysteresis,
                      "%s: start %g, floor %g, ceiling %g, window %d, hysteresis %d", words, r.start, r.floor,
                      r.ceiling, r.window, r.hysteresis);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scaler");
    TCase *tc = tcase_create("scaler");
    tcase_add_test(tc, trace);
    tcase_add_test(tc, hysteresis);
    tcase_add_test(tc, clean_steps_in_a_row);
    tcase_add_test(tc, floor_of_the_scale);
    tcase_add_test(tc, ceiling_of_the_scale);
    tcase_add_test(tc, fixed_scale);
    tcase_add_test(tc, rules_of_the_policies);
    tcase_add_test(tc, scalers_of_runs);
    return run_suite(suite, tc);
}
