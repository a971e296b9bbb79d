#include "roll.h"

#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "cache/clock.h"
#include "cache/report.h"
#include "history.h"
#include "run.h"

// What a dead process left and nobody adds to a history is kept as long as that would say when
// something was.
#define KEEP_MS (UINT64_C(30) * 24 * 3600 * 1000)

// For the history's lock. Another one can do it, so a stopped holder is not waited for as long as
// by a process that ends.
#define WAIT_NS UINT64_C(200000000)

// --- reading -------------------------------------------------------------------------------------

struct visit {
    struct jc_roll *roll;
    size_t folder;
    bool failed;
};

static bool is_of_cache(const struct jc_sheet *sheet, const struct jc_cache *cache)
{
    const struct jc_folder *folder = &cache->folder;
    bool has_folder = folder->fd >= 0;
    return sheet->cache[0] == (has_folder ? (uint64_t) folder->dev : 0) &&
           sheet->cache[1] == (has_folder ? (uint64_t) folder->ino : 0);
}

static bool is_old(const struct jc_sheet *sheet)
{
    uint64_t now = jc_now_unix_ms();
    return now > sheet->seen_ms && now - sheet->seen_ms > KEEP_MS;
}

// Whether nobody will add a dead process's sheet to a history. That of our own cache may be added,
// however old it is by a clock that was set.
static bool is_lost(const struct jc_sheet *sheet, bool of_cache)
{
    bool has_cache = sheet->cache[0] != 0 || sheet->cache[1] != 0;
    return !has_cache || (!of_cache && is_old(sheet));
}

// A run that had to change its folder may have left something in the other.
static struct jc_roll_entry *find(struct jc_roll *roll, const char id[33])
{
    for (size_t i = roll->num_entries; i-- > 0;) {
        if (strcmp(roll->entries[i].sheet.id, id) == 0)
            return &roll->entries[i];
    }
    return NULL;
}

// Takes the sheet over. False: out of memory.
static bool enter(struct jc_roll *roll, struct jc_sheet *sheet, bool alive, size_t folder)
{
    struct jc_roll_entry *same = folder > 0 ? find(roll, sheet->id) : NULL;
    if (same) {
        bool better = alive != same->alive ? alive : sheet->seen_ms > same->sheet.seen_ms;
        jc_sheet_finish(better ? &same->sheet : sheet);
        if (better)
            *same = (struct jc_roll_entry){*sheet, alive, folder};
        return true;
    }
    if (roll->num_entries == roll->capacity) {
        size_t capacity = roll->capacity ? 2 * roll->capacity : 16;
        struct jc_roll_entry *more = realloc(roll->entries, capacity * sizeof(*more));
        if (!more) {
            jc_sheet_finish(sheet);
            return false;
        }
        roll->entries = more;
        roll->capacity = capacity;
    }
    roll->entries[roll->num_entries++] = (struct jc_roll_entry){*sheet, alive, folder};
    return true;
}

static void tell(struct visit *visit, const char id[33], const char *suffix, const char *why)
{
    struct jc_roll *roll = visit->roll;
    jc_buffer_print(&roll->trouble, "%s/%s%s: %s\n", roll->folders[visit->folder].path, id, suffix,
                    why);
}

// False: it is not one of that run's, which is told, or out of memory.
static bool read_sheet(struct visit *visit, const char id[33], const char *suffix,
                       const char *text, size_t size, struct jc_sheet *sheet)
{
    struct jc_error why;
    enum jc_result result = jc_sheet_read(sheet, text, size, &why);
    visit->failed = visit->failed || result == JC_ERROR_OUT_OF_MEMORY;
    if (result == JC_OK && strcmp(sheet->id, id) == 0)
        return true;
    if (!visit->failed)
        tell(visit, id, suffix, result == JC_OK ? "it is another run's" : why.text);
    jc_sheet_finish(sheet);
    return false;
}

// Without its past a sheet has all but its events and what was when.
static void add_past(struct visit *visit, struct jc_sheet *sheet)
{
    struct jc_sheet past = {0};
    size_t size;
    char *text = jc_bulletins_read_past(&visit->roll->folders[visit->folder], sheet->id, &size,
                                        &visit->failed);
    if (text && read_sheet(visit, sheet->id, ".past", text, size, &past)) {
        jc_sheet_add_past(sheet, &past);
        jc_sheet_finish(&past);
    }
    free(text);
}

static bool look(void *user, const char id[33], bool alive, const char *text, size_t size)
{
    struct visit *visit = user;
    struct jc_roll *roll = visit->roll;
    struct jc_sheet sheet = {0};
    if (!read_sheet(visit, id, ".stats", text, size, &sheet))
        return !visit->failed;
    bool of_cache = is_of_cache(&sheet, roll->context->cache);
    if (!alive && is_lost(&sheet, of_cache)) {
        jc_bulletins_remove(&roll->folders[visit->folder], id);
    } else if (of_cache) {
        add_past(visit, &sheet);
        visit->failed = !enter(roll, &sheet, alive, visit->folder) || visit->failed;
        return !visit->failed;
    }
    jc_sheet_finish(&sheet);
    return true;
}

