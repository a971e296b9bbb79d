// `jitcache ls`: one line for each record.

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

#include "capability.h"
#include "catalog.h"
#include "columns.h"
#include "keytext.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "prefix.h"
#include "session.h"
#include "units.h"

enum { OPTION_KERNEL = 0x1000, OPTION_ARCH, OPTION_KIND };

static const struct jc_option options_of_ls[] = {
    {"kernel", OPTION_KERNEL, "NAME", "only this kernel; may hold * and ?"},
    {"arch", OPTION_ARCH, "ARCH", "only this architecture: sm_90a; or all of that GPU, as\n"
                                  "sm_90 or 9.0"},
    {"kind", OPTION_KIND, "KIND", "only " JC_KIND_NAMES},
    {NULL, 0, NULL, NULL},
};

struct filter {
    const char *kernel, *arch; // NULL: any
    enum jc_record_kind kind;  // 0: any
};

static bool passes(const struct filter *filter, const struct jc_catalog *catalog,
                   const struct jc_cache_entry *entry)
{
    if (filter->kind && filter->kind != entry->kind)
        return false;
    if (filter->arch && !jc_capability_is(filter->arch, entry->label))
        return false;
    return !filter->kernel ||
           fnmatch(filter->kernel, jc_catalog_kernel_of(catalog, entry), 0) == 0;
}

// What sets a variant apart, from its record. Allocated; "" for other kinds, and where the record
// cannot be read any more.
static char *read_specialization(struct jc_cache *cache, const struct jc_cache_entry *entry)
{
    struct jc_record record;
    if ((entry->kind != JC_RECORD_VARIANT && entry->kind != JC_RECORD_FAILURE) ||
        jc_cache_find_key(cache, entry->kind, &entry->key, &record) != JC_OK)
        return jc_copy_text("", 0);
    struct jc_key_text text = jc_key_text_of(record.text, record.text_size);
    char *known = jc_lines_specialization(jc_lines_of(text.lines, text.lines_size));
    jc_record_finish(&record);
    return known;
}

static void print_json(const struct jc_catalog *catalog, const struct filter *filter)
{
    json_t *records = json_array();
    for (size_t i = 0; i < catalog->num_entries; i++) {
        const struct jc_cache_entry *entry = &catalog->entries[i];
        if (!passes(filter, catalog, entry))
            continue;
        char key[JC_KEY_STRING_SIZE];
        jc_key_format(&entry->key, key);
        json_array_append_new(
            records,
            json_pack("{s:s, s:s, s:o, s:o, s:I, s:f, s:I, s:I}", "key", key, "kind",
                      jc_kind_name(entry->kind), "kernel",
                      jc_json_text(jc_catalog_kernel_of(catalog, entry)), "arch",
                      jc_json_text(entry->label), "bytes", (json_int_t) entry->bytes,
                      "compile_seconds", (double) entry->cost_ns / 1e9, "created_ms",
                      (json_int_t) entry->created_ms, "expires_ms",
                      (json_int_t) entry->expires_ms));
    }
    jc_print_json(json_pack("{s:o}", "records", records));
}

// `cache`, if not NULL, is read for what the index does not say.
static void print_table(const struct jc_catalog *catalog, const struct filter *filter,
                        struct jc_cache *cache)
{
    static const char *const known[] = {"KEY",   "KIND",     "KERNEL", "ARCH",
                                        ">SIZE", ">COMPILE", ">AGE",   "SPECIALIZATION", NULL};
    const char *headings[sizeof(known) / sizeof(known[0])];
    memcpy(headings, known, sizeof(known));
    if (!cache)
        headings[7] = NULL;
    struct jc_columns table;
    jc_columns_init(&table, headings);
    uint64_t now_ms = jc_now_ms();
    for (size_t i = 0; i < catalog->num_entries; i++) {
        const struct jc_cache_entry *entry = &catalog->entries[i];
        if (!passes(filter, catalog, entry))
            continue;
        char key[JC_KEY_STRING_SIZE], text[JC_UNITS_SIZE];
        jc_key_format(&entry->key, key);
        jc_columns_add(&table, "%.*s", JC_KEY_DIGITS, key);
        jc_columns_add(&table, "%s", jc_kind_name(entry->kind));
        jc_columns_add(&table, "%s", jc_catalog_kernel_of(catalog, entry));
        jc_columns_add(&table, "%s", entry->label);
        jc_columns_add(&table, "%s", jc_units_bytes(entry->bytes, text));
        jc_columns_add(&table, "%s", entry->cost_ns ? jc_units_duration(entry->cost_ns, text) : "");
        jc_columns_add(&table, "%s", jc_units_age(now_ms, entry->created_ms, text));
        if (!cache)
            continue;
        char *specialization = read_specialization(cache, entry);
        jc_columns_add(&table, "%s", *specialization ? specialization : "-");
        free(specialization);
    }
    if (table.num_cells)
        jc_columns_print(&table, 0);
    jc_columns_finish(&table);
}

static int list_records(const struct jc_common *common, const struct filter *filter)
{
    struct jc_session session;
    struct jc_catalog catalog = {0};
    int status = jc_session_open(&session, common, JC_SESSION_READ, NULL);
    if (!status)
        status = jc_catalog_read(&catalog, session.cache);
    jc_catalog_tell_damage(&catalog);
    if (!status && common->json)
        print_json(&catalog, filter);
    else if (!status)
        print_table(&catalog, filter, common->verbosity ? session.cache : NULL);
    jc_catalog_finish(&catalog);
    jc_session_close(&session);
    return status;
}

static int run_ls(const struct jc_command *command, int argc, char **argv)
{
    struct jc_options options;
    struct filter filter = {0};
    int option;
    jc_options_init(&options, command, argc, argv);
    while ((option = jc_options_next(&options)) > 0) {
        if (option == OPTION_KERNEL)
            filter.kernel = options.value;
        else if (option == OPTION_ARCH)
            filter.arch = options.value;
        else if (!(filter.kind = jc_kind_by_name(options.value)))
            return jc_options_misuse(command, "--kind '%s' is none of %s", options.value,
                                     JC_KIND_NAMES);
    }
    if (option == JC_OPTIONS_STOP)
        return options.status;
    if (optind < argc)
        return jc_options_misuse(command, "takes no '%s'; to filter write --kernel '%s'",
                                 argv[optind], argv[optind]);
    return list_records(&options.common, &filter);
}

const struct jc_command jc_command_ls = {
    .name = "ls",
    .summary = "list what the cache holds",
    .usage = "[OPTION]...",
    .purpose = "Lists the records of the cache: compiled variants, failed compiles, template\n"
               "texts, and what the compiler and prewarm leave for the next run. The digits of a\n"
               "key that it shows are what `jitcache show` takes. -v adds what sets each variant\n"
               "apart, for which it reads them all.",
    .options = options_of_ls,
    .examples = "jitcache ls --kernel 'silu_*' --kind variant\n"
                "jitcache ls --arch sm_90a --json",
    .statuses = "0  done, also where there is nothing\n"
                "2  wrong use, or a cache that cannot be read",
    .run = run_ls,
};
