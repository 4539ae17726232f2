// SPDX-License-Identifier: GPL-3.0-or-later
/** Architectures of published decoders, as data over the one core: the options that their authors chose, what each key of a
 *  config.json means as an option, and which published tensor is which parameter. One file each; docs/models.md. */
#ifndef NH_ARCH_H
#define NH_ARCH_H

#include "harness/core/graph.h"
#include "harness/io/safetensors.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** An option of a run and its value, as they would be typed; without dashes. */
struct nh_setting {
    const char *option, *value;
};

enum { NH_SETTING_SIZE = 4100 };

/** What a config.json is read from and into. */
struct nh_hf_reading {
    const json_t *config; /**< of the text model */
    const json_t *outer;  /**< around it, where it is the text_config of a larger model; else NULL */
    const char *path;     /**< of the file, for errors */
    bool has_head;        /**< the checkpoint has a head's matrix of its own */
    struct nh_setting *settings; /**< so far */
    size_t n_settings;
    char twice[200]; /**< what is wrong with a key that stands in two places, or "" */
};

struct nh_arch_key;

/** How values of a key become values of an option, and back. */
struct nh_key_kind {
    /** Writes the option's value. NH_FAILED with the key and what would work. value: NULL where the row has no key. */
    int (*read)(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE]);
    /** Sets the key, or keys, from the option's value in force. */
    void (*write)(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text);
};

/** A key of config.json, or several that make one option. */
struct nh_arch_key {
    const char *key;    /**< "name" or "name|other name"; NULL: the kind knows */
    const char *option; /**< that it sets; NULL: it is only looked at, and refused where words do not have it */
    const struct nh_key_kind *kind;
    const char *absent; /**< the option's value where the key is not there, "" = its default; NULL: the key must be there */
    const char *null;   /**< the same where it is null; NULL = as absent */
    const struct nh_setting *words; /**< of nh_key_word: values of the key and of the option, closed by a NULL option */
};

/* harness/hf/keys.c */
extern const struct nh_key_kind nh_key_count, /**< a whole number */
    nh_key_real,                              /**< a number */
    nh_key_ratio,                             /**< a whole number, over the width */
    nh_key_word,                              /**< a word, boolean or number of a few */
    nh_key_head_dim, nh_key_query_scalar, nh_key_positions,
    nh_key_tie,                       /**< the head; without the key: `absent`, or "" = whether there is one */
    nh_key_bias,                      /**< attention_bias, mlp_bias */
    nh_key_theta, nh_key_theta_local, /**< rope_theta, rope_local_base_freq, rope_parameters */
    nh_key_scaling, nh_key_scaling_global, /**< rope_scaling, rope_parameters: of all layers, of global ones alone */
    nh_key_layers, /**< layer_types, else every n-th is global; words: the key of n, and n without it */
    nh_key_layers_qwen, nh_key_window, nh_key_experts, nh_key_dense, nh_key_mup;

/** The part of a parameter that a tensor is: by itself, rows of one product, or the same of every expert. */
enum nh_slice { NH_WHOLE, NH_SLICE_Q, NH_SLICE_K, NH_SLICE_V, NH_SLICE_GATE, NH_SLICE_UP, NH_SLICE_COUNT };

struct nh_arch_tensor {
    const char *param;   /**< its name in the core, without "layers.L." */
    const char *tensor;  /**< its name in the file behind the prefix; first %d: the layer from 0, second: the expert from 0 */
    enum nh_slice slice;
    bool transposed; /**< [in, out], as y = x W has it */
};

/** What stands before the names of all tensors, and before the head's. */
struct nh_arch_prefix {
    const char *body, *head;
};

struct nh_arch {
    const char *name;            /**< as --arch takes it */
    const char *const *aliases;  /**< closed by NULL, or NULL */
    const char *what, *source;
    const char *const *types;    /**< model_type of config.json, closed by NULL; or NULL */
    const char *class;           /**< architectures of config.json, or NULL */
    const char *mark;            /**< without a model_type: a tensor that tells it, its name without the prefix */
    const struct nh_setting *fixed;  /**< options of every such model; closed by a NULL option, as are those below */
    const struct nh_setting *recipe; /**< options of its authors' start, for --arch */
    const struct nh_arch_key *keys;  /**< closed by a NULL kind */
    const struct nh_arch_tensor *tensors;  /**< closed by a NULL param */
    const struct nh_arch_tensor *stacked;  /**< those that newer files have instead: one tensor of three dimensions, all experts; or NULL */
    struct nh_arch_prefix prefix; /**< as they are published; files may have another */
    const char *const *unread; /**< tensors that take no part: the ends of their names or, with a dot at the end, a part of these;
                                    closed by NULL */
    const char *const *open;   /**< options that neither config.json nor tensors tell, so that they stay the user's */
};

/** All architectures, closed by NULL. */
extern const struct nh_arch *const nh_archs[];

/** The architecture of this very name; NULL where there is none, or no name. */
const struct nh_arch *nh_arch_find(const char *name);

/** A published tensor of a parameter. */
struct nh_piece {
    char name[112];
    size_t first, n;   /**< its numbers among those of the parameter, row by row */
    size_t rows, cols; /**< of the parameter's side; rows = 0: a tensor of one dimension */
    size_t stack;      /**< > 0: the rows are those of so many matrices, the first of three dimensions */
    bool transposed;
};

/** The shape of its tensor, and where in it number i of the piece stands. */
struct nh_shape nh_piece_shape(const struct nh_piece *p);
static inline size_t nh_piece_place(const struct nh_piece *p, size_t i)
{
    return p->transposed ? i % p->cols * p->rows + i / p->cols : i;
}

/** The tensors of a parameter, of `arch->tensors` or of `arch->stacked`, to be freed; none (and *n = 0) where the architecture has
 *  none, or arch is NULL. */
struct nh_piece *nh_arch_pieces(const struct nh_arch *arch, const struct nh_arch_prefix *prefix, const struct nh_config *config,
                                const struct nh_param *param, size_t *n);
struct nh_piece *nh_arch_stacked(const struct nh_arch *arch, const struct nh_arch_prefix *prefix, const struct nh_config *config,
                                 const struct nh_param *param, size_t *n);

/** A config.json of the architecture. text gives the value of an option, as it would be typed. */
json_t *nh_arch_write(const struct nh_arch *arch, const struct nh_config *config,
                      const char *(*text)(void *arg, const char *option), void *arg);

/** All keys of an architecture as settings: in->settings, each to be freed. */
int nh_arch_read(struct nh_hf_reading *in, const struct nh_arch *arch);
void nh_hf_reading_free(struct nh_hf_reading *in);

#endif
