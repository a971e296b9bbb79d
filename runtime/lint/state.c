#include "state.h"

#include <stdbool.h>
#include <string.h>

// What is known of the declaration being read.
struct declaration {
    struct jc_token space; // __device__ or the like
    struct jc_token name;  // the last word that may be one
    bool is_namespace;
    bool is_class;    // or an enum
    bool is_enum;
    bool is_function; // or may be one
    bool is_external;
    bool is_constant; // constexpr
    bool is_other;    // of a kind that declares no variable in device memory
    bool is_initialized; // what follows is its value
    bool is_grouped;     // its name stands in parentheses, void (*name)(int)
    bool has_const;   // of what it is, or of what it points to
    bool has_pointer, has_const_pointer;
};

enum scope_kind {
    SCOPE_NAMESPACE, // or extern "C"
    SCOPE_CLASS,
    SCOPE_BODY,  // of a function
    SCOPE_VALUE  // an initializer, or the list of an enum
};

struct scope {
    enum scope_kind kind;
    struct declaration around; // that goes on behind it
    unsigned parentheses;
};

#define MAX_SCOPES 128

struct walk {
    struct jc_scanner scanner;
    void (*each)(void *user, const struct jc_token *name, const struct jc_token *space);
    void *user;
    struct declaration now;
    struct scope scopes[MAX_SCOPES];
    size_t num_scopes;
    unsigned parentheses, brackets, angles;
    bool is_declarator;  // in the parentheses of void (*name)(int)
    bool is_attribute;   // before parentheses that belong to a word such as alignas
    unsigned conditions; // #if around
    unsigned last_line;  // of the token before
};

static bool is_word(const struct jc_token *token, const char *word)
{
    return token->kind == JC_TOKEN_WORD && token->size == strlen(word)
        && memcmp(token->text, word, token->size) == 0;
}

static bool is_one_of(const struct jc_token *token, const char *const *words)
{
    for (; *words; words++)
        if (is_word(token, *words))
            return true;
    return false;
}

static char sign_of(const struct jc_token *token)
{
    return token->kind == JC_TOKEN_SIGN ? token->text[0] : '\0';
}

// --- directives ----------------------------------------------------------------------------------

// Passes over the rest of a directive, its spliced lines and comments included.
static void skip_directive(struct jc_scanner *scanner)
{
    bool comment = false;
    while (scanner->next < scanner->end && *scanner->next != '\n') {
        const char *at = scanner->next, *to = at + 1;
        size_t left = (size_t) (scanner->end - at);
        comment = comment || (left > 1 && at[0] == '/' && at[1] == '/');
        if (!comment && left > 1 && at[0] == '/' && at[1] == '*') {
            const char *close = memmem(at + 2, left - 2, "*/", 2);
            to = close ? close + 2 : scanner->end;
        } else if (left > 1 && at[0] == '\\' && at[1] == '\n') {
            to = at + 2;
        } else if (left > 2 && at[0] == '\\' && at[1] == '\r' && at[2] == '\n') {
            to = at + 3;
        }
        for (; scanner->next < to; scanner->next++)
            scanner->line += *scanner->next == '\n';
    }
}

static void read_directive(struct walk *walk, unsigned line)
{
    static const char *const opening[] = {"if", "ifdef", "ifndef", NULL};
    struct jc_scanner after = walk->scanner;
    struct jc_token word = jc_scanner_next(&after);
    if (word.line != line) // a # alone
        return;
    if (is_one_of(&word, opening))
        walk->conditions++;
    else if (is_word(&word, "endif") && walk->conditions > 0)
        walk->conditions--;
    skip_directive(&walk->scanner);
}

// --- declarations --------------------------------------------------------------------------------

// Tells of the variable that was declared, if it was one.
static void settle(const struct walk *walk)
{
    const struct declaration *now = &walk->now;
    bool is_variable = now->space.size && now->name.size && !now->is_function && !now->is_other
        && (!now->is_external || now->is_initialized);
    bool is_const = now->is_constant
        || (now->has_pointer ? now->has_const_pointer : now->has_const);
    if (is_variable && !is_const)
        walk->each(walk->user, &now->name, &now->space);
}

