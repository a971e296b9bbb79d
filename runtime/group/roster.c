#include "roster.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cache/clock.h"
#include "cache/file.h"
#include "cache/flight.h"
#include "cache/report.h"
#include "host.h"
#include "runtime/stats/bulletin.h"

#define SUFFIX ".group"
#define GATE 0

// Between two looks at what is to go away: a gate, a rank of an earlier job.
#define GATE_STEP_NS 500000
#define LATER_STEP_NS 20000000

// Who leaves does not wait for long to tidy up: whoever comes next can do it.
#define LEAVE_WAIT_NS UINT64_C(1000000000)

#define SLOTS_AT(ranks) (sizeof(struct jc_roster_head) + jc_board_bytes(ranks))
#define FILE_BYTES(ranks) (SLOTS_AT(ranks) + (size_t) (ranks) * sizeof(struct jc_roster_slot))

// The part of a slot that says who the rank is.
#define WHO_BYTES offsetof(struct jc_roster_slot, blocks)

static_assert(sizeof(struct jc_roster_head) == 256, "the same in every version");
static_assert(sizeof(JC_VERSION) <= sizeof(((struct jc_roster_head *) NULL)->version), "");
static_assert(sizeof(((struct jc_roster_head *) NULL)->refusal) == JC_ROSTER_REFUSAL_SIZE, "");
static_assert(sizeof(((struct jc_roster_slot *) NULL)->host) == JC_ROSTER_HOST_SIZE, "");
static_assert(sizeof(atomic_uint_fast64_t) == 8, "a word is of one layout everywhere");
static_assert(ATOMIC_LONG_LOCK_FREE == 2, "other processes do not have our locks");

static off_t rank_byte(unsigned rank)
{
    return 1 + (off_t) rank;
}

// --- texts in shared memory ----------------------------------------------------------------------

// Whatever another process has made of a text, it ends and can be shown.
static void tame(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
}

static void read_text(const atomic_uint_fast64_t from[8], char text[64])
{
    for (unsigned i = 0; i < 8; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_acquire);
        memcpy(text + 8 * i, &word, sizeof(word));
    }
    tame(text, 64);
}

static void write_text(atomic_uint_fast64_t to[8], const char text[64])
{
    for (unsigned i = 0; i < 8; i++) {
        uint64_t word;
        memcpy(&word, text + 8 * i, sizeof(word));
        atomic_store_explicit(&to[i], word, memory_order_release);
    }
}

void jc_roster_refusal(const struct jc_roster *roster, char text[JC_ROSTER_REFUSAL_SIZE])
{
    read_text(roster->head->refusal, text);
}

void jc_roster_process(const struct jc_roster_slot *slot, struct jc_process *process,
                       char host[JC_ROSTER_HOST_SIZE])
{
    *process = (struct jc_process){
        .pid = atomic_load_explicit(&slot->pid, memory_order_acquire),
        .pid_namespace = atomic_load_explicit(&slot->pid_namespace, memory_order_acquire),
        .time_namespace = atomic_load_explicit(&slot->time_namespace, memory_order_acquire),
        .start = atomic_load_explicit(&slot->start, memory_order_acquire),
    };
    read_text(slot->host, host);
}

// --- the folder ----------------------------------------------------------------------------------

static enum jc_result fail_dir(const char *dir, const char *why, struct jc_error *error)
{
    return jc_fail(error, JC_ERROR_IO, "jc_group_params: dir: %s: %s", dir, why);
}

static enum jc_result open_dir(struct jc_roster *roster, const char *dir, struct jc_error *error)
{
    struct stat stat;
    roster->folder = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (roster->folder < 0) {
        bool is_link = lstat(dir, &stat) == 0 && S_ISLNK(stat.st_mode);
        return fail_dir(dir, is_link           ? "a symbolic link; name the folder that it leads to"
                             : errno == ENOENT ? "there is no such folder; make it before the ranks"
                                                 " start"
                                               : strerror(errno), error);
    }
    if (fstat(roster->folder, &stat) != 0)
        return fail_dir(dir, strerror(errno), error);
    if (!jc_folder_trusts(&stat, false))
        return fail_dir(dir, "it belongs to another user, or others can write it; name a folder of"
                        " your own", error);
    return JC_OK;
}

