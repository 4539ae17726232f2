// SPDX-License-Identifier: GPL-3.0-or-later
/** A model with numbers: tape, executor, start weights. */
#ifndef NH_MODEL_H
#define NH_MODEL_H

#include "harness/core/core.h"

struct nh_model {
    struct nh_graph *graph;
    const struct nh_core *core;
    struct nh_exec *exec;
};

/** Builds the model of a configuration for one batch of tokens (batch x seq, ids below vocab) and sets its start weights.
 *  gradients: backward() will be called. Where the layout measures its start, the fp64 twin comes and goes before the model is
 *  given its memory. NH_USAGE: the configuration cannot be; NH_FAILED: memory. */
int nh_model_create(struct nh_model *m, const struct nh_config *config, int batch, int seq, int vocab, const int *tokens,
                    bool gradients);
void nh_model_destroy(struct nh_model *m);

/** Forward pass; the mean loss. Only where the configuration is streamed is look(arg, step) called behind each step. */
double nh_model_forward(struct nh_model *m, const struct nh_config *config, void (*look)(void *arg, int step), void *arg);

/** The fp64 twin of a configuration: the same function, every format fp64, weights not rounded. */
void nh_config_shadow(struct nh_config *shadow, const struct nh_config *config);

/** True where nh_model_create makes the twin first, for starts that are measured; weights from a source are all given. */
bool nh_measures_start(const struct nh_config *config);

/** The fp32 twin: the same function with every format fp32; streamed where the configuration is. */
void nh_config_wide(struct nh_config *wide, const struct nh_config *config);

/** Bytes that the model would take. */
size_t nh_model_memory(const struct nh_graph *g, int threads, bool gradients);

/** Mean over the batch of the T x T Gram matrices x_t . x_u / width of the stream that enters layer 1; row-major. */
int nh_model_gram(const struct nh_model *m, double *gram);

/** Numbers of a parameter before they are rounded to its format: master weights; where none are kept, as it is stored. */
void nh_model_masters(const struct nh_model *m, int param, double *w);

/** Fills u with a cotangent of unit variance for the exit value. */
void nh_model_cotangent(const struct nh_model *m, uint64_t seed, double *u);

/** Numbers of a graph's parameters, gains and biases included. */
size_t nh_graph_parameters(const struct nh_graph *g);

#endif
