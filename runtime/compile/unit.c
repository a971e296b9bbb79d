#include "unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"
#include "head.h"

// What the opening is called where it is a header.
#define OPENING_FILE "jitcache.cuh/opening"

// What a unit begins with: the macro that a source knows the runtime by, and how the tail asks what
// a kernel takes. That needs no header and C++11 alone. Its names are ours or reserved: any other
// would be rewritten by a macro, of an option such as -DN=4 here, or of the source, such as
// "#define real float", in the tail. A float of 8 or 16 bits may be any class of that size, or the
// unsigned integer that it is stored as; a pointer to a vector of the declared element, such as
// float4, will do, and so will one to void. Of what is not there, or is no kernel, NVRTC complains
// by itself: every number and type of arguments will do.
static const char opening[] =
    "#define JITCACHE 1\n"
    "namespace jitcache_unit {\n"
    "template <bool _B> struct JC_boolean { static constexpr bool JC_value = _B; };\n"
    "template <class _T, class _U> struct JC_same : JC_boolean<false> {};\n"
    "template <class _T> struct JC_same<_T, _T> : JC_boolean<true> {};\n"
    "template <class _T> struct JC_plain : JC_boolean<false> { using JC_type = _T; };\n"
    "template <class _T> struct JC_plain<const _T> : JC_boolean<true> { using JC_type = _T; };\n"
    "template <class _T> struct JC_plain<volatile _T> : JC_plain<_T> {};\n"
    "template <class _T> struct JC_plain<const volatile _T> : JC_plain<const _T> {};\n"
    "template <class _T, class... _L> struct JC_among : JC_boolean<false> {};\n"
    "template <class _T, class _U, class... _L> struct JC_among<_T, _U, _L...>\n"
    "    : JC_boolean<JC_same<_T, _U>::JC_value || JC_among<_T, _L...>::JC_value> {};\n"
    "template <class _T> struct JC_is_signed\n"
    "    : JC_among<_T, signed char, short, int, long, long long> {};\n"
    "template <class _T> struct JC_is_unsigned\n"
    "    : JC_among<_T, unsigned char, unsigned short, unsigned, unsigned long,\n"
    "               unsigned long long, char16_t, char32_t> {};\n"
    "template <class _T> struct JC_is_class : JC_boolean<__is_class(_T) || __is_union(_T)> {};\n"
    "template <unsigned _N, bool _S> struct JC_integer {\n"
    "    template <class _T> struct JC_takes : JC_boolean<sizeof(_T) == _N && (__is_enum(_T)\n"
    "        || JC_same<_T, char>::JC_value\n"
    "        || (_S ? JC_is_signed<_T>::JC_value : JC_is_unsigned<_T>::JC_value))> {};\n"
    "};\n"
    "template <unsigned _N> struct JC_real {\n"
    "    template <class _T> struct JC_takes : JC_boolean<sizeof(_T) == _N\n"
    "        && JC_among<_T, float, double>::JC_value> {};\n"
    "};\n"
    "template <unsigned _N> struct JC_small_real {\n"
    "    template <class _T> struct JC_takes : JC_boolean<sizeof(_T) == _N\n"
    "        && !JC_is_signed<_T>::JC_value && !JC_same<_T, bool>::JC_value\n"
    "        && !__is_enum(_T)> {};\n"
    "};\n"
    "struct JC_truth { template <class _T> struct JC_takes : JC_same<_T, bool> {}; };\n"
    "template <unsigned _N> struct JC_bytes {\n"
    "    template <class _T> struct JC_takes : JC_boolean<sizeof(_T) == _N> {};\n"
    "};\n"
    "struct JC_anything { template <class _T> struct JC_takes : JC_boolean<true> {}; };\n"
    "template <class _E, unsigned _N, class _T, bool = JC_is_class<_T>::JC_value>\n"
    "struct JC_element : _E::template JC_takes<_T> {};\n"
    "template <class _E, unsigned _N, class _T> struct JC_element<_E, _N, _T, true>\n"
    "    : JC_boolean<sizeof(_T) % _N == 0> {};\n"
    "template <unsigned _N, class _T> struct JC_element<JC_anything, _N, _T, true>\n"
    "    : JC_boolean<true> {};\n"
    "template <class _E, unsigned _N> struct JC_element<_E, _N, void, false>\n"
    "    : JC_boolean<true> {};\n"
    "template <unsigned _N> struct JC_element<JC_anything, _N, void, false>\n"
    "    : JC_boolean<true> {};\n"
    "template <class _E, unsigned _N, bool _C> struct JC_pointer {\n"
    "    template <class _T, class = void> struct JC_takes : JC_boolean<false> {};\n"
    "    template <class _T, class _D> struct JC_takes<_T *, _D>\n"
    "        : JC_boolean<JC_plain<_T>::JC_value == _C\n"
    "                     && JC_element<_E, _N, typename JC_plain<_T>::JC_type>::JC_value> {};\n"
    "};\n"
    // In steps of 16: compilers stop at some depth, and each step makes a list of what is left.
    "template <bool _F, unsigned _I, class _D, class... _A> struct JC_step\n"
    "    : JC_boolean<true> {};\n"
    "template <unsigned _I, class _D, class... _A> struct JC_nth\n"
    "    : JC_step<(_I >= 16), _I, _D, _A...> {};\n"
    "template <class _D, class _T, class... _A> struct JC_step<false, 0, _D, _T, _A...>\n"
    "    : JC_boolean<_D::template JC_takes<typename JC_plain<_T>::JC_type>::JC_value> {};\n"
    "template <class _D, class _T, class... _A> struct JC_step<false, 0, _D, _T &, _A...>\n"
    "    : JC_boolean<false> {};\n"
    "template <class _D, class _T, class... _A> struct JC_step<false, 0, _D, _T &&, _A...>\n"
    "    : JC_boolean<false> {};\n"
    "template <unsigned _I, class _D, class _T, class... _A>\n"
    "struct JC_step<false, _I, _D, _T, _A...> : JC_step<false, _I - 1, _D, _A...> {};\n"
    "template <unsigned _I, class _D, class _T0, class _T1, class _T2, class _T3, class _T4,\n"
    "    class _T5, class _T6, class _T7, class _T8, class _T9, class _T10, class _T11,\n"
    "    class _T12, class _T13, class _T14, class _T15, class... _A>\n"
    "struct JC_step<true, _I, _D, _T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11,\n"
    "    _T12, _T13, _T14, _T15, _A...> : JC_nth<_I - 16, _D, _A...> {};\n"
    "template <class _F> struct JC_kernel {\n"
    "    template <unsigned _N> struct JC_counts : JC_boolean<true> {};\n"
    "    template <unsigned _I, class _D> struct JC_takes : JC_boolean<true> {};\n"
    "};\n"
    "template <class... _A> struct JC_kernel<void (*)(_A...)> {\n"
    "    template <unsigned _N> struct JC_counts : JC_boolean<_N == sizeof...(_A)> {};\n"
    "    template <unsigned _I, class _D> struct JC_takes : JC_nth<_I, _D, _A...> {};\n"
    "};\n"
    "#ifdef __cpp_noexcept_function_type\n"
    "template <class... _A> struct JC_kernel<void (*)(_A...) noexcept>\n"
    "    : JC_kernel<void (*)(_A...)> {};\n"
    "#endif\n"
    "}\n";

