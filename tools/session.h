// A context opened for one command, with a look at whether its cache will do.

#ifndef JC_TOOL_SESSION_H
#define JC_TOOL_SESSION_H

#include <stdbool.h>

#include <jitcache/context.h>

#include "options.h"

enum jc_session_use {
    JC_SESSION_LOOK, // creates nothing, and takes the cache as it is, for those who tell how it is
    JC_SESSION_READ, // creates nothing; a folder that does not exist yet is an empty cache
    JC_SESSION_WRITE // a cache that cannot be written will not do
};

struct jc_session {
    struct jc_context *context;
    struct jc_cache *cache;
    struct jc_cache_info info;
    bool absent;       // the folder does not exist yet
    // What programs may do with it: "read-write", "read-only", "absent", and where that will do
    // "off".
    const char *state;
};

// `params` may be NULL; of it nvrtc, worker, max_workers and compile_timeout_ns are taken. 0, or
// the status to end with after telling why.
int jc_session_open(struct jc_session *session, const struct jc_common *common,
                    enum jc_session_use use, const struct jc_context_params *params);

// Between the two, what the library warns of is held back. If the command then ends because of
// that, its own message tells it, and the warnings are not shown. Opening does this by itself,
// unless its caller holds already.
void jc_session_hold(void);
void jc_session_release(bool show);

// Accepts one that was not opened, or not fully.
void jc_session_close(struct jc_session *session);

// What the library says of its parameters, in the words of the command line. Allocated.
char *jc_session_reword(const char *text);

// Tells an error of the library so. Returns JC_STATUS_WRONG_USE.
int jc_session_complain(const char *text);

// Whether a variable that switches something on is set to 1.
bool jc_session_is_set(const char *variable);

// How many base segments JITCACHE_BASE asks for.
unsigned jc_session_base_asked(void);

#endif
