// SPDX-License-Identifier: GPL-3.0-or-later
/** harness compare: runs in groups, side by side, or against a baseline. */
#include "harness/cli/compare.h"
#include "harness/cli/near.h"
#include "harness/cli/take.h"
#include "harness/core/err.h"
#include "results/text.h"

#include <string.h>

enum format { TABLE, CSV, JSON };

struct request {
    const char *by[NH_MAX_BY];
    size_t n_by;
    const char *baseline;
    enum format format;
};

void nh_compare_help(FILE *file)
{
    fputs("Reads run folders, folders of run folders, sweeps, and CSV files with the columns of layers.csv,\n"
          "sites.csv, steps.csv or config.csv, in which many runs may be joined under one header. Runs with\n"
          "equal values of an option make a row, the most stable first, then by final RMS, then by final\n"
          "loss. Seeds are pooled: mean +- standard error. Runs of the same model, data and seed that differ\n"
          "in what they measure are one sample and count once.\n\n"
          "  --by NAME          an option of config.csv or a key column, may be repeated [layout]\n"
          "  --baseline LABEL   one row per other label: its changes against the runs with this label, means\n"
          "                     over the seeds that both have; with --by, within equal values of these\n"
          "  --csv, --json      for programs: all columns, empty or null where a value is not known\n\n"
          "Columns\n"
          "  status             how the runs ended; broken off: without a run.json. A group with diverged runs\n"
          "                     has no means and no extremes, because those of the rest would look stable\n"
          "  final rms, law     of the stream behind layer L at the last step, and by the layout's law\n"
          "  exponent, law's    p in depth^p, fitted to these where there are 3 depths; (se): its standard\n"
          "                     error from the scatter between seeds, whose depths share their weights\n"
          "  max|x|, headroom   largest of the stream, smallest in bits of a forward site; all steps and runs\n"
          "  grad ratio         squared RMS of the gradient at layer 0 over that behind layer L, geometric mean\n"
          "  steps, loss scale  steps done, loss scale of the last one; least..largest of the runs\n"
          "  final loss         mean over the last tenth of the steps\n"
          "  validation         last loss on what is held out\n"
          "  skipped, overflow  updates left out, values that overflowed forward: sums over all runs\n"
          "  first offender     the most frequent one, its steps, and in how many runs\n"
          "  pooled             what differs within the row, seeds apart; --by separates it\n",
          file);
}

static int unknown(const char *word)
{
    char wrong[80];
    snprintf(wrong, sizeof wrong, "%.*s", (int)strcspn(word, "="), word);
    struct nh_near near = nh_near_start(wrong + strspn(wrong, "-"), "--");
    static const char *const names[] = {"by", "baseline", "csv", "json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        nh_near_try(&near, names[i]);
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "compare has no option '%.60s'%s ('harness compare --help' shows all)", wrong,
                   nh_near_text(&near, hint));
}

static int take_by(struct request *r, const char *name)
{
    for (size_t k = 0; k < r->n_by; k++)
        if (strcmp(r->by[k], name) == 0)
            return nh_fail(NH_USAGE, "--by %.60s is given twice; keep one", name);
    if (r->n_by + 1 == NH_MAX_BY) /* the last is for the label */
        return nh_fail(NH_USAGE, "--by is given more than %d times", NH_MAX_BY - 1);
    r->by[r->n_by++] = name;
    return NH_OK;
}

static int take_format(struct request *r, enum format format)
{
    if (r->format != TABLE)
        return nh_fail(NH_USAGE, "--csv and --json are one choice; keep one of them");
    r->format = format;
    return NH_OK;
}

static int take_option(struct request *r, int argc, char **argv, int *at)
{
    const char *value = NULL;
    int status = nh_take_value(argc, argv, at, "--by", "NAME", &value);
    if (status == 1)
        return take_by(r, value);
    if (!status)
        status = nh_take_value(argc, argv, at, "--baseline", "LABEL", &value);
    if (status == 1) {
        if (r->baseline)
            return nh_fail(NH_USAGE, "--baseline is given twice; keep one");
        r->baseline = value;
        return NH_OK;
    }
    if (status)
        return status;
    if (strcmp(argv[*at], "--csv") == 0)
        return take_format(r, CSV);
    if (strcmp(argv[*at], "--json") == 0)
        return take_format(r, JSON);
    return unknown(argv[*at]);
}

