// SPDX-License-Identifier: GPL-3.0-or-later
/** What this build needs, by the macros of the compiler: compiled as all other files are, while cpu.c is compiled for every processor. */
#include "harness/cli/cpu.h"

const uint32_t nh_cpu_needed = 0
#ifdef __SSE4_2__
                               | UINT32_C(1) << NH_CPU_SSE4_2
#endif
#ifdef __POPCNT__
                               | UINT32_C(1) << NH_CPU_POPCNT
#endif
#ifdef __AVX__
                               | UINT32_C(1) << NH_CPU_AVX
#endif
#ifdef __F16C__
                               | UINT32_C(1) << NH_CPU_F16C
#endif
#ifdef __FMA__
                               | UINT32_C(1) << NH_CPU_FMA
#endif
#ifdef __BMI__
                               | UINT32_C(1) << NH_CPU_BMI
#endif
#ifdef __BMI2__
                               | UINT32_C(1) << NH_CPU_BMI2
#endif
#ifdef __AVX2__
                               | UINT32_C(1) << NH_CPU_AVX2
#endif
#ifdef __AVX512F__
                               | UINT32_C(1) << NH_CPU_AVX512F
#endif
#ifdef __AVX512CD__
                               | UINT32_C(1) << NH_CPU_AVX512CD
#endif
#ifdef __AVX512BW__
                               | UINT32_C(1) << NH_CPU_AVX512BW
#endif
#ifdef __AVX512DQ__
                               | UINT32_C(1) << NH_CPU_AVX512DQ
#endif
#ifdef __AVX512VL__
                               | UINT32_C(1) << NH_CPU_AVX512VL
#endif
#ifdef __AVX512IFMA__
                               | UINT32_C(1) << NH_CPU_AVX512IFMA
#endif
#ifdef __AVX512VBMI__
                               | UINT32_C(1) << NH_CPU_AVX512VBMI
#endif
#ifdef __AVX512VNNI__
                               | UINT32_C(1) << NH_CPU_AVX512VNNI
#endif
    ;
