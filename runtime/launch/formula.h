// Formulas: expressions of which much is known already, made quick to compute.
//
// When a kernel is made its parameters and bound arguments are known, and once a variant is loaded
// the dispatched parameters are too. What is left of most expressions is one argument and a step or
// two with a constant: ceildiv(n, 256) is a shift. Steps work on one number, the top of a stack
// that is rarely deeper; no step knows more of faults than that there was one. An expression that
// fails, and one that is too long to be a formula, is computed as written, by jc_expression_eval.
//
// Between two launches the driver has the caches for itself, so what counts is how many lines of
// memory are touched: a formula of up to two steps is one line, the rest of it lies elsewhere.

#ifndef JC_FORMULA_H
#define JC_FORMULA_H

#include "cold.h"
#include "runtime/template/expression.h"
#include "runtime/template/operation.h"

// What is known, by slot; see template.h for what slots are. Must outlive the formulas.
struct jc_known {
    size_t num_slots;
    bool *is_known;
    int64_t *numbers;
};

// Where a step has its second operand from.
enum jc_operand { JC_OPERAND_NUMBER, JC_OPERAND_SLOT, JC_OPERAND_STACK };

// Operations of steps beside enum jc_operation, for a constant power of two: the operand is its
// logarithm, of JC_STEP_MASK the power less one.
enum {
    JC_STEP_PUSH = 64,  // put the operand on top
    JC_STEP_SHIFT_DOWN, // a / 2^k
    JC_STEP_SHIFT_UP,   // ceildiv(a, 2^k)
    JC_STEP_ROUND_UP,   // align(a, 2^k)
    JC_STEP_MASK        // a % 2^k
};

struct jc_step {
    uint8_t operation;
    uint8_t operand_from;
    bool reversed; // the second operand stands on the left
    int64_t operand; // a number or a slot
};

#define JC_FORMULA_STEPS 12
#define JC_FORMULA_INLINE 2
#define JC_FORMULA_DEPTH 4

// What a formula is made from, and its steps where there are many.
struct jc_formula_source {
    const struct jc_expression *expression;
    const struct jc_known *known;
    struct jc_step steps[JC_FORMULA_STEPS];
};

// How it is computed. The first two are what launches are made for.
enum jc_formula_kind {
    JC_FORMULA_ROUND,       // of a slot, one step of JC_STEP_SHIFT_DOWN to JC_STEP_ROUND_UP
    JC_FORMULA_SLOT,        // the value of a slot
    JC_FORMULA_STEPS_OF_SLOT,
    JC_FORMULA_NUMBER,      // the same for every call
    JC_FORMULA_INTERPRETED, // too long for steps, or something in it always fails
};

struct jc_formula {
    uint8_t kind; // enum jc_formula_kind
    uint8_t num_steps;
    uint8_t index; // the owner's
    uint32_t max;  // the owner's
    int64_t start; // the slot that it starts at, or the number
    const struct jc_step *steps; // `first`, or the source's
    struct jc_step first[JC_FORMULA_INLINE];
    const struct jc_formula_source *source;
};
_Static_assert(sizeof(struct jc_formula) == 64, "a formula is a line of the cache");

// Never fails: what cannot be folded is interpreted. Neither of the two may be moved afterwards.
void jc_formula_init(struct jc_formula *formula, struct jc_formula_source *source,
                     const struct jc_expression *expression, const struct jc_known *known);

// Whether it is the same number for every call.
bool jc_formula_is_constant(const struct jc_formula *formula, int64_t *value);

// Computes it as the expression is written. Slow, and right in every case: JC_ERROR_EXPRESSION with
// the words of jc_expression_eval. `slots` needs the values of the slots that are not known.
enum jc_result jc_formula_interpret(const struct jc_formula *formula, const int64_t *slots,
                                    int64_t *value, struct jc_error *error);

// Runs the steps of whatever kind, or answers false where the expression fails.
bool jc_formula_run(const struct jc_formula *formula, const int64_t *slots, int64_t *value);

// The one step that most grids and paddings are: a rounding to a power of two, without asking
// which.
static inline bool jc_step_round(const struct jc_step *step, int64_t number, int64_t *value)
{
    unsigned shift = (unsigned) step->operand;
    unsigned back = step->operation == JC_STEP_ROUND_UP ? shift : 0;
    int64_t rest = number & ((INT64_C(1) << shift) - 1);
    int64_t quotient = (number >> shift) + ((step->operation != JC_STEP_SHIFT_DOWN) & (rest != 0));
    *value = (int64_t) ((uint64_t) quotient << back);
    return *value >> back == quotient;
}

// Computes it, or answers false where it fails: jc_formula_interpret then says how.
static inline bool jc_formula_eval(const struct jc_formula *formula, const int64_t *slots,
                                   int64_t *value)
{
    if (__builtin_expect(formula->kind == JC_FORMULA_ROUND, true) &&
        jc_step_round(&formula->first[0], slots[formula->start], value))
        return true;
    if (__builtin_expect(formula->kind == JC_FORMULA_SLOT, true)) {
        *value = slots[formula->start];
        return true;
    }
    return jc_formula_run(formula, slots, value);
}

#endif
