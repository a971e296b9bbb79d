#include "scanner.h"

#include <stdbool.h>
#include <string.h>

static bool is_word_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char) c >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_word_start(c) || is_digit(c);
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool begins(const char *at, const char *end, const char *with)
{
    size_t length = strlen(with);
    return (size_t) (end - at) >= length && memcmp(at, with, length) == 0;
}

// How long a backslash and the newline after it are, 0 where there is none.
static size_t splice(const char *at, const char *end)
{
    if (begins(at, end, "\\\n"))
        return 2;
    return begins(at, end, "\\\r\n") ? 3 : 0;
}

static const char *line_comment_end(const char *at, const char *end)
{
    while (at < end && *at != '\n') {
        size_t skipped = splice(at, end);
        at += skipped ? skipped : 1;
    }
    return at;
}

static const char *block_comment_end(const char *at, const char *end)
{
    for (at += 2; at < end; at++)
        if (begins(at, end, "*/"))
            return at + 2;
    return end;
}

static const char *quoted_end(const char *at, const char *end)
{
    char quote = *at++;
    while (at < end && *at != quote && *at != '\n') {
        size_t skipped = splice(at, end);
        at += skipped ? skipped : *at == '\\' && at + 1 < end ? 2 : 1;
    }
    return at < end && *at == quote ? at + 1 : at;
}

// R"delimiter( ... )delimiter", `at` standing on the quote.
static const char *raw_string_end(const char *at, const char *end)
{
    const char *delimiter = at + 1, *open = delimiter;
    while (open < end && *open != '(' && *open != '\n' && open - delimiter <= 16)
        open++;
    if (open >= end || *open != '(')
        return quoted_end(at, end);
    size_t length = (size_t) (open - delimiter);
    for (const char *close = open + 1; close < end; close++)
        if (*close == ')' && (size_t) (end - close) >= length + 2 &&
            memcmp(close + 1, delimiter, length) == 0 && close[length + 1] == '"')
            return close + length + 2;
    return end;
}

// Numbers with their suffixes, exponents and digit separators, roughly: enough not to take the
// separator of 1'000 for a quote.
static const char *number_end(const char *at, const char *end)
{
    while (at < end && (is_word(*at) || *at == '.' ||
                        (*at == '\'' && at + 1 < end && is_word(at[1]))))
        at++;
    return at;
}

static bool is_raw_prefix(const char *text, size_t size)
{
    static const char *const prefixes[] = {"R", "LR", "uR", "UR", "u8R"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strlen(prefixes[i]) == size && memcmp(prefixes[i], text, size) == 0)
            return true;
    return false;
}

static const char *word_end(const char *at, const char *end)
{
    while (at < end && is_word(*at))
        at++;
    return at;
}

static void skip_blanks(struct jc_scanner *scanner)
{
    while (scanner->next < scanner->end) {
        size_t skipped = splice(scanner->next, scanner->end);
        if (skipped == 0 && !is_blank(*scanner->next))
            return;
        scanner->line += skipped > 0 || *scanner->next == '\n';
        scanner->next += skipped ? skipped : 1;
    }
}

struct jc_token jc_scanner_next(struct jc_scanner *scanner)
{
    skip_blanks(scanner);
    const char *at = scanner->next, *end = scanner->end, *after;
    struct jc_token token = {.text = at, .line = scanner->line};
    if (at == end)
        return token;
    if (begins(at, end, "//")) {
        token.kind = JC_TOKEN_COMMENT;
        after = line_comment_end(at, end);
    } else if (begins(at, end, "/*")) {
        token.kind = JC_TOKEN_COMMENT;
        after = block_comment_end(at, end);
    } else if (*at == '"' || *at == '\'') {
        token.kind = JC_TOKEN_LITERAL;
        after = quoted_end(at, end);
    } else if (is_digit(*at) || (*at == '.' && at + 1 < end && is_digit(at[1]))) {
        token.kind = JC_TOKEN_LITERAL;
        after = number_end(at, end);
    } else if (is_word_start(*at)) {
        token.kind = JC_TOKEN_WORD;
        after = word_end(at, end);
        if (after < end && *after == '"' && is_raw_prefix(at, (size_t) (after - at))) {
            token.kind = JC_TOKEN_LITERAL;
            after = raw_string_end(after, end);
        }
    } else {
        token.kind = JC_TOKEN_SIGN;
        after = at + 1;
    }
    token.size = (size_t) (after - at);
    for (; at < after; at++)
        scanner->line += *at == '\n';
    scanner->next = after;
    return token;
}
