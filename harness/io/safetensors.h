// SPDX-License-Identifier: GPL-3.0-or-later
/** Tensor files in the safetensors format: the length of the header (8 bytes, little-endian), a JSON header with dtype,
 * shape and data_offsets of each tensor, numbers in row-major order. A file is mapped, not copied, and nothing in it is
 * trusted. Refused: a header that does not begin with '{' or that anything but spaces follows, dtypes other than those
 * below, more than NH_SHAPE_MAX dimensions, offsets outside the file, sizes that are not shape times width, holes and
 * overlaps, a name twice, a __metadata__ that is something else than texts by name. A file that is cut or changed while
 * it is mapped reads as zeros, and nh_safetensors_check tells. */
#ifndef NH_SAFETENSORS_H
#define NH_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>

enum { NH_SHAPE_MAX = 8, NH_SHAPE_TEXT = 8 * 22 + 3 };

struct nh_shape {
    int rank; /**< 0: a single number */
    size_t dims[NH_SHAPE_MAX];
};

/** The product of the dimensions. */
size_t nh_shape_count(const struct nh_shape *shape);

/** "[2, 3]". Returns text. */
const char *nh_shape_text(const struct nh_shape *shape, char text[NH_SHAPE_TEXT]);

/* Of bytes, U8 and BOOL: masks that some checkpoints have beside their weights. */
enum nh_tensor_type {
    NH_TENSOR_F64,
    NH_TENSOR_F32,
    NH_TENSOR_F16,
    NH_TENSOR_BF16,
    NH_TENSOR_I64,
    NH_TENSOR_I32,
    NH_TENSOR_U8,
    NH_TENSOR_BOOL
};

struct nh_safetensors;

struct nh_tensor {
    const char *name;
    enum nh_tensor_type type;
    struct nh_shape shape;
    size_t count; /**< numbers in it, may be 0 */
    const unsigned char *bytes;
    const struct nh_safetensors *file;
};

/** Opens a file and checks all of its header. NH_FAILED with the file and what is wrong. */
int nh_safetensors_open(struct nh_safetensors **out, const char *path);

/** The same for bytes in memory, which must outlive *out; path stands for them in errors. */
int nh_safetensors_parse(struct nh_safetensors **out, const void *bytes, size_t size, const char *path);

/** Whether all that has been read so far was what the file held when it was opened. To be asked behind the last read and before its
 *  results are used. NH_FAILED where the file has been cut or changed since, or the disk has failed; unchanged for bytes in memory. */
int nh_safetensors_check(const struct nh_safetensors *s);

/** NULL is allowed. Tensors and their names end with it. */
void nh_safetensors_close(struct nh_safetensors *s);

/** The tensors, in the order of their data; and the one of a name, NULL where there is none. */
size_t nh_safetensors_count(const struct nh_safetensors *s);
const struct nh_tensor *nh_safetensors_at(const struct nh_safetensors *s, size_t index);
const struct nh_tensor *nh_safetensors_find(const struct nh_safetensors *s, const char *name);

/** True for F64, F32, F16 and BF16. */
bool nh_tensor_is_real(const struct nh_tensor *t);

/** Bytes of its numbers. */
size_t nh_tensor_bytes(const struct nh_tensor *t);

/** All count numbers as double: exact but for I64 beyond 2^53, which is rounded to nearest. */
void nh_tensor_read(const struct nh_tensor *t, double *out);

/** Numbers [first, first + n) as float (bits 32; F64, I64 and I32 rounded to nearest) or double (64). */
void nh_tensor_convert(const struct nh_tensor *t, size_t first, size_t n, int bits, void *out);

/** Numbers [first, first + n) are not read soon: memory need not hold what is mapped of them. */
void nh_tensor_let_go(const struct nh_tensor *t, size_t first, size_t n);

/** Copies the n numbers of a tensor bit by bit, to doubles (NH_TENSOR_F64), floats (NH_TENSOR_F32) or bytes
 * of 0 and 1 (NH_TENSOR_BOOL). NH_FAILED where
 * it is missing, of another type or of another size. */
int nh_safetensors_copy(const struct nh_safetensors *s, const char *name, enum nh_tensor_type type, void *out,
                        size_t n);

/** The text of a name in __metadata__; NULL where there is none. */
const char *nh_safetensors_meta(const struct nh_safetensors *s, const char *name);

/** A tensor to be written: doubles (NH_TENSOR_F64), floats (NH_TENSOR_F32) or bytes of 0 and 1 (NH_TENSOR_BOOL). */
struct nh_tensor_out {
    const char *name;
    enum nh_tensor_type type;
    struct nh_shape shape;
    const void *numbers;
};

/** An entry of __metadata__ to be written. */
struct nh_meta_out {
    const char *name, *text;
};

/** Writes a file that appears whole or not at all: tensors and metadata in the order given, numbers bit by bit from
 * where they are. Names must differ, and texts be UTF-8. The header is padded with blanks to a multiple of 8 bytes. replace: it takes the place of
 * a regular file at path; else NH_USAGE where there is one. */
int nh_safetensors_write(const char *path, bool replace, const struct nh_tensor_out *tensors, size_t n,
                         const struct nh_meta_out *meta, size_t n_meta);

struct nh_part;

/** The same up to the commit, which is left to the caller: *out is a part of `path` with all bytes in it, synced to the disk, to be
 *  committed or destroyed; NULL after a failure. */
int nh_safetensors_prepare(struct nh_part **out, const char *path, bool replace, const struct nh_tensor_out *tensors, size_t n,
                           const struct nh_meta_out *meta, size_t n_meta);

#endif
