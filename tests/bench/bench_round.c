// SPDX-License-Identifier: GPL-3.0-or-later
/* Rounding in cache on one core, counters included: bytes of the array, passed once, by time. Best of several rounds.
 * healthy: all normal in the format; subnormal: one value in four is. Rounding again what is rounded costs the same. */
#include "harness/core/fmt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_N = 65536, ROUNDS = 15 };

static float source[MAX_N], work[MAX_N];

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void bench(const char *name, const char *data, double scale, size_t n)
{
    struct nh_fmt f;
    if (nh_fmt_parse(&f, name) != 0)
        exit(1);
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525U + 1013904223U;
        const double x = 1 + (double)(state >> 8) * 0x1p-24;
        source[i] = (float)((state & 0x80 ? -x : x) * (state & 3 ? 1 : scale));
    }
    const size_t repeats = (1 << 21) / n;
    double best = 1e9;
    struct nh_span span = nh_span_zero();
    for (int r = 0; r < ROUNDS; r++) {
        memcpy(work, source, n * sizeof *work);
        const double start = seconds();
        for (size_t k = 0; k < repeats; k++)
            nh_round_f32(&f, work, n, &span, NULL, NULL);
        const double time = (seconds() - start) / (double)repeats;
        best = time < best ? time : best;
    }
    printf("%s %s n=%zu,%.1f\n", name, data, n, (double)(n * sizeof *work) / best * 1e-9);
}

/* acc[j] += a[k] b[j] over rows of 64 accumulators; bytes of b. */
static void bench_axpy(const char *name)
{
    struct nh_fmt f;
    if (nh_fmt_parse(&f, name) != 0)
        exit(1);
    float acc[64] = {0};
    const size_t n = sizeof acc / sizeof *acc;
    double best = 1e9;
    for (int r = 0; r < ROUNDS; r++) {
        const double start = seconds();
        for (size_t k = 0; k < 1000; k++)
            nh_axpy_round(&f, acc, work[k], work + 2 * k, n);
        const double time = (seconds() - start) / 1000;
        best = time < best ? time : best;
    }
    printf("%s axpy n=%zu,%.2f\n", name, n, (double)(n * sizeof *work) / best * 1e-9);
}

/* The yardstick: every element read, changed and written. */
static void bench_scale(size_t n)
{
    double best = 1e9;
    for (size_t i = 0; i < n; i++)
        work[i] = (float)i;
    for (int r = 0; r < ROUNDS; r++) {
        const int repeats = (int)((1 << 21) / n);
        const double start = seconds();
        for (int k = 0; k < repeats; k++) {
            const float factor = k & 1 ? 0.5F : 2.0F;
            for (size_t i = 0; i < n; i++)
                work[i] *= factor;
        }
        const double time = (seconds() - start) / repeats;
        best = time < best ? time : best;
    }
    printf("multiply by a constant n=%zu,%.1f\n", n, (double)(n * sizeof *work) / best * 1e-9);
}

int main(void)
{
    static const char *const names[] = {"fp16", "bf16", "e4m10", "fp32"};
    static const size_t lengths[] = {64, 512, 4096, MAX_N};
    puts("what,gb_per_s");
    for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
        bench_scale(lengths[j]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct nh_fmt f;
        if (nh_fmt_parse(&f, names[i]) != 0)
            return 1;
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
            bench(names[i], "healthy", 1, lengths[j]);
        bench(names[i], "subnormal", ldexp(f.min_normal, -2), 4096);
    }
    bench_axpy("fp16");
    bench_axpy("fp32");
    return 0;
}
