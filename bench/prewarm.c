// What a prewarm of a template costs: compile time of its variants and of the slowest one with the
// real NVRTC, the time to find the same variants again, one by one or by the word that an earlier
// prewarm left, and the memory that the library takes in this process.
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

#include "figure.h"

#define ROUNDS 5
#define MAX_FILES 16
#define FIGURES_PER_FILE 4
#define COMPILE_LIMIT_US 250000
#define RESIDENT_LIMIT_KIB 20480

static const char *const capability = "sm_90a";

// Resident memory of this process in KiB; `field` is VmRSS or VmHWM.
static double resident_kib(const char *field)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    double kib = 0;
    while (status && fgets(line, sizeof(line), status))
        if (!strncmp(line, field, strlen(field)))
            kib = strtod(line + strlen(field) + 1, NULL);
    if (status)
        fclose(status);
    return kib;
}

static bool keep_compile_time(void *user, const struct jc_prewarm_event *event)
{
    struct samples *samples = user;
    if (event->outcome == JC_PREWARM_COMPILED)
        bench_add(samples, (double) event->elapsed_ns / 1e3);
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

// The largest of the samples from `begin` on.
static double largest(const struct samples *samples, size_t begin)
{
    double most = 0;
    for (size_t i = begin; i < samples->count; i++)
        if (samples->values[i] > most)
            most = samples->values[i];
    return most;
}

// One fresh cache: compile everything, then find everything.
static int run_round(const struct jc_plan *plan, struct samples *compiles, struct samples *slowest,
                     struct samples *hits, struct samples *vouched)
{
    size_t count = compiles->count;
    char dir[] = "bench-prewarm-XXXXXX";
    struct jc_error error = {""};
    struct jc_context *context = NULL;
    int status = 1;
    if (!mkdtemp(dir))
        return 1;
    if (jc_context_create(jc_context_params(.dir = dir), &context, &error))
        goto remove;

    struct jc_prewarm_report first, second, third;
    struct jc_prewarm_params params = {.size = sizeof(params), .capabilities = &capability,
                                       .num_capabilities = 1, .progress = keep_compile_time,
                                       .user = compiles};
    if (jc_context_prewarm(context, plan, &params, &first, &error))
        goto destroy;
    params.retry = true; // looks at each
    if (jc_context_prewarm(context, plan, &params, &second, &error))
        goto destroy;
    params.retry = false;
    if (jc_context_prewarm(context, plan, &params, &third, &error))
        goto destroy;
    if (first.failed || first.compiled != first.planned || second.hits != second.planned) {
        snprintf(error.text, sizeof(error.text), "%zu of %zu failed", first.failed, first.planned);
        goto destroy;
    }
    bench_add(slowest, largest(compiles, count));
    bench_add(hits, (double) second.elapsed_ns / 1e3 / (double) second.planned);
    bench_add(vouched, (double) third.elapsed_ns / 1e3);
    status = 0;

destroy:
    jc_context_destroy(&context);
remove:
    remove_folder(dir);
    return status ? fail(dir, &error) : 0;
}

// Fills FIGURES_PER_FILE figures.
static int run_file(const char *file, struct figure *figures)
{
    struct figure *compile = &figures[0], *slowest = &figures[1], *again = &figures[2],
                  *vouched = &figures[3];
    struct jc_error error = {""};
    struct jc_template *tmpl = NULL;
    struct jc_plan *plan = NULL;
    int status = 0;
    if (jc_template_create(jc_template_params(.file = file), &tmpl, &error))
        return fail(file, &error);
    if (jc_plan_create(tmpl, NULL, &plan, &error))
        status = fail(file, &error);
    for (int round = 0; !status && round < ROUNDS; round++)
        status = run_round(plan, &compile->measured, &slowest->measured, &again->measured,
                           &vouched->measured);
    compile->unit = slowest->unit = again->unit = vouched->unit = "us";
    slowest->limit = COMPILE_LIMIT_US;
    snprintf(compile->name, sizeof(compile->name), "compile %s", jc_template_name(tmpl));
    snprintf(slowest->name, sizeof(slowest->name), "  the slowest variant of it");
    snprintf(again->name, sizeof(again->name), "find again %s", jc_template_name(tmpl));
    snprintf(vouched->name, sizeof(vouched->name), "all vouched for %s", jc_template_name(tmpl));
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
    return status;
}

int main(int argc, char **argv)
{
    static struct figure figures[FIGURES_PER_FILE * MAX_FILES + 1];
    bool json = argc > 1 && !strcmp(argv[1], "--json");
    int first = json ? 2 : 1;
    size_t count = 0;
    if (first >= argc || argc - first > MAX_FILES) {
        fprintf(stderr, "usage: bench-prewarm [--json] FILE...\n");
        return 2;
    }
    double before = resident_kib("VmRSS");
    for (int i = first; i < argc; i++, count += FIGURES_PER_FILE) {
        if (run_file(argv[i], &figures[count]))
            return 1;
    }
    struct figure *memory = &figures[count++];
    *memory = (struct figure){.name = "resident memory", .unit = "KiB",
                              .limit = RESIDENT_LIMIT_KIB};
    bench_add(&memory->measured, resident_kib("VmHWM"));
    bench_add(&memory->control, before);
    bench_print("prewarm", json, figures, count);
    return 0;
}
