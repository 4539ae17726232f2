// SPDX-License-Identifier: GPL-3.0-or-later
/** Options of training: what is taken, what is refused and with which words, and what belongs to the name of a run. */
#include "tests/property/model_config.h"
#include "tests/suite.h"

#include <check.h>

#define COUNT(a)   ((int)(sizeof(a) / sizeof *(a)))
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/** Parses the words of a line; they are cut up in copy. */
static int parse(struct nh_options *o, char copy[512], const char *line)
{
    char *argv[64], *rest = copy;
    int argc = 0;
    ck_assert_int_lt(snprintf(copy, 512, "%s", line), 512);
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word)
            argv[argc++] = word;
    return nh_options_parse(o, argc, argv);
}

static void refused(const char *line, const char *saying)
{
    struct nh_options o;
    char copy[512];
    int status = parse(&o, copy, line);
    ck_assert_msg(status == NH_USAGE, "%s: status %d", line, status);
    ck_assert_msg(strstr(nh_error(), saying) != NULL && !strchr(nh_error(), '\n'), "%s: %s", line, nh_error());
}

static void taken(const char *line)
{
    struct nh_options o;
    char copy[512];
    int status = parse(&o, copy, line);
    ck_assert_msg(status == NH_OK, "%s: %s", line, status ? nh_error() : "");
}

/** Options, other words that they need, what is refused and what is taken. */
static const struct {
    const char *const *names, *with;
    const char *const *wrong, *const *right;
} values[] = {
    {WORDS("steps"), "", WORDS("-1", "1.5", "1e3", "0x10", "1000000001", "99999999999999999999", "all", "nan"),
     WORDS("0", "1", "1000000000")},
    {WORDS("warmup"), "--steps 2", WORDS("-1", "1.5", "1e3", "1000000001", "all", "inf"),
     WORDS("0", "2", "1000000000")},
    {WORDS("grad-accum"), "--steps 2", WORDS("0", "-1", "1.5", "65537", "two"), WORDS("1", "65536")},
    {WORDS("scale-window"), "--steps 2 --dtype fp16", WORDS("0", "-1", "1.5", "1000000001", "never"),
     WORDS("1", "1000000000", "policy")},
    {WORDS("probe-every"), "--steps 2", WORDS("0", "-1", "1.5", "1000000001", "never"), WORDS("1", "ends")},
    {WORDS("val-every"), "--steps 2", WORDS("0", "-1", "1.5", "1000000001", "never"), WORDS("1", "end")},
    {WORDS("checkpoint-every"), "--steps 2", WORDS("0", "-1", "1.5", "1000000001", "end"), WORDS("1", "never")},
    {WORDS("lr", "adam-eps"), "--steps 2", WORDS("0", "-0", "-1", "nan", "inf", "1e999", "1e-999", "0,1", "off", "1x"),
     WORDS("1e-30", "0.5", "1e30")},
    {WORDS("clip"), "--steps 2", WORDS("0", "-1", "nan", "inf", "1e999", "auto"), WORDS("1e-30", "1e30", "off")},
    {WORDS("beta1", "beta2"), "--steps 2", WORDS("1", "-0.1", "nan", "2", "inf", "x"),
     WORDS("0", "0.999", "0.9999999")},
    {WORDS("beta1", "beta2"), "--steps 2 --optimizer muon", WORDS("1", "-1"), WORDS("0", "0.5")},
    {WORDS("momentum"), "--steps 2 --optimizer sgd", WORDS("1", "-0.1", "nan", "2"), WORDS("0", "0.999")},
    {WORDS("momentum"), "--steps 2 --optimizer muon", WORDS("1", "-0.1"), WORDS("0", "0.999")},
    {WORDS("weight-decay"), "--steps 2", WORDS("-1", "1001", "nan", "inf", "off"), WORDS("0", "0.1", "1000")},
    {WORDS("loss-scale"), "--steps 2 --dtype fp16", WORDS("0", "-1", "nan", "inf", "1e38", "1e-39", "on", "dynamic"),
     WORDS("1", "0.5", "65536", "8e37", "1e-37", "off", "auto")},
    {WORDS("optimizer"), "--steps 2", WORDS("adam", "AdamW", "lion", "none"), WORDS("adamw", "muon", "sgd")},
    {WORDS("schedule"), "--steps 2", WORDS("step", "Cosine", "none"), WORDS("constant", "linear", "cosine", "wsd")},
    {WORDS("resume"), "--steps 2", WORDS("yes", "1", "ON"), WORDS("on", "off")},
    {WORDS("post-gain-frozen"), "--steps 2 --layout sandwich", WORDS("yes", "1"), WORDS("on", "off")},
};