// The folder that statistics are published in, where that is not said otherwise.
static enum jc_result open_default(struct jc_roster *roster, char **path, struct jc_error *error)
{
    struct jc_bulletins bulletins;
    if (jc_bulletins_open(&bulletins, NULL, roster->cache, true) != JC_OK)
        return jc_fail_memory(error);
    if (bulletins.fd < 0)
        // Not what it advises, which is for statistics.
        return jc_fail(error, JC_ERROR_IO, "there is no folder for the group's file: %.*s; name one"
                       " in jc_group_params: dir", (int) strcspn(bulletins.reason, ";"),
                       bulletins.reason);
    roster->folder = bulletins.fd;
    *path = bulletins.path;
    return JC_OK;
}

static enum jc_result open_folder(struct jc_roster *roster, const struct jc_group_params *params,
                                  struct jc_error *error)
{
    char *found = NULL;
    struct statfs fs;
    enum jc_result result = params->dir ? open_dir(roster, params->dir, error)
                                        : open_default(roster, &found, error);
    const char *folder = params->dir ? params->dir : found;
    if (result == JC_OK && fstatfs(roster->folder, &fs) == 0
        && jc_folder_is_network((unsigned long) fs.f_type))
        result = jc_fail(error, JC_ERROR_IO, "%s is on a network file system, where ranks share no"
                         " memory; name a folder of this host in jc_group_params: dir", folder);
    if (result == JC_OK
        && asprintf(&roster->path, "%s/%s" SUFFIX, folder, params->name) < 0) {
        roster->path = NULL;
        result = jc_fail_memory(error);
    }
    if (result == JC_OK)
        roster->name = roster->path + strlen(folder) + 1;
    free(found);
    return result;
}

// --- a file --------------------------------------------------------------------------------------

struct opening {
    int folder;
    const char *name;
    int flags;
};

static int open_file(void *user)
{
    const struct opening *opening = user;
    struct stat stat;
    // O_NONBLOCK: a FIFO of that name must not hang us.
    int fd = openat(opening->folder, opening->name,
                    opening->flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0)
        return fd;
    int status = fstat(fd, &stat) != 0                                     ? errno
                 : S_ISREG(stat.st_mode) && jc_folder_trusts(&stat, false) ? 0
                                                                           : EPERM;
    if (status == 0)
        return fd;
    close(fd);
    errno = status;
    return -1;
}

// Whether the file is the one of that name. 0: it is; ESTALE: it is not; or another errno.
static int check_place(int folder, const char *name, int fd)
{
    struct stat opened, found;
    if (fstat(fd, &opened) != 0)
        return errno;
    if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? ESTALE : errno;
    return opened.st_dev == found.st_dev && opened.st_ino == found.st_ino ? 0 : ESTALE;
}

bool jc_roster_is_in_place(const struct jc_roster *roster)
{
    return check_place(roster->folder, roster->name, roster->fd) == 0;
}

// 0, or an errno; EAGAIN: another has had it all the time.
static int lock_gate(int fd, uint64_t until_ns)
{
    const struct timespec step = {.tv_nsec = GATE_STEP_NS};
    int status;
    while ((status = jc_lock_byte(fd, GATE, F_WRLCK)) == EAGAIN && jc_now_ns() < until_ns)
        nanosleep(&step, NULL);
    return status;
}

// 0, or an errno; ENODATA: there is not that much of it.
static int read_part(int fd, void *part, size_t size, off_t at)
{
    ssize_t length;
    do
        length = pread(fd, part, size, at);
    while (length < 0 && errno == EINTR);
    return length < 0 ? errno : (size_t) length == size ? 0 : ENODATA;
}

// What is not there of it is zero.
static int read_head(int fd, struct jc_roster_head *head)
{
    memset(head, 0, sizeof(*head));
    int status = read_part(fd, head, sizeof(*head), 0);
    return status == ENODATA ? 0 : status;
}

