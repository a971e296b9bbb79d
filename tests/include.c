#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/compile/directive.h"
#include "runtime/compile/include.h"
#include "scratch.h"

// --- directives ----------------------------------------------------------------------------------

static void every_include_is_seen_and_nothing_else(void **state)
{
    (void) state;
    // References are written as LINE"name", LINE<name> or LINE? for one that is computed.
    static const struct {
        const char *text, *references;
    } cases[] = {
        {"#include \"a.h\"\n", "1\"a.h\""},
        {"#include <a/b.h>\n", "1<a/b.h>"},
        {"#include \"a.h\"", "1\"a.h\""},
        {"  #  include   <a.h> // why\n#include\"b.h\"\n", "1<a.h>2\"b.h\""},
        {"#if 0\n#include <never.h>\n#endif\n", "2<never.h>"},
        {"// #include <no.h>\n/* #include <no.h>\n#include <no.h> */ #include <yes.h>\n",
         "3<yes.h>"},
        {"/**/ # /* x */ include /* y */ <a.h>\n", "1<a.h>"},
        {"#\\\ninclude \\\n  <a.h>\n", "2<a.h>"},
        {"#\\\r\ninclude <a.h>\r\n#include <b.h>\r\n", "2<a.h>3<b.h>"},
        {"const char *s = \"#include <no.h>\";\n", ""},
        {"const char *s = \"\\\"#include <no.h>\";\n", ""},
        {"const char *s = R\"x(\n#include <no.h>\n)\" #include <no.h> )x\";\n#include <a.h>\n",
         "4<a.h>"},
        {"int n = 1'000'000;\n#include <a.h>\n", "2<a.h>"},
        {"#error don't\n#include <a.h>\n", "2<a.h>"},
        {"char c = '\"';\n#include <a.h>\n", "2<a.h>"},
        {"#include <it's.h>\n#include <a//b.h>\n", "1<it's.h>2<a//b.h>"},
        {"%:include <a.h>\n", "1<a.h>"},
        {"#import \"a.h\"\n", "1\"a.h\""},
        {"#include MACRO\n", "1?"},
        {"#include\n", "1?"},
        {"#include \"a.h\n", "1?"},
        {"#include <a.h\n", "1?"},
        {"#include \"\"\n", "1?"},
        {"#include_next <a.h>\n", "1?"},
        {"#inc\\\nlude <a.h>\n", "1?"},
        {"#if __has_include(<a.h>) && __has_include ( \"b.h\" )\n#endif\n", "1<a.h>1\"b.h\""},
        {"#ifdef __has_include\n#if defined(__has_include) && X\n#endif\n#endif\n", ""},
        {"#define HAS(x) __has_include(x)\n", "1?"},
        {"int include; int x = a #include;\n", "1?"}, // too much is right, too little is not
        {"int include = 1;\n#define include <a.h>\n", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char found[256] = "";
        struct jc_scanner scanner = {.next = cases[i].text,
                                     .end = cases[i].text + strlen(cases[i].text), .line = 1};
        struct jc_reference reference;
        while (jc_directive_next(&scanner, &reference)) {
            size_t used = strlen(found);
            if (reference.kind == JC_REFERENCE_COMPUTED)
                snprintf(found + used, sizeof(found) - used, "%u?", reference.line);
            else
                snprintf(found + used, sizeof(found) - used, "%u%.*s", reference.line,
                         (int) (reference.end - reference.begin), reference.begin);
        }
        if (strcmp(found, cases[i].references) != 0)
            fail_msg("%s\nfound %s, not %s", cases[i].text, found, cases[i].references);
    }
}

// --- closures ------------------------------------------------------------------------------------

// A template below the folder, with one include folder or two.
struct fixture {
    char file[PATH_MAX], dir[PATH_MAX], first[PATH_MAX], second[PATH_MAX], toolkit[PATH_MAX];
    const char *include[2];
    struct jc_template tmpl;
    struct jc_toolchain toolchain;
    struct jc_includes *includes;
    struct jc_closure closure;
    struct jc_error error;
};

static char dot[] = ".", cccl[] = "cccl", none[] = "", lines[] = "--fmad=false -lineinfo";

static enum jc_result follow(struct fixture *fixture, const char *dir, const char *source)
{
    if (!fixture->includes)
        assert_int_equal(jc_includes_create(&fixture->includes, NULL), JC_OK);
    jc_closure_finish(&fixture->closure);
    assert_true(snprintf(fixture->dir, PATH_MAX, "%s/%s", scratch, dir) < PATH_MAX);
    assert_true(snprintf(fixture->file, PATH_MAX, "%s/%s/k.cu", scratch, dir) < PATH_MAX);
    assert_true(snprintf(fixture->first, PATH_MAX, "%s/first", scratch) < PATH_MAX);
    assert_true(snprintf(fixture->second, PATH_MAX, "%s/second", scratch) < PATH_MAX);
    assert_true(snprintf(fixture->toolkit, PATH_MAX, "%s/toolkit", scratch) < PATH_MAX);
    fixture->include[0] = fixture->first;
    fixture->include[1] = fixture->second;
    fixture->tmpl = (struct jc_template){
        .name = "k", .file = fixture->file, .base_name = "k.cu", .line_name = "k.cu",
        .dir = fixture->dir, .source = source, .source_size = strlen(source),
        .include = fixture->include, .num_include = 2};
    fixture->toolchain = (struct jc_toolchain){
        .major = 13, .include = fixture->toolkit, .roots = {dot, cccl}, .num_roots = 2,
        .include_major = 13, .append_flags = none};
    fixture->error.text[0] = '\0';
    return jc_includes_follow(fixture->includes, &fixture->tmpl, &fixture->toolchain,
                              &fixture->closure, &fixture->error);
}

static void follow_well(struct fixture *fixture, const char *dir, const char *source)
{
    if (follow(fixture, dir, source) != JC_OK)
        fail_msg("%s", fixture->error.text);
}

static void finish(struct fixture *fixture)
{
    jc_closure_finish(&fixture->closure);
    jc_includes_destroy(&fixture->includes);
}

// The text of a header as NVRTC gets it, NULL if it gets none.
static const char *header(const struct fixture *fixture, const char *name)
{
    for (size_t i = 0; i < fixture->closure.num_headers; i++)
        if (strcmp(fixture->closure.headers[i].name, name) == 0)
            return fixture->closure.headers[i].text;
    return NULL;
}

static void assert_lists(const struct fixture *fixture, const char *line)
{
    if (!strstr(fixture->closure.list, line))
        fail_msg("'%s' is not in:\n%s", line, fixture->closure.list);
}

static void the_files_name_counts_where_the_code_may_tell_it(void **state)
{
    (void) state;
    scratch_put("t/tells.h", "static const char *file = __builtin_FILE();\n");
    scratch_put("toolkit/tells.h", "#define check(x) assert(x)\n");
    scratch_put("toolkit/silent.h", "static_assert(true, \"\"); int MY__FILE__;\n");
    static const struct {
        const char *source;
        bool tells;
    } cases[] = {
        {"int a;\n", false},
        {"const char *a = __FILE__;\n", true},
        {"void a() { assert(1); }\n", true},
        {"static_assert(true, \"\");\n", false},
        {"#include \"tells.h\"\n", true},
        {"#include <tells.h>\n", true},
        {"#include <silent.h>\n", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture fixture = {0};
        follow_well(&fixture, "t", cases[i].source);
        if (!strstr(fixture.closure.list, "file=k.cu\n") == cases[i].tells)
            fail_msg("%s: %s", cases[i].source, fixture.closure.list);
        finish(&fixture);
    }
    struct fixture fixture = {0};
    follow_well(&fixture, "t", cases[0].source);
    const char *const options[] = {"-lineinfo"};
    struct jc_closure closure;
    fixture.tmpl.options = options;
    fixture.tmpl.num_options = 1;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(jc_includes_follow(fixture.includes, &fixture.tmpl, &fixture.toolchain,
                                            &closure, NULL), JC_OK);
        assert_non_null(strstr(closure.list, "file=k.cu\n"));
        jc_closure_finish(&closure);
        fixture.tmpl.num_options = 0;
        fixture.toolchain.append_flags = lines;
    }
    finish(&fixture);
}

static void headers_are_followed_wherever_they_lie(void **state)
{
    (void) state;
    scratch_put("t/beside.h", "#include \"sub/nested.h\"\n#include <inc.h>\n");
    scratch_put("t/sub/nested.h", "#include \"deep.h\"\n#include \"top.h\"\n");
    scratch_put("t/sub/deep.h", "#pragma once\n");
    scratch_put("t/top.h", "");
    scratch_put("up.h", "");
    scratch_put("first/inc.h", "#include \"private.h\"\n");
    scratch_put("first/private.h", "");
    scratch_put("second/inc.h", "never reached\n");
    scratch_put("second/only.h", "");
    struct fixture fixture = {0};
    follow_well(&fixture, "t", "#include \"beside.h\"\n#include \"../up.h\"\n#include <only.h>\n"
                               "#include <jitcache.cuh>\n");
    static const char *const names[] = {"beside.h", "../up.h", "only.h", "jitcache.cuh",
                                        "sub/nested.h", "inc.h", "sub/deep.h", "top.h",
                                        "private.h"};
    assert_int_equal(fixture.closure.num_headers, sizeof(names) / sizeof(names[0]));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_string_equal(fixture.closure.headers[i].name, names[i]);
        assert_int_equal(fixture.closure.headers[i].size,
                         strlen(fixture.closure.headers[i].text));
    }
    assert_non_null(strstr(header(&fixture, "jitcache.cuh"), "#define JC_PARAM(name)"));
    assert_string_equal(header(&fixture, "inc.h"), "#include \"private.h\"\n");
    assert_null(strstr(fixture.closure.list, scratch)); // no path gets into a key
    finish(&fixture);
}

