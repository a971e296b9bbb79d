// A template after its description has been read and checked. Made by template.c; read by plan.c,
// unit.c and, later, the launch path.

#ifndef JC_TEMPLATE_H
#define JC_TEMPLATE_H

#include <jitcache/template.h>

#include "arena.h"
#include "expression.h"
#include "facet.h"
#include "type.h"

struct jc_argument {
    const char *name;
    const char *type_name; // as declared, in its one spelling: "const bf16*"
    struct jc_type type;
    // As declared, most specific first: value, null, one, then div or align from large to small.
    struct jc_facet facets[JC_MAX_FACETS];
    unsigned num_facets;
    bool do_not_specialize;           // drops every facet
    bool do_not_specialize_alignment; // drops div and align
    bool align_either;                // unaligned calls are planned and made, too
    bool reads_facts;                 // JC_FACT(name) occurs in the source
    const struct jc_expression *derive; // NULL: passed by the caller
    bool has_range;
    int64_t range_min, range_max;
    bool has_typical;
    int64_t typical;
    unsigned line;
};

enum jc_parameter_kind {
    JC_PARAMETER_INT,
    JC_PARAMETER_BOOL,
    JC_PARAMETER_ENUM,
    JC_PARAMETER_TYPE
};

struct jc_dispatch {
    const struct jc_expression *when; // NULL in the last: always
    const char *value;                // canonical
};

struct jc_parameter {
    const char *name;
    enum jc_parameter_kind kind;
    const char *const *values; // canonical; what is allowed. NULL, but not for enum: anything
    size_t num_values;
    const char *default_value; // canonical or NULL
    const struct jc_dispatch *dispatch;
    size_t num_dispatch;
    const char *fallback; // canonical or NULL
    unsigned line;
};

// The launch shape. Expressions are NULL where nothing is said: a grid or block of 1, no cluster.
struct jc_launch_shape {
    const struct jc_expression *grid[3];
    const struct jc_expression *block[3];
    const struct jc_expression *cluster[3]; // all three or none
    const struct jc_expression *shared, *workspace;
    // NULL: no; otherwise 1, or a bool parameter.
    const struct jc_expression *cooperative, *programmatic;
};

#define JC_MAX_ARGUMENTS 256
#define JC_MAX_PARAMETERS 64
#define JC_MAX_EXPRESSION_SLOTS (JC_MAX_ARGUMENTS + JC_MAX_PARAMETERS)
#define JC_MAX_VALUES 256
#define JC_MAX_DISPATCH 64
#define JC_MAX_OPTIONS 64
#define JC_MAX_INCLUDE 32
#define JC_MAX_SOURCE_BYTES ((size_t) 4 << 20)

// A file as a compile reads it: its includes are respelled, see runtime/compile/include.h.
struct jc_template_file {
    const char *name; // "" for the source
    const char *text; // of `size` bytes, then a NUL
    size_t size;
};

struct jc_template {
    struct jc_arena arena; // everything below lives here
    const char *name;
    const char *file;      // as given, or NULL
    bool is_in_file;       // it can be read again from `file`, without text, struct or folder
    bool has_front_matter; // the description stands in the source
    const char *base_name; // of the file, or "NAME.cu": the source's name for the compiler
    const char *line_name; // of the file that the `line` fields count in: base_name, or "x.yaml"
    const char *line_text; // that file's text; NULL: the description came as a struct
    const char *dir;       // for includes; NULL: none
    const char *source;
    size_t source_size;
    const char *name_expression; // with its braces, or NULL
    unsigned line; // of name_expression, else of kernel; 0: unknown
    bool portable;
    bool state_per_variant;
    bool pch;
    const char *const *options;
    size_t num_options;
    const char *const *include; // folders, already joined with dir
    size_t num_include;
    // The source, then its own headers, where a cache gave them: then no folder is looked at.
    const struct jc_template_file *files;
    size_t num_files;
    struct jc_parameter *parameters;
    size_t num_parameters;
    struct jc_argument *arguments;
    size_t num_arguments;
    struct jc_launch_shape launch;
    struct jc_description description; // public view, defaults filled in
    // The slots of expressions: arguments first, then parameters; see expression.h.
    // Order in which derived arguments are to be computed, dispatch included: slots.
    const unsigned *order;
    size_t num_order;
};

// The value of an int or bool parameter, or the index of an enum's value in its list: what an
// expression sees. `text` is canonical.
int64_t jc_parameter_number(const struct jc_parameter *parameter, const char *text);

// Brings a value as a person writes it ("0x10", " 16") into its one canonical spelling, allocated
// with malloc. JC_ERROR_INVALID_ARGUMENT: not a value of this parameter; the text lists what is.
enum jc_result jc_parameter_canonical(const struct jc_parameter *parameter, const char *text,
                                      char **canonical, struct jc_error *error);

// Reads a number that fits the argument, an integer or bool: "64", "0x40", "true". NULL on success,
// otherwise what is wrong and what to write, in `buffer` or static.
#define JC_ARGUMENT_MESSAGE_SIZE 160
const char *jc_argument_number(const struct jc_argument *argument, const char *text, size_t length,
                               int64_t *value, char buffer[JC_ARGUMENT_MESSAGE_SIZE]);

// The same for "1:8192" or one number.
const char *jc_argument_range(const struct jc_argument *argument, const char *text, int64_t *min,
                              int64_t *max, char buffer[JC_ARGUMENT_MESSAGE_SIZE]);

// Whether a facet of the argument can enter a key at all. `ignore_annotation`: as if the argument
// had no do_not_specialize.
bool jc_argument_facet_active(const struct jc_argument *argument, const struct jc_facet *facet,
                              bool ignore_annotation);

// How many align facets there are, the largest being facets[*first]: they stand last.
unsigned jc_argument_aligns(const struct jc_argument *argument, unsigned *first);

// The most specific active facet that holds for a value (for a pointer: its address), or none. A
// value facet comes with the value.
struct jc_facet jc_argument_facet(const struct jc_argument *argument, int64_t value,
                                  bool ignore_annotation);

// What a plan takes a pointer for, and beside that whatever else it may be where the template says
// `align: either`: not null, and aligned as much as any facet asks for.
struct jc_facet jc_argument_planned_facet(const struct jc_argument *argument);

#endif
