// SPDX-License-Identifier: GPL-3.0-or-later
/** The registries as lists of names: one way to look a name or an alias up, and to refuse a wrong one. */
#ifndef NH_NAMES_H
#define NH_NAMES_H

#include <stddef.h>

struct nh_names {
    const char *thing;                           /**< "layout" */
    const char *topic;                           /**< the word after `harness list` */
    const char *(*name)(size_t index);           /**< NULL behind the last */
    const char *const *(*aliases)(size_t index); /**< closed by NULL, or NULL */
};

extern const struct nh_names nh_layout_names, nh_policy_names, nh_probe_names, nh_data_names, nh_arch_names;

/** Index of the entry with this name or alias. NH_USAGE with the near names where there is none. */
int nh_names_find(const struct nh_names *names, const char *text, size_t *index);

/** The layout with this name or alias, likewise. */
struct nh_layout;
int nh_find_layout(const struct nh_layout **layout, const char *text);

#endif
