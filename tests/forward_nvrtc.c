// A library that is NVRTC to whoever opens it, and passes every call on to the real one: counts are
// taken here, outside of what is tested. It can also be told to misbehave.
//
//   JITCACHE_REAL_NVRTC   the real library; without it the loader's libnvrtc.so.13 or .12
//   JITCACHE_NVRTC_COUNT  a file that gets one line for each nvrtcCompileProgram: the options
//   JITCACHE_NVRTC_SPANS  a file that gets a line when an nvrtcCompileProgram begins, and one when
//                         it ends: "begin" or "end", a number that no other compile has, a digest
//                         of the source and the options, CLOCK_MONOTONIC in nanoseconds, the
//                         process and its parent as /proc counts them. "again" instead of "begin":
//                         another process is compiling the same at that moment
//   JITCACHE_NVRTC_ACT    what nvrtcCompileProgram does instead, see `acts` below; followed by
//                         ":FILE" it does so as long as that file is not there, and makes it;
//                         followed by "@TEXT" it does so if the program's source contains that
//   JITCACHE_NVRTC_HOLD   a file: nvrtcCompileProgram goes on when it is not there any more
//   JITCACHE_NVRTC_VERSION  what nvrtcVersion says instead, such as "98.0"
//
// The probes for options that the worker makes at its start are passed on and not counted.

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
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

// --- programs and their sources ------------------------------------------------------------------

struct source {
    struct source *next;
    program made;
    char *text;
};

static struct source *sources;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards `sources`

static void remember(program made, const char *text)
{
    struct source *source = malloc(sizeof(*source));
    if (!source || !(source->text = strdup(text)))
        abort();
    source->made = made;
    pthread_mutex_lock(&mutex);
    source->next = sources;
    sources = source;
    pthread_mutex_unlock(&mutex);
}

static void forget(program made)
{
    pthread_mutex_lock(&mutex);
    struct source **at = &sources;
    while (*at && (*at)->made != made)
        at = &(*at)->next;
    struct source *source = *at;
    if (source)
        *at = source->next;
    pthread_mutex_unlock(&mutex);
    if (source)
        free(source->text);
    free(source);
}

// Stays good until the program is destroyed, which no one does who is compiling it.
static const char *source_of(program made)
{
    pthread_mutex_lock(&mutex);
    const struct source *source = sources;
    while (source && source->made != made)
        source = source->next;
    pthread_mutex_unlock(&mutex);
    return source ? source->text : "";
}

EXPORT int nvrtcCreateProgram(program *made, const char *source, const char *name, int num_headers,
                              const char *const *headers, const char *const *names);
EXPORT int nvrtcCreateProgram(program *made, const char *source, const char *name, int num_headers,
                              const char *const *headers, const char *const *names)
{
    union {
        void *symbol;
        int (*function)(program *, const char *, const char *, int, const char *const *,
                        const char *const *);
    } forward = {.symbol = real("nvrtcCreateProgram")};
    int result = forward.function(made, source, name, num_headers, headers, names);
    if (result == 0)
        remember(*made, source);
    return result;
}

EXPORT int nvrtcDestroyProgram(program *made);
EXPORT int nvrtcDestroyProgram(program *made)
{
    union {
        void *symbol;
        int (*function)(program *);
    } forward = {.symbol = real("nvrtcDestroyProgram")};
    forget(*made);
    return forward.function(made);
}

// --- what is written down ------------------------------------------------------------------------

// Appends to the file that a variable names, at once, so that the lines of several processes stay
// whole.
static void append(const char *variable, const char *line)
{
    const char *file = getenv(variable);
    int fd = file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    if (write(fd, line, strlen(line)) < 0)
        abort();
    close(fd);
}

static void count(int num_options, const char *const *options)
{
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
    append("JITCACHE_NVRTC_COUNT", line);
}

// FNV-1a.
static uint64_t digest(uint64_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char) *text) * UINT64_C(0x100000001b3);
    } while (*text++);
    return hash;
}

struct span {
    uint64_t number;
    uint64_t digest;
    int pid, parent;
    int lock; // of a byte of the file of spans, for as long as this compile or its process lasts
};