START_TEST(wrong_values_are_taken)
{
    char line[512], name[64];
    for (const char *const *option = values[_i].names; *option; option++) {
        snprintf(name, sizeof name, "--%s", *option);
        for (const char *const *wrong = values[_i].wrong; *wrong; wrong++) {
            snprintf(line, sizeof line, "%s %s=%s", values[_i].with, name, *wrong);
            refused(line, name);
        }
        snprintf(line, sizeof line, "%s %s=", values[_i].with, name);
        refused(line, "needs a value");
        for (const char *const *right = values[_i].right; *right; right++) {
            snprintf(line, sizeof line, "%s %s=%s", values[_i].with, name, *right);
            taken(line);
        }
    }
}
END_TEST

/** What would have no effect. */
START_TEST(idle_options_are_taken)
{
    static const char *const training[] = {
        "--optimizer sgd",      "--lr 0.1",        "--warmup 2",         "--schedule cosine", "--beta1 0.5",
        "--beta2 0.5",          "--adam-eps 1e-6", "--momentum 0.5",     "--clip 2",          "--weight-decay 0.1",
        "--grad-accum 2",       "--loss-scale 2",  "--scale-window 9",   "--probe-every 2",   "--val-every 2",
        "--checkpoint-every 2", "--resume",        "--post-gain-frozen",
    };
    char line[128];
    for (int i = 0; i < COUNT(training); i++) {
        snprintf(line, sizeof line, "--layout sandwich --dtype fp16 %s", training[i]);
        refused(line, "no effect without training");
        snprintf(line, sizeof line, "--layout sandwich --steps 0 --dtype fp16 %s", training[i]);
        refused(line, "no effect without training");
    }
    refused("--steps 2 --optimizer sgd --beta1 0.5", "--beta1 has no effect with this --optimizer");
    refused("--steps 2 --optimizer sgd --beta2 0.5", "--beta2 has no effect with this --optimizer");
    refused("--steps 2 --optimizer sgd --adam-eps 0.5", "--adam-eps has no effect with this --optimizer");
    refused("--steps 2 --momentum 0.5", "--momentum has no effect with this --optimizer");
    refused("--steps 2 --scale-window 9", "--scale-window has no effect");
    refused("--steps 2 --dtype bf16 --scale-window 9", "--scale-window has no effect");
    refused("--steps 2 --dtype fp16 --loss-scale 8 --scale-window 9", "--scale-window has no effect");
    refused("--steps 2 --dtype fp16 --loss-scale off --scale-window 9", "--scale-window has no effect");
    refused("--steps 2 --post-gain-frozen", "--post-gain-frozen has no effect in the layout pre");
    refused("--steps 2 --cotangent random", "--cotangent random and --steps");
}
END_TEST

static void hash_of(const char *line, char hash[NH_NAME_SIZE])
{
    struct nh_options o;
    char copy[512];
    ck_assert_int_eq(parse(&o, copy, line), NH_OK);
    nh_options_hash(&o, NULL, hash);
}

static void sample_of(const char *line, char sample[NH_NAME_SIZE])
{
    struct nh_options o;
    char copy[512];
    ck_assert_int_eq(parse(&o, copy, line), NH_OK);
    nh_options_sample(&o, NULL, sample);
}

