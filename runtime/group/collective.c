// Common steps by rounds of the exchange: in one step, at the same time in all ranks.
//
// First each tells what it has; from that all choose the same variants, and load them. Then each
// tells which of them it has loaded, and all switch to those that no rank has left to load. So what
// a rank cannot load now, since its streams are at work or its budget is used up, waits in all
// ranks for the next common step.

#include "steps.h"

#include <string.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "runtime/context.h"
#include "runtime/launch/backlog.h"

// Where variants wait for ranks that lack them: until the next common step, at first and at last.
#define FIRST_PAUSE_NS UINT64_C(10000000)
#define LAST_PAUSE_NS UINT64_C(1000000000)

// What a rank tells first. Numbers are in the machine's order: ranks of several hosts are of one
// architecture, as a first round tells (gathering.h).
struct offer {
    uint64_t count, patience_ns;
    struct {
        struct jc_key key;
        uint64_t waited_ns;
    } keys[JC_BOARD_KEYS];
};
// And then: of the keys that were chosen, as bits, which it has, and which of these are loaded.
struct outcome {
    uint64_t has, loaded;
};
_Static_assert(sizeof(struct offer) <= JC_STEP_BLOCK_BYTES, "there is room for it");
_Static_assert(JC_BOARD_KEYS <= 64, "a bit for each");

static enum jc_result tell_each_other(struct jc_steps *steps, const struct jc_common_step *step,
                                      const void *mine, size_t size, struct jc_error *error)
{
    uint64_t now = jc_now_ns(), timeout_ns = step->params.timeout_ns;
    const struct jc_patience patience = {
        .until_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns};
    struct jc_error why;
    enum jc_result result = jc_exchange_round(steps->group->exchange, &patience, mine, size,
                                              steps->blocks, &why);
    if (result == JC_OK)
        return JC_OK;
    jc_fail(error, result, "%s%s", why.text, result == JC_ERROR_TIMEOUT
            ? "; every rank has to set `common` in the same step" : "");
    return jc_group_end(steps->group, result, error);
}

// --- what is chosen ------------------------------------------------------------------------------

struct candidate {
    struct jc_key key;
    uint64_t waited_ns; // in the rank in which it waits longest
    unsigned ranks;
};

// All ranks get the same offers, and what is chosen follows from nothing else.
struct choice {
    struct candidate candidates[JC_MAX_SIGHTINGS]; // by key
    size_t count;
    unsigned present;
    uint64_t patience_ns;
    size_t waiting; // candidates that were not chosen
};

// A rank's keys come in ascending order, so each is looked for from the place of the one before.
static void consider(struct choice *choice, size_t *place, const struct jc_key *key,
                     uint64_t waited_ns)
{
    int differs = 1;
    while (*place < choice->count &&
           (differs = memcmp(&choice->candidates[*place].key, key, sizeof(*key))) < 0)
        ++*place;
    struct candidate *at = &choice->candidates[*place];
    bool found = *place < choice->count && differs == 0;
    if (!found && choice->count == JC_MAX_SIGHTINGS)
        return;
    if (!found) {
        memmove(at + 1, at, (choice->count++ - *place) * sizeof(*at));
        *at = (struct candidate){.key = *key};
    }
    at->ranks++;
    if (waited_ns > at->waited_ns)
        at->waited_ns = waited_ns;
}

static bool is_sound(const struct offer *offer)
{
    if (offer->count > JC_BOARD_KEYS)
        return false;
    for (size_t i = 1; i < offer->count; i++)
        if (memcmp(&offer->keys[i - 1].key, &offer->keys[i].key, sizeof(offer->keys[i].key)) >= 0)
            return false;
    return true;
}

static enum jc_result look_at_offers(struct jc_steps *steps, struct choice *choice,
                                     struct jc_error *error)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    const struct offer *offers = steps->blocks;
    choice->patience_ns = UINT64_MAX;
    for (unsigned i = 0; i < exchange->ranks; i++) {
        if (exchange->lost[i])
            continue;
        if (!is_sound(&offers[i])) {
            jc_fail(error, JC_ERROR_PEER, "what rank %u has told at a common step is no list of"
                    " variants: does the all-gather give all bytes, of all ranks in their order?",
                    i);
            return jc_group_end(steps->group, JC_ERROR_PEER, error);
        }
        choice->present++;
        if (offers[i].patience_ns < choice->patience_ns)
            choice->patience_ns = offers[i].patience_ns;
        for (size_t j = 0, place = 0; j < offers[i].count; j++)
            consider(choice, &place, &offers[i].keys[j].key, offers[i].keys[j].waited_ns);
    }
    return JC_OK;
}

static void choose(const struct jc_steps *steps, struct choice *choice, struct jc_key_list *list)
{
    bool any = steps->group->mode == JC_GROUP_OWN;
    list->count = 0;
    for (size_t i = 0; i < choice->count; i++) {
        const struct candidate *at = &choice->candidates[i];
        bool is_due =
            any || at->ranks >= choice->present || at->waited_ns >= choice->patience_ns;
        if (is_due && list->count < JC_BOARD_KEYS)
            list->keys[list->count++] = at->key;
        else
            choice->waiting += !is_due;
    }
}

