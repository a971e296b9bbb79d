#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/compile/machine.h"
#include "scratch.h"

#define MIB (UINT64_C(1) << 20)

static struct jc_machine machine_of_scratch(void)
{
    struct jc_machine machine;
    jc_machine_read(scratch, 8, &machine);
    return machine;
}

static void put_mount(const char *line)
{
    scratch_put("proc/self/mountinfo", line);
}

// Version 2, mounted as systemd does: this process is in /system.slice/engine.service.
static void put_version_2(void)
{
    scratch_put("proc/self/cgroup", "0::/system.slice/engine.service\n");
    put_mount("22 1 8:1 / / rw,relatime - ext4 /dev/root rw\n"
              "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
}

#define GROUP "sys/fs/cgroup/system.slice/engine.service/"
#define PARENT "sys/fs/cgroup/system.slice/"

static void the_machine_at_hand_has_cores_and_memory(void **state)
{
    (void) state;
    struct jc_machine machine;
    jc_machine_read("", 0, &machine);
    assert_int_equal(machine.cores, sysconf(_SC_NPROCESSORS_ONLN));
    assert_true(machine.memory_bytes > MIB);
    assert_in_range(jc_machine_room(&machine), 1, machine.cores);
    jc_machine_read("", 3, &machine);
    assert_int_equal(machine.cores, 3);
}

static void nothing_known_limits_nothing(void **state)
{
    (void) state;
    struct jc_machine machine = machine_of_scratch();
    assert_int_equal(machine.cores, 8);
    assert_true(machine.quota == 0);
    assert_int_equal(machine.memory_bytes, 0);
    assert_int_equal(jc_machine_room(&machine), 8);
}

static void without_control_groups_the_free_memory_counts(void **state)
{
    (void) state;
    scratch_put("proc/meminfo", "MemTotal:       16000000 kB\nMemFree:          100000 kB\n"
                                "MemAvailable:    2097152 kB\nBuffers:               0 kB\n");
    assert_int_equal(machine_of_scratch().memory_bytes, 2048 * MIB);
}

static void a_group_of_version_2_limits_both(void **state)
{
    (void) state;
    put_version_2();
    scratch_put("proc/meminfo", "MemAvailable: 8388608 kB\n");
    scratch_put(GROUP "memory.max", "1073741824\n");
    scratch_put(GROUP "memory.current", "943718400\n");
    scratch_put(GROUP "memory.stat", "anon 1\nfile 629145600\nactive_file 104857600\n"
                                     "inactive_file 524288000\n");
    scratch_put(GROUP "cpu.max", "250000 100000\n");
    struct jc_machine machine = machine_of_scratch();
    assert_int_equal(machine.memory_bytes, (1024 - 900 + 500) * MIB);
    assert_true(machine.quota == 2.5);
}

static void the_tightest_group_above_counts(void **state)
{
    (void) state;
    put_version_2();
    scratch_put(GROUP "memory.max", "4294967296\n");
    scratch_put(GROUP "memory.current", "1048576\n");
    scratch_put(GROUP "cpu.max", "800000 100000\n");
    scratch_put(PARENT "memory.max", "2147483648\n");
    scratch_put(PARENT "memory.current", "1073741824\n");
    scratch_put(PARENT "cpu.max", "300000 100000\n");
    scratch_put("sys/fs/cgroup/cpu.max", "500000 100000\n");
    struct jc_machine machine = machine_of_scratch();
    assert_int_equal(machine.memory_bytes, 1024 * MIB);
    assert_true(machine.quota == 3);
}

static void a_group_that_slows_down_counts_like_one_that_ends(void **state)
{
    (void) state;
    put_version_2();
    scratch_put(GROUP "memory.max", "max\n");
    scratch_put(GROUP "memory.high", "1073741824\n");
    scratch_put(GROUP "memory.current", "536870912\n");
    assert_int_equal(machine_of_scratch().memory_bytes, 512 * MIB);
}

static void groups_without_limits_limit_nothing(void **state)
{
    (void) state;
    put_version_2();
    scratch_put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    scratch_put(GROUP "memory.max", "max\n");
    scratch_put(GROUP "memory.high", "max\n");
    scratch_put(GROUP "memory.current", "1073741824\n");
    scratch_put(GROUP "cpu.max", "max 100000\n");
    struct jc_machine machine = machine_of_scratch();
    assert_int_equal(machine.memory_bytes, 1024 * MIB);
    assert_true(machine.quota == 0);
}

static void a_group_that_is_over_its_limit_has_little_left_and_is_known(void **state)
{
    (void) state;
    put_version_2();
    scratch_put(GROUP "memory.max", "1048576\n");
    scratch_put(GROUP "memory.current", "2097152\n");
    struct jc_machine machine = machine_of_scratch();
    assert_int_equal(machine.memory_bytes, 1);
    assert_int_equal(jc_machine_room(&machine), 1);
}

// The two kinds side by side, each controller mounted apart, as older systems have it.
static void put_version_1(const char *cgroup)
{
    scratch_put("proc/self/cgroup", cgroup);
    put_mount("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
              "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
              "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
              "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
              "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
}

static void groups_of_version_1_limit_each_by_its_own(void **state)
{
    (void) state;
    put_version_1("5:cpuset:/c\n4:memory:/job\n3:cpuacct,cpu:/slow\n0::/\n");
    scratch_put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
    scratch_put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1610612736\n");
    scratch_put("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\n"
                "total_inactive_file 268435456\n");
    scratch_put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    scratch_put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5368709120\n");
    scratch_put("sys/fs/cgroup/cpu,cpuacct/slow/cpu.cfs_quota_us", "50000\n");
    scratch_put("sys/fs/cgroup/cpu,cpuacct/slow/cpu.cfs_period_us", "100000\n");
    scratch_put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    scratch_put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    scratch_put("sys/fs/cgroup/cpuset/c/cpu.cfs_quota_us", "10000\n");
    scratch_put("sys/fs/cgroup/cpuset/c/cpu.cfs_period_us", "100000\n");
    struct jc_machine machine = machine_of_scratch();
    assert_int_equal(machine.memory_bytes, 768 * MIB);
    assert_true(machine.quota == 0.5);
    assert_int_equal(jc_machine_room(&machine), 1);
}

static void version_1_without_limits_limits_nothing(void **state)
{
    (void) state;
    put_version_1("4:memory:/\n3:cpuacct,cpu:/\n0::/\n");
    scratch_put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    scratch_put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5368709120\n");
    struct jc_machine machine = machine_of_scratch();
    assert_int_equal(machine.memory_bytes, 0);
    assert_true(machine.quota == 0);
}

static void groups_may_be_mounted_anywhere(void **state)
{
    (void) state;
    scratch_put("proc/self/cgroup", "0::/pod/box\n");
    put_mount("30 22 0:26 / /mnt/control\\040groups rw - cgroup2 none rw\n");
    scratch_put("mnt/control groups/pod/box/cpu.max", "100000 100000\n");
    assert_true(machine_of_scratch().quota == 1);
}

// A mount may begin at a group further down: then that is what lies at the mount point.
static void a_mount_may_show_only_what_lies_below_a_group(void **state)
{
    (void) state;
    scratch_put("proc/self/cgroup", "0::/pod/box/inner\n");
    put_mount("30 22 0:26 /pod/box /sys/fs/cgroup rw - cgroup2 none rw\n");
    scratch_put("sys/fs/cgroup/inner/cpu.max", "200000 100000\n");
    scratch_put("sys/fs/cgroup/cpu.max", "400000 100000\n");
    scratch_put("sys/fs/cgroup/pod/box/inner/cpu.max", "100000 100000\n");
    assert_true(machine_of_scratch().quota == 2);
}

static void of_two_mounts_the_one_that_shows_this_group_counts(void **state)
{
    (void) state;
    scratch_put("proc/self/cgroup", "0::/pod/box\n");
    put_mount("30 22 0:26 /pod/bo /mnt/other rw - cgroup2 none rw\n"
              "31 22 0:26 /pod /mnt/pod rw - cgroup2 none rw\n"
              "32 22 0:26 /else /mnt/else rw - cgroup2 none rw\n");
    scratch_put("mnt/other/cpu.max", "100000 100000\n");
    scratch_put("mnt/pod/box/cpu.max", "300000 100000\n");
    scratch_put("mnt/else/cpu.max", "100000 100000\n");
    assert_true(machine_of_scratch().quota == 3);
}

// In containers the process's group may be named from another place than what is mounted.
static void a_group_that_is_not_below_the_mount_is_that_of_the_mount_point(void **state)
{
    (void) state;
    static const struct {
        const char *cgroup, *above;
    } cases[] = {
        {"0::/docker/0123\n", "/other/place"},
        {"0::/docker/0123\n", "/"}, // but no such folder is there
        {"0::/../0123\n", "/"},
        {"0::/\n", "/../.."},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char mount[256];
        snprintf(mount, sizeof(mount), "30 22 0:26 %s /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
                 cases[i].above);
        scratch_put("proc/self/cgroup", cases[i].cgroup);
        put_mount(mount);
        scratch_put("sys/fs/cgroup/cpu.max", "200000 100000\n");
        scratch_put("sys/fs/cgroup/memory.max", "1073741824\n");
        scratch_put("sys/fs/cgroup/memory.current", "0\n");
        struct jc_machine machine = machine_of_scratch();
        assert_true(machine.quota == 2);
        assert_int_equal(machine.memory_bytes, 1024 * MIB);
    }
}

static void damaged_numbers_are_no_limits(void **state)
{
    (void) state;
    static const char *const numbers[] = {
        "", "\n", "-1\n", " 1\n", "1x\n", "0x10\n", "one\n", "99999999999999999999999999\n",
        "1048576 1\n"};
    static const char *const pairs[] = {
        "", "100000\n", "100000 \n", "100000 0\n", "0 100000\n", "1 2 3\n", "-1 100000\n",
        "100000,100000\n", "99999999999999999999999999 1\n"};
    put_version_2();
    scratch_put("proc/meminfo", "MemAvailable: nothing\n");
    scratch_put(GROUP "memory.current", "0\n");
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        scratch_put(GROUP "memory.max", numbers[i]);
        assert_int_equal(machine_of_scratch().memory_bytes, 0);
    }
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        scratch_put(GROUP "cpu.max", pairs[i]);
        assert_true(machine_of_scratch().quota == 0);
    }
    scratch_put(GROUP "memory.max", "1048576\n");
    scratch_put(GROUP "memory.current", "many\n");
    assert_int_equal(machine_of_scratch().memory_bytes, 0);
    scratch_put(GROUP "memory.current", "524288\n");
    scratch_put(GROUP "memory.stat", "inactive_file\ninactive_file few\n");
    assert_int_equal(machine_of_scratch().memory_bytes, MIB / 2);
}

