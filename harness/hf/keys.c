// SPDX-License-Identifier: GPL-3.0-or-later
/** Keys of a config.json as options. What would change the function and cannot be done is refused, with the key. */
#include "harness/core/err.h"
#include "harness/hf/arch.h"
#include "results/number.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(in, format, ...) nh_fail(NH_FAILED, "'%s': " format, (in)->path, __VA_ARGS__)

enum { MAX_LAYERS = 4096 };

const json_t *nh_key_find(const json_t *config, const char *keys)
{
    const json_t *value = NULL;
    for (const char *end; !value && *keys; keys = *end ? end + 1 : end) {
        char name[64];
        end = strchrnul(keys, '|');
        snprintf(name, sizeof name, "%.*s", (int)(end - keys), keys);
        value = json_object_get(config, name);
    }
    return value;
}

/** The first of the names that a row has. */
static int name_length(const char *keys)
{
    return (int)strcspn(keys, "|");
}

static bool is_number(const json_t *value, double *x)
{
    *x = json_number_value(value);
    return json_is_number(value) && isfinite(*x);
}

static bool is_whole(const json_t *value, long long *n)
{
    double x;
    if (!is_number(value, &x) || x != floor(x) || x < 0 || x > 0x1p31)
        return false;
    *n = (long long)x;
    return true;
}

/** A whole number of the config; `otherwise` where it is not there or null. */
static int whole(const struct nh_hf_reading *in, const char *key, long long otherwise, long long *n)
{
    const json_t *value = nh_key_find(in->config, key);
    *n = otherwise;
    if (!value || json_is_null(value) || is_whole(value, n))
        return NH_OK;
    return REFUSE(in, "%s must be a whole number", key);
}

static const char *setting(const struct nh_hf_reading *in, const char *option)
{
    for (size_t i = 0; i < in->n_settings; i++)
        if (strcmp(in->settings[i].option, option) == 0)
            return in->settings[i].value;
    return "";
}

int nh_key_count(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    long long n;
    if (!is_whole(value, &n))
        return REFUSE(in, "%.*s must be a whole number", name_length(key->key), key->key);
    snprintf(text, NH_SETTING_SIZE, "%lld", n);
    return NH_OK;
}

int nh_key_real(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    double x;
    if (!is_number(value, &x))
        return REFUSE(in, "%.*s must be a number", name_length(key->key), key->key);
    nh_number_real(text, x);
    return NH_OK;
}

int nh_key_ratio(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    long long n;
    const double width = strtod(setting(in, "width"), NULL);
    if (!is_whole(value, &n) || n < 1 || !(width >= 1))
        return REFUSE(in, "%.*s must be a whole number above 0", name_length(key->key), key->key);
    nh_number_real(text, (double)n / width);
    return NH_OK;
}

/** A JSON value as it would be written, strings without quotes; "" for what is neither word nor number. */
static const char *plain_text(const json_t *value, char number[NH_NUMBER_SIZE])
{
    number[0] = '\0';
    if (json_is_number(value))
        nh_number_real(number, json_number_value(value));
    return json_is_string(value)    ? json_string_value(value)
           : json_is_boolean(value) ? (json_is_true(value) ? "true" : "false")
                                    : number;
}

int nh_key_word(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    char number[NH_NUMBER_SIZE], list[256] = "";
    const char *word = plain_text(value, number);
    size_t n = 0;
    for (const struct nh_setting *w = key->words; w->option; w++) {
        if (strcmp(w->option, word) == 0) {
            snprintf(text, NH_SETTING_SIZE, "%s", w->value);
            return NH_OK;
        }
        if (n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", w->option);
    }
    return REFUSE(in, "%.*s '%.40s' is not among what the program computes: %s", name_length(key->key), key->key, word, list);
}

int nh_key_tie(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    static const char name[] = "tie_word_embeddings";
    value = json_object_get(in->config, name);
    if (value && !json_is_null(value) && !json_is_boolean(value))
        return REFUSE(in, "%s must be true or false", name);
    if (json_is_boolean(value))
        strcpy(text, json_is_true(value) ? "on" : "off");
    else
        strcpy(text, *key->absent ? key->absent : in->has_head ? "off" : "on");
    return NH_OK;
}

int nh_key_bias(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    static const char *const forms[2][2] = {{"off", "ffn"}, {"attn", "on"}};
    (void)key, (void)value;
    int is[2];
    for (int i = 0; i < 2; i++) {
        const char *const name = i ? "mlp_bias" : "attention_bias";
        const json_t *bias = nh_key_find(in->config, name);
        if (bias && !json_is_null(bias) && !json_is_boolean(bias))
            return REFUSE(in, "%s must be true or false", name);
        is[i] = json_is_true(bias);
    }
    strcpy(text, forms[is[0]][is[1]]);
    return NH_OK;
}

/** What rope_parameters say of a kind of layers, or of all alike; NULL = nothing. */
static const json_t *rope_of(const struct nh_hf_reading *in, const char *kind)
{
    const json_t *all = json_object_get(in->config, "rope_parameters"), *one = json_object_get(all, kind);
    return json_is_object(one) ? one : json_is_object(all) ? all : NULL;
}

static int theta(const struct nh_hf_reading *in, const struct nh_arch_key *key, const char *own, const json_t *rope,
                 char text[NH_SETTING_SIZE])
{
    const json_t *value = json_object_get(in->config, own);
    double x;
    if (!value || json_is_null(value))
        value = json_object_get(rope, "rope_theta");
    if (!value || json_is_null(value)) {
        strcpy(text, key->absent);
        return NH_OK;
    }
    if (!is_number(value, &x) || !(x > 0))
        return REFUSE(in, "%s must be a number above 0", own);
    nh_number_real(text, x);
    return NH_OK;
}

int nh_key_theta(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)value;
    return theta(in, key, "rope_theta", rope_of(in, "full_attention"), text);
}

