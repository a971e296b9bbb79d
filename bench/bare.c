#include "bare.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct program *program;

// X(name, symbol, parameters)
#define NVRTC_CALLS(X) \
    X(create, "nvrtcCreateProgram", \
      (program * made, const char *source, const char *name, int num_headers, \
       const char *const *headers, const char *const *names)) \
    X(destroy, "nvrtcDestroyProgram", (program * made)) \
    X(add_name, "nvrtcAddNameExpression", (program made, const char *name)) \
    X(compile, "nvrtcCompileProgram", \
      (program made, int num_options, const char *const *options)) \
    X(log_size, "nvrtcGetProgramLogSize", (program made, size_t *size)) \
    X(log, "nvrtcGetProgramLog", (program made, char *log)) \
    X(lowered_name, "nvrtcGetLoweredName", \
      (program made, const char *name, const char **lowered)) \
    X(cubin_size, "nvrtcGetCUBINSize", (program made, size_t *size)) \
    X(cubin, "nvrtcGetCUBIN", (program made, char *cubin))

struct bare {
#define FIELD(name, symbol, parameters) int(*name) parameters;
    NVRTC_CALLS(FIELD)
#undef FIELD
    const struct bare_work *work;
    char *content; // of the file of jobs
    struct jc_job *jobs;
    size_t count;
    char *include_options[JC_MAX_ROOTS];
    size_t num_include_options;
    FILE *cubins;
    atomic_size_t next; // job; taken by whichever thread comes first
};

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "bench-throughput: %s: %s\n", what, why);
    exit(1);
}

// --- the file of jobs ----------------------------------------------------------------------------

void bare_jobs_begin(struct jc_buffer *jobs, const struct jc_toolchain *toolchain, size_t count)
{
    jc_buffer_field_string(jobs, toolchain->nvrtc);
    jc_buffer_field_string(jobs, toolchain->include);
    jc_buffer_u32(jobs, (uint32_t) toolchain->num_roots);
    for (size_t i = 0; i < toolchain->num_roots; i++)
        jc_buffer_field_string(jobs, toolchain->roots[i]);
    jc_buffer_u32(jobs, (uint32_t) count);
}

void bare_jobs_add(struct jc_buffer *jobs, const struct jc_job *job)
{
    struct jc_buffer content = {0};
    jc_job_encode(job, &content);
    jc_buffer_field(jobs, content.data, content.size);
    jobs->failed = jobs->failed || content.failed;
    jc_buffer_finish(&content);
}

static char *read_whole(const char *file, size_t *size)
{
    FILE *stream = fopen(file, "r");
    if (!stream || fseek(stream, 0, SEEK_END) != 0)
        stop(file, "cannot be read");
    *size = (size_t) ftell(stream);
    rewind(stream);
    char *content = malloc(*size + 1);
    if (!content || fread(content, 1, *size, stream) != *size)
        stop(file, "cannot be read");
    content[*size] = '\0';
    fclose(stream);
    return content;
}

static void read_jobs(struct bare *bare, struct jc_reader *reader)
{
    bare->count = jc_reader_u32(reader);
    bare->jobs = calloc(bare->count + 1, sizeof(*bare->jobs));
    if (!bare->jobs)
        stop(bare->work->jobs, "out of memory");
    for (size_t i = 0; i < bare->count; i++) {
        size_t size;
        const char *content = jc_reader_field(reader, &size);
        if (reader->failed || jc_job_decode(content, size, &bare->jobs[i]) != JC_OK)
            stop(bare->work->jobs, "holds something else than jobs");
    }
}

// --- NVRTC ---------------------------------------------------------------------------------------

static void open_nvrtc(struct bare *bare, const char *file)
{
    void *symbol, *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        stop(file, dlerror());
#define BIND(name, symbol_name, parameters) \
    symbol = dlsym(library, symbol_name); \
    if (!symbol) \
        stop(file, "it has no " symbol_name); \
    memcpy(&bare->name, &symbol, sizeof(symbol));
    NVRTC_CALLS(BIND)
#undef BIND
}

