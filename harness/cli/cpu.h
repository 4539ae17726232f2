// SPDX-License-Identifier: GPL-3.0-or-later
/** Whether the processor has what the program was built for: elsewhere a build with -march=native would die of SIGILL. */
#ifndef NH_CPU_H
#define NH_CPU_H

#include <stdint.h>

/** Features of x86 that compilers use by themselves, the rarer ones last. */
enum nh_cpu_feature {
    NH_CPU_SSE4_2,
    NH_CPU_POPCNT,
    NH_CPU_AVX,
    NH_CPU_F16C,
    NH_CPU_FMA,
    NH_CPU_BMI,
    NH_CPU_BMI2,
    NH_CPU_AVX2,
    NH_CPU_AVX512F,
    NH_CPU_AVX512CD,
    NH_CPU_AVX512BW,
    NH_CPU_AVX512DQ,
    NH_CPU_AVX512VL,
    NH_CPU_AVX512IFMA,
    NH_CPU_AVX512VBMI,
    NH_CPU_AVX512VNNI,
    NH_CPU_FEATURES
};

/** Bit i: the compiler was free to use feature i; a constant, and so no code. */
extern const uint32_t nh_cpu_needed;

/** The name of the rarest feature that is needed and not present; NULL where there is none. */
const char *nh_cpu_missing(uint32_t needed, uint32_t present);

#endif
