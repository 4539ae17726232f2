// SPDX-License-Identifier: GPL-3.0-or-later
/** Folders, and files that appear whole or not at all. */
#ifndef NH_FILE_H
#define NH_FILE_H

#include <stddef.h>
#include <stdint.h>

/** Takes n bytes into a digest, which begins as NH_DIGEST_START: FNV-1a, 64 bits. */
#define NH_DIGEST_START UINT64_C(0xcbf29ce484222325)
uint64_t nh_digest(uint64_t digest, const void *bytes, size_t n);

/** Makes a folder and those above it; one that is there already is good. NH_FAILED with the folder and the reason. */
int nh_dir_make(const char *path);

/** Makes the names in a folder (files made, renamed, removed) safe against a crash. */
int nh_dir_sync(const char *path);

/** A file being written: PATH.part until the commit gives it its name. */
struct nh_part;

/** Starts PATH.part, over whatever a killed process left there. The folder must exist. */
int nh_part_create(struct nh_part **out, const char *path);

/** Adds bytes at the end, buffered. After a failure every later call fails with the same sentence. */
int nh_part_write(struct nh_part *p, const void *data, size_t size);

/** Goes on with PATH.part or, where that is missing, with PATH, which becomes PATH.part again: cut to its first `size`
 * bytes, more is added behind. Those must be there, begin with `head` and end a line. Such a file is kept. */
int nh_part_resume(struct nh_part **out, const char *path, const char *head, long long size);

/** Whether nh_part_resume would do, and the digest of what would be kept; changes nothing. */
int nh_part_check(const char *path, const char *head, long long size, uint64_t *digest);

/** Writes what is buffered, so that others see it. */
int nh_part_flush(struct nh_part *p);

/** The same and syncs it to the disk; *size = length of the file, for nh_part_resume. */
int nh_part_sync(struct nh_part *p, long long *size);

/** Digest of all bytes of the file so far. */
uint64_t nh_part_digest(const struct nh_part *p);

/** From now on nh_part_destroy leaves PATH.part as it was last flushed. */
void nh_part_keep(struct nh_part *p);

/** Writes what is buffered, syncs it to the disk and renames PATH.part to PATH, over an older PATH. Once at most. */
int nh_part_commit(struct nh_part *p);

/** Frees p, and removes PATH.part unless it was committed or is kept. NULL is allowed. */
void nh_part_destroy(struct nh_part *p);

/** Removes every PATH.part that nh_part_destroy would remove, for a program that ends at once. Allocates nothing. */
void nh_parts_remove(void);

/** All of the above for a small file: text[0..size) becomes the file PATH, or PATH stays as it was. */
int nh_file_write(const char *path, const char *text, size_t size);

#endif