static int compile(struct bare *bare, const struct jc_job *job, program made)
{
    const char **options = calloc(job->num_options + JC_MAX_ROOTS, sizeof(*options));
    size_t count = 0;
    if (!options)
        stop("compile", "out of memory");
    for (size_t i = 0; i < job->num_options; i++)
        options[count++] = job->options[i];
    for (size_t i = 0; i < bare->num_include_options; i++)
        options[count++] = bare->include_options[i];
    int status = bare->compile(made, (int) count, options);
    free(options);
    return status;
}

static program create(struct bare *bare, const struct jc_job *job)
{
    const char **names = calloc(job->num_headers + 1, sizeof(*names));
    const char **texts = calloc(job->num_headers + 1, sizeof(*texts));
    program made = NULL;
    if (!names || !texts)
        stop("compile", "out of memory");
    for (size_t i = 0; i < job->num_headers; i++) {
        names[i] = job->headers[i].name;
        texts[i] = job->headers[i].text;
    }
    if (bare->create(&made, job->source, job->file, (int) job->num_headers, texts, names) ||
        bare->add_name(made, job->entry))
        stop("compile", "NVRTC makes no program");
    free(names);
    free(texts);
    return made;
}

// A log is always read: it is what a program does, and where the compiler tells of registers.
static void do_job(struct bare *bare, const struct jc_job *job)
{
    program made = create(bare, job);
    int status = compile(bare, job, made);
    size_t size = 0;
    bare->log_size(made, &size);
    char *log = calloc(1, size + 1);
    if (!log || bare->log(made, log) || status)
        stop("compile", log ? log : "out of memory");
    free(log);

    const char *lowered;
    if (bare->lowered_name(made, job->entry, &lowered) || bare->cubin_size(made, &size))
        stop("compile", "NVRTC made no machine code");
    char *cubin = malloc(size);
    if (!cubin || bare->cubin(made, cubin))
        stop("compile", "NVRTC does not hand out the machine code");
    if (bare->cubins && fwrite(cubin, 1, size, bare->cubins) != size)
        stop(bare->work->cubins, "cannot be written");
    free(cubin);
    bare->destroy(&made);
}

static void *do_share(void *user)
{
    struct bare *bare = user;
    size_t i;
    while ((i = atomic_fetch_add(&bare->next, bare->work->step)) < bare->count)
        do_job(bare, &bare->jobs[i]);
    return NULL;
}

void bare_run(const struct bare_work *work)
{
    static struct bare bare;
    size_t size;
    bare.work = work;
    bare.content = read_whole(work->jobs, &size);
    struct jc_reader reader = {.at = bare.content, .left = size};
    const char *nvrtc = jc_reader_string(&reader), *include = jc_reader_string(&reader);
    bare.num_include_options = jc_reader_u32(&reader);
    if (bare.num_include_options > JC_MAX_ROOTS)
        stop(work->jobs, "holds something else than jobs");
    for (size_t i = 0; i < bare.num_include_options; i++)
        if (asprintf(&bare.include_options[i], "-I%s", jc_reader_string(&reader)) < 0)
            stop(work->jobs, "out of memory");
    read_jobs(&bare, &reader);
    atomic_init(&bare.next, work->first);
    if (work->cubins && !(bare.cubins = fopen(work->cubins, "w")))
        stop(work->cubins, "cannot be written");
    if (chdir(include) != 0)
        stop(include, "cannot be entered");
    open_nvrtc(&bare, nvrtc);

    pthread_t threads[64];
    unsigned more = work->threads > 64 ? 64 : work->threads; // one is none more
    for (unsigned i = 1; i < more; i++)
        if (pthread_create(&threads[i], NULL, do_share, &bare) != 0)
            stop("a thread", "cannot be started");
    do_share(&bare);
    for (unsigned i = 1; i < more; i++)
        pthread_join(threads[i], NULL);
    if (bare.cubins && fclose(bare.cubins) != 0)
        stop(work->cubins, "cannot be written");
    for (size_t i = 0; i < bare.count; i++)
        jc_job_decoded_finish(&bare.jobs[i]);
    for (size_t i = 0; i < bare.num_include_options; i++)
        free(bare.include_options[i]);
    free(bare.jobs);
    free(bare.content);
}
