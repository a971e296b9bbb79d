// What campaigns against the compile workers have in common: a template with as many variants as
// are wanted, each of which takes NVRTC some tens of milliseconds; what the forwarding NVRTC writes
// down of every compile; and which workers there are. For cmocka's setup and teardown.

#ifndef TEST_FAULTS_CAMPAIGN_H
#define TEST_FAULTS_CAMPAIGN_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include "cache/clock.h"
#include "tests/counted.h"

static char campaign_spans[PATH_MAX];

static inline bool campaign_is_long(void)
{
    const char *longer = getenv("JITCACHE_TEST_LONG");
    return longer && *longer == '1';
}

static inline int campaign_setup(void **state)
{
    if (counted_setup(state) != 0)
        return -1;
    strcpy(campaign_spans, scratch_path("spans"));
    setenv("JITCACHE_NVRTC_SPANS", campaign_spans, 1);
    return 0;
}

static inline int campaign_teardown(void **state)
{
    unsetenv("JITCACHE_NVRTC_SPANS");
    return counted_teardown(state);
}

// --- the template --------------------------------------------------------------------------------

// Of each variant the source has "JC_PARAM_N 100" in it, then 101 and so on.
#define CAMPAIGN_FIRST 100

static const char campaign_source[] =
    "/*jitcache\n"
    "kernel: k\n"
    "parameters:\n"
    "  - {name: N, type: int}\n"
    "arguments:\n"
    "  - {name: x, type: i32*}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void k(int *x)\n"
    "{\n"
    "    int sums[16] = {};\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < 16; i++)\n"
    "        sums[i % 16] += x[i] / (JC_PARAM(N) + i) + x[sums[(i + 5) % 16] & 255];\n"
    "    for (int i = 0; i < 16; i++)\n"
    "        x[threadIdx.x * 16 + i] = sums[i];\n"
    "}\n";

struct campaign {
    struct jc_template *tmpl;
    struct jc_plan *plan;
    const struct jc_plan_variant *variants;
    size_t num_variants;
};

