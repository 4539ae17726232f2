// SPDX-License-Identifier: GPL-3.0-or-later
/** harness compare: statistics against numbers worked out by hand, and what is read of the rows of a run. */
#include "harness/cli/compare.h"
#include "tests/unit/result_files.h"

#include <math.h>

static struct nh_comparison c;

static void set_up(void)
{
    make_folder();
    nh_comparison_init(&c);
}

static void tear_down(void)
{
    nh_comparison_fini(&c);
    remove_folder();
}

/* Rounding of some ten operations. */
static void close_to(double a, double b)
{
    ck_assert_msg(fabs(a - b) <= 1e-14 * fmax(1, fabs(b)), "%.17g is not %.17g", a, b);
}

/* ---- statistics ---- */

START_TEST(mean_and_standard_error)
{
    const double values[] = {1, 2, 4}; /* squares of deviations: (16 + 1 + 25)/9, over 2, over 3 */
    struct nh_estimate e = nh_estimate_mean(values, 3);
    ck_assert_uint_eq(e.n, 3);
    close_to(e.mean, 7.0 / 3);
    close_to(e.se, sqrt(7.0 / 9));
    e = nh_estimate_mean(values + 2, 1);
    ck_assert(e.n == 1 && e.mean == 4 && isnan(e.se));
    ck_assert_uint_eq(nh_estimate_mean(values, 0).n, 0);
}
END_TEST

START_TEST(nan_is_not_left_out_of_a_mean)
{
    const double values[] = {1, (double)NAN, 4};
    ck_assert(isnan(nh_estimate_mean(values, 3).mean));
}
END_TEST

START_TEST(difference_of_independent_estimates)
{
    const struct nh_estimate a = {3, 5, 3}, b = {2, 7, 4}, none = {.n = 0};
    const struct nh_estimate d = nh_estimate_difference(a, b);
    close_to(d.mean, -2);
    close_to(d.se, 5);
    ck_assert_uint_eq(nh_estimate_difference(a, none).n, 0);
    ck_assert_uint_eq(nh_estimate_difference(none, b).n, 0);
}
END_TEST

START_TEST(exponent_of_a_power_law)
{
    const double depth[] = {6, 12, 24, 6, 12, 96};
    const char *const seeds[] = {"0", "0", "0", "1", "1", "1"};
    const double powers[] = {0.5, 1, 0, -0.25};
    for (int i = 0; i < 4; i++) {
        double y[6];
        for (int k = 0; k < 6; k++)
            y[k] = 3 * pow(depth[k], powers[i]);
        const struct nh_estimate e = nh_estimate_exponent(&c.memory, depth, y, seeds, 6);
        close_to(e.mean, powers[i]);
        ck_assert(e.se < 1e-14);
    }
}
END_TEST

START_TEST(exponent_scatters_by_seed)
{
    /* ln depth 0 1 2; ln y 0 1 1 has slope 1/2, 0 1 2 slope 1: their mean, and its standard error */
    const double depth[] = {1, exp(1), exp(2), 1, exp(1), exp(2)}, y[] = {1, exp(1), exp(1), 1, exp(1), exp(2)};
    const char *const two[] = {"0", "0", "0", "1", "1", "1"}, *const one[] = {"0", "0", "0", "0", "0", "0"};
    struct nh_estimate e = nh_estimate_exponent(&c.memory, depth, y, two, 6);
    close_to(e.mean, 0.75);
    close_to(e.se, 0.25);
    e = nh_estimate_exponent(&c.memory, depth, y, one, 6);
    close_to(e.mean, 0.75);
    ck_assert(isnan(e.se));
    /* a seed that lies above the others at all depths moves no slope */
    const double shifted[] = {1, exp(1), exp(2), exp(5), exp(6), exp(7)};
    e = nh_estimate_exponent(&c.memory, depth, shifted, two, 6);
    close_to(e.mean, 1);
    ck_assert(e.se < 1e-14);
}
END_TEST

