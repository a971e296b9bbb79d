#include "census.h"

#include <stdlib.h>
#include <string.h>

#include "origin.h"
#include "runtime/compile/buffer.h"

// What grows does so in small parts, so that no launch has much to move at a time.
#define CHUNK_STATES 64
#define FIRST_SLOTS 8
#define SHARDS_LOG2 6
#define FIRST_HASHES_LOG2 2

// One that an argument or a parameter took.
struct state {
    uint32_t hash;
    bool planned, asked;
    struct jc_facet facet;
    char *value; // of a parameter
};

// An argument that carries facets, or a parameter that is dispatched.
struct column {
    bool is_parameter, more;
    size_t index;
    // In the order in which they came: a chunk is made when its first one comes.
    struct state *chunks[JC_SHEET_STATES / CHUNK_STATES];
    size_t num_states;
    // Where a hash begins to be looked for: 1 more than which state it is, 0 for none. Half of them
    // are empty.
    uint16_t *slots;
    size_t num_slots;
    size_t num_asked;   // states that calls asked for
    size_t num_strange; // of them: no planned variant has them
};

// Hashes of variants, none of which is 0. The topmost bits of one say in which shard it is.
struct shard {
    uint64_t *slots;
    unsigned log2;
    size_t count;
};
struct hashes {
    struct shard shards[1 << SHARDS_LOG2];
    size_t count, most;
};

struct jc_census {
    const struct jc_template *tmpl;
    char *file; // where arguments are described; "": nobody knows
    struct column *columns;
    size_t num_columns;
    struct hashes planned, asked;
    size_t num_asked; // and not planned since
    uint64_t first_ms, last_ms;
};

static struct state *state_at(const struct column *column, size_t index)
{
    return &column->chunks[index / CHUNK_STATES][index % CHUNK_STATES];
}

// --- its life ------------------------------------------------------------------------------------

static bool is_specialized(const struct jc_argument *argument)
{
    for (unsigned i = 0; i < argument->num_facets; i++)
        if (jc_argument_facet_active(argument, &argument->facets[i], false))
            return true;
    return false;
}

static void find_columns(struct jc_census *census)
{
    const struct jc_template *tmpl = census->tmpl;
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (is_specialized(&tmpl->arguments[i]))
            census->columns[census->num_columns++] = (struct column){.index = i};
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        if (tmpl->parameters[i].num_dispatch > 0)
            census->columns[census->num_columns++] =
                (struct column){.is_parameter = true, .index = i};
}

// What people can open, wherever they are. NULL: out of memory, or there is no working folder.
static char *find_file(const struct jc_template *tmpl)
{
    struct jc_buffer file = {0};
    jc_storm_put_file(tmpl, &file);
    jc_buffer_string(&file, "");
    char *found = jc_buffer_take(&file);
    if (!found || !tmpl->is_in_file)
        return found;
    char *absolute = jc_origin_absolute(found);
    free(found);
    return absolute;
}

struct jc_census *jc_census_create(const struct jc_template *tmpl)
{
    struct jc_census *census = calloc(1, sizeof(*census));
    if (!census)
        return NULL;
    *census = (struct jc_census){.tmpl = tmpl, .planned = {.most = SIZE_MAX},
                                 .asked = {.most = JC_CENSUS_ASKED}};
    census->columns =
        calloc(tmpl->num_arguments + tmpl->num_parameters + 1, sizeof(*census->columns));
    census->file = find_file(tmpl);
    if (!census->file)
        census->file = strdup("");
    if (census->columns && census->file)
        find_columns(census);
    else
        jc_census_destroy(&census);
    return census;
}

static void finish_column(struct column *column)
{
    for (size_t i = 0; i < column->num_states; i++)
        free(state_at(column, i)->value);
    for (size_t i = 0; i < JC_SHEET_STATES / CHUNK_STATES; i++)
        free(column->chunks[i]);
    free(column->slots);
}

static void empty_hashes(struct hashes *hashes)
{
    for (size_t i = 0; i < 1 << SHARDS_LOG2; i++)
        free(hashes->shards[i].slots);
    *hashes = (struct hashes){.most = hashes->most};
}

void jc_census_destroy(struct jc_census **out)
{
    struct jc_census *census = *out;
    *out = NULL;
    if (!census)
        return;
    for (size_t i = 0; i < census->num_columns; i++)
        finish_column(&census->columns[i]);
    free(census->columns);
    free(census->file);
    empty_hashes(&census->planned);
    empty_hashes(&census->asked);
    free(census);
}

// --- variants ------------------------------------------------------------------------------------

