#include "diagnosis.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "resources.h"

// --- the log -------------------------------------------------------------------------------------
//
// A message begins in the first column; the line of the source that it is about, and whatever else
// belongs to it, is indented:
//
//   k.cu(2): error: identifier "k" is undefined
//     using jitcache_entry = jitcache_unit::JC_kernel<decltype(&k)>;
//                                                            ^

struct message {
    const char *text;
    size_t size;
    size_t head; // of its first line
    bool error;
};

// Whether the message, or its first line alone, has `words` in it.
static bool has(const struct message *message, const char *words)
{
    return memmem(message->text, message->size, words, strlen(words)) != NULL;
}

static bool head_has(const struct message *message, const char *words)
{
    return memmem(message->text, message->head, words, strlen(words)) != NULL;
}

static bool next_message(const char **log, struct message *message)
{
    const char *at = *log;
    if (!*at)
        return false;
    message->text = at;
    message->head = strcspn(at, "\n");
    do {
        at = strchrnul(at, '\n');
        at += *at == '\n';
    } while (*at == ' ' || *at == '\t' || *at == '\n');
    message->size = (size_t) (at - message->text);
    message->error = head_has(message, " error: "); // "catastrophic error: " too
    *log = at;
    return true;
}

static bool is_of_symbol(const struct message *message)
{
    return strncmp(message->text, "__nv_name_map(", strlen("__nv_name_map(")) == 0;
}

// What the compiler says of lines that are ours: where the tail of the unit resolves the entry, and
// where NVRTC does so once more.
static bool is_of_entry(const struct message *message)
{
    return has(message, "using jitcache_entry = ") || is_of_symbol(message);
}

static bool is_of_signature(const struct message *message)
{
    return head_has(message, "\"jitcache: ");
}

static bool is_ours(const struct message *message)
{
    return has(message, "jitcache_entry") || is_of_symbol(message);
}

// `static assertion failed with "jitcache: WORDS"` as the words alone.
static void print_head(const struct message *message, struct jc_buffer *out)
{
    static const char assertion[] = "static assertion failed with \"jitcache: ";
    const char *words =
        memmem(message->text, message->head, assertion, strlen(assertion));
    if (words) {
        jc_buffer_append(out, message->text, (size_t) (words - message->text));
        words += strlen(assertion);
        jc_buffer_append(out, words, (size_t) (message->text + message->head - words) - 1);
    } else {
        jc_buffer_append(out, message->text, message->head);
    }
    jc_buffer_string(out, "\n\n");
}

// An entry that does not resolve because of an error above it is no news, and neither is what NVRTC
// makes of the same name afterwards. `only`, if not NULL, says which messages matter.
static void print_log(const char *log, bool (*only)(const struct message *message),
                      struct jc_buffer *out)
{
    struct message message;
    bool any_error = false, whole = true;
    while (next_message(&log, &message)) {
        bool ours = is_ours(&message);
        if (head_has(&message, " detected in the compilation of ") && !whole)
            continue; // the number would be wrong
        if ((only && !only(&message)) || (ours && any_error && !is_of_signature(&message)))
            whole = false;
        else if (ours)
            print_head(&message, out);
        else
            jc_buffer_append(out, message.text, message.size);
        whole = whole && !ours;
        any_error = any_error || message.error;
    }
    while (out->size > 0 && out->data[out->size - 1] == '\n')
        out->data[--out->size] = '\0';
    jc_buffer_string(out, "\n");
}

// The first error; false where there is none.
static bool first_error(const char *log, struct message *message)
{
    while (next_message(&log, message))
        if (message->error)
            return true;
    return false;
}

// --- the entry -----------------------------------------------------------------------------------

// The name between quotes in a message `identifier "NAME" is undefined`; its size, or 0.
static size_t undefined_name(const struct message *message, const char **name)
{
    static const char before[] = "identifier \"", after[] = "\" is undefined";
    const char *found = memmem(message->text, message->head, before, strlen(before));
    if (!found)
        return 0;
    *name = found + strlen(before);
    size_t size = strcspn(*name, "\"\n");
    return strncmp(*name + size, after, strlen(after)) == 0 ? size : 0;
}