START_TEST(exponent_needs_three_depths)
{
    const double depth[] = {6, 12, 6, 12, 12}, y[] = {1, 2, 1, 2, 2};
    const char *const seeds[] = {"0", "0", "1", "1", "2"};
    ck_assert_uint_eq(nh_estimate_exponent(&c.memory, depth, y, seeds, 5).n, 0);
    ck_assert_uint_eq(nh_estimate_exponent(&c.memory, depth, y, seeds, 0).n, 0);
}
END_TEST

START_TEST(rates_have_wilson_intervals)
{
    static const struct {
        size_t k, n;
        double low, high;
    } rates[] = {{0, 5, 0, .434},  {1, 5, .036, .624},  {2, 5, .118, .769}, {5, 5, .566, 1},
                 {0, 10, 0, .278}, {4, 10, .168, .687}, {0, 20, 0, .161}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        double low, high;
        nh_wilson(rates[i].k, rates[i].n, &low, &high);
        ck_assert(fabs(low - rates[i].low) <= 5e-4 && fabs(high - rates[i].high) <= 5e-4); /* three decimals */
    }
}
END_TEST

START_TEST(nothing_lies_beyond_infinity_or_nan)
{
    const double inf = (double)INFINITY, nan = (double)NAN;
    const struct {
        double so_far, value;
        int sign;
        bool beyond;
    } cases[] = {
        {1, 2, 1, true},     {2, 1, 1, false},     {1, 1, 1, false},       {1, inf, 1, true},
        {1, nan, 1, true},   {inf, nan, 1, false}, {nan, inf, 1, false},   {nan, 2, 1, false},
        {-inf, 0, 1, true},  {2, 1, -1, true},     {1, 2, -1, false},      {inf, 3, -1, true},
        {1, -inf, -1, true}, {1, nan, -1, true},   {-inf, nan, -1, false}, {nan, 1, -1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct nh_measure so_far = {true, cases[i].so_far};
        ck_assert_msg(nh_beyond(&so_far, cases[i].value, cases[i].sign) == cases[i].beyond, "case %zu", i);
    }
    ck_assert(nh_beyond(&(struct nh_measure){.known = false}, nan, 1));
}
END_TEST

/* ---- runs ---- */

#define LAYERS                                                                                                         \
    "run,label,layout,depth,dtype,policy,init,seed,step,layer,sublayer,stream,rms,rms_theory,max_abs,grad_rms,"        \
    "overflow\n"
#define SITES                                                                                                          \
    "run,label,layout,depth,dtype,policy,init,seed,step,layer,sublayer,site,direction,overflow,headroom_bits\n"
#define KEYS "r,,pre,2,fp16,plain,unit,0,"

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "wb");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

/* The only run of layers.csv with these rows, and of the other files of the folder. */
static const struct nh_compared *read_run(const char *rows)
{
    char text[4096];
    snprintf(text, sizeof text, LAYERS "%s", rows);
    write_file("layers.csv", text);
    ok(nh_comparison_load(&c, folder));
    ok(nh_comparison_finish(&c));
    ck_assert_ptr_nonnull(c.runs);
    ck_assert_ptr_null(c.runs->next);
    return c.runs;
}

static void is(const struct nh_compared *run, enum nh_quantity q, double value)
{
    ck_assert(run->of[q].known);
    close_to(run->of[q].value, value);
}

START_TEST(values_are_of_the_last_sublayer_and_step)
{
    /* in no order; of the second stream, the final norm and step 0 nothing is taken but extremes */
    const struct nh_compared *run =
        read_run(KEYS "5,2,ffn,0,7,8,9,0.5,0\n" KEYS "5,2,attn,0,1,1,1,1,0\n" KEYS "5,2,ffn,1,2,2,11,2,0\n" KEYS
                      "5,3,final,0,3,3,99,3,0\n" KEYS "0,2,ffn,0,4,4,10,4,0\n" KEYS "0,0,embed,0,5,5,1,5,0\n" KEYS
                      "5,0,embed,0,6,6,1,2,0\n");
    is(run, NH_FINAL_RMS, 7);
    is(run, NH_LAW_RMS, 8);
    is(run, NH_MAX_ABS, 11);
    is(run, NH_LOG_GRAD_RATIO, log(16));
    ck_assert_int_eq(run->outcome, NH_OUTCOME_OK);
    ck_assert(!run->first.known && !run->of[NH_HEADROOM].known);
}
END_TEST

