// SPDX-License-Identifier: GPL-3.0-or-later
/** Presets of options, asked for by --arch: what a published model's authors chose, over the one core. */
#ifndef NH_PRESET_H
#define NH_PRESET_H

struct nh_preset_option {
    const char *name, *value; /**< as they would be typed */
};

struct nh_preset {
    const char *name, *what, *source;
    const struct nh_preset_option *options; /**< closed by a NULL name */
};

/** All presets, closed by NULL. */
extern const struct nh_preset *const nh_presets[];

/** The preset of this very name; NULL where there is none, or no name. */
const struct nh_preset *nh_preset_find(const char *name);

#endif
