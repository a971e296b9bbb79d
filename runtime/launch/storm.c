#include "storm.h"

#include <stdlib.h>
#include <string.h>

#include "cache/report.h"

// What some call asked for.
struct jc_storm_variant {
    struct jc_storm_variant *next;
    // It was asked for as it stands here. Otherwise it is what was left of one when an argument was
    // stopped: it tells how the other arguments vary.
    bool asked;
    bool given_up; // what was asked for could not be made
    const char *const *parameters;
    struct jc_facet *facets;
};

enum jc_result jc_storm_init(struct jc_storm *storm, const struct jc_template *tmpl, size_t max,
                             struct jc_error *error)
{
    *storm = (struct jc_storm){.tmpl = tmpl, .max = max > 0 ? max : JC_DEFAULT_MAX_VARIANTS};
    storm->is_stopped =
        jc_arena_alloc(&storm->arena, tmpl->num_arguments, sizeof(*storm->is_stopped));
    // Every argument and every parameter is stopped once at most.
    storm->stops = jc_arena_alloc(&storm->arena, tmpl->num_arguments + tmpl->num_parameters,
                                  sizeof(*storm->stops));
    return storm->is_stopped && storm->stops ? JC_OK : jc_fail_memory(error);
}

static void drop(struct jc_storm_variant **link)
{
    struct jc_storm_variant *variant = *link;
    *link = variant->next;
    free(variant);
}

void jc_storm_finish(struct jc_storm *storm)
{
    while (storm->first)
        drop(&storm->first);
    jc_arena_finish(&storm->arena);
    *storm = (struct jc_storm){0};
}

void jc_storm_narrow(const struct jc_storm *storm, struct jc_facet *facets)
{
    if (storm->num_stops == 0)
        return;
    for (size_t i = 0; i < storm->tmpl->num_arguments; i++)
        if (storm->is_stopped[i])
            facets[i] = (struct jc_facet){0};
}

// --- comparing -----------------------------------------------------------------------------------

static bool is_same_facet(const struct jc_facet *a, const struct jc_facet *b)
{
    return a->kind == b->kind && a->n == b->n;
}

static bool has_facets(const struct jc_storm *storm, const struct jc_storm_variant *variant,
                       const struct jc_facet *facets)
{
    for (size_t i = 0; i < storm->tmpl->num_arguments; i++)
        if (!is_same_facet(&variant->facets[i], &facets[i]))
            return false;
    return true;
}

static bool has_parameters(const struct jc_storm *storm, const struct jc_storm_variant *variant,
                           const char *const *parameters)
{
    for (size_t i = 0; i < storm->tmpl->num_parameters; i++)
        if (strcmp(variant->parameters[i], parameters[i]) != 0)
            return false;
    return true;
}

// Whether one that stands before `end` has these facets, or these parameters: whichever is given.
static bool is_before(const struct jc_storm *storm, const struct jc_storm_variant *end,
                      const char *const *parameters, const struct jc_facet *facets)
{
    for (const struct jc_storm_variant *at = storm->first; at != end; at = at->next)
        if ((!facets || has_facets(storm, at, facets)) &&
            (!parameters || has_parameters(storm, at, parameters)))
            return true;
    return false;
}

static void count_sets(struct jc_storm *storm)
{
    storm->num_facets = storm->num_parameters = 0;
    for (const struct jc_storm_variant *at = storm->first; at; at = at->next) {
        storm->num_facets += !is_before(storm, at, NULL, at->facets);
        storm->num_parameters += !is_before(storm, at, at->parameters, NULL);
    }
}

// --- stopping ------------------------------------------------------------------------------------

// How many different states an argument's facets take, in what was asked for and in `facets`.
static size_t argument_states(const struct jc_storm *storm, size_t index,
                              const struct jc_facet *facets)
{
    size_t states = 1;
    for (const struct jc_storm_variant *at = storm->first; at; at = at->next) {
        bool fresh = !is_same_facet(&at->facets[index], &facets[index]);
        for (const struct jc_storm_variant *before = storm->first; before != at && fresh;
             before = before->next)
            fresh = !is_same_facet(&at->facets[index], &before->facets[index]);
        states += fresh;
    }
    return states;
}

static size_t parameter_states(const struct jc_storm *storm, size_t index,
                               const char *const *parameters)
{
    size_t states = 1;
    for (const struct jc_storm_variant *at = storm->first; at; at = at->next) {
        bool fresh = strcmp(at->parameters[index], parameters[index]) != 0;
        for (const struct jc_storm_variant *before = storm->first; before != at && fresh;
             before = before->next)
            fresh = strcmp(at->parameters[index], before->parameters[index]) != 0;
        states += fresh;
    }
    return states;
}

// A derived argument varies because of others, which are named first if they vary as much.
static bool is_worse(const struct jc_storm *storm, size_t states, size_t index, size_t than_states,
                     size_t than)
{
    if (states != than_states)
        return states > than_states;
    return !storm->tmpl->arguments[index].derive && storm->tmpl->arguments[than].derive;
}

