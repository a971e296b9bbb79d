// What a prewarm of a template costs: compile time of each variant with the real NVRTC, the time to
// find the same variants again, and the memory that the library takes in this process.
//
//   bench-prewarm [--json] FILE...
//
// Each file is planned with its own ranges, compiled for sm_90a into a fresh cache, `ROUNDS` times.

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#define ROUNDS 5
#define MAX_SAMPLES 4096
#define COMPILE_LIMIT_US 250000.0
#define RESIDENT_LIMIT_KB 20480.0

struct samples {
    double us[MAX_SAMPLES];
    size_t count;
};

static const char *const capability = "sm_90a";

static int compare(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double quantile(struct samples *samples, double q)
{
    if (!samples->count)
        return 0;
    qsort(samples->us, samples->count, sizeof(double), compare);
    return samples->us[(size_t) (q * (double) (samples->count - 1))];
}

// Resident memory of this process in kB; `field` is VmRSS or VmHWM.
static long resident_kb(const char *field)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long kb = -1;
    while (status && fgets(line, sizeof(line), status))
        if (!strncmp(line, field, strlen(field)))
            kb = strtol(line + strlen(field) + 1, NULL, 10);
    if (status)
        fclose(status);
    return kb;
}

static bool keep_compile_time(void *user, const struct jc_prewarm_event *event)
{
    struct samples *samples = user;
    if (event->outcome == JC_PREWARM_COMPILED && samples->count < MAX_SAMPLES)
        samples->us[samples->count++] = (double) event->elapsed_ns / 1e3;
    if (event->outcome == JC_PREWARM_FAILED)
        fprintf(stderr, "%s\n", event->message);
    return true;
}

static int fail(const char *what, const struct jc_error *error)
{
    fprintf(stderr, "bench-prewarm: %s: %s\n", what, error->text);
    return 1;
}

static void remove_folder(const char *dir)
{
    DIR *entries = opendir(dir);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
    rmdir(dir);
}

// One fresh cache: compile everything, then find everything.
static int run_round(const struct jc_plan *plan, struct samples *compiles, struct samples *hits)
{
    char dir[] = "bench-prewarm-XXXXXX";
    struct jc_error error = {""};
    struct jc_context *context = NULL;
    int status = 1;
    if (!mkdtemp(dir))
        return 1;
    if (jc_context_create(jc_context_params(.dir = dir), &context, &error))
        goto remove;

    struct jc_prewarm_report first, second;
    struct jc_prewarm_params params = {.size = sizeof(params), .capabilities = &capability,
                                       .num_capabilities = 1, .progress = keep_compile_time,
                                       .user = compiles};
    if (jc_context_prewarm(context, plan, &params, &first, &error))
        goto destroy;
    if (jc_context_prewarm(context, plan, &params, &second, &error))
        goto destroy;
    if (first.failed || first.compiled != first.planned || second.hits != second.planned) {
        snprintf(error.text, sizeof(error.text), "%zu of %zu failed", first.failed, first.planned);
        goto destroy;
    }
    if (hits->count < MAX_SAMPLES)
        hits->us[hits->count++] = (double) second.elapsed_ns / 1e3 / (double) second.planned;
    status = 0;

destroy:
    jc_context_destroy(&context);
remove:
    remove_folder(dir);
    return status ? fail(dir, &error) : 0;
}

// One figure in the form that all benchmarks share: see scripts/bench.
static void print_figure(const char *what, const char *of, double limit,
                         const struct samples *samples)
{
    printf("  {\"name\": \"%s %s\", \"limit_us\": %.0f, \"limit_over_control\": false, "
           "\"measured_us\": [", what, of, limit);
    for (size_t i = 0; i < samples->count; i++)
        printf("%s%.1f", i ? ", " : "", samples->us[i]);
    printf("], \"control_us\": []},\n");
}

static int run_file(const char *file, bool json)
{
    static struct samples compiles, hits;
    struct jc_error error = {""};
    struct jc_template *tmpl = NULL;
    struct jc_plan *plan = NULL;
    int status = 0;
    compiles.count = hits.count = 0;
    if (jc_template_create(jc_template_params(.file = file), &tmpl, &error))
        return fail(file, &error);
    if (jc_plan_create(tmpl, jc_plan_params(.num_ranges = 0), &plan, &error))
        status = fail(file, &error);
    for (int round = 0; !status && round < ROUNDS; round++)
        status = run_round(plan, &compiles, &hits);
    const char *name = jc_template_name(tmpl);
    if (!status && json) {
        print_figure("compile", name, COMPILE_LIMIT_US, &compiles);
        print_figure("find again", name, 0, &hits);
    } else if (!status) {
        printf("%-28s compile min %.1f  median %.1f  max %.1f ms; find again %.3f ms each\n", name,
               quantile(&compiles, 0) / 1e3, quantile(&compiles, 0.5) / 1e3,
               quantile(&compiles, 1) / 1e3, quantile(&hits, 0.5) / 1e3);
    }
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
    return status;
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && !strcmp(argv[1], "--json");
    int first = json ? 2 : 1;
    long before = resident_kb("VmRSS");
    if (first >= argc) {
        fprintf(stderr, "usage: bench-prewarm [--json] FILE...\n");
        return 2;
    }
    if (json)
        printf("{\"benchmark\": \"prewarm\", \"figures\": [\n");
    for (int i = first; i < argc; i++)
        if (run_file(argv[i], json))
            return 1;
    long peak = resident_kb("VmHWM");
    if (json)
        printf("  {\"name\": \"resident memory, KiB\", \"limit_kb\": %.0f, "
               "\"measured_kb\": [%ld], \"control_kb\": [%ld]}\n]}\n",
               RESIDENT_LIMIT_KB, peak, before);
    else
        printf("resident memory of this process: %ld KiB before, %ld KiB at its peak\n", before,
               peak);
    return 0;
}
