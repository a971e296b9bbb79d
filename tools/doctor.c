// `jitcache doctor`: whether everything that jitcache needs is there and works together.

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "disk.h"
#include "finding.h"
#include "guess.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include "units.h"

static const struct jc_option options_of_doctor[] = {
    {NULL, 0, NULL, NULL},
};

struct doctor {
    const struct jc_common *common;
    struct jc_findings findings;
    json_t *facts;
    struct jc_session session;
    char *base;                         // JITCACHE_BASE, or NULL
    struct jc_toolchain_info toolchain; // nvrtc is NULL where there is none
};

static void add_fact(struct doctor *doctor, const char *name, json_t *value)
{
    json_object_set_new(doctor->facts, name, value);
}

static json_t *json_or_null(const char *text)
{
    return text ? jc_json_text(text) : json_null();
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

// --- environment ---------------------------------------------------------------------------------

static const char *const variables[] = {
    "JITCACHE_DIR",   "JITCACHE_BASE",   "JITCACHE_DISABLE", "JITCACHE_READONLY",
    "JITCACHE_TRUST", "JITCACHE_NVRTC",  "JITCACHE_WORKER",  "JITCACHE_LOG",
    "JITCACHE_JOBS",  "JITCACHE_MAX_BYTES", "JITCACHE_COMPILE_TIMEOUT", "JITCACHE_COMPILE_BYTES",
    "JITCACHE_POLICY", "JITCACHE_SEAL", "JITCACHE_RECORD", "JITCACHE_STATS",
    "JITCACHE_SAMPLE", "JITCACHE_SYNC", "JITCACHE_NVTX",
};
#define NUM_VARIABLES (sizeof(variables) / sizeof(variables[0]))

static bool is_variable(const char *name)
{
    for (size_t i = 0; i < NUM_VARIABLES; i++)
        if (strcmp(name, variables[i]) == 0)
            return true;
    return false;
}

// One that nobody reads is most likely a mistake in typing.
static void doubt_variable(struct doctor *doctor, const char *name)
{
    const size_t prefix = strlen("JITCACHE_");
    struct jc_guess guess = {.typed = name + prefix};
    for (size_t i = 0; i < NUM_VARIABLES; i++)
        jc_guess_offer(&guess, variables[i] + prefix);
    if (guess.name)
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "environment",
                        "%s is set, which nothing reads; did you mean JITCACHE_%s?", name,
                        guess.name);
    else
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "environment",
                        "%s is set, which nothing reads; jitcache(1) lists what is read", name);
}

// A value that does not parse keeps a context from being made. It is told, and taken away, so that
// the rest can be looked at. False: that is not what is wrong.
static bool take_away(struct doctor *doctor, const char *text)
{
    for (size_t i = 0; i < NUM_VARIABLES; i++) {
        if (!strstr(text, variables[i]) || !getenv(variables[i]))
            continue;
        jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "environment", "%s", text);
        unsetenv(variables[i]);
        return true;
    }
    return false;
}

static void check_values(struct doctor *doctor)
{
    struct jc_error error;
    struct jc_context *context;
    enum jc_result result;
    do {
        result = jc_context_create(jc_context_params(.dir = doctor->common->dir,
                                                     .read_only = true), &context, &error);
        jc_context_destroy(&context);
    } while (result == JC_ERROR_INVALID_ARGUMENT && take_away(doctor, error.text));
}

// Whether an engine could record into a file: what a context would open, which is not done here.
static bool is_writable(const char *file)
{
    if (access(file, F_OK) == 0)
        return access(file, R_OK | W_OK) == 0;
    const char *slash = strrchr(file, '/');
    char *folder = slash ? jc_copy_text(file, (size_t) (slash + 1 - file)) : jc_copy_text(".", 1);
    bool writable = access(folder, W_OK | X_OK) == 0;
    free(folder);
    return writable;
}

// The command itself launches nothing, so it has nothing to record.
static void check_record(struct doctor *doctor)
{
    const char *file = variable("JITCACHE_RECORD");
    if (file && !is_writable(file))
        jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "environment", "JITCACHE_RECORD=%s"
                        " cannot be written: %s; no engine makes a context so; name a file in a"
                        " folder that it can write", file, strerror(errno));
    else if (file)
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "environment", "JITCACHE_RECORD=%s",
                        file);
    unsetenv("JITCACHE_RECORD");
}

