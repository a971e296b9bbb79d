#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch/entry.h"
#include "runtime/plan/plan.h"

static uint64_t seed = 11;

static unsigned draw(unsigned below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned) (seed >> 33) % below;
}

// --- lines, read as docs/manifest.md says --------------------------------------------------------

#define MAX_WORDS 1024

struct words {
    char *text;
    char *words[MAX_WORDS];
    size_t count;
};

static char *read_quoted(char **from, char *to, char quote)
{
    for (; **from != quote; (*from)++) {
        assert_true(**from != '\0');
        if (quote == '"' && **from == '\\' && ((*from)[1] == '"' || (*from)[1] == '\\'))
            (*from)++;
        *to++ = **from;
    }
    (*from)++;
    return to;
}

static void words_init(struct words *words, const struct jc_buffer *line)
{
    assert_false(line->failed);
    assert_null(memchr(line->data, '\n', line->size));
    *words = (struct words){.text = strdup(line->data)};
    for (char *at = words->text; *at;) {
        at += strspn(at, " \t");
        if (*at == '#')
            break;
        char *to = at;
        if (*at)
            words->words[words->count++] = at;
        assert_true(words->count < MAX_WORDS);
        while (*at && *at != ' ' && *at != '\t') {
            char byte = *at++;
            if (byte == '\'' || byte == '"')
                to = read_quoted(&at, to, byte);
            else
                *to++ = byte == '\\' ? *at++ : byte;
        }
        at += *at != '\0';
        *to = '\0';
    }
}

static void words_finish(struct words *words)
{
    free(words->text);
}

// What the words of a line plan, as `jitcache prewarm` plans it.
static struct jc_plan *plan_words(const struct words *words, const struct jc_template *tmpl)
{
    struct jc_setting parameters[JC_MAX_PARAMETERS], ranges[JC_MAX_ARGUMENTS];
    struct jc_plan_params params = {.parameters = parameters, .ranges = ranges};
    for (size_t i = 1; i < words->count; i++) {
        const char *option = words->words[i];
        if (strcmp(option, "--generic") == 0) {
            params.generic = true;
            continue;
        }
        char *value = words->words[++i];
        if (strcmp(option, "--arch") == 0)
            continue;
        char *equals = strchr(value, '=');
        assert_non_null(equals);
        *equals = '\0';
        struct jc_setting setting = {value, equals + 1};
        if (strcmp(option, "--param") == 0)
            parameters[params.num_parameters++] = setting;
        else if (strcmp(option, "--range") == 0)
            ranges[params.num_ranges++] = setting;
        else
            fail_msg("%s", option);
    }
    struct jc_plan *plan;
    struct jc_error error;
    if (jc_plan_create(tmpl, &params, &plan, &error))
        fail_msg("%s", error.text);
    return plan;
}

// --- kernels of which only the scheme and the settings count -------------------------------------

struct made {
    struct jc_template *tmpl;
    struct jc_device device;
    struct jc_setting parameters[JC_MAX_PARAMETERS], ranges[JC_MAX_ARGUMENTS];
    struct jc_kernel kernel;
};

static void made_init(struct made *made, const char *text, const char *file,
                      const char *const *fixed, const void *const *bound)
{
    struct jc_error error;
    *made = (struct made){.device = {.capability = "9.0"}};
    if (jc_template_create(jc_template_params(.file = file, .text = text), &made->tmpl, &error))
        fail_msg("%s\n%s", error.text, text);
    made->kernel = (struct jc_kernel){
        .device = &made->device, .tmpl = made->tmpl, .parameters = made->parameters,
        .ranges = made->ranges};
    if (jc_scheme_init(&made->kernel.scheme, made->tmpl, fixed, bound, &error))
        fail_msg("%s\n%s", error.text, text);
    for (size_t i = 0; i < made->tmpl->num_parameters; i++)
        if (fixed && fixed[i])
            made->parameters[made->kernel.num_parameters++] =
                (struct jc_setting){made->tmpl->parameters[i].name, fixed[i]};
}