// Numbers below 2^32 have each a hash of their own.
static uint32_t hash_facet(const struct jc_facet *facet)
{
    uint32_t low = (uint32_t) (uint64_t) facet->n, high = (uint32_t) ((uint64_t) facet->n >> 32);
    uint32_t hash = low + (uint32_t) facet->kind * UINT32_C(0xC2B2AE35);
    hash = (hash ^ high * UINT32_C(0x85EBCA6B)) * UINT32_C(0x9E3779B1);
    return hash ^ hash >> 16;
}

// FNV-1a.
static uint32_t hash_text(const char *text)
{
    uint32_t hash = UINT32_C(2166136261);
    for (; *text; text++)
        hash = (hash ^ (unsigned char) *text) * UINT32_C(16777619);
    return hash;
}

static uint32_t hash_state(const struct column *column, const struct jc_specialization *of)
{
    return column->is_parameter ? hash_text(of->parameters[column->index])
                                : hash_facet(&of->facets[column->index]);
}

static uint64_t hash_variant(const struct jc_census *census, const struct jc_specialization *of)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < census->num_columns; i++) {
        hash = (hash ^ hash_state(&census->columns[i], of)) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash ? hash : 1;
}

// Where a hash stands, or would.
static uint64_t *slot_of(const struct shard *shard, uint64_t hash)
{
    size_t mask = ((size_t) 1 << shard->log2) - 1, at = (size_t) hash & mask;
    while (shard->slots[at] && shard->slots[at] != hash)
        at = (at + 1) & mask;
    return &shard->slots[at];
}

static bool has_hash(const struct hashes *hashes, uint64_t hash)
{
    const struct shard *shard = &hashes->shards[hash >> (64 - SHARDS_LOG2)];
    return shard->slots && *slot_of(shard, hash) == hash;
}

// Keeps half of the slots empty. False: out of memory.
static bool make_room(struct shard *shard)
{
    size_t size = shard->slots ? (size_t) 1 << shard->log2 : 0;
    if (2 * (shard->count + 1) <= size)
        return true;
    struct shard grown = *shard;
    grown.log2 = size > 0 ? shard->log2 + 1 : FIRST_HASHES_LOG2;
    grown.slots = calloc((size_t) 1 << grown.log2, sizeof(*grown.slots));
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < size; i++)
        if (shard->slots[i])
            *slot_of(&grown, shard->slots[i]) = shard->slots[i];
    free(shard->slots);
    *shard = grown;
    return true;
}

// False: there is no room for it. It is not there before.
static bool add_hash(struct hashes *hashes, uint64_t hash)
{
    struct shard *shard = &hashes->shards[hash >> (64 - SHARDS_LOG2)];
    if (hashes->count == hashes->most || !make_room(shard))
        return false;
    *slot_of(shard, hash) = hash;
    shard->count++;
    hashes->count++;
    return true;
}

// --- states --------------------------------------------------------------------------------------

static uint16_t *place_of(const struct column *column, uint32_t hash)
{
    size_t mask = column->num_slots - 1, at = hash & mask;
    while (column->slots[at] && state_at(column, column->slots[at] - 1)->hash != hash)
        at = (at + 1) & mask;
    return &column->slots[at];
}

static bool make_slots(struct column *column)
{
    size_t size = column->num_slots > 0 ? 2 * column->num_slots : FIRST_SLOTS;
    uint16_t *slots = calloc(size, sizeof(*slots));
    if (!slots)
        return false;
    free(column->slots);
    column->slots = slots;
    column->num_slots = size;
    for (size_t i = 0; i < column->num_states; i++)
        *place_of(column, state_at(column, i)->hash) = (uint16_t) (i + 1);
    return true;
}

static bool grow(struct column *column)
{
    struct state **chunk = &column->chunks[column->num_states / CHUNK_STATES];
    if (!*chunk)
        *chunk = calloc(CHUNK_STATES, sizeof(**chunk));
    return *chunk && (2 * (column->num_states + 1) <= column->num_slots || make_slots(column));
}

static struct state *add_state(struct column *column, const struct jc_specialization *of,
                               uint32_t hash)
{
    struct state state = {.hash = hash};
    if (column->num_states == JC_SHEET_STATES) {
        column->more = true;
        return NULL;
    }
    if (!grow(column))
        return NULL;
    if (column->is_parameter)
        state.value = strdup(of->parameters[column->index]);
    else
        state.facet = of->facets[column->index];
    if (column->is_parameter && !state.value)
        return NULL;
    *place_of(column, hash) = (uint16_t) (column->num_states + 1);
    *state_at(column, column->num_states) = state;
    return state_at(column, column->num_states++);
}

