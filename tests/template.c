#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/template/description.h"
#include "runtime/template/template.h"

// A template with a kernel called k and these lines of YAML, which begin in line 3, then the code.
static enum jc_result create(const char *yaml, const char *code, struct jc_template **tmpl,
                             struct jc_error *error)
{
    char *text;
    assert_true(asprintf(&text, "/*jitcache\nkernel: k\n%s\n*/\n%s", yaml, code) > 0);
    enum jc_result result = jc_template_create(
        jc_template_params(.file = "k.cu", .text = text, .text_size = strlen(text)), tmpl, error);
    free(text);
    return result;
}

static struct jc_template *create_ok(const char *yaml, const char *code)
{
    struct jc_template *tmpl;
    struct jc_error error;
    if (create(yaml, code, &tmpl, &error))
        fail_msg("%s\n%s", yaml, error.text);
    return tmpl;
}

static void expect_refused(const char *yaml, enum jc_result expected, const char *message)
{
    struct jc_template *tmpl;
    struct jc_error error = {{0}};
    enum jc_result result = create(yaml, "", &tmpl, &error);
    if (result != expected || !strstr(error.text, message))
        fail_msg("%s\n%d, \"%s\" without \"%s\"", yaml, result, error.text, message);
    assert_null(tmpl);
}

// --- what is refused -----------------------------------------------------------------------------

#define ARGUMENT(fields) "arguments:\n  - {name: n, " fields "}"
#define PARAMETER(fields) "parameters:\n  - {name: T, " fields "}"

