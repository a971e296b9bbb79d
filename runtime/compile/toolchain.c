#include "toolchain.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/report.h"

void jc_toolchain_finish(struct jc_toolchain *toolchain)
{
    free(toolchain->nvrtc);
    free(toolchain->opened);
    free(toolchain->builtins);
    free(toolchain->build);
    free(toolchain->archs);
    free(toolchain->include);
    for (size_t i = 0; i < toolchain->num_roots; i++)
        free(toolchain->roots[i]);
    free(toolchain->append_flags);
    free(toolchain->tried);
    *toolchain = (struct jc_toolchain){0};
}

void jc_toolchain_encode(const struct jc_toolchain *toolchain, struct jc_buffer *content)
{
    jc_buffer_field_string(content, toolchain->nvrtc);
    jc_buffer_u32(content, (uint32_t) toolchain->major);
    jc_buffer_u32(content, (uint32_t) toolchain->minor);
    jc_buffer_field_string(content, toolchain->opened);
    jc_buffer_field_string(content, toolchain->builtins);
    jc_buffer_field_string(content, toolchain->build);
    jc_buffer_u32(content, (uint32_t) toolchain->num_archs);
    for (size_t i = 0; i < toolchain->num_archs; i++)
        jc_buffer_u32(content, (uint32_t) toolchain->archs[i]);
    jc_buffer_field_string(content, toolchain->include);
    jc_buffer_u32(content, (uint32_t) toolchain->num_roots);
    for (size_t i = 0; i < toolchain->num_roots; i++)
        jc_buffer_field_string(content, toolchain->roots[i]);
    jc_buffer_u32(content, (uint32_t) toolchain->include_major);
    jc_buffer_u32(content, (uint32_t) toolchain->include_minor);
    jc_buffer_field_string(content, toolchain->append_flags);
    jc_buffer_u32(content, toolchain->random_seed);
    jc_buffer_u32(content, toolchain->resource_usage);
    jc_buffer_u32(content, toolchain->pch);
    jc_buffer_field_string(content, toolchain->tried);
}

static int read_int(struct jc_reader *reader, uint32_t max)
{
    uint32_t value = jc_reader_u32(reader);
    if (value > max)
        reader->failed = true;
    return reader->failed ? 0 : (int) value;
}

static int *read_archs(struct jc_reader *reader, size_t *count)
{
    size_t num = (size_t) read_int(reader, 1024);
    int *archs = calloc(num + 1, sizeof(*archs));
    for (size_t i = 0; archs && i < num; i++)
        archs[i] = read_int(reader, 99999);
    *count = archs ? num : 0;
    return archs;
}

static bool identify(struct jc_toolchain *toolchain)
{
    struct jc_buffer text = {0};
    jc_buffer_print(&text, "%d.%d\n%s\n%s\n%s\n%d %d\n", toolchain->major, toolchain->minor,
                    toolchain->build, toolchain->append_flags, toolchain->include,
                    toolchain->random_seed, toolchain->resource_usage);
    for (size_t i = 0; i < toolchain->num_roots; i++)
        jc_buffer_print(&text, "%s\n", toolchain->roots[i]);
    bool made = !text.failed;
    if (made)
        toolchain->identity = jc_key_of(text.data, text.size);
    jc_buffer_finish(&text);
    return made;
}

enum jc_result jc_toolchain_decode(struct jc_reader *reader, struct jc_toolchain *toolchain)
{
    *toolchain = (struct jc_toolchain){0};
    toolchain->nvrtc = jc_reader_copy(reader);
    toolchain->major = read_int(reader, 9999);
    toolchain->minor = read_int(reader, 9999);
    toolchain->opened = jc_reader_copy(reader);
    toolchain->builtins = jc_reader_copy(reader);
    toolchain->build = jc_reader_copy(reader);
    toolchain->archs = read_archs(reader, &toolchain->num_archs);
    toolchain->include = jc_reader_copy(reader);
    toolchain->num_roots = (size_t) read_int(reader, JC_MAX_ROOTS);
    for (size_t i = 0; i < toolchain->num_roots; i++)
        toolchain->roots[i] = jc_reader_copy(reader);
    toolchain->include_major = read_int(reader, 9999);
    toolchain->include_minor = read_int(reader, 9999);
    toolchain->append_flags = jc_reader_copy(reader);
    toolchain->random_seed = read_int(reader, 1);
    toolchain->resource_usage = read_int(reader, 1);
    toolchain->pch = read_int(reader, 1);
    toolchain->tried = jc_reader_copy(reader);
    if (!reader->failed && toolchain->archs && identify(toolchain))
        return JC_OK;
    jc_toolchain_finish(toolchain);
    return JC_ERROR_CORRUPT;
}