START_TEST(gradients_of_two_steps_have_no_ratio)
{
    const struct nh_compared *run = read_run(KEYS "0,0,embed,0,1,1,1,2,0\n" KEYS "5,2,ffn,0,1,1,1,1,0\n");
    ck_assert(!run->of[NH_LOG_GRAD_RATIO].known);
}
END_TEST

START_TEST(blocks_and_single_branches_have_a_last_sublayer)
{
    const struct nh_compared *run = read_run(KEYS "0,1,block,0,1,1,1,1,0\n" KEYS "0,2,block,0,6,,1,1,0\n");
    is(run, NH_FINAL_RMS, 6);
    ck_assert(!run->of[NH_LAW_RMS].known && !run->of[NH_LOG_GRAD_RATIO].known);
}
END_TEST

START_TEST(what_is_not_measured_is_not_nan)
{
    const struct nh_compared *run = read_run(KEYS "0,2,attn,0,,,,,\n");
    ck_assert(!run->of[NH_FINAL_RMS].known && !run->of[NH_MAX_ABS].known);
    ck_assert_int_eq(run->outcome, NH_OUTCOME_OK);
}
END_TEST

START_TEST(rows_tell_the_outcome)
{
    static const struct {
        const char *rows;
        enum nh_outcome outcome;
    } cases[] = {
        {KEYS "0,2,ffn,0,nan,1,1,1,0\n", NH_OUTCOME_DIVERGED},
        {KEYS "0,2,ffn,0,inf,1,inf,1,3\n", NH_OUTCOME_DIVERGED},
        {KEYS "0,1,ffn,0,1,1,1,1,3\n" KEYS "0,2,ffn,0,1,1,1,1,0\n", NH_OUTCOME_OVERFLOWED},
        {KEYS "0,2,ffn,0,1,1,1,1,0\n", NH_OUTCOME_OK},
        {KEYS "0,1,ffn,0,1,1,1,1,0\n", NH_OUTCOME_INTERRUPTED},
    };
    ck_assert_int_eq(read_run(cases[_i].rows)->outcome, cases[_i].outcome);
}
END_TEST

START_TEST(first_offender_and_overflows_of_the_rows)
{
    const struct nh_compared *run =
        read_run(KEYS "0,1,attn,0,1,1,1,1,0\n" KEYS "0,1,ffn,0,1,1,1,1,3\n" KEYS "0,2,ffn,0,1,1,1,1,4\n");
    is(run, NH_OVERFLOWS, 7);
    ck_assert(run->first.known && run->first.layer == 1);
    ck_assert_str_eq(run->first.sublayer, "ffn");
    ck_assert_str_eq(run->first.site, "");
}
END_TEST

START_TEST(sites_tell_the_headroom_and_the_first_site)
{
    write_file("sites.csv", SITES KEYS "0,1,attn,scores,fwd,0,5\n" KEYS "0,1,ffn,residual,bwd,9,-inf\n" KEYS
                                       "0,1,ffn,residual,fwd,2,-inf\n" KEYS "0,2,attn,scores,fwd,7,nan\n");
    const struct nh_compared *run = read_run(KEYS "0,1,ffn,0,1,1,1,1,3\n" KEYS "0,2,ffn,0,1,1,1,1,4\n");
    ck_assert(run->of[NH_HEADROOM].known && isinf(run->of[NH_HEADROOM].value));
    ck_assert_int_eq(run->tightest.layer, 1);
    ck_assert_str_eq(run->first.sublayer, "ffn");
    ck_assert_str_eq(run->first.site, "residual");
}
END_TEST

