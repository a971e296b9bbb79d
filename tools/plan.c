// `jitcache plan`: counts the variants of a template without compiling, and says what makes them.

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "calls.h"
#include "columns.h"
#include "keytext.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "selection.h"

// A table longer than a screen hides what stands above it.
#define VARIANTS_SHOWN 32
#define LINE_COLUMNS 90

enum { OPTION_ALL = JC_OPTION_OWN };

static const struct jc_option options_of_plan[] = {
    JC_SELECTION_OPTIONS,
    JC_SELECTION_GENERIC,
    {"all", OPTION_ALL, NULL, "show every variant, however many"},
    {NULL, 0, NULL, NULL},
};

struct planned {
    const struct jc_selection *selection;
    const struct jc_plan *plan;
    const struct jc_plan_variant *variants;
    size_t num_variants, num_reached, num_generic;
    const struct jc_plan_cause *causes;
    size_t num_causes;
    size_t *left; // for each cause: the variants left without its facets; SIZE_MAX: not known
    struct jc_line *shared; // the lines that all variants reached have
    size_t num_shared;
};

// --- what would be left --------------------------------------------------------------------------

// Whether the annotation is there already, and only --without ignores it.
static bool is_without(const struct jc_selection *selection, const char *name)
{
    for (size_t i = 0; i < selection->num_without; i++)
        if (strcmp(selection->without[i], name) == 0)
            return true;
    return false;
}

// The source with its front matter, if it has one, turned into a plain comment: it is described by
// a struct from here on. Allocated.
static char *undescribed_source(const struct jc_template *tmpl, size_t *size)
{
    static const char opening[] = "/*jitcache";
    const char *source = jc_template_source(tmpl, size);
    char *copy = jc_copy_text(source, *size);
    char *front = memmem(copy, *size, opening, strlen(opening));
    if (front)
        front[2] = ' ';
    return copy;
}

// The template with do_not_specialize: true on argument `name`; NULL where that does not work out.
static struct jc_template *annotate(const struct jc_template *tmpl, const char *name)
{
    struct jc_description description = *jc_template_description(tmpl);
    struct jc_argument_description *arguments =
        jc_allocate(description.num_arguments, sizeof(*arguments));
    for (size_t i = 0; i < description.num_arguments; i++) {
        arguments[i] = description.arguments[i];
        if (strcmp(arguments[i].name, name) != 0)
            continue;
        arguments[i].do_not_specialize = "true";
        arguments[i].align = NULL; // it would have nothing to tell apart
    }
    description.arguments = arguments;
    size_t size;
    char *source = undescribed_source(tmpl, &size);
    struct jc_template *annotated = NULL;
    jc_template_create(jc_template_params(.file = jc_template_file(tmpl), .text = source,
                                          .text_size = size, .description = &description),
                       &annotated, NULL);
    free(source);
    free(arguments);
    return annotated;
}

// How many variants are reached if argument `name` is annotated, whatever --without says of it.
static size_t count_left(const struct planned *planned, const char *name)
{
    const struct jc_selection *selection = planned->selection;
    struct jc_template *annotated = annotate(jc_plan_template(planned->plan), name);
    if (!annotated)
        return SIZE_MAX;
    const char **without = jc_allocate(selection->num_without, sizeof(*without));
    size_t num_without = 0, left = SIZE_MAX;
    for (size_t i = 0; i < selection->num_without; i++)
        if (strcmp(selection->without[i], name) != 0)
            without[num_without++] = selection->without[i];
    struct jc_plan *plan = NULL;
    if (jc_plan_create(annotated,
                       jc_plan_params(.parameters = selection->parameters,
                                      .num_parameters = selection->num_parameters,
                                      .ranges = selection->ranges,
                                      .num_ranges = selection->num_ranges, .without = without,
                                      .num_without = num_without),
                       &plan, NULL) == JC_OK)
        left = jc_plan_num_reached(plan);
    jc_plan_destroy(&plan);
    jc_template_destroy(&annotated);
    free(without);
    return left;
}

static bool is_facet(const struct jc_plan_cause *cause)
{
    return strcmp(cause->facet, "dispatch") != 0 && strcmp(cause->facet, "parameter") != 0;
}

