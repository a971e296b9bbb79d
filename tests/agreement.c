// Agreement: who has what most have, and what the others have instead.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/bytes.h"
#include "cache/clock.h"
#include "cache/report.h"
#include "runtime/group/agreement.h"

#define MAX_RANKS 8
#define LIMIT_NS UINT64_C(60000000000)

// --- an exchange of threads ----------------------------------------------------------------------

// What all ranks are in. A rank that has left gives to no round after those that it has given to.
struct hall {
    pthread_mutex_t lock; // guards all of it
    unsigned given[MAX_RANKS];
    bool left[MAX_RANKS];
    unsigned char blocks[2][MAX_RANKS][JC_EXCHANGE_BYTES];
    // What is written over what a rank gives to one round: as damaged as all ranks see it.
    unsigned damaged_round, damaged_rank;
    size_t damage_at, damage_size;
    unsigned char damage[16];
};

struct member {
    struct jc_exchange exchange;
    struct hall *hall;
    unsigned round;
    unsigned leaves_at; // does not come to this round; 0: comes to all
    size_t size;
};

static enum jc_result begin(struct jc_exchange *exchange, const void *mine, size_t size,
                            struct jc_error *error)
{
    struct member *member = (struct member *) exchange;
    struct hall *hall = member->hall;
    unsigned round = ++member->round;
    bool leaves = round == member->leaves_at;
    pthread_mutex_lock(&hall->lock);
    unsigned char *block = hall->blocks[round % 2][exchange->rank];
    memcpy(block, mine, size);
    if (round == hall->damaged_round && exchange->rank == hall->damaged_rank)
        memcpy(block + hall->damage_at, hall->damage, hall->damage_size);
    hall->left[exchange->rank] = leaves;
    if (!leaves)
        hall->given[exchange->rank] = round;
    member->size = size;
    pthread_mutex_unlock(&hall->lock);
    return leaves ? jc_fail(error, JC_ERROR_PEER, "it has left") : JC_OK;
}

static enum jc_result poll(struct jc_exchange *exchange, bool without_lost, void *all,
                           struct jc_error *error)
{
    struct member *member = (struct member *) exchange;
    struct hall *hall = member->hall;
    enum jc_result result = JC_OK;
    pthread_mutex_lock(&hall->lock);
    for (unsigned i = 0; i < exchange->ranks; i++) {
        bool given = hall->given[i] >= member->round;
        if (!given && !hall->left[i])
            result = JC_ERROR_NOT_READY;
    }
    for (unsigned i = 0; i < exchange->ranks && result == JC_OK; i++) {
        unsigned char *to = (unsigned char *) all + i * member->size;
        exchange->lost[i] = hall->given[i] < member->round;
        if (exchange->lost[i] && !without_lost)
            result = jc_fail(error, JC_ERROR_PEER, "rank %u has left", i);
        else if (exchange->lost[i])
            memset(to, 0, member->size);
        else
            memcpy(to, hall->blocks[member->round % 2][i], member->size);
    }
    pthread_mutex_unlock(&hall->lock);
    return result;
}

static enum jc_result expire(struct jc_exchange *exchange, bool without_lost, void *all,
                             struct jc_error *error)
{
    (void) exchange, (void) without_lost, (void) all;
    return jc_fail(error, JC_ERROR_TIMEOUT, "the time is up");
}

static const struct jc_exchange_calls calls = {.begin = begin, .poll = poll, .expire = expire};

// --- ranks ---------------------------------------------------------------------------------------

// A variant, as `describe` tells it, and the number that its machine code stands for.
struct variant {
    const char *text;
    unsigned code;
};

struct rank {
    struct member member;
    const struct variant *variants;
    size_t num_variants;
    struct jc_agreed *own;
    size_t num_own;
    struct jc_key digest;
    struct jc_key digests[MAX_RANKS];
    bool without_lost;
    unsigned rounds; // that explaining took
    enum jc_result result;
    struct jc_error error;
    pthread_t thread;
};

static size_t describe(void *user, size_t index, char *text, size_t size)
{
    const struct rank *rank = user;
    int length = snprintf(text, size, "%s", rank->variants[index].text);
    return (size_t) length < size ? (size_t) length : size - 1;
}