START_TEST(the_record_overrules_the_rows)
{
    write_file("run.json", "{\"run\": \"r\", \"status\": \"diverged\", \"first_offender\":"
                           " {\"step\": 0, \"layer\": 2, \"sublayer\": \"attn\", \"site\": \"scores\"}}");
    const struct nh_compared *run = read_run(KEYS "0,1,ffn,0,1,1,1,1,3\n" KEYS "0,2,ffn,0,1,1,1,1,4\n");
    ck_assert_int_eq(run->outcome, NH_OUTCOME_DIVERGED);
    ck_assert_int_eq(run->first.layer, 2);
    ck_assert_str_eq(run->first.site, "scores");
}
END_TEST

START_TEST(broken_records_are_refused)
{
    static const char *const records[][2] = {{"{", "run.json"},
                                             {"{\"run\": \"r\"}", "status"},
                                             {"{\"status\": \"odd\"}", "status"},
                                             {"[]", "status"},
                                             {"", "run.json"}};
    write_file("layers.csv", LAYERS KEYS "0,2,ffn,0,1,1,1,1,0\n");
    write_file("run.json", records[_i][0]);
    fails(nh_comparison_load(&c, folder), records[_i][1]);
}
END_TEST

START_TEST(options_are_those_of_the_folder)
{
    write_file("config.csv", "run,option,value\nr,width,64\nr,set.alpha,\"a,b\"\n");
    const struct nh_compared *run = read_run(KEYS "0,2,ffn,0,1,1,1,1,0\n");
    ck_assert_str_eq(nh_compared_value(run, "width"), "64");
    ck_assert_str_eq(nh_compared_value(run, "set.alpha"), "a,b");
    ck_assert_str_eq(nh_compared_value(run, "depth"), "2");
    ck_assert_ptr_null(nh_compared_value(run, "heads"));
}
END_TEST

START_TEST(wrong_rows_are_refused)
{
    static const char *const rows[][2] = {
        {"r,,pre,two,fp16,plain,unit,0,0,2,ffn,0,1,1,1,1,0\n", "'two' in line 2, column 'depth'"},
        {"r,,pre,2.5,fp16,plain,unit,0,0,2,ffn,0,1,1,1,1,0\n", "column 'depth'"},
        {"r,,pre,,fp16,plain,unit,0,0,2,ffn,0,1,1,1,1,0\n", "column 'depth'"},
        {KEYS "0,nan,ffn,0,1,1,1,1,0\n", "'nan' in line 2, column 'layer'"},
        {KEYS "0,-1,ffn,0,1,1,1,1,0\n", "column 'layer'"},
        {KEYS ",2,ffn,0,1,1,1,1,0\n", "column 'step'"},
        {KEYS "0,2,ffn,0,\"1,5\",1,1,1,0\n", "'1,5' in line 2, column 'rms'"},
        {KEYS "0,2,ffn,0,1,1,1,1,-3\n", "column 'overflow'"},
        {KEYS "0,2,ffn,0,1,1,1,1,0\n" KEYS "0,2,ffn,0,1,1,1,1,0\n",
         "line 3 has layer 2 of step 0 of run 'r' a second time"},
        {KEYS "0,2,ffn,0,1,1,1,1,0\n" LAYERS, "repeats the header"},
        {KEYS "0,2,ffn,0,1,1,1,1\n", "fields"},
    };
    char text[4096];
    snprintf(text, sizeof text, LAYERS "%s", rows[_i][0]);
    write_file("layers.csv", text);
    fails(nh_comparison_load(&c, folder), rows[_i][1]);
}
END_TEST

/* ---- groups ---- */

struct start {
    const char *label, *layout;
    int depth, seed;
    double rms, law; /* law -1: empty */
};