static void damaged_lists_are_passed_over(void **state)
{
    (void) state;
    static const char *const lists[] = {
        "", "\n", "0\n", "0:\n", "0::\n", "nonsense", "30 22 0:26 / - cgroup2 none rw\n",
        "30 22 0:26 / /sys/fs/cgroup rw - cgroup2\n",
        "30 22 0:26 / /sys/fs/cgroup rw cgroup2 none rw\n",
        "- - -\n", " - cgroup2 none rw\n"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        put_version_2();
        scratch_put(GROUP "cpu.max", "100000 100000\n");
        put_mount(lists[i]);
        assert_true(machine_of_scratch().quota == 0);
        put_version_2();
        scratch_put("proc/self/cgroup", lists[i]);
        assert_true(machine_of_scratch().quota == 0);
    }
}

static void there_is_room_for_one_compile_on_each_core_unless_something_is_scarce(void **state)
{
    (void) state;
    static const struct {
        struct jc_machine machine;
        unsigned room;
    } cases[] = {
        {{.cores = 16}, 16},
        {{.cores = 1, .quota = 4}, 1},
        {{.cores = 16, .quota = 4}, 4},
        {{.cores = 16, .quota = 2.5}, 3},
        {{.cores = 16, .quota = 0.1}, 1},
        {{.cores = 16, .memory_bytes = 5 * JC_COMPILE_BYTES + 1}, 5},
        {{.cores = 16, .memory_bytes = 100 * JC_COMPILE_BYTES}, 16},
        {{.cores = 16, .memory_bytes = 1}, 1},
        {{.cores = 16, .quota = 3, .memory_bytes = 2 * JC_COMPILE_BYTES}, 2},
        {{.cores = 16, .memory_bytes = UINT64_MAX}, 16},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(jc_machine_room(&cases[i].machine), cases[i].room);
}

#define SCRATCH_TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_at_hand_has_cores_and_memory),
        SCRATCH_TEST(nothing_known_limits_nothing),
        SCRATCH_TEST(without_control_groups_the_free_memory_counts),
        SCRATCH_TEST(a_group_of_version_2_limits_both),
        SCRATCH_TEST(the_tightest_group_above_counts),
        SCRATCH_TEST(a_group_that_slows_down_counts_like_one_that_ends),
        SCRATCH_TEST(groups_without_limits_limit_nothing),
        SCRATCH_TEST(a_group_that_is_over_its_limit_has_little_left_and_is_known),
        SCRATCH_TEST(groups_of_version_1_limit_each_by_its_own),
        SCRATCH_TEST(version_1_without_limits_limits_nothing),
        SCRATCH_TEST(groups_may_be_mounted_anywhere),
        SCRATCH_TEST(a_mount_may_show_only_what_lies_below_a_group),
        SCRATCH_TEST(of_two_mounts_the_one_that_shows_this_group_counts),
        SCRATCH_TEST(a_group_that_is_not_below_the_mount_is_that_of_the_mount_point),
        SCRATCH_TEST(damaged_numbers_are_no_limits),
        SCRATCH_TEST(damaged_lists_are_passed_over),
        cmocka_unit_test(there_is_room_for_one_compile_on_each_core_unless_something_is_scarce),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
