// Times of day, and how long ago, as people write and read them.

#ifndef JC_TOOL_MOMENT_H
#define JC_TOOL_MOMENT_H

#include <stdint.h>

#define JC_MOMENT_SIZE 64

// How moments can be written, for messages.
#define JC_MOMENT_FORMS "10m, 2h, 3d, today, 2026-11-30, 2026-11-30T14:05 or 2026-11-30T14:05Z"

// Reads "90s", "10m", "2h", "1h30m", "3d", "2w" before `now_ms`; "today", "yesterday"; a date, or a
// date and a time, which are local unless "Z" or an offset such as "+02:00" follows; "@" and a Unix
// time in seconds. NULL, or what is wrong with it. Moments before 1970 are not known.
const char *jc_moment_parse(const char *text, uint64_t now_ms, uint64_t *moment_ms);

// "14:05:10" on the day of `now_ms`, else "2026-11-30 14:05", local. Returns `text`.
const char *jc_moment_spell(uint64_t moment_ms, uint64_t now_ms, char text[JC_MOMENT_SIZE]);

#endif
