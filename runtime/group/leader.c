// The leader of a group of one host: the lowest rank that is not gone makes the orders.
//
// It does so in steps of its own, and waits for nobody: where a rank has not done its part yet, it
// looks again in its next step. Who it is needs no agreement, since orders are safe whoever makes
// them (board.c); two that take each other for gone could only keep cancelling.

#include "steps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "host.h"
#include "runtime/context.h"

#define NOBODY JC_MAX_RANKS

// How many steps ahead an order is. Where ranks were quicker the next one is further ahead.
#define MAX_MARGIN 4096

// How long a rank keeps others from going on before it is asked for, and how often; and before that
// is told.
#define ASK_NS UINT64_C(1000000000)
#define TELL_NS UINT64_C(10000000000)

static bool is_gone(const struct jc_steps *steps, unsigned rank)
{
    return steps->gone[rank] || steps->group->exchange->lost[rank];
}

unsigned jc_leader_rank(const struct jc_steps *steps)
{
    unsigned rank = 0;
    while (rank + 1 < steps->group->exchange->ranks && is_gone(steps, rank))
        rank++;
    return rank;
}

// --- whom it waits for ---------------------------------------------------------------------------

static void tell_gone(const struct jc_steps *steps, unsigned rank)
{
    const struct jc_group *group = steps->group;
    jc_log(&group->context->log, JC_LOG_WARNING, "group %s: rank %u is gone; new variants are"
           " loaded and switched to without it", group->name, rank);
}

// Where a rank has not come to an order's step, it may count its steps from elsewhere.
static void tell_blocked(const struct jc_steps *steps, unsigned rank, const struct jc_order *order)
{
    const struct jc_group *group = steps->group;
    char numbers[160] = "";
    // As many as its step and 1; 0: it was at none.
    uint64_t at = atomic_load_explicit(&group->exchange->board->ranks[rank].at,
                                       memory_order_relaxed);
    if (order->state == JC_ORDER_CONFIRMED && at > 0 && at <= order->step)
        snprintf(numbers, sizeof(numbers), "; rank %u is at step %" PRIu64 ", the order is for step"
                 " %" PRIu64 ": all ranks have to give the same numbers", rank, at - 1,
                 order->step);
    jc_log(&group->context->log, JC_LOG_WARNING, "group %s: rank %u has not done its part of a"
           " common step for %.0f s, and new variants serve in no rank before: it is to call"
           " jc_group_step in each of its steps where jc_group_pending says so, with streams that"
           " are idle then%s", group->name, rank,
           (double) (jc_now_ns() - steps->leader.since_ns) / 1e9, numbers);
}

// Notes that a rank keeps others from going on, and asks now and then whether it is still there.
static void wait_for(struct jc_steps *steps, unsigned rank, const struct jc_order *order)
{
    struct jc_leader *leader = &steps->leader;
    uint64_t now = jc_now_ns();
    if (leader->blocker != rank || leader->number != order->number) {
        leader->blocker = rank;
        leader->number = order->number;
        leader->since_ns = leader->asked_ns = now;
        leader->told = false;
        return;
    }
    if (now - leader->asked_ns < ASK_NS)
        return;
    leader->asked_ns = now;
    if (!jc_host_is_alive(steps->group->exchange, rank)) {
        steps->gone[rank] = true;
        tell_gone(steps, rank);
        return;
    }
    bool leads = jc_leader_rank(steps) == steps->group->exchange->rank;
    if (leads && !leader->told && now - leader->since_ns >= TELL_NS) {
        leader->told = true;
        tell_blocked(steps, rank, order);
    }
}

// The first that has not carried an order out; NOBODY: all have.
static unsigned find_behind(const struct jc_steps *steps, uint64_t number)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    for (unsigned i = 0; i < exchange->ranks; i++)
        if (!is_gone(steps, i) && atomic_load_explicit(&exchange->board->ranks[i].done,
                                                       memory_order_acquire) != number)
            return i;
    return NOBODY;
}

// The first that has not looked at the board since the bell was made odd; NOBODY: all have.
// `*all_same`: what all have seen last is the bell as it is.
static unsigned find_absent(const struct jc_steps *steps, uint64_t bell, bool *all_same)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    *all_same = true;
    for (unsigned i = 0; i < exchange->ranks; i++) {
        if (is_gone(steps, i))
            continue;
        uint64_t seen =
            atomic_load_explicit(&exchange->board->ranks[i].seen, memory_order_acquire);
        *all_same = *all_same && seen == bell;
        if (!jc_bell_is_current(bell, seen))
            return i;
    }
    return NOBODY;
}

// --- which variants ------------------------------------------------------------------------------

