#include "environment.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "cache/report.h"

static const char *value_of(const char *name)
{
    const char *value = secure_getenv(name);
    return value && value[0] ? value : NULL;
}

static enum jc_result read_switch(const char *name, bool *on, struct jc_error *error)
{
    const char *value = value_of(name);
    *on = value && strcmp(value, "1") == 0;
    if (!value || *on || strcmp(value, "0") == 0)
        return JC_OK;
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s is '%s'; it takes 1 or 0", name, value);
}

static enum jc_result read_trust(struct jc_environment *environment, struct jc_error *error)
{
    const char *value = value_of("JITCACHE_TRUST");
    environment->trust_group = value && strcmp(value, "group") == 0;
    if (!value || environment->trust_group)
        return JC_OK;
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                   "JITCACHE_TRUST is '%s'; it takes 'group' alone", value);
}

// The shift of a unit: K, M, G or T; -1 for anything else.
static int unit_shift(const char *unit)
{
    static const char units[] = "KMGT";
    if (!unit[0])
        return 0;
    const char *found = unit[1] ? NULL : strchr(units, unit[0]);
    return found ? 10 * (int) (found - units + 1) : -1;
}

// Reads digits, of which there has to be one, and goes on behind them. False: none, or too many.
static bool read_digits(const char **at, uint64_t *number)
{
    bool fits = **at >= '0' && **at <= '9';
    *number = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        fits = fits && !__builtin_mul_overflow(*number, 10, number)
            && !__builtin_add_overflow(*number, (uint64_t) (**at - '0'), number);
    return fits;
}

static enum jc_result read_bytes(const char *name, uint64_t *bytes, struct jc_error *error)
{
    const char *value = value_of(name), *at = value;
    *bytes = 0;
    if (!value)
        return JC_OK;
    uint64_t number;
    bool fits = read_digits(&at, &number);
    int shift = unit_shift(at);
    if (!fits || number == 0 || shift < 0 || number > UINT64_MAX >> shift)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s is '%s'; it takes a number of bytes,"
                       " such as 4294967296 or 4G, with K, M, G or T", name, value);
    *bytes = number << shift;
    return JC_OK;
}

static enum jc_result read_jobs(struct jc_environment *environment, struct jc_error *error)
{
    const char *value = value_of("JITCACHE_JOBS"), *at = value;
    if (!value)
        return JC_OK;
    uint64_t number;
    if (!read_digits(&at, &number) || *at || number > UINT_MAX)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "JITCACHE_JOBS is '%s'; it takes how many"
                       " compile workers there may be, or 0 for as many as the machine has room"
                       " for", value);
    environment->jobs = (unsigned) number;
    return JC_OK;
}

// Seconds with a fraction, by a point whatever the locale says.
static bool read_seconds(const char *at, uint64_t *ns)
{
    uint64_t seconds, unit = 1000000000;
    if (!read_digits(&at, &seconds) || seconds > UINT64_MAX / unit - 1)
        return false;
    *ns = seconds * unit;
    if (*at == '.') {
        for (at++; *at >= '0' && *at <= '9'; at++)
            *ns += (unit /= 10) * (uint64_t) (*at - '0');
    }
    return !*at && *ns > 0;
}

static enum jc_result read_timeout(struct jc_environment *environment, struct jc_error *error)
{
    const char *value = value_of("JITCACHE_COMPILE_TIMEOUT");
    if (!value || read_seconds(value, &environment->compile_timeout_ns))
        return JC_OK;
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "JITCACHE_COMPILE_TIMEOUT is '%s'; it takes"
                   " the seconds that one compile may take, such as 300 or 0.5", value);
}

// The index of a variable's value among some words; 0 where it is not set. Words that are NULL are
// none. `words` says what it takes.
static enum jc_result read_word(const char *name, const char *const *texts, size_t count,
                                const char *words, unsigned *index, struct jc_error *error)
{
    const char *value = value_of(name);
    *index = 0;
    if (!value)
        return JC_OK;
    for (size_t i = 0; i < count; i++) {
        if (texts[i] && strcmp(value, texts[i]) == 0) {
            *index = (unsigned) i;
            return JC_OK;
        }
    }
    return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "%s is '%s'; it takes %s", name, value,
                   words);
}

