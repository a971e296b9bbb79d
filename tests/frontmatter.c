#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <jitcache/template.h>

// Where the front matter is and whether it is YAML that a description can be made of. What the
// fields mean is tests/template.c.

static void expect(const char *text, size_t size, enum jc_result expected, const char *message)
{
    struct jc_template *tmpl;
    struct jc_error error = {{0}};
    enum jc_result result = jc_template_create(
        jc_template_params(.file = "k.cu", .text = text, .text_size = size), &tmpl, &error);
    if (result != expected || !strstr(error.text, message))
        fail_msg("%.500s\n%d, \"%s\" without \"%s\"", text, result, error.text, message);
    if (result == JC_OK)
        assert_string_equal(jc_template_name(tmpl), "k");
    else
        assert_null(tmpl);
    jc_template_destroy(&tmpl);
}

static void front_matter_is_found_where_it_may_stand(void **state)
{
    (void) state;
    static const char *const cases[] = {
        "/*jitcache\nkernel: k\n*/\n",
        "/*jitcache kernel: k */",
        "/*jitcache\nkernel: k */\nint x;\n",
        "/*jitcache\r\nkernel: k\r\nlaunch:\r\n  block: [1, 2]\r\n*/\r\nint x;\r\n",
        "\xef\xbb\xbf/*jitcache\nkernel: k\n*/\n",
        "\n\n// Copyright\n//\\\nstill a comment\n\n/*jitcache\nkernel: k\n*/\n",
        "/*jitcache\n# a comment\nkernel: k # another\n*/\n",
        "/*jitcache\n---\nkernel: k\n...\n*/\n",
        // Neither of these is a second one, nor does anything end too early.
        "/*jitcache\nkernel: k\n*/\n/*jitcached */ /* jitcache */ // /*jitcache\n",
        "/*jitcache\nkernel: k\n*/\nconst char *s = \"/*jitcache\";\n",
        "/*jitcache\nkernel: k */\nauto s = \"*/\", t = R\"x(*/)\" */)x\"; char c = '\"';\n",
        "/*jitcache\nkernel: k */\nint y = 1'000 /* */ * 2; // */\n",
        "/*jitcache\n\"kernel\": 'k'\n*/",
        "/*jitcache\n{\"kernel\": \"\\u006b\"}\n*/",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect(cases[i], strlen(cases[i]), JC_OK, "");
}

static void broken_front_matter_is_refused_with_line_and_advice(void **state)
{
    (void) state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"\n", "k.cu:1: no description: begin the source with a comment '/*jitcache'"},
        {"int x;\n/* jitcache */\n", "k.cu:1: no description"},
        {"#include <a>\n\n/*jitcache\nkernel: k\n*/", "k.cu:3: the front matter must be the first"},
        {"/* license */\n/*jitcache\nkernel: k\n*/", "k.cu:2: the front matter must be the first"},
        {"/*jitcache\nkernel: k\n*/\n\n/*jitcache\nkernel: l\n*/\n",
         "k.cu:5: a second front matter, the first begins in line 1; keep one"},
        {"/*jitcache\nkernel: k\n", "k.cu:1: the front matter is not closed"},
        {"/*jitcache", "k.cu:1: the front matter is not closed"},
        {"/*jitcache/", "no description"},
        {"/*jitcache*/", "k.cu:1: the description is not a map of fields; begin with 'kernel: "
                         "NAME'"},
        {"/*jitcache\n# nothing\n*/", "k.cu:1: the description is not a map"},
        {"/*jitcache\n- kernel\n*/", "k.cu:1: the description is not a map"},
        {"/*jitcache\nkernel\n*/", "k.cu:1: the description is not a map"},
        // The comment ends at the first "*/", wherever the YAML is.
        {"/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32, derive: \"2 */ 1\"}\n*/\n",
         "k.cu:4: '*/' ends the front matter here, in the middle of the YAML; inside it write '* "
         "/'"},
        {"/*jitcache\nkernel: k\narguments: [{name: o, type: i32*/}]\n*/",
         "k.cu:3: '*/' ends the front matter here"},
        {"/*jitcache\nkernel: k # see a*/\nstate: per_variant\n*/\nint x;",
         "k.cu:2: '*/' ends the front matter here"},
        // YAML.
        {"/*jitcache\nkernel: k\narguments: [{name: n, type: i32}\n*/", "k.cu:4: not valid YAML: "},
        {"/*jitcache\nkernel: k\n\tarch: exact\n*/",
         "k.cu:3: not valid YAML: found a tab character "
                                                    "that violates indentation in column 1"},
        {"/*jitcache\nkernel: \"k\n*/", "not valid YAML: found unexpected end of stream"},
        {"/*jitcache\nkernel: k\n  arch: exact\n*/",
         "k.cu:3: not valid YAML: mapping values are not"},
        {"/*jitcache\nkernel: %k\n*/", "k.cu:2: not valid YAML"},
        {"/*jitcache\nkernel: k\n---\nkernel: l\n*/", "k.cu:3: a second YAML document"},
        {"/*jitcache\n%YAML 1.1\n---\nkernel: k\n*/", "a YAML directive"},
        {"/*jitcache\n%TAG ! tag:x,2000:\n---\nkernel: k\n*/", "a YAML directive"},
        {"/*jitcache\nkernel: &a k\n*/", "k.cu:2: YAML anchors are not used here"},
        {"/*jitcache\nkernel: k\narguments: &a []\n*/", "k.cu:3: YAML anchors are not used here"},
        {"/*jitcache\nkernel: k\nlaunch: &a {}\n*/", "k.cu:3: YAML anchors are not used here"},
        {"/*jitcache\nkernel: *a\n*/", "k.cu:2: YAML aliases are not used here"},
        {"/*jitcache\nkernel: !!str k\n*/", "k.cu:2: YAML tags are not used here"},
        {"/*jitcache\nkernel: k\nlaunch: !x {}\n*/", "k.cu:3: YAML tags are not used here"},
        {"/*jitcache\nkernel: \"k\\0x\"\n*/", "k.cu:2: a control character in a value"},
        {"/*jitcache\nkernel: \"k\\nx\"\n*/", "k.cu:2: a control character in a value"},
        {"/*jitcache\nkernel: |\n  k\n*/", "k.cu:2: a control character in a value"},
        {"/*jitcache\nkernel: k\nkernel: k\n*/",
         "k.cu:3: kernel: given twice, first in line 2; remove one"},
        {"/*jitcache\nkernel: k\n? [a]\n: b\n*/",
         "k.cu:3: the name of a field must be a plain word"},
        {"/*jitcache\nkernel: k\n<<: {arch: exact}\n*/", "k.cu:3: <<: unknown field"},
        {"/*jitcache\nkernel: k\xff\n*/", "k.cu:2: not UTF-8 text"},
        {"/*jitcache\nkernel: k\x01\n*/", "k.cu:2: not UTF-8 text"},
        {"/*jitcache\nkernel: k\nlaunch: {grid: [ceildiv(n, 2), 1]}\n*/",
         "k.cu:3: 'ceildiv(n' has an unbalanced parenthesis: between brackets a comma ends an "
         "unquoted value; put the whole expression in quotes, like \"ceildiv(a, b)\""},
        {"/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32, derive: align(m, 4)}\n*/",
         "k.cu:4: 'align(m' has an unbalanced parenthesis"},
        // Fields.
        {"/*jitcache\nkernel: k\n\n# x\nargument: []\n*/",
         "k.cu:5: argument: unknown field; did you mean 'arguments'?; the fields here are "
         "kernel, "},
        {"/*jitcache\nkernel: [k]\n*/", "k.cu:2: kernel: a list where a single value is expected"},
        {"/*jitcache\nkernel: {k: 1}\n*/",
         "k.cu:2: kernel: a map where a single value is expected"},
        {"/*jitcache\nkernel:\n*/", "k.cu:2: kernel: there is no value; write one"},
        {"/*jitcache\nkernel: k\noptions: -lineinfo\n*/",
         "k.cu:3: options: a single value where a list such as [a, b] is expected"},
        {"/*jitcache\nkernel: k\noptions: [[a]]\n*/",
         "k.cu:3: options: a list where a single value"},
        {"/*jitcache\nkernel: k\nsource: k.cu\n*/", "k.cu:3: source: only a .yaml file beside"},
        {"/*jitcache\nkernel: k\ndo_not_specialize: [n]\n*/",
         "k.cu:3: do_not_specialize: belongs to one argument; write it there"},
        {"/*jitcache\nkernel: k\narguments: {n: i32}\n*/",
         "k.cu:3: arguments: a map where a list such as [{name: n, type: i32}] is expected"},
        {"/*jitcache\nkernel: k\narguments:\n  - n\n*/",
         "k.cu:4: arguments[0]: a single value where"},
        {"/*jitcache\nkernel: k\narguments:\n  - name: n\n    tpye: i32\n*/",
         "k.cu:5: arguments[0] (n): tpye: unknown field; did you mean 'type'?"},
        {"/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32, range: [1]}\n*/",
         "k.cu:4: arguments[0] (n): range: a range has two ends; write [1, 8192]"},
        {"/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32, facets: [{div: 16, one: "
         "1}]}\n*/",
         "k.cu:4: arguments[0] (n): facets: a facet is one word or one pair"},
        {"/*jitcache\nkernel: k\narguments:\n  - {name: n, type: i32, dispatch: []}\n*/",
         "arguments[0] (n): dispatch: only parameters are dispatched"},
        {"/*jitcache\nkernel: k\nparameters:\n  - {name: T}\n  - name: U\n    do_not_specialize: "
         "true\n*/",
         "k.cu:6: parameters[1] (U): do_not_specialize: a parameter is a compile-time input"},
        {"/*jitcache\nkernel: k\nparameters:\n  - {name: T, fallback: 1}\n*/",
         "parameters[0] (T): fallback: stands at the top level; write fallback: {NAME: VALUE}"},
        {"/*jitcache\nkernel: k\nparameters:\n  - {name: T, dispatch: [{wen: n, value: 1}]}\n*/",
         "k.cu:4: parameters[0] (T): dispatch[0].wen: unknown field; did you mean 'when'?"},
        {"/*jitcache\nkernel: k\nparameters:\n  - {name: T, dispatch: {value: 1}}\n*/",
         "k.cu:4: parameters[0] (T): dispatch: a map where a list such as"},
        {"/*jitcache\nkernel: k\nfallback: {T: 1}\n*/", "k.cu:3: fallback: 'T' is not a parameter"},
        {"/*jitcache\nkernel: k\nfallback: 1\n*/", "k.cu:3: fallback: a single value where a map"},
        {"/*jitcache\nkernel: k\nlaunch:\n  gird: 1\n*/",
         "k.cu:4: launch.gird: unknown field; did you mean 'grid'?"},
        {"/*jitcache\nkernel: k\nlaunch:\n  grid: [1, 2, 3, 4]\n*/",
         "k.cu:4: launch.grid: one to three expressions"},
        {"/*jitcache\nkernel: k\narguments:\n  - {name: t, type: tensormap, tensormap: {bse: "
         "p}}\n*/",
         "k.cu:4: arguments[0] (t): tensormap.bse: unknown field; did you mean 'base'?"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect(cases[i].text, strlen(cases[i].text), JC_ERROR_TEMPLATE, cases[i].message);
}

static void tensor_maps_are_reserved(void **state)
{
    (void) state;
    static const char *const cases[] = {
        "/*jitcache\nkernel: k\narguments: [{name: t, type: tensormap}]\n*/",
        "/*jitcache\nkernel: k\narguments: [{name: t, tensormap: {base: p, dims: [m, n], box: "
        "[8]}}]\n*/",
    };
    for (size_t i = 0; i < 2; i++)
        expect(cases[i], strlen(cases[i]), JC_ERROR_UNSUPPORTED,
               "k.cu:3: arguments[0] (t): ");
}

static void size_and_depth_are_limited(void **state)
{
    (void) state;
    static const char deep[] = "/*jitcache\nkernel: k\noptions: [[[[[[[[[[a]]]]]]]]]]\n*/";
    expect(deep, strlen(deep), JC_ERROR_LIMIT, "k.cu:3: nested deeper than 8 levels");
    size_t size = 70 << 10;
    char *text = malloc(size + 1);
    assert_non_null(text);
    memset(text, '[', size);
    memcpy(text, "/*jitcache\n", 11);
    memcpy(text + size - 3, "\n*/", 4);
    expect(text, size, JC_ERROR_LIMIT, "k.cu:1: the description is 716");
    free(text);
}

static void a_nul_byte_is_refused_with_its_line(void **state)
{
    (void) state;
    static const char code[] = "/*jitcache\nkernel: k\n*/\nint\0x;\n";
    expect(code, sizeof(code) - 1, JC_ERROR_TEMPLATE, "k.cu:4: a NUL byte in the source");
    static const char yaml[] = "/*jitcache\nkernel: k\0\n*/\n";
    expect(yaml, sizeof(yaml) - 1, JC_ERROR_TEMPLATE, "k.cu:2: a NUL byte in the source");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(front_matter_is_found_where_it_may_stand),
        cmocka_unit_test(broken_front_matter_is_refused_with_line_and_advice),
        cmocka_unit_test(tensor_maps_are_reserved),
        cmocka_unit_test(size_and_depth_are_limited),
        cmocka_unit_test(a_nul_byte_is_refused_with_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
