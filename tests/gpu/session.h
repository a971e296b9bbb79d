// What a test of launching needs: a context with a cache of its own in a scratch folder, a device,
// a stream, device memory that kernels write to, and a kernel made from text.

#ifndef TEST_SESSION_H
#define TEST_SESSION_H

#include <pthread.h>

#include <jitcache/jitcache.h>
#include <jitcache/kernel.h>

#include "gpu.h"

#define SESSION_WORDS 16384
#define SESSION_WARNINGS 64

struct session {
    struct jc_context *context;
    struct jc_device *device;
    struct jc_template *tmpl;
    struct jc_kernel *kernel;
    CUstream stream;
    struct gpu_memory out; // SESSION_WORDS of 4 bytes, all 0
    struct jc_error error; // of the call that `session_expect` looked at
    pthread_mutex_t lock;  // guards what follows: threads of the library log too
    unsigned warnings;     // that the context logged
    char warning[2048];    // the last of them
    char *warned[SESSION_WARNINGS]; // the first of them
    unsigned long launches; // of the simulated driver, up to the last session_runs
};

// For cmocka's setup and teardown: opens and closes a session, `*state` is it.
int session_set_up(void **state);
int session_tear_down(void **state);

// A further kernel's parts, for tests that need more than one. The session's own are made by
// session_make and go with it. All end the test on failure.
struct jc_template *session_template(struct session *session, const char *text);
struct jc_kernel *session_kernel(struct session *session, const struct jc_template *tmpl,
                                 const struct jc_kernel_params *params);
void session_make(struct session *session, const char *text, const struct jc_kernel_params *params);

// Ends the test unless a call had this result and, for a failure, its text has all of the words,
// which stand in one string between blanks.
#define session_expect(session, call, result, words) \
    session_expect_result(session, ((session)->error.text[0] = '\0', (call)), #call, result, \
                          words, __FILE__, __LINE__)
void session_expect_result(const struct session *session, enum jc_result got, const char *call,
                           enum jc_result expected, const char *words, const char *file, int line);

// How many warnings had all of these words. `first`, which may be NULL, is the first of them, until
// the session ends; NULL: there was none.
unsigned session_warned(struct session *session, const char *words, const char **first);

// Launches the session's kernel into its stream; the call has to succeed.
#define session_launch(session, args) \
    session_expect(session, \
                   jc_kernel_launch((session)->kernel, (session)->stream, args, \
                                    &(session)->error), \
                   JC_OK, "")
#define session_prepare(session, args) \
    session_expect(session, \
                   jc_kernel_prepare((session)->kernel, args, &(session)->error), JC_OK, "")

// Of the session's kernel.
struct jc_kernel_info session_info(struct session *session);

// Waits for the stream; then how often a kernel has run since the last time this was asked. The
// kernels count it in the first word of `out`, see SESSION_COUNT; of a simulated driver it is the
// launches that it took, captured ones aside.
unsigned session_runs(struct session *session);
#define SESSION_COUNT \
    "    if (blockIdx.x + blockIdx.y + blockIdx.z == 0\n" \
    "        && threadIdx.x + threadIdx.y + threadIdx.z == 0)\n" \
    "        atomicAdd(reinterpret_cast<int *>(out), 1);\n"

// Compares a word of `out` with what a kernel should have written there. A simulated driver runs
// nothing, so there it says nothing.
void session_expect_word(struct session *session, size_t index, int word);

// Captures what is launched into the session's stream between the two calls.
void session_begin_capture(struct session *session, enum jc_cu_capture_mode mode);
// Ends the test if the capture was spoiled, or has not that many nodes.
CUgraphExec session_end_capture(struct session *session, size_t nodes);
void session_replay(struct session *session, CUgraphExec graph);

#endif
