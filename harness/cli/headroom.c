// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/headroom.h"

#include "harness/core/fmt.h"
#include "harness/core/site.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"fp16", "bf16", "fp8-e4m3", "fp8-e5m2"};

enum { FORMATS = sizeof names / sizeof *names };

/** All layers of one site. */
struct group {
    const char *site;
    size_t first; /**< line */
    uint64_t overflow;
    int layers, first_layer; /**< where it overflowed */
    double max_abs;
    int layer; /**< of max_abs */
};

static struct nh_fmt format(size_t i)
{
    struct nh_fmt f;
    const int status = nh_fmt_parse(&f, names[i]);
    assert(status == 0);
    (void)status;
    return f;
}

static double own_headroom(size_t i, double x)
{
    const struct nh_fmt f = format(i);
    return nh_fmt_headroom(&f, x);
}

static bool leaves(const struct nh_fmt *f, double x)
{
    return !isfinite(nh_round(f, x));
}

enum { SCALE_TEXT = 16 };

/** "2^k" with the largest k that keeps 2^k x inside the format, 2^0 for x = 0; "none" for inf. */
static const char *safe_scale(const struct nh_fmt *f, double x, char text[SCALE_TEXT])
{
    if (isinf(x))
        return "none";
    int k = x > 0 ? (int)floor(log2(f->max) - log2(x)) + 1 : 0;
    while (x > 0 && leaves(f, ldexp(x, k)))
        k--;
    snprintf(text, SCALE_TEXT, "2^%d", k);
    return text;
}

static int by_overflow(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return x->overflow != y->overflow ? (x->overflow < y->overflow) - (x->overflow > y->overflow)
                                      : (x->first > y->first) - (x->first < y->first);
}

static int by_size(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return x->max_abs < y->max_abs || x->max_abs > y->max_abs ? (x->max_abs < y->max_abs) - (x->max_abs > y->max_abs)
                                                              : (x->first > y->first) - (x->first < y->first);
}

static size_t gather(const struct nh_site_line *lines, size_t n, struct group *groups)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < count && strcmp(groups[k].site, lines[i].site) != 0)
            k++;
        assert(k < NH_SITE_COUNT);
        if (k == count)
            groups[count++] = (struct group){.site = lines[i].site, .first = i, .max_abs = -1};
        struct group *g = &groups[k];
        if (lines[i].overflow && g->layers++ == 0)
            g->first_layer = lines[i].layer;
        g->overflow += lines[i].overflow;
        if (lines[i].max_abs > g->max_abs)
            g->max_abs = lines[i].max_abs, g->layer = lines[i].layer;
    }
    return count;
}

static void print_overflows(FILE *file, struct group *groups, size_t n)
{
    qsort(groups, n, sizeof *groups, by_overflow);
    if (n == 0 || groups[0].overflow == 0)
        return;
    fprintf(file, "%-11s %12s %7s %6s\n", "overflow at", "values", "layers", "first");
    for (size_t i = 0; i < n && groups[i].overflow; i++)
        fprintf(file, "%-11s %12llu %7d %6d\n", groups[i].site, (unsigned long long)groups[i].overflow, groups[i].layers,
                groups[i].first_layer);
}

static void print_headroom(FILE *file, struct group *groups, size_t n)
{
    qsort(groups, n, sizeof *groups, by_size);
    fprintf(file, "headroom in fp32, bits below the maximum of\n%-11s %6s %11s", "site", "layer", "max|x|");
    for (size_t f = 0; f < FORMATS; f++)
        fprintf(file, " %9s", names[f]);
    fprintf(file, " %10s\n", "fp16-safe");
    for (size_t i = 0; i < n; i++) {
        if (groups[i].max_abs < 0)
            continue;
        fprintf(file, "%-11s %6d %11.5g", groups[i].site, groups[i].layer, groups[i].max_abs);
        for (size_t f = 0; f < FORMATS; f++)
            fprintf(file, " %9.1f", own_headroom(f, groups[i].max_abs));
        const struct nh_fmt half = format(0);
        char scale[SCALE_TEXT];
        fprintf(file, "       %s\n", safe_scale(&half, groups[i].max_abs, scale));
    }
}

static void print_elsewhere(FILE *file, const struct nh_site_line *lines, size_t n)
{
    double largest = 0;
    size_t unknown = 0;
    for (size_t i = 0; i < n; i++) {
        largest = lines[i].max_abs > largest ? lines[i].max_abs : largest;
        unknown += isnan(lines[i].max_abs) ? 1 : 0;
    }
    if (unknown)
        fprintf(file, "in fp32     %zu of %zu sites hold nothing but nan; what follows is of the others\n", unknown, n);
    for (size_t f = 0; f < FORMATS; f++) {
        const struct nh_fmt own = format(f);
        const struct nh_site_line *first = NULL;
        size_t count = 0;
        for (size_t i = 0; i < n; i++)
            if (lines[i].max_abs > 0 && leaves(&own, lines[i].max_abs)) {
                first = first ? first : &lines[i];
                count++;
            }
        fprintf(file, "in %-8s ", names[f]);
        if (first)
            fprintf(file, "%zu of %zu sites would overflow, the first %s of layer %d; ", count, n, first->site, first->layer);
        else
            fprintf(file, "nothing would overflow; ");
        char scale[SCALE_TEXT];
        if (isinf(largest))
            fprintf(file, "safe with no scale, as fp32 has an inf too\n");
        else
            fprintf(file, "safe with all values times %s\n", safe_scale(&own, largest, scale));
    }
}

bool nh_headroom_print(FILE *file, const struct nh_site_line *lines, size_t n)
{
    struct group groups[NH_SITE_COUNT];
    size_t count = gather(lines, n, groups);
    bool known = false;
    for (size_t i = 0; i < n; i++)
        known |= !isnan(lines[i].max_abs);
    print_overflows(file, groups, count);
    if (known) {
        print_headroom(file, groups, count);
        print_elsewhere(file, lines, n);
    }
    return known;
}