static void tell_variable(struct doctor *doctor, const char *name, const char *value)
{
    if (is_variable(name) || strcmp(name, "NVRTC_APPEND_FLAGS") == 0)
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "environment", "%s=%s", name, value);
    else
        doubt_variable(doctor, name);
}

// What is set: as a fact, or told.
static void visit_environment(struct doctor *doctor, json_t *facts)
{
    for (char **entry = environ; *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        const char *value = *entry + length + ((*entry)[length] == '=');
        char *name = jc_copy_text(*entry, length);
        bool counts = strncmp(name, "JITCACHE_", strlen("JITCACHE_")) == 0
            || strcmp(name, "NVRTC_APPEND_FLAGS") == 0;
        if (counts && *value && facts)
            json_object_set_new(facts, name, jc_json_text(value));
        else if (counts && *value)
            tell_variable(doctor, name, value);
        free(name);
    }
}

static void check_environment(struct doctor *doctor)
{
    json_t *set = json_object();
    visit_environment(doctor, set);
    add_fact(doctor, "environment", set);
    check_record(doctor);
    check_values(doctor);
    visit_environment(doctor, NULL);
}

// --- compiler ------------------------------------------------------------------------------------

static void check_headers(struct doctor *doctor)
{
    const struct jc_toolchain_info *info = &doctor->toolchain;
    char version[32];
    snprintf(version, sizeof(version), "%d.%d", info->include_major, info->include_minor);
    add_fact(doctor, "headers", *info->include ? json_pack("{s:o, s:s}", "dir",
                                                           jc_json_text(info->include), "version",
                                                           version)
                                               : json_null());
    if (!*info->include)
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "headers",
                        "none of CUDA %d were found, and templates that include some will not"
                        " compile; install the toolkit's, or the Python package"
                        " nvidia-cuda-runtime in an active environment, or set CUDA_HOME",
                        info->major);
    else
        jc_findings_add(&doctor->findings,
                        info->include_minor == info->minor ? JC_FINDING_OK : JC_FINDING_WARNING,
                        "headers", "CUDA %s, %s%s", version, info->include,
                        info->include_minor == info->minor
                            ? "" : "; those of NVRTC's very version are better: install them");
}

static void tell_toolchain(struct doctor *doctor)
{
    const struct jc_toolchain_info *info = &doctor->toolchain;
    char version[32];
    json_t *archs = json_array();
    for (size_t i = 0; i < info->num_archs; i++)
        json_array_append_new(archs, jc_json_text(info->archs[i]));
    snprintf(version, sizeof(version), "%d.%d", info->major, info->minor);
    add_fact(doctor, "nvrtc",
             json_pack("{s:o, s:s, s:o, s:o, s:o}", "file", jc_json_text(info->nvrtc), "version",
                       version, "build", jc_json_text(info->build), "archs", archs, "tried",
                       jc_json_text(info->tried)));
    // The whole of it is in the JSON; this is enough to tell two apart.
    const char *plus = strchr(info->build, '+');
    jc_findings_add(&doctor->findings, JC_FINDING_OK, "nvrtc",
                    "%s, %s\nbuild %.12s, with builtins %.12s%s%s", version, info->nvrtc,
                    info->build, plus ? plus + 1 : "unknown",
                    doctor->common->verbosity ? "\ntried:\n" : "",
                    doctor->common->verbosity ? info->tried : "");
    check_headers(doctor);
    add_fact(doctor, "worker", json_pack("{s:o, s:s}", "file", jc_json_text(info->worker),
                                         "version", jc_version()));
    jc_findings_add(&doctor->findings, JC_FINDING_OK, "worker", "%s, %s", jc_version(),
                    info->worker);
}

