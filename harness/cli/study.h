// SPDX-License-Identifier: GPL-3.0-or-later
/** harness study: a claim, what to run for it, and what is expected, all of it data (docs/studies.md). study.json is
 * read (study_read.c, study_args.c), its sweeps are run (cmd_study.c), their runs read (study_runs.c) and measured
 * (study_measures.c), shown (study_tables.c) and held against the expectations (study_tests.c) by statistics
 * (study_stats.c), and all is written down (study_report.c). What is read or made stays until nh_study_fini. */
#ifndef NH_STUDY_H
#define NH_STUDY_H

#include "harness/cli/compare.h"

#include <jansson.h>

/** The command, and what its help says beyond the usage. */
int nh_cmd_study(int argc, char **argv);
void nh_study_help(FILE *file);

/** Where studies are in the source tree. */
#define NH_STUDIES NH_SOURCE_ROOT "/results/studies"

/** Name and title of the i-th study of a folder, by name; room is theirs. False behind the last. */
bool nh_study_row(const char *studies, size_t i, const char *cells[2], char *room, size_t size);

/* ---- what stands in study.json ---- */

struct nh_words {
    const char **words;
    size_t n;
};

/** Closed; an open end is infinite. */
struct nh_range {
    double low, high;
};

/** One call of harness/sweep.sh. */
struct nh_study_sweep {
    const char *name, *args, *seeds, *quick_args, *quick_seeds; /**< NULL = the same when quick */
    bool quick;                                                 /**< part of --quick */
};

/** What it is called with, --quick or not. */
const char *nh_sweep_args(const struct nh_study_sweep *sweep, bool quick);
const char *nh_sweep_seeds(const struct nh_study_sweep *sweep, bool quick);

/** One call of harness/sweep.sh: args and seeds with the names of their fields in study.json, options of all sweeps. */
struct nh_study_call {
    const char *args_field, *args, *seeds_field, *seeds, *options;
};

/** NH_FAILED and one sentence, begun with `place`, where the call names an option that is not for a study to say, a value is wrong
 * with the first values of what else is varied, or there twice, or the cells are too many. */
int nh_study_check_call(struct obstack *memory, const char *place, struct nh_study_call call);

/** Runs with equal values of `by` make a row. Which runs: `where`, an object OPTION: value or list of values; "sweep"
 * is an option of every run. */
struct nh_study_table {
    const char *title;
    const json_t *where;
    struct nh_words by, measures;
};

/** What an expectation asks of a group of runs. */
enum nh_test {
    NH_TEST_SHARE, /**< at least a share of the values is in the range, or one of the words */
    NH_TEST_RARER, /**< such values are rarer than in another group, by Fisher's exact test */
    NH_TEST_RATIO, /**< the median over that of another group is in the range */
    NH_TEST_SLOPE, /**< so is the exponent of the values as a power of an option */
    NH_TEST_ORDER, /**< medians of several groups rise */
    NH_TESTS
};
extern const char *const nh_test_names[NH_TESTS + 1];

/** What follows where it fails: nothing, the claim is refuted, or this is not the scale to show it. */
enum nh_decides { NH_DECIDES_NOTHING, NH_DECIDES_CLAIM, NH_DECIDES_SCALE, NH_DECIDES };
extern const char *const nh_decides_names[NH_DECIDES + 1];

struct nh_expectation {
    const char *text, *test_name, *decides_name, *measure;
    enum nh_test test;
    enum nh_decides decides;
    const json_t *where;
    size_t runs; /**< a group of fewer tells nothing */

    struct nh_range within; /**< NAN where there are words instead */
    struct nh_words is;
    double at_least;    /**< share */
    const json_t *than; /**< rarer: what is other about the other group */
    double p;           /**< below which a difference counts */
    const json_t *to;   /**< ratio: the same */
    const char *on;     /**< slope: the option */
    const json_t *of;   /**< order: a list of them, in rising order */
};

struct nh_study_figure {
    const char *figure, *file, *set, *caption; /**< set: NAME=VALUE ..., NULL = none */
    const json_t *where;
};

struct nh_study {
    struct obstack memory;
    json_t *root;
    const char *name, *path;
    const char *title, *claim, *source, *cannot_show, *cost, *options; /**< options: of every sweep, "" = none */
    struct nh_study_sweep *sweeps;
    struct nh_study_table *tables;
    struct nh_expectation *expectations;
    struct nh_study_figure *figures;
    size_t n_sweeps, n_tables, n_expectations, n_figures;
    const struct nh_measured *measured; /**< all measures that occur */
    size_t n_measured;

    struct nh_study_run *runs;
    size_t n_runs;
};

void nh_study_init(struct nh_study *study);
void nh_study_fini(struct nh_study *study);

enum { NH_STUDY_BYTES = 1 << 20 }; /**< the largest study.json that is read */

/** Reads FOLDER/study.json. NH_FAILED where it is broken: one sentence with the place and what would work. */
int nh_study_read(struct nh_study *study, const char *folder);

/* ---- measures ---- */

/** A value of a run: not known, a number, more than a number (an event that did not come in so many steps), or a word.
 */
struct nh_reading {
    enum { NH_READING_NONE, NH_READING_NUMBER, NH_READING_BEYOND, NH_READING_WORD } sort;
    double number;
    const char *word;
};

/** How the values of a group are shown: median [least, largest]; mean +- standard deviation, unless a run diverged; the
 * most frequent word. */
