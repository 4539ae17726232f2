// SPDX-License-Identifier: GPL-3.0-or-later
/** A run in its parts: cmd_run.c goes through them, plan.c tells what it would take, measure.c asks the probes, training.c trains,
 *  record.c writes the tables, run_json.c the record of the run, checkpoint.c what a run goes on from, trained.c makes a model of
 *  that, report.c the short table. */
#ifndef NH_RUN_H
#define NH_RUN_H

#include "harness/cli/options.h"
#include "harness/core/train.h"
#include "harness/data/data.h"
#include "probes/probe.h"
#include "results/file.h"

/** Changes with every change that moves a number of the results: part of the name of a run. */
#define NH_NUMERICS_VERSION 4

enum nh_run_status { NH_RUN_OK, NH_RUN_OVERFLOWED, NH_RUN_DIVERGED, NH_RUN_INTERRUPTED };
extern const char *const nh_run_status_names[];

struct nh_record;

struct nh_run {
    struct nh_options options;
    struct nh_data *data, *held_out; /**< held_out: NULL where nothing is validated */
    struct nh_model model, shadow;   /**< shadow.graph is NULL where no probe needs it */
    struct nh_model wide;            /**< the fp32 twin; likewise */
    struct nh_trainer trainer;       /**< where steps > 0 */
    struct nh_rows rows;             /**< of the last measured step */
    int measured;                    /**< that step */
    double *rms_theory;              /**< per row; nan = none */
    const struct nh_counts *counts;  /**< of the step at hand: sites x directions */
    double loss, loss_scale, wall_s;
    bool validated; /**< behind the step at hand */
    bool backward;
    enum nh_run_status status;
    int signal; /**< that interrupted it, 0 = none */
    struct nh_record *record;
    char id[NH_NAME_SIZE], sample[NH_NAME_SIZE], *dir;
};

/** Seconds on a clock that only goes forward. */
double nh_seconds(void);

/** A line of talk about what is going on, on a terminal only; "" wipes it. */
void nh_stage(const char *what);

/* cmd_run.c */

/** Opens the data, takes the sizes that are up to it, and finds the tensors of a checkpoint. */
int nh_run_open(struct nh_run *run);

/* plan.c */

/** What a probe of the run reads: gradients, the fp64 twin, the fp32 twin. */
enum nh_needed { NH_NEEDED_BACKWARD, NH_NEEDED_SHADOW, NH_NEEDED_WIDE };
bool nh_run_needs(const struct nh_config *c, enum nh_needed what);

/** True where a single forward pass is all that is asked of weights from a checkpoint: then it is streamed. */
bool nh_run_is_streamed(const struct nh_config *c);

/** True where a probe of the run reads the layout's law and there is one. */
bool nh_run_needs_law(const struct nh_config *c);

/** Refuses what cannot fit, before anything is allocated or written; with --dry-run tells what it would take. */
int nh_run_plan(const struct nh_run *run);

/* measure.c */

/** Room for the rows, and the law of the stream on the measured input of the forward pass that has just run. */
int nh_measure_begin(struct nh_run *run);

/** Asks the probes about one step of a forward pass that is streamed; arg: the run. */
void nh_measure_step(void *arg, int step);

/** Asks all probes about the passes that have just run. */
int nh_measure(struct nh_run *run);

/* training.c */

/** Batches of what is held out, each time that it is looked at. */
enum { NH_VALIDATION_BATCHES = 8 };

/** All steps that are left; the tables grow as it goes. Ends early, with the status, where the run diverges or is interrupted. */
int nh_run_train(struct nh_run *run);

/* record.c */

/** What stands in the folder of the run. */
enum nh_found { NH_FOUND_NOTHING, NH_FOUND_FINISHED, NH_FOUND_BROKEN_OFF };

/** NH_USAGE where the folder holds another run; NH_FOUND_BROKEN_OFF where there is a checkpoint of this one. */
int nh_record_find(struct nh_run *run, enum nh_found *found);

/** Makes the folder, takes its lock, and clears it, or where the run is resumed goes on with copies of its tables, cut to `extents`.
 *  finished: another process was faster. Free with nh_record_close. */
