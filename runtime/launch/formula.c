#include "formula.h"

#include <assert.h>
#include <string.h>

#include "runtime/template/template.h"

// What the expression's stack holds while it is folded: a number, or something computed by the
// steps so far. Of the latter the topmost alone is the formula's top; those below it were pushed.
struct entry {
    bool is_number;
    bool is_plain; // a slot that no step has touched, and that no step computes yet
    uint8_t begin; // of what is computed: the first of its steps, which are the last ones
    int64_t operand; // the number or the slot
};

struct folding {
    struct jc_formula *formula;
    struct jc_step *steps;
    struct entry stack[JC_EXPRESSION_MAX_STACK];
    unsigned size;
    unsigned computed; // entries of the stack that steps have computed
    bool failed;
};

static bool is_computed(const struct entry *entry)
{
    return !entry->is_number && !entry->is_plain;
}

static bool is_number(const struct entry *entry, int64_t number)
{
    return entry->is_number && entry->operand == number;
}

static int log2_of(int64_t number)
{
    return number > 0 && (number & (number - 1)) == 0 ? __builtin_ctzll((uint64_t) number) : -1;
}

static void add_step(struct folding *folding, unsigned operation, enum jc_operand from,
                     bool reversed, int64_t operand)
{
    struct jc_formula *formula = folding->formula;
    if (formula->num_steps == JC_FORMULA_STEPS) {
        folding->failed = true;
        return;
    }
    folding->steps[formula->num_steps++] = (struct jc_step){
        .operation = (uint8_t) operation, .operand_from = (uint8_t) from, .reversed = reversed,
        .operand = operand};
}

// Makes an operand the top of the formula's own stack.
static void compute(struct folding *folding, struct entry *entry)
{
    if (is_computed(entry))
        return;
    struct jc_formula *formula = folding->formula;
    uint8_t begin = formula->num_steps;
    if (folding->computed == 0 && formula->num_steps == 0) {
        formula->kind = entry->is_number ? JC_FORMULA_NUMBER : JC_FORMULA_SLOT;
        formula->start = entry->operand;
    } else if (folding->computed > JC_FORMULA_DEPTH) {
        folding->failed = true;
    } else {
        add_step(folding, JC_STEP_PUSH,
                 entry->is_number ? JC_OPERAND_NUMBER : JC_OPERAND_SLOT, false, entry->operand);
    }
    folding->computed++;
    *entry = (struct entry){.begin = begin};
}

// Forgets the steps of an operand that turns out not to matter. It is the last that was computed.
static void take_back(struct folding *folding, const struct entry *entry)
{
    if (!is_computed(entry))
        return;
    folding->formula->num_steps = entry->begin;
    folding->computed--;
}

// With a power of two, four operations are cheaper.
static bool add_power_step(struct folding *folding, unsigned operation, int64_t operand)
{
    int log2 = log2_of(operand);
    if (log2 < 0)
        return false;
    switch (operation) {
    case JC_OP_DIVIDE:
        add_step(folding, JC_STEP_SHIFT_DOWN, JC_OPERAND_NUMBER, false, log2);
        return true;
    case JC_OP_CEILDIV:
        add_step(folding, JC_STEP_SHIFT_UP, JC_OPERAND_NUMBER, false, log2);
        return true;
    case JC_OP_ALIGN:
        add_step(folding, JC_STEP_ROUND_UP, JC_OPERAND_NUMBER, false, log2);
        return true;
    case JC_OP_REMAINDER:
        add_step(folding, JC_STEP_MASK, JC_OPERAND_NUMBER, false, operand - 1);
        return true;
    default:
        return false;
    }
}

// Two factors are one, where that hides no overflow: both positive, and their product fits.
static bool merge_factor(struct folding *folding, int64_t factor)
{
    struct jc_formula *formula = folding->formula;
    if (formula->num_steps == 0 || factor <= 0)
        return false;
    struct jc_step *last = &folding->steps[formula->num_steps - 1];
    int64_t product;
    if (last->operation != JC_OP_MULTIPLY || last->operand_from != JC_OPERAND_NUMBER ||
        last->operand <= 0 || __builtin_mul_overflow(last->operand, factor, &product))
        return false;
    last->operand = product;
    return true;
}