// --- the entry point and the options -------------------------------------------------------------

static const struct jc_parameter *find_parameter(const struct jc_template *tmpl, const char *name,
                                                 size_t size, size_t *index)
{
    for (*index = 0; *index < tmpl->num_parameters; ++*index) {
        const struct jc_parameter *parameter = &tmpl->parameters[*index];
        if (strlen(parameter->name) == size && memcmp(parameter->name, name, size) == 0)
            return parameter;
    }
    return NULL;
}

// The name expression with its braces filled in, or the kernel's name. A bool is spelled as C++
// wants it: 1 would be a narrowing conversion.
static enum jc_result append_entry(struct jc_buffer *out, const struct jc_specialization *of,
                                   struct jc_error *error)
{
    const struct jc_template *tmpl = of->tmpl;
    const char *at = tmpl->name_expression ? tmpl->name_expression : tmpl->name;
    while (*at) {
        const char *open = strchrnul(at, '{');
        jc_buffer_append(out, at, (size_t) (open - at));
        if (!*open)
            break;
        const char *close = strchrnul(open, '}');
        size_t index;
        const struct jc_parameter *parameter =
            find_parameter(tmpl, open + 1, (size_t) (close - open) - 1, &index);
        if (!parameter)
            return jc_fail(error, JC_ERROR_TEMPLATE, "%s: name_expression '%s': '%.*s' is not a"
                           " parameter", tmpl->base_name, tmpl->name_expression,
                           (int) (close - open - 1), open + 1);
        const char *value = of->parameters[index];
        if (parameter->kind == JC_PARAMETER_BOOL)
            value = jc_parameter_number(parameter, value) ? "true" : "false";
        jc_buffer_string(out, value);
        at = *close ? close + 1 : close;
    }
    return JC_OK;
}