bool jc_toolchain_copy(const struct jc_toolchain *toolchain, struct jc_toolchain *copy)
{
    struct jc_buffer content = {0};
    jc_toolchain_encode(toolchain, &content);
    struct jc_reader reader = {.at = content.data, .left = content.size};
    *copy = (struct jc_toolchain){0};
    bool copied = !content.failed && jc_toolchain_decode(&reader, copy) == JC_OK;
    jc_buffer_finish(&content);
    return copied;
}

bool jc_toolchain_same(const struct jc_toolchain *a, const struct jc_toolchain *b)
{
    if (a->num_roots != b->num_roots)
        return false;
    for (size_t i = 0; i < a->num_roots; i++)
        if (strcmp(a->roots[i], b->roots[i]) != 0)
            return false;
    return a->major == b->major && a->minor == b->minor && strcmp(a->build, b->build) == 0
        && strcmp(a->append_flags, b->append_flags) == 0 && strcmp(a->include, b->include) == 0
        && a->random_seed == b->random_seed && a->resource_usage == b->resource_usage;
}

// --- architectures -------------------------------------------------------------------------------

// From Hopper on every architecture has a variant "a" of its own, with what is not carried on to
// the next; NVRTC lists numbers alone, and took each "a" in the same version as its number.
void jc_toolchain_exact_arch(int number, char arch[JC_ARCH_SIZE])
{
    snprintf(arch, JC_ARCH_SIZE, "sm_%d%s", number, number >= 90 ? "a" : "");
}

// "9.0", "90", "sm_90", "sm_90a". Zero: none of these.
static int read_capability(const char *text)
{
    if (strncmp(text, "sm_", 3) == 0)
        text += 3;
    int number = 0, digits = 0;
    for (; isdigit((unsigned char) *text) && digits < 4; digits++)
        number = 10 * number + (*text++ - '0');
    if (*text == '.' && digits > 0) {
        if (!isdigit((unsigned char) text[1]))
            return 0;
        number = 10 * number + (text[1] - '0');
        digits++;
        text += 2;
    }
    if (*text == 'a')
        text++;
    return *text || digits < 2 || digits > 4 ? 0 : number;
}

static void list_known(const struct jc_toolchain *toolchain, char *list, size_t size)
{
    list[0] = '\0';
    for (size_t i = 0; i < toolchain->num_archs; i++) {
        char arch[JC_ARCH_SIZE];
        size_t used = strlen(list);
        jc_toolchain_exact_arch(toolchain->archs[i], arch);
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", arch);
    }
}

enum jc_result jc_toolchain_arch(const struct jc_toolchain *toolchain, bool portable,
                                 const char *capability, char arch[JC_ARCH_SIZE],
                                 struct jc_error *error)
{
    int number = read_capability(capability);
    size_t length = strlen(capability);
    if (!number && strchr(capability, ','))
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "'%s': give each architecture by itself; repeat --arch", capability);
    // Code for a family runs on all of it, which the key, made for one device, does not foresee.
    if (!number && length > 1 && capability[length - 1] == 'f' &&
        isdigit((unsigned char) capability[length - 2]))
        return jc_fail(error, JC_ERROR_UNSUPPORTED,
                       "'%s': code for a family of architectures, suffix f, is not made; write"
                       " %.*sa or %.*s", capability, (int) length - 1, capability,
                       (int) length - 1, capability);
    if (!number)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "'%s' is not an architecture; write a compute capability, such as 9.0, or a"
                       " name, such as sm_90a", capability);
    bool known = false;
    for (size_t i = 0; i < toolchain->num_archs; i++)
        known = known || toolchain->archs[i] == number;
    if (!known) {
        char list[1024];
        list_known(toolchain, list, sizeof(list));
        return jc_fail(error, JC_ERROR_UNSUPPORTED,
                       "NVRTC %d.%d does not compile for %s; it knows %s", toolchain->major,
                       toolchain->minor, capability, list);
    }
    if (portable)
        snprintf(arch, JC_ARCH_SIZE, "sm_%d", number);
    else
        jc_toolchain_exact_arch(number, arch);
    return JC_OK;
}
