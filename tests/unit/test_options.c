// SPDX-License-Identifier: GPL-3.0-or-later
/** The option table: parsing, defaults, contradictions, record, hash, help; near names. */
#include "harness/cli/names.h"
#include "harness/cli/near.h"
#include "harness/cli/options.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"
#include "harness/core/policy.h"
#include "layouts/layout.h"
#include "probes/probe.h"
#include "tests/suite.h"

#include <check.h>
#include <locale.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 100 };

/* A command line of up to 8 words. */
struct line {
    const char *words[9];
};

static int parse(struct nh_options *o, const char *const *words)
{
    static char *argv[MAX_WORDS];
    int argc = 0;
    for (; words[argc]; argc++)
        memcpy(&argv[argc], &words[argc], sizeof *argv); /* the parser writes to none of them */
    return nh_options_parse(o, argc, argv);
}

#define PARSE(o, ...) parse(o, (const char *const[]){__VA_ARGS__, NULL})

static void must_parse(struct nh_options *o, const char *const *words)
{
    ck_assert_msg(parse(o, words) == NH_OK, "%s", nh_error());
}

#define MUST_PARSE(o, ...) must_parse(o, (const char *const[]){__VA_ARGS__, NULL})

static void must_refuse(const char *const *words, const char *part)
{
    struct nh_options o;
    ck_assert_msg(parse(&o, words) == NH_USAGE, "%s %s is taken", words[0], words[1] ? words[1] : "");
    ck_assert_msg(strstr(nh_error(), part), "'%s' does not say '%s'", nh_error(), part);
}

/* ---- what is set ---- */