static void count_all_left(struct planned *planned)
{
    planned->left = jc_allocate(planned->num_causes, sizeof(*planned->left));
    for (size_t i = 0; i < planned->num_causes; i++) {
        const struct jc_plan_cause *cause = &planned->causes[i];
        planned->left[i] = SIZE_MAX;
        if (!is_facet(cause))
            continue;
        size_t same = 0; // several facets of one argument have one answer
        while (strcmp(planned->causes[same].name, cause->name) != 0)
            same++;
        planned->left[i] = same < i ? planned->left[same] : count_left(planned, cause->name);
    }
}

static struct jc_lines lines_of(const struct jc_plan_variant *variant)
{
    return jc_lines_of(variant->specialization, strlen(variant->specialization));
}

// --- what is taken for granted -------------------------------------------------------------------

// The one value that the argument was planned with because the template calls it typical; NULL: it
// has a range, here or there, or no value.
static const char *typical_of(const struct planned *planned,
                              const struct jc_argument_description *argument)
{
    const struct jc_selection *selection = planned->selection;
    for (size_t i = 0; i < selection->num_ranges; i++)
        if (strcmp(selection->ranges[i].name, argument->name) == 0)
            return NULL;
    return argument->range || selection->generic ? NULL : argument->typical;
}

// --- for programs --------------------------------------------------------------------------------

static json_t *json_of_variant(const struct jc_plan_variant *variant)
{
    json_t *parameters = json_object(), *facets = json_object(), *first = json_object();
    struct jc_lines lines = lines_of(variant);
    struct jc_line line;
    while (jc_lines_next(&lines, &line)) {
        const char *dot = memchr(line.name, '.', line.name_size);
        assert(dot);
        char *name = jc_copy_text(dot + 1, (size_t) (line.name + line.name_size - dot - 1));
        json_object_set_new(line.name[0] == 'p' ? parameters : facets, name,
                            jc_json_text_of(line.value, line.value_size));
        free(name);
    }
    for (size_t i = 0; i < variant->num_first; i++)
        json_object_set_new(first, variant->first[i].argument,
                            json_integer(variant->first[i].value));
    return json_pack("{s:o, s:b, s:o, s:o, s:o, s:o}", "specialization",
                     jc_json_text(variant->specialization), "generic", (int) variant->generic,
                     "parameters", parameters, "facets", facets, "first", first, "calls",
                     jc_calls_json(variant));
}

static json_t *json_of_typical(const struct planned *planned)
{
    const struct jc_description *description =
        jc_template_description(jc_plan_template(planned->plan));
    json_t *typical = json_object();
    for (size_t i = 0; i < description->num_arguments; i++) {
        const char *value = typical_of(planned, &description->arguments[i]);
        if (value)
            json_object_set_new(typical, description->arguments[i].name,
                                json_integer(strtoll(value, NULL, 10)));
    }
    return typical;
}

static void print_json(const struct planned *planned)
{
    const struct jc_template *tmpl = jc_plan_template(planned->plan);
    json_t *list = json_array(), *causes = json_array();
    for (size_t i = 0; i < planned->num_variants; i++)
        json_array_append_new(list, json_of_variant(&planned->variants[i]));
    for (size_t i = 0; i < planned->num_causes; i++) {
        const struct jc_plan_cause *cause = &planned->causes[i];
        json_t *left = planned->left[i] == SIZE_MAX
                           ? json_null()
                           : json_integer((json_int_t) planned->left[i]);
        json_array_append_new(causes, json_pack("{s:s, s:s, s:I, s:s, s:o}", "name", cause->name,
                                                "facet", cause->facet, "states",
                                                (json_int_t) cause->states, "source",
                                                cause->source, "left_without", left));
    }
    jc_print_json(json_pack("{s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "kernel",
                            jc_json_text(jc_template_name(tmpl)), "file",
                            jc_json_text(jc_template_file(tmpl)), "variants",
                            (json_int_t) planned->num_reached, "generic",
                            (json_int_t) planned->num_generic, "typical",
                            json_of_typical(planned), "list", list, "causes", causes));
}

// --- for people ----------------------------------------------------------------------------------

static bool same_line(const struct jc_line *a, const struct jc_line *b)
{
    return a->name_size == b->name_size && a->value_size == b->value_size &&
           memcmp(a->name, b->name, a->name_size) == 0 &&
           memcmp(a->value, b->value, a->value_size) == 0;
}

