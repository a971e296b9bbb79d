// The inventory: every variant that the cache knows of, to be brought in for the toolchain of now.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/listing.h"
#include "cache/report.h"
#include "prewarm.h"
#include "stored.h"

// What the index says of a record.
struct entry {
    enum jc_record_kind kind;
    struct jc_key key;
    uint64_t group;
};

// A template as it was read back, with what it comes to now. Records of one template that were made
// with other toolchains come to one holding.
struct holding {
    struct jc_stored_template stored;
    struct jc_key identity;
    struct jc_closure closure; // until a batch has taken it
};

// A variant that is to be brought in.
struct wish {
    struct holding *holding;
    const char *text; // of the specialization
    struct jc_specialization specialization;
    char arch[JC_ARCH_SIZE]; // ""; those of the params
};

struct inventory {
    struct jc_context *context;
    const struct jc_prewarm_params *params;
    struct jc_error *error;
    const struct jc_toolchain *toolchain;
    struct jc_arena arena;

    struct entry *entries; // by group, templates first
    size_t num_entries, entry_capacity;
    bool out_of_memory; // while the cache was listed

    struct holding **holdings;
    size_t num_holdings, holding_capacity;
    struct wish *wishes;
    size_t num_wishes, wish_capacity;
    size_t num_failed;  // that the key names, and that are not to be tried again
    size_t num_lost;    // variants whose template's record is gone
    size_t num_unknown; // variants for architectures that this NVRTC does not know
    // Why something was passed over, the first time.
    enum jc_result passed_over;
    struct jc_error reason;

    struct jc_plan_variant *variants; // of the wishes, in their order
    const struct jc_specialization **specializations;
    struct jc_batch *batches;
    size_t num_batches;
};

// Makes room for one more in an array that grows.
static bool grow(void *array, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity)
        return true;
    size_t more = *capacity ? 2 * *capacity : 64;
    void *old, *grown;
    memcpy(&old, array, sizeof(old));
    grown = realloc(old, more * size);
    if (!grown)
        return false;
    memcpy(array, &grown, sizeof(grown));
    *capacity = more;
    return true;
}

// --- the index -----------------------------------------------------------------------------------

static bool has_key(const struct inventory *inventory, const struct jc_key *key)
{
    char digits[JC_KEY_STRING_SIZE];
    jc_key_format(key, digits);
    return strncmp(digits, inventory->params->key, strlen(inventory->params->key)) == 0;
}

static bool take_entry(void *user, const struct jc_cache_entry *found)
{
    struct inventory *inventory = user;
    bool is_template = found->kind == JC_RECORD_TEMPLATE;
    bool is_variant = found->kind == JC_RECORD_VARIANT || found->kind == JC_RECORD_FAILURE;
    if (!is_template
        && (!is_variant || (inventory->params->key && !has_key(inventory, &found->key))))
        return true;
    if (found->kind == JC_RECORD_FAILURE && !inventory->params->retry) {
        inventory->num_failed++;
        return true;
    }
    inventory->out_of_memory = !grow(&inventory->entries, &inventory->entry_capacity,
                                     inventory->num_entries, sizeof(*inventory->entries));
    if (inventory->out_of_memory)
        return false;
    struct entry *entry = &inventory->entries[inventory->num_entries++];
    *entry = (struct entry){found->kind, found->key, found->group};
    if (is_template) {
        entry->group = 0;
        for (size_t i = 0; i < sizeof(entry->group); i++)
            entry->group = entry->group << 8 | found->key.bytes[i];
    }
    return true;
}

static int by_group(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    bool x_is_template = x->kind == JC_RECORD_TEMPLATE;
    bool y_is_template = y->kind == JC_RECORD_TEMPLATE;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x_is_template != y_is_template)
        return x_is_template ? -1 : 1;
    return memcmp(&x->key, &y->key, sizeof(x->key));
}

