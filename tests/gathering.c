// The exchange over an all-gather that ranks bring.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "await.h"
#include "cache/bytes.h"
#include "runtime/group/gathering.h"

#define MAX_RANKS 8
#define HEAD_BYTES 64
#define LIMIT_NS UINT64_C(60000000000)

int __real_jc_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *user);
int __wrap_jc_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *user);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool no_threads;
static _Thread_local unsigned callocs_left; // the one that makes it 0 fails; 0: none does

int __wrap_jc_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *user)
{
    return no_threads ? EAGAIN : __real_jc_thread_start(thread, name, run, user);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return callocs_left > 0 && --callocs_left == 0 ? NULL : __real_calloc(count, size);
}

static struct jc_exchange *create(unsigned rank, unsigned ranks,
                                  const struct jc_all_gather *all_gather)
{
    const struct jc_group_params params = {.rank = rank, .ranks = ranks, .all_gather = all_gather};
    struct jc_exchange *exchange;
    struct jc_error error;
    return jc_gathering_create(&params, &exchange, &error) == JC_OK ? exchange : NULL;
}

static struct jc_patience patience(void)
{
    return (struct jc_patience){.until_ns = jc_now_ns() + LIMIT_NS};
}

// --- an all-gather over sockets ------------------------------------------------------------------

// Rank 0 has a socket pair with each of the others.
struct star {
    unsigned rank, ranks;
    int fds[MAX_RANKS]; // of rank 0, to each; of the others, [0] to rank 0
};

static bool transfer(int fd, void *data, size_t size, bool out)
{
    char *at = data;
    while (size > 0) {
        ssize_t done = out ? send(fd, at, size, MSG_NOSIGNAL) : recv(fd, at, size, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        size -= (size_t) done;
    }
    return true;
}

static int gather_by_sockets(void *user, const void *mine, size_t size, void *all)
{
    struct star *star = user;
    char *to = all;
    if (star->rank > 0)
        return transfer(star->fds[0], (void *) (uintptr_t) mine, size, true)
                       && transfer(star->fds[0], all, size * star->ranks, false)
                   ? 0
                   : 5;
    memcpy(to, mine, size);
    for (unsigned i = 1; i < star->ranks; i++)
        if (!transfer(star->fds[i], to + i * size, size, false))
            return 6;
    for (unsigned i = 1; i < star->ranks; i++)
        if (!transfer(star->fds[i], to, size * star->ranks, true))
            return 7;
    return 0;
}

static void open_stars(struct star *stars, unsigned ranks)
{
    for (unsigned i = 0; i < ranks; i++) {
        stars[i] = (struct star){.rank = i, .ranks = ranks};
        memset(stars[i].fds, -1, sizeof(stars[i].fds));
    }
    for (unsigned i = 1; i < ranks; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        stars[0].fds[i] = pair[0];
        stars[i].fds[0] = pair[1];
    }
}

static void close_star(struct star *star)
{
    for (unsigned i = 0; i < MAX_RANKS; i++)
        if (star->fds[i] >= 0)
            close(star->fds[i]);
}

// --- ranks that take part in some rounds ---------------------------------------------------------

static const size_t sizes[] = {1, 16, 1000, JC_EXCHANGE_BYTES, 0, 3};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void fill(unsigned char *block, size_t size, unsigned rank, unsigned round)
{
    for (size_t i = 0; i < size; i++)
        block[i] = (unsigned char) (i + 31 * rank + 7 * round);
}

static bool check(const unsigned char *all, size_t size, unsigned ranks, unsigned round)
{
    unsigned char expected[JC_EXCHANGE_BYTES];
    for (unsigned rank = 0; rank < ranks; rank++) {
        fill(expected, size, rank, round);
        if (memcmp(all + rank * size, expected, size) != 0)
            return false;
    }
    return true;
}

// Which is the first round that goes wrong, from 1; 0: none does.
static unsigned take_part(struct jc_exchange *exchange, unsigned rounds)
{
    unsigned char mine[JC_EXCHANGE_BYTES];
    unsigned char *all = malloc(exchange->ranks * JC_EXCHANGE_BYTES);
    unsigned wrong = all ? 0 : 1;
    for (unsigned round = 1; round <= rounds && !wrong; round++) {
        const struct jc_patience until = patience();
        size_t size = sizes[round % NUM_SIZES];
        struct jc_error error;
        fill(mine, size, exchange->rank, round);
        if (jc_exchange_round(exchange, &until, mine, size, all, &error) != JC_OK
            || !check(all, size, exchange->ranks, round))
            wrong = round;
    }
    free(all);
    return wrong;
}

static unsigned take_part_by(struct star *star, unsigned rounds)
{
    const struct jc_all_gather all_gather = {gather_by_sockets, star};
    struct jc_exchange *exchange = create(star->rank, star->ranks, &all_gather);
    unsigned wrong = exchange ? take_part(exchange, rounds) : 1;
    if (exchange)
        exchange->calls->destroy(exchange);
    return wrong;
}

enum { ROUNDS = 40 };

static void processes_get_the_blocks_of_all(void **state)
{
    (void) state;
    enum { RANKS = 4 };
    struct star stars[RANKS];
    pid_t children[RANKS], parent = getpid();
    open_stars(stars, RANKS);
    for (unsigned i = 0; i < RANKS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(99);
            for (unsigned j = 0; j < RANKS; j++)
                if (j != i)
                    close_star(&stars[j]);
            _exit((int) take_part_by(&stars[i], ROUNDS));
        }
        assert_true(children[i] > 0);
    }
    for (unsigned i = 0; i < RANKS; i++)
        close_star(&stars[i]);
    for (unsigned i = 0; i < RANKS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("rank %u: status %x", i, (unsigned) status);
    }
}