// What follows is its value; behind that nothing more is told of it.
static void initialize(struct walk *walk)
{
    walk->now.is_initialized = true;
    settle(walk);
    walk->now.space = (struct jc_token){0};
}

static void forget(struct walk *walk)
{
    walk->now = (struct declaration){0};
    walk->angles = 0;
    walk->is_attribute = walk->is_declarator = false;
}

static void read_word(struct walk *walk, const struct jc_token *word)
{
    static const char *const spaces[] = {"__device__", "__constant__", "__managed__", NULL};
    static const char *const others[] = {"typedef", "using", "friend", "static_assert",
                                         "__shared__", NULL};
    static const char *const functions[] = {"operator", "__global__", NULL};
    static const char *const classes[] = {"class", "struct", "union", "enum", NULL};
    static const char *const attributes[] = {
        "alignas", "__align__", "__attribute__", "__declspec", "decltype", "__launch_bounds__",
        "noexcept", "explicit", "__restrict__", NULL};
    struct declaration *now = &walk->now;
    walk->is_attribute = is_one_of(word, attributes);
    if (walk->is_attribute)
        return;
    if (is_one_of(word, spaces))
        now->space = *word;
    else if (is_one_of(word, others))
        now->is_other = true;
    else if (is_one_of(word, functions))
        now->is_function = true;
    else if (is_word(word, "namespace"))
        now->is_namespace = true;
    else if (is_word(word, "extern"))
        now->is_external = true;
    else if (is_word(word, "constexpr"))
        now->is_constant = true;
    else if (is_word(word, "const") && now->has_pointer)
        now->has_const_pointer = true;
    else if (is_word(word, "const"))
        now->has_const = true;
    else if (is_one_of(word, classes))
        now->is_class = true;
    else
        now->name = *word;
    now->is_enum = now->is_enum || is_word(word, "enum");
}

// Inside void (*name[4])(int): a pointer, whose parameters are no function's.
static void read_declarator(struct walk *walk, const struct jc_token *token)
{
    struct declaration *now = &walk->now;
    if (sign_of(token) == '*')
        now->has_const_pointer = false;
    else if (is_word(token, "const"))
        now->has_const_pointer = true;
    else if (token->kind == JC_TOKEN_WORD && walk->brackets == 0 && walk->parentheses == 1)
        now->name = *token;
}

static void open_parenthesis(struct walk *walk)
{
    struct jc_scanner after = walk->scanner;
    struct jc_token inside = jc_scanner_next(&after);
    struct declaration *now = &walk->now;
    if (walk->is_declarator) // int (*name(int))[4]
        now->is_function = true;
    if (walk->parentheses++ > 0 || walk->is_attribute || now->is_initialized || now->is_grouped)
        return;
    if (sign_of(&inside) != '*') {
        now->is_function = true;
        return;
    }
    walk->is_declarator = now->is_grouped = now->has_pointer = true;
}

static bool push(struct walk *walk, enum scope_kind kind)
{
    if (walk->num_scopes == MAX_SCOPES)
        return false;
    walk->scopes[walk->num_scopes++] = (struct scope){kind, walk->now, walk->parentheses};
    walk->parentheses = walk->brackets = 0;
    forget(walk);
    return true;
}

static bool open_brace(struct walk *walk)
{
    struct declaration *now = &walk->now;
    if (walk->angles > 0) // read wrong
        now->is_other = true;
    if (walk->parentheses > 0 || now->is_initialized)
        return push(walk, SCOPE_VALUE);
    if (now->is_namespace || (now->is_external && !now->name.size && !now->space.size
                              && !now->is_function && !now->is_class))
        return push(walk, SCOPE_NAMESPACE);
    if (now->is_function)
        return push(walk, SCOPE_BODY);
    if (now->is_class)
        return push(walk, now->is_enum ? SCOPE_VALUE : SCOPE_CLASS);
    initialize(walk);
    return push(walk, SCOPE_VALUE);
}