int nh_key_theta_local(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)value;
    const json_t *local = rope_of(in, "sliding_attention");
    const bool nested = local != json_object_get(in->config, "rope_parameters");
    const int status = theta(in, key, "rope_local_base_freq", nested ? local : NULL, text);
    if (!status && !strchr(setting(in, "pattern"), 'l'))
        text[0] = '\0'; /* no layer has it */
    return status;
}

/** One of the forms of arguments that the core has (huggingface/transformers modeling_rope_utils.py). */
static int scaling(const struct nh_hf_reading *in, const json_t *rope, char text[NH_SETTING_SIZE])
{
    static const struct {
        const char *type, *form;
        const char *keys[5];
    } forms[] = {
        {"default", "none", {NULL}},
        {"linear", "linear", {"factor", NULL}},
        {"llama3", "llama3", {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL}},
    };
    strcpy(text, "none");
    if (!rope || json_is_null(rope))
        return NH_OK;
    if (!json_is_object(rope))
        return REFUSE(in, "%s must be an object or null", "rope_scaling");
    const json_t *part = json_object_get(rope, "partial_rotary_factor");
    if (part && json_number_value(part) != 1)
        return REFUSE(in, "partial_rotary_factor %g rotates a part of each head; the program rotates all of it",
                      json_number_value(part));
    const json_t *named = nh_key_find(rope, "rope_type|type");
    const char *type = named ? json_string_value(named) : "default";
    size_t i = 0, n = 0;
    while (type && i < sizeof forms / sizeof *forms && strcmp(forms[i].type, type) != 0)
        i++;
    if (!type || i == sizeof forms / sizeof *forms)
        return REFUSE(in, "the rope_type '%.40s' of rope_scaling is not computed here; default, linear and llama3 are", type ? type : "");
    n = (size_t)snprintf(text, NH_SETTING_SIZE, "%s", forms[i].form);
    for (size_t k = 0; forms[i].keys[k]; k++) {
        double x;
        char number[NH_NUMBER_SIZE];
        if (!is_number(json_object_get(rope, forms[i].keys[k]), &x) || !(x > 0))
            return REFUSE(in, "rope_scaling of type %s needs %s, a number above 0", type, forms[i].keys[k]);
        nh_number_real(number, x);
        n += (size_t)snprintf(text + n, NH_SETTING_SIZE - n, "%s%s", k ? "," : ":", number);
    }
    return NH_OK;
}

int nh_key_scaling_global(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)key, (void)value;
    const json_t *own = json_object_get(in->config, "rope_scaling"), *local = rope_of(in, "sliding_attention");
    const bool nested = local != json_object_get(in->config, "rope_parameters");
    const int status = scaling(in, nested ? local : NULL, text);
    if (!status && strcmp(text, "none") != 0)
        return REFUSE(in, "%s of layers that see a window is not computed here; only global layers may have it", "rope_scaling");
    return status ? status : scaling(in, own && !json_is_null(own) ? own : rope_of(in, "full_attention"), text);
}

int nh_key_scaling(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    const int status = nh_key_scaling_global(in, key, value, text);
    if (!status && strcmp(text, "none") != 0 && strchr(setting(in, "pattern"), 'l'))
        return REFUSE(in, "%s together with layers that see a window is not computed here; set it to null", "rope_scaling");
    return status;
}

/** Leaves the shortest beginning of a pattern that gives all of it when it is repeated. */
static void shorten(char *pattern)
{
    const size_t n = strlen(pattern);
    for (size_t p = 1; p < n; p++)
        if (strncmp(pattern, pattern + p, n - p) == 0) {
            pattern[p] = '\0';
            return;
        }
}