// False after telling what is wrong: it is called in children too.
static inline bool campaign_plan(struct campaign *campaign, unsigned variants)
{
    struct jc_error error;
    char values[2048] = "";
    const struct jc_setting setting = {"N", values};
    for (unsigned i = 0; i < variants; i++) {
        size_t used = strlen(values);
        snprintf(values + used, sizeof(values) - used, "%s%u", i ? "," : "", CAMPAIGN_FIRST + i);
    }
    *campaign = (struct campaign){0};
    if (jc_template_create(jc_template_params(.text = campaign_source), &campaign->tmpl, &error)
        || jc_plan_create(campaign->tmpl,
                          jc_plan_params(.parameters = &setting, .num_parameters = 1),
                          &campaign->plan, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return false;
    }
    campaign->variants = jc_plan_variants(campaign->plan, &campaign->num_variants);
    return campaign->num_variants == variants;
}

static inline void campaign_finish(struct campaign *campaign)
{
    jc_plan_destroy(&campaign->plan);
    jc_template_destroy(&campaign->tmpl);
}

static inline enum jc_result campaign_open(const struct jc_context_params *params,
                                           struct jc_context **context, struct jc_error *error)
{
    struct jc_context_params own = *params;
    own.size = sizeof(own);
    own.dir = own.dir ? own.dir : scratch_path("cache");
    own.nvrtc = counted_nvrtc;
    return jc_context_create(&own, context, error);
}

static inline enum jc_result campaign_prewarm(struct jc_context *context,
                                              const struct campaign *campaign,
                                              struct jc_prewarm_params params,
                                              struct jc_prewarm_report *report,
                                              struct jc_error *error)
{
    static const char *const hopper[] = {"9.0"};
    params.size = sizeof(params);
    params.capabilities = hopper;
    params.num_capabilities = 1;
    return jc_context_prewarm(context, campaign->plan, &params, report, error);
}

// --- what is in the cache ------------------------------------------------------------------------

struct campaign_records {
    struct jc_cache *cache;
    size_t variants, failures;
    size_t unreadable; // of both
};

static inline bool campaign_count_record(void *user, const struct jc_cache_entry *entry)
{
    struct campaign_records *records = user;
    struct jc_record record;
    if (entry->kind != JC_RECORD_VARIANT && entry->kind != JC_RECORD_FAILURE)
        return true;
    records->variants += entry->kind == JC_RECORD_VARIANT;
    records->failures += entry->kind == JC_RECORD_FAILURE;
    if (jc_cache_find_key(records->cache, entry->kind, &entry->key, &record) != JC_OK)
        records->unreadable++;
    else
        jc_record_finish(&record);
    return true;
}

// Opens the cache, its trees looked at first, and counts what can be read.
static inline enum jc_result campaign_count(struct campaign_records *records)
{
    struct jc_cache_info info;
    *records = (struct campaign_records){0};
    enum jc_result result = jc_cache_create(
        jc_cache_params(.dir = scratch_path("cache"), .verify = true), &records->cache, NULL);
    if (result != JC_OK)
        return result;
    result = jc_cache_list(records->cache, campaign_count_record, records);
    jc_cache_info(records->cache, &info);
    if (result == JC_OK && info.corrupt > 0)
        result = JC_ERROR_CORRUPT;
    jc_cache_destroy(&records->cache);
    return result;
}

// --- compiles ------------------------------------------------------------------------------------

#define MAX_SPANS 512

// One compile, as the forwarding NVRTC tells it.
struct span {
    uint64_t number, digest;
    uint64_t begin_ns, end_ns; // 0: it has not ended
    pid_t worker, leader;      // as this process's /proc counts them
    bool again;                // another was compiling the same
};

struct spans {
    struct span list[MAX_SPANS];
    size_t count;
};

static inline void spans_add(struct spans *spans, const char *line)
{
    struct span span = {0};
    char what[8];
    if (sscanf(line, "%7s %" SCNx64 " %" SCNx64 " %" SCNu64 " %d %d", what, &span.number,
               &span.digest, &span.begin_ns, &span.worker, &span.leader) != 6)
        abort();
    span.again = strcmp(what, "again") == 0;
    if (strcmp(what, "end") != 0) {
        if (spans->count == MAX_SPANS)
            abort();
        spans->list[spans->count++] = span;
        return;
    }
    for (size_t i = 0; i < spans->count; i++)
        if (spans->list[i].number == span.number)
            spans->list[i].end_ns = span.begin_ns;
}

static inline void spans_read(struct spans *spans)
{
    char line[256];
    FILE *stream = fopen(campaign_spans, "r");
    spans->count = 0;
    while (stream && fgets(line, sizeof(line), stream))
        spans_add(spans, line);
    if (stream)
        fclose(stream);
}

static inline size_t spans_again(const struct spans *spans)
{
    size_t count = 0;
    for (size_t i = 0; i < spans->count; i++)
        count += spans->list[i].again;
    return count;
}

// --- workers -------------------------------------------------------------------------------------

// Whether a process was started for this test: by what its environment says of the spans.
static inline bool is_worker(const char *pid)
{
    char path[64], text[65536];
    snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text));
    if (fd >= 0)
        close(fd);
    return size > 0 && memmem(text, (size_t) size, campaign_spans, strlen(campaign_spans));
}

// How many workers of this test there are, whoever their parents are by now.
static inline size_t count_workers(void)
{
    size_t count = 0;
    DIR *processes = opendir("/proc");
    for (const struct dirent *entry; processes && (entry = readdir(processes));)
        count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_worker(entry->d_name);
    if (processes)
        closedir(processes);
    return count;
}

// Waits until no worker is left. False: some are after 10 seconds.
static inline bool await_no_worker(void)
{
    uint64_t end_ns = jc_now_ns() + UINT64_C(10000000000);
    while (count_workers() > 0) {
        if (jc_now_ns() > end_ns)
            return false;
        poll(NULL, 0, 5);
    }
    return true;
}

#endif
