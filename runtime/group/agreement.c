#include "agreement.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cache/bytes.h"
#include "cache/report.h"
#include "contrast.h"

// How it goes
//
// Two ranks talk, and the others listen: the first of those that have what most have, here called
// the usual one, and the first that has something else, the odd one. The usual one tells its list,
// a piece each round, and the odd one finds what differs while it hears that. Then the odd one
// tells what it found, and the usual one answers. If what differs is a variant that the odd one
// lacks, there is one more round, in which it tells what it has instead.
//
// Blocks, little endian; those who listen give zeroes:
//
//   a piece    0  4  PIECE
//              4  4  pairs in all pieces
//              8  4  pairs in this piece
//             16     pairs, of key and digest, 16 bytes each
//
//   a finding  0  4  FINDING
//              4  4  which: enum kind
//              8  4  variants that the usual one does not have
//             12  4  variants that it has and the odd one does not
//             16  4  variants of which both have other machine code
//             20 16  the key in question
//             36 16  the odd one's digest
//             52 16  the usual one's
//             68     a text, as below
//
//   an answer  0  4  ANSWER
//              4     a text: its size, 4 bytes; that many bytes, and a NUL. Empty: there is nothing
#define PIECE 1
#define FINDING 2
#define ANSWER 3

#define PAIR_BYTES 32
#define PIECE_HEAD ((size_t) 16)
#define PAIRS_AT_ONCE ((JC_EXCHANGE_BYTES - PIECE_HEAD) / PAIR_BYTES)
#define FINDING_HEAD ((size_t) 68)
#define ANSWER_HEAD ((size_t) 4)
// Room for the longest of both, beside its size and its NUL.
#define TEXT_SIZE (JC_EXCHANGE_BYTES - FINDING_HEAD - 4)

// More than ranks can have: what says so is no list.
#define MAX_PAIRS (UINT32_C(1) << 24)

enum kind {
    NOTHING = 0,
    EXTRA = 1,   // the odd one has a key that the usual one has not
    LACKING = 2, // it has none such, but lacks one
    DIGESTS = 3  // it has the same keys
};

// --- lists ---------------------------------------------------------------------------------------