// Whether its slots are as they are here, and all there.
static bool has_our_layout(int fd, const struct jc_roster_head *head)
{
    struct stat stat;
    return head->format == JC_ROSTER_FORMAT && head->ranks >= 1 && head->ranks <= JC_MAX_RANKS
           && head->bytes == FILE_BYTES(head->ranks) && fstat(fd, &stat) == 0
           && (uint64_t) stat.st_size >= head->bytes;
}

// A slot of a file that is not mapped, but for its blocks.
static bool read_who(int fd, const struct jc_roster_head *head, unsigned rank,
                     struct jc_roster_slot *who)
{
    off_t at = (off_t) (SLOTS_AT(head->ranks) + rank * sizeof(struct jc_roster_slot));
    return has_our_layout(fd, head) && rank < head->ranks
           && read_part(fd, who, WHO_BYTES, at) == 0;
}

// A lock that a leftover child of a rank's process holds is no sign of life.
static bool has_ended(const struct jc_roster *roster, int fd, const struct jc_roster_head *head,
                      unsigned rank)
{
    struct jc_roster_slot who;
    struct jc_process process;
    char host[JC_ROSTER_HOST_SIZE];
    if (!read_who(fd, head, rank, &who))
        return false;
    jc_roster_process(&who, &process, host);
    return jc_process_has_ended(&process, &roster->self);
}

// The first rank that is alive; -1: none. In a file of another layout all that are locked are.
static int first_alive(const struct jc_roster *roster, int fd, const struct jc_roster_head *head)
{
    if (!jc_is_locked(fd, rank_byte(0), JC_MAX_RANKS))
        return -1;
    for (unsigned rank = 0; rank < JC_MAX_RANKS; rank++) {
        if (jc_is_locked(fd, rank_byte(rank), 1) && !has_ended(roster, fd, head, rank))
            return (int) rank;
    }
    return -1;
}

// The first rank that has joined, and has died rather than left; -1: none.
static int first_dead(const struct jc_roster *roster, int fd, const struct jc_roster_head *head)
{
    struct jc_roster_slot who;
    struct jc_process process;
    char host[JC_ROSTER_HOST_SIZE];
    for (unsigned rank = 0; read_who(fd, head, rank, &who); rank++) {
        enum jc_presence presence =
            JC_WORD_PRESENCE(atomic_load_explicit(&who.word, memory_order_acquire));
        if (presence == JC_PRESENCE_ABSENT || presence == JC_PRESENCE_LEFT)
            continue;
        jc_roster_process(&who, &process, host);
        if (!jc_is_locked(fd, rank_byte(rank), 1)
            || jc_process_has_ended(&process, &roster->self))
            return (int) rank;
    }
    return -1;
}

static void close_file(struct jc_roster *roster)
{
    jc_flight_end(roster->cache, roster->fd);
    roster->fd = -1;
}

// --- removing what others left -------------------------------------------------------------------

static void sweep_one(const struct jc_roster *roster, const char *name)
{
    struct opening opening = {roster->folder, name, 0};
    struct jc_roster_head head;
    int fd = jc_flight_note(roster->cache, open_file, &opening);
    if (fd < 0)
        return;
    if (jc_lock_byte(fd, GATE, F_WRLCK) == 0) {
        if (check_place(roster->folder, name, fd) == 0 && read_head(fd, &head) == 0
            && memcmp(head.magic, JC_ROSTER_MAGIC, sizeof(head.magic)) == 0
            && first_alive(roster, fd, &head) < 0)
            unlinkat(roster->folder, name, 0);
        jc_lock_byte(fd, GATE, F_UNLCK);
    }
    jc_flight_end(roster->cache, fd);
}

// A job that crashed, and does not come again under its name, would leave its memory for good.
static void sweep(const struct jc_roster *roster)
{
    int fd = openat(roster->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name);
        if (length > strlen(SUFFIX) && strcmp(entry->d_name, roster->name) != 0
            && strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX) == 0)
            sweep_one(roster, entry->d_name);
    }
    closedir(folder);
}

// --- joining -------------------------------------------------------------------------------------

enum attempt {
    JOINED,
    AGAIN,  // the file was another one by now: at once
    LATER,  // when others have ended; result and error are for when they do not
    REFUSED // result and error say why
};

