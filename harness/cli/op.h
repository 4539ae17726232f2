// SPDX-License-Identifier: GPL-3.0-or-later
/** harness op: one operation of the core on given tensors, on a tape of its own. */
#ifndef NH_OP_H
#define NH_OP_H

#include "harness/cli/value.h"
#include "harness/core/graph.h"
#include "harness/io/safetensors.h"

#include <stdio.h>

/** Tensors of an operation at the most; the largest dimension, and the most rows: no size in bytes overflows. */
enum { NH_OP_TENSORS = 3, NH_OP_MAX_DIM = 1 << 28 };

/** What is asked for. config stands first: options find their fields from it. */
struct nh_op_request {
    struct nh_config config;
    int group, head_dim; /**< 0 = all columns */
    bool gradients, force;
    const char *in, *out; /**< out: NULL = the result is not written */
};

/** How a tensor gets onto the tape. Values have the shape [cols], [T, cols] or [B, T, cols]; tokens that of a value
 * without its columns. */
enum nh_op_kind { NH_OP_VALUE = 1, NH_OP_MATRIX, NH_OP_VECTOR, NH_OP_TOKENS };

struct nh_op_tensor {
    const char *name; /**< NULL: no more of them */
    enum nh_op_kind kind;
    enum nh_role role; /**< its format: what is given is rounded to it first */
    bool optional;
};

struct nh_op_build;

/** An operation. The first tensor has the rows; the others must agree with it. */
struct nh_operation {
    const char *name;
    struct nh_op_tensor tensors[NH_OP_TENSORS];
    const char *const *attributes; /**< options of its own, closed by NULL; NULL = none */
    bool unrounded;                /**< what is given is not rounded first */
    const char *what;
    /** Records it behind its inputs: b->out. A sentence where shapes and attributes do not fit. */
    int (*build)(struct nh_op_build *b);
};

struct nh_op_build {
    const struct nh_operation *op;
    const struct nh_op_request *q;
    struct nh_graph *g;
    const struct nh_tensor *given[NH_OP_TENSORS]; /**< NULL: not there */
    int at[NH_OP_TENSORS];                        /**< the value or the parameter of the graph, -1 = none */
    nh_val out;
};

extern const struct nh_operation nh_operations[];
extern const size_t nh_operation_count;

/** The operation of this name. NH_USAGE with the near names where there is none. */
int nh_operation_find(const struct nh_operation **op, const char *name);

/** Reads the words behind the name. NH_USAGE where the operation has no such option or it is not as it should be. */
int nh_op_request_read(struct nh_op_request *q, const struct nh_operation *op, int argc, char **argv);

/** Index of the tensor with this name, -1 where the operation has none. */
int nh_operation_tensor(const struct nh_operation *op, const char *name);

/** "x,weight,[bias]" and "--eps,--group"; "" where there are none. Return text. */
const char *nh_operation_tensors(const struct nh_operation *op, char *text, size_t size);
const char *nh_operation_attributes(const struct nh_operation *op, char *text, size_t size);

/** A parameter for tensor i: rows x cols in the role of that tensor. */
int nh_op_param(struct nh_op_build *b, int i, int rows, int cols);

int nh_cmd_op(int argc, char **argv);
void nh_op_help(FILE *file);

#endif