START_TEST(defaults_are_those_of_the_contract)
{
    struct nh_options o;
    must_parse(&o, (const char *const[]){NULL});
    const struct nh_config *c = &o.config;
    ck_assert_str_eq(c->layout->name, "pre");
    ck_assert_int_eq(c->depth, 12);
    ck_assert_str_eq(c->dtype.name, "fp32");
    ck_assert_str_eq(c->policy->name, "plain");
    ck_assert_int_eq(c->accum, NH_WIDE_FP32);
    ck_assert_int_eq(c->norm_stats, NH_WIDE_FP32);
    ck_assert_int_eq(c->width, 128);
    ck_assert_int_eq(c->heads, 4);
    ck_assert_int_eq(c->kv_heads, 4);
    ck_assert_int_eq(c->seq, 0);
    ck_assert_int_eq(c->batch, 0);
    ck_assert_int_eq(c->vocab, 0);
    ck_assert_int_eq(c->ffn, NH_FFN_GELU);
    ck_assert_double_eq(c->ffn_mult, 4);
    ck_assert_int_eq(c->norm, NH_NORM_RMS);
    ck_assert_double_eq(c->eps, 1e-5);
    ck_assert(!c->cast_before_gain);
    ck_assert_int_eq(c->pos, NH_POS_ROPE);
    ck_assert_double_eq(c->theta, 10000);
    ck_assert_int_eq(c->window, 0);
    ck_assert_int_eq(c->init, NH_INIT_UNIT);
    ck_assert_int_eq(c->branch_init, NH_BRANCH_INIT_OWN);
    ck_assert_double_eq(c->embed_rms, 0);
    ck_assert_int_eq(c->branches, NH_BRANCHES_BOTH);
    ck_assert(!c->qk_zero && !c->qk_norm && !c->scale_after && !c->tie && !c->bias);
    ck_assert_double_eq(c->embed_scale, 1);
    ck_assert_double_eq(c->post_gain, 1);
    ck_assert_uint_eq(c->seed, 0);
    ck_assert_uint_eq(c->data_seed, 0);
    ck_assert_str_eq(c->data, "fashion-mnist");
    ck_assert_int_eq(c->image_grid, 7);
    ck_assert_int_eq(c->image_levels, 32);
    ck_assert(!c->spectrum && !c->cotangent_random && !c->force);
    ck_assert_int_eq(c->jac_samples, 16);
    ck_assert_int_eq(c->jac_iterations, 12);
    ck_assert_ptr_null(c->out);
    ck_assert_ptr_null(c->label);
    for (size_t i = 0; nh_probes[i]; i++)
        ck_assert_int_eq(c->probes >> i & 1, nh_probes[i]->by_default);
    cpu_set_t cpus;
    ck_assert_int_eq(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    ck_assert_int_eq(c->threads, CPU_COUNT(&cpus));
}
END_TEST

START_TEST(values_arrive_in_their_fields)
{
    struct nh_options o;
    MUST_PARSE(&o, "--layout", "peri-ln", "--depth=60", "--dtype", "e4m10", "--accum", "dtype", "--norm-stats=dtype",
               "--width", "96", "--heads=6", "--kv-heads", "2", "--seq", "5", "--batch", "7", "--vocab", "16777217",
               "--ffn", "geglu", "--ffn-mult", "2.5", "--norm", "layer", "--eps", "0", "--norm-cast", "before-gain",
               "--pos", "rope", "--theta", "1e6", "--window", "32768", "--init", "pangu", "--branch-init", "invsqrt2l",
               "--embed-rms", "1e-3", "--qk-init", "0", "--qk-norm", "--score-scale", "after", "--tie=on", "--bias",
               "--post-gain", ".25", "--seed", "18446744073709551615", "--threads", "3", "--cotangent", "random",
               "--jac-samples", "1", "--jac-iterations", "1000", "--spectrum", "--out", "a b", "--label=x=y",
               "--force");
    const struct nh_config *c = &o.config;
    ck_assert_str_eq(c->layout->name, "sandwich");
    ck_assert_int_eq(c->depth, 60);
    ck_assert_int_eq(c->dtype.man_bits, 10);
    ck_assert_int_eq(c->dtype.exp_bits, 4);
    ck_assert_int_eq(c->accum, NH_WIDE_DTYPE);
    ck_assert_int_eq(c->norm_stats, NH_WIDE_DTYPE);
    ck_assert_int_eq(c->width, 96);
    ck_assert_int_eq(c->heads, 6);
    ck_assert_int_eq(c->kv_heads, 2);
    ck_assert_int_eq(c->seq, 5);
    ck_assert_int_eq(c->batch, 7);
    ck_assert_int_eq(c->vocab, 16777217);
    ck_assert_int_eq(c->ffn, NH_FFN_GEGLU);
    ck_assert_double_eq(c->ffn_mult, 2.5);
    ck_assert_int_eq(c->norm, NH_NORM_LAYER);
    ck_assert_double_eq(c->eps, 0);
    ck_assert(c->cast_before_gain);
    ck_assert_double_eq(c->theta, 1e6);
    ck_assert_int_eq(c->window, 32768);
    ck_assert_int_eq(c->init, NH_INIT_PANGU);
    ck_assert_int_eq(c->branch_init, NH_BRANCH_INIT_INVSQRT2K);
    ck_assert_double_eq(c->embed_rms, 1e-3);
    ck_assert(c->qk_zero && c->qk_norm && c->scale_after && c->tie && c->bias && c->force && c->spectrum);
    ck_assert_double_eq(c->post_gain, .25);
    ck_assert_uint_eq(c->seed, UINT64_MAX);
    ck_assert_uint_eq(c->data_seed, UINT64_MAX);
    ck_assert_int_eq(c->threads, 3);
    ck_assert(c->cotangent_random);
    ck_assert_int_eq(c->jac_samples, 1);
    ck_assert_int_eq(c->jac_iterations, 1000);
    ck_assert_str_eq(c->out, "a b");
    ck_assert_str_eq(c->label, "x=y");
}
END_TEST

START_TEST(values_that_follow_from_others)
{
    struct nh_options o;
    MUST_PARSE(&o, "--heads", "8", "--seed", "5", "--width", "64", "--embed-scale", "sqrt");
    ck_assert_int_eq(o.config.kv_heads, 8);
    ck_assert_uint_eq(o.config.data_seed, 5);
    ck_assert_double_eq(o.config.embed_scale, 8);
    MUST_PARSE(&o, "--seed", "5", "--data-seed", "0", "--qk-norm=off", "--branches", "ffn");
    ck_assert_uint_eq(o.config.data_seed, 0);
    ck_assert(!o.config.qk_norm);
    ck_assert_int_eq(o.config.branches, NH_BRANCHES_FFN);
    ck_assert(nh_options_given(&o, "data-seed") && nh_options_given(&o, "qk-norm"));
    ck_assert(!nh_options_given(&o, "depth"));
}
END_TEST

START_TEST(probes_are_a_set_of_names_and_aliases)
{
    struct nh_options o;
    MUST_PARSE(&o, "--probes", "none");
    ck_assert_uint_eq(o.config.probes, 0);
    for (size_t i = 0; nh_probes[i]; i++) {
        const char *const *alias = nh_probes[i]->aliases;
        for (const char *name = nh_probes[i]->name; name; name = alias ? *alias++ : NULL) {
            char list[200];
            snprintf(list, sizeof list, "%s,%s", nh_probes[0]->name, name);
            MUST_PARSE(&o, "--probes", list);
            ck_assert_uint_eq(o.config.probes, UINT32_C(1) << i | 1);
        }
    }
}
END_TEST

/* Every name and alias of the registries is taken and recorded under the name. */
START_TEST(registries_are_open_to_the_command_line)
{
    struct nh_options o;
    for (size_t i = 0; nh_layouts[i]; i++) {
        const char *const *alias = nh_layouts[i]->aliases;
        for (const char *name = nh_layouts[i]->name; name; name = alias ? *alias++ : NULL) {
            MUST_PARSE(&o, "--layout", name);
            ck_assert_ptr_eq(o.config.layout, nh_layouts[i]);
            const struct nh_layout *found = NULL;
            ck_assert_int_eq(nh_find_layout(&found, name), NH_OK);
            ck_assert_ptr_eq(found, nh_layouts[i]);
        }
    }
    for (size_t i = 0; nh_policies[i]; i++) {
        const char *const *alias = nh_policies[i]->aliases;
        for (const char *name = nh_policies[i]->name; name; name = alias ? *alias++ : NULL) {
            MUST_PARSE(&o, "--policy", name);
            ck_assert_ptr_eq(o.config.policy, nh_policies[i]);
        }
    }
}
END_TEST

/* ---- knobs ---- */

static const struct nh_layout knobbed = {
    .name = "knobbed",
    .knobs = (const struct nh_knob[]){{.name = "alpha", .start = 0.25, .max = 1, .help = ""},
                                      {.name = "beta", .start = 2, .min = -5, .max = 5, .help = ""},
                                      {0}},
};
static const struct nh_option set_option = {.name = "set", .kind = &nh_value_knob};

START_TEST(knobs_are_set_by_name)
{
    struct nh_config c = {.layout = &knobbed};
    nh_knobs_start(&knobbed, c.knobs);
    ck_assert_double_eq(c.knobs[0], 0.25);
    ck_assert_double_eq(c.knobs[1], 2);
    ck_assert_int_eq(nh_value_knob.read(&set_option, "beta=-1.5", &c), NH_OK);
    ck_assert_double_eq(c.knobs[0], 0.25);
    ck_assert_double_eq(c.knobs[1], -1.5);
}
END_TEST

START_TEST(knobs_are_refused)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"alpha", "NAME=VALUE"},
        {"=1", "NAME=VALUE"},
        {"alpha=", "0..1"},
        {"alpha=1.5", "0..1"},
        {"alpha=nan", "0..1"},
        {"alpha=1 ", "0..1"},
        {"alph=1", "it has alpha, beta"},
        {"ALPHA=1", "it has alpha, beta"},
        {"alpha=0,5", "0..1"},
    };
    struct nh_config c = {.layout = &knobbed};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(nh_value_knob.read(&set_option, cases[i].text, &c), NH_USAGE);
        ck_assert_msg(strstr(nh_error(), cases[i].part), "%s: %s", cases[i].text, nh_error());
    }
    must_refuse((const char *const[]){"--layout", "pre", "--set", "alpha=1", NULL}, "no knobs");
    must_refuse((const char *const[]){"--set", "a=1", "--set", "ab=1", "--set", "a=2", NULL}, "twice");
    must_refuse((const char *const[]){"--set", "ab=1", "--set", "a=2", NULL}, "no knobs");
    must_refuse((const char *const[]){"--set=a=1", "--set=b=1", "--set=c=1", "--set=d=1", "--set=e=1", "--set=f=1",
                                      "--set=g=1", "--set=h=1", "--set=i=1", NULL},
                "more than 8");
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const char *words[7], *part;
} wrong[] = {
    /* options */
    {{"--nonsense"}, "no option '--nonsense'"},
    {{"--dpeth", "4"}, "did you mean --depth"},
    {{"--dep", "4"}, "did you mean --depth?"},
    {{"--Depth", "4"}, "did you mean --depth"},
    {{"--stepz", "4"}, "did you mean --steps"},
    {{"--lr", "0.1"}, "no effect without training"},
    /* words of other programs */
    {{"--layers", "4"}, "no option '--layers'; did you mean --depth?"},
    {{"--num_layers=4"}, "did you mean --depth?"},
    {{"--numHiddenLayers", "4"}, "did you mean --depth?"},
    {{"--n-layer", "4"}, "did you mean --depth?"},
    {{"--learning-rate", "1"}, "did you mean --lr?"},
    {{"--LEARNING_RATE", "1"}, "did you mean --lr?"},
    {{"--batch-size", "1"}, "did you mean --batch?"},
    {{"--max-length", "1"}, "did you mean --seq?"},
    {{"--seq-len", "1"}, "did you mean --seq?"},
    {{"--hidden-size", "1"}, "did you mean --width?"},
    {{"--d_model", "1"}, "did you mean --width?"},
    {{"--num-heads", "1"}, "did you mean --heads?"},
    {{"--max-grad-norm", "1"}, "did you mean --clip?"},
    {{"--fp16"}, "did you mean --dtype fp16?"},
    {{"--seeds", "0..4"}, "did you mean harness/sweep.sh --seeds 0..4?"},
    {{"--dtype", "FP16"}, "did you mean fp16?"},
    {{"--dtype", "float16"}, "did you mean fp16?"},
    {{"--dtype", "Half"}, "did you mean fp16?"},
    {{"--dtype", "torch.bfloat16"}, "did you mean bf16?"},
    {{"--dtype", "float32"}, "did you mean fp32?"},
    {{"--dtype", "float8_e4m3fn"}, "did you mean fp8-e4m3?"},
    {{"--dtype", "fp8"}, "did you mean fp8-e4m3 or fp8-e5m2?"},
    {{"--roles", "residual=float32"}, "did you mean fp32?"},
    {{"--qk-norm=true"}, "did you mean on?"},
    {{"--tie=0"}, "did you mean off?"},
    {{"--optimizer", "Adam"}, "did you mean adamw?"},
    {{"--norm", "LayerNorm"}, "did you mean layer?"},
    {{"--data", "mnist"}, "did you mean fashion-mnist?"},
    /* several values, which are a sweep's */
    {{"--layout", "pre,post"}, "--layout takes one value, not 'pre,post'; for a run of each value: harness/sweep.sh --vary layout=pre,post"},
    {{"--seed", "0..4"}, "harness/sweep.sh --seeds 0..4"},
    {{"--seed", "0,3"}, "harness/sweep.sh --seeds 0,3"},
    {{"--depth", "6..12"}, "harness/sweep.sh --vary depth=6..12"},
    {{"--depth", "6..96*2"}, "harness/sweep.sh --vary depth=6..96*2"},
    {{"--depth", "6,12..24"}, "harness/sweep.sh --vary depth=6,12..24"},
    {{"--arch", "llama,gpt2"}, "harness/sweep.sh --vary arch=llama,gpt2"},
    {{"--dtype", "fp16,bf16"}, "harness/sweep.sh --vary dtype=fp16,bf16"},
    {{"--layout", "pre,past"}, "no layout 'pre,past'"},
    {{"--depth", "0..4"}, "1..4096"},
    {{"--depth", "6.."}, "1..4096"},
    {{"--depth", "6,"}, "1..4096"},
    {{"--layout", "pre..post"}, "no layout 'pre..post'"},
    {{"--steps", "4", "--momentum", "0.9"}, "no effect with this --optimizer"},
    {{"--roles", "residue=fp32"}, "with a role of"},
    {{"--roles", "residual=fp32,residual=fp16"}, "twice"},
    {{"--=4"}, "no option '--'"},
    {{"--"}, "'--'"},
    {{"--", "--depth", "4"}, "'--'"},
    {{"-depth", "4"}, "'-depth'"},
    {{"depth=4"}, "'depth=4'"},
    {{"--qk-norm", "on"}, "--NAME=on|off"},
    {{""}, "''"},
    {{"--depth", "4", "--depth", "4"}, "--depth is given twice"},
    {{"--tie", "--tie=off"}, "--tie is given twice"},
    {{"--dtype", "fp16", "--dtype=fp16"}, "--dtype is given twice"},
    /* values */
    {{"--depth"}, "--depth needs a value"},
    {{"--depth="}, "--depth needs a value"},
    {{"--depth", ""}, "--depth needs a value"},
    {{"--depth", "--width", "8"}, "--depth needs a value"},
    {{"--label", "--force"}, "--label needs a value"},
    {{"--qk-norm="}, "--qk-norm needs a value"},
    {{"--qk-norm=yes"}, "off|on"},
    {{"--depth", "0"}, "1..4096"},
    {{"--depth", "4097"}, "1..4096"},
    {{"--depth", "-3"}, "1..4096"},
    {{"--depth", "4x"}, "1..4096"},
    {{"--depth", "0x10"}, "1..4096"},
    {{"--depth", "1e2"}, "1..4096"},
    {{"--depth", "4.0"}, "1..4096"},
    {{"--depth", " 4"}, "1..4096"},
    {{"--depth", "4 "}, "1..4096"},
    {{"--depth", "+4"}, "1..4096"},
    {{"--depth", "-"}, "1..4096"},
    {{"--depth", "4294967297"}, "1..4096"},
    {{"--depth", "99999999999999999999999"}, "1..4096"},
    {{"--depth", "-99999999999999999999999"}, "1..4096"},
    {{"--depth", "nan"}, "1..4096"},
    {{"--seq", "0"}, "1..32768, or auto"},
    {{"--kv-heads", "0"}, "or heads"},
    {{"--window", "0"}, "or all"},
    {{"--threads", "0"}, "or all"},
    {{"--vocab", "16777218"}, "1..16777217"},
    {{"--image-levels", "1"}, "2..256"},
    {{"--image-grid", "8"}, "7|14|28"},
    {{"--image-grid", "07"}, "7|14|28"},
    {{"--seed", "-1"}, "0..2^64-1"},
    {{"--seed", "1e30"}, "0..2^64-1"},
    {{"--seed", "18446744073709551616"}, "0..2^64-1"},
    {{"--seed", "1.5"}, "0..2^64-1"},
    {{"--data-seed", "x"}, "0..2^64-1"},
    {{"--eps", "-1"}, "0..1"},
    {{"--eps", "1.0000001"}, "0..1"},
    {{"--eps", "0,5"}, "0..1"},
    {{"--eps", "0x1p-3"}, "0..1"},
    {{"--eps", "1e"}, "0..1"},
    {{"--eps", "nan"}, "0..1"},
    {{"--eps", " 0.5"}, "0..1"},
    {{"--embed-rms", "nan"}, "> 0, or own"},
    {{"--embed-rms", "inf"}, "> 0, or own"},
    {{"--embed-rms", "0"}, "> 0, or own"},
    {{"--embed-rms", "-0"}, "> 0, or own"},
    {{"--embed-rms", "1e999"}, "> 0, or own"},
    {{"--embed-rms", "1e-999"}, "> 0, or own"},
    {{"--embed-scale", "root"}, "> 0, or sqrt"},
    {{"--theta", "-1"}, "> 0"},
    {{"--ffn", "GELU"}, "gelu|relu|swiglu|geglu"},
    {{"--pos", "interleave"}, "rope|nope|learned|interleaved"},
    {{"--pattern", "lxg"}, "letters l (local) and g (global)"},
    {{"--pattern", "lg"}, "--pattern has no effect"},
    {{"--pattern", "gg", "--window", "8"}, "--window has no effect"},
    {{"--theta-local", "100"}, "--theta-local has no effect"},
    {{"--rope-scaling", "yarn:4"}, "linear:FACTOR"},
    {{"--rope-scaling", "linear:0"}, "linear:FACTOR"},
    {{"--rope-scaling", "linear:2,3"}, "linear:FACTOR"},
    {{"--rope-scaling", "llama3:8,4,1,8192"}, "LOW < HIGH"},
    {{"--rope-scaling", "linear:2", "--pos", "nope"}, "--rope-scaling has no effect"},
    {{"--rope-scaling", "linear:2", "--pos", "interleaved"}, "--rope-scaling has no effect"},
    {{"--head-dim", "5"}, "--head-dim 5 is odd"},
    {{"--head-dim", "65536", "--heads", "65536"}, "wider together"},
    {{"--attn-gate", "--branches", "ffn"}, "--attn-gate has no effect"},
    {{"--experts-active", "2"}, "--experts-active has no effect without experts"},
    {{"--experts", "4", "--experts-active", "5"}, "--experts-active 5 is more than"},
    {{"--experts=4", "--experts-active=2", "--depth=2", "--dense-layers=2"}, "all 2 layers are dense"},
    {{"--experts", "4", "--branches", "attn"}, "--experts has no effect"},
    {{"--branches", "ffn,attn"}, "attn,ffn|attn|ffn"},
    {{"--branch-init", "2"}, "invsqrt2L"},
    {{"--init", "none"}, "unit|gpt2"},
    {{"--qk-init", "0.5"}, "1|0"},
    {{"--dtype", "fp17"}, "'fp17'"},
    {{"--dtype", "e0m3"}, "'e0m3'"},
    {{"--dtype", "e12m3"}, "'e12m3'"},
    {{"--layout", "sandwhich"}, "did you mean sandwich"},
    {{"--layout", "Pre"}, "did you mean pre"},
    {{"--policy", "nope"}, "no policy 'nope'"},
    {{"--data", "fashion_mnist"}, "did you mean fashion-mnist?"},
    {{"--data", ":x"}, "no data source ''"},
    {{"--data", "zipf\n"}, "no data source"},
    {{"--data", "text:a\nb"}, "printable UTF-8"},
    {{"--probes", "rms,foo"}, "no probe 'foo'"},
    {{"--probes", "rms,"}, "no probe ''"},
    {{"--probes", ",rms"}, "no probe ''"},
    {{"--probes", "none,rms"}, "no probe 'none'"},
    {{"--label", "a\tb"}, "printable UTF-8"},
    {{"--label", "a\xff"}, "printable UTF-8"},
    {{"--label", "\xc2\x85"}, "printable UTF-8"},
    {{"--out", "a\x01"}, "printable UTF-8"},
    /* contradictions */
    {{"--width", "100", "--heads", "7"}, "--heads 5 would do"},
    {{"--width", "2", "--heads", "8", "--pos", "nope"}, "--heads 2 would do"},
    {{"--width", "12", "--heads", "4"}, "--heads 3 would do"},
    {{"--width", "7", "--heads", "7"}, "take an even width"},
    {{"--heads", "8", "--kv-heads", "3"}, "--kv-heads 2 would do"},
    {{"--kv-heads", "8"}, "--kv-heads 4 would do"},
    {{"--layout", "pre", "--post-gain", "2"}, "sandwich"},
    {{"--layout", "no-norm", "--ln-relax"}, "--ln-relax has no effect"},
    {{"--layout", "rezero", "--ln-relax=3"}, "--ln-relax has no effect"},
    {{"--theta", "500", "--pos", "nope"}, "--theta has no effect"},
    {{"--theta", "500", "--pos", "learned"}, "--theta has no effect"},
    {{"--image-grid", "14", "--data", "zipf"}, "--image-grid has no effect"},
    {{"--image-levels", "16", "--data", "text:fashion-mnist"}, "--image-levels has no effect"},
    {{"--branches", "ffn", "--qk-init", "0"}, "--qk-init has no effect"},
    {{"--branches", "ffn", "--qk-norm"}, "--qk-norm has no effect"},
    {{"--branches", "ffn", "--score-scale", "after"}, "--score-scale has no effect"},
    {{"--branches", "ffn", "--window", "8"}, "--window has no effect"},
    {{"--branches", "ffn", "--heads", "4"}, "--heads has no effect"},
    {{"--branches", "ffn", "--kv-heads", "heads"}, "--kv-heads has no effect"},
    {{"--branches", "ffn", "--theta", "500"}, "--theta has no effect"},
    {{"--branches", "attn", "--ffn", "relu"}, "--ffn has no effect"},
    {{"--branches", "attn", "--ffn-mult", "2"}, "--ffn-mult has no effect"},
    {{"--layout", "hybridnorm", "--qk-norm"}, "--qk-norm has no effect in the layout hybridnorm"},
    {{"--layout", "respost", "--qk-norm"}, "--qk-norm has no effect in the layout respost"},
    {{"--layout", "no-norm", "--norm", "layer"}, "--norm has no effect in the layout no-norm"},
    {{"--layout", "no-norm", "--eps", "1e-6"}, "--eps has no effect"},
    {{"--layout", "rezero", "--norm-stats", "dtype"}, "--norm-stats has no effect"},
    {{"--layout", "rezero", "--norm-cast", "before-gain"}, "--norm-cast has no effect"},
    {{"--ffn-mult", "1e-9"}, "hidden width of 0"},
    {{"--experts", "4", "--experts-active", "2", "--expert-mult", "1e-9"}, "--expert-mult 1e-09 at"},
    {{"--experts", "4096", "--expert-mult", "1000"}, "it must be in 1..1024"},
    {{"--experts", "4", "--experts-active", "2", "--layout", "subln"}, "the layout subln norms inside the FFN"},
    {{"--experts", "8", "--layout", "normformer", "--norm", "layer"}, "norms inside the FFN"},
    {{"--ffn-mult", "1e300"}, "hidden width"},
    {{"--probes", "none", "--cotangent", "random"}, "--cotangent has no effect"},
    {{"--probes", "none", "--jac-samples", "8"}, "--jac-samples has no effect"},
    {{"--probes", "rms", "--jac-iterations", "8"}, "--jac-iterations has no effect"},
    {{"--probes", "rms", "--spectrum"}, "--spectrum has no effect"},
};

