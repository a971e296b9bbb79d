// The operations of expressions, as the interpreter and the formulas of launches both compute them.

#ifndef JC_OPERATION_H
#define JC_OPERATION_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum jc_operation {
    JC_OP_NUMBER, // push the operand
    JC_OP_SLOT,   // push the value of the operand's slot
    JC_OP_NEGATE, JC_OP_NOT,
    JC_OP_ADD, JC_OP_SUBTRACT, JC_OP_MULTIPLY, JC_OP_DIVIDE, JC_OP_REMAINDER,
    JC_OP_LESS, JC_OP_LESS_EQUAL, JC_OP_GREATER, JC_OP_GREATER_EQUAL, JC_OP_EQUAL, JC_OP_NOT_EQUAL,
    JC_OP_AND, JC_OP_OR,
    JC_OP_MIN, JC_OP_MAX, JC_OP_ALIGN, JC_OP_CEILDIV, JC_OP_POW2CEIL,
};

static inline bool jc_op_is_unary(unsigned operation)
{
    return operation == JC_OP_NEGATE || operation == JC_OP_NOT || operation == JC_OP_POW2CEIL;
}

enum jc_fault {
    JC_FAULT_NONE = 0,
    JC_FAULT_TOO_LARGE,
    JC_FAULT_BY_ZERO,
    JC_FAULT_NOT_POSITIVE,
    JC_FAULT_NEGATIVE
};

// Each computes `*r`, or says why it cannot and leaves 0 there.

static inline unsigned jc_op_add(int64_t a, int64_t b, int64_t *r)
{
    bool over = __builtin_add_overflow(a, b, r);
    *r = over ? 0 : *r;
    return over ? JC_FAULT_TOO_LARGE : JC_FAULT_NONE;
}

static inline unsigned jc_op_subtract(int64_t a, int64_t b, int64_t *r)
{
    bool over = __builtin_sub_overflow(a, b, r);
    *r = over ? 0 : *r;
    return over ? JC_FAULT_TOO_LARGE : JC_FAULT_NONE;
}

static inline unsigned jc_op_multiply(int64_t a, int64_t b, int64_t *r)
{
    bool over = __builtin_mul_overflow(a, b, r);
    *r = over ? 0 : *r;
    return over ? JC_FAULT_TOO_LARGE : JC_FAULT_NONE;
}

static inline unsigned jc_op_divide(int64_t a, int64_t b, int64_t *r)
{
    *r = 0;
    if (b == 0)
        return JC_FAULT_BY_ZERO;
    if (b == -1)
        return jc_op_subtract(0, a, r);
    int64_t quotient = a / b;
    *r = quotient - (a % b != 0 && (a < 0) != (b < 0));
    return JC_FAULT_NONE;
}

static inline unsigned jc_op_remainder(int64_t a, int64_t b, int64_t *r)
{
    *r = 0;
    if (b == 0)
        return JC_FAULT_BY_ZERO;
    if (b == -1)
        return JC_FAULT_NONE;
    int64_t remainder = a % b;
    *r = remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
    return JC_FAULT_NONE;
}

static inline unsigned jc_op_ceildiv(int64_t a, int64_t b, int64_t *r)
{
    *r = 0;
    if (b <= 0)
        return JC_FAULT_NOT_POSITIVE;
    *r = a / b + (a % b > 0);
    return JC_FAULT_NONE;
}

static inline unsigned jc_op_align(int64_t a, int64_t b, int64_t *r)
{
    int64_t quotient;
    unsigned fault = jc_op_ceildiv(a, b, &quotient);
    *r = 0;
    return fault ? fault : jc_op_multiply(quotient, b, r);
}

static inline unsigned jc_op_pow2ceil(int64_t a, int64_t b, int64_t *r)
{
    (void) b;
    *r = 0;
    if (a < 0)
        return JC_FAULT_NEGATIVE;
    if (a > INT64_C(1) << 62)
        return JC_FAULT_TOO_LARGE;
    *r = a <= 1 ? 1 : INT64_C(1) << (64 - __builtin_clzll((unsigned long long) a - 1));
    return JC_FAULT_NONE;
}

static inline unsigned jc_op_negate(int64_t a, int64_t b, int64_t *r)
{
    (void) b;
    return jc_op_subtract(0, a, r);
}

#define JC_OP_NEVER_FAILS(name, value) \
    static inline unsigned name(int64_t a, int64_t b, int64_t *r) \
    { \
        (void) b; \
        *r = (value); \
        return JC_FAULT_NONE; \
    }
JC_OP_NEVER_FAILS(jc_op_not, !a)
JC_OP_NEVER_FAILS(jc_op_less, a < b)
JC_OP_NEVER_FAILS(jc_op_less_equal, a <= b)
JC_OP_NEVER_FAILS(jc_op_greater, a > b)
JC_OP_NEVER_FAILS(jc_op_greater_equal, a >= b)
JC_OP_NEVER_FAILS(jc_op_equal, a == b)
JC_OP_NEVER_FAILS(jc_op_not_equal, a != b)
JC_OP_NEVER_FAILS(jc_op_and, a && b)
JC_OP_NEVER_FAILS(jc_op_or, a || b)
JC_OP_NEVER_FAILS(jc_op_min, a < b ? a : b)
JC_OP_NEVER_FAILS(jc_op_max, a > b ? a : b)

// X(operation, function): what every switch below is made of.
#define JC_OPERATIONS(X) \
    X(JC_OP_NEGATE, jc_op_negate) X(JC_OP_NOT, jc_op_not) \
    X(JC_OP_ADD, jc_op_add) X(JC_OP_SUBTRACT, jc_op_subtract) X(JC_OP_MULTIPLY, jc_op_multiply) \
    X(JC_OP_DIVIDE, jc_op_divide) X(JC_OP_REMAINDER, jc_op_remainder) \
    X(JC_OP_LESS, jc_op_less) X(JC_OP_LESS_EQUAL, jc_op_less_equal) \
    X(JC_OP_GREATER, jc_op_greater) X(JC_OP_GREATER_EQUAL, jc_op_greater_equal) \
    X(JC_OP_EQUAL, jc_op_equal) X(JC_OP_NOT_EQUAL, jc_op_not_equal) \
    X(JC_OP_AND, jc_op_and) X(JC_OP_OR, jc_op_or) X(JC_OP_MIN, jc_op_min) X(JC_OP_MAX, jc_op_max) \
    X(JC_OP_ALIGN, jc_op_align) X(JC_OP_CEILDIV, jc_op_ceildiv) X(JC_OP_POW2CEIL, jc_op_pow2ceil)

static inline unsigned jc_op_apply(unsigned operation, int64_t a, int64_t b, int64_t *r)
{
    switch ((enum jc_operation) operation) {
#define CASE(name, function) case name: return function(a, b, r);
    JC_OPERATIONS(CASE)
#undef CASE
    case JC_OP_NUMBER:
    case JC_OP_SLOT:
        break;
    }
    assert(!"an operation");
    return JC_FAULT_NONE;
}

#endif
