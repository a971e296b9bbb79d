// Fuzz target: any bytes as a template. One that is accepted must come back from its canonical
// YAML, as front matter and as a struct, as the same template.
//
// With clang: -fsanitize=fuzzer,address. driver.c runs it over the corpus in every test run.

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "runtime/template/description.h"
#include "runtime/template/template.h"
#include "target.h"

const char *const fuzz_words[] = {
    "*/", "/*jitcache", "[", "]", "{", "}", "\"", "'", ":", "- ", "\n", "0", "010", "&a ", "*a",
    "!!x ", "---", "# ", "|", "div: ", "value", "when", "\\x00", "\xff", "\xc3\xa9", NULL};

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void compare(const struct jc_template *tmpl, const char *yaml)
{
    char *again = jc_description_yaml(&tmpl->description);
    check(again && strcmp(again, yaml) == 0, "the canonical YAML changed on its way");
    free(again);
}

static void round_trip(const struct jc_template *tmpl)
{
    char *yaml = jc_description_yaml(&tmpl->description), *text = NULL;
    check(yaml && asprintf(&text, "/*jitcache\n%s*/\n", yaml) > 0, "out of memory");
    struct jc_template *other;
    enum jc_result result = jc_template_create(
        jc_template_params(.text = text, .text_size = strlen(text), .dir = "."), &other, NULL);
    // With the defaults written out it may have grown past the limit.
    check(result == JC_OK || result == JC_ERROR_LIMIT, "the canonical YAML is refused");
    if (result == JC_OK)
        compare(other, yaml);
    jc_template_destroy(&other);
    check(jc_template_create(jc_template_params(.text = ";", .dir = ".",
                                                .description = &tmpl->description),
                             &other, NULL) == JC_OK,
          "the description is refused as a struct");
    compare(other, yaml);
    jc_template_destroy(&other);
    free(text);
    free(yaml);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jc_template *tmpl;
    struct jc_error error = {{0}};
    if (size == 0) // would be read up to a NUL
        return 0;
    enum jc_result result = jc_template_create(
        jc_template_params(.text = (const char *) data, .text_size = size, .dir = "."), &tmpl,
        &error);
    check((result == JC_OK) == (tmpl != NULL), "a result that does not fit the template");
    check(result == JC_OK || error.text[0] != '\0', "an error without a text");
    if (tmpl)
        round_trip(tmpl);
    jc_template_destroy(&tmpl);
    return 0;
}