struct joining {
    struct jc_roster *roster;
    char launch[JC_ROSTER_LAUNCH_SIZE];
    bool is_new; // the file, which this process has created
    uint64_t until_ns;
    bool has_told; // left a refusal, which is not true any more if it joins after all
    enum jc_result result;
    struct jc_error *error;
};

#define refuse(joining, code, ...) \
    ((joining)->result = jc_fail((joining)->error, code, __VA_ARGS__), REFUSED)
#define put_off(joining, code, ...) \
    ((joining)->result = jc_fail((joining)->error, code, __VA_ARGS__), LATER)

static enum attempt refuse_errno(struct joining *joining, int status)
{
    const char *path = joining->roster->path;
    if (status == ENOMEM)
        return refuse(joining, JC_ERROR_OUT_OF_MEMORY, "out of memory");
    if (status == ELOOP || status == EPERM)
        return refuse(joining, JC_ERROR_IO, "%s: a link, no file, or one that others can write;"
                      " remove it", path);
    return refuse(joining, JC_ERROR_IO, "%s: %s", path, strerror(status));
}

// "process 12 on HOST", of a rank in the file.
static void name_process(const struct jc_roster *roster, const struct jc_roster_head *head,
                         unsigned rank, char text[128])
{
    struct jc_roster_slot who;
    struct jc_process process;
    char host[JC_ROSTER_HOST_SIZE];
    snprintf(text, 128, "a process of another version");
    if (!read_who(roster->fd, head, rank, &who))
        return;
    jc_roster_process(&who, &process, host);
    snprintf(text, 128, "process %" PRIu64 " on %s", process.pid, host);
}

// Tells those who wait for this rank why it does not come; NULL: no more of that. With the gate
// held.
static void leave_refusal(const struct jc_roster *roster, const char *why)
{
    struct jc_roster_head head = {0};
    char text[JC_ROSTER_REFUSAL_SIZE] = "";
    const off_t at = offsetof(struct jc_roster_head, refusal);
    if (why)
        snprintf(text, sizeof(text), "rank %u, process %d: %.24s", roster->rank, (int) getpid(),
                 why);
    write_text(head.refusal, text);
    if (jc_file_limit() >= sizeof(head)
        && pwrite(roster->fd, head.refusal, sizeof(head.refusal), at) < 0)
        return; // they are told less
}

static enum attempt refuse_other(struct joining *joining, const struct jc_roster_head *head)
{
    const struct jc_roster *roster = joining->roster;
    char why[JC_ROSTER_REFUSAL_SIZE], version[sizeof(head->version)];
    memcpy(version, head->version, sizeof(version));
    tame(version, sizeof(version));
    bool same_version = strcmp(version, JC_VERSION) == 0 && head->format == JC_ROSTER_FORMAT;
    if (!same_version)
        snprintf(why, sizeof(why), "jitcache %s", JC_VERSION);
    else if (head->ranks != roster->ranks)
        snprintf(why, sizeof(why), "%u ranks", roster->ranks);
    else
        snprintf(why, sizeof(why), "another build");
    leave_refusal(roster, why);
    if (!same_version)
        return refuse(joining, JC_ERROR_MISMATCH, "%s: the group was begun by version %s of"
                      " jitcache (format %u), and rank %u has %s (format %u): all ranks need the"
                      " same", roster->path, version, head->format, roster->rank, JC_VERSION,
                      JC_ROSTER_FORMAT);
    if (head->ranks != roster->ranks)
        return refuse(joining, JC_ERROR_MISMATCH, "%s: the group was begun with %u ranks, and rank"
                      " %u says %u: give all the same, and each job a name of its own",
                      roster->path, head->ranks, roster->rank, roster->ranks);
    return refuse(joining, JC_ERROR_MISMATCH, "%s: the group was begun by another build of jitcache"
                  " %s: all ranks need the same", roster->path, JC_VERSION);
}

static enum attempt wait_for_cut_off(struct joining *joining, unsigned alive)
{
    return put_off(joining, JC_ERROR_NOT_READY, "%s was cut off while rank %u, for one, uses it;"
                   " end all ranks, and start them anew", joining->roster->path, alive);
}

