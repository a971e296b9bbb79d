#include "prefix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

#define MIN_DIGITS 4
#define MAX_CANDIDATES 20

int jc_prefix_check(const struct jc_command *command, const char *prefix)
{
    size_t digits = strspn(prefix, "0123456789abcdefABCDEF");
    if (prefix[digits] || digits >= JC_KEY_STRING_SIZE)
        return jc_options_misuse(command, "'%s' is no key: keys are 32 hexadecimal digits", prefix);
    if (digits < MIN_DIGITS)
        return jc_options_misuse(command, "'%s' is too short: give at least %d digits of the key",
                                 prefix, MIN_DIGITS);
    return JC_STATUS_DONE;
}

static bool matches(const struct jc_cache_entry *entry, const char *prefix,
                    enum jc_record_kind kind)
{
    char key[JC_KEY_STRING_SIZE];
    jc_key_format(&entry->key, key);
    return strncasecmp(key, prefix, strlen(prefix)) == 0 && (!kind || kind == entry->kind);
}

static int list_candidates(const struct jc_catalog *catalog, const char *prefix,
                           enum jc_record_kind kind)
{
    jc_complain("%s begins more than one key; give more digits:", prefix);
    size_t shown = 0;
    for (size_t i = 0; i < catalog->num_entries; i++) {
        const struct jc_cache_entry *entry = &catalog->entries[i];
        if (!matches(entry, prefix, kind))
            continue;
        if (shown++ == MAX_CANDIDATES) {
            fputs("    ... and more\n", stderr);
            break;
        }
        char key[JC_KEY_STRING_SIZE];
        jc_key_format(&entry->key, key);
        const char *kernel = jc_catalog_kernel_of(catalog, entry);
        char *printable = jc_printable(kernel, strlen(kernel), false);
        fprintf(stderr, "    %s  %s %s %s\n", key, jc_kind_name(entry->kind), printable,
                entry->label);
        free(printable);
    }
    return JC_STATUS_WRONG_USE;
}

int jc_prefix_find(const struct jc_catalog *catalog, const char *prefix, enum jc_record_kind kind,
                   const struct jc_cache_entry **found)
{
    *found = NULL;
    for (size_t i = 0; i < catalog->num_entries; i++) {
        const struct jc_cache_entry *entry = &catalog->entries[i];
        if (!matches(entry, prefix, kind))
            continue;
        if (*found && memcmp(&(*found)->key, &entry->key, sizeof(entry->key)) != 0)
            return list_candidates(catalog, prefix, kind);
        if (!*found || entry->kind < (*found)->kind)
            *found = entry;
    }
    if (!*found)
        return jc_complain("no %s has a key that begins with %s; %s",
                           kind ? jc_kind_name(kind) : "record", prefix,
                           catalog->damaged ? JC_CATALOG_DAMAGE : "jitcache ls lists them");
    return JC_STATUS_DONE;
}

int jc_prefix_read(struct jc_cache *cache, const struct jc_cache_entry *entry, const char *prefix,
                   struct jc_record *record)
{
    if (jc_cache_find_key(cache, entry->kind, &entry->key, record) == JC_OK)
        return JC_STATUS_DONE;
    return jc_complain("the %s %s is in the index and cannot be read: it is damaged, or has just"
                       " gone; prewarm makes it again", jc_kind_name(entry->kind), prefix);
}