static void make_list(struct rank *rank)
{
    rank->own = calloc(rank->num_variants + 1, sizeof(*rank->own));
    assert_non_null(rank->own);
    rank->num_own = rank->num_variants;
    for (size_t i = 0; i < rank->num_variants; i++) {
        const struct variant *variant = &rank->variants[i];
        rank->own[i].key = jc_key_of(variant->text, strlen(variant->text));
        if (variant->code > 0)
            rank->own[i].digest = jc_key_of(&variant->code, sizeof(variant->code));
        rank->own[i].index = i;
    }
    jc_agreement_sort(rank->own, &rank->num_own, &rank->digest);
}

static void *explain(void *user)
{
    struct rank *rank = user;
    const struct jc_patience patience = {.until_ns = jc_now_ns() + LIMIT_NS,
                                         .without_lost = rank->without_lost};
    const struct jc_agreement agreement = {
        .exchange = &rank->member.exchange,
        .patience = &patience,
        .own = rank->own,
        .num_own = rank->num_own,
        .describe = describe,
        .user = rank,
    };
    rank->result = jc_agreement_explain(&agreement, rank->digests, &rank->error);
    rank->rounds = rank->member.round;
    return NULL;
}

static struct hall hall;
static struct rank ranks[MAX_RANKS];

static void open_ranks(unsigned count)
{
    memset(ranks, 0, sizeof(ranks));
    memset(&hall, 0, sizeof(hall));
    pthread_mutex_init(&hall.lock, NULL);
    for (unsigned i = 0; i < count; i++)
        ranks[i].member = (struct member){
            .exchange = {.calls = &calls, .rank = i, .ranks = count, .can_lose = true},
            .hall = &hall};
}

static void make_lists(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        make_list(&ranks[i]);
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < count; j++)
            ranks[i].digests[j] = ranks[j].digest;
}

static void explain_all(unsigned count)
{
    make_lists(count);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, explain, &ranks[i]), 0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void close_ranks(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        free(ranks[i].own);
    pthread_mutex_destroy(&hall.lock);
}

// All ranks but those that left say the same, in as many rounds: `result`, and, of what is not
// NULL, that text.
static void expect_all(unsigned count, enum jc_result result, const char *text)
{
    unsigned first = 0;
    while (ranks[first].member.leaves_at > 0)
        first++;
    for (unsigned i = 0; i < count; i++) {
        if (ranks[i].member.leaves_at > 0)
            continue;
        if (ranks[i].result != result)
            fail_msg("rank %u: %s: %s", i, jc_result_string(ranks[i].result), ranks[i].error.text);
        assert_string_equal(ranks[i].error.text, ranks[first].error.text);
        assert_int_equal(ranks[i].rounds, ranks[first].rounds);
    }
    if (text)
        assert_string_equal(ranks[first].error.text, text);
}

// --- tables of lists -----------------------------------------------------------------------------

#define SCALE(facet, arch, source) \
    "scale\nparameter.T=float\nfacet.n=" facet "\n\njitcache=1\nnvrtc=12.9\nbuild=b1\n" \
    "arch=" arch "\noption=--std=c++17\nentry=scale<float>\narguments=x:f32*,n:i32\n" \
    "parameter.T=float\nfacet.n=" facet "\nclosure=" source "\n"
#define ADD(nvrtc, option) \
    "add\n\njitcache=1\nnvrtc=" nvrtc "\nbuild=b1\narch=sm_90\noption=--std=c++17\n" option \
    "entry=add\narguments=x:f32*\nclosure=c2\n"

#define USUAL {SCALE("div:16", "sm_90", "c1")}, {ADD("12.9", "")}

struct list {
    struct variant variants[4]; // up to one without text
};

static const struct list usual = {{USUAL}};

struct agreement_case {
    const char *name;
    unsigned ranks;
    const struct list *lists[MAX_RANKS]; // NULL: the usual one
    const char *text;
};