static void mark(const struct span *span, const char *what)
{
    struct timespec now;
    char line[160];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(line, sizeof(line), "%s %016" PRIx64 " %016" PRIx64 " %" PRIu64 " %d %d\n", what,
             span->number, span->digest,
             (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec, span->pid, span->parent);
    append("JITCACHE_NVRTC_SPANS", line);
}

// In the numbers of whoever mounted /proc, which a PID namespace leaves as it is.
static void read_numbers(struct span *span)
{
    FILE *stream = fopen("/proc/self/stat", "r");
    if (!stream || fscanf(stream, "%d %*s %*c %d", &span->pid, &span->parent) != 2)
        abort();
    fclose(stream);
}

// Whether nobody else is compiling the same.
static bool take_lock(struct span *span)
{
    const char *file = getenv("JITCACHE_NVRTC_SPANS");
    struct flock lock = {.l_type = F_WRLCK, .l_start = (off_t) (span->digest >> 2), .l_len = 1};
    span->lock = file ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    return span->lock < 0 || fcntl(span->lock, F_OFD_SETLK, &lock) == 0;
}

// A process number would not do: the compiles of several PID namespaces come together in one file.
static struct span begin(program made, int num_options, const char *const *options)
{
    struct span span;
    if (getrandom(&span.number, sizeof(span.number), 0) != sizeof(span.number))
        abort();
    span.digest = digest(UINT64_C(0xcbf29ce484222325), source_of(made));
    for (int i = 0; i < num_options; i++)
        span.digest = digest(span.digest, options[i]);
    read_numbers(&span);
    mark(&span, take_lock(&span) ? "begin" : "again");
    return span;
}

static void end(const struct span *span)
{
    mark(span, "end");
    if (span->lock >= 0)
        close(span->lock);
}

// --- what it does instead ------------------------------------------------------------------------

static int hang(void)
{
    while (pause() < 0)
        ;
    return 11;
}

static int crash(void)
{
    abort();
}

static int fault(void)
{
    volatile char *nothing = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *nothing = 1;
    return 0;
}

// Every call has its own room, which is used after the inner one: no compiler makes this a loop.
static int overflow(volatile char *outer)
{
    volatile char room[4096];
    room[0] = outer ? outer[0] : 1;
    int depth = room[0] ? overflow(room) : 0;
    return depth + room[0];
}

static int use_up_stack(void)
{
    return overflow(NULL);
}

// In steps that can be watched, to an end that spares the machine if nobody does.
static int eat(void)
{
    const size_t step = (size_t) 64 << 20, most = (size_t) 6 << 30;
    for (size_t eaten = 0; eaten < most; eaten += step) {
        if (mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                 -1, 0) == MAP_FAILED)
            break;
    }
    return 1; // NVRTC_ERROR_OUT_OF_MEMORY
}

static int stop(void)
{
    raise(SIGSTOP);
    return 11;
}

static int vanish(void)
{
    raise(SIGKILL);
    return 11;
}

// What was started lives on for a while, with all that was open.
static int bequeath(void)
{
    if (fork() == 0) {
        sleep(10);
        _exit(0);
    }
    return vanish();
}

static int leave(void)
{
    _exit(0);
}

static int fail(void)
{
    return 11; // NVRTC_ERROR_INTERNAL_ERROR
}

static const struct act {
    const char *name;
    int (*does)(void);
} acts[] = {
    {"abort", crash},
    {"bequeath", bequeath}, // its descriptors to a child, and vanishes
    {"eat", eat},       // all the memory it gets, up to 6 GiB
    {"exit", leave},
    {"fail", fail},
    {"hang", hang},
    {"kill", vanish},   // as the kernel does where memory runs out
    {"overflow", use_up_stack},
    {"segv", fault},
    {"stop", stop},     // the whole process, until it is told to go on
};

// False: the file is there already.
static bool is_first(const char *file)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

// What to do instead of compiling, NULL for nothing.
static const struct act *find_act(program made)
{
    const char *told = getenv("JITCACHE_NVRTC_ACT");
    if (!told)
        return NULL;
    char *name = strdup(told);
    if (!name)
        abort();
    char *text = strrchr(name, '@');
    if (text)
        *text++ = '\0';
    char *file = strchr(name, ':');
    if (file)
        *file++ = '\0';

    const struct act *act = NULL;
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        if (strcmp(acts[i].name, name) == 0)
            act = &acts[i];
    }
    if (!act)
        abort(); // a test has it wrong
    if ((text && !strstr(source_of(made), text)) || (file && !is_first(file)))
        act = NULL;
    free(name);
    return act;
}

static void hold(void)
{
    const char *file = getenv("JITCACHE_NVRTC_HOLD");
    const struct timespec moment = {.tv_nsec = 1000000};
    while (file && access(file, F_OK) == 0)
        nanosleep(&moment, NULL);
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
    struct span span = begin(made, num_options, options);
    hold();
    const struct act *act = find_act(made);
    int result = act ? act->does() : compile(made, num_options, options);
    end(&span);
    return result;
}
