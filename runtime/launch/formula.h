// Formulas: expressions of which much is known already, made quick to compute.
//
// When a kernel is made its parameters and bound arguments are known, and once a variant is loaded
// the dispatched parameters are too. What is left of most expressions is one argument and a step or
// two with a constant: ceildiv(n, 256) is a shift. Steps work on one number, the top of a stack
// that is rarely deeper; no step knows more of faults than that there was one. An expression that
// fails, and one that is too long to be a formula, is computed as written, by jc_expression_eval.

#ifndef JC_FORMULA_H
#define JC_FORMULA_H

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
#define JC_FORMULA_DEPTH 4

struct jc_formula {
    const struct jc_expression *expression;
    const struct jc_known *known;
    bool interpreted; // too long: no steps
    bool starts_at_slot;
    uint8_t num_steps;
    int64_t start; // a slot, or the number it starts with; without steps that is the value
    struct jc_step steps[JC_FORMULA_STEPS];
};

// Never fails: what cannot be folded is interpreted.
void jc_formula_init(struct jc_formula *formula, const struct jc_expression *expression,
                     const struct jc_known *known);

// Whether it is the same number for every call.
bool jc_formula_is_constant(const struct jc_formula *formula, int64_t *value);

// Computes it as the expression is written. Slow, and right in every case: JC_ERROR_EXPRESSION with
// the words of jc_expression_eval. `slots` needs the values of the slots that are not known.
enum jc_result jc_formula_interpret(const struct jc_formula *formula, const int64_t *slots,
                                    int64_t *value, struct jc_error *error);

static inline unsigned jc_step_apply(const struct jc_step *step, int64_t a, int64_t b, int64_t *r)
{
    switch (step->operation) {
#define CASE(name, function) case name: return function(a, b, r);
    JC_OPERATIONS(CASE)
#undef CASE
    case JC_STEP_SHIFT_DOWN:
        *r = a >> b;
        return JC_FAULT_NONE;
    case JC_STEP_SHIFT_UP:
        *r = (a >> b) + ((a & ((INT64_C(1) << b) - 1)) != 0);
        return JC_FAULT_NONE;
    case JC_STEP_ROUND_UP:
        return jc_op_multiply((a >> b) + ((a & ((INT64_C(1) << b) - 1)) != 0), INT64_C(1) << b, r);
    case JC_STEP_MASK:
        *r = a & b;
        return JC_FAULT_NONE;
    }
    return JC_FAULT_NONE;
}

// Runs the steps. False: it has to be interpreted.
static inline bool jc_formula_run(const struct jc_formula *formula, const int64_t *slots,
                                  int64_t *value)
{
    if (formula->interpreted)
        return false;
    int64_t top = formula->starts_at_slot ? slots[formula->start] : formula->start;
    int64_t below[JC_FORMULA_DEPTH];
    unsigned depth = 0, fault = 0;
    const struct jc_step *step = formula->steps, *end = step + formula->num_steps;
    for (; step < end; step++) {
        int64_t operand = step->operand;
        if (step->operand_from == JC_OPERAND_SLOT)
            operand = slots[operand];
        if (step->operation == JC_STEP_PUSH) {
            below[depth++] = top;
            top = operand;
            continue;
        }
        if (step->operand_from == JC_OPERAND_STACK)
            operand = below[--depth];
        fault |= step->reversed ? jc_step_apply(step, operand, top, &top)
                                : jc_step_apply(step, top, operand, &top);
    }
    *value = top;
    return fault == 0;
}

// Computes it, or answers false where it fails: jc_formula_interpret then says how.
static inline bool jc_formula_eval(const struct jc_formula *formula, const int64_t *slots,
                                   int64_t *value)
{
    if (__builtin_expect(jc_formula_run(formula, slots, value), true))
        return true;
    return jc_formula_interpret(formula, slots, value, NULL) == JC_OK;
}

#endif
