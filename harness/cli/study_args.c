// SPDX-License-Identifier: GPL-3.0-or-later
/** The words that a study gives to harness/sweep.sh, looked at before anything runs: a wrong one in the last sweep would
 * else be found when all others are done. */
#include "harness/cli/options.h"
#include "harness/cli/study.h"
#include "harness/core/err.h"

#include <string.h>

/** Words of one call; what is varied is OPTION=V1,V2,... */
struct args {
    const char *place, *field;
    char **fixed, **varied;
    size_t n_fixed, n_varied;
};

/* What harness/sweep.sh is told by `harness study`, or would end it early. */
static const char *const own[] = {"seeds", "seed", "jobs", "out", "harness", "print", "help", "dry-run", "threads", NULL};

static bool is_word(const char *word, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(word, name, n) == 0 && (word[n] == '\0' || word[n] == '=');
}

static int refuse_own(const struct args *a, const char *option)
{
    for (size_t i = 0; own[i]; i++)
        if (is_word(option, own[i]))
            return nh_fail(NH_FAILED, "%.500s: '%s': --%s is not for a study to say; leave it out", a->place, a->field, own[i]);
    return NH_OK;
}

static int split(struct args *a, struct obstack *memory, const char *text)
{
    char *rest = strcpy(nh_alloc(memory, strlen(text) + 1), text), *word;
    int status = NH_OK;
    while (!status && (word = strsep(&rest, " "))) {
        if (!*word)
            continue;
        if (!is_word(word, "--vary")) {
            a->fixed[a->n_fixed++] = word;
            status = strncmp(word, "--", 2) == 0 ? refuse_own(a, word + 2) : NH_OK;
            continue;
        }
        char *vary = word[strlen("--vary")] == '=' ? word + strlen("--vary=") : strsep(&rest, " ");
        const char *equals = vary ? strchr(vary, '=') : NULL;
        if (!equals || equals == vary || !equals[1])
            return nh_fail(NH_FAILED, "%.500s: '%s': --vary takes OPTION=V1,V2,...", a->place, a->field);
        a->varied[a->n_varied++] = vary;
        status = refuse_own(a, vary);
    }
    return status;
}

/* "--OPTION=VALUE" of the i-th value of what is varied; NULL behind the last. */
static char *one_value(struct obstack *memory, const char *varied, size_t i)
{
    const char *value = strchr(varied, '=') + 1, *separator = strchr(value, ';') ? ";" : ",";
    for (; i > 0; i--) {
        value += strcspn(value, separator);
        if (*value == '\0')
            return NULL;
        value++;
    }
    obstack_printf(memory, "--%.*s%.*s", (int)(strchr(varied, '=') + 1 - varied), varied, (int)strcspn(value, separator), value);
    return (char *)nh_grown(memory);
}

/* The cell with the i-th value of the k-th varied option and the first ones of all others. */
static int check_cell(const struct args *a, struct obstack *memory, size_t k, size_t i, bool *there)
{
    char **words = nh_alloc(memory, (a->n_fixed + a->n_varied + 1) * sizeof *words), sentence[800];
    size_t n = a->n_fixed;
    memcpy(words, a->fixed, n * sizeof *words);
    for (size_t j = 0; j < a->n_varied; j++)
        if (!(words[n++] = one_value(memory, a->varied[j], j == k ? i : 0))) {
            *there = false;
            return NH_OK;
        }
    *there = true;
    struct nh_options options;
    const int status = nh_options_parse(&options, (int)n, words);
    nh_options_free(&options);
    if (!status)
        return NH_OK;
    snprintf(sentence, sizeof sentence, "%s", nh_error());
    return nh_fail(NH_FAILED, "%.500s: '%s': %s", a->place, a->field, sentence);
}

int nh_study_check_args(struct obstack *memory, const char *place, const char *field, const char *text, const char *options)
{
    const size_t room = (strlen(text) + strlen(options) + 2) * sizeof(char *);
    struct args a = {.place = place, .field = field, .fixed = nh_alloc(memory, room), .varied = nh_alloc(memory, room)};
    int status = split(&a, memory, text);
    if (!status)
        status = split(&a, memory, options);
    bool there = true;
    if (!status)
        status = check_cell(&a, memory, 0, 0, &there);
    for (size_t k = 0; k < a.n_varied && !status; k++)
        for (size_t i = 1, more = true; more && !status; i++) {
            status = check_cell(&a, memory, k, i, &there);
            more = there;
        }
    return status;
}

int nh_study_check_seeds(const char *place, const char *field, const char *text)
{
    static const char digits[] = "0123456789";
    for (const char *s = text;; s++) {
        size_t n = strspn(s, digits);
        s += n;
        if (n && strncmp(s, "..", 2) == 0) {
            n = strspn(s + 2, digits);
            s += 2 + n;
        }
        if (!n || (*s && *s != ','))
            return nh_fail(NH_FAILED, "%.500s: '%s' must be a list of seeds, such as 0..4 or 0,3,7", place, field);
        if (!*s)
            return NH_OK;
    }
}
