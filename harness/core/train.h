// SPDX-License-Identifier: GPL-3.0-or-later
/** Training: batches, optimizer, loss scale, and how a run ends. */
#ifndef NH_TRAIN_H
#define NH_TRAIN_H

#include "harness/core/model.h"
#include "harness/core/scaler.h"

/** An offence with the step in which it happened. */
struct nh_event {
    int step;
    enum nh_direction direction;
    struct nh_first first;
};

/** The first offence of the last forward pass (NH_FWD), of the last update (NH_UPDATE) or of the last backward pass, gradients of
 *  weights included (NH_BWD). */
struct nh_event nh_event_of(const struct nh_model *m, enum nh_direction direction, int step);

/** Why a run cannot go on. */
enum nh_stop {
    NH_GOES_ON,
    NH_STOP_FORWARD,  /**< the forward pass is not finite: no loss scale can mend that */
    NH_STOP_BACKWARD, /**< gradients are not finite at the lowest scale */
    NH_STOP_SKIPS     /**< too many steps skipped in a row */
};
extern const char *const nh_stop_texts[]; /**< one sentence each */

/** Steps that may be skipped in a row. */
enum { NH_MOST_SKIPS = 200 };

/** What one step was like. */
struct nh_train_step {
    double loss, lr, grad_norm, loss_scale, changed;
    double max_abs, max_score; /**< of the stream and of attention scores (without attention 0); nan where there is nothing but NaN */
    bool skipped;
    uint64_t overflow_fwd, overflow_bwd;
};

/** All that a trained model is beside its weights: a checkpoint holds it, weights and moments. */
struct nh_trainer {
    const struct nh_config *config;
    struct nh_model *model;
    struct nh_scaler scaler;
    int step;                           /**< steps done */
    int applied, skipped, skipped_start; /**< updates; steps without one, of them before the first update; in a row */
    int skipped_row;
    double start_loss, tail_loss, loss; /**< of the first step; summed over the last tenth of the steps; of the last step */
    double max_abs, max_score;          /**< largest so far */
    bool has_scores;                    /**< there is attention, of which max_score tells */
    int validated;                      /**< how often the data's holder has measured the loss on what is held out */
    double val_loss;                    /**< the last one; means nothing before there is one */
    struct nh_event first_forward, first_backward, first_update, stopping_offence; /**< first.kind NH_NO_OFFENCE = none */
    enum nh_stop stop;
    /* of the step under way: */
    int batches; /**< of it, done */
    double batch_loss;
    struct nh_event backward; /**< the first of its backward passes */
    struct nh_counts *counts; /**< all sites and directions, over its batches */
};

/** The rate of step t (from 0) of n, w of them warmup: lr (t+1)/w while t < w, then, with p = (t-w)/(n-w): constant 1, linear 1-p,
 *  cosine (1 + cos(pi p))/2, wsd 1 while p < 0.8, then (1-p)/0.2 (Hu et al. 2024, arXiv:2404.06395). */
double nh_schedule_rate(const struct nh_training *t, int step);

/** Neither config nor model is copied; the model must have been built from this configuration, with gradients. */
int nh_trainer_create(struct nh_trainer *t, const struct nh_config *config, struct nh_model *model);
void nh_trainer_destroy(struct nh_trainer *t);

/** Forward and backward pass of one batch (batch x seq tokens). A step takes config->train.grad_accum of them; the loss of each is
 *  scaled by its share in the step. */
void nh_trainer_batch(struct nh_trainer *t, const int *tokens);

/** The update, or none where a gradient is not finite; ends the step. */
struct nh_train_step nh_trainer_update(struct nh_trainer *t);

/** Runs the fp64 twin of the model forward: the master weights as they are, the tokens of the last batch. */
int nh_trainer_shadow(const struct nh_trainer *t, struct nh_model *shadow, const int *tokens);

/** The mean loss of the last tenth of the steps; means nothing before all steps are done. */
double nh_trainer_tail_loss(const struct nh_trainer *t);

/** True where all steps are done. */
bool nh_trainer_is_done(const struct nh_trainer *t);

/** The first of the forward passes and of the updates; without one, that of the backward pass which stopped the run. */
struct nh_event nh_trainer_offender(const struct nh_trainer *t);

#endif
