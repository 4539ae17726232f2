// SPDX-License-Identifier: GPL-3.0-or-later
/** dump_compare FOLDER DUMP64 DUMP32: a dump in fp64 against what a folder of tests/data/golden expects, every row of its
 *  expected.csv and every tensor of its expected.safetensors to 1e-10; and one in fp32 against that in fp64: the norm of what
 *  differs, over the norm, is at most 5 times what float32_check.csv has for the tensor or, where that is more, for the median of
 *  its kind, or 2 ulp. Prints one line; 1 where something is beyond or missing. */
#include "harness/core/err.h"
#include "harness/io/safetensors.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1000, MAX_COLUMNS = 8 };
static const double tolerance = 1e-10, ulps = 2 * 0x1p-23;

struct row {
    char text[400];
    char *cells[MAX_COLUMNS];
};

static struct row expected[MAX_ROWS], narrow[MAX_ROWS];
static int bad;

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, nh_error());
    exit(1);
}

/* Rows of a CSV file without quotes, the header left out. */
static int read_rows(const char *folder, const char *name, struct row *rows)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    int n = -1;
    if (!f)
        die(path);
    for (char line[400]; n < MAX_ROWS && fgets(line, sizeof line, f); n++) {
        if (n < 0)
            continue;
        strcpy(rows[n].text, line);
        char *rest = rows[n].text;
        for (int c = 0; c < MAX_COLUMNS && rest; c++)
            rows[n].cells[c] = strsep(&rest, ",\n");
    }
    fclose(f);
    return n;
}

static struct nh_safetensors *open_file(const char *path)
{
    struct nh_safetensors *s;
    if (nh_safetensors_open(&s, path))
        die(path);
    return s;
}

static double *numbers(const struct nh_tensor *t)
{
    double *x = malloc((t->count + 1) * sizeof *x);
    if (!x)
        die(t->name);
    nh_tensor_read(t, x);
    return x;
}

static double distance(const double *x, const double *y, size_t n)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++)
        d += (x[i] - y[i]) * (x[i] - y[i]), s += y[i] * y[i];
    return sqrt(d) / (s > 0 ? sqrt(s) : 1);
}

/** The largest of what differs between a tensor and its row, relative to the size of the tensor. */
static double row_distance(const double *x, size_t n, char *const *want)
{
    double l2 = 0, top = 0, sum = 0, probe = 0, w[4];
    for (size_t i = 0; i < n; i++) {
        const double place = (double)(uint32_t)(i * UINT64_C(2654435761)) / 0x1p32 - 0.5;
        l2 += x[i] * x[i], sum += x[i], probe += x[i] * place, top = fmax(top, fabs(x[i]));
    }
    for (int k = 0; k < 4; k++)
        w[k] = strtod(want[k], NULL);
    const double scale = (w[0] > 0 ? w[0] : 1) * sqrt((double)n);
    const double parts[] = {fabs(sqrt(l2) - w[0]) / (w[0] > 0 ? w[0] : 1), fabs(top - w[1]) / (w[1] > 0 ? w[1] : 1),
                            fabs(sum - w[2]) / scale, fabs(probe - w[3]) / scale};
    return fmax(fmax(parts[0], parts[1]), fmax(parts[2], parts[3]));
}

static void judge(double d, double limit, const char *name, const char *what)
{
    if (d <= limit)
        return;
    fprintf(stderr, "%s differs by %.3g %s, more than %.3g\n", name, d, what, limit);
    bad++;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of_kind(const char *kind, int n_rows)
{
    static double of[MAX_ROWS];
    size_t n = 0;
    for (int i = 0; i < n_rows; i++)
        if (strcmp(narrow[i].cells[0], kind) == 0)
            of[n++] = strtod(narrow[i].cells[3], NULL);
    qsort(of, n, sizeof *of, ascending);
    return (of[(n - 1) / 2] + of[n / 2]) / 2;
}

static bool has_shape(const struct nh_tensor *t, const char *text)
{
    char is[NH_SHAPE_TEXT] = "";
    for (int d = 0; d < t->shape.rank; d++)
        snprintf(is + strlen(is), sizeof is - strlen(is), "%s%zu", d ? "x" : "", t->shape.dims[d]);
    return strcmp(is, text) == 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    char path[4096];
    snprintf(path, sizeof path, "%s/expected.safetensors", argv[1]);
    struct nh_safetensors *whole = open_file(path), *wide = open_file(argv[2]), *half = open_file(argv[3]);
    const int n = read_rows(argv[1], "expected.csv", expected), n_narrow = read_rows(argv[1], "float32_check.csv", narrow);
    double worst = 0, worst32 = 0;
    for (int i = 0; i < n; i++) {
        const char *name = expected[i].cells[1];
        const struct nh_tensor *t = nh_safetensors_find(wide, name), *w = nh_safetensors_find(whole, name);
        if (!t || t->type != NH_TENSOR_F64 || !has_shape(t, expected[i].cells[2])) {
            judge((double)INFINITY, 0, name, "in fp64: it is missing, or of another type or shape;");
            continue;
        }
        double *x = numbers(t), *y = w ? numbers(w) : NULL;
        const double d = fmax(row_distance(x, t->count, expected[i].cells + 3), w ? distance(x, y, t->count) : 0);
        judge(d, tolerance, name, "in fp64");
        worst = fmax(worst, d);
        free(x), free(y);
    }
    for (int i = 0; i < n_narrow; i++) {
        const char *name = narrow[i].cells[1];
        const struct nh_tensor *t = nh_safetensors_find(half, name), *w = nh_safetensors_find(wide, name);
        if (!t || t->type != NH_TENSOR_F32 || !w) {
            judge((double)INFINITY, 0, name, "in fp32: it is missing or of another type;");
            continue;
        }
        double *x = numbers(t), *y = numbers(w), own = strtod(narrow[i].cells[3], NULL);
        const double limit = fmax(5 * fmax(own, median_of_kind(narrow[i].cells[0], n_narrow)), ulps), d = distance(x, y, t->count);
        judge(d, limit, name, "in fp32");
        worst32 = fmax(worst32, d / limit);
        free(x), free(y);
    }
    printf("%d rows, worst %.2g in fp64; %.2g of the limit in fp32\n", n, worst, worst32);
    nh_safetensors_close(whole), nh_safetensors_close(wide), nh_safetensors_close(half);
    return n < 1 || n_narrow < 1 || bad > 0;
}
