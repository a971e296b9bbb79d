// Templates: CUDA C++ text with a declared signature.
//
// A template is one file: a description in YAML in its first comment (the front matter), then CUDA
// C++. The same description can stand in a file beside an unmodified kernel, or be given as a C
// struct by a program that generates its source. docs/templates.md is the grammar with examples.
//
// The description says what the compiler has to know before a call (parameters), what a call passes
// (arguments), which facts about an argument may be compiled in (facets), how arguments follow from
// others (derive), how parameters are chosen from arguments (dispatch), and the launch shape.

#ifndef JITCACHE_TEMPLATE_H
#define JITCACHE_TEMPLATE_H

#include <stdbool.h>

#include <jitcache/result.h>

#ifdef __cplusplus
extern "C" {
#endif

// --- the description as C structs ---------------------------------------------------------------
//
// Every value is text, spelled as in the front matter; NULL means that the field is not there.
// `line` is the line of the file that an error message should name, 0 where there is none.

struct jc_dispatch_case {
    const char *when;  // condition over arguments, such as "num_tokens <= 64"; NULL in the last
    const char *value; // the parameter's value, such as "1"
    unsigned line;
};

// A compile-time input. Always part of the key; the kernel reads it as JC_PARAM(name).
struct jc_parameter_description {
    const char *name;
    const char *type;          // "int" (the default), "bool", "enum" or "type" (a C++ type's name)
    const char *const *values; // what is allowed; required for enum, none for bool; NULL: anything
    size_t num_values;
    const char *default_value; // used where the caller gives none
    const struct jc_dispatch_case *dispatch; // rule for the value; the last case has no `when`
    size_t num_dispatch;
    const char *fallback; // the generic variant's value; required with dispatch
    unsigned line;
};

// A run-time input, in the order of the kernel's signature.
struct jc_argument_description {
    const char *name;
    const char *type; // "i32", "const bf16*", "f32", "bool", "void*", "bytes[64]", ...
    const char *do_not_specialize; // "true": no facets; "alignment": neither div nor align; "false"
    const char *const *facets; // "value", "one", "div: 16", "align: 16", "null"; NULL: the defaults
    size_t num_facets;         // (integers one and div: 16, pointers align: 16, others none)
    bool has_facets;           // true with num_facets 0: an empty list, no facets
    const char *align; // of a pointer with an align facet: "aligned" (the default), or "either":
                       // calls come unaligned too, and get variants of their own
    const char *derive;        // expression; the caller does not pass the argument
    const char *range;         // "1:8192", inclusive
    const char *typical;       // the value that a plan takes where there is no range
    unsigned line;
};

struct jc_launch_description {
    const char *grid[3];    // expressions over arguments and parameters; NULL: 1
    const char *block[3];
    const char *cluster[3]; // NULL: no cluster
    const char *shared;     // dynamic shared memory in bytes; NULL: 0
    const char *workspace;  // bytes of device memory that a call needs; NULL: 0
    const char *cooperative;  // "true", "false" or the name of a bool parameter, whose value in the
                              // variant that is launched decides; NULL: false
    const char *programmatic; // programmatic dependent launch, likewise
    unsigned line;
};

struct jc_description {
    size_t size;        // sizeof(struct jc_description), or 0
    const char *kernel; // the template's name, and the entry point if there is no name expression
    const char *name_expression; // of a C++ template: "gemm<{T}, {M}>"; braces name parameters
    const char *arch;            // "exact" (the default) or "portable"
    const char *state;           // "none" (the default); "per_variant": mutable state is meant
    const char *const *options;  // for NVRTC, such as "--use_fast_math"; not -I, -arch or -D JC_...
    size_t num_options;
    const char *const *include; // folders for #include, relative to the template's own
    size_t num_include;
    const struct jc_parameter_description *parameters;
    size_t num_parameters;
    const struct jc_argument_description *arguments;
    size_t num_arguments;
    struct jc_launch_description launch;
    const char *pch; // "true" or "false"; NULL: false. Whether a compile worker keeps what the
                     // headers at the head of the source come to for the next variant: it saves
                     // time where they are heavy, and changes no machine code
};

// --- templates ----------------------------------------------------------------------------------

// Immutable once made. Threads: safe.
struct jc_template;

struct jc_template_params {
    size_t size;      // sizeof(struct jc_template_params), or 0
    const char *file; // read this file; with `text` only the name for messages
    const char *text; // the source itself, for generated code
    size_t text_size; // its bytes, then it need not end in a NUL; 0: up to its NUL
    const char *dir;  // where quoted includes and `include` folders start; NULL: the file's folder,
                      // and without a file no folder at all
    const struct jc_description *description; // NULL: the front matter, or the file beside it
};
#ifndef __cplusplus
#define jc_template_params(...) \
    (&(struct jc_template_params){.size = sizeof(struct jc_template_params), __VA_ARGS__})
#endif

// Reads and checks a template. Everything in the params is copied. `file` may name a CUDA source
// with front matter, one with a description of the same name ending in .yaml beside it, or that
// .yaml file. Two descriptions of one source are refused.
// JC_ERROR_TEMPLATE: malformed; the text is "file:line: field: what is wrong; what to write".
// JC_ERROR_IO, JC_ERROR_LIMIT (front matter over 64 KiB or deeper than 8, source over 4 MiB),
// JC_ERROR_INVALID_ARGUMENT, JC_ERROR_OUT_OF_MEMORY. `*tmpl` is NULL on failure. Threads: safe.
JC_API enum jc_result jc_template_create(const struct jc_template_params *params,
                                         struct jc_template **tmpl, struct jc_error *error);

// Accepts NULL content and clears the handle. Plans made from it must be gone before.
JC_API void jc_template_destroy(struct jc_template **tmpl);

// The template's name: the `kernel` field.
JC_API const char *jc_template_name(const struct jc_template *tmpl);

// The file as given, or NULL.
JC_API const char *jc_template_file(const struct jc_template *tmpl);

// The source as it was read, front matter included. Lives as long as the template.
JC_API const char *jc_template_source(const struct jc_template *tmpl, size_t *size);

// The description with defaults filled in. Lives as long as the template.
JC_API const struct jc_description *jc_template_description(const struct jc_template *tmpl);

// Whether the source reads the facts of argument `index`: JC_FACT(name) occurs in it. The facets of
// an argument that nothing reads are not active.
JC_API bool jc_template_reads_facts(const struct jc_template *tmpl, size_t index);

#ifdef __cplusplus
}
#endif

#endif
