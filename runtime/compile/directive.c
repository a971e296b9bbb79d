#include "directive.h"

#include <string.h>

static bool is(const struct jc_token *token, const char *word)
{
    return token->size == strlen(word) && memcmp(token->text, word, token->size) == 0;
}

// How long a backslash and the newline after it are, 0 where there is none.
static size_t splice(const char *at, const char *end)
{
    if (end - at >= 2 && at[0] == '\\' && at[1] == '\n')
        return 2;
    return end - at >= 3 && at[0] == '\\' && at[1] == '\r' && at[2] == '\n' ? 3 : 0;
}

// Skips blanks, spliced lines and comments up to the end of the line.
static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end) {
        size_t skipped = splice(at, end);
        if (skipped) {
            at += skipped;
        } else if (*at == ' ' || *at == '\t' || *at == '\v' || *at == '\f') {
            at++;
        } else if (end - at >= 2 && at[0] == '/' && at[1] == '*') {
            const char *close = memmem(at + 2, (size_t) (end - at) - 2, "*/", 2);
            at = close ? close + 2 : end;
        } else {
            break;
        }
    }
    return at;
}

// Reads a header name at `at`. Without one the reference stays computed.
static void read_name(const char *at, const char *end, struct jc_reference *reference)
{
    reference->kind = JC_REFERENCE_COMPUTED;
    reference->begin = reference->end = reference->name = at;
    reference->name_size = 0;
    if (at == end || (*at != '"' && *at != '<'))
        return;
    char closing = *at == '"' ? '"' : '>';
    const char *close = at + 1;
    while (close < end && *close != closing && *close != '\n')
        close++;
    if (close == end || *close != closing || close == at + 1)
        return;
    reference->kind = closing == '"' ? JC_REFERENCE_QUOTED : JC_REFERENCE_ANGLED;
    reference->name = at + 1;
    reference->name_size = (size_t) (close - at) - 1;
    reference->end = close + 1;
}

// Passes over what was read, keeping count of the lines that lie in it.
static void advance(struct jc_scanner *scanner, const char *to)
{
    for (; scanner->next < to; scanner->next++)
        scanner->line += *scanner->next == '\n';
}

// #include NAME. A word that goes on behind a spliced line may be an include in disguise.
static bool read_include(struct jc_scanner *scanner, const struct jc_token *word,
                         struct jc_reference *reference)
{
    const char *after = word->text + word->size;
    bool plain = is(word, "include") || is(word, "import");
    if (!plain && !is(word, "include_next") && !splice(after, scanner->end))
        return false;
    reference->line = word->line;
    read_name(skip_blanks(after, scanner->end), scanner->end, reference);
    if (!plain)
        reference->kind = JC_REFERENCE_COMPUTED;
    return true;
}

// __has_include(NAME). Only the name of the operator, as in #ifdef __has_include, asks for no file.
static bool read_probe(struct jc_scanner *scanner, const struct jc_token *word,
                       struct jc_reference *reference)
{
    const char *after = skip_blanks(word->text + word->size, scanner->end);
    if (after == scanner->end || *after != '(')
        return false;
    reference->line = word->line;
    read_name(skip_blanks(after + 1, scanner->end), scanner->end, reference);
    if (is(word, "__has_include_next"))
        reference->kind = JC_REFERENCE_COMPUTED;
    return true;
}

bool jc_directive_next(struct jc_scanner *scanner, struct jc_reference *reference)
{
    bool hash = false; // the token before this one was # or %:
    char before = '\0';
    for (;;) {
        struct jc_token token = jc_scanner_next(scanner);
        bool found = false;
        if (token.kind == JC_TOKEN_END)
            return false;
        if (token.kind == JC_TOKEN_WORD) {
            if (hash)
                found = read_include(scanner, &token, reference);
            else if (is(&token, "__has_include") || is(&token, "__has_include_next"))
                found = read_probe(scanner, &token, reference);
        }
        if (found) {
            advance(scanner, reference->end);
            return true;
        }
        if (token.kind == JC_TOKEN_COMMENT)
            continue;
        bool sign = token.kind == JC_TOKEN_SIGN;
        hash = sign && (token.text[0] == '#' || (token.text[0] == ':' && before == '%'));
        before = sign ? token.text[0] : '\0';
    }
}
