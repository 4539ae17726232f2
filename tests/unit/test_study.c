// SPDX-License-Identifier: GPL-3.0-or-later
/** harness study: its statistics against numbers worked out by hand, what the reader refuses, and what expectations
 * make of runs that are written down here. */
#include "harness/cli/study.h"
#include "tests/unit/result_files.h"

#include <math.h>

static struct nh_study study;

static void set_up(void)
{
    make_folder();
    nh_study_init(&study);
}

static void tear_down(void)
{
    nh_study_fini(&study);
    remove_folder();
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "wb");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

/* ---- statistics ---- */

START_TEST(fisher_on_one_side)
{
    /* tables: 0/5 against 2/5 .22, 3/5 .083, 4/5 .024; 0/10 against 4/10 .043 */
    static const struct {
        size_t k, n, other_k, other_n;
        double p, half_digit;
    } cases[] = {{0, 5, 2, 5, .22, 5e-3}, {0, 5, 3, 5, .083, 5e-4}, {0, 5, 4, 5, .024, 5e-4}, {0, 10, 4, 10, .043, 5e-4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double p = nh_fisher(cases[i].k, cases[i].n, cases[i].other_k, cases[i].other_n);
        ck_assert_msg(fabs(p - cases[i].p) <= cases[i].half_digit, "%g is not %g", p, cases[i].p);
    }
    ck_assert(nh_fisher(5, 5, 0, 5) == 1);
}
END_TEST

#define NUMBER(x)                                                                                                                          \
    {                                                                                                                                      \
        NH_READING_NUMBER, x, NULL                                                                                                         \
    }
#define BEYOND(x)                                                                                                                          \
    {                                                                                                                                      \
        NH_READING_BEYOND, x, NULL                                                                                                         \
    }
#define WORD(x)                                                                                                                            \
    {                                                                                                                                      \
        NH_READING_WORD, 0, x                                                                                                              \
    }
#define NOTHING                                                                                                                            \
    {                                                                                                                                      \
        NH_READING_NONE, 0, NULL                                                                                                           \
    }

static void spread_is(const struct nh_reading *values, size_t n, const char *text)
{
    ck_assert_str_eq(nh_spread_text(&study.memory, nh_spread(&study.memory, values, n)), text);
}

START_TEST(medians_know_what_is_beyond)
{
    spread_is((struct nh_reading[]){NUMBER(3), NUMBER(1), NUMBER(2)}, 3, "2 [1, 3]");
    spread_is((struct nh_reading[]){NUMBER(3), NUMBER(1), NOTHING}, 3, "2 [1, 3]");
    spread_is((struct nh_reading[]){NUMBER(7)}, 1, "7");
    spread_is((struct nh_reading[]){BEYOND(40), NUMBER(12), NUMBER(40)}, 3, "40 [12, > 40]");
    spread_is((struct nh_reading[]){BEYOND(40), NUMBER(12)}, 2, "> 26 [12, > 40]");
    spread_is((struct nh_reading[]){BEYOND(40), BEYOND(40)}, 2, "> 40");
    spread_is((struct nh_reading[]){BEYOND(40), NUMBER(40)}, 2, "> 40 [40, > 40]");
    spread_is((struct nh_reading[]){NUMBER((double)NAN), NUMBER(1), NUMBER((double)INFINITY)}, 3, "inf [1, nan]");
    spread_is((struct nh_reading[]){NOTHING}, 1, "");
    spread_is(NULL, 0, "");
    /* the middle two of an even number; beyond where either of them is */
    spread_is((struct nh_reading[]){NUMBER(8), NUMBER(1), NUMBER(4), NUMBER(2)}, 4, "3 [1, 8]");
    spread_is((struct nh_reading[]){NUMBER(2), BEYOND(40), NUMBER(1), NUMBER(4)}, 4, "3 [1, > 40]");
    spread_is((struct nh_reading[]){BEYOND(40), BEYOND(60), NUMBER(1), NUMBER(4)}, 4, "> 22 [1, > 60]");
    spread_is((struct nh_reading[]){BEYOND(40), BEYOND(60), BEYOND(50), NUMBER(4)}, 4, "> 45 [4, > 60]");
    /* runs of different lengths: one that is beyond few steps may be above one that is known */
    spread_is((struct nh_reading[]){BEYOND(10), NUMBER(20)}, 2, "> 15 [> 10, > 20]");
    spread_is((struct nh_reading[]){NUMBER(30), BEYOND(10), NUMBER(20)}, 3, "> 20 [> 10, > 30]");
    spread_is((struct nh_reading[]){NUMBER(3), NUMBER(2), BEYOND(10)}, 3, "3 [2, > 10]");
}
END_TEST

START_TEST(the_most_frequent_word)
{
    const struct nh_reading values[] = {WORD("scores"), NOTHING, WORD("residual"), WORD("residual"), WORD("scores")};
    size_t count;
    ck_assert_str_eq(nh_mode(values, 5, &count), "scores"); /* the first of equals */
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(nh_mode(values, 4, &count), "residual");
    ck_assert_ptr_null(nh_mode(values + 1, 1, &count));
    ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(lr_sensitivity_is_the_mean_excess)
{
    ck_assert(nh_lr_sensitivity((double[]){2, 2, 2}, 3) == 0);
    ck_assert(nh_lr_sensitivity((double[]){4, 2, 3, 3}, 4) == 1);
}
END_TEST

/* ---- the reader ---- */

static const char good[] =
    "{\"title\": \"T\", \"claim\": \"C\", \"source\": \"S\", \"cannot_show\": \"N\", \"cost\": \"little\",\n"
    " \"options\": \"--depth 2 --steps 4\",\n"
    " \"sweeps\": [{\"name\": \"fast\", \"args\": \"--vary lr=0.1,0.2\", \"seeds\": \"0..4\", \"quick_seeds\": "
    "\"0\"},\n"
    "              {\"name\": \"slow\", \"args\": \"--vary lr=0.1\", \"seeds\": \"0\", \"quick\": false}],\n"
    " \"tables\": [{\"title\": \"All\", \"where\": {}, \"by\": [\"sweep\", \"lr\", \"set.sites\"],\n"
    "              \"measures\": [\"first_step\", \"loss@3\"]}],\n"
    " \"expectations\": [\n"
    "  {\"text\": \"A\", \"decides\": \"claim\", \"where\": {\"sweep\": [\"fast\", \"slow\"], \"layout\": \"pre\"},\n"
    "   \"measure\": \"first_site\", \"test\": \"share\", \"is\": [\"scores\"], \"at_least\": 0.9, \"runs\": 5},\n"
    "  {\"text\": \"B\", \"where\": {}, \"measure\": \"max_abs\", \"test\": \"order\", \"of\": [{\"lr\": 0.1}, "
    "{\"lr\": 0.2}],\n"
    "   \"runs\": 1}],\n"
    " \"figures\": [{\"figure\": \"curve\", \"file\": \"a.svg\", \"caption\": \"c\", \"set\": \"x=step y=loss\", "
    "\"where\": {}}]}\n";

/* study.json is the good one with one text in another's place. */
static int read_changed(const char *from, const char *to)
{
    char text[4096];
    const char *at = strstr(good, from);
    ck_assert_msg(at != NULL, "no %s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    write_file("study.json", text);
    return nh_study_read(&study, folder);
}

START_TEST(a_study_is_read)
{
    ok(read_changed("", ""));
    ck_assert_str_eq(study.title, "T");
    ck_assert_uint_eq(study.n_sweeps, 2);
    ck_assert(study.sweeps[0].quick && !study.sweeps[1].quick);
    ck_assert_str_eq(nh_sweep_seeds(&study.sweeps[0], true), "0");
    ck_assert_str_eq(nh_sweep_seeds(&study.sweeps[0], false), "0..4");
    ck_assert_str_eq(nh_sweep_args(&study.sweeps[0], true), "--vary lr=0.1,0.2");
    ck_assert_uint_eq(study.n_measured, 4);
    const struct nh_expectation *e = study.expectations;
    ck_assert(e->decides == NH_DECIDES_CLAIM && e->at_least == 0.9 && e->runs == 5 && e->is.n == 1);
    ck_assert(e[1].decides == NH_DECIDES_NOTHING && e[1].test == NH_TEST_ORDER && json_array_size(e[1].of) == 2);
    ck_assert_str_eq(study.figures[0].set, "x=step y=loss");
}
END_TEST

static const struct {
    const char *from, *to, *says;
} broken[] = {
    {"\"title\": \"T\",", "", "lacks 'title', a text"},
    {"\"title\": \"T\"", "\"title\": 3", "'title' must be a text"},
    {"\"title\": \"T\"", "\"title\": \"\"", "'title' must be a text"},
    {"\"title\": \"T\"", "\"titel\": \"T\"", "has no field 'titel'; did you mean title?"},
    {"\"claim\": \"C\"", "\"title\": \"C\"", "line 1 is not valid JSON: duplicate object key"},
    {"\"little\",", "\"little\"", "line 2 is not valid JSON"},
    {"\"sweeps\": [", "\"sweeps\": [3, ", "sweeps[0] must be an object"},
    {"\"name\": \"slow\"", "\"name\": \"fast\"", "another sweep is called 'fast'"},
    {"\"name\": \"slow\"", "\"name\": \"a/b\"", "sweeps[1]: 'a/b' becomes a name of a file"},
    {"\"name\": \"slow\"", "\"name\": \"..\"", "becomes a name of a file"},
    {"\"quick\": false", "\"quick\": 0", "'quick' must be true or false"},
    {"\"quick_seeds\"", "\"quick_seed\"", "sweeps[0] has no field 'quick_seed'; did you mean quick_seeds?"},
    {"[\"sweep\", \"lr\"", "[\"sweep\", \"rl\"", "tables[0]: 'rl' is no option of a run"},
    {"[\"sweep\", \"lr\"", "[\"sweep\", 3", "'by' must be a list of texts"},
    {"\"where\": {}, \"by\"", "\"where\": {\"out\": \"x\"}, \"by\"", "'out' is no option of a run"},
    {"[\"first_step\", \"loss@3\"]", "[]", "'measures' must be a list of texts"},
    {"\"first_step\"", "\"first_stop\"", "no measure 'first_stop'; did you mean first_step or"},
    {"loss@3", "layout@3", "steps.csv has no number of that name"},
    {"loss@3", "los@3", "did you mean loss or loss_scale?"},
    {"loss@3", "loss@3.5", "'loss@3.5' must end in a step"},
    {"loss@3", "loss@", "must end in a step"},
    {"\"fast\", \"slow\"]", "\"fast\", \"fats\"]", "there is no sweep 'fats'; did you mean fast"},
    {"\"fast\", \"slow\"]", "\"fast\", null]", "'where' must be an object OPTION: value"},
    {"\"layout\": \"pre\"", "\"layout\": []", "'where' must be an object OPTION: value"},
    {"\"layout\": \"pre\"", "\"layuot\": \"pre\"", "expectations[0]: 'layuot' is no option of a run; did you mean layout?"},
    {"\"share\"", "\"shear\"", "there is no test 'shear'; did you mean share?"},
    {"\"share\"", "3", "'test' must be a text"},
    {"\"test\": \"share\",", "", "expectations[0] has no field 'is'"},
    {"\"claim\", \"where\"", "\"claims\", \"where\"", "did you mean claim?"},
    {"\"decides\": \"claim\", ", "", "no expectation has \"decides\": \"claim\""},
    {"0.9", "1.1", "'at_least' must be a number above 0, at most 1"},
    {"\"runs\": 5", "\"runs\": 0", "'runs' must be a whole number from 1"},
    {", \"runs\": 5", "", "expectations[0] lacks 'runs'"},
    {"\"is\": [\"scores\"]", "\"within\": [1, 2]", "the values of first_site are told by 'is'"},
    {"\"is\": [\"scores\"],", "", "told by 'is'"},
    {"\"first_site\"", "\"first_step\"", "the values of first_step are told by 'within'"},
    {"\"share\", \"is\": [\"scores\"], \"at_least\": 0.9", "\"slope\", \"on\": \"lr\", \"within\": [1, 2]",
     "first_site is a word, which has no slope"},
    {"\"is\": [\"scores\"]", "\"within\": [2, 1]", "'within' must be [LEAST, LARGEST]"},
    {"\"is\": [\"scores\"]", "\"within\": [2]", "'within' must be [LEAST, LARGEST]"},
    {"\"is\": [\"scores\"]", "\"than\": {}", "has no field 'than'"},
    {"[{\"lr\": 0.1}, {\"lr\": 0.2}]", "[{\"lr\": 0.1}]", "'of' must be a list of at least two objects"},
    {"{\"lr\": 0.2}]", "{\"rl\": 0.2}]", "'rl' is no option"},
    {"\"a.svg\"", "\"../a.svg\"", "figures[0]: '../a.svg' becomes a name of a file"},
    {"\"caption\": \"c\", ", "", "figures[0] lacks 'caption'"},
    {"--vary lr=0.1\"", "--vary rl=0.1\"", "sweeps[1]: 'args': there is no option '--rl'"},
    {"--vary lr=0.1,0.2", "--vary lr=0.1,nan", "sweeps[0]: 'args': --lr 'nan' must be"},
    {"--vary lr=0.1,0.2", "--vary lr", "sweeps[0]: 'args': --vary takes OPTION=V1,V2,..."},
    {"--vary lr=0.1,0.2", "--vary seed=1,2", "sweeps[0]: 'args': --seed is not for a study to say"},
    {"--depth 2", "--out=x", "sweeps[0]: 'args': --out is not for a study to say"},
    {"--depth 2", "--depth", "sweeps[0]: 'args': --depth needs a value"},
    {"\"0..4\"", "\"0..x\"", "sweeps[0]: 'seeds' must be a list of seeds"},
    {"\"quick_seeds\": \"0\"", "\"quick_seeds\": \"0,\"", "sweeps[0]: 'quick_seeds' must be a list of seeds"},
};

START_TEST(a_broken_study_is_refused)
{
    fails(read_changed(broken[_i].from, broken[_i].to), broken[_i].says);
    ck_assert_msg(strstr(nh_error(), "study.json") != NULL, "%s", nh_error());
}
END_TEST

START_TEST(no_study_is_refused)
{
    fails(nh_study_read(&study, in_folder("nothing")), "nothing/study.json");
}
END_TEST

/* ---- runs and expectations ---- */

static char config_csv[8192];

/* A cell of the sweep "runs"; step < 0: no overflow in -step steps. */
static void add_run(const char *id, const char *layout, const char *lr, int seed, int step, double max_abs)
{
    char command[sizeof folder + 64], name[64], text[1024], first[256] = "null";
    snprintf(command, sizeof command, "mkdir -p '%s/runs/%s'", folder, id);
    ck_assert_int_eq(system(command), 0);
    if (step >= 0)
        snprintf(first, sizeof first, "{\"step\": %d, \"layer\": 9, \"sublayer\": \"ffn\", \"site\": \"%s\"}", step,
                 strcmp(layout, "pre") == 0 ? "residual" : "scores");
    char number[32] = "\"inf\"";
    if (isfinite(max_abs))
        snprintf(number, sizeof number, "%.17g", max_abs);
    snprintf(text, sizeof text,
             "{\"run\": \"%s\", \"status\": \"%s\", \"first_forward\": %s, \"training\": {\"steps_done\": %d, \"max_abs\": "
             "%s,"
             "\"start_loss\": 4, \"final_loss\": %s}, \"config\": {\"layout\": \"%s\", \"lr\": \"%s\", \"seed\": \"%d\","
             "\"depth\": \"12\"}}",
             id, step >= 0 ? "diverged" : "ok", first, abs(step), number, step >= 0 ? "\"nan\"" : "2.5", layout, lr, seed);
    snprintf(name, sizeof name, "runs/%s/run.json", id);
    write_file(name, text);
    snprintf(config_csv + strlen(config_csv), sizeof config_csv - strlen(config_csv), "%s,lr,%s\n%s,depth,12\n", id, lr, id);
}

/* A study of one sweep with that expectation beside one that decides, and these runs:
 *            lr 0.1                 0.2                0.4
 * pre        30 40 50 (inf)         10 12 14 (inf)     none
 * sandwich   > 100 (1 2 3)    60 > 100 > 100 (4 8 12)    > 100 (8, 16, 32 times as large)     */
static struct nh_finding judge(const char *expectation)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"title\": \"T\", \"claim\": \"C\", \"source\": \"S\", \"cannot_show\": \"N\", \"cost\": \"little\","
             "\"sweeps\": [{\"name\": \"runs\", \"args\": \"--steps 9\", \"seeds\": \"0\"}], \"tables\": [],"
             "\"expectations\": [{\"text\": \"A\", \"decides\": \"claim\", %s}]}",
             expectation);
    write_file("study.json", text);
    ok(nh_study_read(&study, folder));
    strcpy(config_csv, "run,option,value\n");
    for (int seed = 0; seed < 3; seed++) {
        char id[4][9];
        for (int k = 0; k < 4; k++)
            snprintf(id[k], sizeof id[k], "%d%d", k, seed);
        add_run(id[0], "pre", "0.1", seed, 30 + 10 * seed, (double)INFINITY);
        add_run(id[1], "pre", "0.2", seed, 10 + 2 * seed, (double)INFINITY);
        add_run(id[2], "sandwich", "0.1", seed, -100, seed + 1);
        add_run(id[3], "sandwich", "0.2", seed, seed == 0 ? 60 : -100, 4 * (seed + 1));
        snprintf(id[0], sizeof id[0], "9%d", seed);
        add_run(id[0], "sandwich", "0.4", seed, -100, (8 << seed) * (seed + 1));
    }
    write_file("runs/config.csv", config_csv);
    add_run("ff", "pre", "0.1", 7, 3, 1); /* of an older job list */
    ok(nh_study_load(&study, "runs", in_folder("runs")));
    ck_assert_uint_eq(study.n_runs, 15);
    return nh_study_judge(&study, &study.expectations[0]);
}

static const struct {
    const char *expectation;
    enum nh_verdict verdict;
    const char *measured, *wanted;
} judged[] = {
    {"\"where\": {\"layout\": \"pre\", \"lr\": 0.2}, \"measure\": \"first_step\", \"test\": \"share\", \"within\": [8, "
     "14], \"runs\": 3",
     NH_HOLDS, "3 of 3; 12 [10, 14]", "[8, 14] in every run"},
    {"\"where\": {\"layout\": \"pre\", \"lr\": \"0.20\"}, \"measure\": \"first_step\", \"test\": \"share\", "
     "\"within\": [8, 13], \"runs\": 3",
     NH_FAILS, "2 of 3; 12 [10, 14]", "[8, 13] in every run"},
    {"\"where\": {\"layout\": \"pre\", \"lr\": 0.2}, \"measure\": \"first_step\", \"test\": \"share\", \"within\": [8, "
     "13], \"at_least\": 0.6,"
     "\"runs\": 4",
     NH_TOO_FEW, "2 of 3; 12 [10, 14]; 3 of at least 4 runs", "[8, 13] in at least 60 % of the runs"},
    {"\"where\": {\"layout\": \"post\"}, \"measure\": \"first_step\", \"test\": \"share\", \"within\": [8, 13], "
     "\"runs\": 1",
     NH_TOO_FEW, "0 of at least 1 runs", "[8, 13] in every run"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.1}, \"measure\": \"first_step\", \"test\": \"share\", "
     "\"within\": [100, null], \"runs\": 3",
     NH_HOLDS, "3 of 3; > 100", ">= 100 in every run"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.1}, \"measure\": \"first_step\", \"test\": \"share\", "
     "\"within\": [101, null], \"runs\": 3",
     NH_CENSORED, "0 of 3; > 100", ">= 101 in every run"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.1}, \"measure\": \"first_step\", \"test\": \"share\", "
     "\"within\": [50, 200], \"runs\": 3",
     NH_CENSORED, "0 of 3; > 100", "[50, 200] in every run"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.1}, \"measure\": \"first_step\", \"test\": \"share\", "
     "\"within\": [50, 100], \"runs\": 3",
     NH_FAILS, "0 of 3; > 100", "[50, 100] in every run"},
    {"\"where\": {\"lr\": 0.2}, \"measure\": \"first_site\", \"test\": \"share\", \"is\": [\"residual\", \"embed\"], "
     "\"runs\": 3",
     NH_FAILS, "3 of 6; residual in 3", "residual or embed in every run"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.1}, \"measure\": \"diverged\", \"test\": \"rarer\", \"within\": "
     "[1, 1],"
     "\"than\": {\"layout\": \"pre\"}, \"p\": 0.04, \"runs\": 3",
     NH_FAILS, "0 of 3 against 3 of 3, p = 0.05", "= 1 rarer than with layout=pre, p < 0.04"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": [0.1, 0.2]}, \"measure\": \"first_step\", \"test\": \"rarer\", "
     "\"within\": [0, 50],"
     "\"than\": {\"layout\": \"pre\"}, \"runs\": 3",
     NH_HOLDS, "0 of 6 against 6 of 6, p = 0.0011", "[0, 50] rarer than with layout=pre, p < 0.05"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.2}, \"measure\": \"max_abs\", \"test\": \"ratio\", \"to\": "
     "{\"lr\": 0.1},"
     "\"within\": [3.5, 4.5], \"runs\": 3",
     NH_HOLDS, "4 (8 over 2)", "[3.5, 4.5] times that of lr=0.1"},
    {"\"where\": {\"layout\": \"pre\", \"lr\": 0.1}, \"measure\": \"max_abs\", \"test\": \"ratio\", \"to\": "
     "{\"layout\": \"sandwich\"},"
     "\"within\": [40, null], \"runs\": 3",
     NH_HOLDS, "inf (inf over 2)", ">= 40 times that of layout=sandwich"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.1}, \"measure\": \"first_step\", \"test\": \"ratio\", \"to\": "
     "{\"layout\": \"pre\"},"
     "\"within\": [2, null], \"runs\": 3",
     NH_HOLDS, "> 2.5 (> 100 over 40)", ">= 2 times that of layout=pre"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.1}, \"measure\": \"first_step\", \"test\": \"ratio\", \"to\": "
     "{\"layout\": \"pre\"},"
     "\"within\": [2, 4], \"runs\": 3",
     NH_CENSORED, "> 2.5 (> 100 over 40)", "[2, 4] times that of layout=pre"},
    {"\"where\": {\"layout\": \"sandwich\", \"lr\": 0.1}, \"measure\": \"first_step\", \"test\": \"ratio\", \"to\": "
     "{\"layout\": \"pre\"},"
     "\"within\": [null, 2], \"runs\": 3",
     NH_FAILS, "> 2.5 (> 100 over 40)", "<= 2 times that of layout=pre"},
    {"\"where\": {\"layout\": \"pre\", \"lr\": 0.1}, \"measure\": \"first_step\", \"test\": \"ratio\", \"to\": "
     "{\"layout\": \"sandwich\"},"
     "\"within\": [null, 1], \"runs\": 3",
     NH_CENSORED, "not known (40 over > 100)", "<= 1 times that of layout=sandwich"},
    {"\"where\": {\"layout\": \"sandwich\"}, \"measure\": \"max_abs\", \"test\": \"slope\", \"on\": \"lr\", "
     "\"within\": [1.9, 2.1], \"runs\": 9",
     NH_HOLDS, "2 +- 0.29, 3 seeds", "[1.9, 2.1] as power of lr"},
    {"\"where\": {\"layout\": \"pre\"}, \"measure\": \"max_abs\", \"test\": \"slope\", \"on\": \"lr\", \"within\": "
     "[1.9, 2.1], \"runs\": 1",
     NH_TOO_FEW, "0 of at least 1 runs", "[1.9, 2.1] as power of lr"},
    {"\"where\": {}, \"measure\": \"first_step\", \"test\": \"order\", \"runs\": 3, \"of\": [{\"layout\": \"pre\", "
     "\"lr\": 0.2},"
     "{\"layout\": \"pre\", \"lr\": 0.1}, {\"layout\": \"sandwich\", \"lr\": 0.1}]",
     NH_HOLDS, "12, 40, > 100", "layout=pre, lr=0.2 < layout=pre, lr=0.1 < layout=sandwich, lr=0.1"},
    {"\"where\": {\"layout\": \"pre\"}, \"measure\": \"first_step\", \"test\": \"order\", \"runs\": 3, \"of\": "
     "[{\"lr\": 0.1}, {\"lr\": 0.2}]",
     NH_FAILS, "40, 12", "lr=0.1 < lr=0.2"},
    {"\"where\": {\"layout\": \"pre\"}, \"measure\": \"first_step\", \"test\": \"order\", \"runs\": 3, "
     "\"of\": [{\"lr\": 0.1}, {\"lr\": \"0.1\"}]",
     NH_FAILS, "40, 40", "lr=0.1 < lr=0.1"},
    {"\"where\": {\"layout\": \"sandwich\"}, \"measure\": \"first_step\", \"test\": \"order\", \"runs\": 3, \"of\": "
     "[{\"lr\": 0.1}, {\"lr\": 0.2}]",
     NH_CENSORED, "> 100, > 100", "lr=0.1 < lr=0.2"},
    {"\"where\": {\"layout\": \"pre\"}, \"measure\": \"first_depth\", \"test\": \"share\", \"within\": [0.75, 0.75], "
     "\"runs\": 6",
     NH_HOLDS, "6 of 6; 0.75", "= 0.75 in every run"},
    /* of a seed: in pre all rates diverged; in sandwich 0.2 of seed 0, (2.5 + 4 + 2.5)/3 - 2.5; the others are all
       alike */
    {"\"where\": {\"layout\": \"pre\"}, \"measure\": \"lr_sensitivity\", \"test\": \"share\", \"within\": [0, 0], "
     "\"runs\": 3",
     NH_FAILS, "0 of 3", "= 0 in every run"},
    {"\"where\": {\"layout\": \"sandwich\"}, \"measure\": \"lr_sensitivity\", \"test\": \"share\", \"within\": [0, 1], "
     "\"runs\": 3",
     NH_FAILS, "1 of 3; 0.5", "[0, 1] in every run"},
};

