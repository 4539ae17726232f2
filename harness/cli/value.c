// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/value.h"

#include "harness/cli/names.h"
#include "harness/cli/near.h"
#include "harness/core/err.h"
#include "harness/core/policy.h"
#include "harness/data/data.h"
#include "harness/hf/arch.h"
#include "layouts/layout.h"
#include "probes/probe.h"
#include "results/number.h"
#include "results/text.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(enum nh_ffn) == sizeof(int), "choices are stored as int");

static void *field(const struct nh_option *o, struct nh_config *c)
{
    return (char *)c + o->at;
}

static const void *field_of(const struct nh_option *o, const struct nh_config *c)
{
    return (const char *)c + o->at;
}

static int refuse(const struct nh_option *o, const char *text)
{
    char range[NH_VALUE_SIZE], hint[NH_NEAR_SIZE];
    o->kind->range(o, range);
    struct nh_near near = nh_near_start(text, "");
    nh_near_synonym(&near, o->kind->bare ? "switch" : o->name);
    return nh_fail(NH_USAGE, "--%s '%.60s' must be %s%s%s", o->name, text, o->kind->noun, range, nh_near_text(&near, hint));
}

/* Numbers. The word of an option stands for 0, which is never in its range. */

static void range_of_numbers(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    char min[NH_NUMBER_SIZE], max[NH_NUMBER_SIZE];
    nh_number_real(min, o->min);
    nh_number_real(max, o->max);
    snprintf(text, NH_VALUE_SIZE, "%s..%s%s%s", min, max, o->word ? ", or " : "", o->word ? o->word : "");
}

static void range_above_zero(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    char max[NH_NUMBER_SIZE];
    nh_number_real(max, o->max);
    snprintf(text, NH_VALUE_SIZE, "> 0%s%s%s%s", o->max > 0 ? " and at most " : "", o->max > 0 ? max : "", o->word ? ", or " : "",
             o->word ? o->word : "");
}

static bool is_word(const struct nh_option *o, const char *text)
{
    return o->word && strcmp(text, o->word) == 0;
}

static bool read_int(const char *text, double min, double max, int *out)
{
    const size_t sign = text[0] == '-';
    if (text[sign] == '\0' || text[sign + strspn(text + sign, "0123456789")] != '\0')
        return false;
    const long n = strtol(text, NULL, 10); /* beyond long: its end, which is in no range */
    *out = (int)n;
    return (double)n >= min && (double)n <= max;
}

static int int_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    int n = 0;
    if (!is_word(o, text) && !read_int(text, o->min, o->max, &n))
        return refuse(o, text);
    *(int *)field(o, c) = n;
    return NH_OK;
}

static const char *int_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    const int n = *(const int *)field_of(o, c);
    if (n == 0 && o->word)
        return o->word;
    snprintf(text, NH_VALUE_SIZE, "%d", n);
    return text;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Finite and whole: no blanks, no nan, no inf. */
static bool read_real(const char *text, double *out)
{
    const size_t n = strlen(text);
    return n > 0 && !is_blank(text[0]) && !is_blank(text[n - 1]) && nh_number_read(out, text) && isfinite(*out);
}

static int real_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    double x = 0;
    if (!is_word(o, text)) {
        if (!read_real(text, &x))
            return refuse(o, text);
        if (o->kind == &nh_value_positive ? !(x > 0 && (o->max <= 0 || x <= o->max)) : !(x >= o->min && x <= o->max))
            return refuse(o, text);
    }
    *(double *)field(o, c) = x;
    return NH_OK;
}

static const char *real_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    const double x = *(const double *)field_of(o, c);
    if (x <= 0 && o->word)
        return o->word;
    nh_number_real(text, x);
    return text;
}

/* A number with words. */

static void range_of_relax(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    char max[NH_NUMBER_SIZE];
    nh_number_real(max, o->max);
    snprintf(text, NH_VALUE_SIZE, "off, on%s%s, or a number > 0 and at most %s", o->word ? ", " : "", o->word ? o->word : "", max);
}

static int relax_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    double x = -1; /* the word */
    if (strcmp(text, "off") == 0)
        x = 0;
    else if (strcmp(text, "on") == 0)
        x = o->min;
    else if (!is_word(o, text) && (!read_real(text, &x) || !(x > 0 && x <= o->max)))
        return refuse(o, text);
    *(double *)field(o, c) = x;
    return NH_OK;
}