static void made_finish(struct made *made)
{
    jc_scheme_finish(&made->kernel.scheme);
    jc_template_destroy(&made->tmpl);
}

// --- words ---------------------------------------------------------------------------------------

static const char *const files[] = {
    "k.cu", "/a/b-c_d+e@f:g=h,i%j.cu", "a dir/k.cu", "it's.cu", "'", "''", "\"q\".cu", "\\",
    "a\\b.cu", "$HOME/`x`/$(y).cu", "*?[a].cu", "~/k.cu", "#k.cu", "a#b.cu", "-x.cu", "--arch",
    "a\tb.cu", "k.cu ", " k.cu", "a;b&c|d<e>f(g)h!.cu", "{a,b}.cu", "sch\xc3\xb6n.cu",
    "\xa0k.cu", "^k.cu",
};

static const char plain[] = "/*jitcache\nkernel: k\nlaunch: {}\n*/\nvoid k() {}\n";

static void a_file_is_one_word_of_a_manifest(void **state)
{
    (void) state;
    const void *const *none = (const void *[1]){NULL};
    struct made made;
    made_init(&made, plain, "given.cu", NULL, none);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct jc_buffer line = {0};
        struct words words;
        jc_entry_generic(&made.kernel, files[i], &line);
        words_init(&words, &line);
        assert_int_equal(4, words.count);
        const char *file = words.words[0];
        if (files[i][0] == '-') {
            assert_memory_equal("./", file, 2);
            file += 2;
        }
        assert_string_equal(files[i], file);
        words_finish(&words);
        jc_buffer_finish(&line);
    }
    made_finish(&made);
}

// The shell itself says what it makes of a line.
static void a_line_is_the_same_words_to_a_shell(void **state)
{
    (void) state;
    const void *const *none = (const void *[1]){NULL};
    struct made made;
    made_init(&made, plain, "given.cu", NULL, none);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct jc_buffer line = {0}, command = {0};
        char told[512] = "", expected[512];
        jc_entry_generic(&made.kernel, files[i], &line);
        jc_buffer_print(&command, "printf '[%%s]' %s", line.data);
        FILE *shell = popen(command.data, "r");
        assert_non_null(shell);
        told[fread(told, 1, sizeof(told) - 1, shell)] = '\0';
        assert_int_equal(0, pclose(shell));
        snprintf(expected, sizeof(expected), "[%s%s][--arch][9.0][--generic]",
                 files[i][0] == '-' ? "./" : "", files[i]);
        assert_string_equal(expected, told);
        jc_buffer_finish(&line);
        jc_buffer_finish(&command);
    }
    made_finish(&made);
}

#define COMMENT " # its source came as text, which JITCACHE_RECORD=FILE writes down with this line"

static void a_line_names_the_template_s_file(void **state)
{
    (void) state;
    static const char text[] =
        "/*jitcache\nkernel: k\nparameters:\n  - {name: T, type: type, default: float}\n"
        "  - {name: n, type: int}\narguments:\n  - {name: m, type: i32}\nlaunch: {grid: [m]}\n*/\n"
        "#include <jitcache.cuh>\nvoid k(int m) { JC_FACT(m); }\n";
    const char *fixed[] = {"unsigned int", "3"};
    const void *bound[] = {NULL};
    const int64_t values[] = {-5};
    char spaced[] = "/srv/a b.cu", quoted[] = "/srv/it's", plainly[] = "/srv/gen.cu";
    struct made made;
    made_init(&made, text, "dir/gen.cu", fixed, bound);
    made.kernel.ranges[made.kernel.num_ranges++] = (struct jc_setting){"m", "1: 64"};
    struct jc_buffer line = {0};
    jc_entry_warmup(&made.kernel, "/x/k.cu", &line);
    assert_string_equal("/x/k.cu --arch 9.0 --param 'T=unsigned int' --param n=3"
                        " --range 'm=1: 64'", line.data);
    jc_buffer_finish(&line);
    // Without one it is where the kernel's origin is.
    made.kernel.origin = (struct jc_origin){.file = spaced, .folder = quoted};
    jc_entry_call(&made.kernel, NULL, values, &line);
    assert_string_equal("'/srv/a b.cu' --arch 9.0 --param 'T=unsigned int' --param n=3"
                        " --range m=-5 --template-dir '/srv/it'\\''s'", line.data);
    jc_buffer_finish(&line);
    // The default is the template's to say.
    made.kernel.num_parameters = 1;
    made.kernel.parameters[0] = made.parameters[1];
    made.kernel.origin = (struct jc_origin){.file = plainly};
    jc_entry_generic(&made.kernel, NULL, &line);
    jc_entry_option(&line, "--template-dir", "a b");
    assert_string_equal("/srv/gen.cu --arch 9.0 --param n=3 --generic --template-dir 'a b'",
                        line.data);
    jc_buffer_finish(&line);
    made_finish(&made);
}