static enum jc_result agree(struct jc_steps *steps, const struct jc_common_step *step,
                            struct choice *choice, struct jc_key_list *list,
                            struct jc_error *error)
{
    struct jc_waiting_key keys[JC_BOARD_KEYS];
    struct offer mine = {.patience_ns = step->params.patience_ns};
    uint64_t now = jc_now_ns();
    mine.count = jc_steps_list(steps, step, &(struct jc_selection){.generation = UINT64_MAX}, keys,
                               JC_BOARD_KEYS);
    for (size_t i = 0; i < mine.count; i++) {
        mine.keys[i].key = keys[i].key;
        mine.keys[i].waited_ns = now > keys[i].since_ns ? now - keys[i].since_ns : 0;
    }
    enum jc_result result = tell_each_other(steps, step, &mine, sizeof(mine), error);
    if (result == JC_OK)
        result = look_at_offers(steps, choice, error);
    if (result == JC_OK)
        choose(steps, choice, list);
    return result;
}

// --- what came of it -----------------------------------------------------------------------------

static struct outcome own_outcome(const struct jc_steps *steps, const struct jc_common_step *step,
                                  const struct jc_key_list *list, bool given_up)
{
    const struct jc_selection selection = {UINT64_MAX, list->keys, list->count};
    struct jc_waiting_key keys[JC_BOARD_KEYS];
    struct outcome outcome = {0};
    size_t count = jc_steps_list(steps, step, &selection, keys, JC_BOARD_KEYS);
    // Both are in order.
    for (size_t i = 0, j = 0; i < list->count && j < count; i++) {
        if (memcmp(&list->keys[i], &keys[j].key, sizeof(keys[j].key)) != 0)
            continue;
        uint64_t bit = UINT64_C(1) << i;
        // What it cannot load is not to keep others from it.
        outcome.has |= keys[j].loaded || !given_up ? bit : 0;
        outcome.loaded |= keys[j].loaded ? bit : 0;
        j++;
    }
    return outcome;
}

// Keeps of the keys those that no rank has left to load. How many are left out.
static size_t keep_loaded(const struct jc_steps *steps, struct jc_key_list *list)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    const struct outcome *outcomes = steps->blocks;
    uint64_t left = 0;
    unsigned kept = 0, before = list->count;
    for (unsigned i = 0; i < exchange->ranks; i++)
        left |= exchange->lost[i] ? 0 : outcomes[i].has & ~outcomes[i].loaded;
    for (unsigned i = 0; i < before; i++)
        if ((left >> i & 1) == 0)
            list->keys[kept++] = list->keys[i];
    list->count = kept;
    return before - kept;
}

static enum jc_result load_and_switch(struct jc_steps *steps, const struct jc_common_step *step,
                                      struct jc_key_list *list, size_t *left,
                                      struct jc_error *error)
{
    struct jc_error why;
    // Whatever comes of it, the others wait for this rank's word.
    enum jc_result loaded = jc_steps_load(step, list, &why);
    bool given_up = loaded != JC_OK && loaded != JC_ERROR_NOT_READY;
    const struct outcome mine = own_outcome(steps, step, list, given_up);
    enum jc_result result = tell_each_other(steps, step, &mine, sizeof(mine), error);
    if (result != JC_OK)
        return result;
    *left = keep_loaded(steps, list);
    result = jc_steps_activate(steps, step, list, error);
    return given_up ? jc_fail(error, loaded, "%s", why.text) : result;
}

// --- the next one --------------------------------------------------------------------------------

// The next common step is to come at once where something could be loaded then, and after a pause
// where it waits for other ranks, which come without telling this one.
static void settle(struct jc_steps *steps, const struct jc_common_step *step, bool at_once)
{
    struct jc_backlog *backlog = steps->group->context->backlog;
    struct jc_waiting_key first;
    size_t waiting =
        jc_steps_list(steps, step, &(struct jc_selection){.generation = UINT64_MAX}, &first, 1);
    bool is_cleared =
        (waiting == 0 || !at_once) && jc_bell_clear(steps->bell, step->bell);
    if (!is_cleared || waiting == 0) {
        steps->pause_ns = 0;
        return;
    }
    uint64_t pause_ns = steps->pause_ns == 0 ? FIRST_PAUSE_NS : 2 * steps->pause_ns;
    steps->pause_ns = pause_ns < LAST_PAUSE_NS ? pause_ns : LAST_PAUSE_NS;
    jc_generations_ring_later(&backlog->generations, jc_now_ns() + steps->pause_ns);
    jc_backlog_wake(backlog);
}

enum jc_result jc_steps_gather(struct jc_steps *steps, const struct jc_common_step *step,
                               struct jc_error *error)
{
    struct choice choice = {0};
    struct jc_key_list list;
    size_t left = 0;
    // It cannot be taken back, and there is one at a time.
    if (steps->group->is_meeting)
        return jc_fail(error, JC_ERROR_NOT_READY, "the last warm-up of this rank was given up while"
                       " it waited for others, who are yet to come to it: call jc_group_warmup"
                       " again in all ranks before common steps");
    enum jc_result result = agree(steps, step, &choice, &list, error);
    if (result != JC_OK)
        return result;
    bool more = list.count == JC_BOARD_KEYS;
    if (list.count > 0)
        result = load_and_switch(steps, step, &list, &left, error);
    jc_steps_tell_failed(steps, step->report->failed);
    settle(steps, step, more || left > 0);
    return result;
}
