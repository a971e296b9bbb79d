#include "calls.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

// More runs than these are a pattern, of which two show how it goes on.
#define RUNS_LISTED 4
#define RUNS_OF_A_PATTERN 2

// --- which arguments -----------------------------------------------------------------------------

static bool same_values(const struct jc_plan_values *a, const struct jc_plan_values *b)
{
    return a->smallest == b->smallest && a->largest == b->largest && a->total_runs == 1 &&
           b->total_runs == 1;
}

// Whether not all variants have all values of the argument: some variant's have a gap, or end
// elsewhere than another's, or go with some values of other arguments only.
static bool tells_apart(const struct jc_plan_variant *variants, size_t count, size_t place)
{
    for (size_t i = 0; i < count; i++)
        if (variants[i].values[place]->tied ||
            !same_values(variants[i].values[place], variants[0].values[place]))
            return true;
    return false;
}

void jc_calls_init(struct jc_calls *calls, const struct jc_plan *plan)
{
    const struct jc_plan_variant *variants = jc_plan_variants(plan, NULL);
    size_t num_reached = jc_plan_num_reached(plan);
    size_t count = num_reached ? variants[0].num_first : 0;
    *calls = (struct jc_calls){.tmpl = jc_plan_template(plan)};
    calls->shown = jc_allocate(count, sizeof(*calls->shown));
    for (size_t i = 0; i < count; i++)
        if (count == 1 || tells_apart(variants, num_reached, i))
            calls->shown[calls->num_shown++] = i;
}

void jc_calls_finish(struct jc_calls *calls)
{
    free(calls->shown);
    *calls = (struct jc_calls){0};
}

// --- in a table ----------------------------------------------------------------------------------

size_t jc_calls_count_columns(const struct jc_calls *calls)
{
    return calls->num_shown ? calls->num_shown : 1;
}

void jc_calls_head(const struct jc_calls *calls, const struct jc_plan_variant *reached,
                   const char **headings)
{
    headings[0] = "CALLS";
    for (size_t i = 0; i < calls->num_shown; i++)
        headings[i] = reached->values[calls->shown[i]]->argument;
}

static const struct jc_argument_description *find_argument(const struct jc_template *tmpl,
                                                           const char *name)
{
    const struct jc_argument_description *argument = jc_template_description(tmpl)->arguments;
    while (strcmp(argument->name, name) != 0)
        argument++;
    return argument;
}

// Of a pointer: "aligned", "unaligned", and between them "aligned to 16".
static void print_alignment(FILE *stream, const struct jc_argument_description *argument,
                            int64_t value)
{
    size_t first = 0;
    while (strncmp(argument->facets[first], "align", 5) != 0)
        first++;
    size_t holds = first + (size_t) value;
    if (value == 0)
        fputs("aligned", stream);
    else if (holds == argument->num_facets)
        fputs("unaligned", stream);
    else
        fprintf(stream, "aligned to %s",
                argument->facets[holds] + strcspn(argument->facets[holds], "0123456789"));
}

static void print_alignments(FILE *stream, const struct jc_argument_description *argument,
                             const struct jc_plan_values *values)
{
    for (int64_t i = values->smallest; i <= values->largest; i++) {
        fputs(i > values->smallest ? ", " : "", stream);
        print_alignment(stream, argument, i);
    }
}

static void print_run(FILE *stream, int64_t first, int64_t last)
{
    fprintf(stream, "%" PRId64, first);
    if (last > first)
        fprintf(stream, "..%" PRId64, last);
}

static void print_integers(FILE *stream, const struct jc_plan_values *values)
{
    bool listed = values->total_runs <= RUNS_LISTED;
    size_t count = listed ? values->num_runs : RUNS_OF_A_PATTERN;
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ", " : "", stream);
        print_run(stream, values->runs[i].first, values->runs[i].last);
    }
    if (values->total_runs == 0) {
        fputs("within ", stream);
        print_run(stream, values->smallest, values->largest);
    } else if (!listed) {
        fprintf(stream, ", ... %" PRId64 " (%" PRIu64 " values)", values->largest, values->count);
    }
}

static void add_values(const struct jc_calls *calls, const struct jc_plan_values *values,
                       struct jc_columns *table)
{
    const struct jc_argument_description *argument = find_argument(calls->tmpl, values->argument);
    char *text;
    size_t size;
    FILE *stream = jc_memory_open(&text, &size);
    // No expression reads a pointer, so its alignments are tied to nothing.
    if (strchr(argument->type, '*'))
        print_alignments(stream, argument, values);
    else
        print_integers(stream, values);
    jc_memory_close(stream);
    jc_columns_add(table, "%s%s", text, values->tied ? " *" : "");
    free(text);
}

void jc_calls_add(const struct jc_calls *calls, const struct jc_plan_variant *variant,
                  struct jc_columns *table)
{
    if (!variant->values) {
        jc_columns_add(table, "no call");
        for (size_t i = 1; i < calls->num_shown; i++)
            jc_columns_add(table, "-");
        return;
    }
    if (calls->num_shown == 0)
        jc_columns_add(table, "every call");
    for (size_t i = 0; i < calls->num_shown; i++)
        add_values(calls, variant->values[calls->shown[i]], table);
}

bool jc_calls_have_star(const struct jc_plan_variant *variant)
{
    for (size_t i = 0; i < variant->num_first; i++)
        if (variant->values[i]->tied)
            return true;
    return false;
}

// --- for programs --------------------------------------------------------------------------------

static json_t *json_of_runs(const struct jc_plan_values *values)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < values->num_runs; i++)
        json_array_append_new(runs, json_pack("[I, I]", (json_int_t) values->runs[i].first,
                                              (json_int_t) values->runs[i].last));
    return runs;
}

static json_t *json_of_known(uint64_t number)
{
    return number ? json_integer((json_int_t) number) : json_null();
}

static json_t *json_of_values(const struct jc_plan_values *values)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:b}", "smallest", (json_int_t) values->smallest,
                     "largest", (json_int_t) values->largest, "count",
                     json_of_known(values->count), "total_runs",
                     json_of_known(values->total_runs), "runs", json_of_runs(values), "tied",
                     (int) values->tied);
}

json_t *jc_calls_json(const struct jc_plan_variant *variant)
{
    json_t *calls = json_object();
    for (size_t i = 0; i < variant->num_first; i++)
        json_object_set_new(calls, variant->values[i]->argument,
                            json_of_values(variant->values[i]));
    return calls;
}