static void a_wrong_description_is_refused_with_place_and_advice(void **state)
{
    (void) state;
    static const struct {
        const char *yaml, *message;
    } cases[] = {
        // The kernel.
        {"arch: sm_90a", "k.cu:3: arch: 'sm_90a' is not known here; write exact or portable"},
        {"arch: portabel", "did you mean 'portable'?"},
        {"state: shared", "k.cu:3: state: 'shared' is not known here; write none or per_variant"},
        {"pch: yes", "k.cu:3: pch: 'yes' is not known here; write false or true"},
        {"name_expression: k<{T}>", "k.cu:3: name_expression: 'T' is not a parameter; declare it"},
        {"name_expression: k<{T>", "a '{' without a '}'"},
        {"name_expression: k<T}>", "a '}' without a '{'"},
        {"options:\n  - -lineinfo\n  - -Iinclude",
         "k.cu:5: options: '-Iinclude': folders for #include stand in the field `include`"},
        {"options: [lineinfo]", "an option begins with '-'"},
        {"options: [--include-path=x]", "stand in the field `include`"},
        {"options: [-arch=sm_90]", "the architecture is chosen for each device"},
        {"options: [--gpu-architecture=sm_90]", "the architecture is chosen for each device"},
        {"options: [\"--gpu-architecture sm_90\"]", "the architecture is chosen for each device"},
        {"options: [-DJC_PARAM_x=1]", "macros that begin with JC_ or JITCACHE are jitcache's own"},
        {"options: [\"-D JITCACHE\"]", "macros that begin with JC_ or JITCACHE are jitcache's own"},
        {"options: [--define-macro=JC_X]", "macros that begin with JC_"},
        {"options: [-UJITCACHE]", "macros that begin with JC_"},
        {"options: [-D]", "write the macro right after -D"},
        {"options: [--pre-include=a.h]", "write the #include in the source"},
        {"options: [-rdc=true]", "kernels are compiled whole"},
        {"options: [--frandom-seed=1]", "the seed is fixed"},
        {"options: [--optix-ir]", "a kernel is machine code"},
        {"options: [-fdevice-syntax-only]", "a check of the syntax makes no kernel"},
        {"options: [--pch]", "precompiled headers are made and kept by jitcache; write pch: true"},
        {"options: [-create-pch=x]", "write pch: true"},
        {"options: [-fdevice-time-trace=x.json]", "timings are taken by jitcache"},
        {"options: [-std=c++03]", "templates are C++11 or newer"},
        // Parameters.
        {"parameters: [{type: int}]", "k.cu:3: parameters[0]: name: missing; every one needs a "
                                      "name"},
        {"parameters: [{name: 2x}]", "parameters[0] (2x): name: '2x' is not a C++ name"},
        {"parameters: [{name: while}]", "'while' is a keyword of C++"},
        {"parameters: [{name: T}, {name: T}]",
         "parameters[1] (T): name: parameters[0] has the same"},
        {PARAMETER("type: i32"), "k.cu:4: parameters[0] (T): type: 'i32' is not known here; write "
                                 "int, bool, enum or type"},
        {PARAMETER("type: enum"), "parameters[0] (T): values: an enum lists its values"},
        {PARAMETER("type: enum, values: []"), "an enum lists its values"},
        {PARAMETER("type: bool, values: [true]"), "a bool is true or false; remove the list"},
        {PARAMETER("type: enum, values: [a, b, a]"), "'a' is listed twice; remove one"},
        {PARAMETER("type: enum, values: [a-b]"), "'a-b' is no value for T; write letters, digits"},
        {PARAMETER("default: 010"), "parameters[0] (T): default: '010' is no value for T: a number "
                                    "with a leading zero could be octal"},
        {PARAMETER("default: 1_000"), "'1_000' is no value for T: not a whole number"},
        {PARAMETER("type: bool, default: yes"), "'yes' is no value for T; write true or false"},
        {PARAMETER("type: enum, values: [fp32, ue8m0], default: fp23"),
         "'fp23' is not a value of T; did you mean 'fp32'?; its values are fp32, ue8m0"},
        {PARAMETER("type: type, default: float;"), "'float;' is no C++ type for T"},
        {PARAMETER("type: type, default: \"a\\\\b\""), "is no C++ type for T"},
        {PARAMETER("type: type, values: [float, double], default: int"),
         "'int' is not a value of T"},
        {PARAMETER("values: [1, 2], default: 3"), "'3' is not a value of T"},
        {"parameters:\n  - name: T\n    dispatch:\n      - {when: n < 1, value: 1}\n"
         "      - {when: n < 2, value: 2}\nfallback: {T: 1}",
         "k.cu:7: parameters[0] (T): dispatch: no value where no `when` holds; end the list"},
        {PARAMETER("dispatch: [{value: 1}, {value: 2}]") "\nfallback: {T: 1}",
         "case 1 has no `when`, so that the ones after it are never reached"},
        {PARAMETER("dispatch: [{when: 1}, {value: 2}]") "\nfallback: {T: 1}",
         "case 1 has no value"},
        {PARAMETER("dispatch: [{value: x}]") "\nfallback: {T: 1}", "'x' is no value for T"},
        {PARAMETER("dispatch: [{value: 1}]"),
         "parameters[0] (T): fallback: missing; say which value serves every call, at the top "
         "level: fallback: {T: VALUE}"},
        {PARAMETER("type: int") "\nfallback: {T: 1}", "only a parameter with `dispatch` has one"},
        {PARAMETER("default: 1, dispatch: [{value: 1}]") "\nfallback: {T: 1}",
         "`dispatch` chooses the value; remove the default"},
        {PARAMETER("dispatch: [{when: m < 1, value: 1}, {value: 2}]") "\nfallback: {T: 1}",
         "k.cu:4: parameters[0] (T): dispatch[0].when: column 1 of 'm < 1': unknown name 'm'"},
        {"parameters:\n  - {name: a_b, type: enum, values: [c]}\n"
         "  - {name: a, type: enum, values: [b_c]}",
         "JC_VALUE_a_b_c would mean two things"},
        // Arguments.
        {"arguments: [{type: i32}]", "k.cu:3: arguments[0]: name: missing"},
        {"arguments: [{name: n}]", "k.cu:3: arguments[0] (n): type: missing; write a type such "
                                   "as i32"},
        {"arguments: [{name: n, type: i32}, {name: n, type: i32}]",
         "arguments[1] (n): name: arguments[0] has the same name"},
        {"parameters: [{name: n}]\narguments:\n  - {name: n, type: i32}",
         "k.cu:5: arguments[0] (n): name: a parameter has the same name; rename one of them"},
        {PARAMETER("type: type") "\narguments: [{name: n, type: const T*}]",
         "arguments[0] (n): type: 'T' is a parameter, and every variant takes the same arguments"},
        {ARGUMENT("type: int"), "k.cu:4: arguments[0] (n): type: 'int' is spelled i32 here"},
        {ARGUMENT("type: float*"), "'float' is spelled f32 here"},
        {ARGUMENT("type: i33"), "unknown type 'i33'; did you mean 'i32'?; types are i8 u8 "},
        {ARGUMENT("type: void"), "nothing can be passed as void"},
        {ARGUMENT("type: f32**"), "a pointer to pointers; write void*"},
        {ARGUMENT("type: const i32"), "const says something of what a pointer points to"},
        {ARGUMENT("type: \"bytes[0]\""), "the size of a struct is a number from 1 to 32764"},
        {ARGUMENT("type: \"bytes[x]\""), "the size of a struct is a number"},
        {ARGUMENT("type: \"bytes[8]*\""), "a pointer to a struct; write void*"},
        {ARGUMENT("type: i32, do_not_specialize: treu"),
         "k.cu:4: arguments[0] (n): do_not_specialize: 'treu' is not known here; did you mean "
         "'true'?; write false, true or alignment"},
        {ARGUMENT("type: i32, do_not_specialize: yes"), "'yes' is not known here"},
        {ARGUMENT("type: i32, align: either"),
         "k.cu:4: arguments[0] (n): align: only pointers are aligned, not i32; remove it"},
        {ARGUMENT("type: f32*, align: 16"), "'16' is not known here; write aligned or either"},
        {ARGUMENT("type: f32*, align: either, facets: [null]"),
         "align: the argument has no align facet to tell calls apart by; add {align: 16}"},
        {ARGUMENT("type: f32*, align: either, do_not_specialize: true"),
         "align: do_not_specialize: true makes one variant of both; remove one of the two"},
        {ARGUMENT("type: f32*, align: either, do_not_specialize: alignment"),
         "do_not_specialize: alignment makes one variant of both"},
        {ARGUMENT("type: i32, facets: [odd]"), "facets: 'odd': unknown facet; facets are value"},
        {ARGUMENT("type: i32, facets: [div]"), "'div': this facet has a number; write {div: 16}"},
        {ARGUMENT("type: i32, facets: [{div: 1}]"), "the number of a facet is from 2"},
        {ARGUMENT("type: i32, facets: [{div: 010}]"), "could be octal"},
        {ARGUMENT("type: i32, facets: [{one: 1}]"), "this facet takes no number"},
        {ARGUMENT("type: i32, facets: [{align: 16}]"), "only pointers are aligned; write {div: N}"},
        {ARGUMENT("type: i32, facets: [null]"), "only pointers are null"},
        {ARGUMENT("type: void*, facets: [{div: 16}]"), "pointers are aligned; write {align: N}"},
        {ARGUMENT("type: void*, facets: [{align: 24}]"), "an alignment is a power of two"},
        {ARGUMENT("type: void*, facets: [value]"), "a pointer's value is not known before a call"},
        {ARGUMENT("type: bool, facets: [one]"), "only integers are one"},
        {ARGUMENT("type: f32, facets: [value]"), "arguments of this type carry no facets"},
        {ARGUMENT("type: i32, facets: [one, one]"), "the same facet twice"},
        {ARGUMENT("type: i32, facets: [{div: 16}, {div: 24}]"), "each must divide the next larger"},
        {ARGUMENT("type: i32, range: [8, 1]"), "range: '8:1': the range is empty"},
        {ARGUMENT("type: i32, range: [1, 0x80000000]"),
         "2147483648 does not fit in i32; write a number from -2147483648 to 2147483647"},
        {ARGUMENT("type: u8, range: [-1, 8]"),
         "-1 does not fit in u8; write a number from 0 to 255"},
        {ARGUMENT("type: i32, range: [1, 010]"), "could be octal"},
        {ARGUMENT("type: i32, range: [1, many]"), "not a whole number"},
        {ARGUMENT("type: f32, range: [1, 2]"), "only integers and bools have values"},
        {ARGUMENT("type: i8, typical: 128"), "typical: '128': 128 does not fit in i8"},
        {ARGUMENT("type: f32, derive: 1"), "derive: only integers and bools are derived, not f32"},
        {ARGUMENT("type: i32, derive: 1, range: [1, 2]"), "a derived argument follows from others"},
        {ARGUMENT("type: i32, derive: 1, typical: 2"), "a derived argument follows from others"},
        {ARGUMENT("type: i32, derive: m + 1"),
         "k.cu:4: arguments[0] (n): derive: column 1 of 'm + 1': unknown name 'm'"},
        {"arguments:\n  - name: p\n    type: void*\n  - name: n\n    type: i32\n    derive: p + 1",
         "k.cu:8: arguments[1] (n): derive: column 1 of 'p + 1': 'p' is a pointer"},
        // Circles.
        {ARGUMENT("type: i32, derive: n + 1"),
         "arguments[0] (n): derive: follows from itself: n -> n; break the circle"},
        {"arguments:\n  - {name: a, type: i32, derive: b}\n  - {name: b, type: i32, derive: c}\n"
         "  - {name: c, type: i32, derive: b}",
         "k.cu:5: arguments[1] (b): derive: follows from itself: b -> c -> b"},
        {PARAMETER("dispatch: [{when: n < 1, value: 1}, {value: 2}]")
         "\nfallback: {T: 1}\narguments: [{name: n, type: i32, derive: T}]",
         "follows from itself: n -> T -> n"},
        // Launch.
        {"launch: {grid: m}", "k.cu:3: launch.grid: column 1 of 'm': unknown name 'm'"},
        {"launch:\n  block: [0]", "k.cu:4: launch.block: 0 is not between 1 and 1024"},
        {"launch: {block: [32, 33]}", "1056 threads in a block; no more than 1024"},
        {"launch: {grid: [-1]}", "launch.grid: -1 is not between 0 and"},
        {"launch: {cluster: [32]}", "launch.cluster: 32 is not between 1 and 16"},
        {"launch: {shared: -4}", "launch.shared: -4 is not between 0 and"},
        {"launch: {cooperative: maybe}",
         "k.cu:3: launch.cooperative: 'maybe' is not known here; write true, false or the name of "
         "a bool parameter"},
        {"launch: {programmatic: tru}", "'tru' is not known here; did you mean 'true'?; write"},
        {"parameters: [{name: overlap, type: bool}]\nlaunch:\n  programmatic: overlop",
         "k.cu:5: launch.programmatic: 'overlop' is not known here; did you mean 'overlap'?; write "
         "true, false or the name of a bool parameter"},
        {PARAMETER("type: bool") "\nlaunch: {programmatic: \"!T\"}", "'!T' is not known here"},
        {PARAMETER("type: int") "\nlaunch: {programmatic: T}",
         "k.cu:5: launch.programmatic: the parameter 'T' is of type int; write true, false or the "
         "name of one of type bool"},
        {PARAMETER("type: type") "\nlaunch: {cooperative: T}",
         "launch.cooperative: the parameter 'T' is of type type; write"},
        {ARGUMENT("type: bool") "\nlaunch: {cooperative: n}",
         "k.cu:5: launch.cooperative: 'n' is an argument, and each variant is launched in one way; "
         "write the name of a bool parameter, whose `dispatch` can read arguments"},
        {"launch: {grid: [1 / 0]}", "launch.grid: column 3 of '1 / 0': 1 / 0 divides by zero"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refused(cases[i].yaml, JC_ERROR_TEMPLATE, cases[i].message);
}

static void a_name_of_the_kernel_is_required_and_checked(void **state)
{
    (void) state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"/*jitcache\narch: exact\n*/", "kernel: missing; write the name of the __global__ "
                                        "function"},
        {"/*jitcache\nkernel: a::b\n*/", "x.cu:2: kernel: 'a::b' is not a C++ name"},
        {"/*jitcache\nkernel: \" \"\n*/", "x.cu:2: kernel: empty"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_template *tmpl;
        struct jc_error error = {{0}};
        assert_int_equal(jc_template_create(jc_template_params(.file = "x.cu",
                                                               .text = cases[i].text,
                                                               .text_size = strlen(cases[i].text)),
                                            &tmpl, &error),
                         JC_ERROR_TEMPLATE);
        if (!strstr(error.text, cases[i].message))
            fail_msg("\"%s\" without \"%s\"", error.text, cases[i].message);
    }
}

static void counts_are_limited(void **state)
{
    (void) state;
    struct jc_argument_description arguments[JC_MAX_ARGUMENTS + 1];
    memset(arguments, 0, sizeof(arguments));
    char names[JC_MAX_ARGUMENTS + 1][8];
    for (size_t i = 0; i <= JC_MAX_ARGUMENTS; i++) {
        snprintf(names[i], sizeof(names[i]), "a%zu", i);
        arguments[i].name = names[i];
        arguments[i].type = "i32";
    }
    struct jc_description description = {.kernel = "k", .arguments = arguments,
                                         .num_arguments = JC_MAX_ARGUMENTS + 1};
    struct jc_template *tmpl;
    struct jc_error error;
    const struct jc_template_params params = {.text = ";", .description = &description};
    assert_int_equal(jc_template_create(&params, &tmpl, &error), JC_ERROR_LIMIT);
    assert_string_equal(error.text, "arguments: 257 of them, more than 256");
    description.num_arguments--;
    assert_int_equal(jc_template_create(&params, &tmpl, &error), JC_OK);
    jc_template_destroy(&tmpl);
}

static void misuse_is_an_invalid_argument(void **state)
{
    (void) state;
    struct jc_template *tmpl = (struct jc_template *) 1;
    struct jc_error error;
    struct jc_description description = {.kernel = "k"};
    assert_int_equal(jc_template_create(NULL, &tmpl, &error), JC_ERROR_INVALID_ARGUMENT);
    assert_null(tmpl);
    assert_int_equal(jc_template_create(jc_template_params(.dir = "."), &tmpl, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_template_create(jc_template_params(.file = "k.cu"), NULL, NULL),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_template_create(&(struct jc_template_params){.size = 1, .text = ";"}, &tmpl,
                                        &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_template_create(jc_template_params(.file = "k.yaml",
                                                           .description = &description),
                                        &tmpl, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_int_equal(jc_template_create(jc_template_params(.text = "",
                                                           .description = &description),
                                        &tmpl, &error),
                     JC_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "the text is empty"));
    jc_template_destroy(NULL);
    jc_template_destroy(&tmpl);
}

static void a_text_without_a_size_ends_at_its_nul(void **state)
{
    (void) state;
    static const char text[] = "/*jitcache\nkernel: k\n*/\nint x;\n";
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = text), &tmpl, &error))
        fail_msg("%s", error.text);
    size_t size;
    assert_string_equal(jc_template_source(tmpl, &size), text);
    assert_int_equal(size, strlen(text));
    jc_template_destroy(&tmpl);
}

static void a_list_that_is_not_there_is_an_invalid_argument(void **state)
{
    (void) state;
    static const struct jc_parameter_description
        values = {.name = "v", .type = "enum", .num_values = 1},
        bools = {.name = "b", .type = "bool", .num_values = 1},
        dispatch = {.name = "d", .num_dispatch = 1};
    static const struct jc_argument_description facets = {
        .name = "n", .type = "i32", .num_facets = 1};
    static const struct {
        const char *field;
        struct jc_description description;
    } cases[] = {
        {"options: ", {.kernel = "k", .num_options = 1}},
        {"include: ", {.kernel = "k", .num_include = 1}},
        {"parameters: ", {.kernel = "k", .num_parameters = 1}},
        {"arguments: ", {.kernel = "k", .num_arguments = 1}},
        {"values: ", {.kernel = "k", .parameters = &values, .num_parameters = 1}},
        {"values: ", {.kernel = "k", .parameters = &bools, .num_parameters = 1}},
        {"dispatch: ", {.kernel = "k", .parameters = &dispatch, .num_parameters = 1}},
        {"facets: ", {.kernel = "k", .arguments = &facets, .num_arguments = 1}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_template *tmpl;
        struct jc_error error;
        assert_int_equal(jc_template_create(jc_template_params(.text = ";", .description =
                                                                   &cases[i].description),
                                            &tmpl, &error),
                         JC_ERROR_INVALID_ARGUMENT);
        if (!strstr(error.text, cases[i].field) || !strstr(error.text, "the list is NULL"))
            fail_msg("%s: %s", cases[i].field, error.text);
    }
}

// --- what is made --------------------------------------------------------------------------------

static void types_are_read_and_spelled_in_one_way(void **state)
{
    (void) state;
    static const struct {
        const char *written, *name;
        struct jc_type type;
    } cases[] = {
        {"i8", "i8", {JC_CLASS_INTEGER, 1, true}},
        {"u16", "u16", {JC_CLASS_INTEGER, 2, false}},
        {" i32 ", "i32", {JC_CLASS_INTEGER, 4, true}},
        {"u64", "u64", {JC_CLASS_INTEGER, 8, false}},
        {"f16", "f16", {JC_CLASS_FLOAT, 2, true}},
        {"bf16", "bf16", {JC_CLASS_FLOAT, 2, true}},
        {"f64", "f64", {JC_CLASS_FLOAT, 8, true}},
        {"e5m2", "e5m2", {JC_CLASS_FLOAT, 1, true}},
        {"bool", "bool", {JC_CLASS_BOOL, 1, false}},
        {"bytes[64]", "bytes[64]", {JC_CLASS_BYTES, 64, false}},
        {"bytes[ 0x80 ]", "bytes[128]", {JC_CLASS_BYTES, 128, false}},
        {"void*", "void*", {JC_CLASS_POINTER, 8, false, JC_CLASS_VOID, 0, false, false}},
        {"const  bf16 *", "const bf16*",
         {JC_CLASS_POINTER, 8, false, JC_CLASS_FLOAT, 2, true, true}},
        {"const void*", "const void*", {JC_CLASS_POINTER, 8, false, JC_CLASS_VOID, 0, false, true}},
        {"u8*", "u8*", {JC_CLASS_POINTER, 8, false, JC_CLASS_INTEGER, 1, false, false}},
        {"bool*", "bool*", {JC_CLASS_POINTER, 8, false, JC_CLASS_BOOL, 1, false, false}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_type type, expected = cases[i].type;
        char name[JC_TYPE_NAME_SIZE], buffer[JC_TYPE_MESSAGE_SIZE];
        assert_null(jc_type_parse(cases[i].written, &type, name, buffer));
        assert_string_equal(name, cases[i].name);
        assert_int_equal(type.type_class, expected.type_class);
        assert_int_equal(type.bytes, expected.bytes);
        assert_int_equal(type.is_signed, expected.is_signed);
        assert_int_equal(type.element_class, expected.element_class);
        assert_int_equal(type.element_bytes, expected.element_bytes);
        assert_int_equal(type.element_signed, expected.element_signed);
        assert_int_equal(type.element_const, expected.element_const);
    }
}

static void type_limits_are_those_of_the_type(void **state)
{
    (void) state;
    static const struct {
        const char *type;
        int64_t min, max;
    } cases[] = {{"i8", INT8_MIN, INT8_MAX},    {"u8", 0, UINT8_MAX},
                 {"i16", INT16_MIN, INT16_MAX}, {"u16", 0, UINT16_MAX},
                 {"i32", INT32_MIN, INT32_MAX}, {"u32", 0, UINT32_MAX},
                 {"i64", INT64_MIN, INT64_MAX}, {"u64", 0, INT64_MAX},
                 {"bool", 0, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct jc_type type;
        char name[JC_TYPE_NAME_SIZE], buffer[JC_TYPE_MESSAGE_SIZE];
        int64_t min, max;
        assert_null(jc_type_parse(cases[i].type, &type, name, buffer));
        jc_type_limits(&type, &min, &max);
        assert_true(min == cases[i].min && max == cases[i].max);
    }
}

static void facets_follow_the_type_unless_they_are_declared(void **state)
{
    (void) state;
    struct jc_template *tmpl = create_ok(
        "arguments:\n"
        "  - {name: n, type: i32}\n"
        "  - {name: p, type: const f32*}\n"
        "  - {name: x, type: f32}\n"
        "  - {name: b, type: bool}\n"
        "  - {name: s, type: \"bytes[8]\"}\n"
        "  - {name: none, type: i32, facets: []}\n"
        "  - {name: some, type: i64, facets: [{div: 8}, one, div: 16, \"value\"]}\n"
        "  - {name: q, type: void*, facets: [{align: 4}, \"align: 0x80\", null]}\n"
        "  - {name: flag, type: bool, facets: [value]}\n",
        "");
    static const struct {
        unsigned count;
        struct jc_facet facets[4];
    } expected[] = {
        {2, {{JC_FACET_ONE, 0}, {JC_FACET_DIV, 16}}},
        {1, {{JC_FACET_ALIGN, 16}}},
        {0}, {0}, {0}, {0},
        {4, {{JC_FACET_VALUE, 0}, {JC_FACET_ONE, 0}, {JC_FACET_DIV, 16}, {JC_FACET_DIV, 8}}},
        {3, {{JC_FACET_NULL, 0}, {JC_FACET_ALIGN, 128}, {JC_FACET_ALIGN, 4}}},
        {1, {{JC_FACET_VALUE, 0}}},
    };
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        assert_int_equal(tmpl->arguments[i].num_facets, expected[i].count);
        for (unsigned j = 0; j < expected[i].count; j++) {
            assert_int_equal(tmpl->arguments[i].facets[j].kind, expected[i].facets[j].kind);
            assert_int_equal(tmpl->arguments[i].facets[j].n, expected[i].facets[j].n);
        }
    }
    assert_string_equal(tmpl->description.arguments[6].facets[2], "div: 16");
    jc_template_destroy(&tmpl);
}

static void the_source_decides_which_facts_are_read(void **state)
{
    (void) state;
    struct jc_template *tmpl = create_ok(
        "arguments: [{name: a, type: i32}, {name: b, type: i32}, {name: c, type: i32},\n"
        "            {name: d, type: i32}, {name: e, type: i32}, {name: f, type: i32},\n"
        "            {name: g, type: i32}, {name: h, type: i32}]",
        "// JC_FACT(a);\n/* JC_FACT(b); */\nconst char *s = \"JC_FACT(c);\";\n"
        "JC_FACT(d);\nJC_FACT /* spaced */ (\n  e\n);\nR\"(JC_FACT(f))\";\nMY_JC_FACT(g);\n"
        "JC_FACT(hh); int x = 1'0; JC_FACT(h) \n");
    static const bool expected[] = {false, false, false, true, true, false, false, true};
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(jc_template_reads_facts(tmpl, i), expected[i]);
    assert_false(jc_template_reads_facts(tmpl, 8));
    jc_template_destroy(&tmpl);
}

static void annotations_switch_facets_off(void **state)
{
    (void) state;
    struct jc_template *tmpl = create_ok(
        "arguments:\n"
        "  - {name: all, type: i32}\n"
        "  - {name: aligned, type: i32, do_not_specialize: alignment}\n"
        "  - {name: nothing, type: i32, do_not_specialize: true}\n"
        "  - {name: unread, type: i32}\n",
        "JC_FACT(all) JC_FACT(aligned) JC_FACT(nothing)");
    static const struct {
        size_t argument;
        int64_t value;
        bool ignored;
        enum jc_facet_kind kind;
    } cases[] = {
        {0, 1, false, JC_FACET_ONE}, {0, 2, false, JC_FACET_NONE}, {0, 0, false, JC_FACET_DIV},
        {0, -16, false, JC_FACET_DIV}, {1, 1, false, JC_FACET_ONE}, {1, 16, false, JC_FACET_NONE},
        {1, 16, true, JC_FACET_DIV}, {2, 1, false, JC_FACET_NONE}, {2, 1, true, JC_FACET_ONE},
        {2, 16, false, JC_FACET_NONE}, {3, 1, false, JC_FACET_NONE}, {3, 1, true, JC_FACET_NONE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(jc_argument_facet(&tmpl->arguments[cases[i].argument], cases[i].value,
                                           cases[i].ignored)
                             .kind,
                         cases[i].kind);
    jc_template_destroy(&tmpl);
}

static void values_of_parameters_have_one_spelling(void **state)
{
    (void) state;
    struct jc_template *tmpl = create_ok(
        "parameters:\n"
        "  - {name: i}\n"
        "  - {name: b, type: bool}\n"
        "  - {name: e, type: enum, values: [fp32, ue8m0]}\n"
        "  - {name: t, type: type}\n",
        "");
    static const struct {
        size_t parameter;
        const char *written, *canonical;
        int64_t number;
    } cases[] = {
        {0, " 0x10 ", "16", 16}, {0, "+7", "7", 7}, {0, "-0", "0", 0}, {0, "-5", "-5", -5},
        {1, "1", "true", 1}, {1, "false", "false", 0}, {2, "ue8m0", "ue8m0", 1},
        {3, " unsigned   int ", "unsigned int", 0}, {3, "ns :: tile< 4, float * >",
                                                     "ns::tile<4,float*>", 0},
        {3, "const float", "const float", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct jc_parameter *parameter = &tmpl->parameters[cases[i].parameter];
        char *canonical;
        struct jc_error error;
        assert_int_equal(jc_parameter_canonical(parameter, cases[i].written, &canonical, &error),
                         JC_OK);
        assert_string_equal(canonical, cases[i].canonical);
        assert_int_equal(jc_parameter_number(parameter, canonical), cases[i].number);
        free(canonical);
    }
    jc_template_destroy(&tmpl);
}

static void what_follows_from_what_is_put_in_order(void **state)
{
    (void) state;
    struct jc_template *tmpl = create_ok(
        "parameters:\n"
        "  - {name: T, dispatch: [{when: c < 8, value: 1}, {value: 2}]}\n"
        "arguments:\n"
        "  - {name: a, type: i32, derive: T * b}\n"
        "  - {name: b, type: i32, derive: c + 1}\n"
        "  - {name: c, type: i32, derive: n * 2}\n"
        "  - {name: n, type: i32}\n"
        "fallback: {T: 1}\n",
        "");
    // Slots: a 0, b 1, c 2, n 3, T 4.
    static const unsigned expected[] = {2, 4, 1, 0};
    assert_int_equal(tmpl->num_order, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(tmpl->order[i], expected[i]);
    jc_template_destroy(&tmpl);
}

static const char full_yaml[] =
    "name_expression: \"k<{T}, {N}>\"\n"
    "arch: portable\n"
    "state: per_variant\n"
    "pch: true\n"
    "options: [\" --use_fast_math \", -DX=\"a b\"]\n"
    "include: [inc, /usr/include]\n"
    "parameters:\n"
    "  - {name: T, type: type, values: [float, \"unsigned  int\"], default: float}\n"
    "  - {name: N, dispatch: [{when: \"n <= 0x40 && mode == fast\", value: 0x1}, {value: 4}]}\n"
    "  - {name: mode, type: enum, values: [slow, fast], default: fast}\n"
    "  - {name: overlap, type: bool, default: false}\n"
    "fallback: {N: 0x1}\n"
    "arguments:\n"
    "  - {name: p, type: const  bf16 *, facets: [null, {align: 128}], align: either}\n"
    "  - {name: n, type: i32, range: [1, 0x2000], do_not_specialize: alignment}\n"
    "  - {name: m, type: i64, derive: \"ceildiv(n, N)\", facets: []}\n"
    "  - {name: h, type: u8, typical: 0x10, do_not_specialize: true}\n"
    "launch: {grid: [m, h], block: 128, cluster: [2], shared: N * 1024, programmatic: overlap}\n";

static void a_description_comes_back_from_its_canonical_yaml(void **state)
{
    (void) state;
    struct jc_template *first = create_ok(full_yaml, "JC_FACT(n)");
    char *canonical = jc_description_yaml(&first->description);
    assert_non_null(canonical);
    char *body = strchr(canonical, '\n'); // without the kernel, which create() writes
    struct jc_template *second = create_ok(body, "JC_FACT(n)");
    char *again = jc_description_yaml(&second->description);
    assert_string_equal(again, canonical);
    assert_non_null(strstr(canonical, "options: [\"--use_fast_math\", \"-DX=\\\"a b\\\"\"]"));
    assert_non_null(strstr(canonical, "type: \"const bf16*\""));
    assert_non_null(strstr(canonical, "range: \"1:8192\""));
    assert_non_null(strstr(canonical, "facets: []"));
    assert_non_null(strstr(canonical, "align: \"either\""));
    assert_non_null(strstr(canonical, "cluster: [\"2\", \"1\", \"1\"]"));
    assert_non_null(strstr(canonical, "cooperative: \"false\""));
    assert_non_null(strstr(canonical, "programmatic: \"overlap\""));

    // The struct goes through the same checks as the text.
    struct jc_template *third;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = "JC_FACT(n)", .text_size = 10, .dir = ".",
                                              .description = &first->description),
                           &third, &error))
        fail_msg("%s", error.text);
    char *from_struct = jc_description_yaml(&third->description);
    assert_string_equal(from_struct, canonical);
    assert_string_equal(third->base_name, "k.cu");
    assert_int_equal(third->num_include, 2);
    assert_string_equal(third->include[0], "./inc");
    assert_string_equal(third->include[1], "/usr/include");
    assert_true(third->portable && third->state_per_variant && third->launch.programmatic);
    assert_true(first->pch && second->pch && third->pch);
    free(from_struct);
    free(again);
    free(canonical);
    jc_template_destroy(&third);
    jc_template_destroy(&second);
    jc_template_destroy(&first);
}

static void expect_attribute(const char *said, const char *shown, bool constant, size_t uses)
{
    const struct jc_parameter_description parameter = {.name = "overlap", .type = "bool"};
    const struct jc_description description = {
        .kernel = "k", .parameters = &parameter, .num_parameters = 1,
        .launch = {.cooperative = said, .programmatic = said}};
    struct jc_template *tmpl;
    struct jc_error error;
    int64_t value;
    if (jc_template_create(jc_template_params(.text = ";", .description = &description), &tmpl,
                           &error))
        fail_msg("%s", error.text);
    assert_string_equal(jc_template_description(tmpl)->launch.cooperative, shown);
    assert_string_equal(jc_template_description(tmpl)->launch.programmatic, shown);
    const struct jc_expression *both[] = {tmpl->launch.cooperative, tmpl->launch.programmatic};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(both[i] != NULL, constant || uses > 0);
        if (both[i])
            assert_int_equal(both[i]->num_uses, uses);
        if (constant)
            assert_true(jc_expression_is_constant(both[i], &value) && value == 1);
        if (uses > 0)
            assert_int_equal(both[i]->uses[0], 0);
    }
    jc_template_destroy(&tmpl);
}

static void a_launch_attribute_is_a_word_or_a_bool_parameter(void **state)
{
    (void) state;
    expect_attribute(NULL, "false", false, 0);
    expect_attribute("false", "false", false, 0);
    expect_attribute(" true", "true", true, 0);
    expect_attribute("overlap ", "overlap", false, 1);

    const struct jc_description description = {.kernel = "k", .launch = {.programmatic = "yes"}};
    struct jc_template *tmpl;
    struct jc_error error;
    assert_int_equal(jc_template_create(jc_template_params(.text = ";",
                                                           .description = &description),
                                        &tmpl, &error),
                     JC_ERROR_TEMPLATE);
    assert_string_equal(error.text, "launch.programmatic: 'yes' is not known here; write true, "
                                    "false or the name of a bool parameter");
}

static void precompiled_headers_are_a_choice(void **state)
{
    (void) state;
    static const char *const without[] = {"", "pch: false"};
    char *canonical[2];
    for (size_t i = 0; i < 2; i++) {
        struct jc_template *tmpl = create_ok(without[i], "");
        assert_false(tmpl->pch);
        assert_string_equal(jc_template_description(tmpl)->pch, "false");
        canonical[i] = jc_description_yaml(&tmpl->description);
        assert_null(strstr(canonical[i], "pch"));
        jc_template_destroy(&tmpl);
    }
    assert_string_equal(canonical[0], canonical[1]);
    free(canonical[0]);
    free(canonical[1]);
}

static void a_struct_is_refused_with_the_path_of_the_field(void **state)
{
    (void) state;
    struct jc_argument_description arguments[] = {
        {.name = "n", .type = "i32"}, {.name = "m", .type = "i32", .derive = "n / 0"}};
    const struct jc_description description = {
        .kernel = "k", .arguments = arguments, .num_arguments = 2};
    struct jc_template_params params = {.text = ";", .description = &description};
    struct jc_template *tmpl;
    struct jc_error error;
    arguments[1].derive = "n +";
    assert_int_equal(jc_template_create(&params, &tmpl, &error), JC_ERROR_TEMPLATE);
    assert_string_equal(error.text, "arguments[1] (m): derive: column 4 of 'n +': the expression "
                                    "ends where a number, a name or '(' is expected");
    arguments[1].line = 77;
    params.file = "generator.py";
    assert_int_equal(jc_template_create(&params, &tmpl, &error), JC_ERROR_TEMPLATE);
    assert_non_null(strstr(error.text, "generator.py:77: arguments[1] (m): derive: "));
    arguments[1].derive = "n\n+ 1";
    assert_int_equal(jc_template_create(&params, &tmpl, &error), JC_ERROR_TEMPLATE);
    assert_non_null(strstr(error.text, "derive: a control character"));
    arguments[1].derive = "n + \xc3";
    assert_int_equal(jc_template_create(&params, &tmpl, &error), JC_ERROR_TEMPLATE);
    assert_non_null(strstr(error.text, "derive: not UTF-8"));
    params.text = "/*jitcache\nkernel: k\n*/";
    params.text_size = strlen(params.text);
    assert_int_equal(jc_template_create(&params, &tmpl, &error), JC_ERROR_TEMPLATE);
    assert_non_null(strstr(error.text, "front matter in a source that a struct describes already"));
}

static void everything_given_is_copied(void **state)
{
    (void) state;
    char kernel[] = "k", name[] = "n", type[] = "i32", text[] = "JC_FACT(n);", file[] = "a/x.cu";
    struct jc_argument_description argument = {.name = name, .type = type};
    struct jc_description description = {
        .kernel = kernel, .arguments = &argument, .num_arguments = 1};
    struct jc_template *tmpl;
    assert_int_equal(jc_template_create(jc_template_params(.file = file, .text = text,
                                                           .text_size = strlen(text),
                                                           .description = &description),
                                        &tmpl, NULL),
                     JC_OK);
    memset(kernel, 'X', 1);
    memset(name, 'X', 1);
    memset(type, 'X', 3);
    memset(text, 'X', 5);
    memset(file, 'X', 5);
    memset(&argument, 0, sizeof(argument));
    size_t size;
    assert_string_equal(jc_template_name(tmpl), "k");
    assert_string_equal(jc_template_file(tmpl), "a/x.cu");
    assert_string_equal(jc_template_source(tmpl, &size), "JC_FACT(n);");
    assert_int_equal(size, 11);
    assert_string_equal(tmpl->base_name, "x.cu");
    assert_string_equal(tmpl->dir, "a");
    const struct jc_description *shown = jc_template_description(tmpl);
    assert_string_equal(shown->arguments[0].name, "n");
    assert_string_equal(shown->arguments[0].type, "i32");
    assert_string_equal(shown->arguments[0].do_not_specialize, "false");
    assert_string_equal(shown->arch, "exact");
    assert_string_equal(shown->launch.grid[2], "1");
    assert_true(jc_template_reads_facts(tmpl, 0));
    jc_template_destroy(&tmpl);
    assert_null(tmpl);
}

// --- files ---------------------------------------------------------------------------------------

static char folder[256];

static int make_folder(void **state)
{
    (void) state;
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/jitcache-template-XXXXXX", parent ? parent : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void) state;
    static const char *const names[] = {"a.cu", "a.yaml", "b.yaml", "c.yaml", "d.cu", "e.cu",
                                        "e.yaml", "large.cu", "plain.cu", "y.cu", "y.yml"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static const char *write_file(const char *name, const char *text)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void a_description_may_lie_beside_the_source(void **state)
{
    (void) state;
    const char *source = write_file("a.cu", "int kernel;\nJC_FACT(n)\n");
    const char *yaml = write_file("a.yaml", "\xef\xbb\xbfkernel: k\narguments:\n"
                                            "  - {name: n, type: i32}\n");
    const char *other = write_file("b.yaml", "kernel: other\nsource: a.cu\narguments: "
                                             "[{name: n, type: i64}]\n");
    const struct {
        const char *file, *name, *line_name;
        unsigned line;
    } cases[] = {
        {source, "k", "a.yaml", 3}, {yaml, "k", "a.yaml", 3}, {other, "other", "b.yaml", 3}};
    for (size_t i = 0; i < 3; i++) {
        struct jc_template *tmpl;
        struct jc_error error;
        if (jc_template_create(jc_template_params(.file = cases[i].file), &tmpl, &error))
            fail_msg("%s", error.text);
        assert_string_equal(jc_template_name(tmpl), cases[i].name);
        assert_string_equal(jc_template_file(tmpl), cases[i].file);
        assert_string_equal(tmpl->base_name, "a.cu");
        assert_string_equal(tmpl->line_name, cases[i].line_name);
        assert_string_equal(tmpl->dir, folder);
        assert_int_equal(tmpl->arguments[0].line, cases[i].line);
        assert_true(tmpl->arguments[0].reads_facts);
        size_t size;
        assert_string_equal(jc_template_source(tmpl, &size), "int kernel;\nJC_FACT(n)\n");
        assert_int_equal(size, strlen("int kernel;\nJC_FACT(n)\n"));
        jc_template_destroy(&tmpl);
    }
}

static void expect_file(const char *file, enum jc_result expected, const char *message)
{
    struct jc_template *tmpl;
    struct jc_error error = {{0}};
    errno = E2BIG;
    assert_int_equal(jc_template_create(jc_template_params(.file = file), &tmpl, &error), expected);
    assert_int_equal(errno, E2BIG);
    jc_template_destroy(&tmpl);
    if (!strstr(error.text, message))
        fail_msg("\"%s\" without \"%s\"", error.text, message);
}

static void files_that_cannot_be_read_are_named(void **state)
{
    (void) state;
    char path[512];
    snprintf(path, sizeof(path), "%s/none.cu", folder);
    expect_file(path, JC_ERROR_IO, "none.cu: cannot open it: No such file or directory");
    expect_file(folder, JC_ERROR_IO, "not a regular file");
    expect_file(write_file("c.yaml", "kernel: k\n"), JC_ERROR_IO,
                "c.cu cannot be opened: No such file or directory; name another with `source:`");
    expect_file(write_file("c.yaml", "kernel: k\nsource: g.cu\n"), JC_ERROR_IO,
                "c.yaml:2: source: its source ");
    expect_file(write_file("y.yml", "kernel: k\n"), JC_ERROR_INVALID_ARGUMENT,
                "y.yml: a description's name ends in .yaml; rename it");
    expect_file(write_file("y.cu", "int x;\n"), JC_ERROR_TEMPLATE, "y.yml is one, rename it to ");
    expect_file(write_file("plain.cu", "// x\n/* jitcache\nkernel: k\n*/\n"), JC_ERROR_TEMPLATE,
                "plain.cu:2: '/* jitcache' is a plain comment; write '/*jitcache'");
    expect_file(write_file("d.cu", "int x;\n"), JC_ERROR_TEMPLATE,
                "d.cu:1: no description: begin the source with a comment '/*jitcache' that holds "
                "it, or put it into ");
    write_file("e.yaml", "kernel: k\nsource: f.cu\n");
    const char *source = write_file("e.cu", "int x;");
    expect_file(source, JC_ERROR_TEMPLATE, "e.yaml:2: source: 'f.cu' is not e.cu");
    write_file("e.yaml", "kernel: k\n\nkernal: k\n");
    expect_file(source, JC_ERROR_TEMPLATE,
                "e.yaml:3: kernal: unknown field; did you mean 'kernel'?");
    const char *large = write_file("large.cu", "");
    assert_int_equal(truncate(large, (4 << 20) + 1), 0);
    expect_file(large, JC_ERROR_LIMIT, "large.cu: larger than 4194304 bytes");
}

static void two_descriptions_of_one_source_are_refused_whichever_is_named(void **state)
{
    (void) state;
    const char *described = write_file("e.yaml", "kernel: k\n");
    const char *source = write_file("e.cu", "/*jitcache\nkernel: k\n*/\n");
    expect_file(described, JC_ERROR_TEMPLATE, "e.cu:1: front matter in a source that ");
    expect_file(described, JC_ERROR_TEMPLATE, "e.yaml describes already; remove one of them");
    expect_file(source, JC_ERROR_TEMPLATE, "e.cu:1: front matter in a source that ");
    expect_file(source, JC_ERROR_TEMPLATE, "e.yaml describes already; remove one of them");
    // Other files of that name may lie there.
    write_file("e.yaml", "kernel: k\nsource: f.cu\n");
    expect_file(source, JC_OK, "");
    write_file("e.yaml", "replicas: 3\n");
    expect_file(source, JC_OK, "");
}

// --- the manual ----------------------------------------------------------------------------------

// The next fenced block of this language at or after `*at`, as a copy, or NULL.
static char *next_block(const char **at, const char *fence)
{
    const char *start = strstr(*at, fence);
    if (!start)
        return NULL;
    start += strlen(fence);
    const char *end = strstr(start, "```\n");
    assert_non_null(end);
    *at = end;
    return strndup(start, (size_t) (end - start));
}

static char *read_manual(void)
{
    const char *root = getenv("JITCACHE_SOURCE_ROOT");
    char path[4096];
    snprintf(path, sizeof(path), "%s/docs/templates.md", root ? root : ".");
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be opened; set JITCACHE_SOURCE_ROOT", path);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    assert_true(fread(text, 1, 65535, file) < 65535);
    fclose(file);
    return text;
}

static void the_examples_of_the_manual_are_templates(void **state)
{
    (void) state;
    char *text = read_manual();
    const char *at = text;
    size_t count = 0;
    for (char *source; (source = next_block(&at, "```cuda\n")) != NULL; free(source)) {
        // A source without front matter belongs to the description before it.
        struct jc_template *tmpl;
        struct jc_error error;
        bool described = strncmp(source, "/*jitcache", 10) == 0;
        const char *before = text;
        char *yaml = described ? NULL : next_block(&before, "```yaml\n");
        const char *file = write_file("a.cu", source);
        write_file("a.yaml", yaml ? yaml : "replicas: 3\n");
        if (jc_template_create(jc_template_params(.file = file), &tmpl, &error))
            fail_msg("%s\n%s", source, error.text);
        jc_template_destroy(&tmpl);
        free(yaml);
        count++;
    }
    assert_true(count >= 6);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_description_is_refused_with_place_and_advice),
        cmocka_unit_test(a_name_of_the_kernel_is_required_and_checked),
        cmocka_unit_test(counts_are_limited),
        cmocka_unit_test(misuse_is_an_invalid_argument),
        cmocka_unit_test(a_text_without_a_size_ends_at_its_nul),
        cmocka_unit_test(a_list_that_is_not_there_is_an_invalid_argument),
        cmocka_unit_test(types_are_read_and_spelled_in_one_way),
        cmocka_unit_test(type_limits_are_those_of_the_type),
        cmocka_unit_test(facets_follow_the_type_unless_they_are_declared),
        cmocka_unit_test(the_source_decides_which_facts_are_read),
        cmocka_unit_test(annotations_switch_facets_off),
        cmocka_unit_test(values_of_parameters_have_one_spelling),
        cmocka_unit_test(what_follows_from_what_is_put_in_order),
        cmocka_unit_test(a_description_comes_back_from_its_canonical_yaml),
        cmocka_unit_test(a_launch_attribute_is_a_word_or_a_bool_parameter),
        cmocka_unit_test(precompiled_headers_are_a_choice),
        cmocka_unit_test(a_struct_is_refused_with_the_path_of_the_field),
        cmocka_unit_test(everything_given_is_copied),
        cmocka_unit_test(a_description_may_lie_beside_the_source),
        cmocka_unit_test(files_that_cannot_be_read_are_named),
        cmocka_unit_test(two_descriptions_of_one_source_are_refused_whichever_is_named),
        cmocka_unit_test(the_examples_of_the_manual_are_templates),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
