// SPDX-License-Identifier: GPL-3.0-or-later
/** Words that other programs use for what has another name here; each becomes a hint in an error, never an alias. */
#ifndef NH_SYNONYMS_H
#define NH_SYNONYMS_H

/** What the word is called here, as it would be typed ("--depth" for "num_layers"), or NULL.
 *  `of` is what the word was taken for: "option", "command", "topic", "switch" (the value of one), the thing of a registry
 *  (names.h), or the name of the option whose value it is. Letter case, dashes and underscores make no difference. */
const char *nh_synonym(const char *of, const char *word);

#endif
