// The two clocks that are read.

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

// A moment of that clock, for calls that wait until one.
static inline struct timespec jc_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t) (ns / 1000000000),
                             .tv_nsec = (long) (ns % 1000000000)};
}

// For dates on disk: Unix time.
static inline uint64_t jc_now_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

#endif