static bool names_standard(const char *option)
{
    return strncmp(option, "--std", 5) == 0 || strncmp(option, "-std", 4) == 0;
}

// Calls `each` for every option but -arch and -I, in the order in which they are given and hashed.
static void visit_options(const struct jc_unit *unit, void (*each)(void *user, const char *option),
                          void *user)
{
    const struct jc_template *tmpl = unit->specialization->tmpl;
    bool standard = false;
    for (size_t i = 0; i < tmpl->num_options; i++)
        standard = standard || names_standard(tmpl->options[i]);
    if (!standard)
        each(user, "--std=c++17");
    // Names of internal symbols are otherwise drawn at random, and no two cubins the same.
    if (unit->toolchain->random_seed)
        each(user, "--frandom-seed=jitcache");
    if (unit->toolchain->resource_usage)
        each(user, "--ptxas-options=-v");
    for (size_t i = 0; i < tmpl->num_options; i++)
        each(user, tmpl->options[i]);
}

// --- the key -------------------------------------------------------------------------------------

// Each look-up makes the text anew, so it is put together without formats.
static void append_line(struct jc_buffer *out, const char *name, const char *value)
{
    jc_buffer_string(out, name);
    jc_buffer_string(out, value);
    jc_buffer_string(out, "\n");
}

static void append_option(void *out, const char *option)
{
    append_line(out, "option=", option);
}

// What the specialization's words stand for in the source: the names that JC_FACT takes, and the
// numbers that are the values of an enum. Of a description that lies beside the source they stand
// nowhere else.
static void append_meanings(struct jc_buffer *out, const struct jc_template *tmpl)
{
    jc_buffer_string(out, "arguments=");
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        jc_buffer_string(out, i ? "," : "");
        jc_buffer_string(out, tmpl->arguments[i].name);
        jc_buffer_string(out, ":");
        jc_buffer_string(out, tmpl->arguments[i].type_name);
    }
    jc_buffer_string(out, "\n");
    for (size_t i = 0; i < tmpl->num_parameters; i++) {
        const struct jc_parameter *parameter = &tmpl->parameters[i];
        if (parameter->kind != JC_PARAMETER_ENUM)
            continue;
        jc_buffer_string(out, "values.");
        jc_buffer_string(out, parameter->name);
        for (size_t j = 0; j < parameter->num_values; j++) {
            jc_buffer_string(out, j ? "," : "=");
            jc_buffer_string(out, parameter->values[j]);
        }
        jc_buffer_string(out, "\n");
    }
}

static enum jc_result append_text(struct jc_unit *unit, struct jc_buffer *out,
                                  struct jc_error *error)
{
    const struct jc_template *tmpl = unit->specialization->tmpl;
    const struct jc_toolchain *toolchain = unit->toolchain;
    jc_buffer_print(out, "jitcache=1\nnvrtc=%d.%d\n", toolchain->major, toolchain->minor);
    append_line(out, "build=", toolchain->build);
    if (toolchain->append_flags[0])
        append_line(out, "append_flags=", toolchain->append_flags);
    append_line(out, "arch=", unit->arch);
    visit_options(unit, append_option, out);

    jc_buffer_string(out, "entry=");
    enum jc_result result = append_entry(out, unit->specialization, error);
    if (result != JC_OK)
        return result;
    jc_buffer_string(out, "\n");
    append_meanings(out, tmpl);

    char *specialization = jc_specialization_text(unit->specialization);
    if (!specialization)
        return jc_fail_memory(error);
    jc_buffer_string(out, specialization);
    free(specialization);
    append_line(out, "closure=", unit->closure->digest);
    jc_buffer_string(out, "source=");
    jc_buffer_append(out, tmpl->source, tmpl->source_size);
    return out->failed ? jc_fail_memory(error) : JC_OK;
}

