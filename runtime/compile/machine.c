#include "machine.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- numbers in files ----------------------------------------------------------------------------

// Reads a number in decimal digits and goes behind it. False: there is none, or none that fits.
static bool take_number(const char **text, uint64_t *number)
{
    const char *at = *text;
    uint64_t value = 0;
    for (; isdigit((unsigned char) *at); at++) {
        if (value > (UINT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (uint64_t) (*at - '0');
    }
    if (at == *text)
        return false;
    *text = at;
    *number = value;
    return true;
}

static FILE *open_in(const char *folder, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int) sizeof(path))
        return NULL;
    return fopen(path, "re");
}

// Reads the numbers of a file's only line. False: it is not there, or says something else, such as
// "max" or -1, which both mean that there is no limit.
static bool read_numbers(const char *folder, const char *name, uint64_t *numbers, size_t count)
{
    char line[128] = "";
    FILE *stream = open_in(folder, name);
    if (!stream)
        return false;
    const char *at = fgets(line, sizeof(line), stream) ? line : "";
    fclose(stream);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && *at++ != ' ')
            return false;
        if (!take_number(&at, &numbers[i]))
            return false;
    }
    return *at == '\n' || *at == '\0';
}

// Finds a line that begins with `name` and reads the number that follows. 0: there is none.
static uint64_t find_number(const char *folder, const char *file, const char *name)
{
    char line[256];
    uint64_t number = 0;
    size_t size = strlen(name);
    FILE *stream = open_in(folder, file);
    while (stream && fgets(line, sizeof(line), stream)) {
        const char *at = line + size;
        if (strncmp(line, name, size) == 0 && *at == ' ') {
            at += strspn(at, " ");
            number = take_number(&at, &number) ? number : 0;
            break;
        }
    }
    if (stream)
        fclose(stream);
    return number;
}

// --- what a control group allows -----------------------------------------------------------------

static void limit_memory(struct jc_machine *machine, uint64_t bytes)
{
    bytes = bytes ? bytes : 1; // none at all; 0 would be "not known"
    if (machine->memory_bytes == 0 || bytes < machine->memory_bytes)
        machine->memory_bytes = bytes;
}

// A limit on what is used now. Cached files that nobody has read for a while are given up first and
// cost nothing, so they count as free.
static void limit_group(struct jc_machine *machine, uint64_t limit, uint64_t usage, uint64_t files)
{
    uint64_t used = usage > files ? usage - files : 0;
    limit_memory(machine, limit > used ? limit - used : 0);
}

static void limit_quota(struct jc_machine *machine, uint64_t quota_us, uint64_t period_us)
{
    if (quota_us == 0 || period_us == 0)
        return;
    double quota = (double) quota_us / (double) period_us;
    if (machine->quota == 0 || quota < machine->quota)
        machine->quota = quota;
}

static void read_version_2(const char *folder, struct jc_machine *machine)
{
    // Above the lower of the two the kernel slows everything down that asks for memory.
    static const char *const limits[] = {"memory.max", "memory.high"};
    uint64_t usage, limit, cpu[2];
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (read_numbers(folder, limits[i], &limit, 1)
            && read_numbers(folder, "memory.current", &usage, 1))
            limit_group(machine, limit, usage,
                        find_number(folder, "memory.stat", "inactive_file"));
    }
    if (read_numbers(folder, "cpu.max", cpu, 2))
        limit_quota(machine, cpu[0], cpu[1]);
}

static void read_version_1_memory(const char *folder, struct jc_machine *machine)
{
    // Without a limit it is the largest number of pages there can be, in bytes.
    const uint64_t no_limit = UINT64_C(1) << 62;
    uint64_t usage, limit;
    if (read_numbers(folder, "memory.limit_in_bytes", &limit, 1) && limit < no_limit
        && read_numbers(folder, "memory.usage_in_bytes", &usage, 1))
        limit_group(machine, limit, usage,
                    find_number(folder, "memory.stat", "total_inactive_file"));
}

static void read_version_1_cpu(const char *folder, struct jc_machine *machine)
{
    uint64_t quota, period;
    if (read_numbers(folder, "cpu.cfs_quota_us", &quota, 1)
        && read_numbers(folder, "cpu.cfs_period_us", &period, 1))
        limit_quota(machine, quota, period);
}

// --- where the control groups are ----------------------------------------------------------------
//
//   /proc/self/cgroup      NUMBER:CONTROLLER,CONTROLLER:GROUP      version 2 has no controllers
//   /proc/self/mountinfo   ID PARENT DEVICE ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS
//
// ROOT is the group that lies at POINT. In both files groups are named from the root of this
// process's control group namespace. A container may see its groups under another name than the one
// they are mounted by, or none at all; then the mount point is as near as one can get.

struct hierarchy {
    const char *type;       // of the file system
    const char *controller; // NULL: version 2
    void (*read)(const char *folder, struct jc_machine *machine);
    char group[PATH_MAX];   // that this process is in; "": not known
    char above[PATH_MAX];   // the group that is mounted
    char point[PATH_MAX];   // where; "": nowhere
};

// Whether a list with commas has this word.
static bool has_word(const char *list, const char *word)
{
    size_t size = strlen(word);
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length == size && memcmp(list, word, size) == 0)
            return true;
        list += length;
        list += *list == ',';
    }
    return false;
}