/* Groups runs with these values, the label being their run too. */
static size_t group(const struct start *runs, size_t n, const char *const *by, size_t n_by, struct nh_group **groups)
{
    FILE *file = fopen(in_folder("layers.csv"), "wb");
    ck_assert_ptr_nonnull(file);
    fputs(LAYERS, file);
    for (const struct start *r = runs; r < runs + n; r++) {
        char law[32] = "";
        if (!(r->law < 0))
            snprintf(law, sizeof law, "%.17g", r->law);
        fprintf(file, "%s,%s,%s,%d,fp16,plain,unit,%d,0,%d,ffn,0,%.17g,%s,1,1,0\n", r->label, r->label, r->layout,
                r->depth, r->seed, r->depth, r->rms, law);
    }
    fclose(file);
    ok(nh_comparison_load(&c, in_folder("layers.csv")));
    ok(nh_comparison_finish(&c));
    size_t n_groups;
    ok(nh_comparison_group(&c, by, n_by, groups, &n_groups));
    return n_groups;
}

START_TEST(diverged_groups_come_last_and_have_no_mean)
{
    static const struct start runs[] = {{"", "pre", 2, 1, 2.40, 2},        {"", "pre", 2, 2, (double)NAN, 2},
                                        {"", "pre", 2, 3, 2.44, 2},        {"", "pre", 2, 4, (double)INFINITY, 2},
                                        {"", "sandwich", 2, 1, 2.50, 2},   {"", "sandwich", 2, 2, 2.52, 2},
                                        {"", "sandwich", 2, 3, 2.51, 2},   {"", "sandwich", 2, 4, 2.49, 2},
                                        {"", "post", 2, 1, 1, 2},          {"", "post", 2, 2, (double)NAN, 2},
                                        {"", "post", 2, 3, (double)NAN, 2}};
    const char *const by[] = {"layout"};
    struct nh_group *g;
    ck_assert_uint_eq(group(runs, sizeof runs / sizeof *runs, by, 1, &g), 3);
    ck_assert_str_eq(g[0].by[0], "sandwich");
    close_to(g[0].rms.mean, 2.505);
    close_to(g[0].rms.se, sqrt(0.0005 / 3 / 4)); /* deviations 5 and 15 thousandths, twice each */
    ck_assert_str_eq(g[1].by[0], "pre");         /* 2 of 4 before 2 of 3 */
    ck_assert_uint_eq(g[1].outcomes[NH_OUTCOME_DIVERGED], 2);
    ck_assert_uint_eq(g[1].n, 4);
    ck_assert(g[1].rms.n == 0 && g[1].law.n == 0 && !g[1].max_abs.known && g[1].log_grad_ratio.n == 0);
    ck_assert_str_eq(g[2].by[0], "post");
}
END_TEST

START_TEST(exponents_are_of_the_group_and_its_law)
{
    struct start runs[10];
    for (int i = 0; i < 10; i++) {
        const int depth = 2 << i / 2;
        runs[i] = (struct start){"", "pre", depth, i % 2, 0.5 * pow(depth, 0.75), 2 * sqrt(depth)};
    }
    const char *const by[] = {"layout", "depth"};
    struct nh_group *g;
    ck_assert_uint_eq(group(runs, 10, by, 1, &g), 1);
    close_to(g->exponent.mean, 0.75);
    close_to(g->law_exponent.mean, 0.5);
    ck_assert_str_eq(g->pooled, "depth");
    size_t n;
    ok(nh_comparison_group(&c, by, 2, &g, &n));
    ck_assert_uint_eq(n, 5);
    ck_assert_uint_eq(g->exponent.n, 0);
    ck_assert_str_eq(g->pooled, "");
}
END_TEST

START_TEST(law_of_a_part_of_the_runs_is_none)
{
    static const struct start runs[] = {
        {"", "pre", 2, 1, 1, 2}, {"", "pre", 4, 1, 1, -1}, {"", "pre", 8, 1, 1, 2}, {"", "post", 2, 1, 2, 3}};
    const char *const by[] = {"layout"};
    struct nh_group *g;
    ck_assert_uint_eq(group(runs, 4, by, 1, &g), 2);
    ck_assert(g[0].law.n == 0 && g[0].law_exponent.n == 0 && g[0].exponent.n == 3);
    ck_assert(g[1].law.n == 1 && g[1].law.mean == 3);
}
END_TEST