static int compare_keys(const struct jc_key *a, const struct jc_key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

static bool same_key(const struct jc_key *a, const struct jc_key *b)
{
    return compare_keys(a, b) == 0;
}

static int compare_agreed(const void *left, const void *right)
{
    const struct jc_agreed *a = left, *b = right;
    int order = compare_keys(&a->key, &b->key);
    if (order == 0)
        order = compare_keys(&a->digest, &b->digest);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

void jc_agreement_sort(struct jc_agreed *list, size_t *num, struct jc_key *digest)
{
    if (*num > 0)
        qsort(list, *num, sizeof(*list), compare_agreed);
    size_t kept = 0;
    *digest = jc_key_of("", 0);
    for (size_t i = 0; i < *num; i++) {
        if (kept > 0 && same_key(&list[kept - 1].key, &list[i].key))
            continue;
        const struct jc_key chain[] = {*digest, list[i].key, list[i].digest};
        *digest = jc_key_of(chain, sizeof(chain));
        list[kept++] = list[i];
    }
    *num = kept;
}

static unsigned count_like(const struct jc_exchange *exchange, const struct jc_key *digests,
                           unsigned rank)
{
    unsigned count = 0;
    for (unsigned i = 0; i < exchange->ranks; i++)
        count += !exchange->lost[i] && same_key(&digests[i], &digests[rank]);
    return count;
}

static unsigned count_present(const struct jc_exchange *exchange)
{
    unsigned count = 0;
    for (unsigned i = 0; i < exchange->ranks; i++)
        count += !exchange->lost[i];
    return count;
}

unsigned jc_agreement_majority(const struct jc_exchange *exchange, const struct jc_key *digests,
                               bool *same)
{
    unsigned usual = 0, most = 0;
    for (unsigned i = 0; i < exchange->ranks; i++) {
        unsigned count = exchange->lost[i] ? 0 : count_like(exchange, digests, i);
        if (count > most) {
            usual = i;
            most = count;
        }
    }
    *same = most == count_present(exchange);
    return usual;
}

// --- rounds --------------------------------------------------------------------------------------

struct finding {
    enum kind kind;
    uint32_t extra, lacking, differing;
    struct jc_key key, odd_digest, usual_digest;
    const char *text; // what the odd one's variant is; "" of one that it lacks
};

struct talk {
    const struct jc_agreement *agreement;
    const struct jc_key *digests;
    unsigned usual, odd;
    bool broken; // one of the two is lost
    unsigned char *mine, *all;
    char *scratch;
    struct finding finding;
    char *odd_text, *usual_text; // descriptions, TEXT_SIZE each
    struct jc_error *error;
};

static bool is_mine(const struct talk *talk, unsigned rank)
{
    return talk->agreement->exchange->rank == rank;
}

// Gives what is in `mine` if the turn is this rank's, and clears it. `*heard` is what `speaker`
// gave.
static enum jc_result hear(struct talk *talk, unsigned speaker, const unsigned char **heard)
{
    struct jc_exchange *exchange = talk->agreement->exchange;
    enum jc_result result = jc_exchange_round(exchange, talk->agreement->patience, talk->mine,
                                              JC_EXCHANGE_BYTES, talk->all, talk->error);
    memset(talk->mine, 0, JC_EXCHANGE_BYTES);
    *heard = talk->all + speaker * JC_EXCHANGE_BYTES;
    talk->broken = exchange->lost[talk->usual] || exchange->lost[talk->odd];
    return result;
}

static enum jc_result refuse(const struct talk *talk, unsigned speaker)
{
    return jc_fail(talk->error, JC_ERROR_MISMATCH, "rank %u has other variants than rank %u, and"
                   " what rank %u told of its own cannot be read; see whether all ranks have the"
                   " same build of jitcache", talk->odd, talk->usual, speaker);
}

static void put_text(unsigned char *to, const char *text)
{
    size_t size = strnlen(text, TEXT_SIZE - 1);
    jc_store_u32(to, (uint32_t) size);
    memcpy(to + 4, text, size);
    to[4 + size] = '\0';
}

// What others wrote is shown: without what a terminal would take for more than text.
static bool get_text(const unsigned char *from, char *text)
{
    uint32_t size = jc_load_u32(from);
    if (size >= TEXT_SIZE || from[4 + size] != '\0' || memchr(from + 4, '\0', size))
        return false;
    for (uint32_t i = 0; i < size; i++) {
        unsigned char byte = from[4 + i];
        text[i] = (byte < ' ' && byte != '\n') || byte == 0x7F ? '?' : (char) byte;
    }
    text[size] = '\0';
    return true;
}

// --- the usual one's list, and what the odd one finds --------------------------------------------

static void write_piece(struct talk *talk, size_t first)
{
    const struct jc_agreement *agreement = talk->agreement;
    size_t left = agreement->num_own - first;
    size_t count = left < PAIRS_AT_ONCE ? left : PAIRS_AT_ONCE;
    jc_store_u32(talk->mine, PIECE);
    jc_store_u32(talk->mine + 4, (uint32_t) agreement->num_own);
    jc_store_u32(talk->mine + 8, (uint32_t) count);
    for (size_t i = 0; i < count; i++) {
        unsigned char *pair = talk->mine + PIECE_HEAD + i * PAIR_BYTES;
        memcpy(pair, &agreement->own[first + i].key, sizeof(struct jc_key));
        memcpy(pair + PAIR_BYTES / 2, &agreement->own[first + i].digest, sizeof(struct jc_key));
    }
}

// What the odd one goes by while it hears the usual one's list.
struct search {
    size_t at; // in its own list
    const struct jc_agreed *extra, *differing;
    bool lacks;
    struct jc_key lacking, usual_digest;
};

static void note_extra(struct talk *talk, struct search *search)
{
    const struct jc_agreed *own = &talk->agreement->own[search->at++];
    if (talk->finding.extra++ == 0)
        search->extra = own;
}

static void search_pair(struct talk *talk, struct search *search, const unsigned char *pair)
{
    const struct jc_agreement *agreement = talk->agreement;
    struct jc_key key, digest;
    memcpy(&key, pair, sizeof(key));
    memcpy(&digest, pair + PAIR_BYTES / 2, sizeof(digest));
    while (search->at < agreement->num_own
           && compare_keys(&agreement->own[search->at].key, &key) < 0)
        note_extra(talk, search);
    if (search->at == agreement->num_own || !same_key(&agreement->own[search->at].key, &key)) {
        if (talk->finding.lacking++ == 0)
            search->lacking = key;
        return;
    }
    const struct jc_agreed *own = &agreement->own[search->at++];
    if (same_key(&own->digest, &digest) || talk->finding.differing++ > 0)
        return;
    search->differing = own;
    search->usual_digest = digest;
}

static void conclude(struct talk *talk, struct search *search)
{
    struct finding *finding = &talk->finding;
    while (search->at < talk->agreement->num_own)
        note_extra(talk, search);
    const struct jc_agreed *own = search->extra ? search->extra : search->differing;
    if (search->extra) {
        finding->kind = EXTRA;
    } else if (finding->lacking > 0) {
        finding->kind = LACKING;
        finding->key = search->lacking;
        own = NULL;
    } else if (search->differing) {
        finding->kind = DIGESTS;
        finding->usual_digest = search->usual_digest;
    }
    talk->odd_text[0] = '\0';
    if (!own)
        return;
    finding->key = own->key;
    finding->odd_digest = own->digest;
    talk->agreement->describe(talk->agreement->user, own->index, talk->odd_text, TEXT_SIZE);
}

static enum jc_result hear_list(struct talk *talk)
{
    struct search search = {0};
    uint32_t total = 0, told = 0;
    do {
        const unsigned char *piece;
        if (is_mine(talk, talk->usual))
            write_piece(talk, told);
        enum jc_result result = hear(talk, talk->usual, &piece);
        if (result != JC_OK || talk->broken)
            return result;
        uint32_t count = jc_load_u32(piece + 8);
        bool first = told == 0;
        if (jc_load_u32(piece) != PIECE || count > PAIRS_AT_ONCE
            || (!first && jc_load_u32(piece + 4) != total))
            return refuse(talk, talk->usual);
        total = jc_load_u32(piece + 4);
        told += count;
        if (total > MAX_PAIRS || told > total || (count < PAIRS_AT_ONCE && told < total))
            return refuse(talk, talk->usual);
        for (uint32_t i = 0; i < count && is_mine(talk, talk->odd); i++)
            search_pair(talk, &search, piece + PIECE_HEAD + i * PAIR_BYTES);
    } while (told < total);
    if (is_mine(talk, talk->odd))
        conclude(talk, &search);
    return JC_OK;
}

// --- what was found ------------------------------------------------------------------------------

static void write_finding(struct talk *talk)
{
    const struct finding *finding = &talk->finding;
    unsigned char *to = talk->mine;
    jc_store_u32(to, FINDING);
    jc_store_u32(to + 4, finding->kind);
    jc_store_u32(to + 8, finding->extra);
    jc_store_u32(to + 12, finding->lacking);
    jc_store_u32(to + 16, finding->differing);
    memcpy(to + 20, &finding->key, sizeof(finding->key));
    memcpy(to + 36, &finding->odd_digest, sizeof(finding->odd_digest));
    memcpy(to + 52, &finding->usual_digest, sizeof(finding->usual_digest));
    put_text(to + FINDING_HEAD, talk->odd_text);
}

static enum jc_result hear_finding(struct talk *talk)
{
    struct finding *finding = &talk->finding;
    const unsigned char *from;
    if (is_mine(talk, talk->odd))
        write_finding(talk);
    enum jc_result result = hear(talk, talk->odd, &from);
    if (result != JC_OK || talk->broken)
        return result;
    if (jc_load_u32(from) != FINDING || jc_load_u32(from + 4) > DIGESTS
        || !get_text(from + FINDING_HEAD, talk->odd_text))
        return refuse(talk, talk->odd);
    finding->kind = (enum kind) jc_load_u32(from + 4);
    finding->extra = jc_load_u32(from + 8);
    finding->lacking = jc_load_u32(from + 12);
    finding->differing = jc_load_u32(from + 16);
    memcpy(&finding->key, from + 20, sizeof(finding->key));
    memcpy(&finding->odd_digest, from + 36, sizeof(finding->odd_digest));
    memcpy(&finding->usual_digest, from + 52, sizeof(finding->usual_digest));
    return JC_OK;
}

// Describes what this rank has that is nearest to what `text` describes, or nothing.
static void describe_nearest(const struct talk *talk, const char *text, char *nearest)
{
    const struct jc_agreement *agreement = talk->agreement;
    unsigned least = UINT_MAX;
    nearest[0] = '\0';
    for (size_t i = 0; i < agreement->num_own && least > 0; i++) {
        agreement->describe(agreement->user, agreement->own[i].index, talk->scratch, TEXT_SIZE);
        unsigned distance = jc_contrast_distance(text, talk->scratch);
        if (distance >= least)
            continue;
        least = distance;
        strcpy(nearest, talk->scratch);
    }
}

static void describe_key(const struct talk *talk, const struct jc_key *key, char *text)
{
    const struct jc_agreement *agreement = talk->agreement;
    text[0] = '\0';
    for (size_t i = 0; i < agreement->num_own; i++)
        if (same_key(&agreement->own[i].key, key))
            agreement->describe(agreement->user, agreement->own[i].index, text, TEXT_SIZE);
}

// `text` is the speaker's own to begin with, and what it said to end with.
static enum jc_result hear_answer(struct talk *talk, unsigned speaker, char *text)
{
    const unsigned char *from;
    if (is_mine(talk, speaker)) {
        jc_store_u32(talk->mine, ANSWER);
        put_text(talk->mine + ANSWER_HEAD, text);
    }
    enum jc_result result = hear(talk, speaker, &from);
    if (result != JC_OK || talk->broken)
        return result;
    if (jc_load_u32(from) != ANSWER || !get_text(from + ANSWER_HEAD, text))
        return refuse(talk, speaker);
    return JC_OK;
}

static enum jc_result hear_answers(struct talk *talk)
{
    const struct finding *finding = &talk->finding;
    talk->usual_text[0] = '\0';
    if (is_mine(talk, talk->usual) && finding->kind == EXTRA)
        describe_nearest(talk, talk->odd_text, talk->usual_text);
    else if (is_mine(talk, talk->usual) && finding->kind == LACKING)
        describe_key(talk, &finding->key, talk->usual_text);
    enum jc_result result = hear_answer(talk, talk->usual, talk->usual_text);
    if (result != JC_OK || talk->broken || finding->kind != LACKING)
        return result;
    if (is_mine(talk, talk->odd))
        describe_nearest(talk, talk->usual_text, talk->odd_text);
    return hear_answer(talk, talk->odd, talk->odd_text);
}

// --- what is said --------------------------------------------------------------------------------

static bool has_usual(const void *user, unsigned rank)
{
    const struct talk *talk = user;
    return same_key(&talk->digests[rank], &talk->digests[talk->usual]);
}

static bool has_other(const void *user, unsigned rank)
{
    return !has_usual(user, rank);
}

static void tell_who(struct jc_buffer *out, const struct talk *talk, const char *one_has,
                     const char *several_have)
{
    const struct jc_exchange *exchange = talk->agreement->exchange;
    char usual[JC_RANKS_TEXT_SIZE], others[JC_RANKS_TEXT_SIZE];
    unsigned num_usual = jc_exchange_list(exchange, has_usual, talk, usual);
    unsigned num_others = jc_exchange_list(exchange, has_other, talk, others);
    jc_buffer_print(out, "%s %s than %s", others, num_others == 1 ? one_has : several_have,
                    num_usual > num_others ? "most ranks" : usual);
}

static void tell_plans(struct jc_buffer *out, const struct talk *talk)
{
    const struct finding *finding = &talk->finding;
    const struct jc_contrast_side odd = {talk->odd, talk->odd_text};
    const struct jc_contrast_side usual = {talk->usual, talk->usual_text};
    bool extra = finding->kind == EXTRA;
    tell_who(out, talk, "plans something else", "plan something else");
    jc_buffer_string(out, ": ");
    jc_contrast_tell(out, extra ? &odd : &usual, extra ? &usual : &odd);
    jc_buffer_print(out, ". In all rank %u has %u variant%s that rank %u does not have, and lacks"
                    " %u of those that it has", talk->odd, finding->extra,
                    finding->extra == 1 ? "" : "s", talk->usual, finding->lacking);
}

static void tell_digests(struct jc_buffer *out, const struct talk *talk)
{
    const struct finding *finding = &talk->finding;
    char odd[JC_KEY_STRING_SIZE], usual[JC_KEY_STRING_SIZE], key[JC_KEY_STRING_SIZE];
    jc_key_format(&finding->odd_digest, odd);
    jc_key_format(&finding->usual_digest, usual);
    jc_key_format(&finding->key, key);
    tell_who(out, talk, "has other machine code", "have other machine code");
    jc_buffer_string(out, ", under the same key, and could compute other numbers: of ");
    jc_contrast_name(out, talk->odd_text);
    jc_buffer_print(out, ", key %s, rank %u has code with digest %s, rank %u with %s (%u variant%s"
                    " in all). Have rank %u compile again, by `jitcache clear` with the"
                    " JITCACHE_DIR of that rank, or give all ranks one cache", key, talk->odd, odd,
                    talk->usual, usual, finding->differing, finding->differing == 1 ? "" : "s",
                    talk->odd);
}

static enum jc_result tell(const struct talk *talk)
{
    struct jc_buffer out = {0};
    if (talk->finding.kind == NOTHING)
        return refuse(talk, talk->odd);
    if (talk->finding.kind == DIGESTS)
        tell_digests(&out, talk);
    else
        tell_plans(&out, talk);
    enum jc_result result = out.failed ? jc_fail_memory(talk->error)
                                       : jc_fail(talk->error, JC_ERROR_MISMATCH, "%s", out.data);
    jc_buffer_finish(&out);
    return result;
}

// --- all of it -----------------------------------------------------------------------------------

static unsigned find_odd(const struct talk *talk)
{
    const struct jc_exchange *exchange = talk->agreement->exchange;
    unsigned odd = 0;
    while (exchange->lost[odd]
           || same_key(&talk->digests[odd], &talk->digests[talk->usual]))
        odd++;
    assert(odd < exchange->ranks);
    return odd;
}

static enum jc_result hold(struct talk *talk)
{
    talk->finding = (struct finding){0};
    talk->odd = find_odd(talk);
    enum jc_result result = hear_list(talk);
    if (result == JC_OK && !talk->broken)
        result = hear_finding(talk);
    if (result == JC_OK && !talk->broken)
        result = hear_answers(talk);
    return result == JC_OK && !talk->broken ? tell(talk) : result;
}

enum jc_result jc_agreement_explain(const struct jc_agreement *agreement,
                                    const struct jc_key *digests, struct jc_error *error)
{
    struct jc_exchange *exchange = agreement->exchange;
    struct talk talk = {.agreement = agreement, .digests = digests, .error = error};
    unsigned char *bytes =
        calloc(1, JC_EXCHANGE_BYTES * (1 + (size_t) exchange->ranks) + 3 * TEXT_SIZE);
    if (!bytes)
        return jc_fail_memory(error);
    talk.mine = bytes;
    talk.all = bytes + JC_EXCHANGE_BYTES;
    talk.odd_text = (char *) talk.all + JC_EXCHANGE_BYTES * exchange->ranks;
    talk.usual_text = talk.odd_text + TEXT_SIZE;
    talk.scratch = talk.usual_text + TEXT_SIZE;
    enum jc_result result;
    bool same;
    // Where one of the two that talked is lost, those that are left begin anew: they all know it.
    do {
        talk.usual = jc_agreement_majority(exchange, digests, &same);
        talk.broken = false;
        result = same ? JC_OK : hold(&talk);
    } while (result == JC_OK && talk.broken);
    free(bytes);
    return result;
}
