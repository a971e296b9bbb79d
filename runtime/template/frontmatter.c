#include "frontmatter.h"

#include <string.h>

#include "cache/report.h"
#include "scanner.h"

#define OPENING "/*jitcache"
#define OPENING_SIZE (sizeof(OPENING) - 1)

static bool is_opening(const struct jc_token *token)
{
    if (token->kind != JC_TOKEN_COMMENT || token->size < OPENING_SIZE ||
        memcmp(token->text, OPENING, OPENING_SIZE) != 0)
        return false;
    // "/*jitcache_old" is some other comment.
    char after = token->size > OPENING_SIZE ? token->text[OPENING_SIZE] : '\n';
    return after == ' ' || after == '\t' || after == '\r' || after == '\n' || after == '*';
}

// "/* jitcache" on a line of its own.
static bool is_almost_opening(const struct jc_token *token)
{
    static const char word[] = "jitcache";
    if (token->kind != JC_TOKEN_COMMENT || token->text[1] != '*')
        return false;
    const char *at = token->text + 2, *end = token->text + token->size;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '*'))
        at++;
    if ((size_t) (end - at) <= strlen(word) || memcmp(at, word, strlen(word)) != 0)
        return false;
    at += strlen(word);
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at < end && *at == '\n';
}

static enum jc_result refuse(const struct jc_lines *lines, unsigned line, struct jc_error *error,
                             const char *message)
{
    return jc_place_fail(lines, &(struct jc_place){.line = line}, error, JC_ERROR_TEMPLATE, "%s",
                         message);
}

static bool is_line_comment(const struct jc_token *token)
{
    return token->kind == JC_TOKEN_COMMENT && token->text[1] == '/';
}

// Whether what stands between two places is blanks only.
static bool is_blank(const char *at, const char *end)
{
    for (; at < end; at++)
        if (*at != ' ' && *at != '\t' && *at != '\r')
            return false;
    return true;
}

// Whether the comment's closing stands on a line of its own: then it was meant.
static bool closes_alone(const struct jc_token *comment)
{
    const char *closing = comment->text + comment->size - 2, *start = closing;
    while (start > comment->text && start[-1] != '\n')
        start--;
    return start > comment->text && is_blank(start, closing);
}

static const char early_end[] =
    "'*/' ends the front matter here, in the middle of the YAML; inside it write '* /' with a "
    "blank between, and put the closing '*/' on a line of its own";

// What follows the front matter: no second one, and no sign that the first ended too early.
static enum jc_result check_rest(struct jc_scanner *scanner, const struct jc_token *comment,
                                 const struct jc_lines *lines, struct jc_error *error)
{
    unsigned last_line = scanner->line;
    const char *line_end = memchr(scanner->next, '\n', (size_t) (scanner->end - scanner->next));
    if (!is_blank(scanner->next, line_end ? line_end : scanner->end))
        return refuse(lines, last_line, error, early_end);
    bool meant = closes_alone(comment);
    struct jc_token token = jc_scanner_next(scanner), before = token;
    for (; token.kind != JC_TOKEN_END; before = token, token = jc_scanner_next(scanner)) {
        if (is_opening(&token))
            return jc_place_fail(lines, &(struct jc_place){.line = token.line}, error,
                                 JC_ERROR_TEMPLATE,
                                 "a second front matter, the first begins in line %u; keep one",
                                 comment->line);
        // A "*/" that closes nothing is the one that was meant to close the front matter.
        if (!meant && token.kind == JC_TOKEN_SIGN && *token.text == '/' &&
            before.kind == JC_TOKEN_SIGN && *before.text == '*' && before.text + 1 == token.text)
            return refuse(lines, last_line, error, early_end);
    }
    return JC_OK;
}

// A front matter that is not the first thing of the file would be silently unread.
static enum jc_result check_elsewhere(struct jc_scanner *scanner, struct jc_token token,
                                      const struct jc_lines *lines, struct jc_error *error)
{
    for (; token.kind != JC_TOKEN_END; token = jc_scanner_next(scanner))
        if (is_opening(&token))
            return refuse(lines, token.line, error,
                          "the front matter must be the first comment of the file; only blank "
                          "lines and // comments may stand before it");
    return JC_OK;
}

enum jc_result jc_frontmatter_find(const char *source, size_t size, const struct jc_lines *lines,
                                   struct jc_frontmatter *frontmatter, struct jc_error *error)
{
    *frontmatter = (struct jc_frontmatter){0};
    struct jc_scanner scanner = {.next = source, .end = source + size, .line = 1};
    if (size >= 3 && memcmp(source, "\xef\xbb\xbf", 3) == 0)
        scanner.next += 3;
    struct jc_token token;
    do
        token = jc_scanner_next(&scanner);
    while (is_line_comment(&token));
    if (!is_opening(&token)) {
        frontmatter->plain_line = is_almost_opening(&token) ? token.line : 0;
        return check_elsewhere(&scanner, token, lines, error);
    }

    if (token.size < OPENING_SIZE + 2 || memcmp(token.text + token.size - 2, "*/", 2) != 0)
        return refuse(lines, token.line, error,
                      "the front matter is not closed; put '*/' on a line of its own after it");
    frontmatter->found = true;
    frontmatter->yaml = token.text + OPENING_SIZE;
    frontmatter->size = token.size - OPENING_SIZE - 2;
    frontmatter->line = token.line;
    return check_rest(&scanner, &token, lines, error);
}
