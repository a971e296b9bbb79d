// The toolchain: which NVRTC compiles, for what, and with which headers. The worker finds it, the
// library reads it; it decides keys, so everything in it that matters to machine code is here.

#ifndef JC_TOOLCHAIN_H
#define JC_TOOLCHAIN_H

#include <jitcache/cache.h>
#include <jitcache/context.h>

#include "buffer.h"

// The folders of the toolkit's headers: its include folder and, where CCCL lies apart, CCCL's.
#define JC_MAX_ROOTS 2

struct jc_toolchain {
    char *nvrtc; // the file
    int major, minor;
    char *opened;   // the path that it was found by, which may be a link
    char *builtins; // their file
    char *build;
    int *archs; // numbers, such as 90, ascending
    size_t num_archs;
    char *include; // the toolkit's include folder, absolute; "" if none was found
    // Relative to `include`, "." first: the compiler is given these, and runs in `include`, so that
    // no header knows where the toolkit is installed.
    char *roots[JC_MAX_ROOTS];
    size_t num_roots;
    int include_major, include_minor; // the version of the headers
    char *append_flags; // NVRTC_APPEND_FLAGS as the worker sees it, or ""
    bool random_seed;   // --frandom-seed is known
    bool resource_usage; // --ptxas-options=-v is known
    bool pch; // --pch is known; decides no machine code
    char *tried; // where NVRTC and the headers were looked for, a line each
    struct jc_key identity; // of what jc_toolchain_same compares; jc_toolchain_decode makes it
};

void jc_toolchain_finish(struct jc_toolchain *toolchain);

void jc_toolchain_encode(const struct jc_toolchain *toolchain, struct jc_buffer *content);
// JC_ERROR_CORRUPT, with an empty toolchain left.
enum jc_result jc_toolchain_decode(struct jc_reader *reader, struct jc_toolchain *toolchain);

// False: out of memory, with an empty toolchain left.
bool jc_toolchain_copy(const struct jc_toolchain *toolchain, struct jc_toolchain *copy);

// Whether keys formed for one hold for the other.
bool jc_toolchain_same(const struct jc_toolchain *a, const struct jc_toolchain *b);

// The architecture of number `number` that has the highest suffix: "sm_90a", "sm_89".
void jc_toolchain_exact_arch(int number, char arch[JC_ARCH_SIZE]);

// As jc_context_arch, `portable` being the template's wish.
enum jc_result jc_toolchain_arch(const struct jc_toolchain *toolchain, bool portable,
                                 const char *capability, char arch[JC_ARCH_SIZE],
                                 struct jc_error *error);

#endif
