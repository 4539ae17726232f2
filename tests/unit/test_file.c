// SPDX-License-Identifier: GPL-3.0-or-later
/** Folders, and files that appear whole or not at all. */
#include "results/file.h"
#include "tests/unit/result_files.h"

START_TEST(file_that_may_not_grow_is_a_sentence)
{
    char text[2000] = "";
    limit_files(1000);
    const int status = nh_file_write(in_folder("x"), text, sizeof text);
    limit_files(RLIM_INFINITY);
    fails(status, "ulimit -f");
    ck_assert(!exists("x"));
    ck_assert_str_eq(part_of("x"), "");
}
END_TEST

START_TEST(folders_are_made_with_those_above)
{
    ok(nh_dir_make(in_folder("a/b//c/")));
    ok(nh_dir_make(in_folder("a/b/c")));
    ok(nh_dir_make("/"));
    ok(nh_dir_sync(in_folder("a/b")));
    ck_assert(exists("a/b/c"));
}
END_TEST

START_TEST(small_file_is_replaced_whole_or_not_at_all)
{
    ok(nh_file_write(in_folder("run.json"), "{}\n", 3));
    content_is("run.json", "{}\n");
    ok(nh_file_write(in_folder("run.json"), "", 0));
    content_is("run.json", "");
    ok(nh_file_write(in_folder("run.json"), "[1]\n", 4));
    limit_files(2);
    const int status = nh_file_write(in_folder("run.json"), "{}\n", 3);
    limit_files(RLIM_INFINITY);
    fails(status, "File too large");
    content_is("run.json", "[1]\n");
    ck_assert_str_eq(part_of("run.json"), "");
}
END_TEST

/* ---- names of one's own ---- */

START_TEST(file_that_is_there_is_not_replaced_unasked)
{
    struct nh_part *p, *late;
    ok(nh_file_write(in_folder("x"), "mine", 4));
    ck_assert_int_eq(nh_part_create(&p, in_folder("x"), false), NH_USAGE);
    ck_assert_ptr_nonnull(strstr(nh_error(), "--force"));
    ck_assert_ptr_null(p);
    ok(nh_part_create(&p, in_folder("y"), false));
    ok(nh_part_create(&late, in_folder("y"), false));
    ok(nh_part_write(p, "first", 5));
    ok(nh_part_write(late, "second", 6));
    ok(nh_part_commit(p));
    ck_assert_int_eq(nh_part_commit(late), NH_USAGE); /* it came in between */
    ck_assert_ptr_nonnull(strstr(nh_error(), "y' is there already"));
    nh_part_destroy(p);
    nh_part_destroy(late);
    content_is("x", "mine");
    content_is("y", "first");
    ck_assert_str_eq(part_of("y"), "");
}
END_TEST

START_TEST(writers_of_one_file_do_not_meet)
{
    struct nh_part *writers[3];
    static char texts[3][100000];
    for (int i = 0; i < 3; i++) {
        memset(texts[i], 'a' + i, sizeof texts[i]);
        ok(nh_part_create(&writers[i], in_folder("x"), true)); /* none of them takes another's away as stale */
        ok(nh_part_write(writers[i], texts[i], 70000));
    }
    for (int i = 2; i >= 0; i--)
        ok(nh_part_write(writers[i], texts[i] + 70000, 30000));
    for (int i = 0; i < 3; i++) {
        ok(nh_part_commit(writers[i]));
        ok(nh_part_verify(writers[i]));
        char *text = content("x");
        ck_assert(memcmp(text, texts[i], sizeof texts[i]) == 0 && text[sizeof texts[i]] == '\0');
        free(text);
    }
    fails(nh_part_verify(writers[0]), "x is not what was written");
    unlink(in_folder("x"));
    fails(nh_part_verify(writers[2]), "x is not what was written");
    for (int i = 0; i < 3; i++)
        nh_part_destroy(writers[i]);
}
END_TEST

/* Of a killed process nobody holds the lock. */
START_TEST(stale_temporary_files_do_not_pile_up)
{
    static const char *const others[] = {"x.0123456.part", "x.0123456g.part", "x.part", "xx.01234567.part", "x.01234567.parts"};
    ok(nh_file_write(in_folder("x.01234567.part"), "stale", 5));
    ok(nh_file_write(in_folder("x.89abcdef.part"), "stale", 5));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ok(nh_file_write(in_folder(others[i]), "not ours", 8));
    ok(nh_file_write(in_folder("x"), "1", 1));
    ck_assert_str_eq(part_of("x"), "");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        content_is(others[i], "not ours");
    struct nh_part *p;
    ok(nh_part_create(&p, in_folder("x"), true));
    const char *own = part_of("x");
    nh_part_tidy(in_folder("x"));
    ck_assert(exists(own));
    nh_part_destroy(p);
    ck_assert(!exists(own));
}
END_TEST

