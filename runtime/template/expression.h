// Integer expressions over the arguments and parameters of a template.
//
//   expression  or; or: and ('||' and)*; and: comparison ('&&' comparison)*
//   comparison  sum (('<' | '<=' | '>' | '>=' | '==' | '!=') sum)?
//   sum         product (('+' | '-') product)*; product: unary (('*' | '/' | '%') unary)*
//   unary       ('-' | '!') unary | primary
//   primary     number | name | '(' expression ')' | function '(' expression, ... ')'
//
// Functions: min and max of two or more, align(a, b) and ceildiv(a, b) for positive b, pow2ceil(a)
// for positive a. An enum parameter can be compared with one of its values: scale == ue8m0.
//
// Numbers are signed, of 64 bits. Division rounds down and the remainder has the divisor's sign, so
// that a == (a / b) * b + a % b. What overflows or divides by zero fails; the right side of && and
// || is not computed where the left side decides.

#ifndef JC_EXPRESSION_H
#define JC_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jitcache/result.h>

#include "arena.h"

enum jc_symbol_kind {
    JC_SYMBOL_NUMBER,
    JC_SYMBOL_ENUM,  // its number is the index of its value
    JC_SYMBOL_OPAQUE // has a name but no number, such as a pointer
};

// What a name in an expression means. Its index among the symbols is its slot.
struct jc_symbol {
    const char *name;
    enum jc_symbol_kind kind;
    const char *const *values; // of an enum
    size_t num_values;
    const char *what; // of an opaque one: "a pointer"
};

struct jc_instruction {
    uint8_t operation;
    uint16_t column; // where it stands in the text, from 1
    int64_t operand; // a number, or a slot
};

// A flat program for a stack of numbers.
struct jc_expression {
    const char *text;
    const struct jc_instruction *code;
    size_t num_code;
    unsigned depth; // of the stack
    const unsigned *uses; // the slots that it reads, each once
    size_t num_uses;
};

#define JC_EXPRESSION_MAX_LENGTH 4096
#define JC_EXPRESSION_MAX_DEPTH 32 // of parentheses, calls and signs
#define JC_EXPRESSION_MAX_STACK 64 // numbers at once

// Compiles `text` into the arena. The error text begins with the column.
// JC_ERROR_TEMPLATE, JC_ERROR_LIMIT, JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_expression_compile(struct jc_arena *arena, const char *text,
                                     const struct jc_symbol *symbols, size_t num_symbols,
                                     const struct jc_expression **expression,
                                     struct jc_error *error);

// Whether it is the same number for every call.
bool jc_expression_is_constant(const struct jc_expression *expression, int64_t *value);

// Computes one value. JC_ERROR_EXPRESSION: the text names the operation and what it was given.
enum jc_result jc_expression_eval(const struct jc_expression *expression, const int64_t *slots,
                                  int64_t *value, struct jc_error *error);

// Many points at once: the same program, run over columns.
#define JC_BLOCK 1024

// The values that a slot, or a result, takes at the points of a block.
struct jc_column {
    bool uniform; // the same everywhere, and only values[0] is set
    int64_t values[JC_BLOCK];
};

struct jc_block {
    struct jc_column numbers;
    bool any_fault;
    uint8_t faults[JC_BLOCK]; // 1 where the expression fails; valid if any_fault
};

// Computes `count` points. `slots[s]` is the column of slot s, needed for the slots that the
// expression uses. `stack` holds expression->depth blocks; the result is stack[0].
void jc_expression_eval_block(const struct jc_expression *expression,
                              const struct jc_column *const *slots, size_t count,
                              struct jc_block *stack);

#endif