/* Reads the options; the other words are left in argv[0..*n). */
static int parse(struct request *r, int argc, char **argv, int *n)
{
    *r = (struct request){.n_by = 0};
    *n = 0;
    int status = NH_OK;
    for (int at = 0; at < argc && !status; at++) {
        if (argv[at][0] == '-')
            status = take_option(r, argc, argv, &at);
        else
            argv[(*n)++] = argv[at];
    }
    if (!status && *n == 0)
        status = nh_fail(NH_USAGE, "compare takes folders or CSV files, such as 'harness compare results/runs' "
                                   "('harness compare --help' shows all)");
    return status;
}

/* The label comes last in by. */
static int group_by_label(struct request *r)
{
    for (size_t k = 0; k < r->n_by; k++)
        if (strcmp(r->by[k], "label") == 0)
            return nh_fail(NH_USAGE, "--baseline has one row per label already; leave --by label out");
    r->by[r->n_by++] = "label";
    return NH_OK;
}

/* Each label once, in quotes. */
static const char *list_labels(struct obstack *memory, const struct nh_group *groups, size_t n)
{
    for (const struct nh_group *g = groups; g < groups + n; g++) {
        const char *label = g->by[g->n_by - 1];
        bool before = *label == '\0';
        for (const struct nh_group *b = groups; b < g && !before; b++)
            before = strcmp(b->by[b->n_by - 1], label) == 0;
        if (!before)
            obstack_printf(memory, "%s'%s'", obstack_object_size(memory) ? ", " : "", label);
    }
    return nh_grown(memory);
}

static int check_baseline(const struct nh_group *groups, size_t n, const char *baseline, struct obstack *memory)
{
    bool there = false, others = false;
    for (const struct nh_group *g = groups; g < groups + n; g++) {
        const bool same = strcmp(g->by[g->n_by - 1], baseline) == 0;
        there = there || same;
        others = others || !same;
    }
    const char *labels = list_labels(memory, groups, n);
    if (!*labels)
        return nh_fail(NH_USAGE, "no run has a label; give runs one with --label to compare them with a baseline");
    if (!there)
        return nh_fail(NH_USAGE, "no run has the label '%.60s'; there are %.600s", baseline, labels);
    if (!others)
        return nh_fail(NH_USAGE, "all runs have the label '%.60s'; give others to compare with them", baseline);
    return NH_OK;
}

static int print(const struct nh_sheet *sheet, enum format format)
{
    if (format == JSON)
        return nh_sheet_print_json(sheet);
    format == CSV ? nh_sheet_print_csv(stdout, sheet) : nh_sheet_print(stdout, sheet);
    return NH_OK;
}

static int compare(struct nh_comparison *c, const struct request *r)
{
    struct nh_group *groups = NULL;
    size_t n = 0;
    struct nh_sheet sheet;
    int status = nh_comparison_group(c, r->by, r->n_by, &groups, &n);
    if (!status && c->conflict) {
        obstack_printf(&c->memory, " (as in %zu more)", c->conflicts - 1);
        nh_text_line(stderr, "harness: %s%s", c->conflict, c->conflicts > 1 ? nh_grown(&c->memory) : "");
    }
    if (!status && r->baseline)
        status = check_baseline(groups, n, r->baseline, &c->memory);
    if (status)
        return status;
    if (r->baseline)
        nh_sheet_changes(&sheet, &c->memory, r->by, groups, n, r->baseline);
    else
        nh_sheet_groups(&sheet, &c->memory, r->by, groups, n);
    return print(&sheet, r->format);
}

int nh_cmd_compare(int argc, char **argv)
{
    struct request r;
    int n;
    int status = parse(&r, argc, argv, &n);
    if (!status && r.baseline)
        status = group_by_label(&r);
    if (!status && r.n_by == 0)
        r.by[r.n_by++] = "layout";
    if (status)
        return status;
    struct nh_comparison c;
    nh_comparison_init(&c);
    for (int i = 0; i < n && !status; i++)
        status = nh_comparison_load(&c, argv[i]);
    if (!status)
        status = nh_comparison_finish(&c);
    if (!status)
        status = compare(&c, &r);
    nh_comparison_fini(&c);
    return status;
}
