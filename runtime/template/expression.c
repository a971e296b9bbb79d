#include "expression.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cache/report.h"
#include "nearest.h"
#include "number.h"
#include "operation.h"

// --- operations ----------------------------------------------------------------------------------

// How a failed one is shown: its operands in its own notation.
static const char *const formats[] = {
    [JC_OP_NEGATE] = "-(%" PRId64 ")",
    [JC_OP_NOT] = "!%" PRId64,
    [JC_OP_ADD] = "%" PRId64 " + %" PRId64,
    [JC_OP_SUBTRACT] = "%" PRId64 " - %" PRId64,
    [JC_OP_MULTIPLY] = "%" PRId64 " * %" PRId64,
    [JC_OP_DIVIDE] = "%" PRId64 " / %" PRId64,
    [JC_OP_REMAINDER] = "%" PRId64 " %% %" PRId64,
    [JC_OP_ALIGN] = "align(%" PRId64 ", %" PRId64 ")",
    [JC_OP_CEILDIV] = "ceildiv(%" PRId64 ", %" PRId64 ")",
    [JC_OP_POW2CEIL] = "pow2ceil(%" PRId64 ")",
};

static const char *const fault_texts[] = {
    [JC_FAULT_TOO_LARGE] = "does not fit in 64 bits",
    [JC_FAULT_BY_ZERO] = "divides by zero",
    [JC_FAULT_NOT_POSITIVE] = "needs a positive second operand",
    [JC_FAULT_NEGATIVE] = "needs an operand that is not negative",
};

static void print_fault(unsigned operation, unsigned fault, int64_t a, int64_t b, char *text,
                        size_t size)
{
    int length = snprintf(text, size, formats[operation], a, b);
    if (length > 0 && (size_t) length < size)
        snprintf(text + length, size - (size_t) length, " %s", fault_texts[fault]);
}

// --- the compiler --------------------------------------------------------------------------------

enum token_kind {
    TOKEN_END, TOKEN_NUMBER, TOKEN_NAME, TOKEN_SIGN
};

struct token {
    enum token_kind kind;
    const char *text;
    size_t length;
    unsigned column;
    int64_t number;
    enum jc_operation operation; // of a sign that is a binary operation, else JC_OP_NUMBER
};

struct compiler {
    struct jc_arena *arena;
    const char *text, *next;
    const struct jc_symbol *symbols;
    size_t num_symbols;
    struct token token; // the one not yet taken
    struct jc_instruction *code;
    size_t num_code, capacity;
    unsigned *uses;
    size_t num_uses;
    unsigned stack, depth; // now, and at most
    unsigned nesting;
    struct jc_error *error;
};

static enum jc_result refuse(struct compiler *compiler, unsigned column, const char *format, ...)
    JC_FORMAT(3, 4);

static enum jc_result refuse(struct compiler *compiler, unsigned column, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    return jc_fail(compiler->error, JC_ERROR_TEMPLATE, "column %u of '%s': %s", column,
                   compiler->text, message);
}

static const struct {
    const char *text;
    enum jc_operation operation;
} signs[] = {
    {"<=", JC_OP_LESS_EQUAL}, {">=", JC_OP_GREATER_EQUAL}, {"==", JC_OP_EQUAL},
    {"!=", JC_OP_NOT_EQUAL}, {"&&", JC_OP_AND}, {"||", JC_OP_OR}, {"<", JC_OP_LESS},
    {">", JC_OP_GREATER}, {"+", JC_OP_ADD}, {"-", JC_OP_SUBTRACT}, {"*", JC_OP_MULTIPLY},
    {"/", JC_OP_DIVIDE}, {"%", JC_OP_REMAINDER}, {"!", JC_OP_NUMBER}, {"(", JC_OP_NUMBER},
    {")", JC_OP_NUMBER}, {",", JC_OP_NUMBER},
};

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}

