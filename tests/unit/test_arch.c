// SPDX-License-Identifier: GPL-3.0-or-later
/** What a config.json leaves out has the value of the published class (huggingface/transformers, configuration_*.py). */
#include "harness/core/err.h"
#include "harness/hf/arch.h"
#include "tests/suite.h"

#include <string.h>

#define SIZES "\"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, \"intermediate_size\": 48, \"vocab_size\": 16"

/** The value that a config.json gives an option; "" where it sets none. */
static const char *value_of(const struct nh_hf_reading *in, const char *option)
{
    const char *value = "";
    for (size_t i = 0; i < in->n_settings; i++)
        if (strcmp(in->settings[i].option, option) == 0)
            value = in->settings[i].value;
    return value;
}

/** Checks "OPTION=VALUE ..." of an architecture and a config.json. */
static void sets(const char *arch, const char *text, bool has_head, const char *wanted)
{
    char words[512], *rest = words;
    json_t *config = json_loads(text, 0, NULL);
    ck_assert_msg(config != NULL, "no JSON: %s", text);
    struct nh_hf_reading in = {.config = config, .path = "config.json", .has_head = has_head};
    ck_assert_msg(nh_arch_read(&in, nh_arch_find(arch)) == NH_OK, "%s: %s", arch, nh_error());
    ck_assert_uint_lt((size_t)snprintf(words, sizeof words, "%s", wanted), sizeof words);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        ck_assert_msg(strcmp(value_of(&in, word), value) == 0, "%s, %s head of its own: %s is '%s', not '%s'", arch, has_head ? "a" : "no",
                      word, value_of(&in, word), value);
    }
    nh_hf_reading_free(&in);
    json_decref(config);
}

static const struct {
    const char *arch, *config, *wanted;
} absent[] = {
    {"llama", "{" SIZES "}", "kv-heads=heads head-dim=auto ffn=swiglu eps=1e-6 theta=10000 bias=off rope-scaling=none"},
    {"qwen2", "{" SIZES "}", "kv-heads=heads head-dim=auto ffn=swiglu eps=1e-6 theta=10000"},
    {"qwen3", "{" SIZES "}", "head-dim=128 ffn=swiglu eps=1e-6 theta=10000 bias=off"},
    {"olmo2", "{" SIZES "}", "head-dim=auto ffn=swiglu eps=1e-5 theta=10000 bias=off"},
    {"gemma2", "{" SIZES "}",
     "head-dim=256 query-scalar=256 ffn=geglu eps=1e-6 theta=10000 window=4096 pattern=lg score-softcap=50 softcap=30 bias=off"},
    {"gemma3", "{\"num_hidden_layers\": 6, \"hidden_size\": 32, \"intermediate_size\": 48}",
     "heads=8 kv-heads=4 vocab=262208 head-dim=256 query-scalar=256 ffn=geglu eps=1e-6 theta=1000000 theta-local=10000 window=4096 "
     "pattern=lllllg score-softcap=off softcap=off bias=off"},
    {"gpt2", "{\"n_layer\": 2, \"n_embd\": 32, \"n_head\": 4, \"vocab_size\": 16}", "ffn-mult=4 ffn=gelu eps=1e-5"},
    {"trinity", "{" SIZES ", \"moe_intermediate_size\": 16}",
     "head-dim=128 ffn=swiglu eps=1e-5 theta=10000 window=1024 embed-scale=1 experts=64 experts-active=6 experts-shared=2 "
     "dense-layers=1 route-scale=1 expert-mult=0.5"},
};
enum { N_ABSENT = sizeof absent / sizeof *absent };

START_TEST(keys_left_out_have_the_defaults_of_their_class)
{
    for (int head = 0; head < 2; head++)
        sets(absent[_i].arch, absent[_i].config, head, absent[_i].wanted);
}
END_TEST

/** Gemma and GPT-2 have one matrix for both ends unless their config.json says otherwise; others where the head has no tensor. */
START_TEST(heads_are_tied_as_their_class_has_them)
{
    static const struct {
        const char *arch, *with_head, *without;
    } cases[] = {{"llama", "tie=off", "tie=on"}, {"qwen2", "tie=off", "tie=on"}, {"qwen3", "tie=off", "tie=on"},
                 {"olmo2", "tie=off", "tie=on"}, {"gemma2", "tie=on", "tie=on"}, {"gemma3", "tie=on", "tie=on"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sets(cases[i].arch, "{" SIZES "}", true, cases[i].with_head);
        sets(cases[i].arch, "{" SIZES "}", false, cases[i].without);
        sets(cases[i].arch, "{" SIZES ", \"tie_word_embeddings\": false}", true, "tie=off");
        sets(cases[i].arch, "{" SIZES ", \"tie_word_embeddings\": true}", true, "tie=on");
        sets(cases[i].arch, "{" SIZES ", \"tie_word_embeddings\": null}", true, cases[i].with_head);
    }
    sets("gpt2", "{\"n_layer\": 2, \"n_embd\": 32, \"n_head\": 4, \"vocab_size\": 16}", true, "tie=on");
}
END_TEST

START_TEST(null_is_not_always_what_is_left_out)
{
    /* "null" says that there is no cap and no window; a key that is not there has the default of the class */
    sets("gemma2", "{" SIZES ", \"attn_logit_softcapping\": null, \"final_logit_softcapping\": null}", false,
         "score-softcap=off softcap=off");
    sets("gemma2", "{" SIZES ", \"head_dim\": 24, \"query_pre_attn_scalar\": 144}", false, "head-dim=24 query-scalar=144");
    sets("gemma3", "{" SIZES ", \"sliding_window_pattern\": 2, \"sliding_window\": 7}", false, "pattern=lg window=7");
    sets("llama", "{" SIZES ", \"num_key_value_heads\": null}", false, "kv-heads=heads");
    sets("llama", "{" SIZES ", \"num_key_value_heads\": 2, \"rms_norm_eps\": 3e-6}", false, "kv-heads=2 eps=3e-06");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arch");
    TCase *t = tcase_create("arch");
    tcase_add_loop_test(t, keys_left_out_have_the_defaults_of_their_class, 0, N_ABSENT);
    tcase_add_test(t, heads_are_tied_as_their_class_has_them);
    tcase_add_test(t, null_is_not_always_what_is_left_out);
    return run_suite(s, t);
}