static enum attempt wait_for_other_launch(struct joining *joining,
                                          const struct jc_roster_head *head, unsigned alive)
{
    const struct jc_roster *roster = joining->roster;
    char process[128];
    leave_refusal(roster, "another launch");
    joining->has_told = true;
    name_process(roster, head, alive, process);
    return put_off(joining, JC_ERROR_NOT_READY, "%s: ranks of another launch of that job still run:"
                   " rank %u, %s; end them; where they are of this job, give all its ranks the same"
                   " in jc_group_params: launch", roster->path, alive, process);
}

// Where one of them died before all had come.
static enum attempt wait_beside_dead(struct joining *joining, const struct jc_roster_head *head,
                                     unsigned dead, unsigned alive)
{
    const struct jc_roster *roster = joining->roster;
    char of_dead[128], of_alive[128];
    name_process(roster, head, dead, of_dead);
    name_process(roster, head, alive, of_alive);
    return put_off(joining, JC_ERROR_NOT_READY, "%s: rank %u of it died, %s, and rank %u, %s, still"
                   " runs; end the others too, and start all ranks anew", roster->path, dead,
                   of_dead, alive, of_alive);
}

static enum attempt wait_for_earlier(struct joining *joining, const struct jc_roster_head *head,
                                     unsigned alive)
{
    const struct jc_roster *roster = joining->roster;
    struct jc_roster_slot who;
    char process[128];
    name_process(roster, head, alive, process);
    if (read_who(roster->fd, head, roster->rank, &who)
        && JC_WORD_LOSS(atomic_load_explicit(&who.word, memory_order_acquire)) == JC_LOSS_NO_SHOW)
        return put_off(joining, JC_ERROR_NOT_READY, "%s: rank %u comes too late: the others have"
                       " given it up, and rank %u of them, %s, still runs; end them, and start all"
                       " ranks anew", roster->path, roster->rank, alive, process);
    return put_off(joining, JC_ERROR_NOT_READY, "%s: ranks of an earlier job of that name still"
                   " run: rank %u, %s; end them, or give this job another name", roster->path,
                   alive, process);
}

// Makes it a group's file, in which nobody is yet.
static enum attempt begin(struct joining *joining)
{
    const struct jc_roster *roster = joining->roster;
    const size_t bytes = FILE_BYTES(roster->ranks);
    struct jc_roster_head head = {
        .magic = JC_ROSTER_MAGIC, .format = JC_ROSTER_FORMAT, .ranks = roster->ranks,
        .version = JC_VERSION, .bytes = bytes, .state = JC_ROSTER_GATHERING,
    };
    memcpy(head.launch, joining->launch, sizeof(head.launch));
    int status = jc_file_limit() < bytes ? EFBIG : 0;
    ssize_t written = status == 0 ? pwrite(roster->fd, &head, sizeof(head), 0) : 0;
    if (status == 0 && written != (ssize_t) sizeof(head))
        status = written < 0 ? errno : ENOSPC;
    // All of it is there from now on: a page that could not be had later would end the process.
    while (status == 0 && (status = posix_fallocate(roster->fd, 0, (off_t) bytes)) == EINTR)
        status = jc_now_ns() < joining->until_ns ? 0 : EINTR;
    if (status == 0) {
        sweep(roster);
        return JOINED;
    }
    return refuse(joining, JC_ERROR_IO, "%s: %s: a group of %u ranks needs a file of %zu bytes;%s"
                  " name a folder with more room in jc_group_params: dir", roster->path,
                  strerror(status), roster->ranks, bytes,
                  status == EFBIG ? " raise ulimit -f, or" : " make room, or");
}

// Whether this rank may sit down among ranks that are alive.
static enum attempt judge_group(struct joining *joining, const struct jc_roster_head *head,
                                unsigned alive)
{
    const struct jc_roster *roster = joining->roster;
    if (atomic_load_explicit(&head->state, memory_order_acquire) != JC_ROSTER_GATHERING)
        return wait_for_earlier(joining, head, alive);
    if (memcmp(head->launch, joining->launch, sizeof(head->launch)) != 0)
        return wait_for_other_launch(joining, head, alive);
    int dead = first_dead(roster, roster->fd, head);
    if (dead >= 0)
        return wait_beside_dead(joining, head, (unsigned) dead, alive);
    if (head->format != JC_ROSTER_FORMAT || head->ranks != roster->ranks
        || head->bytes != FILE_BYTES(roster->ranks)
        || strncmp(head->version, JC_VERSION, sizeof(head->version)) != 0)
        return refuse_other(joining, head);
    return has_our_layout(roster->fd, head) ? JOINED : wait_for_cut_off(joining, alive);
}

