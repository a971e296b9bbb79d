// The scheme of a kernel: how its calls are read.
//
// Made once with the kernel, from the template, the caller's parameters and the bound arguments. A
// call is read in three steps: the arguments that anything depends on are loaded, derived arguments
// and dispatched parameters are computed, and the facts that hold become bits. Those bits, with the
// cases that dispatch chose and the values that are told apart, are the words of the call: what its
// variant is looked up by.
//
//   words   facts, one bit each, those with a divisor that is no power of two behind the others
//           then the chosen case of each dispatched parameter, 6 bits, none across two words
//           then a word for each argument with a value facet

#ifndef JC_SCHEME_H
#define JC_SCHEME_H

#include <string.h>

#include "formula.h"
#include "runtime/plan/specialization.h"

#define JC_MAX_WORDS 320

// How a value is loaded. A pointer is read as a number.
enum jc_width { JC_I8, JC_U8, JC_I16, JC_U16, JC_U32, JC_U64, JC_I32, JC_I64 };

struct jc_read {
    uint8_t width;    // enum jc_width
    uint8_t position; // in args
    uint16_t slot;
};

enum jc_computation_kind {
    JC_DERIVE,        // an argument of 64 bits
    JC_DERIVE_NARROW, // another, which the value has to fit
    JC_DISPATCH,      // a parameter: the first case whose condition holds
    JC_DISPATCH_COUNTED // all conditions are `slot <= limit`, of one slot and with growing limits
};

struct jc_computation {
    uint8_t kind;
    uint8_t index; // of the formula, or of the rule
    uint16_t slot; // what is computed
};

// Holds where ((value ^ equals) << shift) == 0: for a power of two 2^k the shift is 64 - k, for
// the values 1 and 0 it is 0.
struct jc_fact {
    uint16_t slot;
    uint8_t shift, equals;
};

// What a call is read by, in this order: reads, computations, facts. They lie side by side, since a
// launch finds the caches cold; see formula.h.
union jc_op {
    struct jc_read read;
    struct jc_computation computation;
    struct jc_fact fact;
};
_Static_assert(sizeof(union jc_op) == 4, "16 of them are a line of the cache");

// A fact whose divisor is no power of two.
struct jc_divided_fact {
    uint16_t slot, bit;
    int64_t divisor;
};

// Whose fact a bit of the words is.
struct jc_fact_bit {
    uint8_t argument, facet; // the facet's index among the argument's
    uint16_t bit;
};

// How dispatch chooses a parameter. Of each case: its value, as expressions see it, and the first
// case with the same value, which stands for both.
struct jc_rule {
    const int64_t *limits;     // counted: of each case but the last
    const struct jc_formula *conditions; // else
    const int64_t *numbers;
    const uint8_t *indices;
    uint16_t counted_slot;
    uint16_t word;
    uint8_t shift; // where the case chosen stands in the word
    uint8_t num_cases;
};

struct jc_bounds {
    int64_t min, max;
};

// What every launch reads of it comes first.
struct jc_scheme {
    const union jc_op *ops;
    const struct jc_formula *formulas; // of derived arguments
    const struct jc_rule *rules;
    uint16_t num_passed, num_reads, num_computed, num_facts, num_words;
    bool rearranges; // args alone are not the kernel's parameters
    bool is_unusual; // several words, values, or divisors that are no powers of two

    const uint8_t *passed;   // the argument at each position of args
    const uint8_t *derived;  // arguments that are computed for each call
    const uint8_t *constant; // arguments whose storage is in `bound`
    const void **bound;      // the storage of arguments that are not passed and not computed
    size_t num_derived, num_constant;
    const struct jc_bounds *bounds; // of derived arguments
    const struct jc_divided_fact *divided;
    const uint16_t *valued; // slots of arguments with a value facet that is active
    size_t num_divided, num_valued, first_value; // and the word in which values begin