static const char *relax_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    const double x = *(const double *)field_of(o, c);
    if (x <= 0)
        return x < 0 ? o->word : "off";
    nh_number_real(text, x);
    return text;
}

static void range_of_scales(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    (void)o;
    snprintf(text, NH_VALUE_SIZE, "auto, off, or a number in 2^-126..2^126");
}

static int scale_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    double x = 0;
    if (strcmp(text, "off") == 0)
        x = 1;
    else if (strcmp(text, "auto") != 0 && (!read_real(text, &x) || !(x >= 0x1p-126 && x <= 0x1p126))) /* 1/x is a float too */
        return refuse(o, text);
    *(double *)field(o, c) = x;
    return NH_OK;
}

static const char *scale_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    const double x = *(const double *)field_of(o, c);
    if (x <= 0)
        return "auto";
    nh_number_real(text, x);
    return text;
}

static void range_of_seeds(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    (void)o;
    snprintf(text, NH_VALUE_SIZE, "0..2^64-1");
}

static int seed_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    errno = 0;
    const unsigned long long n = strtoull(text, NULL, 10);
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0' || errno == ERANGE)
        return refuse(o, text);
    *(uint64_t *)field(o, c) = n;
    return NH_OK;
}

static const char *seed_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    nh_number_count(text, *(const uint64_t *)field_of(o, c));
    return text;
}

/* One of a few words. */

static void range_of_choices(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    size_t n = 0;
    for (size_t i = 0; o->choices[i] && n < NH_VALUE_SIZE; i++)
        n += (size_t)snprintf(text + n, NH_VALUE_SIZE - n, "%s%s", i ? "|" : "", o->choices[i]);
}

static int find_choice(const struct nh_option *o, const char *text)
{
    for (int i = 0; o->choices[i]; i++)
        if (strcmp(o->choices[i], text) == 0)
            return i;
    return -1;
}

static int choice_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    const int i = find_choice(o, text);
    if (i < 0)
        return refuse(o, text);
    memcpy(field(o, c), &i, sizeof i);
    return NH_OK;
}

static const char *choice_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)text;
    int i;
    memcpy(&i, field_of(o, c), sizeof i);
    return o->choices[i];
}

static int pick_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    if (find_choice(o, text) < 0)
        return refuse(o, text);
    *(int *)field(o, c) = (int)strtol(text, NULL, 10);
    return NH_OK;
}

static int either_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    const int i = find_choice(o, text);
    if (i < 0)
        return refuse(o, text);
    *(bool *)field(o, c) = i == 1;
    return NH_OK;
}

static const char *either_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)text;
    return o->choices[*(const bool *)field_of(o, c)];
}

/* Layers by letter. */

static void range_of_patterns(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    snprintf(text, NH_VALUE_SIZE, "up to %.0f letters l (local) and g (global)", o->max);
}

static int pattern_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    if (text[strspn(text, "lg")] != '\0' || (double)strlen(text) > o->max)
        return refuse(o, text);
    *(const char **)field(o, c) = text;
    return NH_OK;
}

/* How a rotation is stretched. */

static const char *const rope_forms[] = {[NH_ROPE_PLAIN] = "none", [NH_ROPE_LINEAR] = "linear", [NH_ROPE_LLAMA3] = "llama3"};

static void range_of_ropes(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    (void)o;
    snprintf(text, NH_VALUE_SIZE, "none, linear:FACTOR, or llama3:FACTOR,LOW,HIGH,ORIGINAL with numbers > 0 and LOW < HIGH");
}

static int rope_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    static const int wanted[] = {[NH_ROPE_PLAIN] = 0, [NH_ROPE_LINEAR] = 1, [NH_ROPE_LLAMA3] = 4};
    struct nh_rope_scaling s = {.form = NH_ROPE_PLAIN};
    double *const numbers[] = {&s.factor, &s.low, &s.high, &s.original};
    const size_t name = strcspn(text, ":");
    while (s.form <= NH_ROPE_LLAMA3 && (strlen(rope_forms[s.form]) != name || strncmp(rope_forms[s.form], text, name) != 0))
        s.form++;
    int n = 0;
    const char *at = text + name;
    for (; s.form <= NH_ROPE_LLAMA3 && *at && n < 4; n++) {
        const size_t length = strcspn(at + 1, ",");
        char number[64];
        snprintf(number, sizeof number, "%.*s", length < sizeof number ? (int)length : 0, at + 1);
        if (!read_real(number, numbers[n]) || !(*numbers[n] > 0))
            return refuse(o, text);
        at += 1 + length;
    }
    if (s.form > NH_ROPE_LLAMA3 || *at || n != wanted[s.form] || (s.form == NH_ROPE_LLAMA3 && !(s.low < s.high)))
        return refuse(o, text);
    *(struct nh_rope_scaling *)field(o, c) = s;
    return NH_OK;
}