static bool has_line(const struct jc_plan_variant *variant, const struct jc_line *wanted)
{
    struct jc_lines lines = lines_of(variant);
    struct jc_line line;
    while (jc_lines_next(&lines, &line))
        if (same_line(&line, wanted))
            return true;
    return false;
}

// Finds the lines that all variants reached have, which are no news in any row.
static void find_shared(struct planned *planned)
{
    struct jc_lines lines = lines_of(&planned->variants[0]);
    struct jc_line line;
    while (planned->num_reached && jc_lines_next(&lines, &line)) {
        size_t i = 1;
        while (i < planned->num_reached && has_line(&planned->variants[i], &line))
            i++;
        if (i < planned->num_reached)
            continue;
        planned->shared = jc_grow(planned->shared, planned->num_shared, sizeof(line));
        planned->shared[planned->num_shared++] = line;
    }
}

static bool is_shared(const struct planned *planned, const struct jc_line *line)
{
    for (size_t i = 0; i < planned->num_shared; i++)
        if (same_line(&planned->shared[i], line))
            return true;
    return false;
}

// "name=value" for a parameter, "name: facet" for a facet. Allocated.
static char *spell(const struct jc_line *line)
{
    bool parameter = line->name[0] == 'p';
    const char *dot = memchr(line->name, '.', line->name_size);
    assert(dot);
    char *text = jc_make_text("%.*s%s%.*s", (int) (line->name + line->name_size - dot - 1),
                              dot + 1, parameter ? "=" : ": ", (int) line->value_size,
                              line->value);
    char *printable = jc_printable(text, strlen(text), false);
    free(text);
    return printable;
}

// What sets a variant apart from the others. Allocated.
static char *describe(const struct planned *planned, const struct jc_plan_variant *variant)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return jc_copy_text("", 0);
    struct jc_lines lines = lines_of(variant);
    struct jc_line line;
    const char *comma = "";
    while (jc_lines_next(&lines, &line)) {
        if (is_shared(planned, &line))
            continue;
        char *spelled = spell(&line);
        fprintf(stream, "%s%s", comma, spelled);
        free(spelled);
        comma = ", ";
    }
    fclose(stream);
    return text ? text : jc_copy_text("", 0);
}

// Prints an item of a list that is broken into lines, and returns the column after it.
static size_t print_item(const char *text, bool last, size_t column)
{
    size_t width = jc_width(text) + 2;
    if (column + width > LINE_COLUMNS) {
        printf("\n ");
        column = 2;
    }
    printf(" %s%s", text, last ? "\n" : ",");
    return column + width;
}

static void print_shared(const struct planned *planned)
{
    size_t column = LINE_COLUMNS;
    if (planned->num_shared == 0)
        return;
    printf("\nCommon to all that calls reach:");
    for (size_t i = 0; i < planned->num_shared; i++) {
        char *spelled = spell(&planned->shared[i]);
        column = print_item(spelled, i + 1 == planned->num_shared, column);
        free(spelled);
    }
}

// Which calls reach a variant holds for these values of the other arguments.
static void print_typical(const struct planned *planned)
{
    const struct jc_description *description =
        jc_template_description(jc_plan_template(planned->plan));
    size_t column = LINE_COLUMNS, left = 0;
    for (size_t i = 0; i < description->num_arguments; i++)
        left += typical_of(planned, &description->arguments[i]) != NULL;
    if (left)
        printf("\nOf calls with the template's typical values; --range takes others:");
    for (size_t i = 0; i < description->num_arguments; i++) {
        const struct jc_argument_description *argument = &description->arguments[i];
        const char *typical = typical_of(planned, argument);
        if (!typical)
            continue;
        char *text = jc_make_text("%s=%s", argument->name, typical);
        column = print_item(text, --left == 0, column);
        free(text);
    }
}

// A row of the table.
static void add_variant(const struct planned *planned, const struct jc_calls *calls, size_t index,
                        struct jc_columns *table)
{
    const struct jc_plan_variant *variant = &planned->variants[index];
    const char *generic = variant->generic ? " (the generic one)" : "";
    char *known = describe(planned, variant);
    jc_columns_add(table, "%zu", index + 1);
    jc_calls_add(calls, variant, table);
    if (index < planned->num_reached)
        jc_columns_add(table, "%s%s", *known ? known : "only what is common", generic);
    else
        jc_columns_add(table, "%s%sno facets%s", known, *known ? ", " : "", generic);
    free(known);
}