static enum jc_result list_entries(struct inventory *inventory)
{
    const struct jc_prewarm_params *params = inventory->params;
    struct jc_cache *cache = inventory->context->cache;
    // Who names one that failed means it, however long ago that was.
    enum jc_result result = params->key && params->retry
        ? jc_cache_list_expired(cache, take_entry, inventory)
        : jc_cache_list(cache, take_entry, inventory);
    if (inventory->out_of_memory || result == JC_ERROR_OUT_OF_MEMORY)
        return jc_fail_memory(inventory->error);
    if (result != JC_OK)
        return jc_fail(inventory->error, JC_ERROR_CACHE,
                       "the cache cannot be listed: its lock was not had in time; try again");
    if (inventory->num_entries > 0)
        qsort(inventory->entries, inventory->num_entries, sizeof(*inventory->entries), by_group);
    return JC_OK;
}

// --- templates -----------------------------------------------------------------------------------

// The first of what is left out explains why nothing is left.
static void note_passed_over(struct inventory *inventory, enum jc_result result,
                             const struct jc_error *error)
{
    if (inventory->passed_over != JC_OK)
        return;
    inventory->passed_over = result;
    inventory->reason = *error;
}

// Notes that something is left out, if it is nothing worse. The error's text says why.
static enum jc_result pass_over(struct inventory *inventory, const char *what,
                                enum jc_result result, const struct jc_error *error)
{
    if (result == JC_OK)
        return JC_OK;
    if (result == JC_ERROR_OUT_OF_MEMORY)
        return jc_fail_memory(inventory->error);
    jc_log(&inventory->context->log, JC_LOG_WARNING, "%s is passed over: %s", what, error->text);
    note_passed_over(inventory, result, error);
    return JC_OK;
}

static void holding_destroy(struct holding *holding)
{
    if (!holding)
        return;
    jc_closure_finish(&holding->closure);
    jc_template_destroy(&holding->stored.tmpl);
    free(holding);
}

static enum jc_result follow(struct inventory *inventory, const struct jc_record *record,
                             struct holding *holding, struct jc_error *error)
{
    struct jc_context *context = inventory->context;
    enum jc_result result = jc_includes_follow(context->includes, holding->stored.tmpl,
                                               inventory->toolchain, &holding->closure, error);
    if (result != JC_OK)
        return result;
    return jc_stored_identity(record, holding->closure.digest, &holding->identity, error);
}

static enum jc_result read_holding(struct inventory *inventory, const struct jc_key *key,
                                   struct holding *holding, struct jc_error *error)
{
    struct jc_record record;
    enum jc_result result = jc_cache_find_key(inventory->context->cache, JC_RECORD_TEMPLATE, key,
                                              &record);
    if (result != JC_OK)
        return result == JC_ERROR_OUT_OF_MEMORY ? result
            : jc_fail(error, JC_ERROR_CORRUPT, "its record is damaged, or just went");
    result = jc_stored_template_read(&record, &holding->stored, error);
    if (result == JC_OK)
        result = follow(inventory, &record, holding, error);
    jc_record_finish(&record);
    return result;
}

// The holding that a template's record comes to, and the digest that its variants have. NULL: it
// was passed over.
static enum jc_result hold(struct inventory *inventory, const struct jc_key *key,
                           struct holding **held, char closure[JC_KEY_STRING_SIZE])
{
    struct jc_error error = {0};
    *held = NULL;
    struct holding *holding = calloc(1, sizeof(*holding));
    if (!holding || !grow(&inventory->holdings, &inventory->holding_capacity,
                          inventory->num_holdings, sizeof(*inventory->holdings))) {
        free(holding);
        return jc_fail_memory(inventory->error);
    }
    enum jc_result result = read_holding(inventory, key, holding, &error);
    if (result != JC_OK) {
        char digits[JC_KEY_STRING_SIZE], what[64 + JC_KEY_STRING_SIZE];
        jc_key_format(key, digits);
        snprintf(what, sizeof(what), "template %.16s of the cache", digits);
        holding_destroy(holding);
        return pass_over(inventory, what, result, &error);
    }
    memcpy(closure, holding->stored.closure, JC_KEY_STRING_SIZE);
    for (size_t i = 0; i < inventory->num_holdings && !*held; i++)
        if (memcmp(&inventory->holdings[i]->identity, &holding->identity,
                   sizeof(holding->identity)) == 0)
            *held = inventory->holdings[i];
    if (*held)
        holding_destroy(holding);
    else
        *held = inventory->holdings[inventory->num_holdings++] = holding;
    return JC_OK;
}

