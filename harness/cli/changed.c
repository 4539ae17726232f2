// SPDX-License-Identifier: GPL-3.0-or-later
/** Which weights training has moved: parameters in kinds, one kind for all layers. */
#include "harness/cli/run.h"
#include "harness/core/err.h"

#include <stdlib.h>
#include <string.h>

/** "layers.3.attn.qkv" is of the kind "attn.qkv". */
static const char *kind_of(const struct nh_param *p)
{
    const char *rest = strncmp(p->name, "layers.", 7) == 0 ? strchr(p->name + 7, '.') : NULL;
    return rest ? rest + 1 : p->name;
}

static uint64_t count_changed(const unsigned char *changed, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += changed[i];
    return count;
}

struct nh_changed *nh_changed_kinds(const struct nh_run *run, size_t *n)
{
    const struct nh_graph *g = run->model.graph;
    struct nh_changed *kinds = nh_have(calloc((size_t)g->n_params + 1, sizeof *kinds));
    *n = 0;
    for (int p = 0; p < g->n_params; p++) {
        const struct nh_param *q = &g->params[p];
        size_t k = 0, size = (size_t)q->rows * (size_t)q->cols;
        if (q->frozen)
            continue;
        while (k < *n && strcmp(kinds[k].name, kind_of(q)) != 0)
            k++;
        *n += k == *n;
        uint64_t changed = count_changed(run->model.core->state(run->model.exec, p, NH_STATE_CHANGED), size);
        kinds[k].name = kind_of(q);
        kinds[k].tensors++, kinds[k].unchanged += changed == 0;
        kinds[k].numbers += size, kinds[k].numbers_changed += changed;
    }
    return kinds;
}