// The one that a variant has; NULL: there is no room for it.
static struct state *state_of(struct column *column, const struct jc_specialization *of)
{
    uint32_t hash = hash_state(column, of);
    uint16_t place = column->slots ? *place_of(column, hash) : 0;
    return place ? state_at(column, place - 1) : add_state(column, of, hash);
}

// --- counting ------------------------------------------------------------------------------------

// All that was asked for is planned by now: a warm-up that came after a few calls is no fault of
// what those took.
static void forget_asked(struct jc_census *census)
{
    empty_hashes(&census->asked);
    census->first_ms = census->last_ms = 0;
    for (size_t i = 0; i < census->num_columns; i++) {
        struct column *column = &census->columns[i];
        column->num_asked = column->num_strange = 0;
        for (size_t j = 0; j < column->num_states; j++)
            state_at(column, j)->asked = false;
    }
}

void jc_census_plan(struct jc_census *census, const struct jc_specialization *of)
{
    uint64_t hash = hash_variant(census, of);
    if (has_hash(&census->planned, hash))
        return;
    add_hash(&census->planned, hash);
    if (has_hash(&census->asked, hash) && --census->num_asked == 0)
        forget_asked(census);
    for (size_t i = 0; i < census->num_columns; i++) {
        struct column *column = &census->columns[i];
        struct state *state = state_of(column, of);
        if (!state || state->planned)
            continue;
        state->planned = true;
        column->num_strange -= state->asked;
    }
}

static void note_asked(struct jc_census *census, const struct jc_specialization *wanted)
{
    for (size_t i = 0; i < census->num_columns; i++) {
        struct column *column = &census->columns[i];
        struct state *state = state_of(column, wanted);
        if (!state || state->asked)
            continue;
        state->asked = true;
        column->num_asked++;
        column->num_strange += !state->planned;
    }
}

void jc_census_ask(struct jc_census *census, const struct jc_specialization *wanted,
                   uint64_t now_ms)
{
    uint64_t hash = hash_variant(census, wanted);
    if (has_hash(&census->planned, hash))
        return;
    if (census->first_ms == 0)
        census->first_ms = now_ms;
    census->last_ms = now_ms;
    if (has_hash(&census->asked, hash))
        return;
    census->num_asked += add_hash(&census->asked, hash);
    note_asked(census, wanted);
}

// --- who is at fault -----------------------------------------------------------------------------

bool jc_census_read(const struct jc_census *census, struct jc_sheet_kernel *row)
{
    if (census->num_asked == 0)
        return false;
    row->asked += census->num_asked;
    if (row->first_asked_ms == 0 || census->first_ms < row->first_asked_ms)
        row->first_asked_ms = census->first_ms;
    if (census->last_ms > row->last_asked_ms)
        row->last_asked_ms = census->last_ms;
    return true;
}

size_t jc_census_size(const struct jc_census *census)
{
    return census->num_columns;
}

// Whether something has states that no planned variant has.
static bool has_strange(const struct jc_census *census)
{
    for (size_t i = 0; i < census->num_columns; i++)
        if (census->columns[i].num_strange > 0)
            return true;
    return false;
}

static bool is_at_fault(const struct jc_census *census, const struct column *column)
{
    if (census->num_asked == 0)
        return false;
    if (census->planned.count > 0 && has_strange(census))
        return column->num_strange > 0;
    return column->num_asked > 1;
}

static bool is_stopped(const struct jc_storm *storm, const struct column *column)
{
    if (!column->is_parameter)
        return storm->is_stopped[column->index];
    for (size_t i = 0; i < storm->num_stops; i++)
        if (storm->stops[i].is_parameter && storm->stops[i].index == column->index)
            return true;
    return false;
}

// Of those that are `planned`, and `asked`, as many as there is room for.
static void add_examples(const struct column *column, bool planned, bool asked,
                         struct jc_finding *finding)
{
    for (size_t i = 0; i < column->num_states && finding->num_examples < JC_SHEET_EXAMPLES; i++) {
        const struct state *state = state_at(column, i);
        if (state->planned != planned || state->asked != asked)
            continue;
        finding->examples[finding->num_examples].facet = state->facet;
        finding->examples[finding->num_examples++].value = state->value;
    }
}

