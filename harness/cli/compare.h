// SPDX-License-Identifier: GPL-3.0-or-later
/** harness compare: runs are read (compare_load.c, compare_read.c), grouped (compare_group.c), summarised
 * (compare_stats.c), made rows of a sheet (compare_rows.c), and printed (sheet.c). All that is read or made
 * stays until nh_comparison_fini. */
#ifndef NH_COMPARE_H
#define NH_COMPARE_H

#include "harness/cli/sheet.h"

#include <obstack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** The command, and what its help says beyond the usage. */
int nh_cmd_compare(int argc, char **argv);
void nh_compare_help(FILE *file);

/* ---- memory ---- */

/** Memory that stays until the end, and text that has grown on the obstack (obstack_printf). Without memory the program
 *  ends with one sentence and exit code 1. */
void *nh_alloc(struct obstack *memory, size_t size);
const char *nh_grown(struct obstack *memory);
const char *nh_copy(struct obstack *memory, const char *text);

/* ---- runs ---- */

/** The columns that tell runs apart: those of results/schema.def up to the step, in their order. */
enum nh_key {
    NH_KEY_RUN,
    NH_KEY_LABEL,
    NH_KEY_LAYOUT,
    NH_KEY_DEPTH,
    NH_KEY_DTYPE,
    NH_KEY_POLICY,
    NH_KEY_INIT,
    NH_KEY_SEED,
    NH_KEY_COUNT
};
const char *nh_key_name(enum nh_key key);

/** A number that may not have been measured; NaN and inf are measured. */
struct nh_measure {
    bool known;
    double value;
};

/** What is measured of each run. Extremes and sums are over all steps and layers, what else is of the stream of the last step. */
enum nh_quantity {
    NH_FINAL_RMS,      /**< stream 0 behind the last sublayer of layer L */
    NH_LAW_RMS,        /**< rms_theory there */
    NH_MAX_ABS,        /**< largest |x| of the stream */
    NH_HEADROOM,       /**< smallest headroom_bits of a forward site */
    NH_LOG_GRAD_RATIO, /**< ln of grad_rms^2 at layer 0 over grad_rms^2 where the final RMS is */
    NH_OVERFLOWS,      /**< values, forward; of all steps where there is steps.csv, else of those with rows in layers.csv */
    NH_FINAL_LOSS,     /**< mean over the last tenth of the steps */
    NH_VAL_LOSS,       /**< the last one */
    NH_LOSS_SCALE,     /**< of the last step */
    NH_SKIPPED,        /**< updates left out */
    NH_STEPS_DONE,
    NH_QUANTITIES
};

/** Broken off: there is no run.json, but files that a run is still writing, or was when it was killed. */
enum nh_outcome { NH_OUTCOME_OK, NH_OUTCOME_OVERFLOWED, NH_OUTCOME_DIVERGED, NH_OUTCOME_INTERRUPTED, NH_OUTCOME_BROKEN_OFF, NH_OUTCOMES };
extern const char *const nh_outcome_names[NH_OUTCOMES];

/** The outcome that a run.json calls by this name (NULL allowed); NH_OUTCOMES for none. */
enum nh_outcome nh_outcome_find(const char *status);

/** Where something happened, and when. */
struct nh_place {
    bool known;
    int layer;                                 /**< -1 = not told */
    int step;                                  /**< of training; -1 = not told */
    char sublayer[16], site[32], direction[8]; /**< "" = not told */
};

/** What config.csv and run.json say of a run: those of a folder with the same run id. */
struct nh_run_info {
    const char *run, *folder; /**< folder "": of a CSV file that was given by itself */
    struct nh_run_option {
        const char *name, *value;
        struct nh_run_option *next;
    } * options, **end;
    bool has_run; /**< rows with its id were read */
    bool broken_off;
    bool recorded; /**< there is a run.json; it told the following */
    enum nh_outcome outcome;
    struct nh_place first;
    struct nh_measure of[NH_QUANTITIES];
};

/** Where the values of a run come from; each comes from one file. */
enum nh_source { NH_FROM_LAYERS, NH_FROM_SITES, NH_FROM_STEPS, NH_FROM_RECORD, NH_SOURCES };

struct nh_compared {
    const char *keys[NH_KEY_COUNT];
    double depth;
    struct nh_measure of[NH_QUANTITIES];
    struct nh_place tightest; /**< where the headroom is smallest */
    enum nh_outcome outcome;
    struct nh_place first; /**< first offender */
    double step;           /**< that the values of the stream are of; -1 = none */
    const struct nh_run_info *info;
    struct nh_compared *next;

    /* of reading */
    const char *source[NH_SOURCES];
    int rank; /**< of the sublayer that the final values come from; 0 = none yet */
    double grad_step, last_step;
    struct nh_measure grad_first, grad_last, layers_overflow;
    struct nh_place first_row, first_site, first_step;
    struct nh_loss {
        double step, loss;
        struct nh_loss *next;
    } * losses, **losses_end;
};

struct nh_comparison {
    struct obstack memory;
    struct nh_compared *runs, **end;
    void *by_keys, *by_id, *seen; /**< trees of tsearch(3): runs by all keys, infos by run and folder, paths that were read */
    struct nh_folder {
        const char *path;
        struct nh_folder *next;
    } * sweeps;           /**< folders with joined tables beside their cells */
    const char *conflict; /**< a sentence: how runs of one sample differ; NULL = they agree */
    size_t conflicts;
};

void nh_comparison_init(struct nh_comparison *c);
void nh_comparison_fini(struct nh_comparison *c);

/** Reads a run folder, all run folders below a folder, or one CSV file with what lies beside it: config.csv, run.json, run.json of
 *  the folders there. A folder with joined tables and run folders is read by the latter. What was read before is not read again. A
 *  run that cannot be read as it was written is NH_FAILED. */