static enum jc_result take_word(struct compiler *compiler, struct token *token)
{
    while (is_name(token->text[token->length]))
        token->length++;
    compiler->next += token->length;
    token->kind = TOKEN_NAME;
    if (*token->text < '0' || *token->text > '9')
        return JC_OK;
    token->kind = TOKEN_NUMBER;
    const char *wrong = jc_number_parse(token->text, token->length, &token->number);
    return wrong ? refuse(compiler, token->column, "%s", wrong) : JC_OK;
}

// Reads the next token into compiler->token.
static enum jc_result advance(struct compiler *compiler)
{
    while (*compiler->next == ' ')
        compiler->next++;
    const char *at = compiler->next;
    struct token *token = &compiler->token;
    *token = (struct token){.text = at, .column = (unsigned) (at - compiler->text) + 1};
    if (*at == '\0')
        return JC_OK;
    if (is_name(*at))
        return take_word(compiler, token);
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        token->length = strlen(signs[i].text);
        if (strncmp(at, signs[i].text, token->length) != 0)
            continue;
        token->kind = TOKEN_SIGN;
        token->operation = signs[i].operation;
        compiler->next += token->length;
        return JC_OK;
    }
    if (*at == '?' || *at == ':')
        return refuse(compiler, token->column,
                      "there is no ?:, multiply by a comparison or use dispatch");
    return refuse(compiler, token->column,
                  (unsigned char) *at < 0x80 && *at > ' '
                      ? "'%c' has no meaning here; write whole numbers, names, + - * / %%, "
                        "comparisons, && || ! and parentheses"
                      : "a character that has no meaning here", *at);
}

static bool at_sign(const struct compiler *compiler, const char *sign)
{
    const struct token *token = &compiler->token;
    return token->kind == TOKEN_SIGN && token->length == strlen(sign) &&
           memcmp(token->text, sign, token->length) == 0;
}