enum jc_result jc_unit_init(struct jc_unit *unit, const struct jc_specialization *specialization,
                            const struct jc_toolchain *toolchain, const struct jc_closure *closure,
                            const char *arch, struct jc_error *error)
{
    *unit = (struct jc_unit){
        .specialization = specialization, .toolchain = toolchain, .closure = closure};
    memcpy(unit->arch, arch, strlen(arch) + 1);
    struct jc_buffer text = {0};
    enum jc_result result = append_text(unit, &text, error);
    if (result != JC_OK) {
        jc_buffer_finish(&text);
        *unit = (struct jc_unit){0};
        return result;
    }
    unit->text_size = text.size;
    unit->text = jc_buffer_take(&text);
    unit->key = jc_key_of(unit->text, unit->text_size);
    return JC_OK;
}

// --- the source ----------------------------------------------------------------------------------
// As a literal of C++, in which the smallest number has none of its own.
static void print_number(struct jc_buffer *out, int64_t number)
{
    if (number == INT64_MIN)
        jc_buffer_print(out, "(-%" PRId64 " - 1)", INT64_MAX);
    else
        jc_buffer_print(out, number < 0 ? "(%" PRId64 ")" : "%" PRId64, number);
}

static void print_parameter(struct jc_buffer *out, const struct jc_parameter *parameter,
                            const char *value)
{
    if (parameter->kind == JC_PARAMETER_TYPE) {
        jc_buffer_print(out, "#define JC_PARAM_%s %s\n", parameter->name, value);
        return;
    }
    jc_buffer_print(out, "#define JC_PARAM_%s ", parameter->name);
    print_number(out, jc_parameter_number(parameter, value));
    jc_buffer_string(out, "\n");
    if (parameter->kind == JC_PARAMETER_ENUM) {
        for (size_t i = 0; i < parameter->num_values; i++)
            jc_buffer_print(out, "#define JC_VALUE_%s_%s %zu\n", parameter->name,
                            parameter->values[i], i);
    }
}

// A fact is told to the optimiser alone: nothing may come to need it as a constant.
static void print_fact(struct jc_buffer *out, const char *name, const struct jc_facet *facet)
{
    jc_buffer_print(out, "#define JC_FACT_%s ", name);
    switch (facet->kind) {
    case JC_FACET_NONE:
        jc_buffer_string(out, "((void) 0)");
        break;
    case JC_FACET_VALUE:
        jc_buffer_print(out, "__builtin_assume((%s) == ", name);
        print_number(out, facet->n);
        jc_buffer_string(out, ")");
        break;
    case JC_FACET_ONE:
        jc_buffer_print(out, "__builtin_assume((%s) == 1)", name);
        break;
    case JC_FACET_DIV:
        jc_buffer_print(out, "__builtin_assume((%s) %% %" PRId64 " == 0)", name, facet->n);
        break;
    case JC_FACET_ALIGN:
        jc_buffer_print(out, "__builtin_assume(((unsigned long long) (%s) & %" PRId64 ") == 0)",
                        name, facet->n - 1);
        break;
    case JC_FACET_NULL:
        jc_buffer_print(out, "__builtin_assume((%s) == nullptr)", name);
        break;
    }
    jc_buffer_string(out, "\n");
}

static void print_line(struct jc_buffer *out, unsigned line, const char *file)
{
    jc_buffer_print(out, "#line %u \"", line ? line : 1);
    for (; *file; file++)
        jc_buffer_print(out, *file == '"' || *file == '\\' ? "\\%c" : "%c", *file);
    jc_buffer_string(out, "\"\n");
}

// What a value of this class must be, in the words of the opening.
static void print_class(struct jc_buffer *out, enum jc_type_class type_class, unsigned bytes,
                        bool is_signed)
{
    switch (type_class) {
    case JC_CLASS_INTEGER:
        jc_buffer_print(out, "JC_integer<%u, %s>", bytes, is_signed ? "true" : "false");
        break;
    case JC_CLASS_FLOAT:
        jc_buffer_print(out, bytes < 4 ? "JC_small_real<%u>" : "JC_real<%u>", bytes);
        break;
    case JC_CLASS_BOOL:
        jc_buffer_string(out, "JC_truth");
        break;
    case JC_CLASS_BYTES:
        jc_buffer_print(out, "JC_bytes<%u>", bytes);
        break;
    case JC_CLASS_VOID:
    case JC_CLASS_POINTER:
        jc_buffer_string(out, "JC_anything");
        break;
    }
}

