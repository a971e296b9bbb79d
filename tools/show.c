// `jitcache show`: one record in full.

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jitcache/jitcache.h>

#include "catalog.h"
#include "columns.h"
#include "keytext.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "prefix.h"
#include "session.h"
#include "units.h"

enum { OPTION_SOURCE = 0x1000, OPTION_CUBIN, OPTION_KEY, OPTION_KIND };

static const struct jc_option options_of_show[] = {
    {"source", OPTION_SOURCE, NULL, "print the template's source instead"},
    {"key", OPTION_KEY, NULL, "print the lines that the key was made from instead"},
    {"cubin", OPTION_CUBIN, NULL, "write the compiled kernel; needs -o"},
    {"output", 'o', "FILE", "where --cubin goes; - is standard output"},
    {"kind", OPTION_KIND, "KIND", "which of several records with one key: variant,\n"
                                  "failure, template, toolchain"},
    {NULL, 0, NULL, NULL},
};

struct show {
    struct jc_options options;
    const char *prefix;
    int part; // OPTION_SOURCE, OPTION_CUBIN, OPTION_KEY, or 0: everything that is known
    const char *output;
    enum jc_record_kind kind; // 0: any, variants first

    struct jc_session session;
    struct jc_catalog catalog;
    const struct jc_cache_entry *entry;
    struct jc_record record;
};

// --- parts of it ---------------------------------------------------------------------------------

static int write_file(const char *path, const struct jc_record *record)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return jc_complain("%s: %s", path, strerror(errno));
    int error = jc_write_all(fd, record->payload, record->payload_size);
    if (close(fd) && !error)
        error = errno;
    return error ? jc_complain("%s: cannot write: %s", path, strerror(error)) : JC_STATUS_DONE;
}

static int show_cubin(const struct show *show)
{
    if (show->record.kind != JC_RECORD_VARIANT)
        return jc_complain("%s is a %s: only a variant has a cubin", show->prefix,
                           jc_kind_name(show->record.kind));
    if (strcmp(show->output, "-") == 0) {
        fwrite(show->record.payload, 1, show->record.payload_size, stdout);
        return JC_STATUS_DONE;
    }
    int status = write_file(show->output, &show->record);
    if (!status && show->options.common.json)
        jc_print_json(json_pack("{s:o, s:I}", "output", jc_json_text(show->output), "bytes",
                                (json_int_t) show->record.payload_size));
    return status;
}

// To a terminal made printable, elsewhere byte for byte.
static void print_part(const char *name, const char *text, size_t size, bool json)
{
    if (json)
        jc_print_json(json_pack("{s:o}", name, jc_json_text_of(text, size)));
    else if (isatty(STDOUT_FILENO))
        jc_print_indented(stdout, 0, text, size);
    else
        fwrite(text, 1, size, stdout);
}

// --- all of it -----------------------------------------------------------------------------------

static json_t *json_of_lines(const void *text, size_t size)
{
    json_t *object = json_object();
    struct jc_lines lines = jc_lines_of(text, size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line)) {
        // Object names have to be text of their own and valid UTF-8.
        json_t *name = jc_json_text_of(line.name, line.name_size);
        json_object_set_new(object, json_string_value(name),
                            jc_json_text_of(line.value, line.value_size));
        json_decref(name);
    }
    return object;
}

static json_t *json_of_key_lines(const struct jc_key_text *text)
{
    json_t *array = json_array();
    struct jc_lines lines = jc_lines_of(text->lines, text->lines_size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line)) {
        size_t size = (size_t) (line.value + line.value_size - line.name);
        json_array_append_new(array, jc_json_text_of(line.name, size));
    }
    return array;
}