/** Options that change results name another run; where and how it runs does not. */
START_TEST(runs_are_told_apart)
{
    static const char *const other[] = {
        "--steps 10 --optimizer sgd",
        "--steps 10 --lr 0.002",
        "--steps 10 --warmup 1",
        "--steps 10 --schedule wsd",
        "--steps 10 --beta1 0.8",
        "--steps 10 --beta2 0.8",
        "--steps 10 --adam-eps 1e-7",
        "--steps 10 --weight-decay 0.1",
        "--steps 10 --clip off",
        "--steps 10 --grad-accum 2",
        "--steps 10 --loss-scale 2",
        "--steps 10 --probe-every 3",
        "--steps 10 --val-every 3",
        "--steps 11",
        "--steps 0",
    };
    static const char *const same[] = {"--steps 10 --resume", "--steps 10 --force", "--steps 10 --threads 2 --out x",
                                       "--steps 10 --lr 1e-3 --warmup 0 --clip 1 --beta2=0.95"};
    char base[NH_NAME_SIZE], hash[NH_NAME_SIZE];
    hash_of("--steps 10", base);
    for (int i = 0; i < COUNT(other); i++) {
        hash_of(other[i], hash);
        ck_assert_str_ne(hash, base);
    }
    for (int i = 0; i < COUNT(same); i++) {
        hash_of(same[i], hash);
        ck_assert_str_eq(hash, base);
    }
}
END_TEST

/** Runs of one model, data and seed are one sample, whatever each of them measures. */
START_TEST(samples_are_told_apart)
{
    static const char *const same[] = {"--steps 10 --probes none",       "--steps 10 --probes rms,overflow,jacobian",
                                       "--steps 10 --probe-every 3",     "--steps 10 --val-every 3",
                                       "--steps 10 --label again",       "--steps 10 --checkpoint-every 5",
                                       "--steps 10 --threads 2 --out x", "--steps 10 --resume"};
    static const char *const other[] = {"--steps 11", "--steps 10 --seed 1", "--steps 10 --data-seed 1", "--steps 10 --lr 0.002",
                                        "--steps 10 --loss-scale 2", "--steps 10 --weight-decay 0.1", "--steps 10 --layout deepnorm",
                                        "--steps 10 --probes jacobian --jac-samples 4", "--steps 10 --probes jacobian --jac-iterations 4"};
    char base[NH_NAME_SIZE], sample[NH_NAME_SIZE];
    sample_of("--steps 10", base);
    ck_assert_int_eq(base[0], 's');
    ck_assert_uint_eq(strspn(base + 1, "0123456789abcdef"), 8);
    ck_assert_uint_eq(strlen(base), 9);
    for (int i = 0; i < COUNT(same); i++) {
        sample_of(same[i], sample);
        ck_assert_str_eq(sample, base);
    }
    for (int i = 0; i < COUNT(other); i++) {
        sample_of(other[i], sample);
        ck_assert_str_ne(sample, base);
    }
    sample_of("--depth 2", base);
    sample_of("--depth 2 --spectrum", sample);
    ck_assert_str_eq(sample, base);
    sample_of("--depth 2 --cotangent random", sample);
    ck_assert_str_ne(sample, base);
}
END_TEST

/** A run without training has probes that training leaves out unless they are asked for. */
START_TEST(probes_of_a_training)
{
    struct nh_config look = config_of("--depth 2"), training = config_of("--steps 2"),
                     asked = config_of("--steps 2 --probes jacobian");
    for (int i = 0; nh_probes[i]; i++) {
        bool by_default = look.probes >> i & 1;
        ck_assert_int_eq(training.probes >> i & 1, by_default && !nh_probes[i]->at_start_only);
        ck_assert_int_eq(asked.probes >> i & 1, strcmp(nh_probes[i]->name, "jacobian") == 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_options");
    TCase *tc = tcase_create("train_options");
    tcase_add_loop_test(tc, wrong_values_are_taken, 0, COUNT(values));
    tcase_add_test(tc, idle_options_are_taken);
    tcase_add_test(tc, runs_are_told_apart);
    tcase_add_test(tc, samples_are_told_apart);
    tcase_add_test(tc, probes_of_a_training);
    return run_suite(suite, tc);
}