START_TEST(wrong_lines_are_refused)
{
    must_refuse(wrong[_i].words, wrong[_i].part);
}
END_TEST

static const struct line right[] = {
    {{"--window", "32768"}},
    {{"--width", "30", "--branches", "ffn"}},
    {{"--width", "7", "--heads", "7", "--pos", "nope"}},
    {{"--width", "7", "--heads", "7", "--pos", "learned", "--ffn-mult", "0.1"}},
    {{"--layout", "sandwich-l", "--post-gain", "0.1"}},
    {{"--norm-cast", "before-gain", "--dtype", "fp64"}},
    {{"--layout", "post", "--ln-relax"}},
    {{"--layout", "no-norm", "--ln-relax=off"}},
    {{"--probes", "none", "--spectrum=off"}},
    {{"--branches", "ffn", "--qk-init", "1", "--qk-norm=off"}},
    {{"--branches", "ffn", "--pos", "interleaved"}},
    {{"--arch", "trinity", "--branches", "ffn"}},
    {{"--arch", "trinity", "--branches", "attn"}},
    {{"--arch", "gemma3", "--pos", "nope"}},
    {{"--layout", "hybridnorm", "--qk-norm=off"}},
    {{"--layout", "respost", "--set", "cosine=off", "--qk-norm"}},
    {{"--layout", "no-norm", "--qk-norm", "--norm", "layer", "--eps", "1e-6"}},
    {{"--data", "tokens:/no/such:file"}},
    {{"--label", "Größe ✓"}},
    {{"--depth", "0012"}},
    {{"--eps", "1.e-3"}},
    {{"--embed-scale", "sqrt", "--embed-rms", "own", "--seq", "auto"}},
};