static enum jc_result visit_folder(struct jc_roll *roll, size_t folder, bool dead_only)
{
    struct visit visit = {.roll = roll, .folder = folder};
    enum jc_result result =
        jc_bulletins_visit(&roll->folders[folder], dead_only, look, &visit);
    return visit.failed ? JC_ERROR_OUT_OF_MEMORY : result;
}

// A folder that is not there is no news, unless somebody else made it.
static void tell_folder(struct jc_roll *roll, const struct jc_bulletins *folder)
{
    if (folder->refused)
        jc_buffer_print(&roll->trouble, "%s\n", folder->reason);
}

enum jc_result jc_roll_read(struct jc_roll *roll, struct jc_context *context, bool dead_only,
                            struct jc_error *error)
{
    const char *where = jc_run_folder(context->run);
    struct jc_cache *cache = context->cache;
    *roll = (struct jc_roll){.context = context, .folders = {{.fd = -1}, {.fd = -1}}};
    enum jc_result result = jc_bulletins_open(&roll->folders[0], where, cache, false);
    if (result == JC_OK && !jc_bulletins_are_off(where))
        result = jc_bulletins_open_beside(&roll->folders[1], cache, false);
    // Where it is the first one that is beside, it is read once.
    if (jc_bulletins_same(&roll->folders[0], &roll->folders[1]))
        jc_bulletins_finish(&roll->folders[1]);
    for (size_t i = 0; result == JC_OK && i < 2; i++) {
        tell_folder(roll, &roll->folders[i]);
        result = visit_folder(roll, i, dead_only);
    }
    if (result != JC_OK) {
        jc_roll_finish(roll);
        return jc_fail_memory(error);
    }
    return JC_OK;
}

void jc_roll_finish(struct jc_roll *roll)
{
    for (size_t i = 0; i < roll->num_entries; i++)
        jc_sheet_finish(&roll->entries[i].sheet);
    free(roll->entries);
    for (size_t i = 0; i < 2; i++)
        jc_bulletins_finish(&roll->folders[i]);
    jc_buffer_finish(&roll->trouble);
    *roll = (struct jc_roll){.folders = {{.fd = -1}, {.fd = -1}}};
}

// --- folding -------------------------------------------------------------------------------------

static void drop(struct jc_roll *roll, size_t at)
{
    jc_sheet_finish(&roll->entries[at].sheet);
    roll->entries[at] = roll->entries[--roll->num_entries];
}

// What does not lie there any more the history has: somebody quicker added it. The lock is held, so
// nobody takes anything away meanwhile.
static void drop_gone(struct jc_roll *roll)
{
    for (size_t i = roll->num_entries; i-- > 0;) {
        const struct jc_roll_entry *entry = &roll->entries[i];
        if (!entry->alive && !jc_bulletins_has(&roll->folders[entry->folder], entry->sheet.id))
            drop(roll, i);
    }
}

// Takes away the dead from `first` on, or of them the old ones alone.
static void take_away(struct jc_roll *roll, size_t first, bool old_only)
{
    for (size_t i = roll->num_entries; i-- > first;) {
        const struct jc_roll_entry *entry = &roll->entries[i];
        if (entry->alive || (old_only && !is_old(&entry->sheet)))
            continue;
        jc_bulletins_remove(&roll->folders[entry->folder], entry->sheet.id);
        drop(roll, i);
    }
}

// Adds the dead, from the last to the first, at most as many at a time as the history knows by
// name. The lock is held.
static enum jc_result add_dead(struct jc_roll *roll, struct jc_error *why)
{
    enum jc_result result = JC_OK;
    const struct jc_sheet **dead = calloc(JC_HISTORY_IDS, sizeof(struct jc_sheet *));
    if (!dead)
        return jc_fail_memory(why);
    for (size_t first = roll->num_entries; result == JC_OK && first > 0;) {
        size_t count = 0;
        while (first > 0 && count < JC_HISTORY_IDS)
            if (!roll->entries[--first].alive)
                dead[count++] = &roll->entries[first].sheet;
        if (count > 0)
            result = jc_history_add_locked(roll->context, dead, count, why);
        if (result == JC_OK)
            take_away(roll, first, false);
    }
    free(dead);
    return result;
}

static size_t count_dead(const struct jc_roll *roll)
{
    size_t count = 0;
    for (size_t i = 0; i < roll->num_entries; i++)
        count += !roll->entries[i].alive;
    return count;
}

void jc_roll_fold(struct jc_roll *roll, bool anyway)
{
    struct jc_error why;
    int lock;
    if (count_dead(roll) == 0)
        return;
    enum jc_result result = jc_history_lock(roll->context, anyway, WAIT_NS, &lock, &why);
    if (result == JC_OK) {
        drop_gone(roll);
        result = add_dead(roll, &why);
        jc_history_unlock(roll->context, lock);
    }
    // Of another version or not writable is how things are; the one who reads is told by others.
    if (result == JC_ERROR_CACHE || result == JC_ERROR_UNSUPPORTED)
        take_away(roll, 0, true);
    // Somebody else has the lock, most likely to do the same; what is here counts all the same.
    else if (result != JC_OK && result != JC_ERROR_TIMEOUT)
        jc_buffer_print(&roll->trouble, "what %zu processes that have ended left is not added to"
                        " the history: %s\n", count_dead(roll), why.text);
}
