#include "gathering.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "cache/bytes.h"
#include "cache/clock.h"
#include "cache/report.h"
#include "runtime/thread.h"

static const char magic[8] = "jc-group";
#define PROTOCOL 1

#define HEAD_BYTES 64
#define VERSION_SIZE 16
#define HOST_SIZE 24

enum errand {
    IDLE,
    OUT, // to be gathered, or being gathered
    BACK // gathered, and not looked at yet
};

// What the exchange and its thread have between them. While an errand is out `size` and the two
// blocks are the thread's, otherwise the exchange's.
struct courier {
    struct jc_all_gather all_gather;
    pthread_mutex_t lock; // guards what follows up to the blocks; held for moments
    pthread_cond_t sent;  // there is an errand, or no more of them
    unsigned holders;
    enum errand errand;
    bool dismissed;
    int status; // what the all-gather returned
    size_t size;
    unsigned char *mine; // a head and a block
    unsigned char *all;  // those of all ranks
};

// What was heard of a rank in the first round.
struct neighbour {
    int pid;
    char host[HOST_SIZE + 1];
};

struct gathering {
    struct jc_exchange exchange;
    struct courier *courier;
    pthread_t thread;
    pid_t process; // the thread is only there
    size_t size;   // of the block of this round
    uint32_t round;
    uint64_t began_ns;
    // Whether the first round is over; written once, with release, after the neighbours, by who
    // polls, and read with acquire by who looks, on any thread.
    atomic_bool greeted;
    struct neighbour *neighbours;
    enum jc_result failure; // of the exchange, for good
    struct jc_error failure_error;
};

static struct gathering *of(struct jc_exchange *exchange)
{
    return (struct gathering *) exchange;
}

// --- the thread ----------------------------------------------------------------------------------

static void free_courier(struct courier *courier)
{
    free(courier->mine);
    free(courier->all);
    free(courier);
}

static void let_go(struct courier *courier)
{
    pthread_mutex_lock(&courier->lock);
    bool last = --courier->holders == 0;
    pthread_mutex_unlock(&courier->lock);
    if (!last)
        return;
    pthread_cond_destroy(&courier->sent);
    pthread_mutex_destroy(&courier->lock);
    free_courier(courier);
}

// The lock is held, except while the all-gather runs.
static void run_errand(struct courier *courier)
{
    const struct jc_all_gather *all_gather = &courier->all_gather;
    pthread_mutex_unlock(&courier->lock);
    int status = all_gather->gather(all_gather->user, courier->mine, courier->size, courier->all);
    pthread_mutex_lock(&courier->lock);
    courier->status = status;
    courier->errand = BACK;
}

static void *run(void *user)
{
    struct courier *courier = user;
    jc_thread_take_cores();
    pthread_mutex_lock(&courier->lock);
    while (!courier->dismissed) {
        if (courier->errand == OUT)
            run_errand(courier);
        else
            pthread_cond_wait(&courier->sent, &courier->lock);
    }
    pthread_mutex_unlock(&courier->lock);
    let_go(courier);
    return NULL;
}

static void send_out(struct courier *courier, size_t size)
{
    pthread_mutex_lock(&courier->lock);
    assert(courier->errand == IDLE);
    courier->size = size;
    courier->errand = OUT;
    pthread_cond_signal(&courier->sent);
    pthread_mutex_unlock(&courier->lock);
}

// Whether the errand that was out is back, and how it went. Takes it back.
static bool take_back(struct courier *courier, int *status)
{
    pthread_mutex_lock(&courier->lock);
    bool back = courier->errand == BACK;
    if (back)
        courier->errand = IDLE;
    *status = courier->status;
    pthread_mutex_unlock(&courier->lock);
    return back;
}

// --- heads ---------------------------------------------------------------------------------------

struct head {
    bool known; // it is one, and of this protocol
    unsigned protocol, rank, ranks, size;
    uint32_t round, pid;
    char version[VERSION_SIZE + 1], host[HOST_SIZE + 1];
};

static void put_text(unsigned char *to, size_t size, const char *text)
{
    memcpy(to, text, strnlen(text, size));
}