static void one_file_has_one_name_however_it_is_spelled(void **state)
{
    (void) state;
    scratch_put("t/a.h", "#pragma once\n");
    scratch_put("t/sub/b.h",
                "#include \"../a.h\"\n#include \"./../sub/../a.h\"\n#include \"b.h\"\n");
    struct fixture fixture = {0};
    follow_well(&fixture, "t", "#include \"a.h\"\n#include \"./a.h\"\n#include \"sub/b.h\"\n");
    assert_int_equal(fixture.closure.num_headers, 2);
    assert_string_equal(header(&fixture, "sub/b.h"),
                        "#include <a.h>\n#include <a.h>\n#include <sub/b.h>\n");
    // What is spelled as it is named stays as its author wrote it.
    assert_string_equal(fixture.closure.source,
                        "#include \"a.h\"\n#include <a.h>\n#include \"sub/b.h\"\n");
    finish(&fixture);
}

static void two_files_of_one_name_are_kept_apart(void **state)
{
    (void) state;
    scratch_put("t/a.h", "// beside the template\n#include <a.h>\n");
    scratch_put("first/a.h", "// in the first folder\n#include \"b.h\"\n");
    scratch_put("first/b.h", "");
    struct fixture fixture = {0};
    follow_well(&fixture, "t", "#include \"a.h\"\n");
    assert_int_equal(fixture.closure.num_headers, 3);
    assert_string_equal(header(&fixture, "a.h"),
                        "// beside the template\n#include <jitcache.1/a.h>\n");
    assert_string_equal(header(&fixture, "jitcache.1/a.h"),
                        "// in the first folder\n#include <jitcache.1/b.h>\n");
    finish(&fixture);
}