int nh_comparison_load(struct nh_comparison *c, const char *path);

/** Reads one CSV file: layers, sites, steps or config, by its columns. info: of the only run in it; NULL = by run id, of the folder.
 *  broken_off: what follows the last whole line is left out. */
int nh_comparison_read(struct nh_comparison *c, const char *path, struct nh_run_info *info, const char *folder, bool broken_off);

/** The run of these keys (depth unset), made where it is new, with values from one source. NH_FAILED where a run of these keys has
 *  values from another file of that kind. */
int nh_compared_find(struct nh_comparison *c, struct nh_compared *keys, struct nh_run_info *info, enum nh_source source, const char *path,
                     struct nh_compared **run);

/** Reads run.json. The info is that of its run in the folder, or *info if that is not NULL. check: its files must be there with the
 *  sizes that it tells; a run whose tables told nothing is made of its config. */
int nh_record_read(struct nh_comparison *c, const char *path, const char *folder, struct nh_run_info *info, bool check);

/** After the last load: the outcome and first offender of each run, from run.json, else from the rows: diverged = the final RMS or
 *  the last loss is not finite, or the final loss is above that of the first step by more than 1; interrupted = there is no row behind
 *  layer L, or less steps than asked for. NH_FAILED where there is no run. */
int nh_comparison_finish(struct nh_comparison *c);

/** True where value lies beyond the extreme so far, upwards (sign 1) or downwards (-1). NaN lies beyond all but
 * infinity. */
bool nh_beyond(const struct nh_measure *extreme, double value, int sign);

/** What is known of the run with this id in this folder, made where it is new. */
struct nh_run_info *nh_run_info_find(struct nh_comparison *c, const char *id, const char *folder);

/** Adds an option at the end. */
void nh_run_info_add(struct nh_comparison *c, struct nh_run_info *info, const char *name, const char *value);

void nh_place_set(struct nh_place *place, double step, double layer, const char *sublayer, const char *site, const char *direction);

/** A key or an option of config.csv by name; NULL where the run does not tell it. */
const char *nh_compared_value(const struct nh_compared *run, const char *name);

/* ---- statistics ---- */

/** Mean and its standard error over n values; n = 0: none. se is NaN where it cannot be known. */
struct nh_estimate {
    size_t n;
    double mean, se;
};

struct nh_estimate nh_estimate_mean(const double *values, size_t n);

/** a - b of independent estimates. */
struct nh_estimate nh_estimate_difference(struct nh_estimate a, struct nh_estimate b);

/** p of y ~ depth^p by least squares on the logarithms, one point a run, and its standard error with the runs of a seed
 *  as one cluster; runs of a seed stand together. None where there are less than 3 depths. */
struct nh_estimate nh_estimate_exponent(struct obstack *memory, const double *depth, const double *y,
                                        const char *const *seeds, size_t n);

/** Wilson's 95 % interval of the rate of k in n. */
void nh_wilson(size_t k, size_t n, double *low, double *high);

/* ---- groups ---- */

struct nh_group {
    const char *const *by; /**< values of the n_by options that it is grouped by */
    size_t n_by;
    struct nh_compared *const *runs; /**< n, in the order of their seeds; those of one sample (model, data, seed) are one */
    size_t n;
    size_t outcomes[NH_OUTCOMES];
    struct nh_measure overflows, skipped;           /**< sums over the runs where they were measured */
    struct nh_measure loss_scale[2], steps_done[2]; /**< least and largest of the runs */
    struct nh_place first; /**< most frequent first offender, in first_runs of them; its step is the first of theirs */
    size_t first_runs;
    int first_step_last; /**< the last of theirs; -1 = not told */
    const char *pooled;  /**< what else differs among them: "depth, dtype" */

    /* Of a group with a diverged run all of the following are unknown: what is left of it would look stable. */
    struct nh_estimate rms, law, exponent, law_exponent, log_grad_ratio, final_loss, val_loss;
    struct nh_measure max_abs, headroom; /**< extremes over the runs */
    struct nh_place tightest;
};

/** Groups the runs by values of options; the most stable first (smallest share diverged), then by final RMS. NH_USAGE
 *  where no run tells an option; a run that does not, where others do, has the value "". Runs of one sample in a group are joined:
 *  what one of them has measured is that of the sample; what they differ in goes to c->conflict. */
int nh_comparison_group(struct nh_comparison *c, const char *const *by, size_t n_by, struct nh_group **groups,
                        size_t *n);

/** Fills in all that follows from the runs of a group but pooled. */
void nh_group_summarise(struct obstack *memory, struct nh_group *g);

/** Order of two runs by seed, as numbers: below, at or above 0. */
int nh_seed_order(const struct nh_compared *a, const struct nh_compared *b);

/** The change of a quantity from one group to another: mean over the seeds in both of the difference of their means, or
 *  where there is no such seed, the difference of all. *pairs: seeds in both. None where a run of either diverged. */
struct nh_estimate nh_group_change(struct obstack *memory, const struct nh_group *from, const struct nh_group *to,
                                   enum nh_quantity q, size_t *pairs);

/* ---- tables ---- */

enum { NH_MAX_BY = 16 };

/** One row a group; by: the n_by names that they were grouped by, at most NH_MAX_BY. */
void nh_sheet_groups(struct nh_sheet *sheet, struct obstack *memory, const char *const *by,
                     const struct nh_group *groups, size_t n);

/** One row a group of another label than baseline: changes against the group of that label with all other values equal.
 *  The label is the last of by. */
void nh_sheet_changes(struct nh_sheet *sheet, struct obstack *memory, const char *const *by,
                      const struct nh_group *groups, size_t n, const char *baseline);

#endif