// --- variants ------------------------------------------------------------------------------------

// Each variant is for the architecture that it was for, as the NVRTC of now calls it, unless others
// are asked for.
static enum jc_result choose_arch(const struct inventory *inventory, const struct jc_template *tmpl,
                                  const char *was, char arch[JC_ARCH_SIZE], struct jc_error *error)
{
    arch[0] = '\0';
    if (inventory->params->num_capabilities > 0)
        return JC_OK;
    return jc_toolchain_arch(inventory->toolchain, tmpl->portable, was, arch, error);
}

static enum jc_result add_wish(struct inventory *inventory, const struct entry *entry,
                               const struct jc_stored_template *stored,
                               struct holding *holding)
{
    struct jc_record record;
    struct jc_error error = {0};
    struct jc_stored_variant variant;
    struct wish wish = {.holding = holding};
    enum jc_result result = jc_cache_find_key(inventory->context->cache, entry->kind, &entry->key,
                                              &record);
    // One that went meanwhile, or is damaged, is none that the cache has.
    if (result != JC_OK)
        return result == JC_ERROR_OUT_OF_MEMORY ? jc_fail_memory(inventory->error) : JC_OK;
    result = jc_stored_variant_read(&inventory->arena, stored, &record, &variant, &error);
    jc_record_finish(&record);
    if (result == JC_OK)
        result = choose_arch(inventory, stored->tmpl, variant.arch, wish.arch, &error);
    if (result == JC_ERROR_UNSUPPORTED) {
        inventory->num_unknown++;
        note_passed_over(inventory, result, &error);
        return JC_OK;
    }
    if (result != JC_OK) {
        char digits[JC_KEY_STRING_SIZE], what[64 + JC_KEY_STRING_SIZE];
        jc_key_format(&entry->key, digits);
        snprintf(what, sizeof(what), "variant %.16s of the cache", digits);
        return pass_over(inventory, what, result, &error);
    }
    if (!grow(&inventory->wishes, &inventory->wish_capacity, inventory->num_wishes,
              sizeof(*inventory->wishes)))
        return jc_fail_memory(inventory->error);
    wish.text = variant.text;
    wish.specialization = variant.specialization;
    inventory->wishes[inventory->num_wishes++] = wish;
    return JC_OK;
}

// The entries of one group: the template's, if it is there, and those of its variants.
static enum jc_result take_group(struct inventory *inventory, const struct entry *first,
                                 size_t count)
{
    struct holding *holding;
    struct jc_stored_template stored = {0};
    if (first->kind != JC_RECORD_TEMPLATE)
        inventory->num_lost += count;
    if (first->kind != JC_RECORD_TEMPLATE || count == 1)
        return JC_OK;
    enum jc_result result = hold(inventory, &first->key, &holding, stored.closure);
    if (result != JC_OK || !holding)
        return result;
    stored.tmpl = holding->stored.tmpl;
    for (size_t i = 1; i < count && result == JC_OK; i++)
        if (first[i].kind != JC_RECORD_TEMPLATE)
            result = add_wish(inventory, &first[i], &stored, holding);
    return result;
}

static int by_batch(const void *a, const void *b)
{
    const struct wish *x = a, *y = b;
    const struct jc_template *x_tmpl = x->holding->stored.tmpl, *y_tmpl = y->holding->stored.tmpl;
    int order = strcmp(x_tmpl->name, y_tmpl->name);
    if (order == 0)
        order = memcmp(&x->holding->identity, &y->holding->identity, sizeof(struct jc_key));
    if (order == 0)
        order = strcmp(x->arch, y->arch);
    return order ? order : strcmp(x->text, y->text);
}