static void write_head(const struct gathering *gathering, uint32_t round, size_t size)
{
    unsigned char *head = gathering->courier->mine;
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    memset(head, 0, HEAD_BYTES);
    memcpy(head, magic, sizeof(magic));
    jc_store_u16(head + 8, PROTOCOL);
    jc_store_u16(head + 10, (uint16_t) gathering->exchange.rank);
    jc_store_u16(head + 12, (uint16_t) gathering->exchange.ranks);
    jc_store_u16(head + 14, (uint16_t) size);
    jc_store_u32(head + 16, round);
    jc_store_u32(head + 20, (uint32_t) gathering->process);
    put_text(head + 24, VERSION_SIZE, jc_version());
    put_text(head + 40, HOST_SIZE, host);
}

// What others wrote is shown: without what a terminal would take for more than text.
static void get_text(char *to, const unsigned char *from, size_t size)
{
    size_t length = strnlen((const char *) from, size);
    for (size_t i = 0; i < length; i++)
        to[i] = from[i] > ' ' && from[i] < 0x7F ? (char) from[i] : '?';
    to[length] = '\0';
}

static struct head read_head(const unsigned char *from)
{
    struct head head = {.protocol = jc_load_u16(from + 8)};
    head.known = memcmp(from, magic, sizeof(magic)) == 0;
    head.rank = jc_load_u16(from + 10);
    head.ranks = jc_load_u16(from + 12);
    head.size = jc_load_u16(from + 14);
    head.round = jc_load_u32(from + 16);
    head.pid = jc_load_u32(from + 20);
    get_text(head.version, from + 24, VERSION_SIZE);
    get_text(head.host, from + 40, HOST_SIZE);
    return head;
}

// What `rank` gave, of which this round's `first` is that of rank 0. All ranks have the same before
// them, and say the same of it.
static enum jc_result check_head(const struct gathering *gathering, unsigned rank,
                                 const struct head *head, const struct head *first,
                                 struct jc_error *error)
{
    if (!head->known)
        return jc_fail(error, JC_ERROR_MISMATCH, "what the all-gather wrote at the place of rank %u"
                       " is not what a group gave: it has to write the `size` bytes of each rank,"
                       " in the order of ranks, and nothing else may use it meanwhile", rank);
    if (head->protocol != first->protocol)
        return jc_fail(error, JC_ERROR_MISMATCH, "rank %u has a version of jitcache with protocol"
                       " %u, rank 0 one with protocol %u: install the same in all ranks", rank,
                       head->protocol, first->protocol);
    if (strcmp(head->version, first->version) != 0)
        return jc_fail(error, JC_ERROR_MISMATCH, "rank %u has jitcache %s, rank 0 has %s: install"
                       " the same version in all ranks", rank, head->version, first->version);
    if (head->ranks != first->ranks)
        return jc_fail(error, JC_ERROR_MISMATCH, "rank %u was given a group of %u ranks, rank 0 one"
                       " of %u: give all the same number", rank, head->ranks, first->ranks);
    if (head->rank != rank)
        return jc_fail(error, JC_ERROR_MISMATCH, "the all-gather wrote what rank %u gave at the"
                       " place of rank %u: either it does not write in the order of ranks, or two"
                       " ranks were given one number", head->rank, rank);
    if (head->round != first->round || head->size != first->size)
        return jc_fail(error, JC_ERROR_MISMATCH, "rank %u gave %u bytes to round %u, rank 0 gave %u"
                       " to round %u: every rank has to make the same calls of its group in the"
                       " same order, jc_group_warmup and common steps", rank, head->size,
                       head->round, first->size, first->round);
    const struct courier *courier = gathering->courier;
    if (rank == gathering->exchange.rank
        && memcmp(courier->mine, courier->all + rank * courier->size, courier->size) != 0)
        return jc_fail(error, JC_ERROR_MISMATCH, "the all-gather wrote at the place of rank %u"
                       " something else than that rank gave: it has to write the `size` bytes of"
                       " each rank, in the order of ranks", rank);
    return JC_OK;
}

static enum jc_result check_heads(const struct gathering *gathering, struct jc_error *error)
{
    const struct courier *courier = gathering->courier;
    const struct head first = read_head(courier->all);
    for (unsigned rank = 0; rank < gathering->exchange.ranks; rank++) {
        const struct head head = read_head(courier->all + rank * courier->size);
        enum jc_result result = check_head(gathering, rank, &head, &first, error);
        if (result != JC_OK)
            return result;
    }
    return JC_OK;
}