static void check_toolchain(struct doctor *doctor)
{
    struct jc_error error;
    enum jc_result result =
        jc_context_toolchain(doctor->session.context, &doctor->toolchain, &error);
    if (result == JC_OK) {
        tell_toolchain(doctor);
        return;
    }
    doctor->toolchain = (struct jc_toolchain_info){0};
    add_fact(doctor, "nvrtc", json_null());
    add_fact(doctor, "headers", json_null());
    add_fact(doctor, "worker", json_null());
    if (result == JC_ERROR_TOOLCHAIN) {
        jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "nvrtc", "%s", error.text);
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "worker", "it runs, and found no NVRTC");
    } else {
        jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "worker", "%s", error.text);
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "nvrtc",
                        "not looked for: that is done by the worker");
    }
}

// --- driver --------------------------------------------------------------------------------------

// Code of one CUDA version runs on drivers that know its major version.
static void tell_driver(struct doctor *doctor, const struct jc_driver_info *info)
{
    const struct jc_toolchain_info *toolchain = &doctor->toolchain;
    int major = info->version / 1000, minor = info->version % 1000 / 10;
    bool too_old = toolchain->nvrtc && toolchain->major > major;
    char version[32];
    snprintf(version, sizeof(version), "%d.%d", major, minor);
    add_fact(doctor, "driver",
             json_pack("{s:o, s:s, s:b}", "file", jc_json_text(info->file), "version", version,
                       "runs_nvrtc", toolchain->nvrtc && !too_old));
    if (too_old)
        jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "driver",
                        "CUDA %s at most, %s; it does not run what NVRTC %d.%d compiles: update"
                        " the driver%s, or let JITCACHE_NVRTC name an NVRTC %d", version,
                        info->file, toolchain->major, toolchain->minor,
                        toolchain->major == 13 ? " to 580 or newer" : "", major);
    else
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "driver", "up to CUDA %s, %s%s", version,
                        info->file, toolchain->nvrtc ? "; it runs what this NVRTC compiles" : "");
}

static json_t *check_device(struct doctor *doctor, int ordinal)
{
    struct jc_device_info info;
    struct jc_error error;
    char capability[32], arch[JC_ARCH_SIZE] = "", memory[JC_UNITS_SIZE];
    if (jc_context_device_info(doctor->session.context, ordinal, &info, &error) != JC_OK) {
        jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "device", "%s", error.text);
        return json_null();
    }
    snprintf(capability, sizeof(capability), "%d.%d", info.major, info.minor);
    bool compiles = doctor->toolchain.nvrtc
        && jc_context_arch(doctor->session.context, NULL, capability, arch, &error) == JC_OK;
    if (compiles || !doctor->toolchain.nvrtc)
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "device", "%d: %s, %s, %s%s%s", ordinal,
                        info.name, capability, jc_units_bytes(info.memory, memory),
                        compiles ? ", architecture " : "", arch);
    else
        jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "device",
                        "%d: %s: %s; use another NVRTC", ordinal, info.name, error.text);
    return json_pack("{s:i, s:o, s:s, s:i, s:I, s:o}", "ordinal", ordinal, "name",
                     jc_json_text(info.name), "capability", capability, "multiprocessors",
                     info.multiprocessors, "bytes", (json_int_t) info.memory, "arch",
                     json_or_null(compiles ? arch : NULL));
}

static void check_driver(struct doctor *doctor)
{
    struct jc_driver_info info;
    struct jc_error error;
    json_t *devices = json_array();
    enum jc_result result = jc_context_driver(doctor->session.context, &info, &error);
    if (result == JC_OK) {
        tell_driver(doctor, &info);
        for (int i = 0; i < info.num_devices; i++)
            json_array_append_new(devices, check_device(doctor, i));
    } else {
        add_fact(doctor, "driver", json_null());
        jc_findings_add(&doctor->findings, info.absent ? JC_FINDING_WARNING : JC_FINDING_PROBLEM,
                        "driver", "%s%s", error.text,
                        info.absent ? "\nWithout a GPU prewarm and plan work, launching does not."
                                    : "");
    }
    add_fact(doctor, "devices", devices);
}

// --- cache ---------------------------------------------------------------------------------------

static const char *origin_of_folder(const struct doctor *doctor)
{
    const char *xdg = variable("XDG_CACHE_HOME");
    return doctor->common->dir         ? "--dir"
           : variable("JITCACHE_DIR") ? "JITCACHE_DIR"
           : xdg && *xdg == '/'       ? "XDG_CACHE_HOME"
                                      : "HOME";
}