static void the_toolkit_counts_by_name_and_content(void **state)
{
    (void) state;
    scratch_put("toolkit/cuda_fp16.h", "#include \"crt/inner.h\"\n#include <cuda/std/x>\n"
                                       "#include <host_only.h>\n#include COMPUTED\n");
    scratch_put("toolkit/crt/inner.h", "#include \"next.h\"\n#include \"cuda_fp16.h\"\n");
    scratch_put("toolkit/crt/next.h", "");
    scratch_put("toolkit/cccl/cuda/std/x", "#include <cuda/std/y>\n");
    scratch_put("toolkit/cccl/cuda/std/y", "");
    scratch_put("toolkit/unused.h", "");
    struct fixture fixture = {0};
    follow_well(&fixture, "t", "#include <cuda_fp16.h>\n#include \"absent.h\"\n");
    assert_int_equal(fixture.closure.num_headers, 0);
    assert_lists(&fixture, "toolkit=cuda_fp16.h ");
    assert_lists(&fixture, "toolkit=crt/inner.h ");
    assert_lists(&fixture, "toolkit=crt/next.h ");
    assert_lists(&fixture, "toolkit=cccl/cuda/std/x ");
    assert_lists(&fixture, "toolkit=cccl/cuda/std/y ");
    assert_lists(&fixture, "computed=cuda_fp16.h 13.0\n");
    assert_lists(&fixture, "absent=absent.h\nabsent=host_only.h\n");
    assert_null(strstr(fixture.closure.list, "unused.h"));
    assert_null(strstr(fixture.closure.list, scratch));
    finish(&fixture);
}

