#include "figure.h"

#include <math.h>
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
    q = q < 0 ? 0 : q > 1 ? 1 : q;
    qsort(samples->values, samples->count, sizeof(double), compare);
    return samples->values[(size_t) (q * (double) (samples->count - 1))];
}

// Sample by sample.
static struct samples differences(const struct samples *from, const struct samples *control)
{
    struct samples all = {0};
    for (size_t i = 0; i < from->count && i < control->count; i++)
        bench_add(&all, from->values[i] - control->values[i]);
    return all;
}

double bench_difference(const struct samples *from, const struct samples *control)
{
    struct samples all = differences(from, control);
    double median = quantile(&all, 0.5);
    free(all.values);
    return median;
}

// The median, and where it lies with 95 % certainty: the order statistics that a binomial
// distribution says, whatever the distribution of the samples.
static void print_difference(const char *what, struct samples *all)
{
    double reach = 0.98 / sqrt((double) all->count);
    printf("  %-39s %10.1f  [%.1f, %.1f]\n", what, quantile(all, 0.5),
           quantile(all, 0.5 - reach), quantile(all, 0.5 + reach));
    free(all->values);
}

static void print_row(struct figure *figure)
{
    struct samples added = differences(&figure->measured, &figure->control); // sorted from here on
    struct samples alike = differences(&figure->again, &figure->control);
    printf("%-36s %-4s %10.1f %10.1f %10.1f ", figure->name, figure->unit,
           quantile(&figure->measured, 0.5), quantile(&figure->measured, 0.99),
           quantile(&figure->control, 0.5));
    const char *sign = figure->over_control ? "+ " : figure->times_control ? "x " : "  ";
    if (figure->limit > 0)
        printf("%s%10.4g\n", sign, figure->limit);
    else
        printf("%12s\n", "-");
    if (alike.count) {
        print_difference("added", &added);
        print_difference(
            figure->paused ? "the control after a pause" : "the control against itself", &alike);
    } else {
        free(added.values);
    }
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
    printf("{\"name\": \"%s\", \"unit\": \"%s\", \"limit\": %.10g, \"limit_over_control\": %s"
           ", \"limit_times_control\": %s", figure->name, figure->unit, figure->limit,
           figure->over_control ? "true" : "false", figure->times_control ? "true" : "false");
    print_samples("measured", &figure->measured);
    print_samples("control", &figure->control);
    print_samples("again", &figure->again);
    printf(", \"paused\": %s", figure->paused ? "true" : "false");
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
        free(figures[i].again.values);
    }
    if (json)
        printf("\n]}\n");
}