static const char *rope_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    const struct nh_rope_scaling *s = field_of(o, c);
    char factor[NH_NUMBER_SIZE], low[NH_NUMBER_SIZE], high[NH_NUMBER_SIZE], original[NH_NUMBER_SIZE];
    nh_number_real(factor, s->factor), nh_number_real(low, s->low);
    nh_number_real(high, s->high), nh_number_real(original, s->original);
    if (s->form == NH_ROPE_LLAMA3)
        snprintf(text, NH_VALUE_SIZE, "llama3:%s,%s,%s,%s", factor, low, high, original);
    else
        snprintf(text, NH_VALUE_SIZE, s->form == NH_ROPE_LINEAR ? "linear:%s" : "none", factor);
    return text;
}

static const enum nh_branches branches_of_choice[] = {NH_BRANCHES_BOTH, NH_BRANCHES_ATTN, NH_BRANCHES_FFN};

static int branches_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    const int i = find_choice(o, text);
    if (i < 0)
        return refuse(o, text);
    c->branches = branches_of_choice[i];
    return NH_OK;
}

static const char *branches_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)text;
    int i = 0;
    while (branches_of_choice[i] != c->branches)
        i++;
    return o->choices[i];
}

/* Names of the registries. */

static void no_range(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    (void)o;
    text[0] = '\0';
}

static int layout_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    (void)o;
    return nh_find_layout(&c->layout, text);
}

static const char *layout_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)o, (void)text;
    return c->layout->name;
}

static int policy_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    (void)o;
    size_t i;
    const int status = nh_names_find(&nh_policy_names, text, &i);
    if (!status)
        c->policy = nh_policies[i];
    return status;
}

static const char *policy_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)o, (void)text;
    return c->policy->name;
}

/* What another program's name of a format is called here, behind a sentence. */
static const char *format_hint(const char *text, char hint[NH_NEAR_SIZE])
{
    struct nh_near near = nh_near_start(text, "");
    nh_near_synonym(&near, "dtype");
    return nh_near_text(&near, hint);
}

static int format_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    (void)o;
    if (nh_fmt_parse(&c->dtype, text) == NH_OK)
        return NH_OK;
    char why[512], hint[NH_NEAR_SIZE];
    snprintf(why, sizeof why, "%s", nh_error());
    return nh_fail(NH_USAGE, "--dtype: %s%s", why, format_hint(text, hint));
}

static const char *format_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)o, (void)text;
    return c->dtype.name;
}

static int probes_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    (void)o;
    c->probes = 0;
    if (strcmp(text, "none") == 0)
        return NH_OK;
    for (const char *end;; text = end + 1) {
        end = strchrnul(text, ',');
        char name[NH_VALUE_SIZE];
        snprintf(name, sizeof name, "%.*s", (int)(end - text < NH_VALUE_SIZE ? end - text : NH_VALUE_SIZE - 1), text);
        size_t i;
        const int status = nh_names_find(&nh_probe_names, name, &i);
        if (status)
            return status;
        c->probes |= UINT32_C(1) << i;
        if (*end == '\0')
            return NH_OK;
    }
}

static const char *probes_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)o;
    size_t n = 0;
    for (size_t i = 0; nh_probes[i]; i++)
        if (c->probes >> i & 1)
            n += (size_t)snprintf(text + n, NH_VALUE_SIZE - n, "%s%s", n ? "," : "", nh_probes[i]->name);
    return n ? text : "none";
}

static int arch_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    (void)o;
    size_t i;
    const int status = nh_names_find(&nh_arch_names, text, &i);
    if (!status)
        c->arch = nh_archs[i]->name;
    return status;
}

/* Formats of roles. "dtype" is kept as a word: --dtype may come later. */

static int role_of(const char *name, size_t length)
{
    for (int role = 0; role < NH_ROLE_COUNT; role++)
        if (strlen(nh_role_names[role]) == length && strncmp(nh_role_names[role], name, length) == 0)
            return role;
    return -1;
}