static void the_digest_follows_every_byte_that_is_read(void **state)
{
    (void) state;
    static const struct {
        const char *name, *text;
    } changes[] = {
        {"t/a.h", "#include \"n.h\"\n#include <tool.h>\n#include <later.h>\n//\n"},
        {"t/n.h", "int changed;\n"},
        {"toolkit/tool.h", "#include \"tool2.h\"\n//\n"},
        {"toolkit/tool2.h", "int other;\n"},
        {"first/later.h", "\n"},
    };
    scratch_put("t/a.h", "#include \"n.h\"\n#include <tool.h>\n#include <later.h>\n");
    scratch_put("t/n.h", "");
    scratch_put("toolkit/tool.h", "#include \"tool2.h\"\n");
    scratch_put("toolkit/tool2.h", "");
    struct fixture fixture = {0};
    char digests[6][JC_KEY_STRING_SIZE];
    for (size_t i = 0; i < 6; i++) {
        follow_well(&fixture, "t", "#include \"a.h\"\n");
        strcpy(digests[i], fixture.closure.digest);
        follow_well(&fixture, "t", "#include \"a.h\"\n");
        assert_string_equal(digests[i], fixture.closure.digest);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(digests[j], digests[i]);
        if (i < 5)
            scratch_put(changes[i].name, changes[i].text);
    }
    finish(&fixture);
}

// Of many sources, of one size some, and of some that are large.
static void a_source_is_followed_the_same_each_time_with_what_lies_beside_it_then(void **state)
{
    (void) state;
    enum { SOURCES = 80, LARGE = 100000 };
    static char sources[SOURCES][LARGE + 64];
    static char digests[2][SOURCES][JC_KEY_STRING_SIZE];
    struct fixture fixture = {0};
    for (int i = 0; i < SOURCES; i++) {
        char *end = sources[i] + sprintf(sources[i], "#include \"./a.h\"\nint i = %02d;\n", i);
        if (i % 10 == 0)
            memset(end, '\n', LARGE);
    }
    for (int round = 0; round < 4; round++) {
        scratch_put("t/a.h", round < 2 ? "int a;\n" : "int b;\n");
        for (int i = 0; i < SOURCES; i++) {
            follow_well(&fixture, "t", sources[i]);
            const char *respelled = strchr(sources[i], '\n');
            assert_memory_equal(fixture.closure.source, "#include <a.h>", 14);
            assert_string_equal(fixture.closure.source + 14, respelled);
            assert_string_equal(header(&fixture, "a.h"), round < 2 ? "int a;\n" : "int b;\n");
            char *digest = digests[round / 2][i];
            if (round % 2 == 0)
                strcpy(digest, fixture.closure.digest);
            assert_string_equal(digest, fixture.closure.digest);
        }
    }
    for (int i = 0; i < SOURCES; i++) {
        assert_string_not_equal(digests[0][i], digests[1][i]);
        assert_true(i == 0 || strcmp(digests[0][i], digests[0][i - 1]) != 0);
    }
    finish(&fixture);
}