START_TEST(right_lines_are_taken)
{
    struct nh_options o;
    must_parse(&o, right[_i].words);
}
END_TEST

/* A long wrong word neither breaks the sentence nor hides what would work. */
START_TEST(long_words_are_cut)
{
    static char text[100000];
    memset(text, '7', sizeof text - 1);
    must_refuse((const char *const[]){"--depth", text, NULL}, "1..4096");
    must_refuse((const char *const[]){"--layout", text, NULL}, "harness list layouts");
    must_refuse((const char *const[]){"--probes", text, NULL}, "harness list probes");
    must_refuse((const char *const[]){"--data", text, NULL}, "harness list data");
    must_refuse((const char *const[]){"--label", text, NULL}, "200 bytes");
    must_refuse((const char *const[]){"--set", text, NULL}, "NAME=VALUE");
    memcpy(text, "--", 2);
    must_refuse((const char *const[]){text, NULL}, "harness --help");
}
END_TEST

/* A comma in the locale changes nothing. Where there is no such locale, nothing is tested. */
START_TEST(numbers_ignore_the_locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    for (size_t i = 0; i < 3 && !setlocale(LC_ALL, names[i]);)
        i++;
    struct nh_options o;
    MUST_PARSE(&o, "--eps", "0.5", "--theta", "1234.5678901234567");
    ck_assert_double_eq(o.config.eps, 0.5);
    ck_assert_double_eq(o.config.theta, 1234.5678901234567);
    must_refuse((const char *const[]){"--eps", "0,5", NULL}, "0..1");
    setlocale(LC_ALL, "C");
}
END_TEST