struct party {
    struct star *star;
    unsigned rounds, wrong;
    pthread_t thread;
};

static void *run_party(void *user)
{
    struct party *party = user;
    party->wrong = take_part_by(party->star, party->rounds);
    return NULL;
}

static void threads_get_the_blocks_of_all(void **state)
{
    (void) state;
    for (unsigned ranks = 1; ranks <= MAX_RANKS; ranks += ranks) {
        struct star stars[MAX_RANKS];
        struct party parties[MAX_RANKS];
        open_stars(stars, ranks);
        for (unsigned i = 0; i < ranks; i++) {
            parties[i] = (struct party){.star = &stars[i], .rounds = ROUNDS};
            assert_int_equal(pthread_create(&parties[i].thread, NULL, run_party, &parties[i]), 0);
        }
        for (unsigned i = 0; i < ranks; i++) {
            pthread_join(parties[i].thread, NULL);
            assert_int_equal(parties[i].wrong, 0);
        }
        for (unsigned i = 0; i < ranks; i++)
            close_star(&stars[i]);
    }
}

// A rank that goes is noticed where the callback of the others fails.
static void a_rank_that_ends_is_told_by_the_number_of_the_callback(void **state)
{
    (void) state;
    struct star stars[2];
    const struct jc_patience until = patience();
    unsigned char mine[8] = "", all[16];
    struct jc_error error;
    open_stars(stars, 2);
    const struct jc_all_gather all_gather = {gather_by_sockets, &stars[0]};
    struct jc_exchange *exchange = create(0, 2, &all_gather);
    assert_non_null(exchange);
    close_star(&stars[1]);
    assert_int_equal(jc_exchange_round(exchange, &until, mine, sizeof(mine), all, &error),
                     JC_ERROR_PEER);
    assert_string_equal(error.text, "the all-gather returned 6 in round 0: a rank has died or"
                        " cannot be reached; see what the other ranks and the communicator say");
    exchange->calls->destroy(exchange);
    close_star(&stars[0]);
}

// --- an all-gather of one's own ------------------------------------------------------------------

// Plays all ranks: the others give what this one gives, under their own numbers.
struct stage {
    unsigned ranks;
    unsigned calls; // those made: of the exchange's thread, read once that has told of a round
    size_t sizes[8];
    unsigned fails_at, status;
    // Written over what a rank gives in one call, from 1.
    unsigned damaged_call, damaged_rank;
    size_t damage_at, damage_size;
    const void *damage;
    bool idle; // writes nothing
};

