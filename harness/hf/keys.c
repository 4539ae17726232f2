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

/* ---- where keys are looked for ---- */

static bool is_there(const json_t *value)
{
    return value && !json_is_null(value);
}

/** Equal values, whichever way their numbers are written. */
static bool same(const json_t *a, const json_t *b)
{
    const char *name;
    json_t *value;
    size_t i;
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) <= json_number_value(b) && json_number_value(a) >= json_number_value(b);
    if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        json_array_foreach(a, i, value)
            if (!same(value, json_array_get(b, i)))
                return false;
        return true;
    }
    if (json_is_object(a) && json_is_object(b) && json_object_size(a) == json_object_size(b)) {
        json_object_foreach((json_t *)(uintptr_t)a, name, value)
            if (!same(value, json_object_get(b, name)))
                return false;
        return true;
    }
    return json_equal(a, b);
}

static void refuse_twice(struct nh_hf_reading *in, const char *format, const char *name, const char *other)
{
    if (!*in->twice)
        snprintf(in->twice, sizeof in->twice, format, name, other);
}

/** A key of the text model; NULL where it is not there. A key that stands outside text_config too must say the same there, and none
 *  but the tie of the head, which is the whole model's, may stand there alone: what the original code makes of it differs. */
static const json_t *get(struct nh_hf_reading *in, const char *name)
{
    const json_t *value = json_object_get(in->config, name), *outer = json_object_get(in->outer, name);
    const bool is_outer = strcmp(name, "tie_word_embeddings") == 0;
    if (is_there(outer) && is_outer && !is_there(value))
        return outer;
    if (is_there(outer) && !value)
        refuse_twice(in, "%s stands outside text_config alone%s; write it into text_config", name, "");
    else if (is_there(outer) && !same(value, outer))
        refuse_twice(in, "%s is one thing in text_config and another outside it%s; keep the right one", name, "");
    return value;
}

/** The value of a key, or of one of several "a|b"; NULL where there is none. */
static const json_t *find(struct nh_hf_reading *in, const char *keys)
{
    const json_t *value = NULL;
    char found[64] = "", name[64];
    for (const char *end; *keys; keys = *end ? end + 1 : end) {
        end = strchrnul(keys, '|');
        snprintf(name, sizeof name, "%.*s", (int)(end - keys), keys);
        const json_t *other = get(in, name);
        if (is_there(value) && is_there(other) && !same(value, other))
            refuse_twice(in, "%s and %s are two names of one key and not the same; keep the right one", found, name);
        if (!is_there(value) && other)
            value = other, strcpy(found, name);
    }
    return value;
}

/* ---- keys as options ---- */

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
static int whole(struct nh_hf_reading *in, const char *key, long long otherwise, long long *n)
{
    const json_t *value = find(in, key);
    *n = otherwise;
    if (!value || json_is_null(value) || is_whole(value, n))
        return NH_OK;
    return REFUSE(in, "%s must be a whole number", key);
}

static const char *setting(struct nh_hf_reading *in, const char *option)
{
    for (size_t i = 0; i < in->n_settings; i++)
        if (strcmp(in->settings[i].option, option) == 0)
            return in->settings[i].value;
    return "";
}

static int read_count(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    long long n;
    if (!is_whole(value, &n))
        return REFUSE(in, "%.*s must be a whole number", name_length(key->key), key->key);
    snprintf(text, NH_SETTING_SIZE, "%lld", n);
    return NH_OK;
}

static int read_real(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    double x;
    if (!is_number(value, &x))
        return REFUSE(in, "%.*s must be a number", name_length(key->key), key->key);
    nh_number_real(text, x);
    return NH_OK;
}