/* ---- record and hash ---- */

struct record {
    size_t n;
    char names[MAX_WORDS][32], words[MAX_WORDS][200];
};

static int keep(void *arg, const char *option, const char *value)
{
    struct record *r = arg;
    ck_assert_uint_lt(r->n, MAX_WORDS - 1);
    snprintf(r->names[r->n], sizeof r->names[0], "%s", option);
    snprintf(r->words[r->n], sizeof r->words[0], "--%s=%s", option, value);
    r->n++;
    return NH_OK;
}

static const char *recorded(const struct nh_options *o, const char *option)
{
    static struct record r;
    r.n = 0;
    ck_assert_int_eq(nh_options_record(o, keep, &r), NH_OK);
    for (size_t i = 0; i < r.n; i++)
        if (strcmp(r.names[i], option) == 0)
            return strchr(r.words[i], '=') + 1;
    return NULL;
}

static const char *hash(const struct nh_options *o)
{
    static char text[2][NH_NAME_SIZE];
    static int turn;
    turn = !turn;
    nh_options_hash(o, "", text[turn]);
    ck_assert_int_eq(text[turn][0], 'r'); /* text to every reader: 12345e10 would be a number */
    ck_assert_uint_eq(strspn(text[turn] + 1, "0123456789abcdef"), 8);
    ck_assert_uint_eq(strlen(text[turn]), 9);
    return text[turn];
}

