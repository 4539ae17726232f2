// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/near.h"

#include "harness/cli/synonyms.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 64 };

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

size_t nh_near_distance(const char *a, const char *b)
{
    const size_t n = strlen(b);
    if (strlen(a) > LONGEST || n > LONGEST)
        return SIZE_MAX;
    size_t row[LONGEST + 1]; /* row[j]: from the part of a read so far to the first j bytes of b */
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (; *a; a++) {
        size_t diagonal = row[0]++;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (lower(*a) != lower(b[j - 1]));
            diagonal = row[j];
            best = best < row[j] + 1 ? best : row[j] + 1;
            row[j] = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
        }
    }
    return row[n];
}

struct nh_near nh_near_start(const char *wrong, const char *prefix)
{
    return (struct nh_near){.wrong = wrong, .prefix = prefix};
}

void nh_near_synonym(struct nh_near *near, const char *of)
{
    near->synonym = nh_synonym(of, near->wrong);
}

void nh_near_try(struct nh_near *near, const char *name)
{
    const size_t length = strlen(near->wrong);
    size_t distance = nh_near_distance(near->wrong, name);
    if (distance == SIZE_MAX)
        return;
    if (distance > 1 && length >= 2 && strncasecmp(near->wrong, name, length) == 0)
        distance = 1;
    if (distance > 1 + length / 4)
        return;
    size_t at = near->count;
    while (at > 0 && near->distances[at - 1] > distance)
        at--;
    if (at == NH_NEAR_MAX)
        return;
    if (near->count < NH_NEAR_MAX)
        near->count++;
    for (size_t i = near->count - 1; i > at; i--) {
        near->names[i] = near->names[i - 1];
        near->distances[i] = near->distances[i - 1];
    }
    near->names[at] = name;
    near->distances[at] = distance;
}

const char *nh_near_text(const struct nh_near *near, char text[NH_NEAR_SIZE])
{
    static const char *const before[NH_NEAR_MAX][NH_NEAR_MAX] = {{""}, {"", " or "}, {"", ", ", " or "}};
    text[0] = '\0';
    size_t n = 0;
    if (near->synonym)
        snprintf(text, NH_NEAR_SIZE, "; did you mean %s?", near->synonym);
    for (size_t i = 0; !near->synonym && i < near->count; i++)
        n += (size_t)snprintf(text + n, NH_NEAR_SIZE - n, "%s%s%s%s%s", i ? "" : "; did you mean ", before[near->count - 1][i],
                              near->prefix, near->names[i], i + 1 < near->count ? "" : "?");
    return text; /* three names of at most 64 bytes each fit */
}
