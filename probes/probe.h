// SPDX-License-Identifier: GPL-3.0-or-later
/** A probe reads a model that has run and fills columns of the result rows. It never changes a bit of the run.
 *  One file, one descriptor. */
#ifndef NH_PROBE_H
#define NH_PROBE_H

#include "harness/core/err.h"
#include "harness/core/model.h"
#include "harness/core/rng.h"
#include "results/schema.h"

#include <stdbool.h>
#include <stddef.h>

/** What a probe may read: the model after its forward (and backward) pass. Row k of the results is about stream
 *  k % NH_STREAMS of step k / NH_STREAMS of the graph; rows of a stream that a step does not have stay empty. */
struct nh_view {
    const struct nh_config *config;
    const struct nh_model *model;
    const struct nh_model *shadow; /**< the fp64 twin, NULL where no probe asked for it */
    const double *rms_theory;      /**< law of the stream, per row; nan = none */
    const struct nh_counts *counts; /**< of the whole pass, sites x NH_DIRECTIONS; NULL while one is streamed */
    bool backward;                 /**< there has been a backward pass */
    double loss_scale;             /**< factor in all gradients */
    int from, to;                  /**< rows to fill: of a probe of NH_READS_STEP maybe those of one step, else all */
};

/** A singular value of the Jacobian of a row; index from 1, largest first; 0 = none. */
struct nh_singular {
    int row, index;
    double value;
};

/** What a probe fills. */
struct nh_rows {
    int n;                /**< rows: steps times NH_STREAMS */
    double *cells;        /**< n x NH_COLUMN_COUNT */
    bool *measured;       /**< the same shape */
    bool sites;           /**< write sites.csv */
    struct nh_singular *spectrum;
    size_t n_spectrum;
};

/** Sets a real or integer cell of layers.csv (integers below 2^53 are exact). Different rows may be set by different threads. */
static inline void nh_set(struct nh_rows *rows, int row, enum nh_column_id column, double value)
{
    size_t i = (size_t)row * NH_COLUMN_COUNT + (size_t)column;
    rows->cells[i] = value;
    rows->measured[i] = true;
}

/** Whether a probe reads gradients: never; where they are, and they are made for it, but not of weights that were trained elsewhere;
 *  always. */
enum nh_gradients { NH_GRADIENTS_NOT_READ, NH_GRADIENTS_WANTED, NH_GRADIENTS_NEEDED };

/** Which values a probe reads: any; those of the step whose rows it fills, so that it may be asked before the next one has run; none,
 *  so that it may be asked when they are gone. */
enum nh_values_read { NH_READS_ANY, NH_READS_STEP, NH_READS_NONE };

struct nh_probe {
    const char *name;
    const char *const *aliases; /**< NULL-terminated, or NULL */
    const char *what;           /**< one line: what it measures, units, estimator */
    const char *columns;        /**< the columns it fills */
    bool by_default;            /**< runs without being asked for */
    bool at_start_only;         /**< not without being asked for where a model is trained: it takes long */
    enum nh_gradients gradients;
    enum nh_values_read values;
    bool needs_shadow;          /**< the fp64 twin must have run */
    bool needs_law;             /**< reads rms_theory */
    bool needs_wide;            /**< the fp32 twin must have run */
    /** Forward passes that its work amounts to, for --dry-run; NULL = next to none. */
    double (*passes)(const struct nh_config *config);
    /** NH_USAGE and a sentence where it cannot measure this model; NULL = it always can. */
    int (*refuse)(const struct nh_config *config, const struct nh_graph *g);
    /** Bytes that it takes beside the model; NULL = next to none. */
    double (*memory)(const struct nh_config *config, const struct nh_graph *g);
    int (*measure)(const struct nh_view *view, struct nh_rows *rows);
};

/** All probes, closed by NULL; bit i of a probe set is entry i. */
extern const struct nh_probe *const nh_probes[];

#endif