static void note_stop(struct jc_storm *storm, const struct jc_storm_stop *stop)
{
    for (size_t i = 0; i < storm->num_stops; i++)
        if (storm->stops[i].is_parameter == stop->is_parameter &&
            storm->stops[i].index == stop->index)
            return;
    storm->stops[storm->num_stops++] = *stop;
}

// What was asked for is looked at without the argument from now on; what is the same then, once.
static void forget_argument(struct jc_storm *storm, size_t index)
{
    for (struct jc_storm_variant *at = storm->first; at; at = at->next) {
        at->asked = at->asked && at->facets[index].kind == JC_FACET_NONE;
        at->given_up = at->given_up && at->asked;
        at->facets[index] = (struct jc_facet){0};
    }
    for (struct jc_storm_variant **link = &storm->first; *link;) {
        struct jc_storm_variant *at = *link, *same = storm->first;
        while (same != at && !(has_facets(storm, same, at->facets) &&
                               has_parameters(storm, same, at->parameters)))
            same = same->next;
        if (same == at) {
            link = &at->next;
            continue;
        }
        same->asked = same->asked || at->asked;
        same->given_up = same->given_up || at->given_up;
        drop(link);
    }
    count_sets(storm);
}

// Stops the argument that varies most. False: none varies.
static bool stop_argument(struct jc_storm *storm, struct jc_facet *facets)
{
    struct jc_storm_stop worst = {.states = 1, .variants = storm->num_facets + 1};
    for (size_t i = 0; i < storm->tmpl->num_arguments; i++) {
        size_t states = argument_states(storm, i, facets);
        if (states > 1 && is_worse(storm, states, i, worst.states, worst.index)) {
            worst.states = states;
            worst.index = i;
        }
    }
    if (worst.states == 1)
        return false;
    storm->is_stopped[worst.index] = true;
    note_stop(storm, &worst);
    forget_argument(storm, worst.index);
    facets[worst.index] = (struct jc_facet){0};
    return true;
}

// Says of the parameter that varies most that it does.
static void stop_parameters(struct jc_storm *storm, const char *const *parameters)
{
    struct jc_storm_stop worst = {.is_parameter = true, .variants = storm->num_parameters + 1};
    for (size_t i = 0; i < storm->tmpl->num_parameters; i++) {
        size_t states = parameter_states(storm, i, parameters);
        if (states > worst.states) {
            worst.states = states;
            worst.index = i;
        }
    }
    note_stop(storm, &worst);
}

// --- asking --------------------------------------------------------------------------------------

static enum jc_storm_answer note(struct jc_storm *storm, const struct jc_specialization *wanted,
                                 const struct jc_facet *facets)
{
    const struct jc_template *tmpl = storm->tmpl;
    size_t facets_size = tmpl->num_arguments * sizeof(*facets);
    size_t parameters_size = tmpl->num_parameters * sizeof(char *);
    struct jc_storm_variant *variant = malloc(sizeof(*variant) + facets_size + parameters_size);
    if (!variant)
        return JC_STORM_FULL;
    // Facets are aligned as strictly as pointers are.
    struct jc_facet *own_facets = (void *) (variant + 1);
    const char **own_parameters = (void *) ((char *) own_facets + facets_size);
    memcpy(own_facets, facets, facets_size);
    if (parameters_size > 0)
        memcpy(own_parameters, wanted->parameters, parameters_size);
    storm->num_facets += !is_before(storm, NULL, NULL, facets);
    storm->num_parameters += !is_before(storm, NULL, wanted->parameters, NULL);
    *variant = (struct jc_storm_variant){
        .next = storm->first, .asked = true, .parameters = own_parameters, .facets = own_facets};
    storm->first = variant;
    return JC_STORM_NEW;
}

static struct jc_storm_variant *find(const struct jc_storm *storm,
                                     const struct jc_specialization *wanted,
                                     const struct jc_facet *facets)
{
    struct jc_storm_variant *at = storm->first;
    while (at && !(has_facets(storm, at, facets) && has_parameters(storm, at, wanted->parameters)))
        at = at->next;
    return at;
}

enum jc_storm_answer jc_storm_ask(struct jc_storm *storm, const struct jc_specialization *wanted,
                                  struct jc_facet *facets)
{
    // Each turn stops one more argument.
    for (;;) {
        struct jc_storm_variant *known = find(storm, wanted, facets);
        if (known && known->asked)
            return known->given_up ? JC_STORM_FULL : JC_STORM_KNOWN;
        if (!is_before(storm, NULL, wanted->parameters, NULL) &&
            storm->num_parameters >= storm->max) {
            stop_parameters(storm, wanted->parameters);
            return JC_STORM_FULL;
        }
        if (known) {
            known->asked = true;
            return JC_STORM_NEW;
        }
        if (is_before(storm, NULL, NULL, facets) || storm->num_facets < storm->max)
            return note(storm, wanted, facets);
        if (!stop_argument(storm, facets))
            return JC_STORM_FULL;
    }
}

