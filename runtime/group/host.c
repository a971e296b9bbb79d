#include "host.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "roster.h"

// How often signs of life are looked at, and how many at a time: with more ranks than that it takes
// longer until one that died is noticed, but a poll stays cheap.
#define LOOK_NS UINT64_C(50000000)
#define LOOK_RANKS 64

// How many of those that were lost in a round the text names, so that there is room to say why.
#define NAMED_RANKS 16

// A rank's word changes a few times at most while others declare it lost, unless it is damaged.
#define EXPIRE_TRIES 16

struct host {
    struct jc_exchange base;
    struct jc_roster roster;
    // What follows is of the thread that has rounds.
    uint64_t round; // that was begun last; the first is 1
    size_t size;    // of its blocks
    bool under_way;
    uint64_t looked_ns;
    unsigned next_look; // rank
    enum jc_result failure; // that ended the exchange; JC_OK: none
    struct jc_error failure_error;
};

// --- texts ---------------------------------------------------------------------------------------

// By the word of the rank that is lost.
static const char *loss_text(uint64_t word)
{
    switch (JC_WORD_LOSS(word)) {
    case JC_LOSS_NONE: break;
    case JC_LOSS_DIED: return "has ended";
    case JC_LOSS_LEFT: return "has left the group";
    case JC_LOSS_SILENT:
        return JC_WORD_ROUNDS(word) > 0 ? "did not answer in time"
                                        : "has joined, and did not come to the warm-up in time";
    case JC_LOSS_NO_SHOW: return "has not joined in time";
    }
    return "is lost"; // said by another process, in words that we do not know
}

// --- words ---------------------------------------------------------------------------------------

static struct jc_roster_slot *slot_of(const struct host *host, unsigned rank)
{
    return &host->roster.slots[rank];
}

static uint64_t load_word(const struct host *host, unsigned rank)
{
    return atomic_load_explicit(&slot_of(host, rank)->word, memory_order_acquire);
}

static bool has_given(const struct host *host, uint64_t word)
{
    return JC_WORD_ROUNDS(word) >= host->round;
}

// Whether the round still waits for it.
static bool is_missing(const struct host *host, uint64_t word)
{
    return !has_given(host, word) && JC_WORD_LOSS(word) == JC_LOSS_NONE;
}

// Declares a rank lost, unless its word is another by now.
static void declare(struct host *host, unsigned rank, uint64_t word, enum jc_loss loss)
{
    if (atomic_compare_exchange_strong_explicit(&slot_of(host, rank)->word, &word,
                                                word | JC_WORD_LOST(loss), memory_order_acq_rel,
                                                memory_order_acquire))
        atomic_store_explicit(&host->roster.head->state, JC_ROSTER_FAILED, memory_order_release);
}

// Declares those lost that have left, and, now and then, those that have died.
static void look_for_lost(struct host *host)
{
    uint64_t now = jc_now_ns();
    bool is_time = now - host->looked_ns >= LOOK_NS;
    unsigned looks = 0, ranks = host->base.ranks, first = host->next_look;
    if (is_time)
        host->looked_ns = now;
    for (unsigned i = 0; i < ranks; i++) {
        unsigned rank = (first + i) % ranks;
        uint64_t word = load_word(host, rank);
        if (!is_missing(host, word))
            continue;
        if (JC_WORD_PRESENCE(word) == JC_PRESENCE_LEFT) {
            declare(host, rank, word, JC_LOSS_LEFT);
        } else if (is_time && looks < LOOK_RANKS && JC_WORD_PRESENCE(word) == JC_PRESENCE_JOINED) {
            looks++;
            host->next_look = (rank + 1) % ranks;
            if (!jc_roster_is_alive(&host->roster, rank))
                declare(host, rank, word, JC_LOSS_DIED);
        }
    }
}

// --- failures ------------------------------------------------------------------------------------

static enum jc_result fail_again(const struct host *host, struct jc_error *error)
{
    return jc_fail(error, host->failure, "%s", host->failure_error.text);
}

static enum jc_result end(struct host *host, enum jc_result result, const char *text,
                          struct jc_error *error)
{
    host->failure = jc_fail(&host->failure_error, result, "%s", text);
    return fail_again(host, error);
}

// The others have declared this rank lost.
static enum jc_result end_given_up(struct host *host, uint64_t own, struct jc_error *error)
{
    struct jc_error text = {""};
    jc_fail_more(&text, "the other ranks have gone on without this one, rank %u: it %s",
                 host->base.rank,
                 JC_WORD_LOSS(own) == JC_LOSS_DIED ? "was taken for dead" : loss_text(own));
    return end(host, JC_ERROR_PEER, text.text, error);
}

