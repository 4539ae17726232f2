// SPDX-License-Identifier: GPL-3.0-or-later
/** JSON files that others may have written: records of runs, studies. */
#ifndef NH_JSON_FILE_H
#define NH_JSON_FILE_H

#include <jansson.h>
#include <stddef.h>

enum { NH_RECORD_BYTES = 16 << 20 }; /**< the largest run.json that is read */

/** Reads a JSON file of at most `most` bytes that names no key twice. NULL, and the reason in error->text, where it cannot be read, is
 *  no regular file, is larger or is no such JSON; error->line is -1 where it was not read. The result is released with json_decref. */
json_t *nh_json_load(const char *path, size_t most, json_error_t *error);

/** NH_FAILED, naming the file, where one that a run.json tells of is not in its folder with the size that it tells. */
int nh_record_check(const json_t *record, const char *folder);

#endif
