#include "exchange.h"

#include <time.h>

#include "cache/clock.h"
#include "cache/report.h"

#define FIRST_REST_NS 20000
#define LAST_REST_NS 1000000
#define TICK_NS UINT64_C(100000000)

#define MAX_RUNS 16 // of ranks, that a list has

enum jc_result jc_exchange_wait(struct jc_exchange *exchange, const struct jc_patience *patience,
                                void *all, struct jc_error *error)
{
    const struct jc_exchange_calls *calls = exchange->calls;
    struct timespec rest = {.tv_nsec = FIRST_REST_NS};
    uint64_t tick_ns = jc_now_ns() + TICK_NS;
    for (;;) {
        enum jc_result result = calls->poll(exchange, patience->without_lost, all, error);
        if (result != JC_ERROR_NOT_READY)
            return result;
        uint64_t now = jc_now_ns();
        if (now >= patience->until_ns)
            return calls->expire(exchange, patience->without_lost, all, error);
        if (patience->tick && now >= tick_ns) {
            if (!patience->tick(patience->user))
                return jc_fail(error, JC_ERROR_NOT_READY, "given up");
            tick_ns = jc_now_ns() + TICK_NS;
        }
        nanosleep(&rest, NULL);
        rest.tv_nsec = rest.tv_nsec < LAST_REST_NS / 2 ? 2 * rest.tv_nsec : LAST_REST_NS;
    }
}

enum jc_result jc_exchange_round(struct jc_exchange *exchange, const struct jc_patience *patience,
                                 const void *mine, size_t size, void *all, struct jc_error *error)
{
    enum jc_result result = exchange->calls->begin(exchange, mine, size, error);
    return result == JC_OK ? jc_exchange_wait(exchange, patience, all, error) : result;
}

unsigned jc_exchange_list(const struct jc_exchange *exchange,
                          bool (*is_of_kind)(const void *user, unsigned rank), const void *user,
                          char text[JC_RANKS_TEXT_SIZE])
{
    unsigned count = 0, runs = 0;
    for (unsigned i = 0; i < exchange->ranks; i++)
        count += !exchange->lost[i] && is_of_kind(user, i);
    text[0] = '\0';
    jc_text_more(text, JC_RANKS_TEXT_SIZE, "%s", count == 1 ? "rank" : "ranks");
    for (unsigned i = 0, left = count; left > 0; i++) {
        unsigned run = 0;
        while (i + run < exchange->ranks && !exchange->lost[i + run] && is_of_kind(user, i + run))
            run++;
        if (run == 0)
            continue;
        if (runs++ == MAX_RUNS) {
            jc_text_more(text, JC_RANKS_TEXT_SIZE, " and %u more", left);
            break;
        }
        run = run == 2 ? 1 : run; // "1 and 2", not "1 to 2"
        left -= run;
        const char *between = runs == 1 ? "" : left == 0 ? " and" : ",";
        jc_text_more(text, JC_RANKS_TEXT_SIZE, "%s %u", between, i);
        if (run > 1)
            jc_text_more(text, JC_RANKS_TEXT_SIZE, " to %u", i + run - 1);
        i += run - 1;
    }
    return count;
}
