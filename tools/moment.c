#include "moment.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MS_PER_SECOND UINT64_C(1000)
#define MS_PER_DAY (24 * 60 * 60 * MS_PER_SECOND)

// More than anybody asks for, and overflows nothing.
#define MAX_DIGITS 9

// Reads up to `max` digits. False: there is none.
static bool take_number(const char **text, size_t max, uint64_t *number)
{
    size_t digits = 0;
    for (*number = 0; digits < max && isdigit((unsigned char) **text); digits++)
        *number = *number * 10 + (uint64_t) (*(*text)++ - '0');
    return digits > 0;
}

static bool take(const char **text, char wanted)
{
    if (**text != wanted)
        return false;
    ++*text;
    return true;
}

// --- how long ago --------------------------------------------------------------------------------

static uint64_t take_unit(const char **text)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {
        {"min", 60 * MS_PER_SECOND}, {"s", MS_PER_SECOND}, {"m", 60 * MS_PER_SECOND},
        {"h", MS_PER_DAY / 24},      {"d", MS_PER_DAY},    {"w", 7 * MS_PER_DAY},
    };
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t size = strlen(units[i].name);
        if (strncmp(*text, units[i].name, size) == 0) {
            *text += size;
            return units[i].ms;
        }
    }
    return 0;
}

static const char *parse_span(const char *text, uint64_t now_ms, uint64_t *moment_ms)
{
    uint64_t span_ms = 0, number;
    do {
        if (!take_number(&text, MAX_DIGITS, &number))
            return "is no time";
        uint64_t unit_ms = take_unit(&text);
        if (!unit_ms)
            return *text ? "is no time" : "lacks its unit";
        if (span_ms < now_ms) // what is more changes nothing, but might overflow
            span_ms += number * unit_ms;
    } while (*text);
    *moment_ms = span_ms < now_ms ? now_ms - span_ms : 1;
    return NULL;
}

// --- dates ---------------------------------------------------------------------------------------

// "14:05", "14:05:10", "14:05:10.250"
static bool take_time(const char **text, struct tm *time, uint64_t *ms)
{
    uint64_t hour, minute, second = 0;
    *ms = 0;
    if (!take_number(text, 2, &hour) || !take(text, ':') || !take_number(text, 2, &minute))
        return false;
    if (take(text, ':')) {
        if (!take_number(text, 2, &second))
            return false;
        bool fraction = take(text, '.');
        if (fraction && !isdigit((unsigned char) **text))
            return false;
        for (uint64_t unit = 100; fraction && isdigit((unsigned char) **text); unit /= 10)
            *ms += (uint64_t) (*(*text)++ - '0') * unit;
    }
    time->tm_hour = (int) hour;
    time->tm_min = (int) minute;
    time->tm_sec = (int) second;
    return hour < 24 && minute < 60 && second < 60;
}

// "Z", "+02:00", "+0200"; nothing: local.
static bool take_zone(const char **text, bool *is_local, int64_t *offset_s)
{
    uint64_t hours, minutes;
    *is_local = **text == '\0';
    *offset_s = 0;
    if (*is_local || take(text, 'Z') || take(text, 'z'))
        return **text == '\0';
    bool west = **text == '-';
    if (!take(text, west ? '-' : '+') || !take_number(text, 2, &hours))
        return false;
    take(text, ':');
    if (!take_number(text, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    *offset_s = (int64_t) (hours * 60 + minutes) * (west ? -60 : 60);
    return **text == '\0';
}

static const char *parse_date(const char *text, uint64_t *moment_ms)
{
    struct tm tm = {.tm_isdst = -1};
    uint64_t year, month, day, ms = 0;
    bool is_local = true;
    int64_t offset_s = 0;
    if (!take_number(&text, 4, &year) || !take(&text, '-') || !take_number(&text, 2, &month) ||
        !take(&text, '-') || !take_number(&text, 2, &day))
        return "is no time";
    tm.tm_year = (int) year - 1900;
    tm.tm_mon = (int) month - 1;
    tm.tm_mday = (int) day;
    if (*text && (!(take(&text, 'T') || take(&text, 't') || take(&text, ' ')) ||
                  !take_time(&text, &tm, &ms) || !take_zone(&text, &is_local, &offset_s)))
        return "is no time";
    time_t seconds = is_local ? mktime(&tm) : timegm(&tm);
    // The 30th of February has become a day of March.
    if (tm.tm_mday != (int) day || tm.tm_mon != (int) month - 1)
        return "is no day of the calendar";
    if (seconds - offset_s < 0)
        return "is before 1970";
    *moment_ms = (uint64_t) (seconds - offset_s) * MS_PER_SECOND + ms;
    return NULL;
}

static void midnight(uint64_t now_ms, int days_ago, uint64_t *moment_ms)
{
    time_t now = (time_t) (now_ms / MS_PER_SECOND);
    struct tm tm;
    localtime_r(&now, &tm);
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    tm.tm_mday -= days_ago;
    tm.tm_isdst = -1;
    *moment_ms = (uint64_t) mktime(&tm) * MS_PER_SECOND;
}

const char *jc_moment_parse(const char *text, uint64_t now_ms, uint64_t *moment_ms)
{
    const char *wrong = NULL;
    size_t digits = strspn(text, "0123456789");
    if (strcmp(text, "today") == 0 || strcmp(text, "yesterday") == 0) {
        midnight(now_ms, *text == 'y', moment_ms);
    } else if (*text == '@') {
        const char *rest = text + 1;
        if (!take_number(&rest, 11, moment_ms) || *rest)
            return "is no time";
        *moment_ms *= MS_PER_SECOND;
    } else if (digits && text[digits] == '-') {
        wrong = parse_date(text, moment_ms);
    } else {
        wrong = parse_span(text, now_ms, moment_ms);
    }
    if (!wrong && *moment_ms > now_ms)
        return "is in the future";
    // 0 would mean all there is.
    if (!wrong && *moment_ms == 0)
        *moment_ms = 1;
    return wrong;
}

const char *jc_moment_spell(uint64_t moment_ms, uint64_t now_ms, char text[JC_MOMENT_SIZE])
{
    time_t then = (time_t) (moment_ms / MS_PER_SECOND), now = (time_t) (now_ms / MS_PER_SECOND);
    struct tm tm, today;
    if (!localtime_r(&then, &tm) || !localtime_r(&now, &today)) {
        snprintf(text, JC_MOMENT_SIZE, "?");
        return text;
    }
    bool same_day = tm.tm_year == today.tm_year && tm.tm_yday == today.tm_yday;
    strftime(text, JC_MOMENT_SIZE, same_day ? "%H:%M:%S" : "%Y-%m-%d %H:%M", &tm);
    return text;
}
