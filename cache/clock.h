// The two clocks the cache reads.

#ifndef JC_CLOCK_H
#define JC_CLOCK_H

#include <stdint.h>
#include <time.h>

// For waits: never set back, the same in every process of the host.
static inline uint64_t jc_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

// For dates on disk: Unix time.
static inline uint64_t jc_now_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

#endif