int nh_record_open(struct nh_run *run, const struct nh_extent extents[NH_TABLE_COUNT], bool *finished);

/** Writes the rows that were measured at a step. */
int nh_record_measured(struct nh_run *run, int step);

/** Writes of them the rows of the sites alone. */
int nh_record_sites(struct nh_run *run, int step);

/** Writes the row of a step of training, and lets it be seen in the file. */
int nh_record_step(struct nh_run *run, const struct nh_train_step *step);

/** Makes all rows so far safe on the disk and tells how far the tables go. */
int nh_record_sync(struct nh_run *run, struct nh_extent extents[NH_TABLE_COUNT]);

/** A checkpoint tells of the tables as they were synced: they stay whatever happens. */
void nh_record_keep(struct nh_run *run);

/** The row of config.csv behind the options: which sample the run is of. */
#define NH_SAMPLE_ROW "sample"

/** Writes config.csv. */
int nh_record_config(struct nh_run *run);

/** Gives the tables their names; run.json comes last. */
int nh_record_finish(struct nh_run *run);

/** Removes what is not finished, except the tables that a checkpoint tells of, and gives the lock back. */
void nh_record_close(struct nh_run *run);

/** Path of a file in the run's folder, to be freed. */
char *nh_run_path(const struct nh_run *run, const char *name);

/** Size of that file; negative where there is none, or where that cannot be told (see nh_error()). */
enum { NH_SIZE_MISSING = -1, NH_SIZE_UNKNOWN = -2 };
long long nh_run_file_size(const struct nh_run *run, const char *name);

/** The files of a run but run.json: tables and checkpoint. Closed by NULL. */
extern const char *const nh_run_files[];

/** log2 of the format's maximum over the largest |x|: -inf behind an overflow, inf for a tensor of zeros, nan where there is
 *  nothing but NaN. */
double nh_headroom_bits(const struct nh_fmt *format, const struct nh_counts *c);

/** The largest forward value of a site in the fp32 twin; nan where there is none. */
double nh_wide_max(const struct nh_run *run, int site);

/** The format that values of a site are rounded to in a direction. */
const struct nh_fmt *nh_site_format(const struct nh_graph *g, int site, enum nh_direction direction);

/* run_json.c */

/** First offences of the run. */
struct nh_event nh_run_first(const struct nh_run *run, enum nh_direction direction);
int nh_run_json(const struct nh_run *run);

/* changed.c */

/** Parameters of one name in all layers; those that are not trained are left out. */
struct nh_changed {
    const char *name;           /**< without the layer */
    int tensors, unchanged;     /**< unchanged: no update has changed any of its stored numbers */
    uint64_t numbers, numbers_changed;
};

/** Tells of a trained model which stored weights some update has changed: n kinds of parameters, to be freed. */
struct nh_changed *nh_changed_kinds(const struct nh_run *run, size_t *n);

/* checkpoint.c */

#define NH_CHECKPOINT "checkpoint.safetensors"

/** Writes weights, moments and the trainer; the tables are synced first, config.csv comes behind. */
int nh_checkpoint_write(struct nh_run *run);

/** Reads them back, and the lengths of the tables. NH_FAILED where the file is broken or of another run. */
int nh_checkpoint_read(struct nh_run *run, struct nh_extent extents[NH_TABLE_COUNT]);

/* trained.c */

/** Takes the options of the run in a folder from its config.csv; NH_FAILED where there is no checkpoint beside it. */
int nh_trained_open(struct nh_run *run, const char *dir);

/** Makes its model, with what the checkpoint holds. */
int nh_trained_load(struct nh_run *run);

/* dump.c */

/** Writes the tensors of the passes that have just run to --dump. */
int nh_dump(const struct nh_run *run);

/* report.c */

/** What the run is, in a line or two; its training and first offences, a line each. */
void nh_report_title(FILE *file, const struct nh_run *run);
void nh_report_summary(FILE *file, const struct nh_run *run);

/* cmd_report.c */

/** Prints the run in a folder, finished, broken off or under way, from its files: title, some rows of layers.csv, summary. asked: by
 *  `harness report`, with tables of the sites in any case, else where there is an fp32 twin. */
int nh_report_folder(const char *dir, bool asked);

#endif