START_TEST(expectations_are_judged)
{
    const struct nh_finding f = judge(judged[_i].expectation);
    ck_assert_str_eq(f.measured, judged[_i].measured);
    ck_assert_str_eq(f.wanted, judged[_i].wanted);
    ck_assert_str_eq(nh_verdict_names[f.verdict], nh_verdict_names[judged[_i].verdict]);
}
END_TEST

START_TEST(a_seed_without_all_rates_has_no_sensitivity)
{
    judge("\"where\": {}, \"measure\": \"lr_sensitivity\", \"test\": \"share\", \"within\": [0, 1], \"runs\": 1");
    json_t *sandwich = json_pack("{s:s}", "layout", "sandwich");
    struct nh_study_group g = nh_study_select(&study, sandwich, NULL);
    json_decref(sandwich);
    size_t n;
    const struct nh_reading *values = nh_study_values(&study, g, "lr_sensitivity", &n);
    ck_assert(n == 3 && values[0].sort == NH_READING_NUMBER && values[0].number == 0.5);
    ck_assert_str_eq(nh_study_option(g.runs[0], "seed"), "0");
    g.runs++;
    g.n--;
    values = nh_study_values(&study, g, "lr_sensitivity", &n);
    ck_assert_uint_eq(n, 3);
    for (size_t i = 0; i < n; i++)
        ck_assert(values[i].sort == NH_READING_NONE); /* of seed 0 a rate is missing; those of the others are all alike */
}
END_TEST