static void print_rows(const struct planned *planned, const struct jc_calls *calls, size_t shown)
{
    struct jc_columns table;
    size_t num_columns = jc_calls_count_columns(calls);
    const char **headings = jc_allocate(num_columns + 3, sizeof(*headings)); // ends with NULL
    headings[0] = ">#";
    jc_calls_head(calls, planned->variants, headings + 1);
    headings[num_columns + 1] = "KNOWS";
    jc_columns_init(&table, headings);
    for (size_t i = 0; i < shown; i++)
        add_variant(planned, calls, i, &table);
    jc_columns_print(&table, 2);
    jc_columns_finish(&table);
    free(headings);
}

static void print_variants(const struct planned *planned, bool all)
{
    size_t shown = planned->num_variants;
    if (!all && shown > VARIANTS_SHOWN)
        shown = VARIANTS_SHOWN;
    struct jc_calls calls;
    jc_calls_init(&calls, planned->plan);
    print_rows(planned, &calls, shown);
    jc_calls_finish(&calls);
    if (shown < planned->num_variants)
        printf("  ... and %zu more; --all shows them\n", planned->num_variants - shown);
    bool star = false;
    for (size_t i = 0; i < shown; i++)
        star |= jc_calls_have_star(&planned->variants[i]);
    if (star)
        printf("  * not every combination of these values: others reach another variant\n");
}

static void print_causes(const struct planned *planned)
{
    static const char *const headings[] = {"NAME", "DIFFERS IN", ">STATES", "FOLLOWS FROM", NULL};
    if (planned->num_causes == 0)
        return;
    struct jc_columns table;
    jc_columns_init(&table, headings);
    for (size_t i = 0; i < planned->num_causes; i++) {
        const struct jc_plan_cause *cause = &planned->causes[i];
        jc_columns_add(&table, "%s", cause->name);
        jc_columns_add(&table, "%s", cause->facet);
        jc_columns_add(&table, "%zu", cause->states);
        jc_columns_add(&table, "%s", cause->source);
    }
    printf("\nWhat makes them:\n");
    jc_columns_print(&table, 2);
    jc_columns_finish(&table);
}

static void print_advice(const struct planned *planned)
{
    const char *last = "";
    for (size_t i = 0; i < planned->num_causes; i++) {
        const char *name = planned->causes[i].name;
        size_t left = planned->left[i];
        if (left >= planned->num_reached || strcmp(name, last) == 0)
            continue;
        printf("%s  do_not_specialize: true on %s leaves %zu%s\n", *last ? "" : "\n", name, left,
               is_without(planned->selection, name) ? " (it is there; --without ignores it)" : "");
        last = name;
    }
}

// Whether an argument's facets could tell variants apart, were they read.
static bool has_facets(const struct jc_argument_description *argument)
{
    const char *annotation = argument->do_not_specialize ? argument->do_not_specialize : "false";
    bool alignment = strcmp(annotation, "alignment") == 0;
    for (size_t i = 0; i < argument->num_facets && strcmp(annotation, "true") != 0; i++)
        if (!alignment || (strncmp(argument->facets[i], "div", 3) != 0 &&
                           strncmp(argument->facets[i], "align", 5) != 0))
            return true;
    return false;
}

// Whether the facets are those that its type has anyway: nobody need have thought of them.
static bool has_default_facets(const struct jc_argument_description *argument)
{
    const char *const *facets = argument->facets;
    bool pointer = strchr(argument->type, '*') != NULL;
    return pointer ? argument->num_facets == 1 && strcmp(facets[0], "align: 16") == 0
                   : argument->num_facets == 2 && strcmp(facets[0], "one") == 0 &&
                         strcmp(facets[1], "div: 16") == 0;
}

