#include "order.h"

#include <stdio.h>
#include <string.h>

#include "cache/report.h"
#include "scanner.h"

// A walk through what follows from what, depth first, which gives the order of computation and
// finds circles. `path` is what is being looked at.
struct walk {
    const struct jc_template *tmpl;
    const struct jc_description *from;
    const struct jc_lines *lines;
    struct jc_error *error;
    enum { UNSEEN, ON_PATH, DONE } *states;
    unsigned *path;
    size_t path_length;
    unsigned *order;
    size_t num_order;
};

static const char *name_of(const struct jc_template *tmpl, unsigned slot)
{
    return slot < tmpl->num_arguments ? tmpl->arguments[slot].name
                                      : tmpl->parameters[slot - tmpl->num_arguments].name;
}

static enum jc_result refuse_circle(const struct walk *walk, unsigned slot)
{
    const struct jc_template *tmpl = walk->tmpl;
    char circle[512] = "";
    size_t start = 0;
    while (walk->path[start] != slot)
        start++;
    for (size_t i = start; i < walk->path_length; i++) {
        size_t length = strlen(circle);
        snprintf(circle + length, sizeof(circle) - length, "%s -> ", name_of(tmpl, walk->path[i]));
    }
    struct jc_place place = {.name = name_of(tmpl, slot)};
    if (slot < tmpl->num_arguments) {
        place.list = "arguments";
        place.field = "derive";
        place.index = slot;
        place.line = jc_lines_find(walk->lines, walk->from->arguments[slot].derive,
                                   tmpl->arguments[slot].line);
    } else {
        place.list = "parameters";
        place.field = "dispatch";
        place.index = slot - tmpl->num_arguments;
        place.line = tmpl->parameters[place.index].line;
    }
    return jc_place_fail(walk->lines, &place, walk->error, JC_ERROR_TEMPLATE,
                         "follows from itself: %s%s; break the circle", circle, place.name);
}

static enum jc_result visit(struct walk *walk, unsigned slot);

static enum jc_result visit_uses(struct walk *walk, const struct jc_expression *expression)
{
    enum jc_result result = JC_OK;
    for (size_t i = 0; expression && result == JC_OK && i < expression->num_uses; i++)
        result = visit(walk, expression->uses[i]);
    return result;
}

static enum jc_result visit(struct walk *walk, unsigned slot)
{
    const struct jc_template *tmpl = walk->tmpl;
    if (walk->states[slot] == DONE)
        return JC_OK;
    if (walk->states[slot] == ON_PATH)
        return refuse_circle(walk, slot);
    walk->states[slot] = ON_PATH;
    walk->path[walk->path_length++] = slot;
    enum jc_result result = JC_OK;
    bool computed;
    if (slot < tmpl->num_arguments) {
        computed = tmpl->arguments[slot].derive != NULL;
        result = visit_uses(walk, tmpl->arguments[slot].derive);
    } else {
        const struct jc_parameter *parameter = &tmpl->parameters[slot - tmpl->num_arguments];
        computed = parameter->num_dispatch > 0;
        for (size_t i = 0; result == JC_OK && i < parameter->num_dispatch; i++)
            result = visit_uses(walk, parameter->dispatch[i].when);
    }
    walk->path_length--;
    walk->states[slot] = DONE;
    if (result == JC_OK && computed)
        walk->order[walk->num_order++] = slot;
    return result;
}

enum jc_result jc_template_find_order(struct jc_template *tmpl, const struct jc_description *from,
                                      const struct jc_lines *lines, struct jc_error *error)
{
    size_t count = tmpl->num_arguments + tmpl->num_parameters;
    struct walk walk = {.tmpl = tmpl, .from = from, .lines = lines, .error = error};
    walk.states = jc_arena_alloc(&tmpl->arena, count, sizeof(*walk.states));
    walk.path = jc_arena_alloc(&tmpl->arena, count, sizeof(*walk.path));
    walk.order = jc_arena_alloc(&tmpl->arena, count, sizeof(*walk.order));
    if (!walk.states || !walk.path || !walk.order)
        return jc_fail_memory(error);
    enum jc_result result = JC_OK;
    for (unsigned slot = 0; result == JC_OK && slot < count; slot++)
        result = visit(&walk, slot);
    tmpl->order = walk.order;
    tmpl->num_order = walk.num_order;
    return result;
}

void jc_template_find_facts(struct jc_template *tmpl)
{
    struct jc_scanner scanner = {
        .next = tmpl->source, .end = tmpl->source + tmpl->source_size, .line = 1};
    struct jc_token tokens[3] = {{0}};
    for (;;) {
        struct jc_token token = jc_scanner_next(&scanner);
        if (token.kind == JC_TOKEN_END)
            return;
        if (token.kind == JC_TOKEN_COMMENT)
            continue;
        bool opened = tokens[0].kind == JC_TOKEN_WORD && tokens[0].size == 7 &&
                      memcmp(tokens[0].text, "JC_FACT", 7) == 0 &&
                      tokens[1].kind == JC_TOKEN_SIGN && *tokens[1].text == '(';
        bool closed = token.kind == JC_TOKEN_SIGN && *token.text == ')';
        for (size_t i = 0; opened && closed && i < tmpl->num_arguments; i++)
            if (tokens[2].kind == JC_TOKEN_WORD &&
                strlen(tmpl->arguments[i].name) == tokens[2].size &&
                memcmp(tmpl->arguments[i].name, tokens[2].text, tokens[2].size) == 0)
                tmpl->arguments[i].reads_facts = true;
        tokens[0] = tokens[1];
        tokens[1] = tokens[2];
        tokens[2] = token;
    }
}
