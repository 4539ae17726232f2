// SPDX-License-Identifier: GPL-3.0-or-later
/** The options of a run. One table serves parsing, defaults, help, the record in config.csv and the run's name. */
#ifndef NH_OPTIONS_H
#define NH_OPTIONS_H

#include "harness/cli/value.h"
#include "harness/hf/checkpoint.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { NH_MAX_OPTIONS = 128 };

/** Where an option's value comes from; the preset: an architecture or a checkpoint. */
enum nh_given { NH_BY_DEFAULT, NH_BY_PRESET, NH_BY_USER };

struct nh_options {
    struct nh_config config; /**< texts point into argv or record; may be completed before it is recorded: seq, batch, vocab */
    enum nh_given given[NH_MAX_OPTIONS]; /**< by option of the table */
    struct nh_hf *checkpoint; /**< of --model, or NULL */
    char *record; /**< of nh_options_recall, or NULL */
    char text[NH_VALUE_SIZE]; /**< room of nh_options_text */
};

/** Reads argv[0..argc), the words behind the command's name, over the defaults; then looks for contradictions.
 *  NH_USAGE and one sentence where something is wrong. Knobs, data_seed, kv_heads, embed_scale and threads are
 * resolved; seq, batch and vocab stay 0 where they are up to the data. --help and --version are not options of a run.
 * With --model nh_options_free is due, whatever is returned.
 */
int nh_options_parse(struct nh_options *options, int argc, char **argv);
void nh_options_free(struct nh_options *options);

/** The tensors of a parameter as checkpoint or architecture name them, or one by its own name; to be freed. */
struct nh_piece *nh_options_pieces(const struct nh_options *options, const struct nh_param *param, size_t *n);

/** The value in force of an option, as it would be typed; until the next call. */
const char *nh_options_text(struct nh_options *options, const char *name);

/** Options whose values differ, as " --NAME VALUE --NAME VALUE": of those that a checkpoint fixes, and of those that may be given
 * beside it. */
struct nh_differences {
    char against[NH_VALUE_SIZE], again[NH_VALUE_SIZE];
    int n_against;
};

/** What the options would be if a checkpoint said the settings, and the rest were given again; texts point into both. NH_USAGE
 * where the settings cannot be. */
int nh_options_reread(const struct nh_options *options, const struct nh_setting *settings, struct nh_config *config,
                      struct nh_differences *differences);

/** True where the user gave this option himself; name without dashes, one of the table. */
bool nh_options_given(const struct nh_options *options, const char *name);

/** Calls visit for each option in table order with the value in force, as it would be typed ("" = none): what
 * config.csv holds. Knobs come as "set.NAME". Left out: threads, out and force. Stops at a status other than NH_OK and
 * returns it. */
typedef int nh_option_visit(void *arg, const char *option, const char *value);
int nh_options_record(const struct nh_options *options, nh_option_visit *visit, void *arg);

/** A letter and 8 hex digits. The letter first makes it text for every reader: "12345e10" alone would be a number. */
enum { NH_NAME_SIZE = 10 };

/** The name of the run: "r" and a digest (64 bits folded to 32) of all that nh_options_record tells and of extra (may be NULL). */
void nh_options_hash(const struct nh_options *options, const char *extra, char hash[NH_NAME_SIZE]);

/** The name of the sample: "s" and a digest of the same, but of the options that only measure. Runs of one model, data and seed have
 *  one sample, whatever each of them measures. */
void nh_options_sample(const struct nh_options *options, const char *extra, char sample[NH_NAME_SIZE]);

/** Options from a record: name and value of each row of config.csv, each with a NUL behind it, and one more in the end; it is freed
 * with them. One sentence and not NH_OK where this version would not record the same. nh_options_free is due, whatever is returned. */
int nh_options_recall(struct nh_options *options, char *record);

/** Refuses what contradicts itself or has no effect; part of nh_options_parse. */
int nh_options_conflicts(const struct nh_options *options);

/** Calls tell for each option in table order: left is "--depth N", text is its help, range and default in one line. The
 * table's row (value.h) has its group, where a group begins, and its choices. */
struct nh_option;
typedef void nh_option_tell(void *arg, const struct nh_option *option, const char *left, const char *text);
void nh_options_tell(nh_option_tell *tell, void *arg);

/** Writes all options with their defaults, two columns, at most 100 characters wide. */
void nh_options_help(FILE *file);

/* fits.c */

struct nh_graph;

/** NH_USAGE where a factor or divisor is 0 or inf in the format in which it is used, or its reciprocal is. */
int nh_numbers_fit(const struct nh_config *config);

/** Says on stderr that an eps above 0 is 0 in the format of norm statistics. */
void nh_note_eps(const struct nh_graph *g);

#endif