static int gather_on_stage(void *user, const void *mine, size_t size, void *all)
{
    struct stage *stage = user;
    if (stage->calls < 8)
        stage->sizes[stage->calls] = size;
    unsigned call = ++stage->calls;
    if (call == stage->fails_at)
        return (int) stage->status;
    for (unsigned i = 0; i < stage->ranks && !stage->idle; i++) {
        unsigned char *to = (unsigned char *) all + i * size;
        memcpy(to, mine, size);
        jc_store_u16(to + 10, (uint16_t) i);
        if (call == stage->damaged_call && i == stage->damaged_rank)
            memcpy(to + stage->damage_at, stage->damage, stage->damage_size);
    }
    return 0;
}

static struct jc_exchange *create_on(struct stage *stage, unsigned rank)
{
    const struct jc_all_gather all_gather = {gather_on_stage, stage};
    struct jc_exchange *exchange = create(rank, stage->ranks, &all_gather);
    assert_non_null(exchange);
    return exchange;
}

static enum jc_result give(struct jc_exchange *exchange, size_t size, struct jc_error *error)
{
    static unsigned char mine[JC_EXCHANGE_BYTES], all[MAX_RANKS * JC_EXCHANGE_BYTES];
    const struct jc_patience until = patience();
    return jc_exchange_round(exchange, &until, mine, size, all, error);
}

static void the_first_round_is_of_a_head_alone(void **state)
{
    (void) state;
    struct stage stage = {.ranks = 3};
    struct jc_error error;
    struct jc_exchange *exchange = create_on(&stage, 2);
    assert_false(exchange->can_lose);
    assert_null(exchange->board);
    assert_int_equal(give(exchange, 100, &error), JC_OK);
    assert_int_equal(give(exchange, JC_EXCHANGE_BYTES, &error), JC_OK);
    assert_int_equal(stage.calls, 3);
    assert_int_equal(stage.sizes[0], HEAD_BYTES);
    assert_int_equal(stage.sizes[1], HEAD_BYTES + 100);
    assert_int_equal(stage.sizes[2], 8192);
    exchange->calls->destroy(exchange);
}

static void a_group_of_one_gathers_too(void **state)
{
    (void) state;
    struct stage stage = {.ranks = 1};
    struct jc_exchange *exchange = create_on(&stage, 0);
    assert_int_equal(take_part(exchange, ROUNDS), 0);
    assert_int_equal(stage.calls, ROUNDS + 1);
    exchange->calls->destroy(exchange);
}

static void what_nobody_began_a_round_of_is_not_gathered(void **state)
{
    (void) state;
    struct stage stage = {.ranks = 2};
    struct jc_exchange *exchange = create_on(&stage, 0);
    exchange->calls->destroy(exchange);
    assert_int_equal(stage.calls, 0);
}

static void a_callback_that_fails_ends_the_exchange(void **state)
{
    (void) state;
    for (unsigned call = 1; call <= 4; call++) {
        char text[256];
        struct stage stage = {.ranks = 2, .fails_at = call, .status = 40 + call};
        struct jc_exchange *exchange = create_on(&stage, 1);
        struct jc_error error = {""};
        enum jc_result result = JC_OK;
        for (unsigned round = 1; round <= 3 && result == JC_OK; round++)
            result = give(exchange, 10, &error);
        snprintf(text, sizeof(text), "the all-gather returned %u in round %u: a rank has died or"
                 " cannot be reached; see what the other ranks and the communicator say",
                 40 + call, call - 1);
        assert_int_equal(result, JC_ERROR_PEER);
        assert_string_equal(error.text, text);
        assert_int_equal(stage.calls, call);
        // Whatever is asked of it afterwards.
        struct jc_error again = {""};
        assert_int_equal(give(exchange, 10, &again), JC_ERROR_PEER);
        assert_string_equal(again.text, text);
        assert_int_equal(exchange->calls->poll(exchange, false, NULL, &again), JC_ERROR_PEER);
        assert_int_equal(exchange->calls->expire(exchange, false, NULL, &again), JC_ERROR_PEER);
        assert_int_equal(stage.calls, call);
        exchange->calls->destroy(exchange);
    }
}

