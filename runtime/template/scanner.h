// CUDA C++ text, told apart into what is code and what is comments and literals.

#ifndef JC_SCANNER_H
#define JC_SCANNER_H

#include <stddef.h>

enum jc_token_kind {
    JC_TOKEN_END,
    JC_TOKEN_WORD,    // identifiers and keywords
    JC_TOKEN_SIGN,    // one character of anything else that is code
    JC_TOKEN_COMMENT, // with its delimiters; the newline that ends a // comment is not in it
    JC_TOKEN_LITERAL  // numbers, characters, strings, raw strings
};

struct jc_token {
    enum jc_token_kind kind;
    const char *text;
    size_t size;
    unsigned line; // of its first character
};

// Begin with {.next = source, .end = source + size, .line = 1}.
struct jc_scanner {
    const char *next, *end;
    unsigned line;
};

// The next token, blanks skipped. What is not closed ends with the text.
struct jc_token jc_scanner_next(struct jc_scanner *scanner);

#endif