enum nh_showing { NH_SHOW_MEDIAN, NH_SHOW_MEAN, NH_SHOW_WORD };

struct nh_run_facts;

struct nh_study_measure {
    const char *name, *what;
    enum nh_showing showing;
    bool of_steps; /**< read from steps.csv */
    bool of_seed;  /**< one value a seed, the LR sensitivity of its runs */
    struct nh_reading (*of)(const struct nh_run_facts *r);
};
extern const struct nh_study_measure nh_study_measures[]; /**< closed by a NULL name */

/** A measure of the list, or COLUMN@STEP: of steps.csv. */
struct nh_measured {
    const char *name;
    const struct nh_study_measure *measure; /**< NULL: COLUMN@STEP */
    const char *column;
    double step;
};

/** NH_FAILED and one sentence, begun with `place`, where there is no such measure. */
int nh_measured_find(struct nh_measured *m, struct obstack *memory, const char *name, const char *place);

/** All measures of a run, from its run.json and, where needed, its steps.csv. */
int nh_measure_run(struct nh_reading *values, const struct nh_measured *measured, size_t n, const json_t *record,
                   const char *folder);

/* ---- runs ---- */

/** Runs of one sample (model, data and seed) that differ in what they measure count once: what each of them has measured is joined. */
struct nh_study_run {
    const char *sweep, *folder;
    json_t *record;     /**< its run.json */
    const char *sample; /**< NULL: not recorded, the run is a sample of its own */
    enum nh_outcome outcome;
    struct nh_reading *values; /**< by study->measured */
};

/** Adds the runs of a finished sweep, in the order of its job list. */
int nh_study_load(struct nh_study *study, const char *sweep, const char *folder);

/** The value of an option, or of "sweep"; NULL where the run has none. */
const char *nh_study_option(const struct nh_study_run *run, const char *name);

/** The first two runs of one sample whose values of a measure differ, in one sentence; NULL where all agree. */
const char *nh_study_conflict(struct nh_study *study);

/** Runs of equal values. */
struct nh_study_group {
    const struct nh_study_run **runs;
    size_t n;
};

/** The runs with these values and, where other is not NULL, those of `other` in the place of theirs. */
struct nh_study_group nh_study_select(struct nh_study *study, const json_t *where, const json_t *other);

/** Splits a group by equal values of options, in the order of their first runs; runs of one sample in a group are one. */
struct nh_study_group *nh_study_groups(struct nh_study *study, struct nh_study_group all, struct nh_words by,
                                       size_t *n);

/** The values of a measure over a group: one a sample, or one a seed; those not known included. name: one of
 * study->measured. */
struct nh_reading *nh_study_values(struct nh_study *study, struct nh_study_group group, const char *name, size_t *n);

/* ---- statistics ---- */

/** P(at most k of n) where both groups have the same rate and k + other_k of n + other_n are given: Fisher's exact
 * test, one side. */
double nh_fisher(size_t k, size_t n, size_t other_k, size_t other_n);

/** Of the known numbers: least, median, largest. What is beyond is above all equal numbers, NaN above all. The median
 * of two of which one is beyond is beyond their mean. */
struct nh_spread {
    size_t n;
    struct nh_reading least, median, largest;
};
struct nh_spread nh_spread(struct obstack *memory, const struct nh_reading *values, size_t n);

/** The most frequent word, and in how many of the values; the first of equals. NULL where there is none. */
const char *nh_mode(const struct nh_reading *values, size_t n, size_t *count);

/** Mean of the losses at each learning rate, a diverged run counting as its start, above the least of them
 *  (arXiv:2309.14322, eq. 1). */
double nh_lr_sensitivity(const double *losses, size_t n);

/* ---- expectations ---- */

enum nh_verdict { NH_HOLDS, NH_FAILS, NH_TOO_FEW, NH_CENSORED, NH_VERDICTS };
extern const char *const nh_verdict_names[NH_VERDICTS];

struct nh_finding {
    enum nh_verdict verdict;
    const char *measured, *wanted;
};

struct nh_finding nh_study_judge(struct nh_study *study, const struct nh_expectation *e);

/** "reproduced", "refuted", "not at this scale" or "inconclusive". The scale comes first: where that is not given,
 * nothing can be said of the claim. */
const char *nh_study_verdict(const struct nh_expectation *expectations, const struct nh_finding *findings, size_t n);

/** "40", "> 40", "residual", "" = not known. */
const char *nh_reading_text(struct obstack *memory, struct nh_reading value);

/** "layout=pre, lr=0.1|0.2". */
const char *nh_where_text(struct obstack *memory, const json_t *where);

/** "14 [11, 17]"; one number where all are the same. */
const char *nh_spread_text(struct obstack *memory, struct nh_spread s);

/* ---- what is written ---- */

/** One table for people; or all in one, for programs. */
struct nh_sheet nh_study_sheet(struct nh_study *study, const struct nh_study_table *table);
struct nh_sheet nh_study_all(struct nh_study *study);

/** The expectations with their findings. */
struct nh_sheet nh_study_findings(struct nh_study *study, const struct nh_finding *findings);

/** Writes table.csv, expectations.csv and report.md into a folder; drawn[i]: figure i is there. */
int nh_study_write(struct nh_study *study, const char *folder, const struct nh_finding *findings, bool quick,
                   const bool *drawn);

/** To stdout: tables, expectations, verdict. */
void nh_study_print(struct nh_study *study, const struct nh_finding *findings);

#endif
