#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "await.h"
#include "runtime/stats/bulletin.h"
#include "scratch.h"

static const char id[33] = "0123456789abcdef0123456789abcdef";
static const char other_id[33] = "fedcba9876543210fedcba9876543210";

// --- the world around ----------------------------------------------------------------------------

int __real_statfs64(const char *path, struct statfs *fs);
int __wrap_statfs64(const char *path, struct statfs *fs);

static bool without_memory; // there is no file system in memory

int __wrap_statfs64(const char *path, struct statfs *fs)
{
    int status = __real_statfs64(path, fs);
    if (without_memory && fs->f_type == TMPFS_MAGIC)
        fs->f_type = 0xEF53; // ext4
    return status;
}

int __real_faccessat(int folder, const char *name, int mode, int flags);
int __wrap_faccessat(int folder, const char *name, int mode, int flags);

static void (*once_looked)(void); // called once, after somebody looked whether a file is there

int __wrap_faccessat(int folder, const char *name, int mode, int flags)
{
    int status = __real_faccessat(folder, name, mode, flags);
    int saved = errno;
    void (*call)(void) = once_looked;
    once_looked = NULL;
    if (call)
        call();
    errno = saved;
    return status;
}

static struct jc_cache *cache;

static int set_up(void **state)
{
    without_memory = false;
    once_looked = NULL;
    if (scratch_setup(state) != 0)
        return -1;
    return jc_cache_create(jc_cache_params(.dir = scratch_path("cache")), &cache, NULL);
}

static int tear_down(void **state)
{
    jc_cache_destroy(&cache);
    return scratch_teardown(state);
}

static void open_folder(struct jc_bulletins *bulletins)
{
    assert_int_equal(jc_bulletins_open(bulletins, scratch_path("stats"), cache, true), JC_OK);
    assert_true(bulletins->fd >= 0);
    assert_string_equal(bulletins->path, scratch_path("stats"));
}

struct seen {
    size_t alive, dead, wrong;
    size_t size;
    char first; // byte of the last one
};

// A text here is one letter over and over.
static bool see(void *user, const char of[33], bool alive, const char *text, size_t size)
{
    struct seen *seen = user;
    (void) of;
    *(alive ? &seen->alive : &seen->dead) += 1;
    seen->size = size;
    seen->first = text[0];
    for (size_t i = 1; i < size; i++)
        seen->wrong += text[i] != text[0];
    return true;
}

static struct seen visit(struct jc_bulletins *bulletins, bool dead_only)
{
    struct seen seen = {0};
    assert_int_equal(jc_bulletins_visit(bulletins, dead_only, see, &seen), JC_OK);
    return seen;
}