static void close_brace(struct walk *walk)
{
    forget(walk);
    if (walk->num_scopes == 0) // the other half stands under an #if
        return;
    const struct scope *scope = &walk->scopes[--walk->num_scopes];
    walk->parentheses = scope->parentheses;
    walk->brackets = 0;
    if (scope->kind != SCOPE_CLASS && scope->kind != SCOPE_VALUE)
        return;
    // struct Name { ... } variable;
    walk->now = scope->around;
    if (walk->now.is_class)
        walk->now.name = (struct jc_token){0};
}

// --- the walk ------------------------------------------------------------------------------------

static void read_sign(struct walk *walk, char sign)
{
    struct declaration *now = &walk->now;
    switch (sign) {
    case '=':
        if (!now->is_function) // operator=, or "= delete"
            initialize(walk);
        break;
    case ',':
        settle(walk);
        now->name = (struct jc_token){0};
        now->has_pointer = now->has_const_pointer = false;
        break;
    case '*':
        now->has_pointer = true;
        now->has_const_pointer = false;
        break;
    case '&': now->is_other = true; break;
    case '<': walk->angles += !now->is_function; break;
    default: break;
    }
}

// A token outside of all bodies. False: too deep to go on.
static bool read_token(struct walk *walk, const struct jc_token *token)
{
    char sign = sign_of(token);
    bool plain = walk->parentheses == 0 && walk->brackets == 0;
    if (sign == '{')
        return open_brace(walk);
    if (sign == '}') {
        close_brace(walk);
    } else if (sign == '(') {
        open_parenthesis(walk);
    } else if (sign == ')') {
        walk->parentheses -= walk->parentheses > 0;
        walk->is_attribute = walk->is_declarator = false;
    } else if (sign == '[' || sign == ']') {
        walk->brackets = sign == '[' ? walk->brackets + 1 : walk->brackets - (walk->brackets > 0);
    } else if (walk->is_declarator) {
        read_declarator(walk, token);
    } else if (plain && sign == ';') {
        if (walk->angles == 0)
            settle(walk);
        forget(walk);
    } else if (plain && walk->angles > 0) {
        walk->angles += (sign == '<') - (sign == '>');
    } else if (plain && !walk->now.is_initialized) {
        if (token->kind == JC_TOKEN_WORD)
            read_word(walk, token);
        else
            read_sign(walk, sign);
    }
    return true;
}

// Inside of bodies nothing counts but where they end.
static bool skip_token(struct walk *walk, const struct jc_token *token)
{
    if (sign_of(token) == '{')
        return push(walk, SCOPE_BODY);
    if (sign_of(token) == '}')
        close_brace(walk);
    return true;
}

void jc_state_find(const char *source, size_t size,
                   void (*each)(void *user, const struct jc_token *name,
                                const struct jc_token *space),
                   void *user)
{
    struct walk walk = {.scanner = {.next = source, .end = source + size, .line = 1},
                        .each = each, .user = user};
    bool goes_on = true;
    while (goes_on) {
        struct jc_token token = jc_scanner_next(&walk.scanner);
        if (token.kind == JC_TOKEN_END)
            return;
        if (token.kind == JC_TOKEN_COMMENT)
            continue;
        bool is_first = token.line != walk.last_line;
        walk.last_line = token.line;
        if (is_first && sign_of(&token) == '#') {
            read_directive(&walk, token.line);
            continue;
        }
        if (walk.conditions > 0)
            continue;
        const struct scope *scope = walk.num_scopes ? &walk.scopes[walk.num_scopes - 1] : NULL;
        bool is_inside = scope && (scope->kind == SCOPE_BODY || scope->kind == SCOPE_VALUE);
        goes_on = is_inside ? skip_token(&walk, &token) : read_token(&walk, &token);
    }
}
