// SPDX-License-Identifier: GPL-3.0-or-later
/** Runs before main() and is compiled for every processor of the architecture, so that it cannot itself be what dies. */
#include "harness/cli/cpu.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const names[NH_CPU_FEATURES] = {
    [NH_CPU_SSE4_2] = "sse4.2",
    [NH_CPU_POPCNT] = "popcnt",
    [NH_CPU_AVX] = "avx",
    [NH_CPU_F16C] = "f16c",
    [NH_CPU_FMA] = "fma",
    [NH_CPU_BMI] = "bmi",
    [NH_CPU_BMI2] = "bmi2",
    [NH_CPU_AVX2] = "avx2",
    [NH_CPU_AVX512F] = "avx512f",
    [NH_CPU_AVX512CD] = "avx512cd",
    [NH_CPU_AVX512BW] = "avx512bw",
    [NH_CPU_AVX512DQ] = "avx512dq",
    [NH_CPU_AVX512VL] = "avx512vl",
    [NH_CPU_AVX512IFMA] = "avx512ifma",
    [NH_CPU_AVX512VBMI] = "avx512vbmi",
    [NH_CPU_AVX512VNNI] = "avx512vnni",
};

const char *nh_cpu_missing(uint32_t needed, uint32_t present)
{
    for (int i = NH_CPU_FEATURES - 1; i >= 0; i--)
        if ((needed & ~present) >> i & 1)
            return names[i];
    return NULL;
}

#ifdef __x86_64__
#include <cpuid.h>

#define HAS(feature, name) (__builtin_cpu_supports(name) ? UINT32_C(1) << (feature) : 0)

static uint32_t present(void)
{
    unsigned a, b, c = 0, d;
    __builtin_cpu_init();
    uint32_t bits = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? UINT32_C(1) << NH_CPU_F16C : 0;
    return bits | HAS(NH_CPU_SSE4_2, "sse4.2") | HAS(NH_CPU_POPCNT, "popcnt") | HAS(NH_CPU_AVX, "avx") | HAS(NH_CPU_FMA, "fma") |
           HAS(NH_CPU_BMI, "bmi") | HAS(NH_CPU_BMI2, "bmi2") | HAS(NH_CPU_AVX2, "avx2") | HAS(NH_CPU_AVX512F, "avx512f") |
           HAS(NH_CPU_AVX512CD, "avx512cd") | HAS(NH_CPU_AVX512BW, "avx512bw") | HAS(NH_CPU_AVX512DQ, "avx512dq") |
           HAS(NH_CPU_AVX512VL, "avx512vl") | HAS(NH_CPU_AVX512IFMA, "avx512ifma") | HAS(NH_CPU_AVX512VBMI, "avx512vbmi") |
           HAS(NH_CPU_AVX512VNNI, "avx512vnni");
}

__attribute__((constructor)) static void check(void)
{
    const char *missing = nh_cpu_missing(nh_cpu_needed, present());
    if (!missing)
        return;
    fprintf(stderr,
            "harness: this build is for a processor with %s, which this one lacks; build it on this machine, or with -Dnative=false\n",
            missing);
    _Exit(1);
}
#endif