// Copies a path that has spaces and the like written as \040.
static void copy_path(char to[static PATH_MAX], const char *from)
{
    size_t size = 0;
    while (*from && size < PATH_MAX - 1) {
        unsigned value = 0;
        int digits = 0;
        if (*from == '\\' && sscanf(from + 1, "%3o%n", &value, &digits) == 1 && digits == 3) {
            to[size++] = (char) value;
            from += 4;
        } else {
            to[size++] = *from++;
        }
    }
    to[size] = '\0';
}

static void take_group(struct hierarchy *hierarchy, char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return;
    controllers++;
    *group++ = '\0';
    bool same = hierarchy->controller ? has_word(controllers, hierarchy->controller)
                                      : controllers[0] == '\0';
    if (same && strlen(group) < sizeof(hierarchy->group))
        strcpy(hierarchy->group, group);
}

// What of the group's name follows that of the one that is mounted. NULL: it is not below.
static const char *rest_below(const char *above, const char *group)
{
    size_t size = strcmp(above, "/") == 0 ? 0 : strlen(above);
    if (strncmp(above, group, size) != 0 || (group[size] != '/' && group[size] != '\0')
        || strstr(group, "/.."))
        return NULL;
    return group + size;
}

// Of several mounts the first counts that shows the group of this process, or else the first.
static void take_mount(struct hierarchy *hierarchy, char *line)
{
    char *fields[5], *rest = NULL, *tail = strstr(line, " - ");
    if (!tail)
        return;
    *tail = '\0';
    char *type = strtok_r(tail + 3, " ", &rest);
    char *source = strtok_r(NULL, " ", &rest);
    char *options = strtok_r(NULL, " ", &rest);
    if (!source || !options || strcmp(type, hierarchy->type) != 0
        || (hierarchy->controller && !has_word(options, hierarchy->controller)))
        return;
    fields[0] = strtok_r(line, " ", &rest);
    for (size_t i = 1; i < sizeof(fields) / sizeof(fields[0]); i++)
        fields[i] = fields[i - 1] ? strtok_r(NULL, " ", &rest) : NULL;
    if (!fields[4])
        return;

    char above[PATH_MAX];
    copy_path(above, fields[3]);
    bool known = hierarchy->point[0];
    if (known && (rest_below(hierarchy->above, hierarchy->group)
                  || !rest_below(above, hierarchy->group)))
        return;
    strcpy(hierarchy->above, above);
    copy_path(hierarchy->point, fields[4]);
}

static void read_lines(const char *root, const char *file, struct hierarchy *hierarchy,
                       void (*take)(struct hierarchy *hierarchy, char *line))
{
    char *line = NULL;
    size_t capacity = 0;
    FILE *stream = open_in(root, file);
    while (stream && getline(&line, &capacity, stream) > 0) {
        line[strcspn(line, "\n")] = '\0';
        take(hierarchy, line);
    }
    free(line);
    if (stream)
        fclose(stream);
}

// Reads the group of this process and all those that it lies in.
static void read_hierarchy(const char *root, struct hierarchy *hierarchy,
                           struct jc_machine *machine)
{
    read_lines(root, "proc/self/cgroup", hierarchy, take_group);
    read_lines(root, "proc/self/mountinfo", hierarchy, take_mount);
    if (!hierarchy->point[0])
        return;
    const char *rest = rest_below(hierarchy->above, hierarchy->group);
    char folder[PATH_MAX];
    int top = snprintf(folder, sizeof(folder), "%s%s", root, hierarchy->point);
    if (top >= (int) sizeof(folder)
        || snprintf(folder, sizeof(folder), "%s%s%s", root, hierarchy->point, rest ? rest : "")
               >= (int) sizeof(folder))
        return;
    for (;;) {
        hierarchy->read(folder, machine);
        char *slash = strrchr(folder, '/');
        if (!slash || slash - folder < top)
            return;
        *slash = '\0';
    }
}

// --- all together --------------------------------------------------------------------------------

void jc_machine_read(const char *root, unsigned cores, struct jc_machine *machine)
{
    struct hierarchy hierarchies[] = {
        {.type = "cgroup2", .read = read_version_2},
        {.type = "cgroup", .controller = "memory", .read = read_version_1_memory},
        {.type = "cgroup", .controller = "cpu", .read = read_version_1_cpu},
    };
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    *machine = (struct jc_machine){.cores = cores ? cores : online > 0 ? (unsigned) online : 1};
    uint64_t available = find_number(root, "proc/meminfo", "MemAvailable:");
    if (available > 0 && available < UINT64_MAX >> 10)
        limit_memory(machine, available << 10);
    for (size_t i = 0; i < sizeof(hierarchies) / sizeof(hierarchies[0]); i++)
        read_hierarchy(root, &hierarchies[i], machine);
}

unsigned jc_machine_room(const struct jc_machine *machine)
{
    unsigned room = machine->cores;
    if (machine->quota > 0 && machine->quota < room) {
        // What remains of a core is used too.
        unsigned whole = (unsigned) machine->quota;
        room = whole + (machine->quota > whole);
    }
    if (machine->memory_bytes > 0 && machine->memory_bytes / JC_COMPILE_BYTES < room)
        room = (unsigned) (machine->memory_bytes / JC_COMPILE_BYTES);
    return room > 0 ? room : 1;
}