// --- rounds --------------------------------------------------------------------------------------

static enum jc_result tell_failure(const struct gathering *gathering, struct jc_error *error)
{
    return jc_fail(error, gathering->failure, "%s", gathering->failure_error.text);
}

// The round proper. The block is in its place.
static void send_block(struct gathering *gathering)
{
    write_head(gathering, gathering->round, gathering->size);
    send_out(gathering->courier, HEAD_BYTES + gathering->size);
}

static enum jc_result begin(struct jc_exchange *exchange, const void *mine, size_t size,
                            struct jc_error *error)
{
    struct gathering *gathering = of(exchange);
    struct courier *courier = gathering->courier;
    assert(size <= JC_EXCHANGE_BYTES);
    if (gathering->process != getpid())
        return jc_fail(error, JC_ERROR_PEER, "this process was forked from the rank, process %d,"
                       " and is none itself; make contexts and groups after the fork",
                       (int) gathering->process);
    if (gathering->failure != JC_OK)
        return tell_failure(gathering, error);
    memcpy(courier->mine + HEAD_BYTES, mine, size);
    gathering->size = size;
    gathering->began_ns = jc_now_ns();
    if (atomic_load_explicit(&gathering->greeted, memory_order_relaxed)) {
        send_block(gathering);
        return JC_OK;
    }
    write_head(gathering, 0, 0);
    send_out(courier, HEAD_BYTES);
    return JC_OK;
}

static void end_greeting(struct gathering *gathering)
{
    for (unsigned rank = 0; rank < gathering->exchange.ranks; rank++) {
        const struct head head = read_head(gathering->courier->all + rank * HEAD_BYTES);
        struct neighbour *neighbour = &gathering->neighbours[rank];
        neighbour->pid = head.pid <= INT32_MAX ? (int) head.pid : 0;
        memcpy(neighbour->host, head.host, sizeof(neighbour->host));
    }
    // For jc_group_rank, which may be called on any thread.
    atomic_store_explicit(&gathering->greeted, true, memory_order_release);
    gathering->round++;
    send_block(gathering);
}

static void copy_blocks(const struct gathering *gathering, unsigned char *all)
{
    const struct courier *courier = gathering->courier;
    for (unsigned rank = 0; rank < gathering->exchange.ranks; rank++)
        memcpy(all + rank * gathering->size, courier->all + rank * courier->size + HEAD_BYTES,
               gathering->size);
}

static enum jc_result poll(struct jc_exchange *exchange, bool without_lost, void *all,
                           struct jc_error *error)
{
    struct gathering *gathering = of(exchange);
    int status;
    (void) without_lost; // nobody can leave an all-gather
    if (gathering->failure != JC_OK)
        return tell_failure(gathering, error);
    if (!take_back(gathering->courier, &status))
        return JC_ERROR_NOT_READY;
    if (status != 0)
        gathering->failure = jc_fail(&gathering->failure_error, JC_ERROR_PEER, "the all-gather"
                                     " returned %d in round %u: a rank has died or cannot be"
                                     " reached; see what the other ranks and the communicator say",
                                     status, gathering->round);
    else
        gathering->failure = check_heads(gathering, &gathering->failure_error);
    if (gathering->failure != JC_OK)
        return tell_failure(gathering, error);
    if (!atomic_load_explicit(&gathering->greeted, memory_order_relaxed)) {
        end_greeting(gathering);
        return JC_ERROR_NOT_READY;
    }
    copy_blocks(gathering, all);
    gathering->round++;
    return JC_OK;
}

static enum jc_result expire(struct jc_exchange *exchange, bool without_lost, void *all,
                             struct jc_error *error)
{
    struct gathering *gathering = of(exchange);
    enum jc_result result = poll(exchange, without_lost, all, error);
    if (result != JC_ERROR_NOT_READY)
        return result;
    double waited_s = (double) (jc_now_ns() - gathering->began_ns) / 1e9;
    gathering->failure = jc_fail(&gathering->failure_error, JC_ERROR_TIMEOUT, "the all-gather of"
                                 " round %u has not returned for %.1f s: one of the %u ranks did"
                                 " not come to it, and which one it does not tell; see what the"
                                 " other ranks and the communicator say", gathering->round,
                                 waited_s, exchange->ranks);
    return tell_failure(gathering, error);
}