// What to make of a file that is there, with the gate held.
static enum attempt judge(struct joining *joining)
{
    static const char nothing[8];
    const struct jc_roster *roster = joining->roster;
    struct jc_roster_head head;
    int status = read_head(roster->fd, &head);
    if (status != 0)
        return refuse_errno(joining, status);
    // Nobody has begun it, it was lost in a power failure, or somebody has emptied it.
    bool is_empty = memcmp(head.magic, nothing, sizeof(head.magic)) == 0;
    if (!is_empty && memcmp(head.magic, JC_ROSTER_MAGIC, sizeof(head.magic)) != 0)
        return refuse(joining, JC_ERROR_IO, "%s is no group's file; remove it, or name another"
                      " folder in jc_group_params: dir", roster->path);
    int alive = first_alive(roster, roster->fd, &head);
    if (alive >= 0)
        return is_empty ? wait_for_cut_off(joining, (unsigned) alive)
                        : judge_group(joining, &head, (unsigned) alive);
    if (unlinkat(roster->folder, roster->name, 0) != 0)
        return refuse_errno(joining, errno);
    return AGAIN;
}

// The rank's lock is another's. One that has ended has just been looked for.
static enum attempt wait_for_rank(struct joining *joining)
{
    const struct jc_roster *roster = joining->roster;
    struct jc_roster_head head;
    char process[128];
    int status = read_head(roster->fd, &head);
    if (status != 0)
        return refuse_errno(joining, status);
    name_process(roster, &head, roster->rank, process);
    leave_refusal(roster, "the rank is taken");
    joining->has_told = true;
    return put_off(joining, JC_ERROR_INVALID_ARGUMENT, "jc_group_params: rank: %u is taken, by %s;"
                   " give each rank a number of its own, and each job a name of its own",
                   roster->rank, process);
}