static void the_folder_is_not_in_the_digest(void **state)
{
    (void) state;
    static const char *const dirs[] = {"one", "two/deeper"};
    char digest[JC_KEY_STRING_SIZE] = "";
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        struct fixture fixture = {0};
        snprintf(name, sizeof(name), "%s/a.h", dirs[i]);
        scratch_put(name, "#include \"sub/b.h\"\n");
        snprintf(name, sizeof(name), "%s/sub/b.h", dirs[i]);
        scratch_put(name, "static const char *file = __FILE__;\n");
        follow_well(&fixture, dirs[i], "#include \"a.h\"\n");
        if (i > 0)
            assert_string_equal(fixture.closure.digest, digest);
        strcpy(digest, fixture.closure.digest);
        finish(&fixture);
    }
}

static void what_cannot_be_followed_is_an_error_with_its_line(void **state)
{
    (void) state;
    static const struct {
        const char *source, *header, *place;
    } cases[] = {
        {"\n#include MACRO\n", "", "t/k.cu:2: "},
        {"#include \"a.h\"\n", "\n\n#include HEADER(x)\n", "t/a.h:3: "},
        {"#include_next <a.h>\n", "", "t/k.cu:1: "},
        {"#if __has_include(X)\n#endif\n", "", "t/k.cu:1: "},
        {"#include \"/etc/hostname\"\n", "", "t/k.cu:1: the absolute path /etc/hostname"},
    };
    struct fixture fixture = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        scratch_put("t/a.h", cases[i].header);
        assert_int_equal(follow(&fixture, "t", cases[i].source), JC_ERROR_TEMPLATE);
        if (!strstr(fixture.error.text, cases[i].place))
            fail_msg("%s: %s", cases[i].source, fixture.error.text);
        assert_null(fixture.closure.source);
        assert_int_equal(fixture.closure.num_headers, 0);
    }
    finish(&fixture);
}

static void the_clock_is_an_error_with_its_line(void **state)
{
    (void) state;
    static const char *const words[] = {"__DATE__", "__TIME__", "__TIMESTAMP__"};
    struct fixture fixture = {0};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        char text[128], expected[64];
        snprintf(text, sizeof(text), "// not this: %s\nconst char *when = %s;\n", words[i],
                 words[i]);
        snprintf(expected, sizeof(expected), "t/clock.h:2: %s", words[i]);
        scratch_put("t/clock.h", text);
        assert_int_equal(follow(&fixture, "t", "#include \"clock.h\"\n"), JC_ERROR_TEMPLATE);
        assert_non_null(strstr(fixture.error.text, expected));
        assert_int_equal(follow(&fixture, "t", text), JC_ERROR_TEMPLATE);
        assert_non_null(strstr(fixture.error.text, "k.cu:2: "));
    }
    follow_well(&fixture, "t", "const char *text = \"__TIME__\"; // __DATE__\nint __TIME__s;\n");
    finish(&fixture);
}

static void a_byte_order_mark_is_not_passed_on(void **state)
{
    (void) state;
    scratch_put("t/a.h", "\xef\xbb\xbf#define A 1\n");
    struct fixture fixture = {0};
    follow_well(&fixture, "t", "\xef\xbb\xbf#include \"a.h\"\n");
    assert_string_equal(fixture.closure.source, "#include \"a.h\"\n");
    assert_string_equal(header(&fixture, "a.h"), "#define A 1\n");
    finish(&fixture);
}

static void a_nul_byte_is_an_error(void **state)
{
    (void) state;
    struct fixture fixture = {0};
    scratch_put("t/a.h", "");
    char path[PATH_MAX];
    assert_true(snprintf(path, sizeof(path), "%s/t/a.h", scratch) < PATH_MAX);
    FILE *stream = fopen(path, "w");
    fwrite("int a;\0int b;\n", 1, 14, stream);
    fclose(stream);
    assert_int_equal(follow(&fixture, "t", "#include \"a.h\"\n"), JC_ERROR_TEMPLATE);
    assert_non_null(strstr(fixture.error.text, "t/a.h: has a NUL byte"));
    finish(&fixture);
}

