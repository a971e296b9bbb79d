#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "cache/folder.h"
#include "cache/lock.h"
#include "scratch.h"

static unsigned mode_of(const char *path)
{
    struct stat stat;
    return lstat(path, &stat) == 0 ? stat.st_mode & 07777 : 0;
}

static void missing_folders_are_made_for_their_owner_alone(void **state)
{
    (void) state;
    struct jc_folder folder;
    char reason[JC_REASON_SIZE] = "";
    mode_t before = umask(0);
    assert_int_equal(jc_folder_open(&folder, scratch_path("a/b/c"), false, false, reason), JC_OK);
    umask(before);
    assert_true(folder.fd >= 0);
    assert_true(folder.writable);
    assert_string_equal(reason, "");
    assert_string_equal(folder.path, scratch_path("a/b/c"));
    assert_int_equal(mode_of(scratch_path("a")), 0700);
    assert_int_equal(mode_of(scratch_path("a/b/c")), 0700);
    jc_folder_finish(&folder);
}

static void nothing_is_made_to_be_only_read(void **state)
{
    (void) state;
    struct jc_folder folder;
    char reason[JC_REASON_SIZE] = "";
    assert_int_equal(jc_folder_open(&folder, scratch_path("none"), true, false, reason), JC_OK);
    assert_int_equal(folder.fd, -1);
    assert_non_null(strstr(reason, "does not exist"));
    assert_int_equal(access(scratch_path("none"), F_OK), -1);
    jc_folder_finish(&folder);
}

enum kind { FOLDER, REGULAR_FILE, LINK, INSIDE_FILE };

// What stands at "place" before it is opened as `name`, and what comes of it.
struct place {
    const char *name;
    enum kind kind;
    mode_t mode;
    bool foreign; // needs root
    bool trust_group;
    bool usable;
    const char *reason; // occurs in the text; NULL: none
};

static const struct place places[] = {
    {"place", FOLDER, 0700, false, false, true, NULL},
    {"place/", FOLDER, 0700, false, false, true, NULL},
    {"place/.", FOLDER, 0700, false, false, true, NULL},
    {"place", FOLDER, 0755, false, false, true, NULL},
    {"place", FOLDER, 0770, false, false, false, "JITCACHE_TRUST=group"},
    {"place", FOLDER, 0770, false, true, true, NULL},
    {"place", FOLDER, 02775, false, true, true, NULL},
    {"place", FOLDER, 0777, false, false, false, "every user can write"},
    {"place", FOLDER, 0777, false, true, false, "every user can write"},
    {"place", FOLDER, 01777, false, true, false, "every user can write"},
    {"place", FOLDER, 0700, true, false, false, "belongs to user 12345"},
    {"place", FOLDER, 0755, true, false, false, "belongs to user 12345"},
    {"place", FOLDER, 0770, true, true, true, NULL}, // the group is ours
    {"place", REGULAR_FILE, 0600, false, false, false, "is a file"},
    {"place/", REGULAR_FILE, 0600, false, false, false, "is a file"},
    {"place/inside", INSIDE_FILE, 0600, false, false, false, "Not a directory"},
    {"place", LINK, 0, false, false, false, "symbolic link"},
    {"place/", LINK, 0, false, false, false, "symbolic link"},
    {"place//", LINK, 0, false, false, false, "symbolic link"},
    {"place/.", LINK, 0, false, false, false, "symbolic link"},
    {"place/./", LINK, 0, false, false, false, "symbolic link"},
};

static void make_place(const struct place *place)
{
    const char *path = scratch_path("place");
    scratch_remove_tree(path);
    if (place->kind == FOLDER) {
        assert_int_equal(mkdir(path, 0700), 0);
        if (place->foreign)
            assert_int_equal(chown(path, 12345, (gid_t) -1), 0);
        assert_int_equal(chmod(path, place->mode), 0);
    } else if (place->kind == LINK) {
        mkdir(scratch_path("target"), 0700);
        assert_int_equal(symlink(scratch_path("target"), path), 0);
    } else {
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
}

static void only_a_folder_of_our_own_is_used(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const struct place *place = &places[i];
        struct jc_folder folder;
        char reason[JC_REASON_SIZE] = "";
        if (place->foreign && geteuid() != 0) {
            print_message("not root: place %zu is not tried\n", i);
            continue;
        }
        make_place(place);
        assert_int_equal(jc_folder_open(&folder, scratch_path(place->name), false,
                                        place->trust_group, reason), JC_OK);
        if (place->usable != (folder.fd >= 0) || place->usable != folder.writable ||
            (place->reason ? !strstr(reason, place->reason) : reason[0] != '\0'))
            fail_msg("place %zu: fd %d, writable %d, reason \"%s\"", i, folder.fd,
                     folder.writable, reason);
        jc_folder_finish(&folder);
    }
}