static void add_number_step(struct folding *folding, unsigned operation, bool reversed,
                            int64_t operand)
{
    bool commutes = operation == JC_OP_MULTIPLY;
    if (operation == JC_OP_MULTIPLY && merge_factor(folding, operand))
        return;
    if (!reversed && add_power_step(folding, operation, operand))
        return;
    add_step(folding, operation, JC_OPERAND_NUMBER, reversed && !commutes, operand);
}

static void fold_unary(struct folding *folding, unsigned operation)
{
    struct entry *a = &folding->stack[folding->size - 1];
    if (a->is_number) {
        folding->failed |= jc_op_apply(operation, a->operand, 0, &a->operand) != JC_FAULT_NONE;
        return;
    }
    compute(folding, a);
    add_step(folding, operation, JC_OPERAND_NUMBER, false, 0);
}

// Whether the left side of an && or || decides it, whatever the right one is.
static bool is_decided(unsigned operation, const struct entry *a)
{
    return a->is_number && ((operation == JC_OP_AND && !a->operand) ||
                            (operation == JC_OP_OR && a->operand));
}

// The right side was the last to be computed, so it is on top, and the left one below it.
static void fold_computed(struct folding *folding, unsigned operation, struct entry *a,
                          const struct entry *b)
{
    bool left = is_computed(a), right = is_computed(b);
    if (left && right) {
        add_step(folding, operation, JC_OPERAND_STACK, true, 0);
        folding->computed--;
    } else if (left && b->is_number) {
        add_number_step(folding, operation, false, b->operand);
    } else if (left) {
        add_step(folding, operation, JC_OPERAND_SLOT, false, b->operand);
    } else if (a->is_number) {
        add_number_step(folding, operation, true, a->operand);
    } else {
        add_step(folding, operation, JC_OPERAND_SLOT, true, a->operand);
    }
    *a = (struct entry){.begin = left ? a->begin : b->begin};
}

// Whether an operand on the right leaves what is on the left as it is.
static bool is_neutral(unsigned operation, const struct entry *operand)
{
    switch (operation) {
    case JC_OP_ADD:
    case JC_OP_SUBTRACT:
        return is_number(operand, 0);
    case JC_OP_MULTIPLY:
    case JC_OP_DIVIDE:
    case JC_OP_CEILDIV:
    case JC_OP_ALIGN:
        return is_number(operand, 1);
    default:
        return false;
    }
}

static bool step_may_fail(const struct jc_step *step)
{
    switch (step->operation) {
    case JC_OP_NEGATE:
    case JC_OP_ADD:
    case JC_OP_SUBTRACT:
    case JC_OP_MULTIPLY:
    case JC_OP_ALIGN:
    case JC_OP_POW2CEIL:
    case JC_STEP_ROUND_UP:
        return true;
    case JC_OP_DIVIDE:
    case JC_OP_CEILDIV:
    case JC_OP_REMAINDER:
        return step->operand_from != JC_OPERAND_NUMBER || step->reversed || step->operand <= 0;
    default:
        return false;
    }
}

// Whether 0 times this is 0: what fails is not.
static bool vanishes(const struct folding *folding, const struct entry *entry)
{
    for (size_t i = entry->begin; is_computed(entry) && i < folding->formula->num_steps; i++)
        if (step_may_fail(&folding->steps[i]))
            return false;
    return true;
}

// A parameter that is 0 or 1 chooses between terms: (T == 1) * a + (T > 1) * b costs what a does,
// or b.
static bool fold_away(struct folding *folding, unsigned operation, struct entry *a,
                      const struct entry *b)
{
    bool commutes = operation == JC_OP_ADD || operation == JC_OP_MULTIPLY;
    const struct entry *other = is_number(a, 0) ? b : a;
    if (is_neutral(operation, b))
        return true;
    if (commutes && is_neutral(operation, a)) {
        *a = *b;
        return true;
    }
    if (operation != JC_OP_MULTIPLY || !(is_number(a, 0) || is_number(b, 0)) ||
        !vanishes(folding, other))
        return false;
    take_back(folding, other);
    *a = (struct entry){.is_number = true};
    return true;
}