bool jc_census_find(const struct jc_census *census, const struct jc_storm *storm, size_t at,
                    struct jc_finding *finding)
{
    const struct column *column = &census->columns[at];
    if (!is_at_fault(census, column))
        return false;
    finding->is_parameter = column->is_parameter;
    finding->stopped = is_stopped(storm, column);
    finding->more = column->more;
    finding->index = column->index;
    finding->num_states = column->num_states;
    for (size_t i = 0; i < column->num_states; i++)
        finding->states[i] = state_at(column, i)->hash;
    finding->num_examples = 0;
    add_examples(column, false, true, finding);
    add_examples(column, true, true, finding);
    add_examples(column, true, false, finding);
    return true;
}

// --- saying so -----------------------------------------------------------------------------------

// What a warm-up needs beside, to reach what an argument takes.
static const char *way_to_plan(const struct jc_argument *argument)
{
    unsigned first;
    if (argument->derive)
        return " and ranges of those";
    if (argument->type.type_class != JC_CLASS_POINTER)
        return " and a `range`";
    bool may_flip = !argument->align_either && jc_argument_aligns(argument, &first) > 0;
    return may_flip ? " and `align: either`" : "";
}

static void put_advice(const struct jc_template *tmpl, const struct jc_finding *finding,
                       struct jc_buffer *advice)
{
    if (finding->is_parameter) {
        jc_buffer_print(advice, "give '%s' fewer cases in its `dispatch`, or plan for them with"
                        " jc_kernel_warmup and ranges that reach them, or allow more by"
                        " max_variants", tmpl->parameters[finding->index].name);
        return;
    }
    const char *derive = tmpl->description.arguments[finding->index].derive;
    if (derive)
        jc_buffer_print(advice, "it follows from others, as %s; ", derive);
    jc_buffer_print(advice, "if it is meant to vary, give it `do_not_specialize: true`; otherwise"
                    " plan for what it takes, with jc_kernel_warmup%s, or with jc_kernel_prepare",
                    way_to_plan(&tmpl->arguments[finding->index]));
}

// Takes the buffer's text in place of what was there.
static void keep(struct jc_sheet *sheet, char **text, struct jc_buffer *buffer)
{
    jc_buffer_string(buffer, "");
    char *taken = jc_buffer_take(buffer);
    if (!taken) {
        sheet->failed = true;
        return;
    }
    free(*text);
    *text = taken;
}

static void write_texts(const struct jc_census *census, const struct jc_finding *finding,
                        struct jc_sheet *sheet, struct jc_sheet_argument *argument)
{
    struct jc_buffer file = {0}, replacement = {0}, advice = {0};
    const struct jc_template *tmpl = census->tmpl;
    argument->line = finding->is_parameter ? tmpl->parameters[finding->index].line
                                           : tmpl->arguments[finding->index].line;
    if (argument->line > 0)
        jc_buffer_string(&file, census->file);
    if (!finding->is_parameter)
        jc_storm_put_item(tmpl, finding->index, &replacement);
    put_advice(tmpl, finding, &advice);
    keep(sheet, &argument->file, &file);
    keep(sheet, &argument->replacement, &replacement);
    keep(sheet, &argument->advice, &advice);
}

// What people read of a state.
static const char *write_state(const struct jc_facet *facet, const char *value,
                               char text[JC_FACET_TEXT_SIZE])
{
    if (value)
        return value;
    if (facet->kind == JC_FACET_NONE)
        return "none";
    jc_facet_format(facet, ": ", text);
    return text;
}

static uint32_t hash_example(const struct jc_facet *facet, const char *value)
{
    return value ? hash_text(value) : hash_facet(facet);
}

void jc_finding_write(const struct jc_census *census, const struct jc_finding *finding,
                      struct jc_sheet *sheet, struct jc_sheet_kernel *row)
{
    const struct jc_template *tmpl = census->tmpl;
    const char *name = finding->is_parameter ? tmpl->parameters[finding->index].name
                                             : tmpl->arguments[finding->index].name;
    struct jc_sheet_argument *argument = jc_sheet_argument(sheet, row, name);
    if (!argument)
        return;
    argument->is_parameter = finding->is_parameter;
    argument->stopped = argument->stopped || finding->stopped;
    argument->more = argument->more || finding->more;
    write_texts(census, finding, sheet, argument);
    for (size_t i = 0; i < finding->num_examples; i++) {
        char text[JC_FACET_TEXT_SIZE];
        const struct jc_facet *facet = &finding->examples[i].facet;
        const char *value = finding->examples[i].value;
        jc_sheet_add_state(sheet, argument, hash_example(facet, value),
                           write_state(facet, value, text));
    }
    for (size_t i = 0; i < finding->num_states; i++)
        jc_sheet_add_state(sheet, argument, finding->states[i], NULL);
}