static const struct list other_source = {{{SCALE("div:16", "sm_90", "c7")}, {ADD("12.9", "")}}};
static const struct list other_arch = {{{SCALE("div:16", "sm_80", "c1")}, {ADD("12.9", "")}}};
static const struct list other_nvrtc = {{{SCALE("div:16", "sm_90", "c1")}, {ADD("12.8", "")}}};
static const struct list more_options = {
    {{SCALE("div:16", "sm_90", "c1")}, {ADD("12.9", "option=-G\n")}}};
static const struct list fewer = {{{ADD("12.9", "")}}};
static const struct list other_facet = {{{SCALE("div:8", "sm_90", "c1")}, {ADD("12.9", "")}}};
static const struct list more = {{USUAL, {SCALE("1", "sm_90", "c1")}}};
static const struct list other_kernel = {
    {USUAL, {"mul\n\njitcache=1\nnvrtc=12.9\narch=sm_90\nclosure=c3\n"}}};
static const struct list empty = {{{NULL}}};
static const struct list only_add = {{{ADD("12.9", "")}}};
static const struct list add_and_more = {
    {{ADD("12.9", "")}, {SCALE("1", "sm_90", "c1")}, {SCALE("div:16", "sm_90", "c1")}}};
static const struct list same_lines = {
    {{"k\n\noption=-a\noption=-b\nentry=k\n"}}};
static const struct list other_order = {
    {{"k\n\noption=-b\noption=-a\nentry=k\n"}}};
static const struct list with_source = {
    {{"k\n\narch=sm_90\nclosure=c1\nsource=s1\n"}}};
static const struct list of_other_source = {
    {{"k\n\narch=sm_90\nclosure=c2\nsource=s2\n"}}};
static const struct list of_a_file = {
    {{"k /a/one k.cu\n\narch=sm_90\nclosure=c1\nsource=s1\n"}}};
static const struct list of_another_file = {
    {{"k /b/k.cu\n\narch=sm_90\nclosure=c2\nsource=s2\n"}}};
static const struct list same_of_another_file = {
    {{"k /b/k.cu\n\narch=sm_90\noption=-G\nclosure=c1\nsource=s1\n"}}};
static const struct list escapes = {
    {USUAL, {"\033[31mk\x7F\n\narch=sm_90\n"}}};
static const struct list code_1 = {{{SCALE("div:16", "sm_90", "c1"), 1}, {ADD("12.9", ""), 2}}};
static const struct list code_3 = {{{SCALE("div:16", "sm_90", "c1"), 3}, {ADD("12.9", ""), 2}}};

#define OR_OWN ", or, if they are meant to differ, .mode = JC_GROUP_OWN"
#define SUM(odd, extra, usual, lacks) \
    ". In all rank " odd " has " extra " that rank " usual " does not have, and lacks " lacks \
    " of those that it has"