START_TEST(equal_groups_are_in_the_order_of_their_numbers)
{
    static const struct start runs[] = {{"", "pre", 12, 1, 2, 1}, {"", "pre", 100, 1, 2, 1}, {"", "pre", 6, 1, 2, 1}, {"", "pre", 24, 1, 2, 1}};
    static const char *const wanted[] = {"6", "12", "24", "100"}, *const by[] = {"depth"};
    struct nh_group *g;
    ck_assert_uint_eq(group(runs, 4, by, 1, &g), 4);
    for (int i = 0; i < 4; i++)
        ck_assert_str_eq(g[i].by[0], wanted[i]);
}
END_TEST

/** The place that most runs have; of two that equally many have, the lower layer, then the first by name. */
START_TEST(ties_of_first_offenders_go_to_the_lowest_layer)
{
    static const struct {
        struct nh_place places[5];
        size_t winner, runs;
    } cases[] = {
        {{{true, 7, 0, "ffn", "residual", ""}, {true, 3, 0, "ffn", "residual", ""}}, 1, 1},
        {{{true, 7, 0, "ffn", "residual", ""}, {true, 3, 0, "ffn", "residual", ""}, {true, 7, 0, "ffn", "residual", ""}}, 0, 2},
        {{{true, 7, 0, "ffn", "a", ""}, {true, 3, 0, "attn", "b", ""}, {true, 7, 0, "ffn", "a", ""}, {true, 3, 0, "attn", "b", ""}, {.known = false}}, 1, 2},
        {{{true, 3, 0, "ffn", "qkv", ""}, {true, 3, 0, "attn", "scores", ""}}, 1, 1},
        {{{true, 3, 0, "attn", "scores", ""}, {true, 3, 0, "attn", "qkv", ""}}, 1, 1},
        {{{true, 10, 0, "attn", "qkv", ""}, {true, 9, 0, "ffn", "scores", ""}, {true, 10, 0, "ffn", "qkv", ""}}, 1, 1},
        {{{true, 9, 0, "attn", "qkv", ""}, {true, 9, 0, "attn", "qkv", ""}, {true, 1, 0, "attn", "qkv", ""}, {true, 2, 0, "attn", "qkv", ""}}, 0, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_compared runs[5] = {0}, *all[5];
        struct nh_group g = {.runs = all};
        for (size_t k = 0; k < 5 && (cases[i].places[k].known || k == 4); k++) {
            all[k] = &runs[k];
            runs[k].outcome = NH_OUTCOME_DIVERGED;
            runs[k].first = cases[i].places[k];
            g.n = k + 1;
        }
        nh_group_summarise(&c.memory, &g);
        const struct nh_place *w = &cases[i].places[cases[i].winner];
        ck_assert_msg(g.first.known && g.first.layer == w->layer && strcmp(g.first.sublayer, w->sublayer) == 0 &&
                          strcmp(g.first.site, w->site) == 0 && g.first_runs == cases[i].runs,
                      "case %zu: layer %d, %s, %s in %zu runs", i, g.first.layer, g.first.sublayer, g.first.site, g.first_runs);
    }
}
END_TEST

/* The cell of a named column in the first row. */
static const struct nh_cell *cell_of(const struct nh_sheet *sheet, const char *name)
{
    for (size_t k = 0; k < sheet->n_columns; k++)
        if (sheet->columns[k].name && strcmp(sheet->columns[k].name, name) == 0)
            return &sheet->cells[0][k];
    ck_abort_msg("no column %s", name);
    return NULL;
}

START_TEST(gradient_ratios_have_a_geometric_mean)
{
    /* ratios 4 and 16: logarithms differ by ln 4, so the standard error of their mean is ln 4 / 2 = ln 2 */
    write_file("layers.csv", LAYERS KEYS "0,0,embed,0,1,1,1,2,0\n" KEYS
                                         "0,2,ffn,0,1,1,1,1,0\nr,,pre,2,fp16,plain,unit,1,0,0,embed,0,1,1,1,2,0\n"
                                         "r,,pre,2,fp16,plain,unit,1,0,2,ffn,0,1,1,1,0.5,0\n");
    ok(nh_comparison_load(&c, folder));
    ok(nh_comparison_finish(&c));
    const char *const by[] = {"layout"};
    struct nh_group *g;
    struct nh_sheet sheet;
    size_t n;
    ok(nh_comparison_group(&c, by, 1, &g, &n));
    nh_sheet_groups(&sheet, &c.memory, by, g, n);
    close_to(cell_of(&sheet, "grad_ratio")->number, 8);
    close_to(cell_of(&sheet, "grad_ratio_se")->number, 8 * log(2));
    ck_assert_int_eq(cell_of(&sheet, "exponent")->kind, NH_CELL_NONE);
}
END_TEST

START_TEST(unknown_names_are_refused_with_near_ones)
{
    static const struct start runs[] = {{"", "pre", 2, 1, 1, 1}};
    const char *const by[] = {"layout"}, *const wrong[] = {"dpeth"};
    struct nh_group *g;
    size_t n;
    group(runs, 1, by, 1, &g);
    ck_assert_int_eq(nh_comparison_group(&c, wrong, 1, &g, &n), NH_USAGE);
    ck_assert_ptr_nonnull(strstr(nh_error(), "did you mean depth?"));
}
END_TEST

/* Groups by label: the change of the final RMS from the group a to b. */
static struct nh_estimate change(const struct start *runs, size_t n, size_t *pairs)
{
    const char *const by[] = {"label"};
    struct nh_group *g;
    const size_t n_groups = group(runs, n, by, 1, &g);
    ck_assert_uint_eq(n_groups, 2);
    const size_t a = *g[0].by[0] == 'a' ? 0 : 1;
    return nh_group_change(&c.memory, &g[a], &g[1 - a], NH_FINAL_RMS, pairs);
}

START_TEST(changes_are_paired_by_seed)
{
    /* seed 9 and 11 have no partner; differences 2, 2.5, 1.5 */
    static const struct start runs[] = {{"a", "pre", 2, 0, 10, 1},   {"b", "pre", 2, 10, 14.5, 1},
                                        {"a", "pre", 2, 1, 11, 1},   {"b", "pre", 2, 0, 12, 1},
                                        {"a", "pre", 2, 10, 13, 1},  {"b", "pre", 2, 1, 13.5, 1},
                                        {"a", "pre", 2, 9, 1000, 1}, {"b", "pre", 2, 11, 3, 1}};
    size_t pairs;
    const struct nh_estimate e = change(runs, 8, &pairs);
    ck_assert_uint_eq(pairs, 3);
    close_to(e.mean, 2);
    close_to(e.se, 0.5 / sqrt(3));
}
END_TEST

START_TEST(seeds_that_come_twice_are_pooled_before_they_are_paired)
{
    static const struct start runs[] = {{"a", "pre", 2, 0, 1, 1}, {"a", "pre", 4, 0, 3, 1}, {"b", "pre", 2, 0, 5, 1},
                                        {"b", "pre", 4, 0, 7, 1}, {"a", "pre", 2, 1, 1, 1}, {"b", "pre", 2, 1, 3, 1}};
    size_t pairs;
    const struct nh_estimate e = change(runs, 6, &pairs);
    ck_assert_uint_eq(pairs, 2);
    close_to(e.mean, 3); /* 6 - 2 and 3 - 1 */
    close_to(e.se, 1);
}
END_TEST

/** One pair is a difference without an error, not a difference of the means. */
START_TEST(one_common_seed_is_a_pair)
{
    static const struct start runs[] = {{"a", "pre", 2, 0, 10, 1}, {"a", "pre", 2, 1, 50, 1}, {"b", "pre", 2, 1, 53, 1},
                                        {"b", "pre", 2, 2, 7, 1},  {"a", "pre", 2, 3, 1, 1}};
    size_t pairs;
    const struct nh_estimate e = change(runs, 5, &pairs);
    ck_assert_uint_eq(pairs, 1);
    ck_assert_uint_eq(e.n, 1);
    close_to(e.mean, 3);
    ck_assert(isnan(e.se));
}
END_TEST

START_TEST(changes_without_common_seeds_are_of_the_means)
{
    static const struct start runs[] = {{"a", "pre", 2, 0, 10, 1},
                                        {"a", "pre", 2, 1, 11, 1},
                                        {"a", "pre", 2, 2, 13, 1},
                                        {"b", "pre", 2, 7, 10, 1},
                                        {"b", "pre", 2, 8, 12, 1}};
    size_t pairs;
    const struct nh_estimate e = change(runs, 5, &pairs);
    ck_assert_uint_eq(pairs, 0);
    close_to(e.mean, -1.0 / 3);
    close_to(e.se, 4.0 / 3); /* variances of the means 1 and 7/9 */
}
END_TEST

START_TEST(no_change_where_a_run_diverged)
{
    static const struct start runs[] = {{"a", "pre", 2, 0, 10, 1},
                                        {"a", "pre", 2, 1, 11, 1},
                                        {"b", "pre", 2, 0, 12, 1},
                                        {"b", "pre", 2, 1, (double)NAN, 1}};
    size_t pairs;
    ck_assert_uint_eq(change(runs, 4, &pairs).n, 0);
    ck_assert_uint_eq(pairs, 2);
}
END_TEST

START_TEST(folders_without_runs_are_refused)
{
    fails(nh_comparison_load(&c, folder), "holds no run");
    fails(nh_comparison_load(&c, in_folder("nothing")), "nothing: No such file");
    fails(nh_comparison_finish(&c), "there are no runs");
    write_file("layers.csv", LAYERS);
    ok(nh_comparison_load(&c, folder));
    fails(nh_comparison_finish(&c), "there are no runs");
}
END_TEST

int main(void)
{
    const struct {
        const TTest *test;
        int loops;
    } tests[] = {
        {mean_and_standard_error, 1},
        {nan_is_not_left_out_of_a_mean, 1},
        {difference_of_independent_estimates, 1},
        {exponent_of_a_power_law, 1},
        {exponent_scatters_by_seed, 1},
        {exponent_needs_three_depths, 1},
        {rates_have_wilson_intervals, 1},
        {nothing_lies_beyond_infinity_or_nan, 1},
        {values_are_of_the_last_sublayer_and_step, 1},
        {gradients_of_two_steps_have_no_ratio, 1},
        {blocks_and_single_branches_have_a_last_sublayer, 1},
        {what_is_not_measured_is_not_nan, 1},
        {rows_tell_the_outcome, 5},
        {first_offender_and_overflows_of_the_rows, 1},
        {sites_tell_the_headroom_and_the_first_site, 1},
        {the_record_overrules_the_rows, 1},
        {broken_records_are_refused, 5},
        {options_are_those_of_the_folder, 1},
        {wrong_rows_are_refused, 11},
        {diverged_groups_come_last_and_have_no_mean, 1},
        {exponents_are_of_the_group_and_its_law, 1},
        {law_of_a_part_of_the_runs_is_none, 1},
        {equal_groups_are_in_the_order_of_their_numbers, 1},
        {ties_of_first_offenders_go_to_the_lowest_layer, 1},
        {gradient_ratios_have_a_geometric_mean, 1},
        {unknown_names_are_refused_with_near_ones, 1},
        {changes_are_paired_by_seed, 1},
        {seeds_that_come_twice_are_pooled_before_they_are_paired, 1},
        {one_common_seed_is_a_pair, 1},
        {changes_without_common_seeds_are_of_the_means, 1},
        {no_change_where_a_run_diverged, 1},
        {folders_without_runs_are_refused, 1},
    };
    TCase *t = tcase_create("compare");
    tcase_add_checked_fixture(t, set_up, tear_down);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_loop_test(t, tests[i].test, 0, tests[i].loops);
    return run_suite(suite_create("compare"), t);
}
