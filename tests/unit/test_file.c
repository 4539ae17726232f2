// SPDX-License-Identifier: GPL-3.0-or-later
/** Folders, and files that appear whole or not at all. */
#include "results/file.h"
#include "tests/unit/result_files.h"

#include <signal.h>
#include <sys/resource.h>

START_TEST(file_that_may_not_grow_is_a_sentence)
{
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    char text[2000] = "";
    const int status = nh_file_write(in_folder("x"), text, sizeof text);
    setrlimit(RLIMIT_FSIZE, &before);
    fails(status, "ulimit -f");
    ck_assert(!exists("x") && !exists("x.part"));
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
    ok(nh_file_write(in_folder("run.json.part"), "left by a killed process", 24));
    ok(nh_file_write(in_folder("run.json"), "", 0));
    content_is("run.json", "");
    ok(nh_file_write(in_folder("run.json"), "[1]\n", 4));
    ck_assert_int_eq(symlink("/dev/full", in_folder("run.json.part")), 0);
    fails(nh_file_write(in_folder("run.json"), "{}\n", 3), "No space left");
    content_is("run.json", "[1]\n");
    ck_assert(!exists("run.json.part"));
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
    ck_assert(!exists("taken.part"));
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
    return run_suite(s, t);
}