static const struct agreement_case cases[] = {
    {"another source", 8, {[5] = &other_source},
     "rank 5 plans something else than most ranks: of kernel scale (T=float n:div:16), rank 5 has"
     " closure=c7 where rank 0 has closure=c1; give all ranks the same template, and the same"
     " headers that it includes" SUM("5", "1 variant", "0", "1")},
    {"rank 0 is the odd one", 3, {[0] = &other_source},
     "rank 0 plans something else than most ranks: of kernel scale (T=float n:div:16), rank 0 has"
     " closure=c7 where rank 1 has closure=c1; give all ranks the same template, and the same"
     " headers that it includes" SUM("0", "1 variant", "1", "1")},
    {"another architecture in several", 8, {[1] = &other_arch, [2] = &other_arch,
                                            [3] = &other_arch},
     "ranks 1 to 3 plan something else than most ranks: of kernel scale (T=float n:div:16), rank 1"
     " has arch=sm_80 where rank 0 has arch=sm_90; give all ranks GPUs of one architecture" OR_OWN
     SUM("1", "1 variant", "0", "1")},
    {"another NVRTC", 3, {[2] = &other_nvrtc},
     "rank 2 plans something else than most ranks: of kernel add, rank 2 has nvrtc=12.8 where rank"
     " 0 has nvrtc=12.9; give all ranks the same NVRTC, see JITCACHE_NVRTC"
     SUM("2", "1 variant", "0", "1")},
    {"an option more", 3, {[1] = &more_options},
     "rank 1 plans something else than most ranks: of kernel add, rank 1 has option=-G, which rank"
     " 0 does not have; give all ranks the same version of the template"
     SUM("1", "1 variant", "0", "1")},
    {"an option less", 3, {&more_options, NULL, &more_options},
     "rank 1 plans something else than most ranks: of kernel add, rank 1 does not have option=-G,"
     " which rank 0 has; give all ranks the same version of the template"
     SUM("1", "1 variant", "0", "1")},
    {"another specialization", 3, {[1] = &other_facet},
     "rank 1 plans something else than most ranks: rank 1 has a variant of kernel scale (T=float"
     " n:div:8) that rank 0 does not have: rank 1 has facet.n=div:8 where the nearest of rank 0 has"
     " facet.n=div:16; give the kernel the same parameters, bindings and ranges in all ranks"
     OR_OWN
     SUM("1", "1 variant", "0", "1")},
    {"a variant more", 4, {[3] = &more},
     "rank 3 plans something else than most ranks: rank 3 has a variant of kernel scale (T=float"
     " n:1) that rank 0 does not have: rank 3 has facet.n=1 where the nearest of rank 0 has"
     " facet.n=div:16; give the kernel the same parameters, bindings and ranges in all ranks"
     OR_OWN
     SUM("3", "1 variant", "0", "0")},
    {"a variant less", 4, {&add_and_more, &add_and_more, NULL, &add_and_more},
     "rank 2 plans something else than most ranks: rank 0 has a variant of kernel scale (T=float"
     " n:1) that rank 2 does not have: rank 0 has facet.n=1 where the nearest of rank 2 has"
     " facet.n=div:16; give the kernel the same parameters, bindings and ranges in all ranks"
     OR_OWN
     SUM("2", "0 variants", "0", "1")},
    {"a kernel less", 3, {[1] = &fewer},
     "rank 1 plans something else than most ranks: rank 0 has kernel scale, of which rank 1 has no"
     " variant; give all ranks the same kernels" OR_OWN SUM("1", "0 variants", "0", "1")},
    {"a kernel more", 3, {[1] = &other_kernel},
     "rank 1 plans something else than most ranks: rank 1 has kernel mul, of which rank 0 has no"
     " variant; give all ranks the same kernels" OR_OWN SUM("1", "1 variant", "0", "0")},
    {"nothing at all", 3, {[1] = &empty},
     NULL},
    {"nothing is usual", 3, {&empty, &empty, &only_add},
     "rank 2 plans something else than most ranks: rank 2 has kernel add, of which rank 0 has no"
     " variant; give all ranks the same kernels" OR_OWN SUM("2", "1 variant", "0", "0")},
    {"two of two", 2, {NULL, &other_source},
     "rank 1 plans something else than rank 0: of kernel scale (T=float n:div:16), rank 1 has"
     " closure=c7 where rank 0 has closure=c1; give all ranks the same template, and the same"
     " headers that it includes" SUM("1", "1 variant", "0", "1")},
    {"two camps", 6, {&other_arch, NULL, &other_arch, NULL, NULL, &other_arch},
     "ranks 1, 3 and 4 plan something else than ranks 0, 2 and 5: of kernel scale (T=float"
     " n:div:16), rank 1 has arch=sm_90 where rank 0 has arch=sm_80; give all ranks GPUs of one"
     " architecture" OR_OWN SUM("1", "1 variant", "0", "1")},
    {"all differ", 4, {&other_kernel, &more, &fewer, &empty},
     NULL},
    {"another order", 3, {&same_lines, &same_lines, &other_order},
     "rank 2 plans something else than most ranks: of kernel k, rank 2 has another source, or its"
     " options in another order, than rank 0; give all ranks the same version of the template"
     SUM("2", "1 variant", "0", "1")},
    {"another file", 3, {&of_a_file, &of_a_file, &of_another_file},
     "rank 2 plans something else than most ranks: of kernel k, rank 2 (/b/k.cu) has source=s2"
     " where rank 0 (/a/one k.cu) has source=s1; give all ranks the same version of the template"
     SUM("2", "1 variant", "0", "1")},
    {"a file against a text", 3, {&with_source, &with_source, &of_another_file},
     "rank 2 plans something else than most ranks: of kernel k, rank 2 (/b/k.cu) has source=s2"
     " where rank 0 has source=s1; give all ranks the same version of the template"
     SUM("2", "1 variant", "0", "1")},
    {"files are no difference", 3, {&of_a_file, &of_a_file, &same_of_another_file},
     "rank 2 plans something else than most ranks: of kernel k, rank 2 (/b/k.cu) has option=-G,"
     " which rank 0 (/a/one k.cu) does not have; give all ranks the same version of the template"
     SUM("2", "1 variant", "0", "1")},
    {"a line for the source", 3, {&with_source, &with_source, &of_other_source},
     "rank 2 plans something else than most ranks: of kernel k, rank 2 has source=s2 where rank 0"
     " has source=s1; give all ranks the same version of the template"
     SUM("2", "1 variant", "0", "1")},
    {"letters that are none", 3, {[1] = &escapes},
     "rank 1 plans something else than most ranks: rank 1 has kernel ?[31mk?, of which rank 0 has"
     " no variant; give all ranks the same kernels" OR_OWN SUM("1", "1 variant", "0", "0")},
};