static void a_line_of_a_source_that_is_in_no_file_says_what_to_do(void **state)
{
    (void) state;
    const void *bound[] = {NULL};
    const struct {
        const char *file, *line;
    } cases[] = {{NULL, "k.cu --arch 9.0 --generic" COMMENT},
                 {"dir/gen.cu", "dir/gen.cu --arch 9.0 --generic" COMMENT}};
    for (size_t i = 0; i < 2; i++) {
        struct jc_buffer line = {0};
        struct made made;
        made_init(&made, plain, cases[i].file, NULL, bound);
        jc_entry_generic(&made.kernel, NULL, &line);
        assert_string_equal(cases[i].line, line.data);
        jc_buffer_finish(&line);
        jc_entry_generic(&made.kernel, "kept.cu", &line);
        assert_string_equal("kept.cu --arch 9.0 --generic", line.data);
        jc_buffer_finish(&line);
        made_finish(&made);
    }
}

// --- what a line plans ---------------------------------------------------------------------------

static const char *const types[] = {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool",
                                    "f32", "f32*", "void*", "bytes[12]"};
#define NUM_TYPES (sizeof(types) / sizeof(types[0]))

static const char *draw_facets(const char *type)
{
    static const char *const of_integers[] = {
        "one, {div: 16}", "{div: 12}, {div: 4}, {div: 2}", "value", "one", "{div: 64}, {div: 8}",
        "one, {div: 48}, {div: 16}", ""};
    static const char *const of_pointers[] = {"{align: 16}", "\"null\", {align: 256}, {align: 16}",
                                              "\"null\"", ""};
    if (strchr(type, '*'))
        return of_pointers[draw(4)];
    if (strcmp(type, "bool") == 0)
        return draw(2) ? "value" : "";
    return type[0] == 'f' || type[1] == 'y' ? "" : of_integers[draw(7)];
}

// Some of it is not read, some has an annotation or a range of its own, which calls leave.
static void write_argument(FILE *out, unsigned index)
{
    const char *type = types[draw(NUM_TYPES)], *facets = draw_facets(type);
    fprintf(out, "  - {name: a%u, type: \"%s\", facets: [%s]", index, type, facets);
    if (strstr(facets, "align") && draw(3) == 0)
        fprintf(out, ", align: either");
    else if (draw(6) == 0)
        fprintf(out, ", do_not_specialize: true");
    if (type[0] == 'i' && draw(3) == 0)
        fprintf(out, ", range: [3, 5]");
    else if (type[0] == 'i' && draw(4) == 0)
        fprintf(out, ", typical: 7");
    fprintf(out, "}\n");
}

