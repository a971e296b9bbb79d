// Results, error texts and log lines: how the library answers and what it says.
//
// Every function that can fail returns an enum jc_result, zero for success. Most of them also take
// a struct jc_error, which receives one message: what happened, to what, and what to do next. The
// library never prints, never exits, installs no signal handler and leaves errno as it was.
//
// A struct of parameters begins with its size, which its macro fills in, and zero is the default of
// every other field. It is copied, so it need only live until the call returns. A program and a
// library of different versions understand each other by the size: fields that the older one does
// not have are zero, and one that is set and not known is an error (JC_ERROR_INVALID_ARGUMENT). A
// size of 0 stands for that of the library's own version, and is for programs that are never run
// with another one. Structs that the library fills in, and elements of arrays, have no size: they
// change only with the library's soname.

#ifndef JITCACHE_RESULT_H
#define JITCACHE_RESULT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define JC_API __attribute__((visibility("default")))
#define JC_FORMAT(format_index, first_argument) \
    __attribute__((format(printf, format_index, first_argument)))
#else
#define JC_API
#define JC_FORMAT(format_index, first_argument)
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The numbers are part of the ABI: new ones are added at the end.
enum jc_result {
    JC_OK = 0,
    JC_ERROR_INVALID_ARGUMENT = 1, // The call itself is wrong: NULL, a name that is not known, ...
    JC_ERROR_OUT_OF_MEMORY = 2,
    JC_ERROR_IO = 3,          // A file or folder could not be read or written.
    JC_ERROR_NOT_FOUND = 4,   // What was asked for is not there. From a cache: a miss.
    JC_ERROR_TEMPLATE = 5,    // A template or description is malformed; the text has file and line.
    JC_ERROR_EXPRESSION = 6,  // An expression divides by zero, overflows or does not fit its type.
    JC_ERROR_LIMIT = 7,       // Beyond what the library or device takes; the text names the limit.
    JC_ERROR_TOOLCHAIN = 8,   // NVRTC or its headers are missing, unusable or too old.
    JC_ERROR_COMPILE = 9,     // The compiler refused the source; its log is in the text.
    JC_ERROR_WORKER = 10,     // The compile worker is missing, of another version, crashed or hung.
    JC_ERROR_CACHE = 11,      // The cache folder is unusable as asked; the text says why.
    JC_ERROR_CORRUPT = 12,    // Data failed its check; it is not used.
    JC_ERROR_TIMEOUT = 13,    // A bounded wait ran out.
    JC_ERROR_UNSUPPORTED = 14, // Valid, but not something this version or this toolchain can do.
    JC_ERROR_DRIVER = 15,      // The CUDA driver is missing or too old, or refuses a call.
    JC_ERROR_DEVICE_MEMORY = 16, // The GPU has no memory left for what was to be loaded.
    JC_ERROR_NOT_READY = 17,     // Not now: a variant is not loaded, and this call may not make it;
                                 // or a stream is not idle, ...: the text says what comes first.
    JC_ERROR_PEER = 18,    // Another rank of the group died, has left, or cannot be reached.
    JC_ERROR_MISMATCH = 19 // Ranks of a group differ in what has to be the same.
};

// A short English name for a result, such as "out of memory". Never NULL; the string is static.
// Threads: safe.
JC_API const char *jc_result_string(enum jc_result result);

// The text that belongs to one failed call. The caller owns the struct and may pass NULL instead.
// On success it is left as it was. A text that would not fit ends in "...".
#define JC_ERROR_TEXT_SIZE 4096
struct jc_error {
    char text[JC_ERROR_TEXT_SIZE];
};

enum jc_log_level {
    JC_LOG_NONE = 0, // as a threshold: nothing is logged
    JC_LOG_ERROR = 1,
    JC_LOG_WARNING = 2,
    JC_LOG_INFO = 3,
    JC_LOG_DEBUG = 4
};

// Where log lines go. A zeroed struct, or a NULL pointer to one, means nowhere.
// Some lines come from threads of the library's own, see context.h. jc_kernel_destroy and
// jc_context_destroy wait for these, and may log what was left: so the function may take no lock
// that is held while one of the two is called.
// The function may be called from any thread that is inside the library, never from two places for
// one event. `line` has no newline at its end, but may have some within: what is to be pasted, such
// as a line of a manifest, or a compiler's log stands on lines of its own. It lives until the
// function returns, which may not call the library: locks are held meanwhile.
struct jc_log {
    void (*write)(void *user, enum jc_log_level level, const char *line);
    void *user;
    enum jc_log_level level; // lines above this level are not made
};

#ifdef __cplusplus
}
#endif

#endif