// What a rank has written makes no sense, to one that still takes part: one that was given up may
// see what is written rounds later.
static enum jc_result end_nonsense(struct host *host, unsigned rank, struct jc_error *error)
{
    struct jc_error text = {""};
    uint64_t own = load_word(host, host->base.rank);
    if (JC_WORD_LOSS(own) != JC_LOSS_NONE)
        return end_given_up(host, own, error);
    jc_fail_more(&text, "rank %u speaks another protocol than rank %u, or %s was damaged", rank,
        host->base.rank, host->roster.path);
    return end(host, JC_ERROR_PEER, text.text, error);
}

static enum jc_result check(struct host *host, struct jc_error *error)
{
    if (!jc_roster_is_ours(&host->roster))
        return jc_fail(error, JC_ERROR_PEER, "this process is a child of rank %u of the group, and"
                       " no rank itself; make a group in it with a context of its own",
                       host->base.rank);
    if (host->failure != JC_OK)
        return fail_again(host, error);
    uint64_t own = load_word(host, host->base.rank);
    if (JC_WORD_LOSS(own) != JC_LOSS_NONE)
        return end_given_up(host, own, error);
    return JC_WORD_ROUNDS(own) == host->round ? JC_OK : end_nonsense(host, host->base.rank, error);
}

// --- blocks --------------------------------------------------------------------------------------

// By words: a rank that is being declared lost may read one that is being written anew. What it has
// read then is of no use, but it finds that out from its own word: the writer has seen that
// declaration, and so does whoever has read a word of its.
static void write_block(struct jc_roster_slot *slot, unsigned which, const void *data, size_t size)
{
    const char *from = data;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, from + at, size - at < 8 ? size - at : 8);
        atomic_store_explicit(&slot->blocks[which][at / 8], word, memory_order_release);
    }
    atomic_store_explicit(&slot->sizes[which], size, memory_order_release);
}

static void read_block(const struct jc_roster_slot *slot, unsigned which, void *data, size_t size)
{
    char *to = data;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = atomic_load_explicit(&slot->blocks[which][at / 8], memory_order_acquire);
        memcpy(to + at, &word, size - at < 8 ? size - at : 8);
    }
}

// --- rounds --------------------------------------------------------------------------------------