// Where a key is among the sightings, or belongs.
static size_t find_place(const struct jc_leader *leader, const struct jc_key *key, bool *found)
{
    size_t low = 0, high = leader->num_sightings;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int differs = memcmp(&leader->sightings[middle].key, key, sizeof(*key));
        *found = *found || differs == 0;
        if (differs < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// A rank has a key. What there is no room for is seen when others are gone.
static void sight(struct jc_leader *leader, const struct jc_key *key, uint64_t now)
{
    bool found;
    size_t place = find_place(leader, key, &found);
    struct jc_sighting *at = &leader->sightings[place];
    if (!found && leader->num_sightings == JC_MAX_SIGHTINGS)
        return;
    if (!found) {
        memmove(at + 1, at, (leader->num_sightings++ - place) * sizeof(*at));
        *at = (struct jc_sighting){.key = *key, .since_ns = now};
    }
    at->ranks++;
}

static void forget_unseen(struct jc_leader *leader)
{
    size_t kept = 0;
    for (size_t i = 0; i < leader->num_sightings; i++)
        if (leader->sightings[i].ranks > 0)
            leader->sightings[kept++] = leader->sightings[i];
    leader->num_sightings = kept;
}

// Reads what all ranks have. False: a rank is just changing what it says.
static bool look_around(struct jc_steps *steps, unsigned *present, uint64_t *patience_ns)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    struct jc_leader *leader = &steps->leader;
    struct jc_key_list list;
    uint64_t now = jc_now_ns();
    *present = 0;
    *patience_ns = UINT64_MAX;
    for (size_t i = 0; i < leader->num_sightings; i++)
        leader->sightings[i].ranks = 0;
    for (unsigned i = 0; i < exchange->ranks; i++) {
        if (is_gone(steps, i))
            continue;
        if (!jc_board_read(exchange->board, i, &list))
            return false;
        uint64_t its_ns = atomic_load_explicit(&exchange->board->ranks[i].patience_ns,
                                               memory_order_relaxed);
        *patience_ns = its_ns < *patience_ns ? its_ns : *patience_ns;
        ++*present;
        for (unsigned j = 0; j < list.count; j++)
            sight(leader, &list.keys[j], now);
    }
    forget_unseen(leader);
    return true;
}

// Chooses what to load next: what all ranks have, and what has waited long enough for that.
static void choose(struct jc_steps *steps, unsigned present, uint64_t patience_ns)
{
    struct jc_leader *leader = &steps->leader;
    uint64_t now = jc_now_ns();
    bool any = steps->group->mode == JC_GROUP_OWN;
    leader->kind = JC_ORDER_LOAD;
    leader->list.count = 0;
    for (size_t i = 0; i < leader->num_sightings && leader->list.count < JC_BOARD_KEYS; i++) {
        const struct jc_sighting *at = &leader->sightings[i];
        if (any || at->ranks >= present || now - at->since_ns >= patience_ns)
            leader->list.keys[leader->list.count++] = at->key;
    }
    leader->has_plan = leader->list.count > 0;
}

// --- orders --------------------------------------------------------------------------------------

// The first step that no rank has begun, as far as can be seen. 0: it cannot be told.
static uint64_t next_step(const struct jc_steps *steps)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    uint64_t next = 0;
    for (unsigned i = 0; i < exchange->ranks; i++) {
        uint64_t at = is_gone(steps, i) ? 0
                      : atomic_load_explicit(&exchange->board->ranks[i].at, memory_order_seq_cst);
        next = at > next ? at : next;
    }
    return next <= UINT64_MAX - MAX_MARGIN ? next : 0;
}

// Ranks that are gone come to no step any more.
static bool confirm(struct jc_steps *steps, struct jc_order *order)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    for (unsigned i = 0; i < exchange->ranks; i++)
        steps->gone[i] = is_gone(steps, i);
    return jc_board_confirm(exchange->board, exchange->ranks, steps->gone, order);
}

// Makes an order of what is planned. If that fails it stays planned.
static void make_order(struct jc_steps *steps, const struct jc_order *before, uint64_t bell)
{
    struct jc_leader *leader = &steps->leader;
    const struct jc_exchange *exchange = steps->group->exchange;
    struct jc_order order;
    uint64_t next = next_step(steps);
    if (next == 0 ||
        !jc_board_claim(exchange->board, before, exchange->rank, leader->kind, &order))
        return;
    order.step = next + leader->margin;
    order.list = leader->list;
    if (!jc_board_propose(exchange->board, bell, &order))
        return;
    if (confirm(steps, &order)) {
        leader->has_plan = false;
        leader->margin = (leader->margin + 1) / 2;
    } else if (leader->margin < MAX_MARGIN) {
        leader->margin *= 2;
    }
}

// Nothing waits in any rank, and all have seen that bell.
static void end_epoch(struct jc_steps *steps, const struct jc_order *before, uint64_t bell)
{
    const struct jc_exchange *exchange = steps->group->exchange;
    struct jc_order order;
    if (jc_board_claim(exchange->board, before, exchange->rank, JC_ORDER_LOAD, &order))
        jc_bell_clear(&exchange->board->bell, bell);
}

static void lead(struct jc_steps *steps, const struct jc_order *order, uint64_t bell)
{
    struct jc_leader *leader = &steps->leader;
    bool is_confirmed = order->state == JC_ORDER_CONFIRMED, all_same;
    unsigned present, blocker = is_confirmed ? find_behind(steps, order->number) : NOBODY;
    uint64_t patience_ns;
    if (blocker == NOBODY)
        blocker = find_absent(steps, bell, &all_same);
    if (blocker != NOBODY) {
        wait_for(steps, blocker, order);
        return;
    }
    leader->blocker = NOBODY;
    if (is_confirmed && order->kind == JC_ORDER_LOAD) {
        leader->has_plan = true;
        leader->kind = JC_ORDER_ACTIVATE;
        leader->list = order->list;
    }
    if (!leader->has_plan) {
        if (!look_around(steps, &present, &patience_ns))
            return;
        choose(steps, present, patience_ns);
    }
    if (leader->has_plan)
        make_order(steps, order, bell);
    else if (leader->num_sightings == 0 && all_same)
        end_epoch(steps, order, bell);
}

void jc_leader_step(struct jc_steps *steps)
{
    struct jc_exchange *exchange = steps->group->exchange;
    struct jc_order order;
    // Before the order: what is proposed for this bell is proposed after that order.
    uint64_t bell = atomic_load_explicit(&exchange->board->bell, memory_order_acquire);
    if (!jc_bell_is_odd(bell) || !jc_board_order(exchange->board, exchange->ranks, &order))
        return;
    unsigned leader = jc_leader_rank(steps);
    if (leader == exchange->rank)
        lead(steps, &order, bell);
    else
        wait_for(steps, leader, &order);
}