START_TEST(rows_of_steps_are_measured)
{
    static const char *const names[] = {"recoveries", "loss@2", "loss@4", "loss@9", "max_abs", "first_step"};
    enum { N = sizeof names / sizeof *names };
    struct nh_measured measured[N];
    struct nh_reading v[N];
    for (size_t i = 0; i < N; i++)
        ok(nh_measured_find(&measured[i], &study.memory, names[i], "here"));
    write_file("steps.csv", "step,loss,overflow_fwd\n0,4,0\n1,3.5,3\n2,nan,1\n3,3,0\n4,,2\n5,2,0\n6,1,0\n");
    json_t *record = json_pack("{s:s, s:n, s:{s:i, s:s}}", "status", "ok", "first_forward", "training", "steps_done", 7, "max_abs", "inf");
    ok(nh_measure_run(v, measured, N, record, folder));
    ck_assert(v[0].sort == NH_READING_NUMBER && v[0].number == 2);
    ck_assert(v[1].sort == NH_READING_NUMBER && isnan(v[1].number));
    ck_assert(v[2].sort == NH_READING_NONE && v[3].sort == NH_READING_NONE);
    ck_assert(v[4].sort == NH_READING_NUMBER && isinf(v[4].number));
    ck_assert(v[5].sort == NH_READING_BEYOND && v[5].number == 7);
    write_file("steps.csv", "step,loss,overflow_fwd\n2,x,0\n");
    fails(nh_measure_run(v, measured, N, record, folder), "steps.csv");
    json_decref(record);
}
END_TEST

