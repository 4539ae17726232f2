// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/take.h"
#include "harness/core/err.h"

#include <string.h>

int nh_take_value(int argc, char **argv, int *at, const char *name, const char *placeholder, const char **value)
{
    const char *word = argv[*at];
    const size_t length = strlen(name);
    if (strncmp(word, name, length) != 0 || (word[length] != '=' && word[length] != '\0'))
        return 0;
    if (word[length] == '=')
        *value = word + length + 1;
    else
        *value = *at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0 ? argv[++*at] : "";
    if (**value == '\0')
        return nh_fail(NH_USAGE, "%s needs a value: %s %s", name, name, placeholder);
    return 1;
}