// The sign for what other languages spell out, or NULL.
static const char *spelled_out(const struct token *token)
{
    static const char *const words[][2] = {{"and", "&&"}, {"or", "||"}, {"not", "!"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (token->length == strlen(words[i][0]) &&
            memcmp(token->text, words[i][0], token->length) == 0)
            return words[i][1];
    return NULL;
}

static enum jc_result refuse_token(struct compiler *compiler, const char *expected)
{
    const struct token *token = &compiler->token;
    if (token->kind == TOKEN_END)
        return refuse(compiler, token->column, "the expression ends where %s is expected",
                      expected);
    const char *sign = spelled_out(token);
    if (sign)
        return refuse(compiler, token->column, "'%.*s' is written %s here", (int) token->length,
                      token->text, sign);
    return refuse(compiler, token->column, "'%.*s' where %s is expected", (int) token->length,
                  token->text, expected);
}

static enum jc_result expect_sign(struct compiler *compiler, const char *sign)
{
    char quoted[8];
    snprintf(quoted, sizeof(quoted), "'%s'", sign);
    return at_sign(compiler, sign) ? advance(compiler) : refuse_token(compiler, quoted);
}

static enum jc_result append(struct compiler *compiler, enum jc_operation operation,
                             unsigned column, int64_t operand)
{
    if (compiler->num_code == compiler->capacity) {
        size_t capacity = compiler->capacity ? 2 * compiler->capacity : 16;
        struct jc_instruction *code =
            jc_arena_alloc(compiler->arena, capacity, sizeof(*code));
        if (!code)
            return jc_fail_memory(compiler->error);
        if (compiler->num_code > 0)
            memcpy(code, compiler->code, compiler->num_code * sizeof(*code));
        compiler->code = code;
        compiler->capacity = capacity;
    }
    compiler->code[compiler->num_code++] = (struct jc_instruction){
        .operation = (uint8_t) operation, .column = (uint16_t) column, .operand = operand};
    return JC_OK;
}

static enum jc_result push(struct compiler *compiler, enum jc_operation operation, unsigned column,
                           int64_t operand)
{
    if (++compiler->stack > compiler->depth)
        compiler->depth = compiler->stack;
    if (compiler->depth > JC_EXPRESSION_MAX_STACK)
        return jc_fail(compiler->error, JC_ERROR_LIMIT,
                       "column %u: over %d intermediate values; split the expression up", column,
                       JC_EXPRESSION_MAX_STACK);
    return append(compiler, operation, column, operand);
}

// Appends an operation, or its result where the operands are numbers already.
static enum jc_result operate(struct compiler *compiler, enum jc_operation operation,
                              unsigned column)
{
    unsigned operands = jc_op_is_unary(operation) ? 1 : 2;
    compiler->stack -= operands - 1;
    const struct jc_instruction *last = compiler->code + compiler->num_code - operands;
    bool known = last[0].operation == JC_OP_NUMBER && last[operands - 1].operation == JC_OP_NUMBER;
    int64_t result = 0, a = last[0].operand, b = last[operands - 1].operand;
    if (!known) {
        // A divisor that is wrong is so for every number on the left.
        bool right = operands == 2 && last[1].operation == JC_OP_NUMBER;
        unsigned fault = right ? jc_op_apply(operation, 0, b, &result) : JC_FAULT_NONE;
        if (fault && fault != JC_FAULT_TOO_LARGE)
            return refuse(compiler, column, "%s", fault_texts[fault]);
        return append(compiler, operation, column, 0);
    }
    unsigned fault = jc_op_apply(operation, a, b, &result);
    if (fault) {
        char message[128];
        print_fault(operation, fault, a, b, message, sizeof(message));
        return refuse(compiler, column, "%s", message);
    }
    compiler->num_code -= operands;
    return append(compiler, JC_OP_NUMBER, column, result);
}

static const struct jc_symbol *find_symbol(const struct compiler *compiler,
                                           const struct token *name)
{
    for (size_t i = 0; i < compiler->num_symbols; i++)
        if (strlen(compiler->symbols[i].name) == name->length &&
            memcmp(compiler->symbols[i].name, name->text, name->length) == 0)
            return &compiler->symbols[i];
    return NULL;
}

static enum jc_result use_slot(struct compiler *compiler, const struct jc_symbol *symbol,
                               unsigned column)
{
    unsigned slot = (unsigned) (symbol - compiler->symbols);
    size_t i = 0;
    while (i < compiler->num_uses && compiler->uses[i] != slot)
        i++;
    if (i == compiler->num_uses)
        compiler->uses[compiler->num_uses++] = slot;
    return push(compiler, JC_OP_SLOT, column, slot);
}

static const struct function {
    const char *name;
    enum jc_operation operation;
    unsigned min_operands, max_operands;
} functions[] = {
    {"min", JC_OP_MIN, 2, 16}, {"max", JC_OP_MAX, 2, 16}, {"align", JC_OP_ALIGN, 2, 2},
    {"ceildiv", JC_OP_CEILDIV, 2, 2}, {"pow2ceil", JC_OP_POW2CEIL, 1, 1},
};

static enum jc_result refuse_name(struct compiler *compiler, const struct token *token)
{
    const char *sign = spelled_out(token);
    if (sign)
        return refuse(compiler, token->column, "'%.*s' is written %s here", (int) token->length,
                      token->text, sign);
    char name[64], question[JC_NEAREST_SIZE];
    snprintf(name, sizeof(name), "%.*s", token->length < 63 ? (int) token->length : 63,
             token->text);
    struct jc_nearest nearest = {.word = name};
    for (size_t i = 0; i < compiler->num_symbols; i++)
        jc_nearest_offer(&nearest, compiler->symbols[i].name);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        jc_nearest_offer(&nearest, functions[i].name);
    const char *asked = jc_nearest_question(&nearest, question);
    return refuse(compiler, token->column,
                  "unknown name '%s'%s", name,
                  *asked ? asked : "; name an argument or a parameter of this template");
}

static enum jc_result compile_or(struct compiler *compiler);

static enum jc_result compile_call(struct compiler *compiler, const struct token *name)
{
    const struct function *function = functions, *end = functions + 5;
    while (function < end && (strlen(function->name) != name->length ||
                              memcmp(function->name, name->text, name->length) != 0))
        function++;
    if (function == end)
        return refuse_name(compiler, name);
    enum jc_result result = advance(compiler);
    unsigned count = 0;
    while (result == JC_OK) {
        result = compile_or(compiler);
        if (result == JC_OK && ++count > 1)
            result = operate(compiler, function->operation, name->column);
        if (result || count == function->max_operands || !at_sign(compiler, ","))
            break;
        result = advance(compiler);
    }
    if (result)
        return result;
    if (count < function->min_operands || at_sign(compiler, ","))
        return refuse(compiler, name->column, "%s takes %s%u operand%s", function->name,
                      function->max_operands > function->min_operands ? "at least " : "",
                      function->min_operands, function->min_operands == 1 ? "" : "s");
    if (function->max_operands == 1)
        result = operate(compiler, function->operation, name->column);
    return result ? result : expect_sign(compiler, ")");
}

static enum jc_result compile_name(struct compiler *compiler)
{
    struct token name = compiler->token;
    enum jc_result result = advance(compiler);
    if (result)
        return result;
    if (at_sign(compiler, "("))
        return compile_call(compiler, &name);
    const struct jc_symbol *symbol = find_symbol(compiler, &name);
    if (!symbol)
        return refuse_name(compiler, &name);
    switch (symbol->kind) {
    case JC_SYMBOL_NUMBER:
        return use_slot(compiler, symbol, name.column);
    case JC_SYMBOL_ENUM:
        return refuse(compiler, name.column,
                      "'%s' is an enum: compare it with one of its values, with the enum on the "
                      "left of == or !=", symbol->name);
    case JC_SYMBOL_OPAQUE:
        break;
    }
    return refuse(compiler, name.column,
                  "'%s' is %s and has no whole number; use integers, bools, enums", symbol->name,
                  symbol->what);
}

static enum jc_result compile_primary(struct compiler *compiler)
{
    const struct token token = compiler->token;
    enum jc_result result;
    if (token.kind == TOKEN_NUMBER) {
        result = push(compiler, JC_OP_NUMBER, token.column, token.number);
        return result ? result : advance(compiler);
    }
    if (token.kind == TOKEN_NAME)
        return compile_name(compiler);
    if (!at_sign(compiler, "("))
        return refuse_token(compiler, "a number, a name or '('");
    result = advance(compiler);
    if (result == JC_OK)
        result = compile_or(compiler);
    return result ? result : expect_sign(compiler, ")");
}

static enum jc_result compile_unary(struct compiler *compiler)
{
    unsigned column = compiler->token.column;
    bool negate = at_sign(compiler, "-"), invert = at_sign(compiler, "!");
    if (++compiler->nesting > JC_EXPRESSION_MAX_DEPTH)
        return jc_fail(compiler->error, JC_ERROR_LIMIT,
                       "column %u: nested deeper than %d levels; split the expression up", column,
                       JC_EXPRESSION_MAX_DEPTH);
    enum jc_result result;
    if (negate || invert) {
        result = advance(compiler);
        if (result == JC_OK)
            result = compile_unary(compiler);
        if (result == JC_OK)
            result = operate(compiler, negate ? JC_OP_NEGATE : JC_OP_NOT, column);
    } else {
        result = compile_primary(compiler);
    }
    compiler->nesting--;
    return result;
}

// The binary operations from `first` to `last` group from the left.
static enum jc_result compile_left(struct compiler *compiler, enum jc_operation first,
                                   enum jc_operation last,
                                   enum jc_result (*compile_operand)(struct compiler *compiler))
{
    enum jc_result result = compile_operand(compiler);
    while (result == JC_OK && compiler->token.kind == TOKEN_SIGN &&
           compiler->token.operation >= first && compiler->token.operation <= last) {
        struct token sign = compiler->token;
        result = advance(compiler);
        if (result == JC_OK)
            result = compile_operand(compiler);
        if (result == JC_OK)
            result = operate(compiler, sign.operation, sign.column);
    }
    return result;
}

static enum jc_result compile_product(struct compiler *compiler)
{
    return compile_left(compiler, JC_OP_MULTIPLY, JC_OP_REMAINDER, compile_unary);
}

static enum jc_result compile_sum(struct compiler *compiler)
{
    return compile_left(compiler, JC_OP_ADD, JC_OP_SUBTRACT, compile_product);
}

// `scale == ue8m0`, the enum not yet taken.
static enum jc_result compile_enum(struct compiler *compiler, const struct jc_symbol *symbol)
{
    unsigned column = compiler->token.column;
    enum jc_result result = advance(compiler);
    if (result)
        return result;
    struct token sign = compiler->token;
    if (sign.operation != JC_OP_EQUAL && sign.operation != JC_OP_NOT_EQUAL)
        return refuse(compiler, column, "'%s' is an enum: write %s == %s", symbol->name,
                      symbol->name, symbol->num_values ? symbol->values[0] : "VALUE");
    result = advance(compiler);
    if (result)
        return result;
    const struct token *word = &compiler->token;
    for (size_t i = 0; i < symbol->num_values; i++) {
        if (strlen(symbol->values[i]) != word->length ||
            memcmp(symbol->values[i], word->text, word->length) != 0)
            continue;
        result = use_slot(compiler, symbol, column);
        if (result == JC_OK)
            result = push(compiler, JC_OP_NUMBER, word->column, (int64_t) i);
        if (result == JC_OK)
            result = operate(compiler, sign.operation, sign.column);
        return result ? result : advance(compiler);
    }
    return refuse(compiler, word->column, "'%.*s' is not a value of '%s'", (int) word->length,
                  word->text, symbol->name);
}

static enum jc_result compile_comparison(struct compiler *compiler)
{
    const struct jc_symbol *symbol =
        compiler->token.kind == TOKEN_NAME ? find_symbol(compiler, &compiler->token) : NULL;
    if (symbol && symbol->kind == JC_SYMBOL_ENUM)
        return compile_enum(compiler, symbol);
    enum jc_result result = compile_sum(compiler);
    struct token sign = compiler->token;
    if (result || sign.kind != TOKEN_SIGN || sign.operation < JC_OP_LESS ||
        sign.operation > JC_OP_NOT_EQUAL)
        return result;
    result = advance(compiler);
    if (result == JC_OK)
        result = compile_sum(compiler);
    if (result == JC_OK)
        result = operate(compiler, sign.operation, sign.column);
    if (result == JC_OK && compiler->token.kind == TOKEN_SIGN &&
        compiler->token.operation >= JC_OP_LESS && compiler->token.operation <= JC_OP_NOT_EQUAL)
        return refuse(compiler, compiler->token.column,
                      "comparisons do not chain; write a < b && b < c");
    return result;
}

static enum jc_result compile_and(struct compiler *compiler)
{
    return compile_left(compiler, JC_OP_AND, JC_OP_AND, compile_comparison);
}

static enum jc_result compile_or(struct compiler *compiler)
{
    return compile_left(compiler, JC_OP_OR, JC_OP_OR, compile_and);
}

enum jc_result jc_expression_compile(struct jc_arena *arena, const char *text,
                                     const struct jc_symbol *symbols, size_t num_symbols,
                                     const struct jc_expression **expression,
                                     struct jc_error *error)
{
    if (strlen(text) > JC_EXPRESSION_MAX_LENGTH)
        return jc_fail(error, JC_ERROR_LIMIT, "the expression is longer than %d characters",
                       JC_EXPRESSION_MAX_LENGTH);
    struct compiler compiler = {
        .arena = arena, .text = text, .next = text, .error = error,
        .symbols = symbols, .num_symbols = num_symbols,
        .uses = jc_arena_alloc(arena, num_symbols, sizeof(unsigned))};
    struct jc_expression *made = jc_arena_alloc(arena, 1, sizeof(*made));
    if (!made || !compiler.uses)
        return jc_fail_memory(error);
    enum jc_result result = advance(&compiler);
    if (result == JC_OK)
        result = compile_or(&compiler);
    if (result)
        return result;
    if (compiler.token.kind != TOKEN_END)
        return refuse_token(&compiler, "an operation or the end");
    assert(compiler.stack == 1);
    *made = (struct jc_expression){.text = text, .code = compiler.code,
                                   .num_code = compiler.num_code, .depth = compiler.depth,
                                   .uses = compiler.uses, .num_uses = compiler.num_uses};
    *expression = made;
    return JC_OK;
}

bool jc_expression_is_constant(const struct jc_expression *expression, int64_t *value)
{
    if (expression->num_code != 1 || expression->code[0].operation != JC_OP_NUMBER)
        return false;
    *value = expression->code[0].operand;
    return true;
}

// --- one point -----------------------------------------------------------------------------------

// A value that could not be computed goes up the stack like any other and spoils what uses it, but
// for the right side of an && or || that the left side decides. So no jumps are needed.
struct entry {
    int64_t value;
    unsigned fault;
    const struct jc_instruction *at; // what failed
    int64_t a, b;                    // and its operands
};

static struct entry combine(const struct jc_instruction *at, const struct entry *a,
                            const struct entry *b)
{
    if (a->fault)
        return *a;
    bool decided = (at->operation == JC_OP_AND && !a->value) ||
                   (at->operation == JC_OP_OR && a->value);
    if (b->fault && !decided)
        return *b;
    struct entry entry = {.at = at, .a = a->value, .b = b->value};
    entry.fault = jc_op_apply(at->operation, a->value, b->value, &entry.value);
    return entry;
}

enum jc_result jc_expression_eval(const struct jc_expression *expression, const int64_t *slots,
                                  int64_t *value, struct jc_error *error)
{
    struct entry stack[JC_EXPRESSION_MAX_STACK], *top = stack;
    for (size_t i = 0; i < expression->num_code; i++) {
        const struct jc_instruction *at = &expression->code[i];
        if (at->operation == JC_OP_NUMBER) {
            *top++ = (struct entry){.value = at->operand};
        } else if (at->operation == JC_OP_SLOT) {
            *top++ = (struct entry){.value = slots[at->operand]};
        } else {
            top -= jc_op_is_unary(at->operation) ? 0 : 1;
            top[-1] = combine(at, &top[-1], jc_op_is_unary(at->operation) ? &top[-1] : top);
        }
    }
    assert(top == stack + 1);
    if (stack[0].fault) {
        char message[128];
        print_fault(stack[0].at->operation, stack[0].fault, stack[0].a, stack[0].b, message,
                    sizeof(message));
        return jc_fail(error, JC_ERROR_EXPRESSION, "column %u of '%s': %s", stack[0].at->column,
                       expression->text, message);
    }
    *value = stack[0].value;
    return JC_OK;
}

// --- many points ---------------------------------------------------------------------------------

static void spread(struct jc_block *block, size_t count)
{
    if (!block->numbers.uniform)
        return;
    block->numbers.uniform = false;
    for (size_t i = 1; i < count; i++)
        block->numbers.values[i] = block->numbers.values[0];
    if (block->any_fault)
        memset(block->faults, block->faults[0], count);
}

// Computes a[i] = a[i] op b[i]. Whether anything failed is known after the fast loop; only then a
// second one finds out where, from operands that are kept for it.
#define DEFINE_LOOP(name, function) \
    static bool loop_##name(int64_t *restrict a, const int64_t *restrict b, size_t count, \
                            uint8_t *faults) \
    { \
        unsigned any = 0; \
        int64_t results[JC_BLOCK]; \
        for (size_t i = 0; i < count; i++) \
            any |= function(a[i], b[i], &results[i]); \
        for (size_t i = 0; any && i < count; i++) { \
            int64_t ignored; \
            faults[i] = function(a[i], b[i], &ignored) != JC_FAULT_NONE; \
        } \
        memcpy(a, results, count * sizeof(*a)); \
        return any != 0; \
    }
JC_OPERATIONS(DEFINE_LOOP)
#undef DEFINE_LOOP

static bool run_loop(unsigned operation, int64_t *a, const int64_t *b, size_t count,
                     uint8_t *faults)
{
    switch ((enum jc_operation) operation) {
#define CASE(name, function) case name: return loop_##name(a, b, count, faults);
    JC_OPERATIONS(CASE)
#undef CASE
    case JC_OP_NUMBER:
    case JC_OP_SLOT:
        break;
    }
    assert(!"an operation");
    return false;
}

// Adds the faults of the operands to those of the result, as `combine` does for one point.
// `decides` are the values of the left side of an && or ||.
static void merge_faults(unsigned operation, struct jc_block *a, const struct jc_block *b,
                         const int64_t *decides, const uint8_t *fresh, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t left = a->any_fault ? a->faults[i] : 0;
        uint8_t right = b && b->any_fault ? b->faults[i] : 0;
        if (operation == JC_OP_AND)
            right &= decides[i] != 0;
        else if (operation == JC_OP_OR)
            right &= decides[i] == 0;
        a->faults[i] = left | right | (fresh ? fresh[i] : 0);
    }
    a->any_fault = memchr(a->faults, 1, count) != NULL;
}