START_TEST(record_holds_values_in_force)
{
    struct nh_options o;
    MUST_PARSE(&o, "--layout", "peri-ln", "--seed", "3", "--eps", "0.00001", "--probes", "jacobian,rms", "--tie",
               "--embed-scale", "sqrt", "--label", "a, b");
    ck_assert_str_eq(recorded(&o, "layout"), "sandwich");
    ck_assert_str_eq(recorded(&o, "data-seed"), "3");
    ck_assert_str_eq(recorded(&o, "kv-heads"), "4");
    ck_assert_str_eq(recorded(&o, "eps"), "1e-05");
    ck_assert_str_eq(recorded(&o, "probes"), "rms,jacobian");
    ck_assert_str_eq(recorded(&o, "tie"), "on");
    ck_assert_str_eq(recorded(&o, "bias"), "off");
    ck_assert_str_eq(recorded(&o, "branches"), "attn,ffn");
    ck_assert_str_eq(recorded(&o, "label"), "a, b");
    ck_assert_str_eq(recorded(&o, "embed-scale"), "11.313708498984761");
    ck_assert_str_eq(recorded(&o, "seq"), "auto");
    o.config.seq = 51;
    ck_assert_str_eq(recorded(&o, "seq"), "51");
    ck_assert_ptr_null(recorded(&o, "threads"));
    ck_assert_ptr_null(recorded(&o, "out"));
    ck_assert_ptr_null(recorded(&o, "force"));
    ck_assert_ptr_null(recorded(&o, "set"));
    o.config.layout = &knobbed;
    o.config.knobs[0] = 0.1;
    ck_assert_str_eq(recorded(&o, "set.alpha"), "0.1");
    ck_assert_ptr_nonnull(recorded(&o, "set.beta"));
}
END_TEST