static void tell_disk(struct doctor *doctor, const struct jc_disk *disk, bool absent)
{
    const struct jc_cache_info *info = &doctor->session.info;
    uint64_t growth = info->max_bytes > info->bytes ? info->max_bytes - info->bytes : 0;
    char left[JC_UNITS_SIZE], more[JC_UNITS_SIZE], mode[64] = "";
    jc_units_bytes(disk->free_bytes, left);
    jc_units_bytes(growth, more);
    if (!absent)
        snprintf(mode, sizeof(mode), ", mode %04o, user %u", (unsigned) disk->mode,
                 (unsigned) disk->owner);
    if (disk->network)
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "disk",
                        "%s, which other hosts share or may share: what is there is used, and"
                        " nothing is written; set JITCACHE_DIR to a folder on a local disk",
                        disk->type);
    else if (disk->free_bytes < growth)
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "disk",
                        "%s, %s free%s; the cache may want %s more: free some, or set"
                        " JITCACHE_MAX_BYTES lower", disk->type, left, mode, more);
    else
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "disk", "%s, %s free%s", disk->type,
                        left, mode);
}

// What keeps the cache from being written, though it may be read; NULL: nothing.
static const char *why_only_read(const struct jc_disk *disk)
{
    return jc_session_is_set("JITCACHE_READONLY") ? "JITCACHE_READONLY=1 says so; unset it"
           : disk->network   ? "its disk is shared, see below"
           : disk->read_only ? "its file system is mounted so; set JITCACHE_DIR to another folder"
           : !disk->writable ? "this user has no permission to write there; set JITCACHE_DIR to a"
                               " folder of your own"
                             : NULL;
}

static void tell_cache(struct doctor *doctor, const struct jc_disk *disk)
{
    const struct jc_session *session = &doctor->session;
    const struct jc_cache_info *info = &session->info;
    const char *why = why_only_read(disk), *origin = origin_of_folder(doctor);
    char used[JC_UNITS_SIZE], budget[JC_UNITS_SIZE];
    jc_units_bytes(info->bytes, used);
    jc_units_bytes(info->max_bytes, budget);
    if (session->absent && why)
        jc_findings_add(&doctor->findings,
                        jc_session_is_set("JITCACHE_READONLY") ? JC_FINDING_WARNING
                                                               : JC_FINDING_PROBLEM,
                        "cache", "%s, by %s, does not exist and is not made in %s: %s", info->dir,
                        origin, disk->place, why);
    else if (session->absent)
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "cache",
                        "%s, by %s, does not exist yet; who first needs it makes it", info->dir,
                        origin);
    else if (why)
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "cache",
                        "%s, by %s, %s in %u segment%s, is only read: %s", info->dir, origin, used,
                        info->segments, info->segments == 1 ? "" : "s", why);
    else
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "cache",
                        "%s, by %s, %s of %s in %u segment%s", info->dir, origin, used, budget,
                        info->segments, info->segments == 1 ? "" : "s");
}

static json_t *json_of_cache(const struct doctor *doctor, const struct jc_disk *disk)
{
    const struct jc_session *session = &doctor->session;
    const struct jc_cache_info *info = &session->info;
    // The library's own reason for reading alone is that it was opened so, for this look.
    bool is_off = !disk || strcmp(session->state, "off") == 0;
    const char *reason = is_off ? info->reason : why_only_read(disk), *state = session->state;
    if (reason && strcmp(state, "read-write") == 0)
        state = "read-only";
    json_t *cache = json_pack(
        "{s:o, s:s, s:s, s:o, s:I, s:I, s:I}", "dir", json_or_null(info->dir), "origin",
        origin_of_folder(doctor), "state", state, "reason", json_or_null(reason), "bytes",
        (json_int_t) info->bytes, "max_bytes", (json_int_t) info->max_bytes, "segments",
        (json_int_t) info->segments);
    if (disk) {
        json_object_set_new(cache, "file_system", jc_json_text(disk->type));
        json_object_set_new(cache, "network", json_boolean(disk->network));
        json_object_set_new(cache, "free_bytes", json_integer((json_int_t) disk->free_bytes));
    }
    return cache;
}

