// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/names.h"

#include "harness/cli/near.h"
#include "harness/core/err.h"
#include "harness/core/policy.h"
#include "harness/data/data.h"
#include "harness/hf/arch.h"
#include "layouts/layout.h"
#include "probes/probe.h"

#include <string.h>

static const char *layout_name(size_t i)
{
    return nh_layouts[i] ? nh_layouts[i]->name : NULL;
}

static const char *const *layout_aliases(size_t i)
{
    return nh_layouts[i]->aliases;
}

static const char *policy_name(size_t i)
{
    return nh_policies[i] ? nh_policies[i]->name : NULL;
}

static const char *const *policy_aliases(size_t i)
{
    return nh_policies[i]->aliases;
}

static const char *probe_name(size_t i)
{
    return nh_probes[i] ? nh_probes[i]->name : NULL;
}

static const char *const *probe_aliases(size_t i)
{
    return nh_probes[i]->aliases;
}

static const char *data_name(size_t i)
{
    return nh_data_sources[i] ? nh_data_sources[i]->name : NULL;
}

static const char *const *no_aliases(size_t i)
{
    (void)i;
    return NULL;
}

static const char *arch_name(size_t i)
{
    return nh_archs[i] ? nh_archs[i]->name : NULL;
}

static const char *const *arch_aliases(size_t i)
{
    return nh_archs[i]->aliases;
}

const struct nh_names nh_layout_names = {"layout", "layouts", layout_name, layout_aliases};
const struct nh_names nh_policy_names = {"policy", "policies", policy_name, policy_aliases};
const struct nh_names nh_probe_names = {"probe", "probes", probe_name, probe_aliases};
const struct nh_names nh_data_names = {"data source", "data", data_name, no_aliases};
const struct nh_names nh_arch_names = {"model", "models", arch_name, arch_aliases};

int nh_names_find(const struct nh_names *names, const char *text, size_t *index)
{
    struct nh_near near = nh_near_start(text, "");
    nh_near_synonym(&near, names->thing);
    for (size_t i = 0; names->name(i); i++) {
        const char *alone[] = {NULL};
        const char *const *alias = names->aliases(i) ? names->aliases(i) : alone;
        for (const char *name = names->name(i); name; name = *alias++) {
            if (strcmp(name, text) == 0) {
                *index = i;
                return NH_OK;
            }
            nh_near_try(&near, name);
        }
    }
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "there is no %s '%.60s'%s ('harness list %s' shows all)", names->thing, text,
                   nh_near_text(&near, hint), names->topic);
}

int nh_find_layout(const struct nh_layout **layout, const char *text)
{
    size_t i;
    const int status = nh_names_find(&nh_layout_names, text, &i);
    if (!status)
        *layout = nh_layouts[i];
    return status;
}
