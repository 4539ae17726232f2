// SPDX-License-Identifier: GPL-3.0-or-later
/** What may have been meant by a wrong name, for the sentence that refuses it. */
#ifndef NH_NEAR_H
#define NH_NEAR_H

#include <stddef.h>

enum { NH_NEAR_MAX = 3, NH_NEAR_SIZE = 256 };

struct nh_near {
    const char *wrong;
    const char *prefix;             /**< what stands before each name in the sentence: "--" */
    const char *synonym;            /**< what the wrong name means in other programs (synonyms.h), or NULL; told alone */
    const char *names[NH_NEAR_MAX]; /**< nearest first; not copied */
    size_t distances[NH_NEAR_MAX];
    size_t count;
};

struct nh_near nh_near_start(const char *wrong, const char *prefix);

/** Looks the wrong name up among the words of other programs; `of` as in nh_synonym. */
void nh_near_synonym(struct nh_near *near, const char *of);

/** Keeps name if it is among the nearest so far: at most 1 + length/4 insertions, deletions and replacements from the
 *  wrong one, letter case left out of account; the beginning of a name counts as one. */
void nh_near_try(struct nh_near *near, const char *name);

/** "; did you mean a, b or c?", or "" where nothing is known or near. Returns text. */
const char *nh_near_text(const struct nh_near *near, char text[NH_NEAR_SIZE]);

/** Levenshtein distance, ASCII letter case left out of account; SIZE_MAX where one text has more than 64 bytes. */
size_t nh_near_distance(const char *a, const char *b);

#endif
