#include "figure.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double bench_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec * 1e6 + (double) now.tv_nsec / 1e3;
}

void bench_add(struct samples *samples, double value)
{
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity ? 2 * samples->capacity : 64;
        samples->values = realloc(samples->values, samples->capacity * sizeof(double));
        if (!samples->values) {
            fprintf(stderr, "bench: out of memory\n");
            exit(1);
        }
    }
    samples->values[samples->count++] = value;
}

void bench_add_since(struct samples *samples, double start_us)
{
    bench_add(samples, bench_now_us() - start_us);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double quantile(struct samples *samples, double q)
{
    if (samples->count == 0)
        return 0;
    qsort(samples->values, samples->count, sizeof(double), compare);
    return samples->values[(size_t) (q * (double) (samples->count - 1))];
}

static void print_row(struct figure *figure)
{
    printf("%-36s %-4s %10.1f %10.1f %10.1f ", figure->name, figure->unit,
           quantile(&figure->measured, 0.5), quantile(&figure->measured, 0.99),
           quantile(&figure->control, 0.5));
    if (figure->limit > 0)
        printf("%s%10.0f\n", figure->over_control ? "+ " : "  ", figure->limit);
    else
        printf("%12s\n", "-");
}

static void print_samples(const char *name, const struct samples *samples)
{
    printf(", \"%s\": [", name);
    for (size_t i = 0; i < samples->count; i++)
        printf("%s%.2f", i ? ", " : "", samples->values[i]);
    printf("]");
}

static void print_object(const struct figure *figure)
{
    printf("{\"name\": \"%s\", \"unit\": \"%s\", \"limit\": %.0f, \"limit_over_control\": %s",
           figure->name, figure->unit, figure->limit, figure->over_control ? "true" : "false");
    print_samples("measured", &figure->measured);
    print_samples("control", &figure->control);
    printf("}");
}

void bench_print(const char *benchmark, bool json, struct figure *figures, size_t count)
{
    if (json)
        printf("{\"benchmark\": \"%s\", \"figures\": [", benchmark);
    else
        printf("%-36s %-4s %10s %10s %10s %12s\n", benchmark, "", "median", "p99", "control",
               "limit");
    for (size_t i = 0; i < count; i++) {
        if (json) {
            printf("%s\n  ", i ? "," : "");
            print_object(&figures[i]);
        } else {
            print_row(&figures[i]);
        }
        free(figures[i].measured.values);
        free(figures[i].control.values);
    }
    if (json)
        printf("\n]}\n");
}