static enum jc_result read_log(struct jc_environment *environment, struct jc_error *error)
{
    static const char *const levels[] = {
        [JC_LOG_NONE] = "none", [JC_LOG_ERROR] = "error", [JC_LOG_WARNING] = "warning",
        [JC_LOG_INFO] = "info", [JC_LOG_DEBUG] = "debug",
    };
    unsigned level;
    enum jc_result result = read_word("JITCACHE_LOG", levels, sizeof(levels) / sizeof(levels[0]),
                                      "none, error, warning, info or debug", &level, error);
    environment->has_log = result == JC_OK && value_of("JITCACHE_LOG");
    environment->log = (enum jc_log_level) level;
    return result;
}

static enum jc_result read_policy(struct jc_environment *environment, struct jc_error *error)
{
    static const char *const policies[] = {
        [JC_POLICY_WAIT] = "wait", [JC_POLICY_FAIL] = "fail", [JC_POLICY_GENERIC] = "generic",
    };
    unsigned policy;
    enum jc_result result =
        read_word("JITCACHE_POLICY", policies, sizeof(policies) / sizeof(policies[0]),
                  "wait, generic or fail: what a call does whose variant is not loaded", &policy,
                  error);
    environment->policy = (enum jc_policy) policy;
    return result;
}

static enum jc_result read_seal(struct jc_environment *environment, struct jc_error *error)
{
    static const char *const seals[] = {
        [JC_SEAL_OPEN] = "open", [JC_SEAL_LOG] = "log", [JC_SEAL_FAIL] = "fail",
        [JC_SEAL_FROZEN] = "frozen",
    };
    unsigned seal;
    enum jc_result result =
        read_word("JITCACHE_SEAL", seals, sizeof(seals) / sizeof(seals[0]),
                  "log, fail, frozen or open: what becomes of misses after the seal", &seal, error);
    environment->seal = (enum jc_seal) seal;
    return result;
}

static enum jc_result read_sample(struct jc_environment *environment, struct jc_error *error)
{
    const char *value = value_of("JITCACHE_SAMPLE"), *at = value;
    uint64_t number;
    if (!value)
        return JC_OK;
    if (!read_digits(&at, &number) || *at || number > UINT_MAX)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT, "JITCACHE_SAMPLE is '%s'; it takes a"
                       " number of launches, of which one is timed, or 0 for none", value);
    environment->sample = (unsigned) number;
    return JC_OK;
}

static enum jc_result read_nvtx(struct jc_environment *environment, struct jc_error *error)
{
    enum jc_result result = read_switch("JITCACHE_NVTX", &environment->nvtx, error);
    environment->no_nvtx = result == JC_OK && value_of("JITCACHE_NVTX") && !environment->nvtx;
    return result;
}

enum jc_result jc_environment_read(struct jc_environment *environment, struct jc_error *error)
{
    *environment = (struct jc_environment){
        .dir = value_of("JITCACHE_DIR"),
        .base = value_of("JITCACHE_BASE"),
        .nvrtc = value_of("JITCACHE_NVRTC"),
        .worker = value_of("JITCACHE_WORKER"),
        .record = value_of("JITCACHE_RECORD"),
        .stats = value_of("JITCACHE_STATS"),
        .secure = getauxval(AT_SECURE) != 0,
    };
    enum jc_result result = read_switch("JITCACHE_DISABLE", &environment->disable, error);
    if (result == JC_OK)
        result = read_switch("JITCACHE_READONLY", &environment->read_only, error);
    if (result == JC_OK)
        result = read_trust(environment, error);
    if (result == JC_OK)
        result = read_bytes("JITCACHE_MAX_BYTES", &environment->max_bytes, error);
    if (result == JC_OK)
        result = read_jobs(environment, error);
    if (result == JC_OK)
        result = read_bytes("JITCACHE_COMPILE_BYTES", &environment->compile_bytes, error);
    if (result == JC_OK)
        result = read_timeout(environment, error);
    if (result == JC_OK)
        result = read_log(environment, error);
    if (result == JC_OK)
        result = read_policy(environment, error);
    if (result == JC_OK)
        result = read_seal(environment, error);
    if (result == JC_OK)
        result = read_sample(environment, error);
    if (result == JC_OK)
        result = read_switch("JITCACHE_SYNC", &environment->sync, error);
    if (result == JC_OK)
        result = read_nvtx(environment, error);
    return result;
}