    struct jc_arena arena;
    const struct jc_template *tmpl;
    const char **parameters; // canonical; NULL where dispatched
    struct jc_known known;   // parameters and bound arguments, and what follows from them
    // The bits of facts of both kinds, in the order of arguments and of their facets, and where
    // those of each argument begin.
    const struct jc_fact_bit *bits;
    size_t num_bits;
    uint16_t *first_bit;
    bool derived_follow_dispatch; // some derived argument follows from a dispatched parameter
};

// What the caller binds: for each argument its storage or NULL, to be copied; and the value of each
// parameter, NULL where dispatch chooses it. JC_ERROR_EXPRESSION: a derived argument that follows
// from bound ones alone does not fit its type, or a bound u64 is no signed number.
// JC_ERROR_LIMIT: over JC_MAX_WORDS. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_scheme_init(struct jc_scheme *scheme, const struct jc_template *tmpl,
                              const char *const *parameters, const void *const *bound,
                              struct jc_error *error);
void jc_scheme_finish(struct jc_scheme *scheme);

// Of a parameter, the first case with a value; num_dispatch where none has it.
unsigned jc_scheme_first_case(const struct jc_parameter *parameter, const char *value);

// Says that a derived argument's value does not fit its type.
enum jc_result jc_scheme_refuse_width(const struct jc_scheme *scheme, size_t index, int64_t value,
                                      struct jc_error *error);

// What a call comes to. Only what the scheme names is set.
struct jc_call {
    uint64_t word; // of a usual scheme the only one, close to the slots that it is made from
    int64_t slots[JC_MAX_EXPRESSION_SLOTS];
    uint64_t words[JC_MAX_WORDS]; // of another
};

static inline const uint64_t *jc_call_words(const struct jc_scheme *scheme,
                                            const struct jc_call *call)
{
    return scheme->is_unusual ? call->words : &call->word;
}

// What a call passed: a value for each read, in their order.
static inline void jc_scheme_values(const struct jc_scheme *scheme, const struct jc_call *call,
                                    int64_t *values)
{
    for (unsigned i = 0; i < scheme->num_reads; i++)
        values[i] = call->slots[scheme->ops[i].read.slot];
}

// Says why a call cannot be read. Slow.
JC_COLD
enum jc_result jc_scheme_refuse(const struct jc_scheme *scheme, void *const *args,
                                struct jc_error *error);

// The specialization that a call with these words wants. `parameters` and `facets` are arrays of
// the template's sizes, to be filled in.
void jc_scheme_specialize(const struct jc_scheme *scheme, const uint64_t *words,
                          const char **parameters, struct jc_facet *facets);

// The other way round: the words of the calls that want a specialization. False where none does,
// as with fallback parameters that dispatch never chooses; its facts are right then too.
bool jc_scheme_words(const struct jc_scheme *scheme, const struct jc_specialization *of,
                     uint64_t *words);

// Whether a call has a pointer that is less aligned than its facet says, and the template does not
// expect that.
bool jc_scheme_is_unaligned(const struct jc_scheme *scheme, const uint64_t *words);

// Sets the dispatched parameters to those of `of` and computes what follows from them.
JC_COLD
bool jc_scheme_redispatch(const struct jc_scheme *scheme, const struct jc_specialization *of,
                          struct jc_call *call);

// Loads a value of any width; false for a u64 that is no signed number.
bool jc_read_any(unsigned width, const void *from, int64_t *value);

static inline bool jc_read_value(unsigned width, const void *from, int64_t *value)
{
    if (__builtin_expect(width < JC_I32, false))
        return jc_read_any(width, from, value);
    // Of the two that nearly all are, without asking which.
    bool is_wide = width == JC_I64;
    int32_t low, high;
    memcpy(&low, from, sizeof(low));
    memcpy(&high, (const char *) from + 4 * is_wide, sizeof(high));
    int64_t wide = (int64_t) ((uint64_t) high << 32 | (uint32_t) low);
    *value = is_wide ? wide : low;
    return true;
}