void jc_storm_give_up(struct jc_storm *storm, const struct jc_specialization *wanted)
{
    struct jc_storm_variant *known = find(storm, wanted, wanted->facets);
    if (known)
        known->given_up = true;
}

void jc_storm_unask(struct jc_storm *storm, const struct jc_specialization *wanted)
{
    struct jc_storm_variant *known = find(storm, wanted, wanted->facets);
    if (known)
        known->asked = false;
}

// --- telling -------------------------------------------------------------------------------------

// A field of the item; NULL: there is none. No field has quotes in it.
static void put_field(struct jc_buffer *item, const char *name, const char *text)
{
    if (!text)
        return;
    // Words and pointers are plain YAML; ranges, expressions and signs are quoted.
    bool plain = text[strspn(text, "abcdefghijklmnopqrstuvwxyz"
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ *")] == '\0';
    jc_buffer_print(item, plain ? ", %s: %s" : ", %s: \"%s\"", name, text);
}

static void put_member(struct jc_buffer *item, const char *name, const char *text)
{
    if (text)
        jc_buffer_print(item, ", .%s = \"%s\"", name, text);
}

// Whether an item of the description begins with a dash, and not inside of brackets, or on the line
// behind its dash.
static bool has_dash(const char *text, unsigned line)
{
    const char *at = text;
    for (; line > 1 && (at = strchr(at, '\n')); line--)
        at++;
    if (!at)
        return true;
    at += strspn(at, " \t");
    return at[0] == '-' && (at[1] == ' ' || at[1] == '\t');
}

void jc_storm_put_item(const struct jc_template *tmpl, size_t index, struct jc_buffer *item)
{
    const struct jc_argument_description *argument = &tmpl->description.arguments[index];
    const char *text = tmpl->line_text;
    void (*put)(struct jc_buffer *, const char *, const char *) = text ? put_field : put_member;
    if (text)
        jc_buffer_print(item, "%s{name: %s",
                        has_dash(text, tmpl->arguments[index].line) ? "- " : "", argument->name);
    else
        jc_buffer_print(item, "{.name = \"%s\"", argument->name);
    put(item, "type", argument->type);
    put(item, "do_not_specialize", "true");
    put(item, "derive", argument->derive);
    put(item, "range", argument->range);
    put(item, "typical", argument->typical);
    jc_buffer_string(item, "}");
}

// A description beside the source lies in the same folder.
static void put_path(const struct jc_template *tmpl, struct jc_buffer *path)
{
    const char *slash = tmpl->file ? strrchr(tmpl->file, '/') : NULL;
    if (slash)
        jc_buffer_append(path, tmpl->file, (size_t) (slash + 1 - tmpl->file));
    jc_buffer_string(path, tmpl->line_name);
}

void jc_storm_put_file(const struct jc_template *tmpl, struct jc_buffer *file)
{
    if (tmpl->file)
        put_path(tmpl, file);
}

// Where it stands in what was written.
static void put_place(struct jc_buffer *place, const struct jc_template *tmpl, unsigned line)
{
    if (line == 0) {
        jc_buffer_string(place, "in its description");
        return;
    }
    jc_buffer_string(place, "in ");
    put_path(tmpl, place);
    jc_buffer_print(place, ":%u, in place of the item that begins there", line);
}

static void tell_argument(const struct jc_template *tmpl, const struct jc_storm_stop *stop,
                          const struct jc_log *log)
{
    const struct jc_argument *argument = &tmpl->arguments[stop->index];
    struct jc_buffer line = {0}, place = {0};
    put_place(&place, tmpl, argument->line);
    jc_storm_put_item(tmpl, stop->index, &line);
    jc_log(log, JC_LOG_WARNING, "%s: calls asked for %zu variants that were not planned, in which"
           " argument '%s' took %zu different states: it is not specialized any more. If it is"
           " meant to vary, write %s:\n  %s\notherwise plan for it with jc_kernel_warmup, or"
           " allow more with max_variants", tmpl->name, stop->variants, argument->name,
           stop->states, place.failed ? "in the template" : place.data,
           line.failed ? "(out of memory)" : line.data);
    jc_buffer_finish(&line);
    jc_buffer_finish(&place);
}

static void tell_parameter(const struct jc_template *tmpl, const struct jc_storm_stop *stop,
                           const struct jc_log *log)
{
    const struct jc_parameter *parameter = &tmpl->parameters[stop->index];
    jc_log(log, JC_LOG_WARNING, "%s: calls asked for %zu sets of parameters that were not planned,"
           " of which '%s' took %zu different values: further ones are not made, and the fallback"
           " parameters serve. Give '%s' fewer cases in its `dispatch`, or plan for them with"
           " jc_kernel_warmup, or allow more by max_variants", tmpl->name, stop->variants,
           parameter->name, stop->states, parameter->name);
}

void jc_storm_tell(const struct jc_template *tmpl, const struct jc_storm_stop *stop,
                   const struct jc_log *log)
{
    if (stop->is_parameter)
        tell_parameter(tmpl, stop, log);
    else
        tell_argument(tmpl, stop, log);
}
