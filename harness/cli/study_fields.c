// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/study_fields.h"
#include "harness/cli/near.h"
#include "harness/cli/study.h"
#include "harness/core/err.h"

#include <math.h>
#include <string.h>

static bool read_text(struct obstack *memory, const json_t *json, void *to)
{
    (void)memory;
    *(const char **)to = json_string_value(json);
    return json_string_length(json) > 0;
}

static bool read_count(struct obstack *memory, const json_t *json, void *to)
{
    (void)memory;
    *(size_t *)to = (size_t)json_integer_value(json);
    return json_is_integer(json) && json_integer_value(json) > 0;
}

static bool read_share(struct obstack *memory, const json_t *json, void *to)
{
    (void)memory;
    const double share = json_number_value(json);
    *(double *)to = share;
    return json_is_number(json) && share > 0 && share <= 1;
}

static bool read_flag(struct obstack *memory, const json_t *json, void *to)
{
    (void)memory;
    *(bool *)to = json_is_true(json);
    return json_is_boolean(json);
}

static bool read_words(struct obstack *memory, const json_t *json, void *to)
{
    struct nh_words *w = to;
    *w = (struct nh_words){nh_alloc(memory, (json_array_size(json) + 1) * sizeof *w->words), json_array_size(json)};
    for (size_t i = 0; i < w->n; i++)
        if (!(w->words[i] = json_string_value(json_array_get(json, i))))
            return false;
    return w->n > 0;
}

static bool read_end(const json_t *json, double open, double *end)
{
    *end = json_is_null(json) ? open : json_number_value(json);
    return json_is_null(json) || json_is_number(json);
}

static bool read_range(struct obstack *memory, const json_t *json, void *to)
{
    (void)memory;
    struct nh_range *r = to;
    return json_array_size(json) == 2 && read_end(json_array_get(json, 0), -(double)INFINITY, &r->low) &&
           read_end(json_array_get(json, 1), (double)INFINITY, &r->high) && r->low <= r->high;
}

static bool is_value(const json_t *json)
{
    return json_is_string(json) || json_is_number(json);
}

static bool read_where(struct obstack *memory, const json_t *json, void *to)
{
    (void)memory;
    *(const json_t **)to = json;
    const char *option;
    json_t *value, *one;
    size_t i;
    json_object_foreach ((json_t *)json, option, value) {
        if (!is_value(value) && json_array_size(value) == 0)
            return false;
        json_array_foreach (value, i, one)
            if (!is_value(one))
                return false;
    }
    return json_is_object(json);
}

static bool read_wheres(struct obstack *memory, const json_t *json, void *to)
{
    size_t i;
    json_t *one;
    const json_t *where;
    *(const json_t **)to = json;
    json_array_foreach (json, i, one)
        if (!read_where(memory, one, &where))
            return false;
    return json_array_size(json) > 1;
}

/* Its objects are read one by one, later. */
static bool is_list(struct obstack *memory, const json_t *json, void *to)
{
    (void)memory, (void)to;
    return json_is_array(json);
}

const struct nh_field_kind nh_field_text = {"a text", read_text},
                           nh_field_count = {"a whole number from 1", read_count},
                           nh_field_share = {"a number above 0, at most 1", read_share},
                           nh_field_flag = {"true or false", read_flag},
                           nh_field_words = {"a list of texts", read_words},
                           nh_field_range = {"[LEAST, LARGEST], null for an open end", read_range},
                           nh_field_where = {"an object OPTION: value or list of values", read_where},
                           nh_field_wheres = {"a list of at least two objects OPTION: value", read_wheres},
                           nh_field_list = {"a list", is_list};

static const struct nh_field *find_field(const struct nh_field *const lists[2], const char *name)
{
    for (int k = 0; k < 2; k++)
        for (const struct nh_field *f = lists[k]; f && f->name; f++)
            if (strcmp(f->name, name) == 0)
                return f;
    return NULL;
}

static int unknown(const char *place, const struct nh_field *const lists[2], const char *name)
{
    struct nh_near near = nh_near_start(name, "");
    for (int k = 0; k < 2; k++)
        for (const struct nh_field *f = lists[k]; f && f->name; f++)
            nh_near_try(&near, f->name);
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_FAILED, "%.500s has no field '%.60s'%s (docs/studies.md tells all)", place, name,
                   nh_near_text(&near, hint));
}

int nh_fields_read(const char *place, struct obstack *memory, const json_t *json, const struct nh_field *fields,
                   const struct nh_field *more, void *to)
{
    const struct nh_field *const lists[2] = {fields, more};
    if (!json_is_object(json))
        return nh_fail(NH_FAILED, "%.500s must be an object (docs/studies.md tells its fields)", place);
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)json, name, value) {
        const struct nh_field *f = find_field(lists, name);
        if (!f)
            return unknown(place, lists, name);
        if (!f->kind->read(memory, value, (char *)to + f->at))
            return nh_fail(NH_FAILED, "%.500s: '%s' must be %s", place, name, f->kind->must_be);
    }
    for (int k = 0; k < 2; k++)
        for (const struct nh_field *f = lists[k]; f && f->name; f++)
            if (!f->optional && !json_object_get(json, f->name))
                return nh_fail(NH_FAILED, "%.500s lacks '%s', %s", place, f->name, f->kind->must_be);
    return NH_OK;
}