// chmod 700 on /tmp, typed by root because we said so, would break the machine.
static void only_what_was_a_cache_is_advised_to_be_closed(void **state)
{
    (void) state;
    static const mode_t modes[] = {01777, 0770};
    for (size_t i = 0; i < 2 * sizeof(modes) / sizeof(modes[0]); i++) {
        const struct place place = {"place", FOLDER, modes[i / 2], false, false, false, NULL};
        struct jc_folder folder;
        char reason[JC_REASON_SIZE] = "";
        bool was_cache = i % 2;
        make_place(&place);
        if (was_cache)
            close(open(scratch_path("place/" JC_LOCK_FILE), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        assert_int_equal(jc_folder_open(&folder, scratch_path("place"), false, false, reason),
                         JC_OK);
        assert_int_equal(strstr(reason, "chmod") != NULL, was_cache);
        assert_non_null(strstr(reason, "JITCACHE_DIR"));
        jc_folder_finish(&folder);
    }
}

static void the_default_place_follows_the_environment(void **state)
{
    (void) state;
    char home[PATH_MAX], xdg[PATH_MAX], expected[2][PATH_MAX + 32];
    snprintf(home, sizeof(home), "%s", scratch_path("home"));
    snprintf(xdg, sizeof(xdg), "%s", scratch_path("xdg"));
    snprintf(expected[0], sizeof(expected[0]), "%s/.cache/jitcache", home);
    snprintf(expected[1], sizeof(expected[1]), "%s/jitcache", xdg);
    const struct {
        const char *xdg, *home, *path;
    } cases[] = {
        {NULL, home, expected[0]}, {"", home, expected[0]},     {"relative", home, expected[0]},
        {xdg, home, expected[1]},  {xdg, NULL, expected[1]},    {NULL, NULL, NULL},
        {NULL, "relative", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_folder folder;
        char reason[JC_REASON_SIZE] = "";
        if (cases[i].xdg)
            setenv("XDG_CACHE_HOME", cases[i].xdg, 1);
        else
            unsetenv("XDG_CACHE_HOME");
        if (cases[i].home)
            setenv("HOME", cases[i].home, 1);
        else
            unsetenv("HOME");
        assert_int_equal(jc_folder_open(&folder, NULL, false, false, reason), JC_OK);
        if (cases[i].path) {
            assert_string_equal(folder.path, cases[i].path);
            assert_true(folder.fd >= 0);
        } else {
            assert_null(folder.path);
            assert_non_null(strstr(reason, "JITCACHE_DIR"));
        }
        jc_folder_finish(&folder);
    }
}

static void a_relative_folder_becomes_absolute(void **state)
{
    (void) state;
    struct jc_folder folder;
    char reason[JC_REASON_SIZE] = "";
    int back = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(chdir(scratch), 0);
    assert_int_equal(jc_folder_open(&folder, "here", false, false, reason), JC_OK);
    assert_int_equal(fchdir(back), 0);
    close(back);
    assert_string_equal(folder.path, scratch_path("here"));
    assert_true(folder.fd >= 0);
    jc_folder_finish(&folder);
}

static void file_systems_of_other_hosts_are_known(void **state)
{
    (void) state;
    static const struct {
        unsigned long f_type;
        bool network;
    } types[] = {
        {0x6969, true},      {0xFF534D42, true},  {0xFE534D42, true},  {0x65735546, true},
        {0x01021997, true},  {0x00C36400, true},  {0x0BD00BD0, true},  {0x47504653, true},
        {0xEF53, false},     {0x58465342, false}, {0x9123683E, false}, {0x01021994, false},
        {0x794C7630, false}, {0x2FC12FC1, false}, {0xF2F52010, false},
        // As a signed 32-bit number, which some machines make of it.
        {(unsigned long) (long) (int) 0xFF534D42, true},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        assert_int_equal(jc_folder_is_network(types[i].f_type), types[i].network);
}

static void only_files_of_our_own_are_opened(void **state)
{
    (void) state;
    struct jc_folder folder;
    char reason[JC_REASON_SIZE] = "";
    assert_int_equal(jc_folder_open(&folder, scratch_path("d"), false, false, reason), JC_OK);
    int fd = jc_folder_file(&folder, "new", O_RDWR | O_CREAT);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(mode_of(scratch_path("d/new")), 0600);
    assert_int_equal(symlink("new", scratch_path("d/link")), 0);
    assert_int_equal(jc_folder_file(&folder, "link", O_RDONLY), -1);
    assert_int_equal(mkfifo(scratch_path("d/fifo"), 0600), 0);
    assert_int_equal(jc_folder_file(&folder, "fifo", O_RDONLY), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(chmod(scratch_path("d/new"), 0660), 0);
    assert_int_equal(jc_folder_file(&folder, "new", O_RDONLY), -1);
    assert_int_equal(errno, EPERM);
    jc_folder_finish(&folder);
}

static void a_trusted_group_can_write_the_files(void **state)
{
    (void) state;
    struct jc_folder folder;
    char reason[JC_REASON_SIZE] = "";
    mode_t before = umask(022);
    assert_int_equal(jc_folder_open(&folder, scratch_path("d"), false, true, reason), JC_OK);
    int fd = jc_folder_file(&folder, "new", O_RDWR | O_CREAT);
    umask(before);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(mode_of(scratch_path("d/new")), 0660);
    jc_folder_finish(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(missing_folders_are_made_for_their_owner_alone,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(nothing_is_made_to_be_only_read, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(only_a_folder_of_our_own_is_used, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(only_what_was_a_cache_is_advised_to_be_closed,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(the_default_place_follows_the_environment, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_relative_folder_becomes_absolute, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(file_systems_of_other_hosts_are_known),
        cmocka_unit_test_setup_teardown(only_files_of_our_own_are_opened, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_trusted_group_can_write_the_files, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