static void print_json(const struct show *show)
{
    const struct jc_record *record = &show->record;
    struct jc_key_text text = jc_key_text_of(record->text, record->text_size);
    char key[JC_KEY_STRING_SIZE];
    jc_key_format(&show->entry->key, key);
    json_t *object = json_pack(
        "{s:s, s:s, s:o, s:o, s:I, s:I, s:f, s:I, s:I, s:I, s:o, s:o}", "key", key, "kind",
        jc_kind_name(record->kind), "kernel",
        jc_json_text(jc_catalog_kernel_of(&show->catalog, show->entry)), "arch",
        jc_json_text(show->entry->label), "bytes", (json_int_t) show->entry->bytes,
        "payload_bytes", (json_int_t) record->payload_size, "compile_seconds",
        (double) record->cost_ns / 1e9, "created_ms", (json_int_t) record->created_ms,
        "expires_ms", (json_int_t) record->expires_ms, "segment",
        (json_int_t) show->entry->segment, "metadata",
        json_of_lines(record->metadata, record->metadata_size), "key_lines",
        json_of_key_lines(&text));
    if (record->kind == JC_RECORD_FAILURE)
        json_object_set_new(object, "message",
                            jc_json_text_of(record->payload, record->payload_size));
    jc_print_json(object);
}

static void print_time(const char *name, uint64_t ms, bool age)
{
    char text[JC_UNITS_SIZE], since[JC_UNITS_SIZE];
    printf("%-14s  %s", name, jc_units_moment(ms, text));
    if (age)
        printf(" (%s)", jc_units_age(jc_now_ms(), ms, since));
    putchar('\n');
}

static void print_field(const char *name, size_t name_size, const char *value, size_t value_size)
{
    char *left = jc_printable(name, name_size, false);
    char *right = jc_printable(value, value_size, false);
    printf("%-14s  %s\n", left, right);
    free(left);
    free(right);
}

// The metadata's kernel and architecture stand above already.
static void print_metadata(const struct jc_record *record)
{
    struct jc_lines lines = jc_lines_of(record->metadata, record->metadata_size);
    struct jc_line line;
    while (jc_lines_next(&lines, &line))
        if (!jc_line_is(&line, "kernel") && !jc_line_is(&line, "name") &&
            !jc_line_is(&line, "arch") && !jc_line_is(&line, "compile_ns"))
            print_field(line.name, line.name_size, line.value, line.value_size);
}

static void print_text(const struct show *show)
{
    const struct jc_record *record = &show->record;
    const char *kernel = jc_catalog_kernel_of(&show->catalog, show->entry);
    char key[JC_KEY_STRING_SIZE], bytes[JC_UNITS_SIZE], payload[JC_UNITS_SIZE];
    jc_key_format(&show->entry->key, key);
    printf("%-14s  %s\n%-14s  %s\n", "key", key, "kind", jc_kind_name(record->kind));
    print_field("kernel", strlen("kernel"), kernel, strlen(kernel));
    if (*show->entry->label)
        print_field("arch", strlen("arch"), show->entry->label, strlen(show->entry->label));
    printf("%-14s  %s, of which %s payload\n", "size", jc_units_bytes(show->entry->bytes, bytes),
           jc_units_bytes(record->payload_size, payload));
    if (record->cost_ns)
        printf("%-14s  %s\n", "compile", jc_units_duration(record->cost_ns, bytes));
    print_time("created", record->created_ms, true);
    if (record->expires_ms)
        print_time("expires", record->expires_ms, false);
    print_metadata(record);
    struct jc_key_text text = jc_key_text_of(record->text, record->text_size);
    printf("\nmade from\n");
    jc_print_indented(stdout, 2, text.lines, text.lines_size);
    if (jc_kind_has_kernel(record->kind))
        printf("  and %zu bytes of source\n", text.source_size);
    if (record->kind == JC_RECORD_FAILURE) {
        printf("\nfailed with\n");
        jc_print_indented(stdout, 2, record->payload, record->payload_size);
    }
}

// --- the command ---------------------------------------------------------------------------------