static void a_template_without_a_folder_still_finds_the_device_header(void **state)
{
    (void) state;
    struct fixture fixture = {0};
    follow_well(&fixture, "t", ""); // fills in the fixture
    fixture.tmpl.dir = fixture.tmpl.file = NULL;
    fixture.tmpl.num_include = 0;
    fixture.tmpl.source = "#include <jitcache.cuh>\n#include \"k.cu\"\n";
    fixture.tmpl.source_size = strlen(fixture.tmpl.source);
    jc_closure_finish(&fixture.closure);
    assert_int_equal(jc_includes_follow(fixture.includes, &fixture.tmpl, &fixture.toolchain,
                                        &fixture.closure, &fixture.error), JC_OK);
    assert_int_equal(fixture.closure.num_headers, 1);
    assert_lists(&fixture, "absent=k.cu\n");
    finish(&fixture);
}

// As it does to NVRTC, which knows the headers in memory by their names alone.
static void an_own_header_counts_for_whatever_names_it_so(void **state)
{
    (void) state;
    struct fixture fixture = {0};
    scratch_put("t/tool.h", "");
    scratch_put("t/later.h", "");
    scratch_put("toolkit/tool.h", "#include <inner.h>\n");
    follow_well(&fixture, "t", "#include <tool.h>\n#include <later.h>\n#include <absent.h>\n");
    assert_lists(&fixture, "toolkit=tool.h ");
    assert_lists(&fixture, "absent=absent.h\nabsent=inner.h\nabsent=later.h\n");
    follow_well(&fixture, "t", "#include <tool.h>\n#include <later.h>\n#include <absent.h>\n"
                               "#include \"tool.h\"\n#include \"later.h\"\n");
    assert_null(strstr(fixture.closure.list, "toolkit="));
    assert_null(strstr(fixture.closure.list, "inner.h"));
    assert_null(strstr(fixture.closure.list, "absent=later.h"));
    assert_lists(&fixture, "header=tool.h ");
    assert_lists(&fixture, "absent=absent.h\n");
    finish(&fixture);
}

// --- closures of a template that a cache gave ----------------------------------------------------

// The files of a template below t/, as a cache keeps them, in a template of their own.
static void give_files(const struct fixture *from, struct jc_template *tmpl,
                       struct jc_template_file files[16])
{
    assert_true(from->closure.num_headers < 16);
    files[0] = (struct jc_template_file){"", from->closure.source, strlen(from->closure.source)};
    for (size_t i = 0; i < from->closure.num_headers; i++)
        files[i + 1] = (struct jc_template_file){from->closure.headers[i].name,
                                                 from->closure.headers[i].text,
                                                 from->closure.headers[i].size};
    *tmpl = from->tmpl;
    tmpl->file = tmpl->dir = NULL;
    tmpl->files = files;
    tmpl->num_files = from->closure.num_headers + 1;
}

static void assert_same_closure(const struct jc_closure *a, const struct jc_closure *b)
{
    assert_string_equal(a->list, b->list);
    assert_string_equal(a->digest, b->digest);
    assert_string_equal(a->source, b->source);
    assert_int_equal(a->num_headers, b->num_headers);
    for (size_t i = 0; i < a->num_headers; i++) {
        assert_string_equal(a->headers[i].name, b->headers[i].name);
        assert_string_equal(a->headers[i].text, b->headers[i].text);
        assert_int_equal(a->headers[i].size, b->headers[i].size);
    }
}