// Chooses by conditions that are not counted; SIZE_MAX where one fails.
JC_COLD
size_t jc_rule_choose(const struct jc_rule *rule, const int64_t *slots);

static inline bool jc_scheme_dispatch(const struct jc_scheme *scheme,
                                      const struct jc_computation *computation, int64_t *slots,
                                      uint64_t *words)
{
    const struct jc_rule *rule = &scheme->rules[computation->index];
    size_t chosen = 0;
    if (__builtin_expect(computation->kind == JC_DISPATCH_COUNTED, true)) {
        // Which case it is changes from call to call, so no branch is to depend on it. The empty
        // statement keeps compilers from making much of a short loop.
        int64_t value = slots[rule->counted_slot];
        for (unsigned i = 0; i + 1 < rule->num_cases; i++) {
            chosen += value > rule->limits[i];
            __asm__("" : "+r"(chosen));
        }
    } else {
        chosen = jc_rule_choose(rule, slots);
        if (chosen == SIZE_MAX)
            return false;
    }
    slots[computation->slot] = rule->numbers[chosen];
    words[rule->word] |= (uint64_t) rule->indices[chosen] << rule->shift;
    return true;
}

static inline bool jc_scheme_derive(const struct jc_scheme *scheme,
                                    const struct jc_computation *computation, int64_t *slots)
{
    int64_t value;
    if (!jc_formula_eval(&scheme->formulas[computation->index], slots, &value))
        return false;
    slots[computation->slot] = value;
    if (computation->kind == JC_DERIVE)
        return true;
    const struct jc_bounds *bounds = &scheme->bounds[computation->index];
    return value >= bounds->min && value <= bounds->max;
}

// Derives an argument or dispatches a parameter. False: something fails or does not fit.
static inline bool jc_scheme_compute(const struct jc_scheme *scheme,
                                     const struct jc_computation *computation, int64_t *slots,
                                     uint64_t *words)
{
    return computation->kind >= JC_DISPATCH
        ? jc_scheme_dispatch(scheme, computation, slots, words)
        : jc_scheme_derive(scheme, computation, slots);
}

static inline bool jc_fact_holds(const struct jc_fact *fact, const int64_t *slots)
{
    return ((uint64_t) slots[fact->slot] ^ fact->equals) << fact->shift == 0;
}

// What follows the reads, of a call that has not just one word of facts and cases.
JC_COLD
bool jc_scheme_read_unusual(const struct jc_scheme *scheme, struct jc_call *call);

// Reads a call. False: see jc_scheme_refuse.
static inline bool jc_scheme_read(const struct jc_scheme *scheme, void *const *args,
                                  struct jc_call *call)
{
    bool complete = true;
    for (unsigned i = 0; i < scheme->num_passed; i++) {
        complete &= args[i] != NULL;
        __asm__("" : "+r"(complete)); // as above
    }
    if (__builtin_expect(!complete, false))
        return false;
    const union jc_op *op = scheme->ops;
    for (const union jc_op *end = op + scheme->num_reads; op < end; op++)
        if (__builtin_expect(!jc_read_value(op->read.width, args[op->read.position],
                                            &call->slots[op->read.slot]), false))
            return false;
    if (__builtin_expect(scheme->is_unusual, false))
        return jc_scheme_read_unusual(scheme, call);
    uint64_t word = 0;
    for (const union jc_op *end = op + scheme->num_computed; op < end; op++)
        if (__builtin_expect(!jc_scheme_compute(scheme, &op->computation, call->slots, &word),
                             false))
            return false;
    for (unsigned i = 0; i < scheme->num_facts; i++)
        word |= (uint64_t) jc_fact_holds(&op[i].fact, call->slots) << i;
    call->word = word;
    return true;
}

#endif