#define ORDER "it has to write the `size` bytes of each rank, in the order of ranks"
#define SAME_CALLS \
    ": every rank has to make the same calls of its group in the same order, jc_group_warmup and" \
    " common steps"

static void what_does_not_belong_to_a_round_is_told_by_rank(void **state)
{
    (void) state;
    const struct {
        unsigned call, rank;
        size_t at, size;
        const char *damage, *text;
    } cases[] = {
        {1, 2, 24, 6, "9.8.7", "rank 2 has jitcache 9.8.7, rank 0 has " JC_VERSION
         ": install the same version in all ranks"},
        {1, 0, 24, 6, "9.8.7", "rank 1 has jitcache " JC_VERSION ", rank 0 has 9.8.7: install the"
         " same version in all ranks"},
        {1, 3, 24, 16, "\033[31m\n\t and more", "rank 3 has jitcache ?[31m???and?more, rank 0 has "
         JC_VERSION ": install the same version in all ranks"},
        {1, 2, 8, 2, "\x02", "rank 2 has a version of jitcache with protocol 2, rank 0 one with"
         " protocol 1: install the same in all ranks"},
        {1, 2, 0, 1, "J", "what the all-gather wrote at the place of rank 2 is not what a group"
         " gave: " ORDER ", and nothing else may use it meanwhile"},
        {1, 3, 10, 1, "\x01", "the all-gather wrote what rank 1 gave at the place of rank 3: either"
         " it does not write in the order of ranks, or two ranks were given one number"},
        {1, 3, 12, 1, "\x05", "rank 3 was given a group of 5 ranks, rank 0 one of 4: give all the"
         " same number"},
        {1, 1, 63, 1, "!", "the all-gather wrote at the place of rank 1 something else than that"
         " rank gave: " ORDER},
        {3, 2, 16, 1, "\x07", "rank 2 gave 10 bytes to round 7, rank 0 gave 10 to round 2"
         SAME_CALLS},
        {3, 3, 14, 2, "\x10\x27", "rank 3 gave 10000 bytes to round 2, rank 0 gave 10 to round 2"
         SAME_CALLS},
        {3, 2, 0, 8, "rubbish!", "what the all-gather wrote at the place of rank 2 is not what a"
         " group gave: " ORDER ", and nothing else may use it meanwhile"},
        {2, 1, 70, 1, "!", "the all-gather wrote at the place of rank 1 something else than that"
         " rank gave: " ORDER},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stage stage = {
            .ranks = 4, .damaged_call = cases[i].call, .damaged_rank = cases[i].rank,
            .damage_at = cases[i].at, .damage_size = cases[i].size, .damage = cases[i].damage};
        struct jc_exchange *exchange = create_on(&stage, 1);
        struct jc_error error = {""}, again = {""};
        enum jc_result result = JC_OK;
        for (unsigned round = 1; round <= 3 && result == JC_OK; round++)
            result = give(exchange, 10, &error);
        assert_string_equal(error.text, cases[i].text);
        assert_int_equal(result, JC_ERROR_MISMATCH);
        assert_int_equal(stage.calls, cases[i].call);
        assert_int_equal(give(exchange, 10, &again), JC_ERROR_MISMATCH);
        assert_string_equal(again.text, cases[i].text);
        exchange->calls->destroy(exchange);
    }
}

static void a_callback_that_writes_nothing_is_noticed(void **state)
{
    (void) state;
    struct stage stage = {.ranks = 2, .idle = true};
    struct jc_exchange *exchange = create_on(&stage, 0);
    struct jc_error error;
    assert_int_equal(give(exchange, 10, &error), JC_ERROR_MISMATCH);
    exchange->calls->destroy(exchange);
    // And where what was there from the round before stays.
    struct stage late = {.ranks = 2};
    exchange = create_on(&late, 0);
    assert_int_equal(give(exchange, 10, &error), JC_OK);
    late.idle = true;
    assert_int_equal(give(exchange, 10, &error), JC_ERROR_MISMATCH);
    exchange->calls->destroy(exchange);
}