START_TEST(verdicts_follow_from_what_decides)
{
    static const struct {
        enum nh_verdict nothing, claim, scale;
        const char *verdict;
    } cases[] = {
        {NH_HOLDS, NH_HOLDS, NH_HOLDS, "reproduced"},     {NH_FAILS, NH_HOLDS, NH_HOLDS, "reproduced"},
        {NH_HOLDS, NH_FAILS, NH_HOLDS, "refuted"},        {NH_HOLDS, NH_FAILS, NH_FAILS, "not at this scale"},
        {NH_HOLDS, NH_TOO_FEW, NH_HOLDS, "inconclusive"}, {NH_HOLDS, NH_CENSORED, NH_HOLDS, "inconclusive"},
        {NH_HOLDS, NH_FAILS, NH_TOO_FEW, "inconclusive"}, {NH_HOLDS, NH_HOLDS, NH_FAILS, "not at this scale"},
        {NH_TOO_FEW, NH_HOLDS, NH_HOLDS, "reproduced"},
    };
    const struct nh_expectation e[] = {
        {.decides = NH_DECIDES_NOTHING}, {.decides = NH_DECIDES_CLAIM}, {.decides = NH_DECIDES_SCALE}, {.decides = NH_DECIDES_CLAIM}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct nh_finding f[] = {
            {.verdict = cases[i].nothing}, {.verdict = cases[i].claim}, {.verdict = cases[i].scale}, {NH_HOLDS, NULL, NULL}};
        ck_assert_str_eq(nh_study_verdict(e, f, 4), cases[i].verdict);
    }
}
END_TEST

