#include "session.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/scratch.h"

static void keep_warning(void *user, enum jc_log_level level, const char *line)
{
    struct session *session = user;
    if (level > JC_LOG_WARNING)
        return;
    pthread_mutex_lock(&session->lock);
    if (session->warnings < SESSION_WARNINGS)
        session->warned[session->warnings] = strdup(line);
    session->warnings++;
    snprintf(session->warning, sizeof(session->warning), "%s", line);
    pthread_mutex_unlock(&session->lock);
}

static unsigned long simulated_runs(void)
{
    struct sim_counts counts;
    gpu.counts(&counts);
    // The tests' graphs have one launch each.
    unsigned long runs = 0;
    for (int device = 0; device < SIM_MAX_DEVICES; device++)
        runs += counts.launches[device] - counts.captured[device] + counts.graph_launches[device];
    return runs;
}

int session_set_up(void **state)
{
    struct session *session = calloc(1, sizeof(*session));
    void *folder;
    if (!session || scratch_setup(&folder) != 0 || pthread_mutex_init(&session->lock, NULL) != 0)
        return -1;
    gpu_check(gpu.cuCtxSetCurrent(gpu_primary));
    gpu_check(gpu.cuStreamCreate(&session->stream, GPU_STREAM_NON_BLOCKING));
    gpu_memory_init(&session->out, SESSION_WORDS * 4, 0, 0);
    struct jc_log log = {keep_warning, session, JC_LOG_WARNING};
    session_expect(session,
                   jc_context_create(jc_context_params(.dir = scratch_path("cache"), .log = &log),
                                     &session->context, &session->error),
                   JC_OK, "");
    session_expect(session,
                   jc_context_device(session->context, 0, &session->device, &session->error),
                   JC_OK, "");
    if (gpu.simulated)
        session->launches = simulated_runs();
    *state = session;
    return 0;
}

int session_tear_down(void **state)
{
    struct session *session = *state;
    gpu_check(gpu.cuCtxSetCurrent(gpu_primary));
    jc_kernel_destroy(&session->kernel);
    jc_template_destroy(&session->tmpl);
    // Also tells of a kernel that went wrong after the test had looked.
    gpu_check(gpu.cuCtxSynchronize());
    jc_context_destroy(&session->context);
    gpu_check(gpu.cuStreamDestroy_v2(session->stream));
    gpu_memory_finish(&session->out);
    for (size_t i = 0; i < SESSION_WARNINGS; i++)
        free(session->warned[i]);
    pthread_mutex_destroy(&session->lock);
    free(session);
    return scratch_teardown(NULL);
}

struct jc_template *session_template(struct session *session, const char *text)
{
    struct jc_template *tmpl = NULL;
    session_expect(session,
                   jc_template_create(jc_template_params(.text = text), &tmpl, &session->error),
                   JC_OK, "");
    return tmpl;
}

struct jc_kernel *session_kernel(struct session *session, const struct jc_template *tmpl,
                                 const struct jc_kernel_params *params)
{
    struct jc_kernel *kernel = NULL;
    session_expect(session,
                   jc_kernel_create(session->device, tmpl, params, &kernel, &session->error),
                   JC_OK, "");
    return kernel;
}

void session_make(struct session *session, const char *text, const struct jc_kernel_params *params)
{
    session->tmpl = session_template(session, text);
    session->kernel = session_kernel(session, session->tmpl, params);
}

static bool has_words(const char *text, const char *words)
{
    char copy[256], *rest = copy;
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *word; (word = strsep(&rest, " "));)
        if (!strstr(text, word))
            return false;
    return true;
}

void session_expect_result(const struct session *session, enum jc_result got, const char *call,
                           enum jc_result expected, const char *words, const char *file, int line)
{
    if (got == expected && has_words(session->error.text, words))
        return;
    print_error("%s: %s\n%s\nexpected: %s, with the words '%s'\n", call, jc_result_string(got),
                session->error.text, jc_result_string(expected), words);
    _fail(file, line);
}

unsigned session_warned(struct session *session, const char *words, const char **first)
{
    unsigned count = 0;
    const char *found = NULL;
    pthread_mutex_lock(&session->lock);
    for (size_t i = 0; i < SESSION_WARNINGS && session->warned[i]; i++) {
        if (!has_words(session->warned[i], words))
            continue;
        found = found ? found : session->warned[i];
        count++;
    }
    pthread_mutex_unlock(&session->lock);
    if (first)
        *first = found;
    return count;
}

struct jc_kernel_info session_info(struct session *session)
{
    struct jc_kernel_info info;
    jc_kernel_info(session->kernel, &info);
    return info;
}

unsigned session_runs(struct session *session)
{
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    if (gpu.simulated) {
        unsigned long before = session->launches;
        session->launches = simulated_runs();
        return (unsigned) (session->launches - before);
    }
    unsigned runs, none = 0;
    gpu_check(gpu.cuMemcpyDtoH_v2(&runs, session->out.data, sizeof(runs)));
    gpu_check(gpu.cuMemcpyHtoD_v2(session->out.data, &none, sizeof(none)));
    gpu_check(gpu.cuCtxSynchronize());
    return runs;
}

void session_expect_word(struct session *session, size_t index, int word)
{
    int found;
    gpu_check(gpu.cuStreamSynchronize(session->stream));
    if (gpu.simulated)
        return;
    gpu_check(gpu.cuMemcpyDtoH_v2(&found, session->out.data + 4 * index, sizeof(found)));
    assert_int_equal(found, word);
}

void session_begin_capture(struct session *session, enum jc_cu_capture_mode mode)
{
    gpu_check(gpu.cuStreamBeginCapture_v2(session->stream, (int) mode));
}

CUgraphExec session_end_capture(struct session *session, size_t nodes)
{
    CUgraph graph;
    CUgraphExec executable;
    size_t count = 0;
    gpu_check(gpu.cuStreamEndCapture(session->stream, &graph));
    gpu_check(gpu.cuGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, nodes);
    gpu_check(gpu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    gpu_check(gpu.cuGraphDestroy(graph));
    return executable;
}

void session_replay(struct session *session, CUgraphExec graph)
{
    gpu_check(gpu.cuGraphLaunch(graph, session->stream));
    gpu_check(gpu.cuStreamSynchronize(session->stream));
}