static int stop(void *arg, const char *option, const char *value)
{
    (void)option, (void)value;
    ++*(int *)arg;
    return NH_FAILED;
}

START_TEST(record_stops_at_an_error)
{
    struct nh_options o;
    int calls = 0;
    must_parse(&o, (const char *const[]){NULL});
    ck_assert_int_eq(nh_options_record(&o, stop, &calls), NH_FAILED);
    ck_assert_int_eq(calls, 1);
}
END_TEST

/* What was recorded, typed again, is the same run. */
START_TEST(record_can_be_typed)
{
    static const struct line lines[] = {
        {{"--layout", "sandwich"}},
        {{"--layout", "sandwich-depth", "--embed-scale=sqrt", "--eps=3e-7", "--seed=18446744073709551615",
          "--label=x"}},
        {{"--layout=sandwich", "--pos", "interleaved", "--window=7", "--attn-gate", "--qk-norm=width", "--experts=8", "--expert-mult=0.3"}},
        {{"--layout=sandwich", "--pattern=llg", "--theta-local=100", "--rope-scaling=llama3:8,1,4,8192", "--head-dim=20", "--bias=qkv"}},
        {{"--layout", "sandwich-l", "--dtype", "fp8-e4m3", "--qk-norm", "--post-gain=0.3", "--theta=0.1"}},
    };
    static struct record first, second;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct nh_options a, b;
        must_parse(&a, lines[i].words);
        first.n = second.n = 0;
        nh_options_record(&a, keep, &first);
        const char *words[MAX_WORDS] = {NULL};
        static struct record typed;
        typed = first;
        for (size_t k = 0, n = 0; k < typed.n; k++) {
            if (strncmp(typed.words[k], "--set.", 6) == 0)
                typed.words[k][5] = '='; /* a knob is recorded as set.NAME */
            if (typed.words[k][strlen(typed.words[k]) - 1] != '=')
                words[n++] = typed.words[k];
        }
        must_parse(&b, words);
        nh_options_record(&b, keep, &second);
        ck_assert_uint_eq(first.n, second.n);
        for (size_t k = 0; k < first.n; k++)
            ck_assert_str_eq(first.words[k], second.words[k]);
        ck_assert_str_eq(hash(&a), hash(&b));
    }
}
END_TEST

START_TEST(hash_is_of_what_is_computed)
{
    static const struct line same[] = {
        {{"--layout", "pre-ln"}}, {{"--depth=12"}}, {{"--depth", "012"}},         {{"--eps", "0.00001"}},
        {{"--threads", "1"}},     {{"--force"}},    {{"--out", "elsewhere"}},     {{"--kv-heads", "4"}},
        {{"--data-seed", "0"}},   {{"--tie=off"}},  {{"--branches", "attn,ffn"}},
    };
    static const struct line other[] = {
        {{"--layout", "post"}},
        {{"--depth", "13"}},
        {{"--width", "64"}},
        {{"--heads", "2"}},
        {{"--kv-heads", "2"}},
        {{"--ffn", "relu"}},
        {{"--ffn-mult", "3"}},
        {{"--norm", "layer"}},
        {{"--eps", "1e-6"}},
        {{"--pos", "nope"}},
        {{"--theta", "500"}},
        {{"--window", "8"}},
        {{"--branches", "ffn"}},
        {{"--qk-norm"}},
        {{"--score-scale", "after"}},
        {{"--embed-scale", "2"}},
        {{"--tie"}},
        {{"--bias"}},
        {{"--dtype", "fp16"}},
        {{"--accum", "dtype"}},
        {{"--norm-stats", "dtype"}},
        {{"--norm-cast", "before-gain"}},
        {{"--init", "gpt2"}},
        {{"--branch-init", "1"}},
        {{"--embed-rms", "1"}},
        {{"--qk-init", "0"}},
        {{"--seed", "1"}},
        {{"--data", "zipf"}},
        {{"--seq", "51"}},
        {{"--batch", "4"}},
        {{"--vocab", "48"}},
        {{"--image-grid", "14"}},
        {{"--image-levels", "16"}},
        {{"--data-seed", "1"}},
        {{"--probes", "none"}},
        {{"--cotangent", "random"}},
        {{"--jac-samples", "8"}},
        {{"--jac-iterations", "8"}},
        {{"--spectrum"}},
        {{"--label", "x"}},
    };
    enum { OTHERS = sizeof other / sizeof *other };
    struct nh_options o;
    char seen[OTHERS + 1][NH_NAME_SIZE];
    must_parse(&o, (const char *const[]){NULL});
    strcpy(seen[OTHERS], hash(&o));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        must_parse(&o, same[i].words);
        ck_assert_str_eq(hash(&o), seen[OTHERS]);
    }
    for (size_t i = 0; i < OTHERS; i++) {
        must_parse(&o, other[i].words);
        strcpy(seen[i], hash(&o));
        for (size_t k = 0; k < i; k++)
            ck_assert_msg(strcmp(seen[i], seen[k]) != 0, "%s and %s", other[i].words[0], other[k].words[0]);
        ck_assert_str_ne(seen[i], seen[OTHERS]);
    }
    char with[NH_NAME_SIZE], without[NH_NAME_SIZE];
    nh_options_hash(&o, "0123", with);
    nh_options_hash(&o, NULL, without);
    ck_assert_str_ne(with, without);
    ck_assert_str_eq(without, hash(&o));
}
END_TEST

