// SPDX-License-Identifier: GPL-3.0-or-later
/** What a build needs of the processor against what this has. */
#include "harness/cli/cpu.h"
#include "tests/suite.h"

#include <check.h>

START_TEST(missing_feature_is_named)
{
    const uint32_t avx = UINT32_C(1) << NH_CPU_AVX, avx2 = UINT32_C(1) << NH_CPU_AVX2, avx512 = UINT32_C(1) << NH_CPU_AVX512F;
    ck_assert_ptr_null(nh_cpu_missing(0, 0));
    ck_assert_ptr_null(nh_cpu_missing(avx | avx2, avx | avx2 | avx512));
    ck_assert_str_eq(nh_cpu_missing(avx | avx2, avx), "avx2");
    ck_assert_str_eq(nh_cpu_missing(avx | avx2 | avx512, avx | avx2), "avx512f");
    ck_assert_str_eq(nh_cpu_missing(avx | avx2 | avx512, 0), "avx512f"); /* the rarest says most */
    for (int i = 0; i < NH_CPU_FEATURES; i++)
        ck_assert_ptr_nonnull(nh_cpu_missing(UINT32_C(1) << i, 0));
}
END_TEST

/** What this very test was compiled with is what is asked for. */
START_TEST(build_asks_for_what_the_compiler_may_use)
{
#ifdef __AVX512F__
    ck_assert(nh_cpu_needed >> NH_CPU_AVX512F & 1);
#else
    ck_assert(!(nh_cpu_needed >> NH_CPU_AVX512F & 1));
#endif
#ifdef __AVX2__
    ck_assert(nh_cpu_needed >> NH_CPU_AVX2 & 1);
#else
    ck_assert(!(nh_cpu_needed >> NH_CPU_AVX2 & 1));
#endif
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu");
    TCase *tc = tcase_create("cpu");
    tcase_add_test(tc, missing_feature_is_named);
    tcase_add_test(tc, build_asks_for_what_the_compiler_may_use);
    return run_suite(suite, tc);
}