/** Of several claims the worst decides, wherever it stands: one that fails before one that is not decided. */
START_TEST(the_worst_of_several_claims_decides)
{
    static const enum nh_verdict order[] = {NH_HOLDS, NH_TOO_FEW, NH_CENSORED, NH_FAILS};
    const struct nh_expectation e[] = {{.decides = NH_DECIDES_CLAIM}, {.decides = NH_DECIDES_CLAIM}, {.decides = NH_DECIDES_CLAIM}};
    for (int i = 0; i < 64; i++) {
        const struct nh_finding f[] = {{.verdict = order[i % 4]}, {.verdict = order[i / 4 % 4]}, {.verdict = order[i / 16]}};
        bool fails = false, open = false;
        for (int k = 0; k < 3; k++) {
            fails = fails || f[k].verdict == NH_FAILS;
            open = open || f[k].verdict == NH_TOO_FEW || f[k].verdict == NH_CENSORED;
        }
        ck_assert_str_eq(nh_study_verdict(e, f, 3), fails ? "refuted" : open ? "inconclusive" : "reproduced");
    }
    /* the same of several conditions on the scale, and none of these stands in for the other kind */
    const struct nh_expectation mixed[] = {{.decides = NH_DECIDES_SCALE}, {.decides = NH_DECIDES_CLAIM}, {.decides = NH_DECIDES_SCALE}};
    for (int i = 0; i < 64; i++) {
        const struct nh_finding f[] = {{.verdict = order[i % 4]}, {.verdict = order[i / 4 % 4]}, {.verdict = order[i / 16]}};
        const bool fails = f[0].verdict == NH_FAILS || f[2].verdict == NH_FAILS;
        const bool holds = f[0].verdict == NH_HOLDS && f[2].verdict == NH_HOLDS;
        ck_assert_str_eq(nh_study_verdict(mixed, f, 3), fails                               ? "not at this scale"
                                                        : holds && f[1].verdict == NH_FAILS ? "refuted"
                                                        : holds && f[1].verdict == NH_HOLDS ? "reproduced"
                                                                                            : "inconclusive");
    }
}
END_TEST