static void operate_block(unsigned operation, struct jc_block *a, struct jc_block *b, size_t count)
{
    if (b && a->numbers.uniform != b->numbers.uniform) {
        spread(a, count);
        spread(b, count);
    }
    size_t points = a->numbers.uniform ? 1 : count;
    uint8_t fresh[JC_BLOCK];
    int64_t decides[JC_BLOCK];
    bool spoiled = a->any_fault || (b && b->any_fault);
    if (spoiled)
        memcpy(decides, a->numbers.values, points * sizeof(decides[0]));
    // A unary operation ignores its second operand.
    static const int64_t nothing[JC_BLOCK];
    bool failed = run_loop(operation, a->numbers.values, b ? b->numbers.values : nothing, points,
                           fresh);
    if (spoiled || failed)
        merge_faults(operation, a, b, decides, failed ? fresh : NULL, points);
}

void jc_expression_eval_block(const struct jc_expression *expression,
                              const struct jc_column *const *slots, size_t count,
                              struct jc_block *stack)
{
    assert(count > 0 && count <= JC_BLOCK);
    struct jc_block *top = stack;
    for (size_t i = 0; i < expression->num_code; i++) {
        const struct jc_instruction *at = &expression->code[i];
        if (at->operation == JC_OP_NUMBER) {
            top->numbers.uniform = true;
            top->numbers.values[0] = at->operand;
            top++->any_fault = false;
        } else if (at->operation == JC_OP_SLOT) {
            const struct jc_column *column = slots[at->operand];
            top->numbers.uniform = column->uniform;
            memcpy(top->numbers.values, column->values,
                   (column->uniform ? 1 : count) * sizeof(column->values[0]));
            top++->any_fault = false;
        } else if (jc_op_is_unary(at->operation)) {
            operate_block(at->operation, &top[-1], NULL, count);
        } else {
            top--;
            operate_block(at->operation, &top[-1], top, count);
        }
    }
    assert(top == stack + 1);
}