static void put_nests(void)
{
    scratch_put("up.h", "#pragma once\n#include \"t/top.h\"\n");
    scratch_put("t/top.h", "#pragma once\n");
    scratch_put("t/sub/a.h", "#include \"b.h\"\n#include \"../top.h\"\n#include <tool.h>\n");
    scratch_put("t/sub/b.h", "#include \"./../sub/deep/c.h\"\n#include \"nowhere.h\"\n");
    scratch_put("t/sub/deep/c.h", "#include \"b.h\"\n#include \"../../../up.h\"\n");
    scratch_put("t/tells.h", "#define WHERE __FILE__\n");
    scratch_put("t/twin.h", "// beside\n#include <twin.h>\n");
    scratch_put("first/twin.h", "// first\n#include \"part.h\"\n");
    scratch_put("first/part.h", "#include <twin.h>\n#include <cuda_fp16.h>\n");
    scratch_put("t/tool.h", "// beside, and in the toolkit too\n");
    scratch_put("t/later.h", "// what others look for in vain\n");
    scratch_put("t/marked.h", "\xef\xbb\xbf// with a mark\n#include <jitcache.cuh>\n");
    scratch_put("t/jitcache.cuh", "// not the device header\n");
    scratch_put("toolkit/tool.h", "#include \"more/tool2.h\"\n#include <host.h>\n");
    scratch_put("toolkit/more/tool2.h", "#include COMPUTED\n");
    scratch_put("toolkit/cuda_fp16.h", "#include <tool.h>\n");
    scratch_put("other/tool.h", "// another toolkit's\n#include <other.h>\n");
    scratch_put("other/other.h", "#define check(x) assert(x)\n");
    scratch_put("other/nowhere.h", "// absent from the first toolkit\n");
}

// With the toolkit that the files were first followed with, and with another one.
static void the_files_of_a_cache_come_to_the_closure_of_the_templates_own(void **state)
{
    (void) state;
    static const char *const sources[] = {
        "int nothing;\n",
        "#include \"top.h\"\n#include \"./top.h\"\n#include \"sub/../top.h\"\n",
        "#include \"sub/a.h\"\n#include \"nowhere.h\"\n",
        "#include \"../up.h\"\n#include \"sub/deep/c.h\"\n#include \"sub/b.h\"\n",
        "#include \"tells.h\"\n",
        "const char *where = __FILE__;\n",
        "#include \"twin.h\"\n",
        "#include <twin.h>\n#include \"twin.h\"\n#include \"first/twin.h\"\n",
        // An own header of a name that is also the toolkit's, or that something else looks for.
        "#include <tool.h>\n#include \"top.h\"\n#include \"tool.h\"\n",
        "#include \"./tool.h\"\n#include <tool.h>\n#include <cuda_fp16.h>\n",
        "#if __has_include(<later.h>)\n#endif\n#include \"top.h\"\n#include \"later.h\"\n",
        "\xef\xbb\xbf#include \"marked.h\"\n",
        "#include \"top.h\"\n#include <jitcache.cuh>\n#include \"tells.h\"\n",
        "#include \"./jitcache.cuh\"\n#include <jitcache.cuh>\n",
        "#include <./tool.h>\n#include \"more/../tool.h\"\n#include <more/tool2.h>\n",
    };
    char other[PATH_MAX];
    put_nests();
    strcpy(other, scratch_path("other"));
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        struct fixture fixture = {0};
        struct jc_template given;
        struct jc_template_file files[16];
        struct jc_closure own, stored;
        follow_well(&fixture, "t", sources[i]);
        give_files(&fixture, &given, files);
        for (int round = 0; round < 2; round++) {
            assert_int_equal(jc_includes_follow(fixture.includes, &fixture.tmpl,
                                                &fixture.toolchain, &own, NULL), JC_OK);
            assert_int_equal(jc_includes_follow(fixture.includes, &given, &fixture.toolchain,
                                                &stored, NULL), JC_OK);
            assert_same_closure(&own, &stored);
            bool reads_toolkit = strstr(own.list, "\ntoolkit=")
                || strstr(fixture.closure.list, "\ntoolkit=");
            assert_true((strcmp(own.digest, fixture.closure.digest) == 0)
                        == (round == 0 || !reads_toolkit));
            jc_closure_finish(&own);
            jc_closure_finish(&stored);
            fixture.toolchain.include = other;
        }
        finish(&fixture);
    }
}