// The child of a fork gets memory of its own in the place of what is shared: all that it can read
// there then is that there is nothing to do.
static void forked(void *user)
{
    struct jc_roster *roster = user;
    mmap(roster->head, FILE_BYTES(roster->ranks), PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void stay(void *user)
{
    (void) user;
}

static bool map(struct jc_roster *roster)
{
    char *memory = mmap(NULL, FILE_BYTES(roster->ranks), PROT_READ | PROT_WRITE, MAP_SHARED,
                        roster->fd, 0);
    if (memory == MAP_FAILED)
        return false;
    roster->head = (struct jc_roster_head *) memory;
    roster->board = (struct jc_board *) (memory + sizeof(struct jc_roster_head));
    roster->slots = (struct jc_roster_slot *) (memory + SLOTS_AT(roster->ranks));
    roster->guest = (struct jc_fork_guest){stay, stay, forked, roster, NULL, NULL};
    jc_fork_join(&roster->guest);
    return true;
}

static void unmap(struct jc_roster *roster)
{
    if (!roster->head)
        return;
    jc_fork_leave(&roster->guest);
    munmap(roster->head, FILE_BYTES(roster->ranks));
    roster->head = NULL;
}

// Says in the slot who the rank is. False: it was declared lost; or was there before, and has given
// to rounds, which the others remember.
static bool sit_down(struct jc_roster *roster)
{
    struct jc_roster_slot *slot = &roster->slots[roster->rank];
    char host[JC_ROSTER_HOST_SIZE] = "";
    uint64_t joining, word = atomic_load_explicit(&slot->word, memory_order_acquire);
    do {
        if (JC_WORD_LOSS(word) != JC_LOSS_NONE || JC_WORD_ROUNDS(word) > 0)
            return false;
        joining = ((word & ~UINT64_C(3)) | JC_PRESENCE_JOINING) + JC_WORD_JOIN;
        // Whoever reads the process of the one before, and finds that it has ended, cannot declare
        // this one lost for it: the word is another.
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, joining,
                                                    memory_order_acq_rel, memory_order_acquire));
    const struct jc_process *self = &roster->self;
    atomic_store_explicit(&slot->pid, self->pid, memory_order_release);
    atomic_store_explicit(&slot->pid_namespace, self->pid_namespace, memory_order_release);
    atomic_store_explicit(&slot->time_namespace, self->time_namespace, memory_order_release);
    atomic_store_explicit(&slot->start, self->start, memory_order_release);
    gethostname(host, sizeof(host) - 1);
    write_text(slot->host, host);
    word = (joining & ~UINT64_C(3)) | JC_PRESENCE_JOINED;
    return atomic_compare_exchange_strong_explicit(&slot->word, &joining, word,
                                                   memory_order_acq_rel, memory_order_acquire);
}

static bool are_all_there(const struct jc_roster *roster)
{
    for (unsigned i = 0; i < roster->ranks; i++) {
        uint64_t word = atomic_load_explicit(&roster->slots[i].word, memory_order_acquire);
        if (JC_WORD_PRESENCE(word) != JC_PRESENCE_JOINED)
            return false;
    }
    return true;
}

// With the gate held, so that of two who join last one sees the other.
static void note_together(struct jc_roster *roster)
{
    uint64_t gathering = JC_ROSTER_GATHERING;
    if (are_all_there(roster))
        atomic_compare_exchange_strong_explicit(&roster->head->state, &gathering,
                                                JC_ROSTER_TOGETHER, memory_order_acq_rel,
                                                memory_order_acquire);
}

static enum attempt take_seat(struct joining *joining)
{
    struct jc_roster *roster = joining->roster;
    enum attempt attempt;
    int status = jc_lock_byte(roster->fd, rank_byte(roster->rank), F_WRLCK);
    if (status == EAGAIN)
        return wait_for_rank(joining);
    if (status != 0)
        return refuse_errno(joining, status);
    if (!map(roster)) {
        attempt = refuse_errno(joining, errno);
    } else if (!sit_down(roster)) {
        attempt = put_off(joining, JC_ERROR_NOT_READY, "%s: rank %u was in the group before, or"
                          " comes too late, and the others have not ended yet; end them, and start"
                          " all ranks anew", roster->path, roster->rank);
        unmap(roster);
    } else {
        note_together(roster);
        if (joining->has_told)
            leave_refusal(roster, NULL);
        return JOINED;
    }
    jc_lock_byte(roster->fd, rank_byte(roster->rank), F_UNLCK);
    return attempt;
}

static enum attempt enter(struct joining *joining)
{
    struct jc_roster *roster = joining->roster;
    int status = check_place(roster->folder, roster->name, roster->fd);
    if (status != 0)
        return status == ESTALE ? AGAIN : refuse_errno(joining, status);
    enum attempt attempt = joining->is_new ? begin(joining) : judge(joining);
    if (attempt == JOINED)
        attempt = take_seat(joining);
    if (attempt != JOINED && joining->is_new)
        unlinkat(roster->folder, roster->name, 0);
    return attempt;
}

// Opens the file, or creates it. Who comes to one that was created, and has the gate before its
// creator has, takes it for one that was left, and removes it; the creator then makes another.
static enum attempt open_or_create(struct joining *joining)
{
    struct jc_roster *roster = joining->roster;
    struct opening opening = {roster->folder, roster->name, O_CREAT | O_EXCL};
    roster->fd = jc_flight_note(roster->cache, open_file, &opening);
    joining->is_new = roster->fd >= 0;
    if (roster->fd < 0 && errno == EEXIST) {
        opening.flags = 0;
        roster->fd = jc_flight_note(roster->cache, open_file, &opening);
        if (roster->fd < 0 && errno == ENOENT)
            return AGAIN; // it was removed between the two
    }
    return roster->fd < 0 ? refuse_errno(joining, errno) : JOINED;
}

static enum attempt try_to_join(struct joining *joining)
{
    struct jc_roster *roster = joining->roster;
    enum attempt attempt = open_or_create(joining);
    if (attempt != JOINED)
        return attempt;
    int status = lock_gate(roster->fd, joining->until_ns);
    if (status == 0) {
        attempt = enter(joining);
        jc_lock_byte(roster->fd, GATE, F_UNLCK);
    } else if (status == EAGAIN) {
        attempt = put_off(joining, JC_ERROR_NOT_READY, "%s: a process that is joining, or leaving,"
                          " does not go on; end it, or remove the file, and start all ranks anew",
                          roster->path);
    } else {
        attempt = refuse_errno(joining, status);
    }
    if (attempt != JOINED)
        close_file(roster);
    return attempt;
}

static enum jc_result join(struct jc_roster *roster, const char *launch, struct jc_error *error)
{
    const struct timespec step = {.tv_nsec = LATER_STEP_NS};
    struct joining joining = {
        .roster = roster, .until_ns = jc_now_ns() + JC_HOST_GRACE_NS, .error = error,
    };
    if (launch)
        memcpy(joining.launch, launch, strnlen(launch, sizeof(joining.launch)));
    for (;;) {
        enum attempt attempt = try_to_join(&joining);
        bool late = jc_now_ns() >= joining.until_ns;
        if (attempt == JOINED)
            return JC_OK;
        if (attempt == REFUSED || (attempt == LATER && late))
            return joining.result;
        if (late)
            return jc_fail(error, JC_ERROR_IO, "%s: it is removed again and again; look what does"
                           " that, or name another folder in jc_group_params: dir", roster->path);
        if (attempt == LATER)
            nanosleep(&step, NULL);
    }
}

enum jc_result jc_roster_join(struct jc_roster *roster, struct jc_cache *cache,
                              const struct jc_group_params *params, struct jc_error *error)
{
    *roster = (struct jc_roster){
        .cache = cache, .folder = -1, .fd = -1, .owner = getpid(), .rank = params->rank,
        .ranks = params->ranks,
    };
    jc_process_self(&roster->self);
    enum jc_result result = open_folder(roster, params, error);
    if (result == JC_OK)
        result = join(roster, params->launch, error);
    if (result != JC_OK)
        jc_roster_leave(roster);
    return result;
}

// --- leaving -------------------------------------------------------------------------------------

bool jc_roster_is_ours(const struct jc_roster *roster)
{
    return getpid() == roster->owner;
}

static void stand_up(struct jc_roster *roster)
{
    struct jc_roster_slot *slot = &roster->slots[roster->rank];
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word | JC_PRESENCE_LEFT,
                                                  memory_order_acq_rel, memory_order_acquire))
        ;
    // A child that is being forked may have the lock's descriptor for a moment more.
    jc_lock_byte(roster->fd, rank_byte(roster->rank), F_UNLCK);
}