static void fold_binary(struct folding *folding, unsigned operation)
{
    struct entry *a = &folding->stack[folding->size - 2], *b = a + 1;
    folding->size--;
    if (a->is_number && b->is_number) {
        folding->failed |=
            jc_op_apply(operation, a->operand, b->operand, &a->operand) != JC_FAULT_NONE;
        return;
    }
    if (is_decided(operation, a)) {
        take_back(folding, b);
        a->operand = operation == JC_OP_OR;
        return;
    }
    if (fold_away(folding, operation, a, b))
        return;
    if (a->is_plain && !is_computed(b))
        compute(folding, a);
    else if (a->is_number && b->is_plain)
        compute(folding, b);
    fold_computed(folding, operation, a, b);
}

static void fold(struct folding *folding, const struct jc_expression *expression,
                 const struct jc_known *known)
{
    for (size_t i = 0; i < expression->num_code && !folding->failed; i++) {
        const struct jc_instruction *at = &expression->code[i];
        struct entry *next = &folding->stack[folding->size];
        if (at->operation == JC_OP_NUMBER) {
            *next = (struct entry){.is_number = true, .operand = at->operand};
            folding->size++;
        } else if (at->operation == JC_OP_SLOT) {
            bool is_known = known->is_known[at->operand];
            *next = (struct entry){.is_number = is_known, .is_plain = !is_known,
                                   .operand = is_known ? known->numbers[at->operand] : at->operand};
            folding->size++;
        } else if (jc_op_is_unary(at->operation)) {
            fold_unary(folding, at->operation);
        } else {
            fold_binary(folding, at->operation);
        }
    }
    if (!folding->failed)
        compute(folding, &folding->stack[0]);
}

static bool is_rounding(const struct jc_formula *formula)
{
    return formula->num_steps == 1 && formula->first[0].operation >= JC_STEP_SHIFT_DOWN &&
           formula->first[0].operation <= JC_STEP_ROUND_UP;
}

void jc_formula_init(struct jc_formula *formula, struct jc_formula_source *source,
                     const struct jc_expression *expression, const struct jc_known *known)
{
    *source = (struct jc_formula_source){.expression = expression, .known = known};
    *formula = (struct jc_formula){.source = source, .steps = source->steps};
    struct folding folding = {.formula = formula, .steps = source->steps};
    fold(&folding, expression, known);
    if (formula->num_steps <= JC_FORMULA_INLINE) {
        memcpy(formula->first, source->steps, sizeof(formula->first));
        formula->steps = formula->first;
    }
    if (folding.failed)
        formula->kind = JC_FORMULA_INTERPRETED;
    else if (formula->num_steps > 0)
        formula->kind = is_rounding(formula) ? JC_FORMULA_ROUND : JC_FORMULA_STEPS_OF_SLOT;
}

static unsigned apply_step(const struct jc_step *step, int64_t a, int64_t b, int64_t *r)
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

static bool run_steps(const struct jc_formula *formula, const int64_t *slots, int64_t *value)
{
    int64_t top = slots[formula->start];
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
        fault |= step->reversed ? apply_step(step, operand, top, &top)
                                : apply_step(step, top, operand, &top);
    }
    *value = top;
    return fault == 0;
}

bool jc_formula_run(const struct jc_formula *formula, const int64_t *slots, int64_t *value)
{
    if (jc_formula_is_constant(formula, value))
        return true;
    return (formula->kind != JC_FORMULA_INTERPRETED && run_steps(formula, slots, value)) ||
           jc_formula_interpret(formula, slots, value, NULL) == JC_OK;
}

bool jc_formula_is_constant(const struct jc_formula *formula, int64_t *value)
{
    *value = formula->start;
    return formula->kind == JC_FORMULA_NUMBER;
}

enum jc_result jc_formula_interpret(const struct jc_formula *formula, const int64_t *slots,
                                    int64_t *value, struct jc_error *error)
{
    const struct jc_formula_source *source = formula->source;
    const struct jc_known *known = source->known;
    int64_t all[JC_MAX_EXPRESSION_SLOTS];
    assert(known->num_slots <= JC_MAX_EXPRESSION_SLOTS);
    for (size_t i = 0; i < source->expression->num_uses; i++) {
        unsigned slot = source->expression->uses[i];
        all[slot] = known->is_known[slot] ? known->numbers[slot] : slots[slot];
    }
    return jc_expression_eval(source->expression, all, value, error);
}
