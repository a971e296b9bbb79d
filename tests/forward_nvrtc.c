// A library that is NVRTC to whoever opens it, and passes every call on to the real one: counts are
// taken here, outside of what is tested. It can also be told to misbehave.
//
//   JITCACHE_REAL_NVRTC   the real library; without it the loader's libnvrtc.so.13 or .12
//   JITCACHE_NVRTC_COUNT  a file that gets one line for each nvrtcCompileProgram: the options
//   JITCACHE_NVRTC_ACT    what nvrtcCompileProgram does instead: "abort", "hang", "fail"; followed
//                         by ":FILE" it does so as long as that file is not there, and makes it
//   JITCACHE_NVRTC_VERSION  what nvrtcVersion says instead, such as "98.0"
//
// The probes for options that the worker makes at its start are passed on and not counted.

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct program *program;

static void *real(const char *name)
{
    static void *library;
    const char *file = getenv("JITCACHE_REAL_NVRTC");
    if (!library && file)
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    else if (!library && !(library = dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL)))
        library = dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol)
        abort();
    return symbol;
}

// Functions are got through a union: C has no cast from an object pointer.
#define FORWARD(result, name, parameters, arguments) \
    EXPORT result name parameters; \
    EXPORT result name parameters \
    { \
        union { \
            void *symbol; \
            result (*function) parameters; \
        } forward = {.symbol = real(#name)}; \
        return forward.function arguments; \
    }

FORWARD(int, nvrtcGetNumSupportedArchs, (int *count), (count))
FORWARD(int, nvrtcGetSupportedArchs, (int *archs), (archs))
FORWARD(const char *, nvrtcGetErrorString, (int result), (result))
FORWARD(int, nvrtcCreateProgram,
        (program *made, const char *source, const char *name, int num_headers,
         const char *const *headers, const char *const *names),
        (made, source, name, num_headers, headers, names))
FORWARD(int, nvrtcDestroyProgram, (program *made), (made))
FORWARD(int, nvrtcAddNameExpression, (program made, const char *name), (made, name))
FORWARD(int, nvrtcGetProgramLogSize, (program made, size_t *size), (made, size))
FORWARD(int, nvrtcGetProgramLog, (program made, char *log), (made, log))
FORWARD(int, nvrtcGetLoweredName, (program made, const char *name, const char **lowered),
        (made, name, lowered))
FORWARD(int, nvrtcGetCUBINSize, (program made, size_t *size), (made, size))
FORWARD(int, nvrtcGetCUBIN, (program made, char *cubin), (made, cubin))

EXPORT int nvrtcVersion(int *major, int *minor);
EXPORT int nvrtcVersion(int *major, int *minor)
{
    union {
        void *symbol;
        int (*function)(int *, int *);
    } forward = {.symbol = real("nvrtcVersion")};
    const char *instead = getenv("JITCACHE_NVRTC_VERSION");
    if (instead && sscanf(instead, "%d.%d", major, minor) == 2)
        return 0;
    return forward.function(major, minor);
}

static void count(int num_options, const char *const *options)
{
    const char *file = getenv("JITCACHE_NVRTC_COUNT");
    char line[4096] = "";
    for (int i = 0; i < num_options; i++) {
        size_t used = strlen(line);
        size_t size = strlen(options[i]);
        if (used + size + 2 < sizeof(line)) {
            memcpy(line + used, options[i], size);
            memcpy(line + used + size, " ", 2);
        }
    }
    strcat(line, "\n");
    int fd = file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        ssize_t written = write(fd, line, strlen(line));
        close(fd);
        if (written < 0)
            abort();
    }
}

// What to do instead of compiling, NULL for nothing.
static const char *act(void)
{
    static char what[16];
    const char *told = getenv("JITCACHE_NVRTC_ACT");
    if (!told)
        return NULL;
    const char *colon = strchr(told, ':');
    size_t size = colon ? (size_t) (colon - told) : strlen(told);
    if (size >= sizeof(what))
        abort();
    memcpy(what, told, size);
    what[size] = '\0';
    if (colon) {
        int fd = open(colon + 1, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
            return NULL;
        close(fd);
    }
    return what;
}

static int compile(program made, int num_options, const char *const *options)
{
    union {
        void *symbol;
        int (*function)(program, int, const char *const *);
    } forward = {.symbol = real("nvrtcCompileProgram")};
    return forward.function(made, num_options, options);
}

EXPORT int nvrtcCompileProgram(program made, int num_options, const char *const *options);
EXPORT int nvrtcCompileProgram(program made, int num_options, const char *const *options)
{
    for (int i = 0; i < num_options; i++) {
        if (strcmp(options[i], "--jitcache-is-not-an-option") == 0)
            return compile(made, num_options, options);
    }
    count(num_options, options);
    const char *instead = act();
    if (instead && strcmp(instead, "abort") == 0)
        abort();
    while (instead && strcmp(instead, "hang") == 0)
        pause();
    if (instead && strcmp(instead, "fail") == 0)
        return 11; // NVRTC_ERROR_INTERNAL_ERROR
    return compile(made, num_options, options);
}
