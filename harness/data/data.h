// SPDX-License-Identifier: GPL-3.0-or-later
/** Token data: where the sequences of a run come from.
 *  A batch is a function of the data, the seed and its number alone: a resumed run reads on where it stopped. */
#ifndef NH_DATA_H
#define NH_DATA_H

#include <stdbool.h>
#include <stdint.h>

enum {
    NH_DATA_BATCH = 4,       /**< sequences in a batch where nobody says otherwise */
    NH_DATA_SEQ = 64,        /**< tokens in a sequence where neither the user nor the source says otherwise */
    NH_DATA_MAX_ID = 1 << 24 /**< the largest token id; float counts exactly up to here */
};

/** What is asked of a source. Zero means: as the source has it. */
struct nh_data_request {
    const char *argument; /**< what follows "NAME:"; set by nh_data_open */
    int seq, batch, vocab;
    uint64_t seed;                /**< of the order of examples, of window starts and of synthetic tokens */
    int image_grid, image_levels; /**< patches along an edge (0 = 7), grey levels (0 = 32) */
    bool held_out;                /**< the part kept for validation, where source->holds_out */
};

struct nh_data;

/** One source: the file NAME.c, which exports `const struct nh_data_source nh_data_NAME`, and a word in meson.build. */
struct nh_data_source {
    const char *name;
    const char *argument; /**< "FILE" if it is written NAME:FILE, else NULL */
    const char *what;     /**< one line for `list data` */
    bool holds_out;       /**< has examples kept for validation */
    int (*open)(struct nh_data **, const struct nh_data_request *);
};

/** All sources, ended by NULL. */
extern const struct nh_data_source *const nh_data_sources[];

/** An open source; read only for its users. */
struct nh_data {
    const struct nh_data_source *source;
    int vocab, seq, batch; /**< ids are 0 .. vocab-1; tokens in a sequence; sequences in a batch */
    uint64_t sequences;    /**< how many there are before they repeat in another order; 0 = endless */
    uint64_t digest; /**< equal digests mean equal batches: content, seed and sizes are in it, the file's name is not */
    char what[256];  /**< one line about this data */

    /* Set by the source: */
    uint64_t key;                                                          /**< seed of everything it draws */
    int (*sequence)(const struct nh_data *, uint64_t number, int *tokens); /**< writes seq tokens */
    void (*release)(struct nh_data *);                                     /**< frees what it holds; may be NULL */
};

/** Opens what --data says: "NAME" or "NAME:ARGUMENT".
 *  NH_USAGE: no such source, or it cannot be had in the sizes asked for.
 *  NH_FAILED: missing, unreadable or broken files, or no memory. */
int nh_data_open(struct nh_data **, const char *text, const struct nh_data_request *);

/** The source that reads a file with this name, by what it holds: "tokens" where it begins with whole numbers alone, else "text".
 *  NULL where it is not a regular file that can be read. */
const char *nh_data_guess(const char *path);

/** Writes batch number index, batch rows of seq ids; threads may call it at the same time. */
int nh_data_batch(const struct nh_data *, uint64_t index, int *tokens);

/** NULL is allowed. */
void nh_data_close(struct nh_data *);

#endif