static void check_cache(struct doctor *doctor)
{
    const struct jc_session *session = &doctor->session;
    const struct jc_cache_info *info = &session->info;
    struct jc_disk disk;
    bool known = info->dir && jc_disk_look(&disk, info->dir);
    if (jc_session_is_set("JITCACHE_DISABLE"))
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "cache", "JITCACHE_DISABLE=1"
                        " switches it off, so that every process compiles anew; unset it");
    else if (!known || (info->state == JC_CACHE_DISABLED && !session->absent))
        jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "cache", "%s", info->reason);
    else
        tell_cache(doctor, &disk);
    if (known)
        tell_disk(doctor, &disk, session->absent);
    add_fact(doctor, "cache", json_of_cache(doctor, known ? &disk : NULL));
}

static void take_warning(void *user, enum jc_log_level level, const char *line)
{
    struct doctor *doctor = user;
    if (level == JC_LOG_WARNING && strncmp(line, "base segment ", strlen("base segment ")) == 0)
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "base", "%s", line);
}

static void check_base(struct doctor *doctor)
{
    struct jc_cache *cache = NULL;
    struct jc_cache_info info = {0};
    struct jc_error error;
    struct jc_log log = {.write = take_warning, .user = doctor, .level = JC_LOG_WARNING};
    unsigned asked = 0;
    if (doctor->base) {
        setenv("JITCACHE_BASE", doctor->base, 1);
        asked = jc_session_base_asked();
        enum jc_result result =
            jc_cache_create(jc_cache_params(.dir = doctor->session.info.dir, .base = doctor->base,
                                            .read_only = true, .log = &log), &cache, &error);
        if (result == JC_OK)
            jc_cache_info(cache, &info);
        else
            jc_findings_add(&doctor->findings, JC_FINDING_PROBLEM, "base", "%s", error.text);
        if (info.base_segments == asked)
            jc_findings_add(&doctor->findings, JC_FINDING_OK, "base", "%u segment%s in use", asked,
                            asked == 1 ? "" : "s");
        jc_cache_destroy(&cache);
    }
    add_fact(doctor, "base", json_pack("{s:I, s:I}", "asked", (json_int_t) asked, "used",
                                       (json_int_t) info.base_segments));
}

// --- statistics ----------------------------------------------------------------------------------

// What keeps a process from publishing there; NULL: nothing. As the library sees it.
static const char *why_not_published(const struct jc_disk *disk, const char *folder)
{
    bool is_there = strcmp(disk->place, folder) == 0;
    return is_there && disk->owner != geteuid() ? "it belongs to another user"
           : is_there && disk->mode & 022       ? "others can write it"
           : !disk->writable                    ? "this user has no permission to write there"
                                                : NULL;
}

// Nobody asks for the default folder, and where that cannot be used there is another.
static void check_named_folder(struct doctor *doctor, const char *folder)
{
    struct jc_disk disk;
    struct stat status;
    bool is_there = lstat(folder, &status) == 0;
    const char *slash = strrchr(folder, '/');
    char *parent = jc_copy_text(folder, slash ? (size_t) (slash - folder) : 0);
    if (is_there && !S_ISDIR(status.st_mode))
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "statistics", "%s is no folder, so"
                        " nothing is published; name one in JITCACHE_STATS", folder);
    else if (!is_there && *parent && access(parent, F_OK) != 0)
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "statistics", "%s does not exist,"
                        " nor does the folder that it is to be in: make %s, or name another"
                        " folder in JITCACHE_STATS", folder, parent);
    else if (!jc_disk_look(&disk, folder) || why_not_published(&disk, folder))
        jc_findings_add(&doctor->findings, JC_FINDING_WARNING, "statistics", "%s is refused, so"
                        " nothing is published: %s; set JITCACHE_STATS to a folder of your own",
                        folder, why_not_published(&disk, folder));
    else
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "statistics", "%s%s", folder,
                        is_there ? "" : ", does not exist yet; who first publishes makes it");
    free(parent);
}

static void check_statistics(struct doctor *doctor)
{
    const char *folder = variable("JITCACHE_STATS");
    if (folder && strcmp(folder, "off") == 0)
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "statistics",
                        "neither published nor kept: JITCACHE_STATS says off");
    else if (folder)
        check_named_folder(doctor, folder);
}