static void print_type(struct jc_buffer *out, const struct jc_type *type)
{
    if (type->type_class != JC_CLASS_POINTER) {
        jc_buffer_string(out, "jitcache_unit::");
        print_class(out, type->type_class, type->bytes, type->is_signed);
        return;
    }
    jc_buffer_string(out, "jitcache_unit::JC_pointer<jitcache_unit::");
    print_class(out, type->element_class, type->element_bytes, type->element_signed);
    jc_buffer_print(out, ", %u, %s>", type->element_bytes ? type->element_bytes : 1,
                    type->element_const ? "true" : "false");
}

// What a C++ programmer writes for a declared type.
static void print_spelling(struct jc_buffer *out, const struct jc_type *type, const char *name)
{
    static const struct {
        const char *ours, *theirs;
    } spellings[] = {
        {"i8", "char"}, {"u8", "unsigned char"}, {"i16", "short"}, {"u16", "unsigned short"},
        {"i32", "int"}, {"u32", "unsigned"}, {"i64", "long long"}, {"u64", "unsigned long long"},
        {"f16", "__half"}, {"bf16", "__nv_bfloat16"}, {"f32", "float"}, {"f64", "double"},
        {"e4m3", "__nv_fp8_e4m3"}, {"e5m2", "__nv_fp8_e5m2"}, {"bool", "bool"}, {"void", "void"},
    };
    if (type->type_class == JC_CLASS_BYTES) {
        jc_buffer_print(out, "a struct of %u bytes", type->bytes);
        return;
    }
    static const char is_const[] = "const ";
    if (strncmp(name, is_const, strlen(is_const)) == 0) {
        jc_buffer_string(out, is_const);
        name += strlen(is_const);
    }
    size_t size = strcspn(name, "*");
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++)
        if (strlen(spellings[i].ours) == size && memcmp(spellings[i].ours, name, size) == 0)
            jc_buffer_string(out, spellings[i].theirs);
    jc_buffer_string(out, name[size] ? " *" : "");
}

static void print_takes(struct jc_buffer *out, const struct jc_argument *argument, size_t index)
{
    jc_buffer_print(out, "static_assert(jitcache_entry::JC_takes<%zu, ", index);
    print_type(out, &argument->type);
    jc_buffer_print(out, ">::JC_value, \"jitcache: '%s' is declared %s, the kernel takes something"
                    " other than ", argument->name, argument->type_name);
    print_spelling(out, &argument->type, argument->type_name);
    jc_buffer_string(out, "\");\n");
}

// The entry is resolved once, so that one that does not resolve is one error.
static void print_tail(struct jc_buffer *out, const struct jc_template *tmpl, const char *entry)
{
    jc_buffer_string(out, "\n");
    print_line(out, tmpl->line, tmpl->line_name);
    jc_buffer_print(out, "using jitcache_entry = jitcache_unit::JC_kernel<decltype(&%s)>;\n",
                    entry);
    print_line(out, tmpl->num_arguments ? tmpl->arguments[0].line : tmpl->line, tmpl->line_name);
    jc_buffer_print(out, "static_assert(jitcache_entry::JC_counts<%zu>::JC_value, \"jitcache: %zu"
                    " argument%s declared, the kernel takes another number\");\n",
                    tmpl->num_arguments, tmpl->num_arguments,
                    tmpl->num_arguments == 1 ? " is" : "s are");
    for (size_t i = 0; i < tmpl->num_arguments; i++) {
        print_line(out, tmpl->arguments[i].line, tmpl->line_name);
        print_takes(out, &tmpl->arguments[i], i);
    }
}

// What differs between variants comes after the head, which is kept for the next one. A #line ahead
// of it would keep the compiler from that, so what comes first is included by an option there.
static char *make_source(const struct jc_unit *unit, const char *entry)
{
    const struct jc_specialization *of = unit->specialization;
    const struct jc_template *tmpl = of->tmpl;
    struct jc_buffer out = {0};
    if (unit->head_size > 0) {
        jc_buffer_append(&out, unit->closure->source, unit->head_size);
        jc_buffer_string(&out, JC_JOB_HEAD_END);
    } else {
        jc_buffer_string(&out, opening);
    }
    for (size_t i = 0; i < tmpl->num_parameters; i++)
        print_parameter(&out, &tmpl->parameters[i], of->parameters[i]);
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        print_fact(&out, tmpl->arguments[i].name, &of->facets[i]);
    print_line(&out, unit->head_lines + 1, tmpl->base_name);
    jc_buffer_string(&out, unit->closure->source + unit->head_size);
    print_tail(&out, tmpl, entry);
    return jc_buffer_take(&out);
}

