// Waiting for what another thread or process does, but not for good.

#ifndef TEST_AWAIT_H
#define TEST_AWAIT_H

#include <unistd.h>

#include "cache/clock.h"

#define AWAIT_NS UINT64_C(100000000000)

// Waits until something holds. What does not come fails the test, and is named.
#define await(holds) \
    do { \
        uint64_t await_end_ns = jc_now_ns() + AWAIT_NS; \
        while (!(holds)) { \
            if (jc_now_ns() > await_end_ns) \
                fail_msg("waited in vain for: %s", #holds); \
            usleep(1000); \
        } \
    } while (0)

#endif