// --- what is known of ranks ----------------------------------------------------------------------

static void look(struct jc_exchange *exchange, unsigned rank, struct jc_rank_info *info)
{
    const struct gathering *gathering = of(exchange);
    bool greeted = atomic_load_explicit(&gathering->greeted, memory_order_acquire);
    info->rank = rank;
    info->state = greeted || rank == exchange->rank ? JC_RANK_JOINED : JC_RANK_ABSENT;
    info->pid = 0;
    memset(info->host, 0, sizeof(info->host));
    if (rank == exchange->rank) {
        info->pid = (int) gathering->process;
        gethostname(info->host, sizeof(info->host) - 1);
    } else if (greeted) {
        const struct neighbour *neighbour = &gathering->neighbours[rank];
        info->pid = neighbour->pid;
        memcpy(info->host, neighbour->host, sizeof(neighbour->host));
    }
}

// --- a gathering ---------------------------------------------------------------------------------

// A thread that is in the all-gather is left there, however soon it may come back.
static void dismiss(struct gathering *gathering)
{
    struct courier *courier = gathering->courier;
    pthread_mutex_lock(&courier->lock);
    bool out = courier->errand == OUT;
    courier->dismissed = true;
    pthread_cond_signal(&courier->sent);
    pthread_mutex_unlock(&courier->lock);
    if (out)
        pthread_detach(gathering->thread);
    else
        pthread_join(gathering->thread, NULL);
    let_go(courier);
}

static void destroy(struct jc_exchange *exchange)
{
    struct gathering *gathering = of(exchange);
    // In a child of a fork the thread is not there, and may seem to hold the lock for ever.
    if (gathering->process == getpid())
        dismiss(gathering);
    else
        free_courier(gathering->courier);
    free(gathering->neighbours);
    free(gathering);
}

static const struct jc_exchange_calls gathering_calls = {
    .begin = begin,
    .poll = poll,
    .expire = expire,
    .look = look,
    .destroy = destroy,
};

// Room for the largest round, so that no rank fails in the middle of one; what is not used of it
// the system never has to give. NULL: out of memory.
static struct courier *create_courier(const struct jc_group_params *params)
{
    struct courier *courier = calloc(1, sizeof(*courier));
    if (!courier)
        return NULL;
    courier->all_gather = *params->all_gather;
    courier->holders = 2;
    courier->mine = calloc(1, HEAD_BYTES + JC_EXCHANGE_BYTES);
    courier->all = calloc(params->ranks, HEAD_BYTES + JC_EXCHANGE_BYTES);
    if (!courier->mine || !courier->all) {
        free_courier(courier);
        return NULL;
    }
    pthread_mutex_init(&courier->lock, NULL);
    pthread_cond_init(&courier->sent, NULL);
    return courier;
}

enum jc_result jc_gathering_create(const struct jc_group_params *params,
                                   struct jc_exchange **exchange, struct jc_error *error)
{
    *exchange = NULL;
    struct gathering *gathering = calloc(1, sizeof(*gathering));
    if (!gathering)
        return jc_fail_memory(error);
    enum jc_result result = JC_OK;
    gathering->exchange = (struct jc_exchange){
        .calls = &gathering_calls, .rank = params->rank, .ranks = params->ranks};
    gathering->process = getpid();
    gathering->neighbours = calloc(params->ranks, sizeof(*gathering->neighbours));
    gathering->courier = gathering->neighbours ? create_courier(params) : NULL;
    if (!gathering->courier) {
        result = jc_fail_memory(error);
        goto neighbours;
    }
    int status = jc_thread_start(&gathering->thread, "jc-gather", run, gathering->courier);
    if (status != 0) {
        result = jc_fail(error, JC_ERROR_IO, "no thread for the all-gather: %s; see ulimit -u and"
                         " the limits of the container", strerror(status));
        goto courier;
    }
    *exchange = &gathering->exchange;
    return JC_OK;

courier:
    pthread_cond_destroy(&gathering->courier->sent);
    pthread_mutex_destroy(&gathering->courier->lock);
    free_courier(gathering->courier);
neighbours:
    free(gathering->neighbours);
    free(gathering);
    return result;
}