// --- profilers -----------------------------------------------------------------------------------

// The command and the library are built together.
#ifdef JC_HAS_NVTX
#define HAS_NVTX true
#else
#define HAS_NVTX false
#endif

static void check_nvtx(struct doctor *doctor)
{
    const char *asked = variable("JITCACHE_NVTX");
    bool wanted = asked && strcmp(asked, "1") == 0;
    add_fact(doctor, "nvtx", json_boolean(HAS_NVTX));
    if (HAS_NVTX)
        jc_findings_add(&doctor->findings, JC_FINDING_OK, "nvtx",
                        "a profiler, such as Nsight Systems, shows kernel and variant of a launch");
    else
        jc_findings_add(&doctor->findings, wanted ? JC_FINDING_WARNING : JC_FINDING_OK, "nvtx",
                        "this jitcache was built without it, and tells profilers nothing; for that"
                        " install the header nvtx3/nvToolsExt.h, of the CUDA toolkit or the Python"
                        " package nvidia-nvtx, and build it again");
}

// --- all together --------------------------------------------------------------------------------

// Without base segments, which would serve for a folder that cannot be used.
static int open_session(struct doctor *doctor)
{
    const char *base = variable("JITCACHE_BASE");
    doctor->base = base ? jc_copy_text(base, strlen(base)) : NULL;
    unsetenv("JITCACHE_BASE");
    return jc_session_open(&doctor->session, doctor->common, JC_SESSION_LOOK, NULL);
}

static void print_json(struct doctor *doctor)
{
    const size_t *counts = doctor->findings.counts;
    json_t *all = json_pack("{s:s, s:I, s:I, s:o}", "version", jc_version(), "problems",
                            (json_int_t) counts[JC_FINDING_PROBLEM], "warnings",
                            (json_int_t) counts[JC_FINDING_WARNING], "findings",
                            jc_findings_json(&doctor->findings));
    json_object_update(all, doctor->facts);
    jc_print_json(all);
}

static void print_text(const struct doctor *doctor)
{
    const size_t *counts = doctor->findings.counts;
    size_t problems = counts[JC_FINDING_PROBLEM], warnings = counts[JC_FINDING_WARNING];
    jc_findings_print(&doctor->findings);
    if (problems)
        printf("\n%zu problem%s, %zu warning%s\n", problems, problems == 1 ? "" : "s", warnings,
               warnings == 1 ? "" : "s");
    else
        printf("\nWhat is needed is there and works; %zu warning%s\n", warnings,
               warnings == 1 ? "" : "s");
}

static int examine(const struct jc_common *common)
{
    struct doctor doctor = {.common = common, .facts = json_object()};
    check_environment(&doctor);
    int status = open_session(&doctor);
    if (!status) {
        check_toolchain(&doctor);
        check_driver(&doctor);
        check_cache(&doctor);
        check_base(&doctor);
        check_statistics(&doctor);
        check_nvtx(&doctor);
        if (common->json)
            print_json(&doctor);
        else
            print_text(&doctor);
        if (doctor.findings.counts[JC_FINDING_PROBLEM])
            status = JC_STATUS_SOME_FAILED;
    }
    jc_session_close(&doctor.session);
    jc_findings_finish(&doctor.findings);
    json_decref(doctor.facts);
    free(doctor.base);
    return status;
}

static int run_doctor(const struct jc_command *command, int argc, char **argv)
{
    return jc_options_run(command, argc, argv, examine);
}

const struct jc_command jc_command_doctor = {
    .name = "doctor",
    .summary = "say what is there, what is missing and what to do",
    .usage = "[OPTION]...",
    .purpose = "Looks at everything that jitcache needs: the environment, the compiler and its\n"
               "worker, the driver and its GPUs, the cache and its disk, and where statistics are\n"
               "published. Changes nothing.",
    .options = options_of_doctor,
    .examples = "jitcache doctor\n"
                "jitcache doctor --json --dir ./kernels",
    .statuses = "0  what is needed is there; no GPU is needed to compile\n"
                "1  there is a problem\n"
                "2  wrong use",
    .run = run_doctor,
};
