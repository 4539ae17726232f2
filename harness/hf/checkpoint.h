// SPDX-License-Identifier: GPL-3.0-or-later
/** A Hugging Face folder: config.json, and the tensors that model.safetensors.index.json names, or without it those of
 *  model.safetensors or of all shards (model-00001-of-0000N.safetensors); mapped into memory. Nothing in it is trusted. */
#ifndef NH_HF_CHECKPOINT_H
#define NH_HF_CHECKPOINT_H

#include "harness/hf/arch.h"

#include <stdint.h>
#include <stdio.h>

struct nh_hf;

/** Opens a folder: finds its architecture, makes options of its config.json, lists its tensors. NH_FAILED with the file and what
 *  is wrong: unknown architectures, keys that change the function in a way that the core has not, broken files. */
int nh_hf_open(struct nh_hf **out, const char *dir);

/** NULL is allowed. */
void nh_hf_close(struct nh_hf *hf);

const struct nh_arch *nh_hf_arch(const struct nh_hf *hf);

/** The options that the checkpoint fixes, closed by a NULL option; they live as long as it does. */
const struct nh_setting *nh_hf_settings(const struct nh_hf *hf);

/** Looks for a tensor of the right shape for every parameter of the configuration, and for tensors that none reads; then
 *  *source gives their numbers, until the checkpoint is closed. Notes about what is left unread go to `notes`. */
int nh_hf_bind(struct nh_hf *hf, const struct nh_config *config, const struct nh_weight_source **source, FILE *notes);

/** The published tensors of a parameter, to be freed; that of `positions` may have more rows in the file. */
struct nh_piece *nh_hf_pieces(const struct nh_hf *hf, const struct nh_config *config, const struct nh_param *param, size_t *n);

/** The shape of a tensor in the file; NULL where there is none of this name. */
const struct nh_shape *nh_hf_shape(const struct nh_hf *hf, const char *name);

/** Whether all numbers that have been read were those of the files: to be asked behind the last read, before its results are used.
 *  NH_FAILED with the file where one has been cut or changed meanwhile, or cannot be read. */
int nh_hf_check(const struct nh_hf *hf);

/** Whether some of its numbers are doubles (F64). */
bool nh_hf_is_wide(const struct nh_hf *hf);

/** Digest of config.json, of names, types and shapes of all tensors, and of samples of their numbers. */
uint64_t nh_hf_digest(const struct nh_hf *hf);

#endif