static char *write_template(unsigned num_arguments)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, "/*jitcache\nkernel: k\nparameters:\n"
            "  - {name: P, type: int, dispatch: [{when: a0 <= 4, value: 7}, {when: d0 > 100,"
            " value: 9}, {when: a0 == 50, value: 7}, {value: 11}]}\n"
            "  - {name: Q, type: enum, values: [x, y, z], dispatch: [{when: P == 9, value: y},"
            " {value: z}]}\n  - {name: F, type: int}\n"
            "arguments:\n  - {name: a0, type: i32%s}\n"
            "  - {name: d0, type: i64, derive: a0 * 2 + F}\n"
            "  - {name: d1, type: u32, derive: 'align(d0, 16) + P', facets: [{div: 4}]}\n",
            draw(2) ? "" : ", do_not_specialize: true");
    for (unsigned i = 1; i < num_arguments; i++)
        write_argument(out, i);
    fprintf(out, "fallback: {P: 1, Q: x}\nlaunch: {grid: [a0]}\n*/\n#include <jitcache.cuh>\n"
            "void k() { JC_FACT(a0); JC_FACT(d0); JC_FACT(d1);");
    for (unsigned i = 1; i < num_arguments; i++)
        if (draw(5))
            fprintf(out, " JC_FACT(a%u);", i);
    fprintf(out, " }\n");
    fclose(out);
    return text;
}

static int64_t draw_value(const struct jc_argument *argument)
{
    static const int64_t numbers[] = {0, 1, 1, 2, 4, 8, 12, 16, 24, 48, 50, 64, 96, 256, 13, 127};
    int64_t value = numbers[draw(sizeof(numbers) / sizeof(numbers[0]))];
    if (argument->type.type_class == JC_CLASS_BOOL)
        return value & 1;
    // Mostly as a plan takes it: aligned, and not null.
    if (argument->type.type_class == JC_CLASS_POINTER)
        return draw(4) ? (1 + value) << 12 : value;
    if (argument->type.is_signed && draw(4) == 0)
        value = -value;
    if (argument->type.bytes == 1)
        return argument->type.is_signed ? (int8_t) value : (uint8_t) value;
    return draw(8) == 0 && argument->type.bytes == 8 ? value * (INT64_C(1) << 33) : value;
}

static size_t count_reached(const struct jc_plan *plan, const char *wanted)
{
    size_t found = 0;
    const struct jc_plan_variant *variants = jc_plan_variants(plan, NULL);
    for (size_t i = 0; i < jc_plan_num_reached(plan); i++)
        found += strcmp(variants[i].specialization, wanted) == 0;
    return found;
}

// Whether a pointer of the plan has states of its own.
static bool has_either(const struct jc_template *tmpl)
{
    for (size_t i = 0; i < tmpl->num_arguments; i++)
        if (tmpl->arguments[i].align_either && tmpl->arguments[i].reads_facts)
            return true;
    return false;
}

struct count {
    size_t covered, uncovered;
};

static void plan_call(const struct made *made, const struct jc_call *call, struct count *count)
{
    const struct jc_scheme *scheme = &made->kernel.scheme;
    const char *parameters[JC_MAX_PARAMETERS];
    struct jc_facet facets[JC_MAX_ARGUMENTS];
    const struct jc_specialization wanted = {made->tmpl, parameters, facets};
    int64_t values[JC_MAX_ARGUMENTS];
    struct jc_buffer line = {0};
    struct words words;
    jc_scheme_specialize(scheme, jc_call_words(scheme, call), parameters, facets);
    for (size_t i = 0; i < scheme->num_reads; i++)
        values[i] = call->slots[scheme->ops[i].read.slot];
    jc_entry_call(&made->kernel, NULL, values, &line);
    words_init(&words, &line);
    struct jc_plan *plan = plan_words(&words, made->tmpl);
    char *text = jc_specialization_text(&wanted);
    bool covers = jc_entry_covers(&made->kernel, &wanted);
    if (count_reached(plan, text) != covers)
        fail_msg("%s\ncovers %d of\n%s", line.data, covers, text);
    if (!has_either(made->tmpl))
        assert_int_equal(1, jc_plan_num_reached(plan));
    count->covered += covers;
    count->uncovered += !covers;
    free(text);
    jc_plan_destroy(&plan);
    words_finish(&words);
    jc_buffer_finish(&line);
}