// --- the job -------------------------------------------------------------------------------------

struct option_list {
    char **list;
    size_t count;
    bool failed;
};

static void keep_option(void *user, const char *option)
{
    struct option_list *options = user;
    char *copy = strdup(option);
    options->failed = options->failed || !copy;
    if (copy)
        options->list[options->count++] = copy;
}

// NVRTC does not notice that a header has changed behind what it keeps, in memory or on the disk.
// It does compare macros.
static void keep_head(const struct jc_unit *unit, struct option_list *options)
{
    static const char name[] = "-DJITCACHE_HEAD=";
    char digest[JC_KEY_STRING_SIZE], option[sizeof(name) + JC_KEY_STRING_SIZE];
    options->failed = options->failed || !jc_head_digest(unit->closure, digest);
    snprintf(option, sizeof(option), "%s%s", name, digest);
    keep_option(options, option);
    keep_option(options, "--pre-include=" OPENING_FILE);
}

// The closure's headers and, ahead of a head, the opening; no file has such a name.
static bool make_headers(struct jc_unit *unit)
{
    const struct jc_closure *closure = unit->closure;
    unit->job.headers = closure->headers;
    unit->job.num_headers = closure->num_headers;
    if (unit->head_size == 0)
        return true;
    unit->headers = calloc(closure->num_headers + 1, sizeof(*unit->headers));
    if (!unit->headers)
        return false;
    if (closure->num_headers)
        memcpy(unit->headers, closure->headers, closure->num_headers * sizeof(*unit->headers));
    unit->headers[closure->num_headers] = (struct jc_job_header){
        .name = OPENING_FILE, .text = opening, .size = strlen(opening)};
    unit->job.headers = unit->headers;
    unit->job.num_headers++;
    return true;
}

static enum jc_result make_options(struct jc_unit *unit, struct jc_error *error)
{
    struct option_list options = {
        .list = calloc(unit->specialization->tmpl->num_options + 6, sizeof(char *))};
    if (!options.list)
        return jc_fail_memory(error);
    char arch[sizeof("-arch=") + JC_ARCH_SIZE] = "-arch=";
    keep_option(&options, strcat(arch, unit->arch));
    visit_options(unit, keep_option, &options);
    if (unit->head_size > 0)
        keep_head(unit, &options);
    unit->job.options = (const char *const *) options.list;
    unit->job.num_options = options.count;
    return options.failed ? jc_fail_memory(error) : JC_OK;
}

// What is there for a debugger tells headers from the source.
static bool is_debugged(const char *option)
{
    return strstr(option, "-G") || strstr(option, "device-debug");
}

static enum jc_result find_head(struct jc_unit *unit, struct jc_error *error)
{
    const struct jc_template *tmpl = unit->specialization->tmpl;
    bool debugged = is_debugged(unit->toolchain->append_flags);
    for (size_t i = 0; i < tmpl->num_options; i++)
        debugged = debugged || is_debugged(tmpl->options[i]);
    if (!tmpl->pch || !unit->toolchain->pch || debugged)
        return JC_OK;
    return jc_head_find(unit->closure, &unit->head_size, &unit->head_lines, error);
}

enum jc_result jc_unit_write(struct jc_unit *unit, struct jc_error *error)
{
    struct jc_buffer entry = {0};
    enum jc_result result = append_entry(&entry, unit->specialization, error);
    if (result == JC_OK)
        result = find_head(unit, error);
    if (result != JC_OK) {
        jc_buffer_finish(&entry);
        return result;
    }
    unit->job.pch = unit->head_size > 0;
    unit->job.file = unit->specialization->tmpl->base_name;
    unit->job.entry = jc_buffer_take(&entry);
    unit->job.source = unit->job.entry ? make_source(unit, unit->job.entry) : NULL;
    return unit->job.source && make_headers(unit) ? make_options(unit, error)
                                                  : jc_fail_memory(error);
}

void jc_unit_finish(struct jc_unit *unit)
{
    free(unit->text);
    free((char *) (uintptr_t) unit->job.entry);
    free((char *) (uintptr_t) unit->job.source);
    for (size_t i = 0; i < unit->job.num_options; i++)
        free((char *) (uintptr_t) unit->job.options[i]);
    free((void *) (uintptr_t) unit->job.options);
    free(unit->headers);
    *unit = (struct jc_unit){0};
}
