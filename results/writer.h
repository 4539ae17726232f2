// SPDX-License-Identifier: GPL-3.0-or-later
/** Writes one result table as CSV (RFC 4180, LF, the same bytes under every locale). DIR/TABLE.csv appears at the
 * commit, whole; until then it is DIR/TABLE.csv.XXXXXXXX.part, with which a later process can go on. Setters cannot fail
 * visibly: what goes wrong in them, a row or the commit reports. A column of another table, or of another type, is the
 * caller's mistake and asserted. */
#ifndef NH_WRITER_H
#define NH_WRITER_H

#include "results/file.h"
#include "results/schema.h"

#include <stdint.h>

struct nh_writer;

/** The keys of every row of a run; texts may be NULL for none. */
struct nh_keys {
    const char *run, *label, *layout;
    int64_t depth;
    const char *dtype, *policy, *init;
    uint64_t seed;
    int64_t step;
};

/** Starts the file of a table, header line written; the folder must exist (nh_dir_make). */
int nh_writer_create(struct nh_writer **out, const char *dir, enum nh_table table);

/** Goes on with what a checkpoint tells of (nh_part_resume), in a file of its own: more rows come behind. What is there stays. */
int nh_writer_resume(struct nh_writer **out, const char *dir, enum nh_table table, const struct nh_extent *from);

/** Sets those key columns that the table has; they stay for all rows until set anew (call it again for another step).
 */
void nh_writer_keys(struct nh_writer *w, const struct nh_keys *keys);

/** Sets one cell of the row at hand; a cell not set is empty: not measured. An integer may go into a real column.
 *  Text is copied. Doubles are written with the fewest digits that read back to the same value. */
void nh_writer_real(struct nh_writer *w, enum nh_column_id column, double value);
void nh_writer_int(struct nh_writer *w, enum nh_column_id column, int64_t value);
void nh_writer_count(struct nh_writer *w, enum nh_column_id column, uint64_t value);
void nh_writer_text(struct nh_writer *w, enum nh_column_id column, const char *value);

/** Ends the row and empties all cells but the keys. NH_FAILED where the file cannot take it (full disk, memory). */
int nh_writer_row(struct nh_writer *w);

/** Between rows: what is written so far goes to the file, where others see it. */
int nh_writer_flush(struct nh_writer *w);

/** The same and syncs it to the disk; *extent: how far the table goes, for nh_writer_resume. */
int nh_writer_sync(struct nh_writer *w, struct nh_extent *extent);

/** From now on nh_writer_destroy leaves the .part as it was last flushed. */
void nh_writer_keep(struct nh_writer *w);

/** Syncs the file to the disk and gives it its name. Once at most, after the last row. */
int nh_writer_commit(struct nh_writer *w);

/** After the commit: NH_FAILED where the file is not what was written, because another process has written it. */
int nh_writer_verify(const struct nh_writer *w);

/** Frees w; without a commit the .part is removed and nothing is left, unless it is kept. NULL is allowed. */
void nh_writer_destroy(struct nh_writer *w);

#endif
