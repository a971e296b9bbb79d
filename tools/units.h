// Numbers as people read them.

#ifndef JC_TOOL_UNITS_H
#define JC_TOOL_UNITS_H

#include <stdint.h>

#define JC_UNITS_SIZE 32

// "512 B", "12.3 KiB", ... Returns `text`.
const char *jc_units_bytes(uint64_t bytes, char text[JC_UNITS_SIZE]);

// "1,204,331". Returns `text`.
const char *jc_units_count(uint64_t count, char text[JC_UNITS_SIZE]);

// "85 us", "212 ms", "3.4 s", "12 min", "30.5 h". Returns `text`.
const char *jc_units_duration(uint64_t ns, char text[JC_UNITS_SIZE]);

// A time to wait, rounded up: "8s", "1m02s", "3h05m". Returns `text`.
const char *jc_units_wait(uint64_t ns, char text[JC_UNITS_SIZE]);

// How long ago a Unix time in milliseconds was: "now", "3 min", "5 h", "12 d". Returns `text`.
const char *jc_units_age(uint64_t now_ms, uint64_t then_ms, char text[JC_UNITS_SIZE]);

// The Unix time in milliseconds.
uint64_t jc_now_ms(void);

// A clock that only goes forward, in nanoseconds.
uint64_t jc_clock_ns(void);

#endif
