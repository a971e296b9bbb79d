// How long a plan takes: one argument over 1..2^20, two derived from it, four facets.
//
//   bench-plan [--json]

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "figure.h"

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

#define ROUNDS 9
#define LIMIT_US 150000
#define NUM_RANGES 2
static const char *const ranges[NUM_RANGES] = {"1:8192", "1:1048576"};

static void stop(const struct jc_error *error)
{
    fprintf(stderr, "bench-plan: %s\n", error->text);
    exit(2);
}

static size_t measure(const struct jc_template *tmpl, const char *range, struct samples *samples)
{
    struct jc_plan *plan;
    struct jc_error error;
    const struct jc_setting setting = {"num_tokens", range};
    double start_us = bench_now_us();
    if (jc_plan_create(tmpl, jc_plan_params(.ranges = &setting, .num_ranges = 1), &plan, &error))
        stop(&error);
    bench_add_since(samples, start_us);
    size_t variants = jc_plan_num_reached(plan);
    jc_plan_destroy(&plan);
    return variants;
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    struct figure figures[NUM_RANGES] = {0};
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = text, .text_size = strlen(text)), &tmpl,
                           &error))
        stop(&error);
    for (size_t i = 0; i < NUM_RANGES; i++) {
        size_t variants = 0;
        figures[i].unit = "us";
        figures[i].limit = LIMIT_US;
        for (int round = 0; round < ROUNDS; round++)
            variants = measure(tmpl, ranges[i], &figures[i].measured);
        snprintf(figures[i].name, sizeof(figures[i].name), "plan %s, %zu variants", ranges[i],
                 variants);
    }
    bench_print("plan", json, figures, NUM_RANGES);
    jc_template_destroy(&tmpl);
    return 0;
}