static int read_ratio(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
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

static int read_word(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
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

static int read_tie(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    static const char name[] = "tie_word_embeddings";
    value = get(in, name);
    if (is_there(value) && !json_is_boolean(value))
        return REFUSE(in, "%s must be true or false", name);
    if (json_is_boolean(value))
        strcpy(text, json_is_true(value) ? "on" : "off");
    else
        strcpy(text, *key->absent ? key->absent : in->has_head ? "off" : "on");
    return NH_OK;
}

static int read_bias(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    static const char *const forms[2][2] = {{"off", "ffn"}, {"attn", "on"}};
    (void)key, (void)value;
    int is[2];
    for (int i = 0; i < 2; i++) {
        const char *const name = i ? "mlp_bias" : "attention_bias";
        const json_t *bias = find(in, name);
        if (bias && !json_is_null(bias) && !json_is_boolean(bias))
            return REFUSE(in, "%s must be true or false", name);
        is[i] = json_is_true(bias);
    }
    strcpy(text, forms[is[0]][is[1]]);
    return NH_OK;
}

/** What rope_parameters say of a kind of layers, or of all alike; NULL = nothing. */
static const json_t *rope_of(struct nh_hf_reading *in, const char *kind)
{
    const json_t *all = get(in, "rope_parameters"), *one = json_object_get(all, kind);
    return json_is_object(one) ? one : json_is_object(all) ? all : NULL;
}

static int theta(struct nh_hf_reading *in, const struct nh_arch_key *key, const char *own, const json_t *rope,
                 char text[NH_SETTING_SIZE])
{
    const json_t *value = get(in, own);
    const json_t *other = json_object_get(rope, "rope_theta");
    double x, y;
    if (!value || json_is_null(value))
        value = other;
    if (!value || json_is_null(value)) {
        strcpy(text, key->absent);
        return NH_OK;
    }
    if (!is_number(value, &x) || !(x > 0))
        return REFUSE(in, "%s must be a number above 0", own);
    if (other && !json_is_null(other) && (!is_number(other, &y) || x < y || x > y)) /* which one is read differs between versions */
        return REFUSE(in, "%s and rope_theta of rope_parameters are not the same; keep the right one", own);
    nh_number_real(text, x);
    return NH_OK;
}

static int read_theta(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)value;
    return theta(in, key, "rope_theta", rope_of(in, "full_attention"), text);
}

static int read_theta_local(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)value;
    const json_t *local = rope_of(in, "sliding_attention");
    const bool nested = local != get(in, "rope_parameters");
    const int status = theta(in, key, "rope_local_base_freq", nested ? local : NULL, text);
    if (!status && !strchr(setting(in, "pattern"), 'l'))
        text[0] = '\0'; /* no layer has it */
    return status;
}

/** One of the forms of arguments that the core has (huggingface/transformers modeling_rope_utils.py). */
static int scaling(struct nh_hf_reading *in, const json_t *rope, char text[NH_SETTING_SIZE])
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
    const json_t *named = json_object_get(rope, "rope_type");
    if (!named)
        named = json_object_get(rope, "type");
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

static int read_scaling_global(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value,
                               char text[NH_SETTING_SIZE])
{
    (void)key, (void)value;
    const json_t *own = get(in, "rope_scaling"), *local = rope_of(in, "sliding_attention");
    const json_t *all = get(in, "rope_parameters");
    if (all && !json_is_null(all) && !json_is_object(all))
        return REFUSE(in, "%s must be an object or null", "rope_parameters");
    const bool nested = local != get(in, "rope_parameters");
    const int status = scaling(in, nested ? local : NULL, text);
    if (!status && strcmp(text, "none") != 0)
        return REFUSE(in, "%s of layers that see a window is not computed here; only global layers may have it", "rope_scaling");
    return status ? status : scaling(in, own && !json_is_null(own) ? own : rope_of(in, "full_attention"), text);
}