static int unknown_role(const char *text, int length)
{
    char list[NH_VALUE_SIZE];
    size_t n = 0;
    for (int role = 0; role < NH_ROLE_COUNT && n < sizeof list; role++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", role ? ", " : "", nh_role_names[role]);
    return nh_fail(NH_USAGE, "--roles '%.*s' must be ROLE=FORMAT,... with a role of %s", length < 60 ? length : 60, text, list);
}

static int roles_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    (void)o;
    for (const char *end;; text = end + 1) {
        end = strchrnul(text, ',');
        const size_t name = strcspn(text, "=,");
        const int role = role_of(text, name);
        if (role < 0 || text[name] != '=')
            return unknown_role(text, (int)(end - text));
        if (*c->role_format[role].name)
            return nh_fail(NH_USAGE, "--roles names %s twice; keep one", nh_role_names[role]);
        char format[64];
        snprintf(format, sizeof format, "%.*s", (int)(end - text - (ptrdiff_t)name - 1), text + name + 1);
        char hint[NH_NEAR_SIZE];
        if (strcmp(format, "dtype") == 0) {
            strcpy(c->role_format[role].name, format);
        } else {
            if (nh_fmt_parse(&c->role_format[role], format) != NH_OK)
                return nh_fail(NH_USAGE, "--roles %s='%.40s' must be dtype or a number format, such as fp32%s", nh_role_names[role],
                               format, format_hint(format, hint));
        }
        if (*end == '\0')
            return NH_OK;
    }
}

static const char *roles_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)o;
    size_t n = 0;
    text[0] = '\0';
    for (int role = 0; role < NH_ROLE_COUNT; role++)
        if (*c->role_format[role].name)
            n += (size_t)snprintf(text + n, NH_VALUE_SIZE - n, "%s%s=%s", n ? "," : "", nh_role_names[role],
                                  c->role_format[role].name);
    return text;
}

/* Free text. */

static void range_of_text(const struct nh_option *o, char text[NH_VALUE_SIZE])
{
    snprintf(text, NH_VALUE_SIZE, "at most %.0f bytes of printable UTF-8", o->max);
}

static int text_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    const char *end = text;
    for (size_t step; (step = nh_utf8(end)) > 0;)
        end += step;
    if (*end != '\0' || (double)(end - text) > o->max)
        return refuse(o, text);
    *(const char **)field(o, c) = text;
    return NH_OK;
}

static const char *text_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)text;
    const char *value = *(const char *const *)field_of(o, c);
    return value ? value : "";
}

/* The name before the colon; what follows it is for the source to judge. */
static int data_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    char name[NH_VALUE_SIZE];
    snprintf(name, sizeof name, "%s", text);
    name[strcspn(name, ":")] = '\0';
    size_t i;
    if (nh_names_find(&nh_data_names, name, &i) == NH_OK)
        return text_read(o, text, c);
    const char *source = nh_data_guess(text);
    if (source)
        return nh_fail(NH_USAGE, "--data '%.60s' is a file; write --data %s:%.200s", text, source, text);
    if (strpbrk(text, "./"))
        return nh_fail(NH_USAGE, "there is no data source and no file '%.60s'; a file is given as text:FILE or tokens:FILE", text);
    return nh_names_find(&nh_data_names, name, &i);
}

/* Knobs of the layout. */

void nh_knobs_start(const struct nh_layout *layout, double knobs[NH_MAX_KNOBS])
{
    for (size_t i = 0; layout->knobs && layout->knobs[i].name; i++) {
        assert(i < NH_MAX_KNOBS);
        knobs[i] = layout->knobs[i].start;
    }
}

