// SPDX-License-Identifier: GPL-3.0-or-later
/** What limits of memory cgroups leave, from files as the kernel shows them. */
#include "harness/core/memory.h"
#include "tests/unit/result_files.h"

#include <math.h>

/* A file of the folder, those above it included. */
static void put(const char *name, const char *text)
{
    char above[512];
    snprintf(above, sizeof above, "%s", in_folder(name));
    *strrchr(above, '/') = '\0';
    ok(nh_dir_make(above));
    ok(nh_file_write(in_folder(name), text, strlen(text)));
}

static double room(const char *list)
{
    put("list", list);
    return nh_cgroup_room(in_folder("list"), folder);
}

START_TEST(no_cgroup_is_no_limit)
{
    ck_assert(isinf(nh_cgroup_room(in_folder("none"), folder)));
    ck_assert(isinf(room("0::/\n")));
    put("memory.max", "max\n");
    put("memory.current", "123\n");
    ck_assert(isinf(room("0::/\n")));
}
END_TEST

START_TEST(version_2_leaves_its_limit_less_what_is_in_use)
{
    put("a/memory.max", "1000000\n");
    put("a/memory.current", "300000\n");
    ck_assert_double_eq(room("0::/a\n"), 700000);
    put("a/memory.stat", "anon 5\nfile 9\nactive_file 7\ninactive_file 100000\n"); /* page cache that can be given back */
    ck_assert_double_eq(room("0::/a\n"), 800000);
    put("a/memory.current", "2000000\n");
    ck_assert_double_eq(room("0::/a\n"), 0);
}
END_TEST

START_TEST(of_nested_cgroups_the_least_counts)
{
    put("a/memory.max", "1000\n");
    put("a/memory.current", "900\n");
    put("a/b/memory.max", "500\n");
    put("a/b/memory.current", "100\n");
    put("a/b/c/memory.max", "max\n");
    put("a/b/c/memory.current", "50\n");
    ck_assert_double_eq(room("0::/a/b/c\n"), 100); /* of a */
    put("a/memory.current", "200\n");
    ck_assert_double_eq(room("0::/a/b/c\n"), 400); /* of b */
    ck_assert(isinf(room("0::/d\n")));
}
END_TEST

START_TEST(version_1_is_the_line_of_its_controller)
{
    put("memory/x/memory.limit_in_bytes", "4096\n");
    put("memory/x/memory.usage_in_bytes", "1096\n");
    put("memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 96\n");
    ck_assert_double_eq(room("12:cpu,cpuacct:/y\n5:hugetlb,memory:/x\n1:name=systemd:/z\n"), 3096);
    ck_assert(isinf(room("12:cpu,cpuacct:/x\n")));
    put("y/memory.max", "100\n"); /* both at once: the least */
    put("y/memory.current", "1\n");
    ck_assert_double_eq(room("5:memory:/x\n0::/y\n"), 99);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("memory");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, no_cgroup_is_no_limit);
    tcase_add_test(t, version_2_leaves_its_limit_less_what_is_in_use);
    tcase_add_test(t, of_nested_cgroups_the_least_counts);
    tcase_add_test(t, version_1_is_the_line_of_its_controller);
    return run_suite(s, t);
}