static int read_scaling(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    const int status = read_scaling_global(in, key, value, text);
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
static int listed(struct nh_hf_reading *in, const json_t *types, size_t depth, char text[NH_SETTING_SIZE])
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
static int layers(struct nh_hf_reading *in, long long period, long long n_global, char text[NH_SETTING_SIZE])
{
    const size_t depth = (size_t)strtoul(setting(in, "depth"), NULL, 10);
    const json_t *types = get(in, "layer_types");
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

static int read_layers(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)value;
    long long period;
    const int status = whole(in, key->words->option, strtoll(key->words->value, NULL, 10), &period);
    const json_t *types = get(in, "layer_types");
    if (!status && period < 1 && (!types || json_is_null(types)))
        return REFUSE(in, "%.*s must be a whole number above 0", name_length(key->words->option), key->words->option);
    return status ? status : layers(in, period > 0 ? period : 1, 0, text);
}

/** The flag stands above everything: without it no layer sees a window, whatever layer_types lists (huggingface/transformers
 *  models/qwen2 configuration_qwen2.py). A width that is null is no window either. */
static int read_layers_qwen(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    (void)key, (void)value;
    long long n_global;
    const json_t *flag = get(in, "use_sliding_window");
    if (is_there(flag) && !json_is_boolean(flag))
        return REFUSE(in, "%s must be true or false", "use_sliding_window");
    const int status = whole(in, "max_window_layers", 28, &n_global);
    if (!status && json_is_true(flag) && !json_is_null(get(in, "sliding_window")))
        return layers(in, 0, n_global, text);
    text[0] = '\0';
    return status;
}

/** The width of the window of local layers; `absent` is that of the class. */
static int read_window(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    value = get(in, "sliding_window");
    const bool used = strchr(setting(in, "pattern"), 'l') && !json_is_null(value);
    long long n;
    if (used && value && (!is_whole(value, &n) || n < 1))
        return REFUSE(in, "%s must be a whole number above 0, or null", "sliding_window");
    if (used && value)
        snprintf(text, NH_SETTING_SIZE, "%lld", n);
    else
        strcpy(text, used ? key->absent : "all");
    return NH_OK;
}

static int read_experts(struct nh_hf_reading *in, const struct nh_arch_key *key, const json_t *value, char text[NH_SETTING_SIZE])
{
    long long dense;
    const int status = whole(in, "num_dense_layers", 0, &dense);
    if (status || (double)dense < strtod(setting(in, "depth"), NULL))
        return status ? status : read_count(in, key, value, text);
    strcpy(text, "none");
    return NH_OK;
}

/* ---- and back ---- */

static void set(json_t *config, const char *keys, json_t *value)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", name_length(keys), keys);
    json_object_set_new(config, name, value);
}

static void write_count(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)c;
    set(config, key->key, json_integer(strtoll(text, NULL, 10)));
}

/* An option that is off is null. */
static void write_real(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)c;
    double x;
    set(config, key->key, nh_number_read(&x, text) ? json_real(x) : json_null());
}

static void write_ratio(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    set(config, key->key, json_integer(llround(strtod(text, NULL) * c->width)));
}

static void write_word(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)c;
    for (const struct nh_setting *w = key->words; key->option && w->option; w++)
        if (strcmp(w->value, text) == 0) {
            const bool is_true = strcmp(w->option, "true") == 0, is_false = strcmp(w->option, "false") == 0;
            set(config, key->key, is_true || is_false ? json_boolean(is_true) : json_string(w->option));
            return;
        }
}

static void write_head_dim(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)text;
    set(config, key->key, json_integer(nh_head_dim(c)));
}

static void write_query_scalar(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)text;
    set(config, key->key, json_real(c->query_scalar > 0 ? c->query_scalar : nh_head_dim(c)));
}

static void write_positions(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)text;
    set(config, key->key, json_integer(c->seq));
}

static void write_tie(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)key, (void)text;
    set(config, "tie_word_embeddings", json_boolean(c->tie));
}

static void write_bias(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)key, (void)text;
    set(config, "attention_bias", json_boolean(c->bias == NH_BIAS_ATTN || c->bias == NH_BIAS_ON));
    if (c->bias == NH_BIAS_FFN || c->bias == NH_BIAS_ON)
        set(config, "mlp_bias", json_true());
}

static void write_theta(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)key, (void)text;
    set(config, "rope_theta", json_real(c->theta));
}

static void write_theta_local(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)key, (void)text;
    set(config, "rope_local_base_freq", json_real(c->theta_local > 0 ? c->theta_local : c->theta));
}

static void write_scaling(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)key, (void)text;
    const struct nh_rope_scaling *s = &c->rope_scaling;
    json_t *rope = json_null();
    if (s->form == NH_ROPE_LINEAR)
        rope = json_pack("{s:s, s:f}", "rope_type", "linear", "factor", s->factor);
    else if (s->form == NH_ROPE_LLAMA3)
        rope = json_pack("{s:s, s:f, s:f, s:f, s:f}", "rope_type", "llama3", "factor", s->factor, "low_freq_factor", s->low,
                         "high_freq_factor", s->high, "original_max_position_embeddings", s->original);
    set(config, "rope_scaling", rope);
}

