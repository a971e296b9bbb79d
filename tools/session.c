#include "session.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"
#include "output.h"

struct held_line {
    enum jc_log_level level;
    char *text;
};

// One for the process, since a context may log until its end.
static struct held_log {
    pthread_mutex_t lock; // for the lines: the library logs from a thread of its own too
    struct held_line *lines;
    size_t num_lines;
    bool hold;        // of the main thread
    pthread_t writer; // the main thread, which alone writes; set before there are others
} held_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *level_name(enum jc_log_level level)
{
    switch (level) {
    case JC_LOG_ERROR:
        return "error";
    case JC_LOG_WARNING:
        return "warning";
    case JC_LOG_DEBUG:
        return "debug";
    case JC_LOG_INFO:
    case JC_LOG_NONE:
        break;
    }
    return "info";
}

static void write_line(void *user, enum jc_log_level level, const char *line)
{
    struct held_log *held = user;
    if (pthread_equal(pthread_self(), held->writer) && (!held->hold || level > JC_LOG_WARNING)) {
        jc_remark(level_name(level), line);
        return;
    }
    pthread_mutex_lock(&held->lock);
    held->lines = jc_grow(held->lines, held->num_lines, sizeof(*held->lines));
    held->lines[held->num_lines++] = (struct held_line){level, jc_copy_text(line, strlen(line))};
    pthread_mutex_unlock(&held->lock);
}

void jc_session_hold(void)
{
    held_log.hold = true;
}

// Shows the lines held back, but for those that say `known`. Of what was not held for the sake of
// its level, all.
static void release_lines(bool show, const char *known)
{
    pthread_mutex_lock(&held_log.lock);
    struct held_line *lines = held_log.lines;
    size_t num_lines = held_log.num_lines;
    held_log.lines = NULL;
    held_log.num_lines = 0;
    pthread_mutex_unlock(&held_log.lock);
    held_log.hold = false;
    for (size_t i = 0; i < num_lines; i++) {
        bool is_known = *known && strstr(lines[i].text, known);
        if (lines[i].level > JC_LOG_WARNING || (show && !is_known))
            jc_remark(level_name(lines[i].level), lines[i].text);
        free(lines[i].text);
    }
    free(lines);
}

void jc_session_release(bool show)
{
    release_lines(show, "");
}

char *jc_session_reword(const char *text)
{
    static const char *const words[][2] = { // the second is the shorter one
        {"the parameter nvrtc", "--nvrtc"},
        {"`retry` (--retry)", "--retry"},
    };
    char *reworded = jc_copy_text(text, strlen(text));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *from = words[i][0], *to = words[i][1];
        for (char *found = reworded; (found = strstr(found, from)); found += strlen(to)) {
            const char *rest = found + strlen(from);
            memcpy(found, to, strlen(to));
            memmove(found + strlen(to), rest, strlen(rest) + 1);
        }
    }
    return reworded;
}

int jc_session_complain(const char *text)
{
    char *reworded = jc_session_reword(text);
    int status = jc_complain("%s", reworded);
    free(reworded);
    return status;
}

static bool is_absent(const char *dir)
{
    struct stat status;
    return dir && lstat(dir, &status) != 0 && errno == ENOENT;
}

bool jc_session_is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && strcmp(value, "1") == 0;
}

unsigned jc_session_base_asked(void)
{
    const char *base = getenv("JITCACHE_BASE");
    unsigned asked = 0;
    for (size_t size; base && *base; base += size + (base[size] == ':')) {
        size = strcspn(base, ":");
        asked += size > 0;
    }
    return asked;
}

static int check_state(struct jc_session *session, enum jc_session_use use)
{
    const struct jc_cache_info *info = &session->info;
    session->absent = is_absent(info->dir) && info->base_segments == 0;
    if (use == JC_SESSION_LOOK)
        return JC_STATUS_DONE;
    if (jc_session_is_set("JITCACHE_DISABLE"))
        return jc_complain("the cache is switched off by JITCACHE_DISABLE=1; unset it");
    if (use == JC_SESSION_READ ? info->state != JC_CACHE_DISABLED || session->absent
                               : info->state == JC_CACHE_READ_WRITE)
        return JC_STATUS_DONE;
    if (use == JC_SESSION_WRITE && jc_session_is_set("JITCACHE_READONLY"))
        return jc_complain("the cache is only read because of JITCACHE_READONLY=1; unset it");
    return jc_complain("%s", *info->reason ? info->reason : "the cache cannot be used");
}

// A cache that is only looked at was opened to be read, which says nothing of what others can do.
static const char *name_state(const struct jc_session *session)
{
    if (session->absent)
        return "absent";
    if (session->info.state == JC_CACHE_DISABLED)
        return "off";
    if (session->info.state == JC_CACHE_READ_WRITE)
        return "read-write";
    bool writable = !jc_session_is_set("JITCACHE_READONLY") && session->info.dir &&
                    access(session->info.dir, W_OK) == 0;
    return writable ? "read-write" : "read-only";
}

int jc_session_open(struct jc_session *session, const struct jc_common *common,
                    enum jc_session_use use, const struct jc_context_params *params)
{
    bool held = held_log.hold; // then the caller releases
    held_log.writer = pthread_self();
    jc_session_hold();
    enum jc_log_level level = common->verbosity > 1 ? JC_LOG_DEBUG
                              : common->verbosity   ? JC_LOG_INFO
                                                    : JC_LOG_WARNING;
    struct jc_log log = {.write = write_line, .user = &held_log, .level = level};
    struct jc_error error;
    *session = (struct jc_session){0};
    unsetenv("JITCACHE_RECORD"); // the command launches nothing, so it has nothing to record
    enum jc_result result = jc_context_create(
        jc_context_params(.dir = common->dir, .nvrtc = params ? params->nvrtc : NULL,
                          .worker = params ? params->worker : NULL,
                          .max_workers = params ? params->max_workers : 0,
                          .compile_timeout_ns = params ? params->compile_timeout_ns : 0,
                          .read_only = use != JC_SESSION_WRITE, .verify = true,
                          .search = use == JC_SESSION_LOOK, .log = &log),
        &session->context, &error);
    int status;
    if (result) {
        status = jc_session_complain(error.text);
    } else {
        session->cache = jc_context_cache(session->context);
        jc_cache_info(session->cache, &session->info);
        status = check_state(session, use);
        session->state = name_state(session);
    }
    // That a folder does not exist yet is no news to anybody, nor is its state to those who tell
    // it; a base segment that is not used is.
    const char *known = session->absent || use == JC_SESSION_LOOK ? session->info.reason : "";
    if (!held || status)
        release_lines(status == JC_STATUS_DONE, known);
    return status;
}

void jc_session_close(struct jc_session *session)
{
    jc_context_destroy(&session->context);
    if (!held_log.hold)
        jc_session_release(true);
    *session = (struct jc_session){0};
}