static enum jc_result take_stock(struct inventory *inventory)
{
    enum jc_result result = list_entries(inventory);
    size_t first = 0;
    for (size_t i = 0; i < inventory->num_entries && result == JC_OK; i++) {
        const struct entry *entry = &inventory->entries[i];
        if (i + 1 < inventory->num_entries && entry[1].group == entry->group)
            continue;
        result = take_group(inventory, &inventory->entries[first], i + 1 - first);
        first = i + 1;
    }
    if (inventory->num_lost > 0)
        jc_log(&inventory->context->log, JC_LOG_WARNING, "%zu variants of the cache are passed"
               " over: the records of their templates are gone", inventory->num_lost);
    if (inventory->num_unknown > 0)
        jc_log(&inventory->context->log, JC_LOG_WARNING, "%zu variants of the cache are passed"
               " over: they are for architectures that this NVRTC does not compile for",
               inventory->num_unknown);
    if (result != JC_OK || inventory->num_wishes == 0)
        return result;
    qsort(inventory->wishes, inventory->num_wishes, sizeof(*inventory->wishes), by_batch);
    size_t kept = 1;
    for (size_t i = 1; i < inventory->num_wishes; i++)
        if (by_batch(&inventory->wishes[kept - 1], &inventory->wishes[i]) != 0)
            inventory->wishes[kept++] = inventory->wishes[i];
    inventory->num_wishes = kept;
    return JC_OK;
}

// Where nothing is to be done: why.
static enum jc_result explain_nothing(const struct inventory *inventory)
{
    struct jc_cache_info info;
    bool has_template = false;
    jc_cache_info(inventory->context->cache, &info);
    for (size_t i = 0; i < inventory->num_entries && !has_template; i++)
        has_template = inventory->entries[i].kind == JC_RECORD_TEMPLATE;
    if (inventory->passed_over != JC_OK)
        return jc_fail(inventory->error, inventory->passed_over, "nothing of the cache can be"
                       " compiled again: %s", inventory->reason.text);
    if (!has_template)
        return jc_fail(inventory->error, JC_ERROR_NOT_FOUND, "the cache%s%s has no template;"
                       " prewarm the templates' files first", info.dir ? " " : "",
                       info.dir ? info.dir : "");
    if (inventory->params->key && inventory->num_failed > 0)
        return jc_fail(inventory->error, JC_ERROR_NOT_FOUND, "what the cache%s%s has of a key that"
                       " begins with %s failed, and is compiled again only with `retry` (--retry)",
                       info.dir ? " " : "", info.dir ? info.dir : "", inventory->params->key);
    if (inventory->params->key)
        return jc_fail(inventory->error, JC_ERROR_NOT_FOUND, "no variant of the cache%s%s has a"
                       " key that begins with %s", info.dir ? " " : "", info.dir ? info.dir : "",
                       inventory->params->key);
    return JC_OK;
}

// --- batches -------------------------------------------------------------------------------------

static enum jc_result open_source(const struct inventory *inventory, struct jc_batch *batch,
                                  struct holding *holding)
{
    struct jc_context *context = inventory->context;
    if (!holding->closure.source)
        return jc_source_init(&batch->source, context, holding->stored.tmpl, inventory->error);
    jc_source_adopt(&batch->source, context, holding->stored.tmpl, inventory->toolchain,
                    &holding->closure);
    return JC_OK;
}

static enum jc_result choose_archs(const struct inventory *inventory, struct jc_batch *batch,
                                   const struct wish *wish)
{
    const struct jc_prewarm_params *params = inventory->params;
    if (wish->arch[0] == '\0')
        return jc_prewarm_choose_archs(inventory->toolchain, wish->holding->stored.tmpl->portable,
                                       params->capabilities, params->num_capabilities,
                                       &batch->archs, &batch->num_archs, inventory->error);
    batch->archs = calloc(1, sizeof(*batch->archs));
    if (!batch->archs)
        return jc_fail_memory(inventory->error);
    memcpy(batch->archs[0], wish->arch, sizeof(wish->arch));
    batch->num_archs = 1;
    return JC_OK;
}

static enum jc_result add_batch(struct inventory *inventory, size_t first, size_t count)
{
    struct jc_batch *batch = &inventory->batches[inventory->num_batches++];
    const struct wish *wish = &inventory->wishes[first];
    batch->variants = &inventory->variants[first];
    batch->specializations = &inventory->specializations[first];
    batch->num_variants = count;
    enum jc_result result = open_source(inventory, batch, wish->holding);
    return result == JC_OK ? choose_archs(inventory, batch, wish) : result;
}