/** A measure of a run.json with these words. */
static struct nh_reading measure_of(const char *name, const char *record)
{
    struct nh_measured measured;
    struct nh_reading value;
    json_t *json = json_loads(record, 0, NULL);
    ck_assert_ptr_nonnull(json);
    ok(nh_measured_find(&measured, &study.memory, name, "here"));
    ok(nh_measure_run(&value, &measured, 1, json, folder));
    json_decref(json);
    return value;
}

START_TEST(capped_loss_is_that_of_the_start_where_a_run_diverged)
{
    static const struct {
        const char *status, *start, *final;
        double capped;
    } cases[] = {
        {"ok", "4", "2.5", 2.5},
        {"ok", "4", "5", 4},
        {"ok", "4", "4", 4},
        {"ok", "4", "\"nan\"", 4},
        {"overflowed", "4", "3", 3},
        {"interrupted", "4", "3", 3},
        {"diverged", "4", "2.5", 4}, /* it was low before it left */
        {"diverged", "4", "\"nan\"", 4},
        {"diverged", "4", "\"inf\"", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char record[256];
        snprintf(record, sizeof record, "{\"status\": \"%s\", \"training\": {\"start_loss\": %s, \"final_loss\": %s}}", cases[i].status,
                 cases[i].start, cases[i].final);
        const struct nh_reading v = measure_of("capped_loss", record);
        ck_assert_msg(v.sort == NH_READING_NUMBER && v.number == cases[i].capped, "case %zu: %g", i, v.number);
    }
}
END_TEST

/** k runs of n that diverged, held against a share of them; numbers that come out of a product a last bit too high or low. */
START_TEST(shares_hold_at_the_edge_of_rounding)
{
    static const struct {
        const char *at_least;
        size_t k, n;
        bool holds;
    } cases[] = {
        {"0.7", 7, 10, true},    {"0.7", 6, 10, false},
        {"0.28", 7, 25, true},   {"0.28", 6, 25, false},
        {"0.29", 29, 100, true}, {"0.57", 57, 100, true},
        {"0.58", 58, 100, true}, {"0.58", 57, 100, false},
        {"0.55", 11, 20, true},  {"1", 3, 3, true},
        {"1", 99, 100, false},   {"0.5", 1, 2, true},
        {"0.5", 1, 3, false},    {"0.6666666666666666", 2, 3, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "{\"title\": \"T\", \"claim\": \"C\", \"source\": \"S\", \"cannot_show\": \"N\", \"cost\": \"little\","
                 "\"sweeps\": [{\"name\": \"runs\", \"args\": \"--steps 9\", \"seeds\": \"0\"}], \"tables\": [],"
                 "\"expectations\": [{\"text\": \"A\", \"decides\": \"claim\", \"where\": {}, \"measure\": \"diverged\", \"test\": "
                 "\"share\", \"within\": [1, 1], \"at_least\": %s, \"runs\": 1}]}",
                 cases[i].at_least);
        nh_study_fini(&study);
        nh_study_init(&study);
        write_file("study.json", text);
        ok(nh_study_read(&study, folder));
        strcpy(config_csv, "run,option,value\n");
        char command[sizeof folder + 64];
        snprintf(command, sizeof command, "rm -rf '%s/runs'", folder);
        ck_assert_int_eq(system(command), 0);
        for (size_t k = 0; k < cases[i].n; k++) {
            char id[24];
            snprintf(id, sizeof id, "r%zu", k);
            add_run(id, "pre", "0.1", (int)k, k < cases[i].k ? 5 : -9, 1);
        }
        write_file("runs/config.csv", config_csv);
        ok(nh_study_load(&study, "runs", in_folder("runs")));
        ck_assert_uint_eq(study.n_runs, cases[i].n);
        const struct nh_finding f = nh_study_judge(&study, &study.expectations[0]);
        ck_assert_msg(f.verdict == (cases[i].holds ? NH_HOLDS : NH_FAILS), "%s: %s", cases[i].at_least, f.measured);
    }
}
END_TEST

/** Medians in an order: what is beyond a number is above that number and all below it, but not above another that is beyond. */
START_TEST(orders_of_what_is_beyond_are_told_where_they_are_known)
{
    static const struct {
        int steps[3][2]; /* two runs at each of three rates; negative: none in so many steps */
        enum nh_verdict verdict;
    } cases[] = {
        {{{10, 12}, {20, 22}, {-100, -100}}, NH_HOLDS},
        {{{100, 100}, {-100, -100}, {-200, -200}}, NH_CENSORED}, /* the first pair rises, the second may */
        {{{-100, -100}, {-200, -200}, {-300, -300}}, NH_CENSORED},
        {{{10, 12}, {11, 11}, {-100, -100}}, NH_FAILS},
        {{{30, 32}, {20, 22}, {-100, -100}}, NH_FAILS},
        {{{10, 12}, {-100, -100}, {20, 22}}, NH_FAILS}, /* 21 is not above what is beyond 100 */
        {{{-100, -100}, {30, 30}, {20, 20}}, NH_FAILS},
        {{{-20, -20}, {30, 30}, {40, 40}}, NH_CENSORED}, /* beyond 20 may be above 30 or not */
        {{{101, 101}, {-100, -100}, {-200, -200}}, NH_CENSORED},
        {{{10, -100}, {-60, -60}, {-70, -70}}, NH_CENSORED}, /* the first median is beyond 55 */
        {{{5, 6}, {-20, -20}, {20, 20}}, NH_FAILS},
    };
    static const char *const rates[] = {"0.1", "0.2", "0.4"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[sizeof folder + 64];
        snprintf(command, sizeof command, "rm -rf '%s/runs'", folder);
        ck_assert_int_eq(system(command), 0);
        nh_study_fini(&study);
        nh_study_init(&study);
        write_file("study.json",
                   "{\"title\": \"T\", \"claim\": \"C\", \"source\": \"S\", \"cannot_show\": \"N\", \"cost\": \"little\","
                   "\"sweeps\": [{\"name\": \"runs\", \"args\": \"--steps 9\", \"seeds\": \"0\"}], \"tables\": [],"
                   "\"expectations\": [{\"text\": \"A\", \"decides\": \"claim\", \"where\": {}, \"measure\": \"first_step\", \"test\": "
                   "\"order\", \"of\": [{\"lr\": 0.1}, {\"lr\": 0.2}, {\"lr\": 0.4}], \"runs\": 2}]}");
        ok(nh_study_read(&study, folder));
        strcpy(config_csv, "run,option,value\n");
        for (int k = 0; k < 6; k++) {
            char id[16];
            snprintf(id, sizeof id, "r%d", k);
            add_run(id, "pre", rates[k / 2], k % 2, cases[i].steps[k / 2][k % 2], 1);
        }
        write_file("runs/config.csv", config_csv);
        ok(nh_study_load(&study, "runs", in_folder("runs")));
        const struct nh_finding f = nh_study_judge(&study, &study.expectations[0]);
        ck_assert_msg(f.verdict == cases[i].verdict, "case %zu, %s: %s", i, f.measured, nh_verdict_names[f.verdict]);
    }
}
END_TEST

/** Writes a run that is the sample of another one and measured other things; measured: fields of "training". */
static void add_sample(const char *id, const char *sample, const char *status, int seed, const char *measured)
{
    char command[sizeof folder + 64], name[64], text[512];
    snprintf(command, sizeof command, "mkdir -p '%s/runs/%s'", folder, id);
    ck_assert_int_eq(system(command), 0);
    snprintf(text, sizeof text,
             "{\"run\": \"%s\", \"sample\": \"%s\", \"status\": \"%s\", \"training\": {\"steps_done\": 9, %s},"
             " \"config\": {\"layout\": \"pre\", \"seed\": \"%d\"}}",
             id, sample, status, measured, seed);
    snprintf(name, sizeof name, "runs/%s/run.json", id);
    write_file(name, text);
    snprintf(config_csv + strlen(config_csv), sizeof config_csv - strlen(config_csv), "%s,layout,pre\n", id);
}

/** The runs of one sample are one value in tables, expectations and verdicts; each adds what the others have not measured. */
START_TEST(runs_of_one_sample_count_once)
{
    write_file(
        "study.json",
        "{\"title\": \"T\", \"claim\": \"C\", \"source\": \"S\", \"cannot_show\": \"N\", \"cost\": \"little\","
        "\"sweeps\": [{\"name\": \"runs\", \"args\": \"--steps 9\", \"seeds\": \"0\"},"
        " {\"name\": \"again\", \"args\": \"--steps 9\", \"seeds\": \"0\"}],"
        "\"tables\": [{\"title\": \"t\", \"where\": {}, \"by\": [\"layout\"], \"measures\": [\"final_loss\", \"max_abs\", \"val_loss\"]},"
        " {\"title\": \"u\", \"where\": {}, \"by\": [\"sweep\"], \"measures\": [\"final_loss\"]}],"
        "\"expectations\": [{\"text\": \"A\", \"decides\": \"claim\", \"where\": {}, \"measure\": \"max_abs\", \"test\": \"share\","
        " \"within\": [1, 9], \"at_least\": 1, \"runs\": 3}]}");
    ok(nh_study_read(&study, folder));
    strcpy(config_csv, "run,option,value\n");
    add_sample("r1", "s1", "interrupted", 0, "\"final_loss\": 7");
    add_sample("r2", "s1", "ok", 0, "\"final_loss\": 2, \"max_abs\": 5");
    add_sample("r3", "s1", "overflowed", 0, "\"final_loss\": 2, \"val_loss\": 3");
    add_sample("r4", "s2", "ok", 1, "\"final_loss\": 4, \"max_abs\": 7, \"val_loss\": 5");
    write_file("runs/config.csv", config_csv);
    ok(nh_study_load(&study, "runs", in_folder("runs")));
    ok(nh_study_load(&study, "again", in_folder("runs")));
    ck_assert_uint_eq(study.n_runs, 8);
    ck_assert_ptr_null(nh_study_conflict(&study));

    const struct nh_study_group all = nh_study_select(&study, study.tables[0].where, NULL);
    size_t n;
    const struct nh_study_group *groups = nh_study_groups(&study, all, study.tables[0].by, &n);
    ck_assert(n == 1 && groups[0].n == 2);
    ck_assert(groups[0].runs[0]->outcome == NH_OUTCOME_OVERFLOWED && groups[0].runs[1]->outcome == NH_OUTCOME_OK);
    const char *const names[] = {"final_loss", "max_abs", "val_loss"};
    const double wanted[][2] = {{2, 4}, {5, 7}, {3, 5}};
    for (size_t i = 0; i < 3; i++) {
        const struct nh_reading *values = nh_study_values(&study, all, names[i], &n);
        ck_assert(n == 2 && values[0].number == wanted[i][0] && values[1].number == wanted[i][1]);
    }
    groups = nh_study_groups(&study, all, study.tables[1].by, &n);
    ck_assert(n == 2 && groups[0].n == 2 && groups[1].n == 2);
    const struct nh_finding f = nh_study_judge(&study, &study.expectations[0]);
    ck_assert_int_eq(f.verdict, NH_TOO_FEW); /* two samples in eight runs */
}
END_TEST

START_TEST(runs_of_one_sample_that_differ_are_named)
{
    static const struct {
        const char *status, *measured, *sentence;
    } cases[] = {
        {"ok", "\"final_loss\": 2.00000001", "their final_loss is 2 and 2.00000001; the first counts"},
        {"ok", "\"final_loss\": \"nan\"", "their final_loss is 2 and nan; the first counts"},
        {"diverged", "\"final_loss\": 2", "their status is ok and diverged; the first counts"},
        {"interrupted", "\"final_loss\": 3", NULL},
        {"overflowed", "\"max_abs\": 3", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nh_study_fini(&study);
        nh_study_init(&study);
        write_file("study.json",
                   "{\"title\": \"T\", \"claim\": \"C\", \"source\": \"S\", \"cannot_show\": \"N\", \"cost\": \"little\","
                   "\"sweeps\": [{\"name\": \"runs\", \"args\": \"--steps 9\", \"seeds\": \"0\"}], \"tables\": [],"
                   "\"expectations\": [{\"text\": \"A\", \"decides\": \"claim\", \"where\": {}, \"measure\": \"final_loss\", \"test\": "
                   "\"share\", \"within\": [2, 2], \"at_least\": 1, \"runs\": 1}]}");
        ok(nh_study_read(&study, folder));
        strcpy(config_csv, "run,option,value\n");
        add_sample("r1", "s1", "ok", 0, "\"final_loss\": 2");
        add_sample("r2", "s1", cases[i].status, 0, cases[i].measured);
        write_file("runs/config.csv", config_csv);
        ok(nh_study_load(&study, "runs", in_folder("runs")));
        const char *sentence = nh_study_conflict(&study);
        ck_assert_msg(cases[i].sentence ? sentence && strstr(sentence, cases[i].sentence) : !sentence, "case %zu: %s", i,
                      sentence ? sentence : "no conflict");
        ck_assert_int_eq(nh_study_judge(&study, &study.expectations[0]).verdict, NH_HOLDS);
    }
}
END_TEST

START_TEST(broken_runs_are_refused)
{
    judge(judged[0].expectation);
    write_file("runs/00/run.json", "{");
    fails(nh_study_load(&study, "runs", in_folder("runs")), "runs/00/run.json is no record of a run");
    write_file("runs/00/run.json", "{\"run\": \"00\", \"status\": \"fine\", \"config\": {}}");
    fails(nh_study_load(&study, "runs", in_folder("runs")), "lacks a status or its config");
    write_file("runs/00/run.json", "{\"run\": \"01\", \"status\": \"ok\", \"config\": {}}");
    fails(nh_study_load(&study, "runs", in_folder("runs")), "tells of run '00', which is in no folder");
    fails(nh_study_load(&study, "runs", in_folder("none")), "none: No such file");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("study");
    TCase *t = tcase_create("study");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, fisher_on_one_side);
    tcase_add_test(t, medians_know_what_is_beyond);
    tcase_add_test(t, the_most_frequent_word);
    tcase_add_test(t, lr_sensitivity_is_the_mean_excess);
    tcase_add_test(t, a_study_is_read);
    tcase_add_loop_test(t, a_broken_study_is_refused, 0, (int)(sizeof broken / sizeof *broken));
    tcase_add_test(t, no_study_is_refused);
    tcase_add_loop_test(t, expectations_are_judged, 0, (int)(sizeof judged / sizeof *judged));
    tcase_add_test(t, a_seed_without_all_rates_has_no_sensitivity);
    tcase_add_test(t, rows_of_steps_are_measured);
    tcase_add_test(t, verdicts_follow_from_what_decides);
    tcase_add_test(t, the_worst_of_several_claims_decides);
    tcase_add_test(t, capped_loss_is_that_of_the_start_where_a_run_diverged);
    tcase_add_test(t, shares_hold_at_the_edge_of_rounding);
    tcase_add_test(t, orders_of_what_is_beyond_are_told_where_they_are_known);
    tcase_add_test(t, runs_of_one_sample_count_once);
    tcase_add_test(t, runs_of_one_sample_that_differ_are_named);
    tcase_add_test(t, broken_runs_are_refused);
    return run_suite(s, t);
}
