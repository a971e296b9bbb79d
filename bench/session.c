#include "session.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_SKIP 77

void bench_stop(const char *what, const char *why)
{
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

static void bind_driver(struct session *session)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "bench: skipped: %s\n", dlerror());
        exit(STATUS_SKIP);
    }
    void *symbol;
#define BIND(name, symbol_name, parameters) \
    symbol = dlsym(library, symbol_name); \
    if (!symbol) \
        bench_stop("the CUDA driver has no", symbol_name); \
    memcpy(&session->name, &symbol, sizeof(symbol));
    BENCH_DRIVER_CALLS(BIND)
#undef BIND
    if (session->cuInit(0) || session->cuDevicePrimaryCtxRetain(&session->primary, 0) ||
        session->cuCtxSetCurrent(session->primary))
        bench_stop("the CUDA driver", "device 0 cannot be used");
}

void bench_session_open(struct session *session)
{
    struct jc_error error;
    if (jc_context_create(jc_context_params(.dir = session->folder), &session->context, &error) ||
        jc_context_device(session->context, 0, &session->device, &error) ||
        jc_context_device_info(session->context, 0, &session->info, &error))
        bench_stop("opening device 0", error.text);
    session->real = strcmp(session->info.name, "empty driver") != 0;
}

void bench_session_close(struct session *session)
{
    session->device = NULL;
    jc_context_destroy(&session->context);
}

void bench_session_init(struct session *session)
{
    *session = (struct session){0};
    const char *parent = getenv("TMPDIR");
    snprintf(session->folder, sizeof(session->folder), "%s/jitcache-bench-XXXXXX",
             parent ? parent : "/tmp");
    bind_driver(session);
    if (!mkdtemp(session->folder))
        bench_stop(session->folder, "cannot be made");
    bench_session_open(session);
}

static void empty_folder(const struct session *session)
{
    DIR *entries = opendir(session->folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
}

void bench_session_renew(struct session *session)
{
    bench_session_close(session);
    empty_folder(session);
    bench_session_open(session);
}

void bench_session_finish(struct session *session)
{
    bench_session_close(session);
    empty_folder(session);
    rmdir(session->folder);
}

struct jc_template *bench_template(const char *text)
{
    struct jc_template *tmpl;
    struct jc_error error;
    if (jc_template_create(jc_template_params(.text = text, .text_size = strlen(text)), &tmpl,
                           &error))
        bench_stop("the template", error.text);
    return tmpl;
}