// --- what is known of ranks ----------------------------------------------------------------------

static void ranks_are_known_once_a_round_is_complete(void **state)
{
    (void) state;
    char host[64] = "";
    const unsigned char pid[4] = {0x39, 0x30, 0, 0};
    struct stage stage = {.ranks = 3, .damaged_call = 1, .damaged_rank = 2, .damage_at = 20,
                          .damage_size = sizeof(pid), .damage = pid};
    struct jc_exchange *exchange = create_on(&stage, 1);
    struct jc_rank_info info;
    struct jc_error error;
    gethostname(host, sizeof(host) - 1);
    for (unsigned rank = 0; rank < 3; rank++) {
        memset(&info, 0xFF, sizeof(info));
        exchange->calls->look(exchange, rank, &info);
        assert_int_equal(info.rank, rank);
        assert_int_equal(info.state, rank == 1 ? JC_RANK_JOINED : JC_RANK_ABSENT);
        assert_int_equal(info.pid, rank == 1 ? getpid() : 0);
        assert_string_equal(info.host, rank == 1 ? host : "");
    }
    assert_int_equal(give(exchange, 10, &error), JC_OK);
    host[24] = '\0'; // what fits of a long one
    for (unsigned rank = 0; rank < 3; rank++) {
        memset(&info, 0xFF, sizeof(info));
        exchange->calls->look(exchange, rank, &info);
        assert_int_equal(info.state, JC_RANK_JOINED);
        assert_int_equal(info.pid, rank == 2 ? 12345 : getpid());
        assert_memory_equal(info.host, host, strlen(host));
    }
    exchange->calls->destroy(exchange);
}

// --- a callback that blocks ----------------------------------------------------------------------

struct blocked {
    sem_t entered, release; // the callback; each call waits to be released
    sem_t ended;            // the thread, with what it had to free
    pthread_key_t key;      // tells of that
    struct stage stage;
    struct jc_exchange *exchange;
};

static void tell_end(void *user)
{
    struct blocked *blocked = user;
    sem_post(&blocked->ended);
}

static void wait_for(sem_t *sem)
{
    await(sem_trywait(sem) == 0);
}

static int gather_blocked(void *user, const void *mine, size_t size, void *all)
{
    struct blocked *blocked = user;
    pthread_setspecific(blocked->key, blocked);
    sem_post(&blocked->entered);
    while (sem_wait(&blocked->release) != 0)
        continue;
    return gather_on_stage(&blocked->stage, mine, size, all);
}

static void open_blocked(struct blocked *blocked)
{
    const struct jc_all_gather all_gather = {gather_blocked, blocked};
    sem_init(&blocked->entered, 0, 0);
    sem_init(&blocked->release, 0, 0);
    sem_init(&blocked->ended, 0, 0);
    assert_int_equal(pthread_key_create(&blocked->key, tell_end), 0);
    blocked->stage = (struct stage){.ranks = 2};
    blocked->exchange = create(0, 2, &all_gather);
    assert_non_null(blocked->exchange);
}

// Destroys the exchange, whose callback was entered before. A thread that is left behind ends when
// that is released, and frees what it had; see the address sanitizer.
static void close_blocked(struct blocked *blocked)
{
    uint64_t start_ns = jc_now_ns();
    blocked->exchange->calls->destroy(blocked->exchange);
    assert_in_range(jc_now_ns() - start_ns, 0, 10 * UINT64_C(1000000000));
    sem_post(&blocked->release);
    wait_for(&blocked->ended);
    pthread_key_delete(blocked->key);
    sem_destroy(&blocked->entered);
    sem_destroy(&blocked->release);
    sem_destroy(&blocked->ended);
}