static enum jc_result host_begin(struct jc_exchange *exchange, const void *mine, size_t size,
                                 struct jc_error *error)
{
    struct host *host = (struct host *) exchange;
    struct jc_roster_slot *slot = slot_of(host, exchange->rank);
    assert(size <= JC_EXCHANGE_BYTES);
    enum jc_result result = check(host, error);
    if (result != JC_OK)
        return result;
    assert(!host->under_way);
    uint64_t word = load_word(host, exchange->rank);
    write_block(slot, (host->round + 1) % 2, mine, size);
    while (JC_WORD_LOSS(word) == JC_LOSS_NONE) {
        if (atomic_compare_exchange_weak_explicit(&slot->word, &word, word + JC_WORD_ROUND,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            host->round++;
            host->size = size;
            host->under_way = true;
            return JC_OK;
        }
    }
    return end_given_up(host, word, error);
}

// Lists who was lost in this round. The same in all ranks, but for what an earlier one has told.
struct losses {
    struct jc_error text;
    unsigned num;
    bool in_time; // all of them, that is: they died, or left
    bool no_show; // one of them at least did not come
};

static void add_rank(const struct host *host, unsigned rank, bool has_joined, struct jc_error *text)
{
    struct jc_process process;
    char name[JC_ROSTER_HOST_SIZE];
    jc_roster_process(slot_of(host, rank), &process, name);
    jc_fail_more(text, "rank %u", rank);
    if (has_joined)
        jc_fail_more(text, " (process %" PRIu64 " on %s)", process.pid, name);
}

static void add_loss(struct host *host, unsigned rank, uint64_t word, struct losses *losses)
{
    enum jc_loss loss = JC_WORD_LOSS(word);
    losses->in_time = losses->in_time && (loss == JC_LOSS_DIED || loss == JC_LOSS_LEFT);
    losses->no_show = losses->no_show || loss == JC_LOSS_NO_SHOW;
    if (losses->num++ >= NAMED_RANKS)
        return;
    jc_fail_more(&losses->text, "%s", losses->num > 1 ? "; " : "");
    add_rank(host, rank, loss != JC_LOSS_NO_SHOW, &losses->text);
    jc_fail_more(&losses->text, " %s", loss_text(word));
}

static void add_refusal(const struct host *host, struct jc_error *text)
{
    char refusal[JC_ROSTER_REFUSAL_SIZE];
    jc_roster_refusal(&host->roster, refusal);
    if (*refusal)
        jc_fail_more(text, "; one that wanted to join was refused (%s; this group has %u ranks, and"
                     " jitcache " JC_VERSION ")", refusal, host->base.ranks);
}

// Why ranks may not have come.
static void add_hints(const struct host *host, struct jc_error *text)
{
    add_refusal(host, text);
    jc_fail_more(text, jc_roster_is_in_place(&host->roster)
                           ? "; ranks meet in %s, which all have to see"
                           : "; %s was removed meanwhile, so that others did not find it",
                 host->roster.path);
}

static enum jc_result end_lost(struct host *host, struct losses *losses, struct jc_error *error)
{
    if (losses->num > NAMED_RANKS)
        jc_fail_more(&losses->text, "; and %u more", losses->num - NAMED_RANKS);
    if (losses->no_show)
        add_hints(host, &losses->text);
    return end(host, losses->in_time ? JC_ERROR_PEER : JC_ERROR_TIMEOUT, losses->text.text, error);
}

// Copies what all have given. JC_ERROR_NOT_READY: not all have.
static enum jc_result collect(struct host *host, void *all, struct losses *losses,
                              struct jc_error *error)
{
    struct jc_exchange *exchange = &host->base;
    const unsigned which = host->round % 2;
    char *to = all;
    for (unsigned rank = 0; rank < exchange->ranks; rank++, to += host->size) {
        const struct jc_roster_slot *slot = slot_of(host, rank);
        uint64_t word = load_word(host, rank);
        if (is_missing(host, word))
            return JC_ERROR_NOT_READY;
        if (has_given(host, word)) {
            if (JC_WORD_ROUNDS(word) > host->round + 1
                || atomic_load_explicit(&slot->sizes[which], memory_order_acquire) != host->size)
                return end_nonsense(host, rank, error);
            read_block(slot, which, to, host->size);
            continue;
        }
        memset(to, 0, host->size);
        if (!exchange->lost[rank])
            add_loss(host, rank, word, losses);
    }
    // Only now is it known that what was read is whole.
    uint64_t own = load_word(host, exchange->rank);
    return JC_WORD_LOSS(own) == JC_LOSS_NONE ? JC_OK
                                             : end_given_up(host, own, error);
}

// The first that the round still waits for; as many as there are ranks: none, it is complete.
static unsigned find_missing(const struct host *host)
{
    unsigned rank = 0;
    while (rank < host->base.ranks && !is_missing(host, load_word(host, rank)))
        rank++;
    return rank;
}

// Ends the round if it is complete.
static enum jc_result finish(struct host *host, bool without_lost, void *all,
                             struct jc_error *error)
{
    struct losses losses = {.in_time = true};
    if (find_missing(host) < host->base.ranks)
        return jc_fail(error, JC_ERROR_NOT_READY, "not all ranks have given to the round yet");
    enum jc_result result = collect(host, all, &losses, error);
    if (result != JC_OK)
        return result;
    host->under_way = false;
    for (unsigned rank = 0; rank < host->base.ranks; rank++)
        host->base.lost[rank] = !has_given(host, load_word(host, rank));
    return losses.num > 0 && !without_lost ? end_lost(host, &losses, error) : JC_OK;
}

static enum jc_result host_poll(struct jc_exchange *exchange, bool without_lost, void *all,
                                struct jc_error *error)
{
    struct host *host = (struct host *) exchange;
    enum jc_result result = check(host, error);
    if (result != JC_OK)
        return result;
    assert(host->under_way);
    look_for_lost(host);
    return finish(host, without_lost, all, error);
}

static enum jc_result host_expire(struct jc_exchange *exchange, bool without_lost, void *all,
                                  struct jc_error *error)
{
    struct host *host = (struct host *) exchange;
    enum jc_result result = check(host, error);
    if (result != JC_OK)
        return result;
    assert(host->under_way);
    for (unsigned rank = 0; rank < exchange->ranks; rank++) {
        // Until it is lost, or has given; it may join, leave or give meanwhile.
        uint64_t word = load_word(host, rank);
        for (unsigned i = 0; i < EXPIRE_TRIES && is_missing(host, word); i++) {
            enum jc_presence presence = JC_WORD_PRESENCE(word);
            declare(host, rank, word,
                    presence == JC_PRESENCE_LEFT                 ? JC_LOSS_LEFT
                    : presence != JC_PRESENCE_JOINED             ? JC_LOSS_NO_SHOW
                    : jc_roster_is_alive(&host->roster, rank)    ? JC_LOSS_SILENT
                                                                 : JC_LOSS_DIED);
            word = load_word(host, rank);
        }
        if (is_missing(host, word))
            return end_nonsense(host, rank, error);
    }
    result = finish(host, without_lost, all, error);
    if (result != JC_ERROR_NOT_READY)
        return result;
    // Who was declared lost has taken that back, which only one that is damaged does.
    unsigned rank = find_missing(host);
    return end_nonsense(host, rank < exchange->ranks ? rank : exchange->rank, error);
}

// --- looking -------------------------------------------------------------------------------------

// What became of a rank, whether or not somebody has declared it lost.
static enum jc_loss loss_of(const struct host *host, unsigned rank, uint64_t word)
{
    if (JC_WORD_LOSS(word) != JC_LOSS_NONE)
        return JC_WORD_LOSS(word);
    if (JC_WORD_PRESENCE(word) == JC_PRESENCE_LEFT)
        return JC_LOSS_LEFT;
    return JC_WORD_PRESENCE(word) == JC_PRESENCE_JOINED
                   && !jc_roster_is_alive(&host->roster, rank)
               ? JC_LOSS_DIED : JC_LOSS_NONE;
}

static void host_look(struct jc_exchange *exchange, unsigned rank, struct jc_rank_info *info)
{
    const struct host *host = (const struct host *) exchange;
    struct jc_process process;
    static_assert(sizeof(info->host) == JC_ROSTER_HOST_SIZE, "");
    info->rank = rank;
    info->state = JC_RANK_ABSENT;
    if (!jc_roster_is_ours(&host->roster))
        return;
    uint64_t word = load_word(host, rank);
    enum jc_loss loss = loss_of(host, rank, word);
    if (JC_WORD_PRESENCE(word) >= JC_PRESENCE_JOINED) {
        info->state = JC_RANK_JOINED;
        jc_roster_process(slot_of(host, rank), &process, info->host);
        info->pid = process.pid <= INT32_MAX ? (int) process.pid : 0;
    }
    if (loss != JC_LOSS_NONE) {
        info->state = JC_RANK_LOST;
        snprintf(info->reason, sizeof(info->reason), "%s",
                 loss_text(word | JC_WORD_LOST(loss)));
    }
}

bool jc_host_is_alive(struct jc_exchange *exchange, unsigned rank)
{
    struct jc_rank_info info;
    host_look(exchange, rank, &info);
    return info.state == JC_RANK_JOINED;
}

static void host_tell_missing(struct jc_exchange *exchange, char *to, size_t size)
{
    const struct host *host = (const struct host *) exchange;
    struct jc_error text = {""};
    unsigned num = 0;
    for (unsigned rank = 0; rank < exchange->ranks; rank++) {
        uint64_t word = load_word(host, rank);
        if (!is_missing(host, word) || num++ >= NAMED_RANKS)
            continue;
        bool has_joined = JC_WORD_PRESENCE(word) == JC_PRESENCE_JOINED;
        jc_fail_more(&text, "%s", num > 1 ? "; " : "");
        add_rank(host, rank, has_joined, &text);
        jc_fail_more(&text, has_joined ? " has joined, and is at no warm-up" : " has not joined");
    }
    if (num > NAMED_RANKS)
        jc_fail_more(&text, "; and %u more", num - NAMED_RANKS);
    add_refusal(host, &text);
    snprintf(to, size, "%s", text.text);
}

// --- one -----------------------------------------------------------------------------------------

static void host_destroy(struct jc_exchange *exchange)
{
    struct host *host = (struct host *) exchange;
    jc_roster_leave(&host->roster);
    free(host);
}

enum jc_result jc_host_create(struct jc_cache *cache, const struct jc_group_params *params,
                              struct jc_exchange **exchange, struct jc_error *error)
{
    static const struct jc_exchange_calls calls = {
        host_begin, host_poll, host_expire, host_look, host_tell_missing, host_destroy,
    };
    *exchange = NULL;
    struct host *host = calloc(1, sizeof(*host));
    if (!host)
        return jc_fail_memory(error);
    enum jc_result result = jc_roster_join(&host->roster, cache, params, error);
    if (result != JC_OK) {
        free(host);
        return result;
    }
    host->base = (struct jc_exchange){
        .calls = &calls, .rank = params->rank, .ranks = params->ranks, .can_lose = true,
        .board = host->roster.board,
    };
    *exchange = &host->base;
    return JC_OK;
}