static int unknown_knob(const struct nh_layout *layout, const char *name)
{
    if (!layout->knobs || !layout->knobs[0].name)
        return nh_fail(NH_USAGE, "--set %.60s: the layout %s has no knobs; leave --set out", name, layout->name);
    char list[NH_VALUE_SIZE];
    size_t n = 0;
    for (size_t i = 0; layout->knobs[i].name && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", layout->knobs[i].name);
    return nh_fail(NH_USAGE, "--set %.60s: the layout %s has no such knob; it has %s", name, layout->name, list);
}

static int knob_read(const struct nh_option *o, const char *text, struct nh_config *c)
{
    const char *value = strchr(text, '=');
    if (!value || value == text)
        return refuse(o, text);
    char name[NH_VALUE_SIZE];
    snprintf(name, sizeof name, "%s", text);
    name[strcspn(name, "=")] = '\0';
    const struct nh_knob *knob = c->layout->knobs;
    while (knob && knob->name && strcmp(knob->name, name) != 0)
        knob++;
    if (!knob || !knob->name)
        return unknown_knob(c->layout, name);
    double x = 0;
    if (knob->words) {
        char list[NH_VALUE_SIZE] = "";
        while (knob->words[(int)x] && strcmp(knob->words[(int)x], value + 1) != 0) {
            size_t n = strlen(list);
            snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", knob->words[(int)x]);
            x++;
        }
        if (!knob->words[(int)x])
            return nh_fail(NH_USAGE, "--set %s='%.60s' must be one of %s", name, value + 1, list);
    } else if (!read_real(value + 1, &x) || !(x >= knob->min && x <= knob->max)) {
        char min[NH_NUMBER_SIZE], max[NH_NUMBER_SIZE];
        nh_number_real(min, knob->min);
        nh_number_real(max, knob->max);
        return nh_fail(NH_USAGE, "--set %s='%.60s' must be a number in %s..%s", name, value + 1, min, max);
    }
    c->knobs[knob - c->layout->knobs] = x;
    return NH_OK;
}

static const char *knob_write(const struct nh_option *o, const struct nh_config *c, char text[NH_VALUE_SIZE])
{
    (void)o, (void)c;
    text[0] = '\0';
    return text;
}

const struct nh_value_kind nh_value_int = {"N",      "a whole number in ", false, true, range_of_numbers, int_read,
                                           int_write};
const struct nh_value_kind nh_value_pick = {"N", "one of ", false, true, range_of_choices, pick_read, int_write};
const struct nh_value_kind nh_value_real = {"X", "a number in ", false, true, range_of_numbers, real_read, real_write};
const struct nh_value_kind nh_value_positive = {"X", "a number ", false, true, range_above_zero, real_read, real_write};
const struct nh_value_kind nh_value_seed = {"N",       "a whole number in ", false, true, range_of_seeds, seed_read,
                                            seed_write};
const struct nh_value_kind nh_value_choice = {"WORD",           "one of ",   false,       true,
                                              range_of_choices, choice_read, choice_write};
const struct nh_value_kind nh_value_either = {"WORD",           "one of ",   false,       true,
                                              range_of_choices, either_read, either_write};
const struct nh_value_kind nh_value_switch = {"on|off",         "one of ",   true,        false,
                                              range_of_choices, either_read, either_write};
const struct nh_value_kind nh_value_level = {"WORD",           "one of ",   true,        true,
                                             range_of_choices, choice_read, choice_write};
const struct nh_value_kind nh_value_pattern = {"LETTERS", "", false, true, range_of_patterns, pattern_read, text_write};
const struct nh_value_kind nh_value_rope = {"FORM", "", false, true, range_of_ropes, rope_read, rope_write};
const struct nh_value_kind nh_value_branches = {"WORDS",          "one of ",     false,         true,
                                                range_of_choices, branches_read, branches_write};
const struct nh_value_kind nh_value_relax = {"X", "", true, true, range_of_relax, relax_read, relax_write};
const struct nh_value_kind nh_value_scale = {"X", "", false, true, range_of_scales, scale_read, scale_write};
const struct nh_value_kind nh_value_roles = {"ROLE=FORMAT", "", false, false, no_range, roles_read, roles_write};
const struct nh_value_kind nh_value_arch = {"NAME", "", false, false, no_range, arch_read, text_write};
const struct nh_value_kind nh_value_layout = {"NAME", "", false, false, no_range, layout_read, layout_write};
const struct nh_value_kind nh_value_format = {"FORMAT", "", false, false, no_range, format_read, format_write};
const struct nh_value_kind nh_value_policy = {"NAME", "", false, false, no_range, policy_read, policy_write};
const struct nh_value_kind nh_value_probes = {"NAMES", "", false, false, no_range, probes_read, probes_write};
const struct nh_value_kind nh_value_data = {"SOURCE", "", false, false, range_of_text, data_read, text_write};
const struct nh_value_kind nh_value_text = {"TEXT", "", false, false, range_of_text, text_read, text_write};
const struct nh_value_kind nh_value_knob = {"NAME=VALUE", "NAME=VALUE", false, false, no_range, knob_read, knob_write};