static void take_list(struct rank *rank, const struct list *list)
{
    rank->variants = list->variants;
    while (rank->num_variants < 4 && list->variants[rank->num_variants].text)
        rank->num_variants++;
}

static void open_case(const struct agreement_case *of)
{
    open_ranks(of->ranks);
    for (unsigned i = 0; i < of->ranks; i++)
        take_list(&ranks[i], of->lists[i] ? of->lists[i] : &usual);
}

static void what_differs_is_told_alike_by_all_ranks(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        print_message("%s\n", cases[i].name);
        open_case(&cases[i]);
        explain_all(cases[i].ranks);
        expect_all(cases[i].ranks, JC_ERROR_MISMATCH, cases[i].text);
        close_ranks(cases[i].ranks);
    }
}

static void machine_code_that_differs_is_told_with_its_digests(void **state)
{
    (void) state;
    char text[1024], key[JC_KEY_STRING_SIZE], odd[JC_KEY_STRING_SIZE], most[JC_KEY_STRING_SIZE];
    const unsigned codes[] = {1, 3};
    struct jc_key digests[2], of_key;
    of_key = jc_key_of(code_1.variants[0].text, strlen(code_1.variants[0].text));
    for (int i = 0; i < 2; i++)
        digests[i] = jc_key_of(&codes[i], sizeof(codes[i]));
    jc_key_format(&of_key, key);
    jc_key_format(&digests[0], most);
    jc_key_format(&digests[1], odd);
    snprintf(text, sizeof(text),
             "rank 3 has other machine code than most ranks, under the same key, and could compute"
             " other numbers: of kernel scale (T=float n:div:16), key %s, rank 3 has code with"
             " digest %s, rank 0 with %s (1 variant in all). Have rank 3 compile again, by"
             " `jitcache clear` with the JITCACHE_DIR of that rank, or give all ranks one cache",
             key, odd, most);
    open_ranks(4);
    for (unsigned i = 0; i < 4; i++)
        take_list(&ranks[i], i == 3 ? &code_3 : &code_1);
    explain_all(4);
    expect_all(4, JC_ERROR_MISMATCH, text);
    close_ranks(4);
}

// --- sorting, and who has most -------------------------------------------------------------------