static void remove_if_last(const struct jc_roster *roster)
{
    struct jc_roster_head head;
    if (lock_gate(roster->fd, jc_now_ns() + LEAVE_WAIT_NS) != 0)
        return;
    if (jc_roster_is_in_place(roster) && read_head(roster->fd, &head) == 0
        && first_alive(roster, roster->fd, &head) < 0)
        unlinkat(roster->folder, roster->name, 0);
    jc_lock_byte(roster->fd, GATE, F_UNLCK);
}

void jc_roster_leave(struct jc_roster *roster)
{
    if (roster->head && jc_roster_is_ours(roster)) {
        stand_up(roster);
        remove_if_last(roster);
    }
    unmap(roster);
    close_file(roster);
    if (roster->folder >= 0)
        close(roster->folder);
    free(roster->path);
    *roster = (struct jc_roster){.folder = -1, .fd = -1};
}

// --- signs of life -------------------------------------------------------------------------------

bool jc_roster_is_alive(const struct jc_roster *roster, unsigned rank)
{
    struct jc_process process;
    char host[JC_ROSTER_HOST_SIZE];
    // The kernel does not tell of a lock of one's own.
    if (rank == roster->rank)
        return true;
    jc_roster_process(&roster->slots[rank], &process, host);
    return jc_is_locked(roster->fd, rank_byte(rank), 1)
           && !jc_process_has_ended(&process, &roster->self);
}