/* A link or FIFO that someone has put there is not followed, opened for writing or removed. */
START_TEST(planted_names_do_no_harm)
{
    ok(nh_file_write(in_folder("victim"), "precious", 8));
    ck_assert_int_eq(symlink("victim", in_folder("x.01234567.part")), 0);
    ck_assert_int_eq(symlink("victim", in_folder("x.part")), 0);
    ck_assert_int_eq(mkfifo(in_folder("x.89abcdef.part"), 0666), 0);
    ok(nh_file_write(in_folder("x"), "1", 1));
    content_is("x", "1");
    content_is("victim", "precious");
    ck_assert(exists("x.01234567.part") && exists("x.89abcdef.part") && exists("x.part"));
    ck_assert_int_eq(symlink("victim", in_folder("link")), 0);
    fails(nh_file_write(in_folder("link"), "1", 1), "is no regular file");
    ck_assert_int_eq(mkfifo(in_folder("fifo"), 0666), 0);
    fails(nh_file_write(in_folder("fifo"), "1", 1), "is no regular file");
    content_is("victim", "precious");
}
END_TEST

START_TEST(temporary_file_that_is_gone_is_a_sentence)
{
    struct nh_part *p;
    struct nh_extent extent;
    ok(nh_file_write(in_folder("x"), "old", 3));
    ok(nh_part_create(&p, in_folder("x"), true));
    ok(nh_part_write(p, "new", 3));
    unlink(in_folder(part_of("x")));
    fails(nh_part_sync(p, &extent), "x: another process has removed its temporary file");
    fails(nh_part_commit(p), "x: another process has removed its temporary file");
    nh_part_destroy(p);
    content_is("x", "old");
}
END_TEST

START_TEST(heads_of_files)
{
    char head[4];
    size_t n = 9;
    bool there = true;
    ok(nh_file_head(in_folder("none"), head, sizeof head, &n, &there));
    ck_assert(!there);
    ck_assert_uint_eq(n, 0);
    ok(nh_file_write(in_folder("x"), "abcdef", 6));
    ok(nh_file_head(in_folder("x"), head, sizeof head, &n, &there));
    ck_assert(there);
    ck_assert(n == 4 && memcmp(head, "abcd", 4) == 0);
    ok(nh_file_write(in_folder("x"), "ab", 2));
    ok(nh_file_head(in_folder("x"), head, sizeof head, &n, &there));
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(mkfifo(in_folder("fifo"), 0666), 0);
    fails(nh_file_head(in_folder("fifo"), head, sizeof head, &n, &there), "is no regular file");
    fails(nh_file_head(in_folder("x/y"), head, sizeof head, &n, &there), "cannot read");
}
END_TEST

START_TEST(what_stands_in_the_way_is_named)
{
    ok(nh_file_write(in_folder("file"), "x", 1));
    fails(nh_dir_make(in_folder("file")), "cannot make the folder");
    fails(nh_dir_make(in_folder("file/below")), "/file: File exists");
    fails(nh_dir_make(""), "cannot make the folder");
    fails(nh_dir_sync(in_folder("none")), "No such file");
    ck_assert_int_eq(mkdir(in_folder("taken"), 0777), 0);
    fails(nh_file_write(in_folder("taken"), "x", 1), "Is a directory");
    ck_assert_str_eq(part_of("taken"), "");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("file");
    TCase *t = tcase_create("file");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, file_that_may_not_grow_is_a_sentence);
    tcase_add_test(t, folders_are_made_with_those_above);
    tcase_add_test(t, small_file_is_replaced_whole_or_not_at_all);
    tcase_add_test(t, what_stands_in_the_way_is_named);
    tcase_add_test(t, file_that_is_there_is_not_replaced_unasked);
    tcase_add_test(t, writers_of_one_file_do_not_meet);
    tcase_add_test(t, stale_temporary_files_do_not_pile_up);
    tcase_add_test(t, planted_names_do_no_harm);
    tcase_add_test(t, temporary_file_that_is_gone_is_a_sentence);
    tcase_add_test(t, heads_of_files);
    return run_suite(s, t);
}