static bool is_there(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

// --- publishing ----------------------------------------------------------------------------------

static void what_is_published_is_seen_and_replaced_as_a_whole(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    struct stat stat_of;
    open_folder(&bulletins);
    assert_int_equal(stat(scratch_path("stats"), &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 0777, 0700);
    int live = jc_bulletin_begin(&bulletins, id);
    assert_true(live >= 0);
    assert_int_equal(fcntl(live, F_GETFD), FD_CLOEXEC);
    assert_int_equal(visit(&bulletins, false).alive, 0); // nothing was said yet
    assert_int_equal(jc_bulletin_write(&bulletins, id, "aaa", 3), JC_OK);
    assert_int_equal(jc_bulletin_write(&bulletins, id, "bb", 2), JC_OK);
    struct seen seen = visit(&bulletins, false);
    assert_int_equal(seen.alive, 1);
    assert_int_equal(seen.dead, 0);
    assert_int_equal(seen.size, 2);
    assert_int_equal(seen.first, 'b');
    assert_int_equal(visit(&bulletins, true).alive, 0);
    jc_bulletin_end(&bulletins, id, live);
    seen = visit(&bulletins, false);
    assert_int_equal(seen.alive + seen.dead, 0);
    assert_int_equal(rmdir(scratch_path("stats")), 0);
    jc_bulletin_end(&bulletins, id, -1);
    jc_bulletins_finish(&bulletins);
}

static void one_that_is_abandoned_is_a_dead_process_s(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    open_folder(&bulletins);
    int live = jc_bulletin_begin(&bulletins, id);
    assert_int_equal(jc_bulletin_write(&bulletins, id, "a", 1), JC_OK);
    jc_bulletin_abandon(&bulletins, live);
    assert_int_equal(visit(&bulletins, true).dead, 1);
    jc_bulletins_remove(&bulletins, id);
    assert_int_equal(rmdir(scratch_path("stats")), 0);
    jc_bulletins_finish(&bulletins);
}

// Publishes until it is killed: texts of one letter, of very different lengths.
static void publish_for_ever(int told)
{
    static char text[300000];
    struct jc_bulletins bulletins;
    if (jc_bulletins_open(&bulletins, scratch_path("stats"), cache, true) != JC_OK ||
        jc_bulletin_begin(&bulletins, id) < 0)
        _exit(1);
    for (unsigned i = 0;; i++) {
        memset(text, 'a' + (char) (i % 26), sizeof(text));
        if (jc_bulletin_write(&bulletins, id, text, i % 2 ? sizeof(text) : 1) != JC_OK)
            _exit(1);
        if (i == 3 && write(told, "p", 1) != 1)
            _exit(1);
    }
}

static void a_process_that_is_killed_leaves_what_is_whole(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    open_folder(&bulletins);
    for (unsigned round = 0; round < 60; round++) {
        int told[2];
        char byte;
        assert_int_equal(pipe2(told, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0)
            publish_for_ever(told[1]);
        close(told[1]);
        assert_int_equal(read(told[0], &byte, 1), 1);
        // Somewhere in the middle.
        for (unsigned i = 0; i < round % 7; i++) {
            struct seen seen = visit(&bulletins, false);
            assert_int_equal(seen.alive, 1);
            assert_int_equal(seen.wrong, 0);
            assert_true(seen.size == 1 || seen.size == 300000);
        }
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close(told[0]);
        struct seen seen = visit(&bulletins, true);
        assert_int_equal(seen.dead, 1);
        assert_int_equal(seen.wrong, 0);
        assert_true(seen.size == 1 || seen.size == 300000);
        if (round % 2)
            jc_bulletins_remove(&bulletins, id);
    }
    jc_bulletins_remove(&bulletins, id);
    assert_int_equal(rmdir(scratch_path("stats")), 0);
    jc_bulletins_finish(&bulletins);
}

// Gives a sign of life, forks a child that stays until `stay` is closed, and is killed.
static int leave_a_child(int stay)
{
    struct jc_bulletins bulletins;
    char byte;
    if (jc_bulletins_open(&bulletins, scratch_path("stats"), cache, true) != JC_OK ||
        jc_bulletin_begin(&bulletins, id) < 0 ||
        jc_bulletin_write(&bulletins, id, "a", 1) != JC_OK)
        return 1;
    pid_t child = fork();
    if (child == 0)
        _exit(read(stay, &byte, 1) != 0);
    return child > 0 ? raise(SIGKILL) : 1;
}

static void the_child_of_a_fork_does_not_keep_its_parent_alive(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    int stay[2], status;
    open_folder(&bulletins);
    assert_int_equal(pipe2(stay, O_CLOEXEC), 0);
    pid_t parent = fork();
    if (parent == 0) {
        close(stay[1]);
        _exit(leave_a_child(stay[0]));
    }
    close(stay[0]);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_true(WIFSIGNALED(status));
    // It may not have run yet.
    await(visit(&bulletins, false).dead == 1);
    close(stay[1]);
    jc_bulletins_finish(&bulletins);
}

static void a_sign_of_life_ends_at_once_even_if_a_child_has_not_run_yet(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    open_folder(&bulletins);
    for (unsigned i = 0; i < 50; i++) {
        int live = jc_bulletin_begin(&bulletins, id);
        assert_int_equal(jc_bulletin_write(&bulletins, id, "a", 1), JC_OK);
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        jc_bulletin_abandon(&bulletins, live);
        assert_int_equal(visit(&bulletins, false).dead, 1);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    jc_bulletins_finish(&bulletins);
}

static void what_cannot_be_written_leaves_what_was_there(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    static char text[100000];
    struct rlimit before, small;
    open_folder(&bulletins);
    int live = jc_bulletin_begin(&bulletins, id);
    assert_int_equal(jc_bulletin_write(&bulletins, id, "a", 1), JC_OK);
    memset(text, 'b', sizeof(text));
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = sizeof(text) - 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    errno = 0;
    assert_int_equal(jc_bulletin_write(&bulletins, id, text, sizeof(text)), JC_ERROR_IO);
    assert_int_equal(errno, EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    struct seen seen = visit(&bulletins, false);
    assert_int_equal(seen.alive, 1);
    assert_int_equal(seen.first, 'a');
    jc_bulletin_end(&bulletins, id, live);
    assert_int_equal(rmdir(scratch_path("stats")), 0);
    errno = 0;
    assert_int_equal(jc_bulletin_write(&bulletins, id, "a", 1), JC_ERROR_IO);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(jc_bulletin_begin(&bulletins, id), -1);
    assert_int_equal(errno, ENOENT);
    jc_bulletins_finish(&bulletins);
}

// A file system of 64 KiB that is full; in a mount namespace of the child's own. 77: not allowed.
static int publish_on_a_full_disk(void)
{
    static char text[100000];
    struct jc_bulletins bulletins;
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mkdir(scratch_path("stats"), 0700) != 0 ||
        mount("none", scratch_path("stats"), "tmpfs", 0, "size=64k,mode=700") != 0)
        return 77;
    if (jc_bulletins_open(&bulletins, scratch_path("stats"), cache, true) != JC_OK)
        return 1;
    int live = jc_bulletin_begin(&bulletins, id);
    struct seen seen = {0};
    memset(text, 'b', sizeof(text));
    bool right =
        live >= 0 && jc_bulletin_write(&bulletins, id, "a", 1) == JC_OK &&
        jc_bulletin_write(&bulletins, id, text, sizeof(text)) == JC_ERROR_IO && errno == ENOSPC &&
        !is_there("stats/0123456789abcdef0123456789abcdef.stats-new") &&
        jc_bulletins_visit(&bulletins, false, see, &seen) == JC_OK && seen.alive == 1 &&
        seen.first == 'a' && jc_bulletin_write(&bulletins, id, "cc", 2) == JC_OK;
    return right ? 0 : 2;
}

static int status_of(int (*child)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(child());
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_full_disk_leaves_what_was_there_and_nothing_unfinished(void **state)
{
    (void) state;
    int status = status_of(publish_on_a_full_disk);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

// --- the folder ----------------------------------------------------------------------------------

static void off_means_that_there_is_no_folder(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    assert_true(jc_bulletins_are_off("off"));
    assert_false(jc_bulletins_are_off(NULL));
    assert_false(jc_bulletins_are_off("/off"));
    assert_int_equal(jc_bulletins_open(&bulletins, "off", cache, true), JC_OK);
    assert_true(bulletins.fd < 0 && !bulletins.path);
    assert_int_equal(visit(&bulletins, false).dead, 0);
    assert_int_equal(jc_bulletin_begin(&bulletins, id), -1);
    jc_bulletins_finish(&bulletins);
}

static void without_a_file_system_in_memory_it_is_in_the_cache_s_folder(void **state)
{
    (void) state;
    struct jc_bulletins bulletins, beside;
    without_memory = true;
    assert_int_equal(jc_bulletins_open(&bulletins, NULL, cache, false), JC_OK);
    assert_true(bulletins.fd < 0); // who reads makes none
    assert_false(is_there("cache/stats"));
    jc_bulletins_finish(&bulletins);
    assert_int_equal(jc_bulletins_open(&bulletins, "", cache, true), JC_OK);
    assert_string_equal(bulletins.path, scratch_path("cache/stats"));
    int live = jc_bulletin_begin(&bulletins, id);
    assert_int_equal(jc_bulletin_write(&bulletins, id, "a", 1), JC_OK);
    assert_int_equal(jc_bulletins_open_beside(&beside, cache, false), JC_OK);
    assert_true(jc_bulletins_same(&bulletins, &beside));
    assert_int_equal(visit(&beside, false).alive, 1);
    jc_bulletin_end(&bulletins, id, live);
    jc_bulletins_finish(&bulletins);
    jc_bulletins_finish(&beside);
}

static void a_cache_that_is_not_written_has_none_beside(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    struct jc_cache *others[2];
    without_memory = true;
    assert_int_equal(jc_cache_create(jc_cache_params(.disable = true), &others[0], NULL), JC_OK);
    assert_int_equal(jc_cache_create(jc_cache_params(.dir = scratch_path("cache"),
                                                     .read_only = true), &others[1], NULL), JC_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(jc_bulletins_open(&bulletins, NULL, others[i], true), JC_OK);
        assert_true(bulletins.fd < 0);
        assert_non_null(strstr(bulletins.reason, "not written"));
        jc_bulletins_finish(&bulletins);
        jc_cache_destroy(&others[i]);
    }
    assert_false(is_there("cache/stats"));
}

// With a /dev/shm of its own, in which somebody else has taken the name if `taken`.
static int open_default(bool taken)
{
    char path[64];
    struct jc_bulletins bulletins;
    snprintf(path, sizeof(path), "/dev/shm/jitcache-%lu", (unsigned long) geteuid());
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, "mode=1777") != 0)
        return 77;
    if (taken && (mkdir(path, 0700) != 0 || chown(path, 12345, 12345) != 0))
        return 77;
    if (jc_bulletins_open(&bulletins, NULL, cache, true) != JC_OK || bulletins.fd < 0)
        return 1;
    const char *expected = taken ? scratch_path("cache/stats") : path;
    if (strcmp(bulletins.path, expected) != 0 || bulletins.refused != taken)
        return 2;
    return taken && !strstr(bulletins.reason, "belongs to another user") ? 3 : 0;
}

static int open_default_free(void)
{
    return open_default(false);
}

static int open_default_taken(void)
{
    return open_default(true);
}

static void by_default_it_is_the_user_s_in_memory(void **state)
{
    (void) state;
    int status = status_of(open_default_free);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void a_name_that_another_user_has_taken_is_not_used_and_told(void **state)
{
    (void) state;
    int status = status_of(open_default_taken);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void a_folder_that_others_can_write_or_that_is_none_is_refused(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    assert_int_equal(mkdir(scratch_path("open"), 0777), 0);
    assert_int_equal(chmod(scratch_path("open"), 0777), 0);
    assert_int_equal(symlink(scratch_path("open"), scratch_path("link")), 0);
    scratch_put("file", "");
    static const char *const names[] = {"open", "link", "file", "file/below"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(jc_bulletins_open(&bulletins, scratch_path(names[i]), cache, true),
                         JC_OK);
        assert_true(bulletins.fd < 0 && !bulletins.path);
        assert_non_null(strstr(bulletins.reason, names[i]));
        assert_true(bulletins.refused == (i == 0));
        jc_bulletins_finish(&bulletins);
    }
}

static void what_a_folder_is_to_lie_in_is_not_made(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    assert_int_equal(jc_bulletins_open(&bulletins, scratch_path("a/b"), cache, true), JC_OK);
    assert_true(bulletins.fd < 0);
    assert_non_null(strstr(bulletins.reason, "/a/b: the folder that it is to lie in does not"));
    jc_bulletins_finish(&bulletins);
    assert_false(is_there("a"));
    assert_int_equal(mkdir(scratch_path("a"), 0755), 0);
    assert_int_equal(jc_bulletins_open(&bulletins, scratch_path("a/b"), cache, true), JC_OK);
    assert_true(bulletins.fd >= 0);
    jc_bulletins_finish(&bulletins);
}

// --- what lies there -----------------------------------------------------------------------------

static void what_is_not_ours_or_no_file_is_passed_over(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    open_folder(&bulletins);
    scratch_put("elsewhere", "a");
    scratch_put("stats/README", "a");
    scratch_put("stats/0123.stats", "a");
    scratch_put("stats/0123456789ABCDEF0123456789ABCDEF.stats", "a");
    scratch_put("stats/11111111111111111111111111111111.stats", "a");
    assert_int_equal(chmod(scratch_path("stats/11111111111111111111111111111111.stats"), 0622), 0);
    assert_int_equal(symlink(scratch_path("elsewhere"),
                             scratch_path("stats/22222222222222222222222222222222.stats")), 0);
    assert_int_equal(mkfifo(scratch_path("stats/33333333333333333333333333333333.stats"), 0600),
                     0);
    assert_int_equal(mkdir(scratch_path("stats/44444444444444444444444444444444.stats"), 0700), 0);
    scratch_put("stats/55555555555555555555555555555555.stats", "");
    assert_int_equal(truncate(scratch_path("stats/55555555555555555555555555555555.stats"),
                              (off_t) JC_BULLETIN_MAX_BYTES + 1), 0);
    struct seen seen = visit(&bulletins, false);
    assert_int_equal(seen.alive + seen.dead, 0);
    jc_bulletins_finish(&bulletins);
}

static void a_file_of_another_user_is_passed_over(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    if (geteuid() != 0)
        skip();
    open_folder(&bulletins);
    scratch_put("stats/11111111111111111111111111111111.stats", "a");
    assert_int_equal(visit(&bulletins, false).alive, 1);
    assert_int_equal(chown(scratch_path("stats/11111111111111111111111111111111.stats"), 12345, 0),
                     0);
    struct seen seen = visit(&bulletins, false);
    assert_int_equal(seen.alive + seen.dead, 0);
    jc_bulletins_finish(&bulletins);
}

static void make_old(const char *name)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, scratch_path(name), times, 0), 0);
}

static void what_belongs_to_nothing_is_swept(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    open_folder(&bulletins);
    int live = jc_bulletin_begin(&bulletins, id);
    scratch_put("stats/fedcba9876543210fedcba9876543210.live", "");
    scratch_put("stats/11111111111111111111111111111111.live-new", "");
    scratch_put("stats/22222222222222222222222222222222.stats-new", "");
    scratch_put("stats/33333333333333333333333333333333.stats-new", "");
    scratch_put("stats/44444444444444444444444444444444.stats-old", "");
    make_old("stats/11111111111111111111111111111111.live-new");
    make_old("stats/22222222222222222222222222222222.stats-new");
    make_old("stats/44444444444444444444444444444444.stats-old");
    visit(&bulletins, true);
    assert_true(is_there("stats/0123456789abcdef0123456789abcdef.live")); // locked
    assert_false(is_there("stats/fedcba9876543210fedcba9876543210.live"));
    assert_false(is_there("stats/11111111111111111111111111111111.live-new"));
    assert_false(is_there("stats/22222222222222222222222222222222.stats-new"));
    assert_true(is_there("stats/33333333333333333333333333333333.stats-new")); // it may be finished
    assert_true(is_there("stats/44444444444444444444444444444444.stats-old")); // not ours
    jc_bulletin_end(&bulletins, id, live);
    jc_bulletins_finish(&bulletins);
}

static struct jc_bulletins own;
static int own_live;

// Publishes for the first time, and dies.
static void publish_and_die(void)
{
    jc_bulletin_write(&own, id, "a", 1);
    jc_bulletin_abandon(&own, own_live);
    own_live = -1;
}

static void who_publishes_and_dies_while_others_look_is_not_swept(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    open_folder(&own);
    open_folder(&bulletins);
    own_live = jc_bulletin_begin(&own, id);
    once_looked = publish_and_die;
    visit(&bulletins, true);
    if (own_live >= 0) // nobody looked
        publish_and_die();
    assert_int_equal(visit(&bulletins, true).dead, 1);
    jc_bulletins_remove(&own, id);
    jc_bulletins_finish(&own);
    jc_bulletins_finish(&bulletins);
}

static void who_was_robbed_of_its_sign_of_life_is_not_dead_at_once(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    open_folder(&bulletins);
    int live = jc_bulletin_begin(&bulletins, id);
    assert_int_equal(jc_bulletin_write(&bulletins, id, "a", 1), JC_OK);
    assert_int_equal(unlink(scratch_path("stats/0123456789abcdef0123456789abcdef.live")), 0);
    assert_int_equal(visit(&bulletins, false).alive, 1);
    make_old("stats/0123456789abcdef0123456789abcdef.stats");
    assert_int_equal(visit(&bulletins, false).dead, 1);
    jc_bulletin_end(&bulletins, id, live);
    jc_bulletins_finish(&bulletins);
}

static void a_past_goes_with_its_bulletin(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    size_t size = 0;
    bool failed = true;
    open_folder(&bulletins);
    int live = jc_bulletin_begin(&bulletins, id);
    assert_null(jc_bulletins_read_past(&bulletins, id, &size, &failed));
    assert_false(failed);
    assert_int_equal(jc_bulletin_write_past(&bulletins, id, "old", 3), JC_OK);
    assert_int_equal(jc_bulletin_write_past(&bulletins, id, "older", 5), JC_OK);
    assert_int_equal(visit(&bulletins, false).alive, 0); // it is none by itself
    char *text = jc_bulletins_read_past(&bulletins, id, &size, &failed);
    assert_string_equal(text, "older");
    assert_int_equal(size, 5);
    free(text);
    jc_bulletin_abandon(&bulletins, live);
    visit(&bulletins, true); // killed between the two
    jc_bulletins_finish(&bulletins);
    assert_int_equal(rmdir(scratch_path("stats")), 0);
}

static bool see_one(void *user, const char of[33], bool alive, const char *text, size_t size)
{
    see(user, of, alive, text, size);
    return false;
}

static void a_visit_ends_where_it_is_told_to(void **state)
{
    (void) state;
    struct jc_bulletins bulletins;
    struct seen one = {0};
    open_folder(&bulletins);
    assert_int_equal(jc_bulletin_write(&bulletins, id, "a", 1), JC_OK);
    assert_int_equal(jc_bulletin_write(&bulletins, other_id, "b", 1), JC_OK);
    assert_int_equal(visit(&bulletins, false).alive, 2);
    assert_int_equal(jc_bulletins_visit(&bulletins, false, see_one, &one), JC_OK);
    assert_int_equal(one.alive, 1);
    jc_bulletins_remove(&bulletins, other_id);
    assert_int_equal(visit(&bulletins, false).first, 'a');
    jc_bulletins_finish(&bulletins);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_published_is_seen_and_replaced_as_a_whole),
        TEST(one_that_is_abandoned_is_a_dead_process_s),
        TEST(a_process_that_is_killed_leaves_what_is_whole),
        TEST(the_child_of_a_fork_does_not_keep_its_parent_alive),
        TEST(a_sign_of_life_ends_at_once_even_if_a_child_has_not_run_yet),
        TEST(what_cannot_be_written_leaves_what_was_there),
        TEST(a_full_disk_leaves_what_was_there_and_nothing_unfinished),
        TEST(off_means_that_there_is_no_folder),
        TEST(without_a_file_system_in_memory_it_is_in_the_cache_s_folder),
        TEST(a_cache_that_is_not_written_has_none_beside),
        TEST(by_default_it_is_the_user_s_in_memory),
        TEST(a_name_that_another_user_has_taken_is_not_used_and_told),
        TEST(a_folder_that_others_can_write_or_that_is_none_is_refused),
        TEST(what_a_folder_is_to_lie_in_is_not_made),
        TEST(what_is_not_ours_or_no_file_is_passed_over),
        TEST(a_file_of_another_user_is_passed_over),
        TEST(what_belongs_to_nothing_is_swept),
        TEST(who_publishes_and_dies_while_others_look_is_not_swept),
        TEST(who_was_robbed_of_its_sign_of_life_is_not_dead_at_once),
        TEST(a_past_goes_with_its_bulletin),
        TEST(a_visit_ends_where_it_is_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