/** The kinds that layer_types lists. */
static int listed(const struct nh_hf_reading *in, const json_t *types, size_t depth, char text[NH_SETTING_SIZE])
{
    if (!json_is_array(types) || json_array_size(types) != depth)
        return REFUSE(in, "layer_types must list %zu layers", depth);
    for (size_t i = 0; i < depth; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool local = type && strcmp(type, "sliding_attention") == 0;
        if (!local && !(type && strcmp(type, "full_attention") == 0))
            return REFUSE(in, "layer_types has '%.40s'; sliding_attention and full_attention are computed here", type ? type : "");
        text[i] = local ? 'l' : 'g';
    }
    return NH_OK;
}

/** Local and global layers: as layer_types lists them, else the last of every `period`, or with period 0 the first n_global, is
 *  global. */
static int layers(const struct nh_hf_reading *in, long long period, long long n_global, char text[NH_SETTING_SIZE])
{
    const size_t depth = (size_t)strtoul(setting(in, "depth"), NULL, 10);
    const json_t *types = json_object_get(in->config, "layer_types");
    int status = NH_OK;
    if (depth < 1 || depth > MAX_LAYERS)
        return REFUSE(in, "the number of layers must be in 1..%d", MAX_LAYERS);
    memset(text, 0, NH_SETTING_SIZE);
    if (types && !json_is_null(types))
        status = listed(in, types, depth, text);
    else
        for (size_t i = 0; i < depth; i++)
            text[i] = (period ? (i + 1) % (size_t)period == 0 : i < (size_t)n_global) ? 'g' : 'l';
    shorten(text);
    if (strcmp(text, "g") == 0 && strcmp(setting(in, "pos"), "interleaved") != 0)
        text[0] = '\0'; /* all alike */
    return status;
}

int nh_key_layers(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)value;
    long long period;
    const int status = whole(in, key->words->option, strtoll(key->words->value, NULL, 10), &period);
    return status ? status : layers(in, period > 0 ? period : MAX_LAYERS + 1, 0, text);
}

int nh_key_layers_qwen(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)key, (void)value;
    long long n_global;
    const json_t *window = json_object_get(in->config, "sliding_window");
    const bool used = json_is_true(json_object_get(in->config, "use_sliding_window")) && window && !json_is_null(window);
    const int status = whole(in, "max_window_layers", 28, &n_global);
    return status ? status : layers(in, 0, used ? n_global : MAX_LAYERS, text);
}

int nh_key_window(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    if (strchr(setting(in, "pattern"), 'l'))
        return nh_key_count(in, key, value, text);
    strcpy(text, "all");
    return NH_OK;
}

int nh_key_experts(const struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    long long dense;
    const int status = whole(in, "num_dense_layers", 0, &dense);
    if (status || (double)dense < strtod(setting(in, "depth"), NULL))
        return status ? status : nh_key_count(in, key, value, text);
    strcpy(text, "none");
    return NH_OK;
}

static int push(struct nh_hf_reading *in, const char *option, const char *value)
{
    struct nh_setting *more = realloc(in->settings, (in->n_settings + 2) * sizeof *more);
    char *copy = strdup(value);
    if (more)
        in->settings = more;
    if (!more || !copy) {
        free(copy);
        return nh_fail(NH_FAILED, "out of memory");
    }
    in->settings[in->n_settings++] = (struct nh_setting){option, copy};
    in->settings[in->n_settings] = (struct nh_setting){NULL, NULL};
    return NH_OK;
}

/** One row of the table. */
static int read_key(struct nh_hf_reading *in, const struct nh_arch_key *key)
{
    char text[NH_SETTING_SIZE] = "";
    const json_t *value = key->key ? nh_key_find(in->config, key->key) : NULL;
    if (!key->key || (value && !json_is_null(value))) {
        const int status = key->convert(in, key, value, text);
        if (status)
            return status;
    } else {
        const char *otherwise = value && key->null ? key->null : key->absent;
        if (!otherwise)
            return REFUSE(in, "%.*s is missing", name_length(key->key), key->key);
        snprintf(text, sizeof text, "%s", otherwise);
    }
    return key->option && *text ? push(in, key->option, text) : NH_OK;
}

int nh_arch_read(struct nh_hf_reading *in, const struct nh_arch *arch)
{
    int status = NH_OK;
    for (const struct nh_setting *s = arch->fixed; !status && s->option; s++)
        status = push(in, s->option, s->value);
    for (const struct nh_arch_key *key = arch->keys; !status && key->convert; key++)
        status = read_key(in, key);
    return status;
}

void nh_hf_reading_free(struct nh_hf_reading *in)
{
    for (size_t i = 0; i < in->n_settings; i++)
        free((char *)(uintptr_t)in->settings[i].value);
    free(in->settings);
    in->settings = NULL, in->n_settings = 0;
}
