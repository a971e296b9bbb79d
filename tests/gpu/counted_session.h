// A session whose compiles and loads are counted outside of the library: by an NVRTC that passes
// everything on, and by the driver of tests/sim/counting.

#ifndef TEST_GPU_COUNTED_SESSION_H
#define TEST_GPU_COUNTED_SESSION_H

#include <stdlib.h>

#include "counting.h"
#include "session.h"
#include "tests/counted.h"

// For main: 0, or the status to end with. Lines say why.
static inline int counted_session_find(void)
{
    int status = counted_find();
    if (status != 0)
        return status;
    if (!gpu_open())
        return 77;
    return counting_find() ? 0 : 1;
}

// The session's context compiles with the NVRTC that counts.
static inline int counted_session_set_up(void **state)
{
    void *folder;
    if (counted_setup(&folder) != 0)
        return -1;
    setenv("JITCACHE_NVRTC", counted_nvrtc, 1);
    return session_set_up(state);
}

static inline int counted_session_tear_down(void **state)
{
    int status = session_tear_down(state);
    unsetenv("JITCACHE_NVRTC");
    return counted_teardown(NULL) | status;
}

#endif
