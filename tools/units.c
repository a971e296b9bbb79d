#include "units.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

const char *jc_units_bytes(uint64_t bytes, char text[JC_UNITS_SIZE])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(text, JC_UNITS_SIZE, "%" PRIu64 " B", bytes);
        return text;
    }
    double value = (double) bytes / 1024;
    unsigned unit = 0;
    while (value >= 1023.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(text, JC_UNITS_SIZE, "%.1f %s", value, units[unit]);
    return text;
}

const char *jc_units_count(uint64_t count, char text[JC_UNITS_SIZE])
{
    char digits[JC_UNITS_SIZE];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, count);
    char *end = text;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *end++ = ',';
        *end++ = digits[i];
    }
    *end = '\0';
    return text;
}

const char *jc_units_duration(uint64_t ns, char text[JC_UNITS_SIZE])
{
    double us = (double) ns / 1e3;
    if (us < 999.5)
        snprintf(text, JC_UNITS_SIZE, "%.0f us", us);
    else if (us < 999.5e3)
        snprintf(text, JC_UNITS_SIZE, "%.0f ms", us / 1e3);
    else if (us < 99.95e6)
        snprintf(text, JC_UNITS_SIZE, "%.1f s", us / 1e6);
    else if (us < 99.5 * 60e6)
        snprintf(text, JC_UNITS_SIZE, "%.0f min", us / 60e6);
    else
        snprintf(text, JC_UNITS_SIZE, "%.1f h", us / 3600e6);
    return text;
}

const char *jc_units_wait(uint64_t ns, char text[JC_UNITS_SIZE])
{
    uint64_t seconds = ns / UINT64_C(1000000000) + (ns % UINT64_C(1000000000) != 0);
    if (seconds < 60)
        snprintf(text, JC_UNITS_SIZE, "%" PRIu64 "s", seconds);
    else if (seconds < 60 * 60)
        snprintf(text, JC_UNITS_SIZE, "%" PRIu64 "m%02" PRIu64 "s", seconds / 60, seconds % 60);
    else
        snprintf(text, JC_UNITS_SIZE, "%" PRIu64 "h%02" PRIu64 "m", seconds / 60 / 60,
                 seconds / 60 % 60);
    return text;
}

const char *jc_units_age(uint64_t now_ms, uint64_t then_ms, char text[JC_UNITS_SIZE])
{
    // A record from the future comes from a clock that was set back.
    uint64_t seconds = then_ms < now_ms ? (now_ms - then_ms) / 1000 : 0;
    if (seconds < 1)
        snprintf(text, JC_UNITS_SIZE, "now");
    else if (seconds < 60)
        snprintf(text, JC_UNITS_SIZE, "%" PRIu64 " s", seconds);
    else if (seconds < 60 * 60)
        snprintf(text, JC_UNITS_SIZE, "%" PRIu64 " min", seconds / 60);
    else if (seconds < 48 * 60 * 60)
        snprintf(text, JC_UNITS_SIZE, "%" PRIu64 " h", seconds / 60 / 60);
    else
        snprintf(text, JC_UNITS_SIZE, "%" PRIu64 " d", seconds / 60 / 60 / 24);
    return text;
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t) time.tv_sec * UINT64_C(1000000000) + (uint64_t) time.tv_nsec;
}

uint64_t jc_now_ms(void)
{
    return read_clock(CLOCK_REALTIME) / 1000000;
}

uint64_t jc_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}
