// A template after its description has been read and checked. Made by template.c; read by plan.c,
// unit.c and, later, the launch path.

#ifndef JC_TEMPLATE_H
#define JC_TEMPLATE_H

#include <jitcache/template.h>

#include "expression.h"

enum jc_type_class {
    JC_CLASS_VOID, // only as what a pointer points to
    JC_CLASS_INTEGER,
    JC_CLASS_FLOAT, // f16, bf16, f32, f64, and the 8-bit e4m3 and e5m2
    JC_CLASS_BOOL,
    JC_CLASS_POINTER,
    JC_CLASS_BYTES // a struct passed by value, of which only the size is known
};

struct jc_type {
    enum jc_type_class type_class;
    unsigned bytes; // of the value: 4 for i32, 8 for a pointer
    bool is_signed; // integers
    // Of what a pointer points to.
    enum jc_type_class element_class;
    unsigned element_bytes; // 0 for void
    bool element_signed;
    bool element_const;
};

enum jc_facet_kind {
    JC_FACET_NONE = 0,
    JC_FACET_VALUE, // n is the value
    JC_FACET_ONE,
    JC_FACET_DIV,   // n divides it
    JC_FACET_ALIGN, // the pointer is a multiple of n, a power of two
    JC_FACET_NULL
};

struct jc_facet {
    enum jc_facet_kind kind;
    int64_t n;
};

// At most one of each kind but div and align, of which each next n is a multiple of the one before:
// so of those that hold the most specific one implies the others, and one per argument is enough.
#define JC_MAX_FACETS 8

struct jc_argument {
    const char *name;
    const char *type_name; // as declared
    struct jc_type type;
    // As declared, most specific first: value, null, one, then div or align from large to small.
    struct jc_facet facets[JC_MAX_FACETS];
    unsigned num_facets;
    bool do_not_specialize;           // drops every facet
    bool do_not_specialize_alignment; // drops div and align
    bool reads_facts;                 // JC_FACT(name) occurs in the source
    const struct jc_expression *derive; // NULL: passed by the caller
    bool has_range;
    int64_t range_min, range_max;
    bool has_typical;
    int64_t typical;
    unsigned line;
};

enum jc_parameter_kind { JC_PARAMETER_INT, JC_PARAMETER_BOOL, JC_PARAMETER_ENUM, JC_PARAMETER_TYPE };

struct jc_dispatch {
    const struct jc_expression *when; // NULL in the last: always
    const char *value;                // canonical
};

struct jc_parameter {
    const char *name;
    enum jc_parameter_kind kind;
    const char *const *values; // enum and type: what is allowed
    size_t num_values;
    const char *default_value; // canonical or NULL
    const struct jc_dispatch *dispatch;
    size_t num_dispatch;
    const char *fallback; // canonical or NULL
    unsigned line;
};

struct jc_template {
    const char *name;
    const char *file;      // as given, or NULL
    const char *base_name; // of the file, or "NAME.cu": what the compiler is told the source is called
    const char *dir;       // for includes; NULL: none
    const char *source;
    size_t source_size;
    const char *name_expression; // with its braces, or NULL
    bool portable;
    bool state_per_variant;
    const char *const *options;
    size_t num_options;
    const char *const *include; // folders, already joined with dir
    size_t num_include;
    struct jc_parameter *parameters;
    size_t num_parameters;
    struct jc_argument *arguments;
    size_t num_arguments;
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

// Whether a facet of the argument can enter a key at all, `without` being an argument whose
// do_not_specialize is ignored.
bool jc_argument_facet_active(const struct jc_argument *argument, const struct jc_facet *facet,
                              bool ignore_annotation);

#endif