static void explain_entry(const struct jc_template *tmpl, const struct message *message,
                          struct jc_buffer *out)
{
    const char *field = tmpl->name_expression ? "name_expression" : "kernel";
    const char *entry = tmpl->name_expression ? tmpl->name_expression : tmpl->name;
    const char *name;
    size_t size = undefined_name(message, &name);
    jc_buffer_print(out, "%s: '%s': ", field, entry);
    if (size > 0 && strncmp(entry, name, size) == 0 && tmpl->name_expression)
        jc_buffer_print(out, "the source does not define '%.*s' outside of any namespace; correct"
                        " the name, or write NAMESPACE::%.*s", (int) size, name, (int) size, name);
    else if (size > 0 && !tmpl->name_expression)
        jc_buffer_print(out, "the source does not define it outside of any namespace; correct the"
                        " name, or add name_expression: \"NAMESPACE::%s\"", tmpl->name);
    else if (size > 0)
        jc_buffer_print(out, "the source does not declare '%.*s'", (int) size, name);
    else if (head_has(message, "non-__global__ function"))
        jc_buffer_string(out, "this is no __global__ function; name one");
    else if (head_has(message, "instance of function template") && !tmpl->name_expression)
        jc_buffer_print(out, "this is a function template; name what to instantiate, such as"
                        " name_expression: \"%s<float>\"", tmpl->name);
    else if (head_has(message, "instance of function template"))
        jc_buffer_string(out, "its template arguments do not fit; give one for each template"
                         " parameter that has no default");
    else if (head_has(message, "instance of overloaded function"))
        jc_buffer_string(out, "several functions have this name; give the kernel one of its own");
    else
        jc_buffer_string(out, "this does not name one function of the source");
    jc_buffer_string(out, ".\n");
}

// --- headers -------------------------------------------------------------------------------------

static bool is_among(const char *words, const char *name, size_t size)
{
    for (const char *at = words; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == size && memcmp(at, name, size) == 0)
            return true;
        at += length;
    }
    return false;
}

// Of the C++ library; those of C are known by their ".h".
static const char host_headers[] =
    "algorithm any array atomic barrier bit bitset cassert cctype cerrno cfloat charconv chrono"
    " cinttypes climits cmath compare complex concepts condition_variable csetjmp csignal cstdarg"
    " cstddef cstdint cstdio cstdlib cstring ctime deque exception execution expected filesystem"
    " format forward_list fstream functional future initializer_list iomanip ios iosfwd iostream"
    " istream iterator latch limits list locale map mdspan memory mutex new numbers numeric"
    " optional ostream queue random ranges ratio regex semaphore set source_location span sstream"
    " stack stdexcept streambuf string string_view system_error thread tuple type_traits typeindex"
    " typeinfo unordered_map unordered_set utility variant vector version";
static const char c_headers[] =
    "assert.h ctype.h errno.h float.h inttypes.h limits.h math.h setjmp.h signal.h stdarg.h"
    " stddef.h stdint.h stdio.h stdlib.h string.h time.h";

