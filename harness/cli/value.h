// SPDX-License-Identifier: GPL-3.0-or-later
/** Sorts of options: how a text becomes a field of the configuration, and the field a text again. */
#ifndef NH_VALUE_H
#define NH_VALUE_H

#include "harness/core/config.h"

#include <stdbool.h>
#include <stddef.h>

enum { NH_VALUE_SIZE = 1024 };

/** Whose an option is with --model: the user's; the checkpoint's, which fixes it; the user's over the architecture's own; nobody's,
 * as weights are not drawn. */
enum nh_of_model { NH_MODEL_FREE, NH_MODEL_FIXED, NH_MODEL_TOLD, NH_MODEL_DRAWN };

/** One row of the option table. */
struct nh_option {
    const char *group; /**< heading in the help, where a group begins */
    const char *name;  /**< without dashes */
    const struct nh_value_kind *kind;
    size_t at;                  /**< offset of its field in struct nh_config */
    const char *start;          /**< default, read as if it had been typed; NULL = set by nh_options_parse */
    const char *shown;          /**< default as the help tells it, where that is not start */
    double min, max;            /**< range of a number; most bytes of a text */
    const char *word;           /**< a word for the number 0: "auto" */
    const char *const *choices; /**< closed by NULL */
    const char *paths;          /**< what may be completed as its value: "-d" folders, "-f" files, NULL = no paths */
    enum nh_of_model of_model;
    bool training;  /**< has no effect without --steps */
    bool experts;   /**< has no effect without --experts */
    unsigned optimizers; /**< bit i: optimizer i reads it; 0 = all do */
    bool elsewhere; /**< says where or how fast a run goes, not what it computes: neither recorded nor hashed */
    bool measures;  /**< says which values are measured or how the run is called, not what they are: no part of the sample */
    const char *help;
};

struct nh_value_kind {
    const char *placeholder; /**< the value in the help */
    const char *noun;        /**< a wrong value "must be NOUN RANGE" */
    bool bare;               /**< the option alone means "on" */
    bool tell_range;         /**< the help tells the range */
    /** Writes what its values are: "1..4096, or auto". */
    void (*range)(const struct nh_option *option, char text[NH_VALUE_SIZE]);
    /** Sets the field. NH_USAGE and one sentence where text is not a value of this option. */
    int (*read)(const struct nh_option *option, const char *text, struct nh_config *config);
    /** The field as it would be typed; text is room that may be used for it. */
    const char *(*write)(const struct nh_option *option, const struct nh_config *config, char text[NH_VALUE_SIZE]);
};

extern const struct nh_value_kind nh_value_int, /**< int */
    nh_value_pick,                              /**< int, one of a few */
    nh_value_real, nh_value_positive,           /**< double, in a range or above 0 */
    nh_value_seed,                              /**< uint64_t */
    nh_value_choice,                            /**< enum in the order of the choices */
    nh_value_either,                            /**< bool: the first choice is false */
    nh_value_switch,                            /**< bool: off, on, or the option alone */
    nh_value_level,                             /**< enum in the order of the choices, off, on and more, or the option alone */
    nh_value_pattern,                           /**< const char *: letters l and g, not copied */
    nh_value_rope,                              /**< struct nh_rope_scaling: none, linear:F or llama3:F,LOW,HIGH,ORIGINAL */
    nh_value_branches,                          /**< enum nh_branches */
    nh_value_relax,                             /**< double: off = 0, on = min, layer < 0, or a number */
    nh_value_scale,                             /**< double: auto = 0, off = 1, or a number */
    nh_value_layout, nh_value_format, nh_value_policy, nh_value_probes, nh_value_data,
    nh_value_roles, /**< ROLE=FORMAT,... */
    nh_value_arch,  /**< an architecture: const char * */
    nh_value_text, /**< const char *, not copied */
    nh_value_knob; /**< NAME=VALUE of the layout's own; read and recorded by name */

/** Fills in the start values of a layout's knobs. */
void nh_knobs_start(const struct nh_layout *layout, double knobs[NH_MAX_KNOBS]);

#endif
