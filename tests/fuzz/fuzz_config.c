// SPDX-License-Identifier: GPL-3.0-or-later
/** A config.json of any bytes, read as every architecture: settings that all have a value, or a refusal that names the file. */
#include "harness/core/err.h"
#include "harness/hf/arch.h"

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
    json_t *config = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL);
    for (size_t i = 0; json_is_object(config) && nh_archs[i]; i++) {
        if (!nh_archs[i]->keys)
            continue;
        struct nh_hf_reading in = {.config = config, .path = "input", .has_head = n % 2};
        const int status = nh_arch_read(&in, nh_archs[i]);
        must(status == NH_OK || (status == NH_FAILED && strstr(nh_error(), "'input'") != NULL));
        for (size_t s = 0; s < in.n_settings; s++)
            must(*in.settings[s].option && *in.settings[s].value && strlen(in.settings[s].value) < NH_SETTING_SIZE);
        must(!in.settings[in.n_settings].option);
        nh_hf_reading_free(&in);
    }
    json_decref(config);
    return 0;
}
