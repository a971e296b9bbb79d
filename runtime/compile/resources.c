#include "resources.h"

#include <stdlib.h>
#include <string.h>

// The assembler writes, with differences from version to version:
//
//   ptxas info    : Compiling entry function 'k' for 'sm_90a'
//   ptxas info    : Function properties for k
//   ptxas         .     8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   ptxas info    : Used 24 registers, used 0 barriers, 16 bytes smem, 400 bytes cmem[0]
//
// So a number is known by the words behind it, and a function by the last line that named one.

// The number right before `words`, -1 where the words are not in the line.
static long number_before(const char *line, size_t size, const char *words)
{
    const char *found = memmem(line, size, words, strlen(words));
    if (!found || found == line)
        return -1;
    const char *digits = found;
    while (digits > line && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    return digits < found ? strtol(digits, NULL, 10) : -1;
}

// Whether the line names a function, and if so whether it is `symbol`.
static bool names_function(const char *line, size_t size, const char *symbol, bool *ours)
{
    static const char *const openings[] = {
        "Compiling entry function '", "Function properties for "};
    size_t length = strlen(symbol);
    for (size_t i = 0; i < sizeof(openings) / sizeof(openings[0]); i++) {
        const char *name = memmem(line, size, openings[i], strlen(openings[i]));
        if (!name)
            continue;
        name += strlen(openings[i]);
        size_t left = size - (size_t) (name - line);
        *ours = left >= length && memcmp(name, symbol, length) == 0
            && (left == length || name[length] == '\'' || name[length] == ' ');
        return true;
    }
    return false;
}

static void take(long *value, long found)
{
    if (found >= 0)
        *value = found;
}

struct jc_resources jc_resources_read(const char *log, const char *symbol)
{
    struct jc_resources resources = {-1, -1, -1, -1, -1};
    bool ours = false;
    for (const char *line = log; *line;) {
        const char *end = strchrnul(line, '\n');
        size_t size = (size_t) (end - line);
        if (!names_function(line, size, symbol, &ours) && ours) {
            take(&resources.registers, number_before(line, size, " registers"));
            take(&resources.spill_stores, number_before(line, size, " bytes spill stores"));
            take(&resources.spill_loads, number_before(line, size, " bytes spill loads"));
            take(&resources.static_shared, number_before(line, size, " bytes smem"));
            take(&resources.stack, number_before(line, size, " bytes stack frame"));
        }
        line = *end ? end + 1 : end;
    }
    // The line of registers names shared memory only where there is some.
    if (resources.registers >= 0 && resources.static_shared < 0)
        resources.static_shared = 0;
    return resources;
}

void jc_resources_print(const struct jc_resources *resources, struct jc_buffer *out)
{
    const struct {
        const char *name;
        long value;
    } facts[] = {
        {"registers", resources->registers},
        {"spill_stores", resources->spill_stores},
        {"spill_loads", resources->spill_loads},
        {"static_shared", resources->static_shared},
        {"stack", resources->stack},
    };
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        if (facts[i].value >= 0)
            jc_buffer_print(out, "%s=%ld\n", facts[i].name, facts[i].value);
    }
}

void jc_resources_strip(const char *log, struct jc_buffer *out)
{
    for (const char *line = log; *line;) {
        const char *end = strchrnul(line, '\n');
        size_t size = (size_t) (end - line) + (*end == '\n');
        if (strncmp(line, "ptxas info", strlen("ptxas info")) != 0
            && !memmem(line, size, " bytes stack frame, ", strlen(" bytes stack frame, ")))
            jc_buffer_append(out, line, size);
        line += size;
    }
}
