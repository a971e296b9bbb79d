#include "head.h"

#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "directive.h"

// Its macros name the specialization, and mean nothing until they are used.
#define DEVICE_HEADER "jitcache.cuh"

struct search {
    const struct jc_closure *closure;
    bool *seen; // of each header: it was looked at
};

static bool is(const struct jc_token *token, const char *word)
{
    return token->size == strlen(word) && memcmp(token->text, word, token->size) == 0;
}

// JC_PARAM and the like, or a piece of one that is about to be pasted together.
static bool names_specialization(const struct jc_token *token)
{
    return token->kind == JC_TOKEN_WORD && token->size >= 3 && memcmp(token->text, "JC_", 3) == 0;
}

static bool header_reads(const struct search *search, const struct jc_job_header *header);

// Whether any own header that the text includes, or one that those include, reads the
// specialization. A header that was seen before did not, or the search would be over.
static bool includes_reader(const struct search *search, const char *text, size_t size)
{
    struct jc_scanner scanner = {.next = text, .end = text + size, .line = 1};
    struct jc_reference reference;
    while (jc_directive_next(&scanner, &reference)) {
        for (size_t i = 0; i < search->closure->num_headers; i++) {
            const struct jc_job_header *header = &search->closure->headers[i];
            if (search->seen[i] || strlen(header->name) != reference.name_size
                || memcmp(header->name, reference.name, reference.name_size) != 0)
                continue;
            search->seen[i] = true;
            if (header_reads(search, header))
                return true;
        }
    }
    return false;
}

static bool header_reads(const struct search *search, const struct jc_job_header *header)
{
    if (strcmp(header->name, DEVICE_HEADER) == 0)
        return false;
    struct jc_scanner scanner = {
        .next = header->text, .end = header->text + header->size, .line = 1};
    struct jc_token token;
    while ((token = jc_scanner_next(&scanner)).kind != JC_TOKEN_END)
        if (names_specialization(&token))
            return true;
    return includes_reader(search, header->text, header->size);
}

// The first newline in [at, end) that no backslash takes away; NULL: there is none.
static const char *line_end(const char *at, const char *end)
{
    for (; at < end; at++) {
        if (*at == '\\' && end - at >= 2 && at[1] == '\n')
            at++;
        else if (*at == '\\' && end - at >= 3 && at[1] == '\r' && at[2] == '\n')
            at += 2;
        else if (*at == '\n')
            return at;
    }
    return NULL;
}

// One directive, from its # to behind its last line's newline.
struct directive {
    struct jc_token word; // its name
    const char *end;
    bool reads; // names the specialization
};

// Reads on behind a #. False: it is none, or has no end.
static bool read_directive(struct jc_scanner *scanner, struct directive *directive)
{
    const char *from = scanner->next;
    bool first = true;
    *directive = (struct directive){.word = {.kind = JC_TOKEN_SIGN}};
    for (;;) {
        struct jc_scanner before = *scanner;
        struct jc_token token = jc_scanner_next(scanner);
        const char *newline = line_end(from, token.text);
        if (newline) {
            directive->end = newline + 1;
            *scanner = before; // the token belongs to the next line
            return true;
        }
        if (token.kind == JC_TOKEN_END)
            return false;
        if (first && token.kind != JC_TOKEN_COMMENT) {
            directive->word = token;
            first = false;
        }
        directive->reads = directive->reads || names_specialization(&token);
        from = token.text + token.size;
    }
}

// What the compiler counts lines by: after such a directive it keeps nothing.
static bool is_line(const struct jc_token *word)
{
    return is(word, "line") || word->kind == JC_TOKEN_LITERAL;
}

static size_t find_end(const struct search *search)
{
    const char *source = search->closure->source, *end = source;
    struct jc_scanner scanner = {.next = source, .end = source + strlen(source), .line = 1};
    unsigned depth = 0; // of #if
    bool includes = false, any = false; // something is included: so far, up to `end`
    for (;;) {
        struct jc_token token = jc_scanner_next(&scanner);
        struct directive directive;
        if (token.kind == JC_TOKEN_COMMENT)
            continue;
        if (token.kind != JC_TOKEN_SIGN || *token.text != '#'
            || !read_directive(&scanner, &directive) || directive.reads
            || is_line(&directive.word)
            || includes_reader(search, token.text, (size_t) (directive.end - token.text)))
            break;
        if (is(&directive.word, "if") || is(&directive.word, "ifdef")
            || is(&directive.word, "ifndef"))
            depth++;
        else if (is(&directive.word, "endif") && depth > 0)
            depth--;
        includes = includes || is(&directive.word, "include");
        if (depth > 0)
            continue;
        end = directive.end;
        any = includes;
    }
    return any ? (size_t) (end - source) : 0;
}

enum jc_result jc_head_find(const struct jc_closure *closure, size_t *size, unsigned *lines,
                            struct jc_error *error)
{
    struct search search = {
        .closure = closure, .seen = calloc(closure->num_headers + 1, sizeof(*search.seen))};
    if (!search.seen)
        return jc_fail_memory(error);
    *size = find_end(&search);
    *lines = 0;
    for (size_t i = 0; i < *size; i++)
        *lines += closure->source[i] == '\n';
    free(search.seen);
    return JC_OK;
}

bool jc_head_digest(const struct jc_closure *closure, char digest[JC_KEY_STRING_SIZE])
{
    struct jc_buffer text = {0};
    for (const char *line = closure->list; *line;) {
        size_t size = strcspn(line, "\n");
        size += line[size] == '\n';
        if (strncmp(line, "source=", strlen("source=")) != 0)
            jc_buffer_append(&text, line, size);
        line += size;
    }
    jc_buffer_string(&text, "\n");
    bool made = !text.failed;
    struct jc_key key = jc_key_of(made ? text.data : "", made ? text.size : 0);
    jc_key_format(&key, digest);
    jc_buffer_finish(&text);
    return made;
}