// Where the first round blocks, or one after it.
static void a_callback_that_blocks_is_waited_for_until_the_time_is_up(void **state)
{
    (void) state;
    for (unsigned round = 0; round <= 2; round++) {
        struct blocked blocked;
        struct jc_error error = {""}, again = {""};
        char text[256];
        open_blocked(&blocked);
        for (unsigned i = 0; i < round; i++)
            sem_post(&blocked.release);
        if (round == 2) {
            assert_int_equal(give(blocked.exchange, 10, &error), JC_OK);
            assert_int_equal(blocked.stage.calls, 2);
        }
        uint64_t start_ns = jc_now_ns();
        const struct jc_patience until = {.until_ns = start_ns + 200000000};
        unsigned char mine[10] = "", all[20];
        assert_int_equal(jc_exchange_round(blocked.exchange, &until, mine, sizeof(mine), all,
                                           &error), JC_ERROR_TIMEOUT);
        assert_in_range(jc_now_ns() - start_ns, 200000000, 10 * UINT64_C(1000000000));
        snprintf(text, sizeof(text), "the all-gather of round %u has not returned for ", round);
        assert_memory_equal(error.text, text, strlen(text));
        assert_non_null(strstr(error.text, " s: one of the 2 ranks did not come to it, and which"
                               " one it does not tell; see what the other ranks and the"
                               " communicator say"));
        assert_int_equal(give(blocked.exchange, 10, &again), JC_ERROR_TIMEOUT);
        assert_string_equal(again.text, error.text);
        for (unsigned i = 0; i <= round; i++)
            wait_for(&blocked.entered);
        close_blocked(&blocked);
    }
}

static void a_round_may_be_left_under_way(void **state)
{
    (void) state;
    struct blocked blocked;
    unsigned char mine[10] = "";
    struct jc_error error;
    open_blocked(&blocked);
    assert_int_equal(blocked.exchange->calls->begin(blocked.exchange, mine, sizeof(mine), &error),
                     JC_OK);
    assert_int_equal(blocked.exchange->calls->poll(blocked.exchange, false, NULL, &error),
                     JC_ERROR_NOT_READY);
    wait_for(&blocked.entered);
    close_blocked(&blocked);
}

static bool give_up(void *user)
{
    ++*(unsigned *) user;
    return false;
}

static void who_gives_up_may_wait_again(void **state)
{
    (void) state;
    struct blocked blocked;
    unsigned char mine[10] = "", all[20];
    unsigned ticks = 0;
    struct jc_error error;
    struct jc_patience until = patience();
    open_blocked(&blocked);
    until.tick = give_up;
    until.user = &ticks;
    assert_int_equal(jc_exchange_round(blocked.exchange, &until, mine, sizeof(mine), all, &error),
                     JC_ERROR_NOT_READY);
    assert_int_equal(ticks, 1);
    sem_post(&blocked.release);
    sem_post(&blocked.release);
    until.tick = NULL;
    assert_int_equal(jc_exchange_wait(blocked.exchange, &until, all, &error), JC_OK);
    close_blocked(&blocked);
}

// What came back just before the time was up counts. That it is back shows in nothing but this, so
// it is tried until it was.
static void a_round_that_is_back_does_not_expire(void **state)
{
    (void) state;
    enum jc_result result = JC_ERROR_TIMEOUT;
    uint64_t end_ns = jc_now_ns() + LIMIT_NS;
    while (result == JC_ERROR_TIMEOUT && jc_now_ns() < end_ns) {
        struct blocked blocked;
        unsigned char mine[10] = "", all[20];
        struct jc_error error;
        open_blocked(&blocked);
        for (unsigned i = 0; i < 3; i++)
            sem_post(&blocked.release);
        assert_int_equal(give(blocked.exchange, 10, &error), JC_OK);
        assert_int_equal(blocked.exchange->calls->begin(blocked.exchange, mine, sizeof(mine),
                                                        &error), JC_OK);
        for (unsigned i = 0; i < 3; i++)
            wait_for(&blocked.entered);
        usleep(1000);
        result = blocked.exchange->calls->expire(blocked.exchange, false, all, &error);
        close_blocked(&blocked);
    }
    assert_int_equal(result, JC_OK);
}

