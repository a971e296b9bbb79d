// How long a plan takes: one argument over 1..2^20, two derived from it, four facets.
//
//   bench-plan [--json] [ROUNDS]

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jitcache/jitcache.h>

static const char text[] =
    "/*jitcache\n"
    "kernel: k\n"
    "parameters: [{name: heads_per_group, type: int, default: 8}]\n"
    "arguments:\n"
    "  - {name: num_tokens, type: i32}\n"
    "  - {name: stride_group, type: i64, derive: num_tokens * heads_per_group * 512}\n"
    "  - {name: stride_k, type: i64, derive: \"align(num_tokens, 4)\"}\n"
    "*/\n"
    "JC_FACT(num_tokens); JC_FACT(stride_k);\n";

#define LIMIT_US 150000
#define NUM_RANGES 2
static const char *const ranges[NUM_RANGES] = {"1:8192", "1:1048576"};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

static void stop(const struct jc_error *error)
{
    fprintf(stderr, "bench-plan: %s\n", error->text);
    exit(2);
}

static uint64_t measure(const struct jc_template *tmpl, const char *range, size_t *variants)
{
    struct jc_plan *plan;
    struct jc_error error;
    const struct jc_setting setting = {"num_tokens", range};
    uint64_t start = now_ns();
    if (jc_plan_create(tmpl, jc_plan_params(.ranges = &setting, .num_ranges = 1), &plan, &error))
        stop(&error);
    uint64_t elapsed = now_ns() - start;
    *variants = jc_plan_num_reached(plan);
    jc_plan_destroy(&plan);
    return elapsed;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void print(bool json, const char *range, size_t variants, uint64_t *samples, size_t rounds)
{
    qsort(samples, rounds, sizeof(*samples), compare);
    if (!json) {
        printf("num_tokens=%-12s %zu variants  median %8.2f ms  least %8.2f ms\n", range, variants,
               (double) samples[rounds / 2] / 1e6, (double) samples[0] / 1e6);
        return;
    }
    // The form that all benchmarks share: see scripts/bench.
    printf("  {\"name\": \"plan %s, %zu variants\", \"limit_us\": %d, "
           "\"limit_over_control\": false, \"measured_us\": [", range, variants, LIMIT_US);
    for (size_t i = 0; i < rounds; i++)
        printf("%s%.1f", i ? ", " : "", (double) samples[i] / 1e3);
    printf("], \"control_us\": []}");
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    size_t rounds = argc > 1 + json ? strtoul(argv[1 + json], NULL, 10) : 9;
    uint64_t *samples = calloc(rounds ? rounds : 1, sizeof(*samples));
    struct jc_template *tmpl;
    struct jc_error error = {"usage: bench-plan [--json] [ROUNDS]"};
    if (rounds == 0 || !samples)
        stop(&error);
    if (jc_template_create(jc_template_params(.text = text, .text_size = strlen(text)), &tmpl,
                           &error))
        stop(&error);
    printf("%s", json ? "{\"benchmark\": \"plan\", \"figures\": [\n" : "");
    for (size_t i = 0; i < NUM_RANGES; i++) {
        size_t variants = 0;
        for (size_t round = 0; round < rounds; round++)
            samples[round] = measure(tmpl, ranges[i], &variants);
        print(json, ranges[i], variants, samples, rounds);
        printf("%s", json ? i + 1 < NUM_RANGES ? ",\n" : "\n]}\n" : "");
    }
    jc_template_destroy(&tmpl);
    free(samples);
    return 0;
}