static void plan_calls(const struct made *made, const void *const *bound, struct count *count)
{
    const struct jc_template *tmpl = made->tmpl;
    for (unsigned round = 0; round < 40; round++) {
        int64_t given[JC_MAX_ARGUMENTS][2] = {{0}};
        void *args[JC_MAX_ARGUMENTS];
        struct jc_call call;
        size_t passed = 0;
        for (size_t i = 0; i < tmpl->num_arguments; i++) {
            given[i][0] = draw_value(&tmpl->arguments[i]);
            if (!bound[i] && !tmpl->arguments[i].derive)
                args[passed++] = given[i];
        }
        given[0][0] = given[0][0] < 0 ? -given[0][0] : given[0][0];
        assert_true(jc_scheme_read(&made->kernel.scheme, args, &call));
        plan_call(made, &call, count);
    }
}

static void the_plan_of_a_call_s_line_is_what_the_call_wants(void **state)
{
    (void) state;
    struct count count = {0};
    for (unsigned round = 0; round < 120; round++) {
        char *text = write_template(1 + draw(8));
        struct jc_template *tmpl;
        struct jc_error error;
        assert_int_equal(JC_OK, jc_template_create(jc_template_params(.text = text), &tmpl,
                                                   &error));
        const char *fixed[] = {draw(4) ? NULL : "11", draw(4) ? NULL : "x", draw(2) ? "3" : "-2"};
        const void *bound[JC_MAX_ARGUMENTS] = {NULL};
        int64_t values[JC_MAX_ARGUMENTS][2] = {{0}};
        for (size_t i = 0; i < tmpl->num_arguments; i++) {
            values[i][0] = i == 0 ? 50 : draw_value(&tmpl->arguments[i]);
            if (!tmpl->arguments[i].derive && draw(4) == 0)
                bound[i] = values[i];
        }
        jc_template_destroy(&tmpl);
        struct made made;
        made_init(&made, text, NULL, fixed, bound);
        plan_calls(&made, bound, &count);
        made_finish(&made);
        free(text);
    }
    assert_true(count.covered > 2000);
    assert_true(count.uncovered > 100);
}

static void the_plan_of_a_generic_line_is_the_generic_variant(void **state)
{
    (void) state;
    for (unsigned round = 0; round < 40; round++) {
        char *text = write_template(1 + draw(8));
        const char *fixed[] = {draw(2) ? NULL : "11", NULL, "3"};
        const void *bound[JC_MAX_ARGUMENTS] = {NULL};
        struct jc_buffer line = {0};
        struct made made;
        struct words words;
        size_t num_variants;
        made_init(&made, text, NULL, fixed, bound);
        jc_entry_generic(&made.kernel, NULL, &line);
        words_init(&words, &line);
        struct jc_plan *plan = plan_words(&words, made.tmpl);
        const struct jc_plan_variant *variants = jc_plan_variants(plan, &num_variants);
        assert_int_equal(1, num_variants);
        assert_true(variants[0].generic);
        assert_string_equal(fixed[0] ? "parameter.P=11\nparameter.Q=x\nparameter.F=3\n"
                                     : "parameter.P=1\nparameter.Q=x\nparameter.F=3\n",
                            variants[0].specialization);
        jc_plan_destroy(&plan);
        words_finish(&words);
        jc_buffer_finish(&line);
        made_finish(&made);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_one_word_of_a_manifest),
        cmocka_unit_test(a_line_is_the_same_words_to_a_shell),
        cmocka_unit_test(a_line_names_the_template_s_file),
        cmocka_unit_test(a_line_of_a_source_that_is_in_no_file_says_what_to_do),
        cmocka_unit_test(the_plan_of_a_call_s_line_is_what_the_call_wants),
        cmocka_unit_test(the_plan_of_a_generic_line_is_the_generic_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