static void write_layers(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)key, (void)text;
    json_t *types = json_array();
    for (int l = 1; l <= c->depth; l++)
        json_array_append_new(types, json_string(nh_layer_is_local(c, l) ? "sliding_attention" : "full_attention"));
    set(config, "layer_types", types);
}

static void write_layers_qwen(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    set(config, "use_sliding_window", json_boolean(c->window > 0));
    write_layers(config, key, c, text);
}

static void write_window(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)key, (void)text;
    set(config, "sliding_window", c->window ? json_integer(c->window) : json_null());
}

static void write_dense(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)text;
    set(config, key->key, json_integer(c->moe.experts ? c->moe.dense_layers : c->depth));
}

static void write_mup(json_t *config, const struct nh_arch_key *key, const struct nh_config *c, const char *text)
{
    (void)text;
    set(config, key->key, json_boolean(c->embed_scale != 1));
}

const struct nh_key_kind nh_key_count = {read_count, write_count};
const struct nh_key_kind nh_key_real = {read_real, write_real};
const struct nh_key_kind nh_key_ratio = {read_ratio, write_ratio};
const struct nh_key_kind nh_key_word = {read_word, write_word};
const struct nh_key_kind nh_key_head_dim = {read_count, write_head_dim};
const struct nh_key_kind nh_key_query_scalar = {read_real, write_query_scalar};
const struct nh_key_kind nh_key_positions = {read_count, write_positions}; /* the shape of a table decides */
const struct nh_key_kind nh_key_tie = {read_tie, write_tie};
const struct nh_key_kind nh_key_bias = {read_bias, write_bias};
const struct nh_key_kind nh_key_theta = {read_theta, write_theta};
const struct nh_key_kind nh_key_theta_local = {read_theta_local, write_theta_local};
const struct nh_key_kind nh_key_scaling = {read_scaling, write_scaling};
const struct nh_key_kind nh_key_scaling_global = {read_scaling_global, write_scaling};
const struct nh_key_kind nh_key_layers = {read_layers, write_layers};
const struct nh_key_kind nh_key_layers_qwen = {read_layers_qwen, write_layers_qwen};
const struct nh_key_kind nh_key_window = {read_window, write_window};
const struct nh_key_kind nh_key_experts = {read_experts, write_count};
const struct nh_key_kind nh_key_dense = {read_count, write_dense};
const struct nh_key_kind nh_key_mup = {read_word, write_mup};

/* ---- a whole config.json ---- */

static int push(struct nh_hf_reading *in, const char *option, const char *value)
{
    /* a reading that fails tells that the two do not fit, so no status tells this */
    in->settings = nh_have(realloc(in->settings, (in->n_settings + 2) * sizeof *in->settings));
    char *copy = nh_have(strdup(value));
    in->settings[in->n_settings++] = (struct nh_setting){option, copy};
    in->settings[in->n_settings] = (struct nh_setting){NULL, NULL};
    return NH_OK;
}

/** One row of the table. */
static int read_key(struct nh_hf_reading *in, const struct nh_arch_key *key)
{
    char text[NH_SETTING_SIZE] = "";
    const json_t *value = key->key ? find(in, key->key) : NULL;
    if (!key->key || (value && !json_is_null(value))) {
        const int status = key->kind->read(in, key, value, text);
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
    for (const struct nh_arch_key *key = arch->keys; !status && key->kind; key++) {
        status = read_key(in, key);
        if (*in->twice)
            status = REFUSE(in, "%s", in->twice);
    }
    return status;
}

void nh_hf_reading_free(struct nh_hf_reading *in)
{
    for (size_t i = 0; i < in->n_settings; i++)
        free((char *)(uintptr_t)in->settings[i].value);
    free(in->settings);
    in->settings = NULL, in->n_settings = 0;
}

json_t *nh_arch_write(const struct nh_arch *arch, const struct nh_config *config,
                      const char *(*text)(void *arg, const char *option), void *arg)
{
    json_t *out = json_object();
    json_object_set_new(out, "model_type", json_string(*arch->types));
    if (arch->class)
        json_object_set_new(out, "architectures", json_pack("[s]", arch->class));
    for (const struct nh_arch_key *key = arch->keys; key->kind; key++)
        key->kind->write(out, key, config, key->option ? text(arg, key->option) : "");
    return out;
}