static void order_and_doubles_do_not_count(void **state)
{
    (void) state;
    static const struct variant one[] = {{"a", 1}, {"b", 2}, {"c", 3}};
    static const struct variant other[] = {{"c", 3}, {"a", 1}, {"b", 2}, {"a", 1}, {"c", 3}};
    open_ranks(3);
    ranks[0].variants = one;
    ranks[0].num_variants = 3;
    ranks[1].variants = other;
    ranks[1].num_variants = 5;
    ranks[2].variants = one;
    ranks[2].num_variants = 2;
    make_lists(3);
    assert_int_equal(ranks[1].num_own, 3);
    assert_memory_equal(&ranks[0].digest, &ranks[1].digest, sizeof(struct jc_key));
    assert_memory_not_equal(&ranks[0].digest, &ranks[2].digest, sizeof(struct jc_key));
    for (size_t i = 0; i < 3; i++) {
        assert_memory_equal(&ranks[0].own[i].key, &ranks[1].own[i].key, sizeof(struct jc_key));
        assert_string_equal(one[ranks[0].own[i].index].text, other[ranks[1].own[i].index].text);
        assert_true(i == 0 || memcmp(&ranks[0].own[i - 1].key, &ranks[0].own[i].key, 16) < 0);
    }
    close_ranks(3);
    // An empty list has a digest too, and one that no other has.
    struct jc_key none = {0};
    open_ranks(2);
    ranks[1].variants = one;
    ranks[1].num_variants = 1;
    make_lists(2);
    assert_int_equal(ranks[0].num_own, 0);
    assert_memory_not_equal(&ranks[0].digest, &none, sizeof(none));
    assert_memory_not_equal(&ranks[0].digest, &ranks[1].digest, sizeof(none));
    close_ranks(2);
}

static void most_ranks_decide_and_of_equally_many_the_lowest(void **state)
{
    (void) state;
    static const struct {
        const char *digests; // one letter each; '-': lost
        unsigned rank;
        bool same;
    } votes[] = {
        {"a", 0, true}, {"aaaa", 0, true}, {"abbb", 1, false}, {"abba", 0, false},
        {"abcd", 0, false}, {"abcc", 2, false}, {"aab", 0, false}, {"-bb", 1, true},
        {"-abb", 2, false}, {"ab-b-", 1, false}, {"--a", 2, true},
    };
    for (size_t i = 0; i < sizeof(votes) / sizeof(votes[0]); i++) {
        struct jc_exchange exchange = {.ranks = (unsigned) strlen(votes[i].digests)};
        struct jc_key digests[MAX_RANKS] = {0};
        for (unsigned j = 0; j < exchange.ranks; j++) {
            digests[j] = jc_key_of(&votes[i].digests[j], 1);
            exchange.lost[j] = votes[i].digests[j] == '-';
        }
        bool same = !votes[i].same;
        assert_int_equal(jc_agreement_majority(&exchange, digests, &same), votes[i].rank);
        assert_int_equal(same, votes[i].same);
    }
}

// --- large lists, large texts --------------------------------------------------------------------

enum { MANY = 2000 };

static char many_texts[MANY][160];
static struct variant many[2][MANY];

// Of many variants the two lists differ in one; which that is comes last in the order of keys, so
// that all pieces are needed.
static size_t make_many(void)
{
    size_t last = 0;
    struct jc_key largest = {0};
    for (size_t i = 0; i < MANY; i++) {
        snprintf(many_texts[i], sizeof(many_texts[i]), "scale\nfacet.n=value:%zu\n\narch=sm_90\n"
                 "facet.n=value:%zu\nclosure=c1\n", i, i);
        struct jc_key key = jc_key_of(many_texts[i], strlen(many_texts[i]));
        if (memcmp(&key, &largest, sizeof(key)) > 0) {
            largest = key;
            last = i;
        }
        many[0][i].text = many[1][i].text = many_texts[i];
    }
    return last;
}

static void of_thousands_of_variants_the_one_that_differs_is_found(void **state)
{
    (void) state;
    size_t last = make_many();
    char other[160], text[512];
    snprintf(other, sizeof(other), "scale\nfacet.n=value:%zu\n\narch=sm_90\nfacet.n=value:%zu\n"
             "closure=c2\n", last, last);
    many[1][last].text = other;
    open_ranks(3);
    for (unsigned i = 0; i < 3; i++) {
        ranks[i].variants = many[i == 1];
        ranks[i].num_variants = MANY;
    }
    snprintf(text, sizeof(text), "rank 1 plans something else than most ranks: of kernel scale"
             " (n:value:%zu), rank 1 has closure=c2 where rank 0 has closure=c1; give all ranks the"
             " same template, and the same headers that it includes"
             SUM("1", "1 variant", "0", "1"), last);
    explain_all(3);
    expect_all(3, JC_ERROR_MISMATCH, text);
    assert_int_equal(ranks[0].rounds, 8 + 2);
    close_ranks(3);
}