// "cuda/std/cstdint" for "cstdint" and "stdint.h", where the toolkit has it.
static bool find_device_header(const struct jc_toolchain *toolchain, const char *name, size_t size,
                               char device[64])
{
    bool c = size > 2 && memcmp(name + size - 2, ".h", 2) == 0;
    snprintf(device, 64, "cuda/std/%s%.*s", c ? "c" : "", (int) (c ? size - 2 : size), name);
    for (size_t i = 0; i < toolchain->num_roots; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof(path), "%s/%s/%s", toolchain->include,
                              toolchain->roots[i], device);
        if (length > 0 && (size_t) length < sizeof(path) && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

static void explain_host_header(const struct jc_toolchain *toolchain, const char *name, int size,
                                struct jc_buffer *out)
{
    char device[64];
    bool known = find_device_header(toolchain, name, (size_t) size, device);
    jc_buffer_print(out, "<%.*s> is a header of the host, and NVRTC has none of these; ", size,
                    name);
    if (is_among("cstdio stdio.h", name, (size_t) size))
        jc_buffer_string(out, "remove the #include: printf is built in.\n");
    else if (is_among("cassert assert.h", name, (size_t) size))
        jc_buffer_string(out, "remove the #include: assert is built in.\n");
    else if (known)
        jc_buffer_print(out, "include <%s>.\n", device);
    else
        jc_buffer_string(out, "remove the #include, or guard it with #ifndef JITCACHE.\n");
}

// `cannot open source file "NAME"`.
static void explain_missing_header(const struct jc_toolchain *toolchain,
                                   const struct message *message, struct jc_buffer *out)
{
    static const char missing[] = "open source file \"";
    const char *name = memmem(message->text, message->head, missing, strlen(missing));
    if (!name)
        return;
    name += strlen(missing);
    int size = (int) strcspn(name, "\"\n");
    struct jc_buffer angled = {0};
    jc_buffer_print(&angled, "<%.*s>", size, name);
    bool in_angles = !angled.failed && has(message, angled.data);
    jc_buffer_finish(&angled);
    if (is_among(host_headers, name, (size_t) size) || is_among(c_headers, name, (size_t) size))
        explain_host_header(toolchain, name, size, out);
    else if (!toolchain->include[0])
        jc_buffer_print(out, "The CUDA toolkit's headers were not found; if %.*s is one of them,"
                        " install the toolkit or the Python package nvidia-cuda-runtime for CUDA"
                        " %d.%d, or set CUDA_HOME.\n", size, name, toolchain->major,
                        toolchain->minor);
    else if (in_angles)
        jc_buffer_print(out, "<%.*s> is neither in a folder that the template's `include` names,"
                        " nor in %s; for a file beside the template write #include \"%.*s\".\n",
                        size, name, toolchain->include, size, name);
    else
        jc_buffer_print(out, "%.*s is neither beside the file that includes it, nor in the"
                        " template's folder or one that its `include` names, nor in %s.\n", size,
                        name, toolchain->include);
}

// Types that people know, and take for granted.
static const struct {
    const char *types, *header, *instead;
} type_headers[] = {
    {"int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t",
     "cuda/std/cstdint", ", or write int, long long and the like"},
    {"__half __half2 half half2", "cuda_fp16.h", ""},
    {"__nv_bfloat16 __nv_bfloat162 nv_bfloat16 nv_bfloat162", "cuda_bf16.h", ""},
    {"__nv_fp8_e4m3 __nv_fp8x2_e4m3 __nv_fp8x4_e4m3 __nv_fp8_e5m2 __nv_fp8x2_e5m2"
     " __nv_fp8x4_e5m2 __nv_fp8_storage_t", "cuda_fp8.h", ""},
};

// The header of the type that a message calls undefined; NULL: it does not, or nobody knows it.
static const char *type_header(const struct message *message, const char **name, size_t *size,
                               const char **instead)
{
    *size = undefined_name(message, name);
    for (size_t i = 0; *size && i < sizeof(type_headers) / sizeof(type_headers[0]); i++) {
        if (!is_among(type_headers[i].types, *name, *size))
            continue;
        *instead = type_headers[i].instead;
        return type_headers[i].header;
    }
    return NULL;
}

// An unknown type makes nonsense of what stands around it, and of the compiler's other messages.
static bool is_of_type(const struct message *message)
{
    const char *name, *instead;
    size_t size;
    return type_header(message, &name, &size, &instead) != NULL;
}

// The first type that the source uses and does not declare.
static bool explain_type(const char *log, struct jc_buffer *out)
{
    struct message message;
    while (next_message(&log, &message)) {
        const char *name, *instead;
        size_t size;
        const char *header = type_header(&message, &name, &size, &instead);
        if (!header)
            continue;
        jc_buffer_print(out, "%.*s is a type of <%s>; include that%s.\n", (int) size, name, header,
                        instead);
        return true;
    }
    return false;
}

// --- both ----------------------------------------------------------------------------------------

void jc_diagnosis_print(const struct jc_template *tmpl, const struct jc_toolchain *toolchain,
                        const char *log, struct jc_buffer *out)
{
    struct jc_buffer stripped = {0};
    struct message message;
    jc_resources_strip(log, &stripped);
    const char *text = stripped.data ? stripped.data : "";
    bool of_type = explain_type(text, out);
    if (!of_type && first_error(text, &message)) {
        if (is_of_entry(&message))
            explain_entry(tmpl, &message, out);
        else
            explain_missing_header(toolchain, &message, out);
    }
    print_log(text, of_type ? is_of_type : NULL, out);
    out->failed = out->failed || stripped.failed;
    jc_buffer_finish(&stripped);
}