static bool same_batch(const struct wish *a, const struct wish *b)
{
    return a->holding == b->holding && strcmp(a->arch, b->arch) == 0;
}

// The wishes are in order, so those of a batch stand together.
static enum jc_result make_batches(struct inventory *inventory)
{
    size_t count = inventory->num_wishes;
    inventory->variants = calloc(count, sizeof(*inventory->variants));
    inventory->specializations = calloc(count, sizeof(*inventory->specializations));
    inventory->batches = calloc(count, sizeof(*inventory->batches));
    if (!inventory->variants || !inventory->specializations || !inventory->batches)
        return jc_fail_memory(inventory->error);
    for (size_t i = 0; i < count; i++) {
        const struct wish *wish = &inventory->wishes[i];
        inventory->specializations[i] = &wish->specialization;
        inventory->variants[i] = (struct jc_plan_variant){
            .generic = jc_specialization_is_generic(&wish->specialization),
            .specialization = wish->text};
    }
    enum jc_result result = JC_OK;
    for (size_t i = 0, first = 0; i < count && result == JC_OK; i++) {
        if (i + 1 < count && same_batch(&inventory->wishes[i], &inventory->wishes[i + 1]))
            continue;
        result = add_batch(inventory, first, i + 1 - first);
        first = i + 1;
    }
    return result;
}

// --- all of it -----------------------------------------------------------------------------------

static void inventory_finish(struct inventory *inventory)
{
    for (size_t i = 0; i < inventory->num_batches; i++) {
        jc_source_finish(&inventory->batches[i].source);
        free(inventory->batches[i].archs);
    }
    free(inventory->batches);
    free(inventory->specializations);
    free(inventory->variants);
    free(inventory->wishes);
    for (size_t i = 0; i < inventory->num_holdings; i++)
        holding_destroy(inventory->holdings[i]);
    free(inventory->holdings);
    free(inventory->entries);
    jc_arena_finish(&inventory->arena);
}

// `*again`: NVRTC turned out to be another than the cache remembered.
static enum jc_result prewarm_once(struct jc_context *context,
                                   const struct jc_prewarm_params *params,
                                   struct jc_prewarm_report *report, bool *again,
                                   struct jc_error *error)
{
    struct inventory inventory = {.context = context, .params = params, .error = error};
    struct jc_prewarm_params run = *params;
    run.key = NULL; // it has been looked at, and named a key of then
    enum jc_result result = jc_context_need_toolchain(context, &inventory.toolchain, error);
    if (result == JC_OK)
        result = take_stock(&inventory);
    if (result == JC_OK && inventory.num_wishes == 0)
        result = explain_nothing(&inventory);
    else if (result == JC_OK)
        result = make_batches(&inventory);
    if (result == JC_OK && inventory.num_batches > 0)
        result = jc_prewarm_run(context, inventory.batches, inventory.num_batches, &run, report,
                                error);
    *again = result == JC_ERROR_TOOLCHAIN && inventory.num_batches > 0
        && jc_source_is_outdated(&inventory.batches[0].source);
    inventory_finish(&inventory);
    return result;
}

enum jc_result jc_context_prewarm_cached(struct jc_context *context,
                                         const struct jc_prewarm_params *given,
                                         struct jc_prewarm_report *report, struct jc_error *error)
{
    struct jc_prewarm_params params;
    struct jc_prewarm_report own_report;
    report = report ? report : &own_report;
    *report = (struct jc_prewarm_report){0};
    if (!context || !given)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s: NULL",
                       context ? "params" : "context");
    enum jc_result result = jc_prewarm_check_params(given, &params, error);
    if (result != JC_OK)
        return result;
    int saved = errno;
    uint64_t start_ns = jc_now_ns();
    bool again;
    result = prewarm_once(context, &params, report, &again, error);
    if (again) {
        *report = (struct jc_prewarm_report){0};
        result = prewarm_once(context, &params, report, &again, error);
    }
    report->elapsed_ns = jc_now_ns() - start_ns;
    errno = saved;
    return result;
}