// What is beyond a block is not compared, and a long value is shown from about where it differs.
static void long_texts_are_cut(void **state)
{
    (void) state;
    static char texts[2][20000];
    for (size_t beyond = 0; beyond < 2; beyond++) {
        for (size_t i = 0; i < 2; i++) {
            char *at = stpcpy(texts[i], "k\n\narguments=");
            memset(at, 'a', 15000);
            at[beyond ? 12000 : 3000] = (char) ('x' + i);
            strcpy(at + 15000, "\nclosure=c1\n");
        }
        static struct variant lists[2] = {{texts[0], 0}, {texts[1], 0}};
        open_ranks(3);
        for (unsigned i = 0; i < 3; i++) {
            ranks[i].variants = &lists[i == 2];
            ranks[i].num_variants = 1;
        }
        explain_all(3);
        expect_all(3, JC_ERROR_MISMATCH, beyond
                   ? "rank 2 plans something else than most ranks: of kernel k, rank 2 has another"
                     " source, or its options in another order, than rank 0; give all ranks the"
                     " same version of the template" SUM("2", "1 variant", "0", "1")
                   : NULL);
        if (!beyond) {
            assert_non_null(strstr(ranks[0].error.text, "rank 2 has arguments=...aaaa"));
            assert_non_null(strstr(ranks[0].error.text, "aayaa"));
            assert_non_null(strstr(ranks[0].error.text, "aaxaa"));
            assert_in_range(strlen(ranks[0].error.text), 100, 800);
        }
        close_ranks(3);
    }
}

// --- ranks that are lost, blocks that say nothing ------------------------------------------------

// Whichever of the ranks it is that leaves, and in whichever round.
static void ranks_that_are_lost_meanwhile_are_passed_over(void **state)
{
    (void) state;
    static const struct agreement_case of = {
        "", 5, {[1] = &other_arch, [3] = &other_source}, NULL};
    static const char *const said[5] = {
        "ranks 1 and 3 plan something else than ",
        "rank 3 plans something else than most ranks: of kernel scale (T=float n:div:16), rank 3"
        " has closure=c7 where rank 0",
        "ranks 1 and 3 plan something else than ",
        "rank 1 plans something else than most ranks: of kernel scale (T=float n:div:16), rank 1"
        " has arch=sm_80 where rank 0",
        "ranks 1 and 3 plan something else than ",
    };
    for (unsigned rank = 0; rank < of.ranks; rank++) {
        for (unsigned round = 1; round <= 3; round++) {
            open_case(&of);
            ranks[rank].member.leaves_at = round;
            for (unsigned i = 0; i < of.ranks; i++)
                ranks[i].without_lost = true;
            explain_all(of.ranks);
            expect_all(of.ranks, JC_ERROR_MISMATCH, NULL);
            const char *text = ranks[rank == 0].error.text;
            if (strncmp(text, said[rank], strlen(said[rank])) != 0)
                fail_msg("rank %u left in round %u: %s", rank, round, text);
            assert_int_equal(ranks[rank].result, JC_ERROR_PEER);
            close_ranks(of.ranks);
        }
    }
}

static void ranks_that_are_left_may_have_the_same(void **state)
{
    (void) state;
    static const struct agreement_case of = {"", 3, {[1] = &other_arch}, NULL};
    open_case(&of);
    ranks[1].member.leaves_at = 2;
    for (unsigned i = 0; i < of.ranks; i++)
        ranks[i].without_lost = true;
    explain_all(of.ranks);
    expect_all(of.ranks, JC_OK, NULL);
    close_ranks(of.ranks);
}

static void a_rank_that_is_lost_ends_it_unless_it_may_be(void **state)
{
    (void) state;
    static const struct agreement_case of = {"", 3, {[1] = &other_arch}, NULL};
    open_case(&of);
    ranks[2].member.leaves_at = 2;
    explain_all(of.ranks);
    expect_all(of.ranks, JC_ERROR_PEER, "rank 2 has left");
    close_ranks(of.ranks);
}

