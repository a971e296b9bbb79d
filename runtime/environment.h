// The environment variables of the library; docs/environment.md is their table.

#ifndef JC_ENVIRONMENT_H
#define JC_ENVIRONMENT_H

#include <stdbool.h>

#include <jitcache/policy.h>

// Texts are those of the environment, NULL where a variable is not set or empty.
struct jc_environment {
    const char *dir;    // JITCACHE_DIR
    const char *base;   // JITCACHE_BASE
    const char *nvrtc;  // JITCACHE_NVRTC
    const char *worker; // JITCACHE_WORKER
    const char *record; // JITCACHE_RECORD
    const char *stats;  // JITCACHE_STATS
    bool disable;       // JITCACHE_DISABLE
    bool read_only;     // JITCACHE_READONLY
    bool trust_group;   // JITCACHE_TRUST
    uint64_t max_bytes; // JITCACHE_MAX_BYTES; 0: not set, as for the next three
    unsigned jobs;      // JITCACHE_JOBS
    uint64_t compile_bytes;      // JITCACHE_COMPILE_BYTES
    uint64_t compile_timeout_ns; // JITCACHE_COMPILE_TIMEOUT
    enum jc_policy policy; // JITCACHE_POLICY; JC_POLICY_DEFAULT: not set
    enum jc_seal seal;     // JITCACHE_SEAL; JC_SEAL_DEFAULT: not set
    unsigned sample;       // JITCACHE_SAMPLE; 0: not set
    bool sync;             // JITCACHE_SYNC
    bool nvtx, no_nvtx;    // JITCACHE_NVTX is 1, or 0
    bool has_log;       // JITCACHE_LOG is set
    enum jc_log_level log;
    bool secure; // the program runs set-user-ID or set-group-ID: nothing was read
};

// JC_ERROR_INVALID_ARGUMENT: a value that does not parse; the text names the variable and what it
// takes.
enum jc_result jc_environment_read(struct jc_environment *environment, struct jc_error *error);

#endif
