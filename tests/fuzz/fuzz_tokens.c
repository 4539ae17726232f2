// SPDX-License-Identifier: GPL-3.0-or-later
/** The text format of token ids, from memory. */
#include "harness/core/err.h"
#include "harness/data/data.h"
#include "harness/data/tokens.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const int vocab = n % 2 ? 100 : 0;
    struct nh_tokens tokens;
    const int status = nh_tokens_parse(&tokens, bytes, n, vocab, "input");
    if (status) {
        if (status != NH_FAILED || strstr(nh_error(), "'input'") == NULL)
            abort();
    } else {
        if (tokens.lines == 0 || tokens.start[0] != 0)
            abort();
        for (size_t line = 0; line < tokens.lines; line++)
            if (tokens.start[line + 1] <= tokens.start[line])
                abort();
        for (size_t i = 0; i < tokens.start[tokens.lines]; i++)
            if (tokens.ids[i] < 0 || tokens.ids[i] > tokens.largest || tokens.largest > NH_DATA_MAX_ID ||
                (vocab && tokens.ids[i] >= vocab))
                abort();
    }
    nh_tokens_free(&tokens);
    return 0;
}