#define BOTH_NUMBERS 100000

static void blocks_that_say_nothing_are_refused(void **state)
{
    (void) state;
    static const struct {
        unsigned round, rank;
        size_t at;
        uint32_t number;
        unsigned speaker;
    } damages[] = {
        {1, 0, 0, 7, 0},          // no piece
        {1, 0, 4, UINT32_MAX, 0}, // of more than there can be
        {1, 0, 4, 1, 0},          // of fewer than are in it
        {1, 0, 4, 3, 0},          // of one more that is not there
        {1, 0, 8, UINT32_MAX, 0}, // with more than fit
        {1, 0, 8, 256, 0},
        {1, 0, 4, BOTH_NUMBERS, 0}, // as many as there are said to be
        {1, 0, 8, 0, 0},
        {2, 1, 0, 0, 1},           // no finding
        {2, 1, 4, 4, 1},           // of no kind
        {2, 1, 4, 0, 1},           // of nothing
        {2, 1, 68, UINT32_MAX, 1}, // with a text beyond the block
        {2, 1, 68, 8056, 1},
        {2, 1, 68, 20, 1},         // without its NUL
        {2, 1, 68, 800, 1},        // with one too early
        {3, 0, 0, 0, 0},           // no answer
        {3, 0, 4, UINT32_MAX, 0},
        {3, 0, 4, 20, 0},
        {3, 0, 4, 800, 0},
    };
    static const struct agreement_case of = {"", 3, {[1] = &other_arch}, NULL};
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        char text[256];
        open_case(&of);
        hall.damaged_round = damages[i].round;
        hall.damaged_rank = damages[i].rank;
        hall.damage_at = damages[i].at;
        hall.damage_size = sizeof(uint32_t);
        jc_store_u32(hall.damage, damages[i].number);
        if (damages[i].number == BOTH_NUMBERS) {
            hall.damage_size *= 2;
            jc_store_u32(hall.damage + 4, BOTH_NUMBERS);
        }
        snprintf(text, sizeof(text), "rank 1 has other variants than rank 0, and what rank %u told"
                 " of its own cannot be read; see whether all ranks have the same build of"
                 " jitcache", damages[i].speaker);
        explain_all(of.ranks);
        expect_all(of.ranks, JC_ERROR_MISMATCH, text);
        close_ranks(of.ranks);
    }
}

// What is garbage but could be true is taken for that, whatever comes of it.
static void descriptions_may_say_anything(void **state)
{
    (void) state;
    static const char *const texts[] = {
        "", "\n", "\n\n", "\n\n\n", "k", "k\n", "k\n\n", "=\n=\n\n=\n", "k\n\n=", "k\nfacet.\n\na",
        "k\nparameter.=\n\n", "k\nfacet.n", "\n\n\n\n\n=\n", "k\n\noption\noption=\n",
    };
    enum { COUNT = sizeof(texts) / sizeof(texts[0]) };
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < COUNT; j++) {
            const struct variant one = {texts[i], 0}, other = {texts[j], 0};
            if (i == j)
                continue;
            open_ranks(2);
            ranks[0].variants = &one;
            ranks[1].variants = &other;
            ranks[0].num_variants = ranks[1].num_variants = 1;
            explain_all(2);
            expect_all(2, JC_ERROR_MISMATCH, NULL);
            close_ranks(2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_doubles_do_not_count),
        cmocka_unit_test(most_ranks_decide_and_of_equally_many_the_lowest),
        cmocka_unit_test(what_differs_is_told_alike_by_all_ranks),
        cmocka_unit_test(machine_code_that_differs_is_told_with_its_digests),
        cmocka_unit_test(of_thousands_of_variants_the_one_that_differs_is_found),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(ranks_that_are_lost_meanwhile_are_passed_over),
        cmocka_unit_test(ranks_that_are_left_may_have_the_same),
        cmocka_unit_test(a_rank_that_is_lost_ends_it_unless_it_may_be),
        cmocka_unit_test(blocks_that_say_nothing_are_refused),
        cmocka_unit_test(descriptions_may_say_anything),
    };
    return cmocka_run_group_tests_name("agreement", tests, NULL, NULL);
}
