// SPDX-License-Identifier: GPL-3.0-or-later
/** The column list, the CSV writer, and all of it under a comma locale. */
#include "results/file.h"
#include "results/number.h"
#include "results/reader.h"
#include "results/writer.h"
#include "tests/unit/result_files.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>

static uint64_t next_random(void)
{
    static uint64_t s = 88172645463325252;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- the column list ---- */

START_TEST(headers_are_those_of_the_contract)
{
#define KEYS     "run,label,layout,depth,dtype,policy,init,seed,step,"
#define COUNTERS "overflow,nan_made,propagated,zero_made,underflow,subnormal,total"
    static const char *const headers[][2] = {
        {"layers.csv",
         KEYS "layer,sublayer,stream,rms,rms_theory,max_abs,kurtosis,token_cos,branch_rms,branch_raw_rms,grad_rms,"
              "jac_fro,jac_fro_se,jac_spec," COUNTERS ",overflow_bwd,rel_err\n"},
        {"sites.csv", KEYS "layer,sublayer,site,direction," COUNTERS ",max_abs,min_abs,headroom_bits,max_abs_fp32\n"},
        {"steps.csv",
         KEYS "loss,lr,grad_norm,loss_scale,skipped,overflow_fwd,overflow_bwd,applied_step,val_loss,max_abs,"
              "max_score,changed,tokens\n"},
        {"spectrum.csv", KEYS "layer,sublayer,index,singular_value\n"},
        {"config.csv", "run,option,value\n"},
    };
    ck_assert_uint_eq(sizeof headers / sizeof *headers, NH_TABLE_COUNT);
    for (enum nh_table table = 0; table < NH_TABLE_COUNT; table++) {
        struct nh_writer *w;
        ok(nh_writer_create(&w, folder, table));
        ok(nh_writer_commit(w));
        nh_writer_destroy(w);
        content_is(headers[table][0], headers[table][1]);
    }
}
END_TEST

START_TEST(column_identifiers_are_their_names)
{
    static const char *const ids[] = {
#define NH_TABLE(id, name, row)
#define NH_COLUMN(table, id, name, type, unit, meaning) #table "." #id,
#include "results/schema.def"
    };
    for (size_t i = 0; i < NH_COLUMN_COUNT; i++) {
        const struct nh_column *c = &nh_columns[i];
        char name[100];
        snprintf(name, sizeof name, "%s.%s", nh_tables[c->table].name, c->name);
        for (char *p = name; *p; p++)
            *p = (char)toupper(*p);
        ck_assert_str_eq(name, ids[i]);
        ck_assert_msg(*c->meaning && !strpbrk(c->meaning, "\n"), "%s", name);
        ck_assert_msg((c->type == NH_TYPE_TEXT) == (*c->unit == '\0'), "%s", name);
    }
}
END_TEST

/* ---- writer ---- */

static const struct nh_keys keys = {.run = "r0123abcd",
                                    .label = "a, \"b\"",
                                    .layout = "pre",
                                    .depth = 12,
                                    .dtype = "fp16",
                                    .policy = "plain",
                                    .init = "unit",
                                    .seed = UINT64_MAX,
                                    .step = 0};

START_TEST(no_csv_appears_before_the_commit)
{
    struct nh_writer *w;
    ok(nh_writer_create(&w, folder, NH_TABLE_CONFIG));
    nh_writer_text(w, NH_CONFIG_RUN, "r");
    nh_writer_text(w, NH_CONFIG_OPTION, " no 'quotes' #");
    ok(nh_writer_row(w));
    ck_assert(!exists("config.csv"));
    ck_assert(exists(part_of("config.csv")));
    ok(nh_writer_commit(w));
    ck_assert_str_eq(part_of("config.csv"), "");
    nh_writer_destroy(w);
    content_is("config.csv", "run,option,value\nr, no 'quotes' #,\n");
}
END_TEST

START_TEST(discard_leaves_nothing)
{
    struct nh_writer *w;
    ok(nh_writer_create(&w, folder, NH_TABLE_LAYERS));
    nh_writer_keys(w, &keys);
    ok(nh_writer_row(w));
    nh_writer_destroy(w);
    ck_assert(!exists("layers.csv"));
    ck_assert_str_eq(part_of("layers.csv"), "");
    nh_writer_destroy(NULL);
}
END_TEST

START_TEST(keys_stay_and_other_cells_empty)
{
    struct nh_writer *w;
    struct nh_keys k = keys;
    ok(nh_writer_create(&w, folder, NH_TABLE_SPECTRUM));
    nh_writer_keys(w, &k);
    nh_writer_int(w, NH_SPECTRUM_LAYER, 1);
    nh_writer_text(w, NH_SPECTRUM_SUBLAYER, "attn");
    nh_writer_real(w, NH_SPECTRUM_SINGULAR_VALUE, 0.5);
    ok(nh_writer_row(w));
    k.step = 10;
    k.label = NULL;
    nh_writer_keys(w, &k);
    nh_writer_int(w, NH_SPECTRUM_SINGULAR_VALUE, 3);
    nh_writer_count(w, NH_SPECTRUM_INDEX, 7);
    ok(nh_writer_row(w));
    ok(nh_writer_commit(w));
    nh_writer_destroy(w);
    content_is("spectrum.csv",
               "run,label,layout,depth,dtype,policy,init,seed,step,layer,sublayer,index,singular_value\n"
               "r0123abcd,\"a, \"\"b\"\"\",pre,12,fp16,plain,unit,18446744073709551615,0,1,attn,,0.5\n"
               "r0123abcd,,pre,12,fp16,plain,unit,18446744073709551615,10,,,7,3\n");
}
END_TEST

START_TEST(every_kind_of_value_comes_back)
{
    static const char *const texts[] = {
        "plain",      "",           "a,b",
        "say \"no\"", "two\nlines", "\r",
        " lead",      "trail\t",    "\"",
        ",",          "\n",         "nan",
        "#1",         "\xc3\xa9",   "a b",
        "\"\"",       "a\r\nb",     "a much longer text than any number, with \"quotes\" inside, to make a cell grow"};
    enum { N_TEXTS = sizeof texts / sizeof *texts, N = 2000 };
    static double values[N];
    struct nh_writer *w;
    ok(nh_writer_create(&w, folder, NH_TABLE_LAYERS));
    nh_writer_keys(w, &keys);
    for (int i = 0; i < N; i++) {
        values[i] = from_bits(next_random());
        nh_writer_text(w, NH_LAYERS_SUBLAYER, texts[i % N_TEXTS]);
        nh_writer_real(w, NH_LAYERS_RMS, values[i]);
        nh_writer_int(w, NH_LAYERS_LAYER, -i);
        ok(nh_writer_row(w));
    }
    ok(nh_writer_commit(w));
    nh_writer_destroy(w);

    struct nh_reader *r;
    size_t rms, sublayer, label, layer, kurtosis;
    ok(nh_reader_open(&r, in_folder("layers.csv")));
    ok(nh_reader_need(r, "rms", &rms));
    ok(nh_reader_need(r, "sublayer", &sublayer));
    ok(nh_reader_need(r, "label", &label));
    ok(nh_reader_need(r, "layer", &layer));
    ok(nh_reader_need(r, "kurtosis", &kurtosis));
    for (int i = 0; i < N; i++) {
        double x;
        ck_assert_msg(nh_reader_next(r) == 1, "%s", nh_error());
        ck_assert_str_eq(nh_reader_text(r, sublayer), texts[i % N_TEXTS]);
        ck_assert_str_eq(nh_reader_text(r, label), keys.label);
        ck_assert_int_eq(nh_reader_real(r, rms, &x), 1);
        ck_assert(isnan(values[i]) ? isnan(x) : memcmp(&x, &values[i], sizeof x) == 0);
        ck_assert_int_eq(nh_reader_real(r, layer, &x), 1);
        ck_assert_double_eq(x, -i);
        ck_assert_int_eq(nh_reader_real(r, kurtosis, &x), 0);
    }
    ck_assert_int_eq(nh_reader_next(r), 0);
    nh_reader_close(r);
}
END_TEST

START_TEST(full_disk_is_a_sentence_and_leaves_nothing)
{
    struct nh_writer *w;
    ok(nh_writer_create(&w, folder, NH_TABLE_LAYERS));
    nh_writer_keys(w, &keys);
    limit_files(5000);
    int status = NH_OK;
    for (int i = 0; i < 10000 && status == NH_OK; i++)
        status = nh_writer_row(w);
    fails(status, "layers.csv: File too large; raise the limit");
    fails(nh_writer_row(w), "File too large");
    fails(nh_writer_commit(w), "File too large");
    nh_writer_destroy(w);
    ck_assert(!exists("layers.csv"));
    ck_assert_str_eq(part_of("layers.csv"), "");

    limit_files(5);
    ok(nh_writer_create(&w, folder, NH_TABLE_CONFIG)); /* all is in the buffer until the commit */
    fails(nh_writer_commit(w), "File too large");
    limit_files(RLIM_INFINITY);
    nh_writer_destroy(w);
    ck_assert(!exists("config.csv"));
}
END_TEST

START_TEST(folder_that_cannot_be_used_is_a_sentence)
{
    struct nh_writer *w;
    fails(nh_writer_create(&w, in_folder("none"), NH_TABLE_SITES),
          "none/sites.csv: No such file or directory; make");
    ck_assert_ptr_null(w);
    ok(nh_file_write(in_folder("file"), "x", 1));
    fails(nh_writer_create(&w, in_folder("file"), NH_TABLE_SITES), "file/sites.csv: Not a directory");

    ck_assert_int_eq(chmod(folder, 0555), 0);
    const bool root = geteuid() == 0; /* who may write everywhere */
    if (root)
        ck_assert_int_eq(seteuid(65534), 0);
    const int made = nh_dir_make(in_folder("new"));
    const int created = nh_writer_create(&w, folder, NH_TABLE_SITES);
    if (root)
        ck_assert_int_eq(seteuid(0), 0);
    chmod(folder, 0777);
    ck_assert_int_eq(made, NH_FAILED);
    fails(created, "sites.csv: Permission denied; choose a folder that you may write to");
}
END_TEST

/* ---- files that grow ---- */

#define HEADER "run,option,value\n"

static void config_row(struct nh_writer *w, const char *option)
{
    nh_writer_text(w, NH_CONFIG_RUN, "r");
    nh_writer_text(w, NH_CONFIG_OPTION, option);
    ok(nh_writer_row(w));
}

static void put(const char *name, const char *text)
{
    ok(nh_file_write(in_folder(name), text, strlen(text)));
}

START_TEST(rows_are_seen_after_a_flush)
{
    struct nh_writer *w;
    struct nh_extent extent;
    ok(nh_writer_create(&w, folder, NH_TABLE_CONFIG));
    content_is(part_of("config.csv"), "");
    ok(nh_writer_flush(w));
    content_is(part_of("config.csv"), HEADER);
    config_row(w, "a");
    ok(nh_writer_flush(w));
    content_is(part_of("config.csv"), HEADER "r,a,\n");
    config_row(w, "b");
    ok(nh_writer_sync(w, &extent));
    ck_assert_int_eq(extent.bytes, (long long)strlen(HEADER "r,a,\nr,b,\n"));
    content_is(part_of("config.csv"), HEADER "r,a,\nr,b,\n");
    ok(nh_writer_sync(w, &extent));
    ck_assert_int_eq(extent.bytes, (long long)strlen(HEADER "r,a,\nr,b,\n"));
    ok(nh_writer_commit(w));
    ok(nh_writer_verify(w));
    nh_writer_destroy(w);
    content_is("config.csv", HEADER "r,a,\nr,b,\n");
}
END_TEST

START_TEST(kept_file_stays_as_it_was_flushed)
{
    struct nh_writer *w;
    ok(nh_writer_create(&w, folder, NH_TABLE_CONFIG));
    config_row(w, "a");
    ok(nh_writer_flush(w));
    nh_writer_keep(w);
    config_row(w, "b");
    nh_writer_destroy(w);
    content_is(part_of("config.csv"), HEADER "r,a,\n");
    ck_assert(!exists("config.csv"));
    ok(nh_writer_create(&w, folder, NH_TABLE_CONFIG));
    ok(nh_writer_commit(w)); /* anew: the old one is gone */
    nh_writer_destroy(w);
    ck_assert_str_eq(part_of("config.csv"), "");
}
END_TEST

#define LEFT "config.csv.0123abcd.part"

/* The first bytes of a text. */
static struct nh_extent begins(const char *text, long long bytes)
{
    struct nh_extent e = {.bytes = bytes, .digest = NH_DIGEST_START};
    if (bytes > 0)
        e.digest = nh_digest(e.digest, text, strnlen(text, (size_t)bytes));
    return e;
}

/* Goes on behind HEADER and the row a, adds the row c. */
static void resumes(void)
{
    struct nh_writer *w;
    struct nh_extent extent = begins(HEADER "r,a,\n", (long long)strlen(HEADER "r,a,\n"));
    ok(nh_writer_resume(&w, folder, NH_TABLE_CONFIG, &extent));
    ok(nh_writer_flush(w));
    config_row(w, "c");
    ok(nh_writer_sync(w, &extent));
    ck_assert_int_eq(extent.bytes, (long long)strlen(HEADER "r,a,\nr,c,\n"));
    ok(nh_writer_commit(w));
    ok(nh_writer_verify(w));
    nh_writer_destroy(w);
    content_is("config.csv", HEADER "r,a,\nr,c,\n");
    ck_assert_str_eq(part_of("config.csv"), "");
}

START_TEST(resumed_file_is_cut_and_gone_on_with)
{
    put(LEFT, HEADER "r,a,\n");
    resumes();
    put(LEFT, HEADER "r,a,\nr,b,\nr,d");
    resumes();
    put("config.csv", HEADER "r,a,\nr,b,\n"); /* was ready before its run was */
    resumes();
    put("config.csv", "of an older run\n");
    put(LEFT, HEADER "r,a,\nr,\"b\n");
    resumes();
}
END_TEST

/* Of several that killed processes have left it is the one that the checkpoint tells of. */
START_TEST(resumed_file_is_found_among_others)
{
    put("config.csv", "of an older run\n");
    put(LEFT, HEADER "r,x,\nr,y,\n");
    ok(nh_file_write(in_folder("kept"), HEADER "r,a,\nr,z", strlen(HEADER "r,a,\nr,z")));
    ck_assert_int_eq(rename(in_folder("kept"), in_folder("config.csv.00000000.part")), 0);
    ok(nh_file_write(in_folder("kept"), HEADER, strlen(HEADER)));
    ck_assert_int_eq(rename(in_folder("kept"), in_folder("config.csv.ffffffff.part")), 0);
    resumes();
}
END_TEST

/* Whoever goes on writes a file of his own: another one that goes on with the same, or has never stopped, does not meet him there. */
START_TEST(resumed_file_is_a_copy)
{
    struct nh_writer *one, *other;
    put(LEFT, HEADER "r,a,\nr,b,\n");
    const struct nh_extent extent = begins(HEADER, (long long)strlen(HEADER));
    ok(nh_writer_resume(&one, folder, NH_TABLE_CONFIG, &extent));
    ok(nh_writer_resume(&other, folder, NH_TABLE_CONFIG, &extent));
    config_row(one, "one");
    config_row(other, "other");
    ok(nh_writer_flush(one));
    ok(nh_writer_commit(other));
    content_is("config.csv", HEADER "r,other,\n");
    config_row(one, "more");
    ok(nh_writer_commit(one));
    content_is("config.csv", HEADER "r,one,\nr,more,\n");
    ok(nh_writer_verify(one));
    fails(nh_writer_verify(other), "config.csv is not what was written, as another process writes");
    nh_writer_destroy(one);
    nh_writer_destroy(other);
    content_is("config.csv", HEADER "r,one,\nr,more,\n");
}
END_TEST

static void refuses(const char *part, long long bytes, const char *words)
{
    struct nh_writer *w;
    const struct nh_extent extent = begins(part, bytes);
    put(LEFT, part);
    fails(nh_writer_resume(&w, folder, NH_TABLE_CONFIG, &extent), words);
    ck_assert_ptr_null(w);
    ck_assert_ptr_nonnull(strstr(nh_error(), "/" LEFT));
    content_is(part_of("config.csv"), part); /* and no copy is left */
}

START_TEST(file_that_cannot_be_resumed_is_a_sentence)
{
    struct nh_writer *w;
    const long long header = (long long)strlen(HEADER);
    struct nh_extent extent = begins(HEADER, header);
    refuses(HEADER "r,a,\n", header + 6, "at byte 23: it has only 22; --force starts anew");
    refuses("", header, "at byte 17: it has only 0");
    refuses(HEADER "r,a,\n", header + 3, "at byte 20: no line ends there");
    refuses(HEADER "r,a,\n", 3, "it does not begin with the header");
    refuses(HEADER, -1, "at byte -1");
    refuses("run,option,value,more\nr,a,,\n", header + 5, "does not begin with the header line of this program");
    refuses("run,option\nr,\"value\n\"\n", header, "does not begin with the header");
    put(LEFT, HEADER "r,b,\n");
    extent = begins(HEADER "r,a,\n", header + 5);
    fails(nh_writer_resume(&w, folder, NH_TABLE_CONFIG, &extent), "its first 22 bytes are not those that were written");
    unlink(in_folder(LEFT));

    extent = begins(HEADER, header);
    fails(nh_writer_resume(&w, folder, NH_TABLE_CONFIG, &extent), "config.csv: it is missing; --force starts anew");
    fails(nh_writer_resume(&w, in_folder("none"), NH_TABLE_CONFIG, &extent), "none/: No such file");
    put("config.csv", "x\n");
    fails(nh_writer_resume(&w, folder, NH_TABLE_CONFIG, &extent), "/config.csv at byte 17: it has only 2");
    content_is("config.csv", "x\n");
    ck_assert_str_eq(part_of("config.csv"), "");
    unlink(in_folder("config.csv"));
    ck_assert_int_eq(mkdir(in_folder(LEFT), 0777), 0);
    fails(nh_writer_resume(&w, folder, NH_TABLE_CONFIG, &extent), LEFT ": it is no regular file");
    ck_assert_int_eq(rmdir(in_folder(LEFT)), 0);
    ck_assert_int_eq(mkfifo(in_folder(LEFT), 0666), 0);
    fails(nh_writer_resume(&w, folder, NH_TABLE_CONFIG, &extent), LEFT ": it is no regular file");
    ck_assert_int_eq(unlink(in_folder(LEFT)), 0);
    ck_assert_int_eq(symlink("config.csv", in_folder(LEFT)), 0);
    fails(nh_writer_resume(&w, folder, NH_TABLE_CONFIG, &extent), LEFT ": Too many levels of symbolic links");
    ck_assert(exists(LEFT));
    ck_assert_int_eq(mkdir(in_folder("sites.csv"), 0777), 0);
    fails(nh_writer_resume(&w, folder, NH_TABLE_SITES, &extent), "sites.csv: it is no regular file");
}
END_TEST

START_TEST(full_disk_shows_at_the_flush)
{
    struct nh_writer *w;
    struct nh_extent extent;
    ok(nh_writer_create(&w, folder, NH_TABLE_CONFIG));
    limit_files(5);
    fails(nh_writer_flush(w), "File too large");
    fails(nh_writer_sync(w, &extent), "File too large");
    limit_files(RLIM_INFINITY);
    nh_writer_destroy(w);
}
END_TEST

/* ---- locale ---- */

START_TEST(comma_locale_changes_no_byte)
{
    char text[NH_NUMBER_SIZE];
    ck_assert_ptr_nonnull(setlocale(LC_ALL, "de_DE.UTF-8"));
    snprintf(text, sizeof text, "%.1f", 0.5);
    ck_assert_str_eq(text, "0,5"); /* the locale bites */
    double x = 0;
    ck_assert(nh_number_read(&x, "54.12345") && x == 5412345 / 1e5);
    ck_assert(nh_number_read(&x, "2.4703282292062327208e-324") && x == 0); /* by way of the C library */
    ck_assert(!nh_number_read(&x, "54,12345"));
    struct nh_writer *w;
    ok(nh_writer_create(&w, folder, NH_TABLE_SPECTRUM));
    nh_writer_int(w, NH_SPECTRUM_LAYER, 1234567);
    nh_writer_real(w, NH_SPECTRUM_SINGULAR_VALUE, 1234567.125);
    ok(nh_writer_row(w));
    ok(nh_writer_commit(w));
    nh_writer_destroy(w);
    setlocale(LC_ALL, "C");
    char *file = content("spectrum.csv");
    ck_assert_str_eq(strchr(file, '\n') + 1, ",,,,,,,,,1234567,,,1234567.125\n");
    free(file);
}
END_TEST

/* Builds a locale with decimal commas; false where that is not possible. */
static bool build_comma_locale(void)
{
    char command[2 * sizeof folder + 100];
    snprintf(command, sizeof command, "localedef -c -i de_DE -f UTF-8 '%s/de_DE.UTF-8' 2>'%s/log'", folder, folder);
    if (system(command) < 0)
        return false;
    setenv("LOCPATH", folder, 1);
    const bool there = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    setlocale(LC_ALL, "C");
    return there;
}

int main(void)
{
    make_folder();
    char locales[sizeof folder];
    memcpy(locales, folder, sizeof folder);
    const bool comma_locale = build_comma_locale();

    Suite *s = suite_create("results");
    TCase *t = tcase_create("results");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, headers_are_those_of_the_contract);
    tcase_add_test(t, column_identifiers_are_their_names);
    tcase_add_test(t, no_csv_appears_before_the_commit);
    tcase_add_test(t, discard_leaves_nothing);
    tcase_add_test(t, keys_stay_and_other_cells_empty);
    tcase_add_test(t, every_kind_of_value_comes_back);
    tcase_add_test(t, full_disk_is_a_sentence_and_leaves_nothing);
    tcase_add_test(t, folder_that_cannot_be_used_is_a_sentence);
    tcase_add_test(t, rows_are_seen_after_a_flush);
    tcase_add_test(t, kept_file_stays_as_it_was_flushed);
    tcase_add_test(t, resumed_file_is_cut_and_gone_on_with);
    tcase_add_test(t, resumed_file_is_found_among_others);
    tcase_add_test(t, resumed_file_is_a_copy);
    tcase_add_test(t, file_that_cannot_be_resumed_is_a_sentence);
    tcase_add_test(t, full_disk_shows_at_the_flush);
    if (comma_locale)
        tcase_add_test(t, comma_locale_changes_no_byte);
    else
        printf("# comma_locale_changes_no_byte skipped: localedef cannot build de_DE.UTF-8 here\n");
    const int status = run_suite(s, t);
    memcpy(folder, locales, sizeof folder);
    remove_folder();
    return status;
}
