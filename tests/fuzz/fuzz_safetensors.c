// SPDX-License-Identifier: GPL-3.0-or-later
/** The safetensors reader on any bytes. What it accepts must lie inside the bytes, cover them, and be readable;
 * metadata are texts. */
#include "harness/core/err.h"
#include "harness/io/safetensors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct nh_safetensors *s;
    const int status = nh_safetensors_parse(&s, bytes, n, "input");
    must((status == NH_OK) == (s != NULL));
    if (status) {
        must(status == NH_FAILED && strstr(nh_error(), "'input'") != NULL);
        return 0;
    }
    const unsigned char *end = NULL;
    for (size_t i = 0; i < nh_safetensors_count(s); i++) {
        const struct nh_tensor *t = nh_safetensors_at(s, i);
        must(t->bytes >= bytes + 8 && t->bytes <= bytes + n && (!end || t->bytes == end));
        must(nh_safetensors_find(s, t->name) == t);
        must(t->count <= n);
        double *numbers = malloc(t->count * sizeof *numbers + 1);
        must(numbers != NULL);
        nh_tensor_read(t, numbers);
        static const size_t widths[] = {
            [NH_TENSOR_F64] = 8, [NH_TENSOR_F32] = 4, [NH_TENSOR_F16] = 2, [NH_TENSOR_BF16] = 2,
            [NH_TENSOR_I64] = 8, [NH_TENSOR_I32] = 4, [NH_TENSOR_U8] = 1,  [NH_TENSOR_BOOL] = 1,
        };
        end = t->bytes + t->count * widths[t->type];
        if (t->type == NH_TENSOR_F64 || t->type == NH_TENSOR_F32)
            must(nh_safetensors_copy(s, t->name, t->type, numbers, t->count) == NH_OK);
        must(nh_safetensors_copy(s, t->name, NH_TENSOR_F64, numbers, t->count + 1) == NH_FAILED);
        free(numbers);
    }
    const char *text = nh_safetensors_meta(s, "format");
    must(!text || strlen(text) < n);
    must(!end || end == bytes + n);
    nh_safetensors_close(s);
    return 0;
}