// --- forks ---------------------------------------------------------------------------------------

// The exit status of a child that is given an exchange of its parent's.
static int use_in_child(struct jc_exchange *exchange)
{
    unsigned char mine[10] = "";
    struct jc_error error;
    struct jc_rank_info info;
    int wrong = 0;
    alarm(30);
    exchange->calls->look(exchange, 1, &info);
    if (exchange->calls->begin(exchange, mine, sizeof(mine), &error) != JC_ERROR_PEER)
        wrong = 1;
    else if (!strstr(error.text, "this process was forked from the rank"))
        wrong = 2;
    exchange->calls->destroy(exchange);
    return wrong;
}

static void expect_child(struct jc_exchange *exchange)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(use_in_child(exchange));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_child_of_a_fork_is_no_rank(void **state)
{
    (void) state;
    struct stage stage = {.ranks = 2};
    struct jc_exchange *exchange = create_on(&stage, 0);
    struct jc_error error;
    expect_child(exchange);
    assert_int_equal(give(exchange, 10, &error), JC_OK);
    expect_child(exchange);
    assert_int_equal(give(exchange, 10, &error), JC_OK);
    exchange->calls->destroy(exchange);
    // And while the callback runs.
    struct blocked blocked;
    unsigned char mine[10] = "";
    open_blocked(&blocked);
    assert_int_equal(blocked.exchange->calls->begin(blocked.exchange, mine, sizeof(mine), &error),
                     JC_OK);
    wait_for(&blocked.entered);
    expect_child(blocked.exchange);
    close_blocked(&blocked);
}

// --- what is not to be had -----------------------------------------------------------------------

static void without_a_thread_or_memory_there_is_none(void **state)
{
    (void) state;
    struct stage stage = {.ranks = 2};
    const struct jc_all_gather all_gather = {gather_on_stage, &stage};
    const struct jc_group_params params = {.ranks = 2, .all_gather = &all_gather};
    struct jc_exchange *exchange;
    struct jc_error error;
    no_threads = true;
    enum jc_result result = jc_gathering_create(&params, &exchange, &error);
    no_threads = false;
    assert_int_equal(result, JC_ERROR_IO);
    assert_null(exchange);
    assert_non_null(strstr(error.text, "no thread for the all-gather: "));
    unsigned failed = 0;
    do {
        callocs_left = ++failed;
        result = jc_gathering_create(&params, &exchange, &error);
        callocs_left = 0;
        assert_true(result == JC_OK ? exchange != NULL : exchange == NULL);
        assert_true(result == JC_OK || result == JC_ERROR_OUT_OF_MEMORY);
    } while (result != JC_OK);
    assert_int_equal(failed, 6);
    exchange->calls->destroy(exchange);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        // First, while there is one thread.
        cmocka_unit_test(processes_get_the_blocks_of_all),
        cmocka_unit_test(threads_get_the_blocks_of_all),
        cmocka_unit_test(a_rank_that_ends_is_told_by_the_number_of_the_callback),
        cmocka_unit_test(the_first_round_is_of_a_head_alone),
        cmocka_unit_test(a_group_of_one_gathers_too),
        cmocka_unit_test(what_nobody_began_a_round_of_is_not_gathered),
        cmocka_unit_test(a_callback_that_fails_ends_the_exchange),
        cmocka_unit_test(what_does_not_belong_to_a_round_is_told_by_rank),
        cmocka_unit_test(a_callback_that_writes_nothing_is_noticed),
        cmocka_unit_test(ranks_are_known_once_a_round_is_complete),
        cmocka_unit_test(a_callback_that_blocks_is_waited_for_until_the_time_is_up),
        cmocka_unit_test(a_round_may_be_left_under_way),
        cmocka_unit_test(who_gives_up_may_wait_again),
        cmocka_unit_test(a_round_that_is_back_does_not_expire),
        cmocka_unit_test(a_child_of_a_fork_is_no_rank),
        cmocka_unit_test(without_a_thread_or_memory_there_is_none),
    };
    return cmocka_run_group_tests_name("gathering", tests, NULL, NULL);
}
