// SPDX-License-Identifier: GPL-3.0-or-later
/** What a study came to, for people and for programs. */
#include "harness/cli/study.h"
#include "harness/core/err.h"
#include "results/file.h"
#include "results/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- on the terminal ---- */

static size_t count(const struct nh_finding *findings, size_t n, enum nh_verdict verdict)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += findings[i].verdict == verdict;
    return k;
}

/* "reproduced (17 of 20 expectations hold, 2 fail)". */
static void put_verdict(FILE *file, const struct nh_study *study, const struct nh_finding *findings)
{
    const size_t n = study->n_expectations, fail = count(findings, n, NH_FAILS);
    fprintf(file, "%s (%zu of %zu expectations hold, %zu fail%s)", nh_study_verdict(study->expectations, findings, n),
            count(findings, n, NH_HOLDS), n, fail, fail == 1 ? "s" : "");
}

void nh_study_print(struct nh_study *study, const struct nh_finding *findings)
{
    static const char *const decides[NH_DECIDES] = {"", "[claim] ", "[scale] "};
    for (size_t i = 0; i < study->n_tables; i++) {
        const struct nh_sheet sheet = nh_study_sheet(study, &study->tables[i]);
        if (sheet.n_rows == 0) /* of a sweep that is not part of --quick */
            continue;
        nh_text_line(stdout, "%s", study->tables[i].title);
        nh_sheet_print(stdout, &sheet);
        putchar('\n');
    }
    for (size_t i = 0; i < study->n_expectations; i++) {
        const struct nh_expectation *e = &study->expectations[i];
        nh_text_line(stdout, "%-14s%s%s", nh_verdict_names[findings[i].verdict], decides[e->decides], e->text);
        nh_text_line(stdout, "%14s%s %s: %s", "", e->measure, findings[i].wanted, findings[i].measured);
    }
    putchar('\n');
    nh_text_put(stdout, study->name);
    fputs(": ", stdout);
    put_verdict(stdout, study, findings);
    putchar('\n');
}

/* ---- files ---- */

static void put_report(FILE *file, struct nh_study *study, const struct nh_finding *findings, bool quick,
                       const bool *drawn)
{
    nh_text_line(file, "# %s", study->title);
    fputs("\n**", file);
    put_verdict(file, study, findings);
    fputs("**\n\n", file);
    nh_text_line(file, "Claim: %s", study->claim);
    fputc('\n', file);
    nh_text_line(file, "Source: %s", study->source);
    fputc('\n', file);
    nh_text_line(file, "Written by `harness study %s%s` from %zu runs. %s", study->name, quick ? " --quick" : "", study->n_runs,
                 study->cost);

    fputs("\n## Expectations\n\nThe verdict follows from those that decide: first whether this is the scale to show "
          "anything, then the "
          "claim.\n\n",
          file);
    const struct nh_sheet expectations = nh_study_findings(study, findings);
    nh_sheet_print_markdown(file, &expectations);

    fputs("\n## Runs\n\nMedian [least, largest]; losses are means +- standard deviations, unless a run diverged; > N: "
          "not within N steps; "
          "diverged: with Wilson's 95 % interval.\n",
          file);
    for (size_t i = 0; i < study->n_tables; i++) {
        const struct nh_sheet sheet = nh_study_sheet(study, &study->tables[i]);
        if (sheet.n_rows == 0)
            continue;
        fputc('\n', file);
        nh_text_line(file, "### %s", study->tables[i].title);
        fputc('\n', file);
        nh_sheet_print_markdown(file, &sheet);
    }

    for (size_t i = 0; i < study->n_figures; i++)
        if (drawn[i]) {
            fputc('\n', file);
            nh_text_line(file, "![%s](%s)", study->figures[i].caption, study->figures[i].file);
        }

    fputs("\n## What it cannot show\n\n", file);
    nh_text_line(file, "%s", study->cannot_show);
    fputs("\n## Sweeps\n\n", file);
    nh_text_line(file, "With these options of all: `%s`", study->options);
    fputc('\n', file);
    for (size_t i = 0; i < study->n_sweeps; i++) {
        const struct nh_study_sweep *s = &study->sweeps[i];
        if (s->quick || !quick)
            nh_text_line(file, "- %s: `harness/sweep.sh --seeds %s %s`", s->name, nh_sweep_seeds(s, quick), nh_sweep_args(s, quick));
    }
}

static void put_tables(FILE *file, struct nh_study *study, const struct nh_finding *findings, bool quick,
                       const bool *drawn)
{
    (void)findings, (void)quick, (void)drawn;
    const struct nh_sheet all = nh_study_all(study);
    nh_sheet_print_csv(file, &all);
}

static void put_expectations(FILE *file, struct nh_study *study, const struct nh_finding *findings, bool quick,
                             const bool *drawn)
{
    (void)quick, (void)drawn;
    const struct nh_sheet sheet = nh_study_findings(study, findings);
    nh_sheet_print_csv(file, &sheet);
}

int nh_study_write(struct nh_study *study, const char *folder, const struct nh_finding *findings, bool quick,
                   const bool *drawn)
{
    static const struct {
        const char *name;
        void (*put)(FILE *file, struct nh_study *study, const struct nh_finding *findings, bool quick,
                    const bool *drawn);
    } files[] = {{"table.csv", put_tables}, {"expectations.csv", put_expectations}, {"report.md", put_report}};
    int status = NH_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && !status; i++) {
        char *text = NULL;
        size_t size;
        FILE *file = open_memstream(&text, &size);
        obstack_printf(&study->memory, "%s/%s", folder, files[i].name);
        const char *path = nh_grown(&study->memory);
        if (file)
            files[i].put(file, study, findings, quick, drawn);
        if (!file || fclose(file))
            status = nh_fail(NH_FAILED, "out of memory for %.500s", path);
        if (!status)
            status = nh_file_write(path, text, size);
        free(text);
    }
    return status;
}