static int show_record(const struct show *show)
{
    bool json = show->options.common.json;
    struct jc_key_text text = jc_key_text_of(show->record.text, show->record.text_size);
    switch (show->part) {
    case OPTION_CUBIN:
        return show_cubin(show);
    case OPTION_SOURCE:
        print_part("source", text.source, text.source_size, json);
        break;
    case OPTION_KEY:
        print_part("key_text", text.lines, text.lines_size, json);
        break;
    default:
        if (json)
            print_json(show);
        else
            print_text(show);
    }
    return JC_STATUS_DONE;
}

static int open_and_show(struct show *show)
{
    // Why a part of the cache is not read is told by ls, to which a missing record points.
    jc_session_hold();
    int status = jc_session_open(&show->session, &show->options.common, JC_SESSION_READ, NULL);
    if (!status)
        status = jc_catalog_read(&show->catalog, show->session.cache);
    if (!status)
        status = jc_prefix_find(&show->catalog, show->prefix, show->kind, &show->entry);
    if (!status)
        status = jc_prefix_read(show->session.cache, show->entry, show->prefix, &show->record);
    if (!status)
        status = show_record(show);
    if (!status)
        jc_catalog_tell_damage(&show->catalog);
    jc_session_release(!status && !show->session.absent);
    jc_record_finish(&show->record);
    jc_catalog_finish(&show->catalog);
    jc_session_close(&show->session);
    return status;
}

static int take_option(struct show *show, int option)
{
    const struct jc_command *command = show->options.command;
    if (option == 'o') {
        show->output = show->options.value;
    } else if (option == OPTION_KIND) {
        show->kind = jc_kind_by_name(show->options.value);
        if (!show->kind)
            return jc_options_misuse(command, "--kind '%s' is none of %s", show->options.value,
                                     JC_KIND_NAMES);
    } else {
        if (show->part && show->part != option)
            return jc_options_misuse(command, "one of --source, --key and --cubin at a time");
        show->part = option;
    }
    return JC_STATUS_DONE;
}

static int check_use(struct show *show, int argc, char **argv)
{
    const struct jc_command *command = show->options.command;
    bool cubin = show->part == OPTION_CUBIN;
    bool to_stdout = show->output && strcmp(show->output, "-") == 0;
    if (optind >= argc)
        return jc_options_misuse(command, "a KEY is missing; jitcache ls lists them");
    if (optind + 1 < argc)
        return jc_options_misuse(command, "one KEY at a time, but there is '%s' too",
                                 argv[optind + 1]);
    if (cubin != (show->output != NULL))
        return jc_options_misuse(command, cubin ? "--cubin needs -o FILE" : "-o goes with --cubin");
    if (to_stdout && show->options.common.json)
        return jc_options_misuse(command, "--json and -o - both want standard output");
    if (to_stdout && isatty(STDOUT_FILENO))
        return jc_options_misuse(command, "a cubin is not for a terminal; write -o FILE");
    show->prefix = argv[optind];
    return jc_prefix_check(command, show->prefix);
}

static int run_show(const struct jc_command *command, int argc, char **argv)
{
    struct show show = {0};
    int option = JC_OPTIONS_END, status = JC_STATUS_DONE;
    jc_options_init(&show.options, command, argc, argv);
    while (!status && (option = jc_options_next(&show.options)) > 0)
        status = take_option(&show, option);
    if (option == JC_OPTIONS_STOP)
        return show.options.status;
    if (!status)
        status = check_use(&show, argc, argv);
    return status ? status : open_and_show(&show);
}

const struct jc_command jc_command_show = {
    .name = "show",
    .summary = "show one record, its source or its cubin",
    .usage = "[OPTION]... KEY",
    .purpose = "Shows one record of the cache: what it was made from, what is known about it. KEY\n"
               "is its key or the first four or more digits of it, as `jitcache ls` lists them.",
    .options = options_of_show,
    .examples = "jitcache show --source KEY\n"
                "jitcache show --cubin -o kernel.cubin KEY",
    .statuses = "0  done\n"
                "2  wrong use, no such record, several of them, or a cache that cannot be read",
    .run = run_show,
};
