// SPDX-License-Identifier: GPL-3.0-or-later
/** Roles and their formats. */
#include "harness/core/policy.h"
#include "tests/suite.h"

#include <check.h>
#include <string.h>

static const char *format_of(const char *dtype, enum nh_width_of norm_stats, enum nh_role role)
{
    static struct nh_fmt formats[NH_ROLE_COUNT];
    struct nh_config c = {.policy = nh_policies[0], .norm_stats = norm_stats};
    ck_assert_int_eq(nh_fmt_parse(&c.dtype, dtype), 0);
    nh_policy_formats(&c, formats);
    /* a norm reads what comes, unless somebody says otherwise */
    return role == NH_ROLE_NORM_IN && !*formats[role].name ? formats[NH_ROLE_RESIDUAL].name : formats[role].name;
}

static bool kept_wide(enum nh_role role)
{
    return role == NH_ROLE_ACCUM || role == NH_ROLE_NORM_STAT || role == NH_ROLE_SOFTMAX || role == NH_ROLE_LOSS ||
           role == NH_ROLE_MASTER || role == NH_ROLE_MOMENT;
}

START_TEST(plain_in_half)
{
    static const char *const dtypes[] = {"fp16", "bf16", "e4m10", "fp8-e4m3", "fp32", "e5m12"};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (enum nh_role role = 0; role < NH_ROLE_COUNT; role++) {
            ck_assert_str_eq(format_of(dtypes[i], NH_WIDE_FP32, role), kept_wide(role) ? "fp32" : dtypes[i]);
            bool wide = kept_wide(role) && role != NH_ROLE_NORM_STAT;
            ck_assert_str_eq(format_of(dtypes[i], NH_WIDE_DTYPE, role), wide ? "fp32" : dtypes[i]);
        }
}
END_TEST

START_TEST(plain_in_more_than_fp32)
{
    for (enum nh_role role = 0; role < NH_ROLE_COUNT; role++) {
        ck_assert_str_eq(format_of("fp64", NH_WIDE_FP32, role), "fp64");
        ck_assert_str_eq(format_of("e11m10", NH_WIDE_FP32, role), kept_wide(role) ? "fp64" : "e11m10");
        ck_assert_str_eq(format_of("e8m24", NH_WIDE_FP32, role), kept_wide(role) ? "fp64" : "e8m24");
    }
}
END_TEST

START_TEST(tf32_is_for_inputs_of_products)
{
    for (enum nh_role role = 0; role < NH_ROLE_COUNT; role++)
        for (enum nh_width_of stats = NH_WIDE_FP32; stats <= NH_WIDE_DTYPE; stats++)
            ck_assert_str_eq(format_of("tf32", stats, role),
                             role == NH_ROLE_WEIGHT || role == NH_ROLE_MATMUL_IN ? "tf32" : "fp32");
}
END_TEST

START_TEST(tables)
{
    ck_assert_str_eq(nh_policies[0]->name, "plain");
    for (const struct nh_policy *const *p = nh_policies; *p; p++) {
        ck_assert_ptr_nonnull((*p)->what);
        ck_assert_ptr_nonnull((*p)->source);
        struct nh_fmt f;
        for (enum nh_role role = 0; role < NH_ROLE_COUNT; role++)
            if ((*p)->format[role])
                ck_assert_int_eq(nh_fmt_parse(&f, (*p)->format[role]), 0);
    }
    for (enum nh_role role = 0; role < NH_ROLE_COUNT; role++)
        ck_assert_ptr_nonnull(nh_role_names[role]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy");
    TCase *tc = tcase_create("policy");
    tcase_add_test(tc, plain_in_half);
    tcase_add_test(tc, plain_in_more_than_fp32);
    tcase_add_test(tc, tf32_is_for_inputs_of_products);
    tcase_add_test(tc, tables);
    return run_suite(suite, tc);
}