static void no_folder_is_looked_at_for_a_template_that_a_cache_gave(void **state)
{
    (void) state;
    struct fixture fixture = {0};
    struct jc_template given;
    struct jc_template_file files[16];
    struct jc_closure stored;
    put_nests();
    follow_well(&fixture, "t", "#include \"sub/a.h\"\n#include \"twin.h\"\n");
    give_files(&fixture, &given, files);
    given.dir = fixture.dir;
    given.file = fixture.file;
    scratch_put("t/nowhere.h", "// now it is there\n");
    scratch_put("t/sub/b.h", "// another text\n");
    assert_int_equal(jc_includes_follow(fixture.includes, &given, &fixture.toolchain, &stored,
                                        NULL), JC_OK);
    assert_same_closure(&fixture.closure, &stored);
    jc_closure_finish(&stored);
    finish(&fixture);
}

static void the_device_header_is_the_librarys_whatever_a_cache_gives(void **state)
{
    (void) state;
    struct fixture fixture = {0};
    struct jc_template given;
    struct jc_template_file files[16];
    struct jc_closure stored;
    scratch_put("t/last.h", "");
    follow_well(&fixture, "t", "#include <jitcache.cuh>\n#include \"last.h\"\n");
    give_files(&fixture, &given, files);
    assert_string_equal(files[1].name, "jitcache.cuh");
    files[1].text = "// of an older library\n";
    files[1].size = strlen(files[1].text);
    assert_int_equal(jc_includes_follow(fixture.includes, &given, &fixture.toolchain, &stored,
                                        NULL), JC_OK);
    assert_same_closure(&fixture.closure, &stored);
    jc_closure_finish(&stored);
    finish(&fixture);
}

static void what_a_cache_gives_is_checked_like_any_source(void **state)
{
    (void) state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"int a;\n#include MACRO\n", "x.h:2: this include cannot be followed"},
        {"#include \"/etc/hostname\"\n", "x.h:1: the absolute path"},
        {"const char *when = __TIME__;\n", "x.h:1: __TIME__"},
        {"a\0b", "x.h: has a NUL byte"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture fixture = {0};
        struct jc_template given;
        struct jc_template_file files[16];
        struct jc_closure stored;
        scratch_put("t/x.h", "");
        follow_well(&fixture, "t", "#include \"x.h\"\n");
        give_files(&fixture, &given, files);
        files[1].text = cases[i].text;
        files[1].size = i == 3 ? 3 : strlen(cases[i].text);
        assert_int_equal(jc_includes_follow(fixture.includes, &given, &fixture.toolchain, &stored,
                                            &fixture.error), JC_ERROR_TEMPLATE);
        if (!strstr(fixture.error.text, cases[i].words))
            fail_msg("%s", fixture.error.text);
        assert_null(stored.source);
        finish(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_include_is_seen_and_nothing_else),
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
        IN_A_FOLDER(the_files_name_counts_where_the_code_may_tell_it),
        IN_A_FOLDER(headers_are_followed_wherever_they_lie),
        IN_A_FOLDER(one_file_has_one_name_however_it_is_spelled),
        IN_A_FOLDER(two_files_of_one_name_are_kept_apart),
        IN_A_FOLDER(the_toolkit_counts_by_name_and_content),
        IN_A_FOLDER(the_digest_follows_every_byte_that_is_read),
        IN_A_FOLDER(a_source_is_followed_the_same_each_time_with_what_lies_beside_it_then),
        IN_A_FOLDER(the_folder_is_not_in_the_digest),
        IN_A_FOLDER(what_cannot_be_followed_is_an_error_with_its_line),
        IN_A_FOLDER(the_clock_is_an_error_with_its_line),
        IN_A_FOLDER(a_byte_order_mark_is_not_passed_on),
        IN_A_FOLDER(a_nul_byte_is_an_error),
        IN_A_FOLDER(a_template_without_a_folder_still_finds_the_device_header),
        IN_A_FOLDER(an_own_header_counts_for_whatever_names_it_so),
        IN_A_FOLDER(the_files_of_a_cache_come_to_the_closure_of_the_templates_own),
        IN_A_FOLDER(no_folder_is_looked_at_for_a_template_that_a_cache_gave),
        IN_A_FOLDER(the_device_header_is_the_librarys_whatever_a_cache_gives),
        IN_A_FOLDER(what_a_cache_gives_is_checked_like_any_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
