// SPDX-License-Identifier: GPL-3.0-or-later
/** Objects of JSON as structs: which fields there are, of which kind. */
#ifndef NH_STUDY_FIELDS_H
#define NH_STUDY_FIELDS_H

#include <jansson.h>
#include <obstack.h>
#include <stdbool.h>
#include <stddef.h>

struct nh_field_kind {
    const char *must_be; /**< for errors: "'runs' must be a whole number" */
    bool (*read)(struct obstack *memory, const json_t *json, void *to);
};

extern const struct nh_field_kind nh_field_text, /**< const char *, not empty */
    nh_field_count,                              /**< size_t from 1 */
    nh_field_share,                              /**< double, above 0 and at most 1 */
    nh_field_flag,                               /**< bool */
    nh_field_words,                              /**< struct nh_words, not empty */
    nh_field_range,                              /**< struct nh_range */
    nh_field_where,                              /**< const json_t *: OPTION: text, number, or list of these */
    nh_field_wheres,                             /**< const json_t *: a list of two of these or more */
    nh_field_list;                               /**< a list that is read elsewhere; no field of the struct */

struct nh_field {
    const char *name; /**< NULL closes the list */
    const struct nh_field_kind *kind;
    size_t at; /**< offset in the struct */
    bool optional;
};

/** Reads the fields of one list or of two (more may be NULL) into the struct at `to`; optional ones that are not there
 * stay as they are. NH_FAILED and one sentence, begun with `place`, for what is missing, unknown or of another kind. */
int nh_fields_read(const char *place, struct obstack *memory, const json_t *json, const struct nh_field *fields,
                   const struct nh_field *more, void *to);

#endif