/* ---- help ---- */

START_TEST(help_shows_every_option_in_100_columns)
{
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    nh_options_help(file);
    fclose(file);
    static struct record r;
    r.n = 0;
    struct nh_options o;
    must_parse(&o, (const char *const[]){NULL});
    nh_options_record(&o, keep, &r);
    for (size_t i = 0; i < r.n; i++) {
        char start[64];
        snprintf(start, sizeof start, "\n  --%s", r.names[i]);
        const char *entry = strstr(text, start);
        ck_assert_msg(entry && strchr(" [", entry[strlen(start)]), "%s is missing", r.names[i]);
    }
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        ck_assert_uint_le(strcspn(line, "\n"), 100);
        ck_assert_uint_gt(strcspn(line, "\n") + (line[0] == '\n'), 0);
        ck_assert(line[0] == '\n' || line[strcspn(line, "\n") - 1] != ' ');
    }
    ck_assert_ptr_nonnull(strstr(text, "[12]"));
    ck_assert_ptr_nonnull(strstr(text, "unit|gpt2"));
    ck_assert_ptr_nonnull(strstr(text, nh_policies[0]->name));
    free(text);
}
END_TEST

/* ---- near names ---- */

START_TEST(distance_is_levenshtein)
{
    static const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {{"", "", 0},         {"", "abc", 3},
                 {"abc", "", 3},      {"kitten", "sitting", 3},
                 {"lst", "list", 1},  {"saturday", "sunday", 3},
                 {"FP16", "fp16", 0}, {"ab", "ba", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(nh_near_distance(cases[i].a, cases[i].b), cases[i].distance);
        ck_assert_uint_eq(nh_near_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
    char long_name[66];
    memset(long_name, 'a', 65);
    long_name[65] = '\0';
    ck_assert_uint_eq(nh_near_distance(long_name, "a"), SIZE_MAX);
    ck_assert_uint_eq(nh_near_distance("a", long_name), SIZE_MAX);
    ck_assert_uint_eq(nh_near_distance(long_name + 1, "a"), 63);
}
END_TEST

START_TEST(near_names_come_nearest_first)
{
    static const char *const names[] = {"post", "sandwich-x", "far-away", "sandwich", "sandwix", "sand", "sandwic"};
    struct nh_near near = nh_near_start("sandwih", "--");
    char text[NH_NEAR_SIZE];
    ck_assert_str_eq(nh_near_text(&near, text), "");
    for (size_t i = 0; i < 4; i++)
        nh_near_try(&near, names[i]);
    ck_assert_str_eq(nh_near_text(&near, text), "; did you mean --sandwich?");
    for (size_t i = 4; i < 6; i++)
        nh_near_try(&near, names[i]);
    ck_assert_str_eq(nh_near_text(&near, text), "; did you mean --sandwich or --sandwix?");
    nh_near_try(&near, names[6]);
    ck_assert_str_eq(nh_near_text(&near, text), "; did you mean --sandwich, --sandwix or --sandwic?");
    nh_near_try(&near, "sandwih");
    ck_assert_str_eq(nh_near_text(&near, text), "; did you mean --sandwih, --sandwich or --sandwix?");
}
END_TEST

int main(void)
{
    const struct {
        const TTest *test;
        size_t loops;
    } tests[] = {
        {defaults_are_those_of_the_contract, 1},
        {values_arrive_in_their_fields, 1},
        {values_that_follow_from_others, 1},
        {probes_are_a_set_of_names_and_aliases, 1},
        {registries_are_open_to_the_command_line, 1},
        {knobs_are_set_by_name, 1},
        {knobs_are_refused, 1},
        {wrong_lines_are_refused, sizeof wrong / sizeof *wrong},
        {right_lines_are_taken, sizeof right / sizeof *right},
        {long_words_are_cut, 1},
        {numbers_ignore_the_locale, 1},
        {record_holds_values_in_force, 1},
        {record_stops_at_an_error, 1},
        {record_can_be_typed, 1},
        {hash_is_of_what_is_computed, 1},
        {help_shows_every_option_in_100_columns, 1},
        {distance_is_levenshtein, 1},
        {near_names_come_nearest_first, 1},
    };
    TCase *all = tcase_create("options");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_loop_test(all, tests[i].test, 0, (int)tests[i].loops);
    Suite *suite = suite_create("options");
    return run_suite(suite, all);
}
