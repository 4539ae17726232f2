// SPDX-License-Identifier: GPL-3.0-or-later
/** Folders, and files that appear whole or not at all. */
#ifndef NH_FILE_H
#define NH_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Takes n bytes into a digest, which begins as NH_DIGEST_START: FNV-1a, 64 bits. */
#define NH_DIGEST_START UINT64_C(0xcbf29ce484222325)
uint64_t nh_digest(uint64_t digest, const void *bytes, size_t n);

/** "cannot WHAT PATH: ...", an errno's reason and what would work. NH_FAILED. */
int nh_file_failed(const char *what, const char *path, int error);

/** Makes a folder and those above it; one that is there already is good. NH_FAILED with the folder and the reason. */
int nh_dir_make(const char *path);

/** Makes the names in a folder (files made, renamed, removed) safe against a crash. */
int nh_dir_sync(const char *path);

/** Refuses a file that is there (NH_USAGE): nobody has asked to replace it. */
int nh_file_absent(const char *path);

/** A file being written. Until the commit gives it its name it is PATH.XXXXXXXX.part, eight random hex digits, new and of this writer
 *  alone: no two writers share a file, whether or not locks reach from one to the other, and no link is followed. The writer holds a
 *  lock on it; one that nobody holds is of a process that was killed, and is removed by the next commit of the same PATH. */
struct nh_part;

/** Starts a new one. The folder must exist. replace: the commit takes the place of a regular file at PATH; else that is refused, now
 *  and at the commit (NH_USAGE). Anything at PATH but a regular file is refused in any case. */
int nh_part_create(struct nh_part **out, const char *path, bool replace);

/** Adds bytes at the end, buffered. After a failure every later call fails with the same sentence. */
int nh_part_write(struct nh_part *p, const void *data, size_t size);

/** How far a file goes that a checkpoint tells of, and the digest of that much; bytes = 0: there is none. */
struct nh_extent {
    long long bytes;
    uint64_t digest;
};

/** Starts a new one with a copy of the first `from->bytes` bytes of a temporary file of PATH, or of PATH itself: of the one in which
 *  these have the digest, begin with `head` and end a line. More is added to the copy. What is there stays until the commit. */
int nh_part_resume(struct nh_part **out, const char *path, const char *head, const struct nh_extent *from);

/** True where a name is that of a temporary file of PATH, whatever folder that is in. */
bool nh_part_is_of(const char *name, const char *path);

/** Calls visit with the path of each temporary file of PATH; ends at a status other than NH_OK and returns it. NH_FAILED where the
 *  folder cannot be read. */
typedef int nh_part_visit(void *arg, const char *name);
int nh_part_each(const char *path, nh_part_visit *visit, void *arg);

/** Removes those temporary files of PATH that nobody writes. */
void nh_part_tidy(const char *path);

/** Writes what is buffered, so that others see it. */
int nh_part_flush(struct nh_part *p);

/** The same and syncs it to the disk; *extent: all that was written, unless NULL. NH_FAILED too where another process has removed the file. */
int nh_part_sync(struct nh_part *p, struct nh_extent *extent);

/** From now on nh_part_destroy leaves the temporary file as it was last flushed. */
void nh_part_keep(struct nh_part *p);

/** Writes what is buffered, syncs it to the disk and gives the file its name. Once at most. After a failure PATH is what it was. */
int nh_part_commit(struct nh_part *p);

/** After the commit: NH_FAILED where the file at PATH is not what was written, because another process has written it. */
int nh_part_verify(const struct nh_part *p);

/** Frees p, and removes the temporary file unless it was committed or is kept. NULL is allowed. */
void nh_part_destroy(struct nh_part *p);

/** Removes every temporary file that nh_part_destroy would remove, for a program that ends at once. Allocates nothing. */
void nh_parts_remove(void);

/** The first bytes of a regular file: at most `most`, *n of them. *there = false, *n = 0 and NH_OK where there is no file. NH_FAILED
 *  where it cannot be read or is no regular file. */
int nh_file_head(const char *path, char *head, size_t most, size_t *n, bool *there);

/** Renames the file PATH to PATH.XXXXXXXX.old, a new name: *aside, to be freed. *aside = NULL where there is no file, and on failure. */
int nh_file_set_aside(char **aside, const char *path);

/** All of the above for a small file: text[0..size) becomes the file PATH, over an older one, or PATH stays as it was. */
int nh_file_write(const char *path, const char *text, size_t size);

#endif