// Facets that nothing reads make no variants. Where they were declared that was not meant.
static void print_unread(const struct jc_template *tmpl, bool verbose)
{
    const struct jc_description *description = jc_template_description(tmpl);
    size_t others = 0;
    const char *space = "\n";
    for (size_t i = 0; i < description->num_arguments; i++) {
        const struct jc_argument_description *argument = &description->arguments[i];
        if (jc_template_reads_facts(tmpl, i) || !has_facets(argument))
            continue;
        if (!verbose && has_default_facets(argument)) {
            others++;
            continue;
        }
        printf("%sNothing reads the facets of %s: JC_FACT(%s) does not occur in the source.\n",
               space, argument->name, argument->name);
        space = "";
    }
    if (others)
        printf("%sNothing reads the default facets of %zu argument%s; -v names %s.\n", space,
               others, others == 1 ? "" : "s", others == 1 ? "it" : "them");
}

static void print_text(struct planned *planned, const struct jc_common *common, bool all)
{
    find_shared(planned);
    const struct jc_template *tmpl = jc_plan_template(planned->plan);
    bool alone = planned->selection->generic;
    size_t count = alone ? planned->num_generic : planned->num_reached;
    printf("%s: %zu %svariant%s", jc_template_name(tmpl), count, alone ? "generic " : "",
           count == 1 ? "" : "s");
    if (alone)
        printf(", and none for its calls");
    else if (planned->num_generic)
        printf(", and %zu generic", planned->num_generic);
    else
        printf(", the generic one among them");
    printf("\n\n");
    print_variants(planned, all);
    print_typical(planned);
    print_shared(planned);
    print_causes(planned);
    print_advice(planned);
    print_unread(tmpl, common->verbosity > 0);
}

// --- the command ---------------------------------------------------------------------------------

static int plan_file(const struct jc_selection *selection, const struct jc_common *common,
                     bool all)
{
    struct jc_plan *plan = NULL;
    int status = jc_selection_plan(selection, selection->templates[0], &plan);
    if (status)
        return status;
    struct planned planned = {
        .selection = selection,
        .plan = plan,
        .num_reached = jc_plan_num_reached(plan),
        .num_generic = jc_plan_num_generic(plan),
    };
    planned.variants = jc_plan_variants(plan, &planned.num_variants);
    planned.causes = jc_plan_causes(plan, &planned.num_causes);
    count_all_left(&planned);
    if (common->json)
        print_json(&planned);
    else
        print_text(&planned, common, all);
    free(planned.left);
    free(planned.shared);
    jc_plan_destroy(&plan);
    return JC_STATUS_DONE;
}

static int load_file(struct jc_selection *selection, const struct jc_command *command,
                     char *const *files, int num_files)
{
    if (num_files < 1)
        return jc_options_misuse(command, "a template's FILE is missing");
    if (num_files > 1)
        return jc_options_misuse(command, "one FILE at a time, but there is '%s' too", files[1]);
    return jc_selection_load(selection, files, 1);
}

static int run_plan(const struct jc_command *command, int argc, char **argv)
{
    struct jc_options options;
    struct jc_selection selection = {0};
    bool all = false;
    int option = JC_OPTIONS_END, status = JC_STATUS_DONE;
    jc_options_init(&options, command, argc, argv);
    while (!status && (option = jc_options_next(&options)) > 0) {
        if (option == OPTION_ALL)
            all = true;
        else
            status = jc_selection_add(&selection, command, option, options.value);
    }
    if (option == JC_OPTIONS_STOP)
        status = options.status;
    else if (!status && !(status = load_file(&selection, command, argv + optind, argc - optind)))
        status = plan_file(&selection, &options.common, all);
    jc_selection_finish(&selection);
    return status;
}

const struct jc_command jc_command_plan = {
    .name = "plan",
    .summary = "count the variants of a template without compiling",
    .usage = "[OPTION]... FILE",
    .purpose = "Counts the variants that a range of arguments can reach, without compiling, and\n"
               "says which calls reach each, and which arguments and facets make them.",
    .options = options_of_plan,
    .examples =
        "jitcache plan templates/fused_inv_rope_fp8_quant.cu --range num_tokens=1:8192\n"
        "jitcache plan templates/fused_inv_rope_fp8_quant.cu --range num_tokens=1:8192 \\\n"
        "    --param scale_format=ue8m0 --without scale_stride_k",
    .statuses = "0  done\n"
                "2  wrong use, a template that does not read, a name that it does not have",
    .run = run_plan,
};
