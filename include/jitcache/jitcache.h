// jitcache: compile, cache and launch kernels for programs that generate them.
//
// The headers, in reading order:
//   result.h    results, error texts, log lines
//   template.h  CUDA C++ text with a declared signature
//   plan.h      which variants a range of arguments can reach
//   lint.h      what is wrong with a template though it compiles
//   cache.h     what is kept on disk
//   policy.h    what a call does whose variant is not loaded; the seal
//   event.h     what a context does, told as it happens
//   context.h   cache, toolchain and compile worker together; prewarm
//   device.h    the CUDA driver and its GPUs
//   kernel.h    what a program holds and launches
//   safe_point.h  when variants made in the background are loaded, and begin to serve
//   group.h     ranks that serve one model together: barrier and common steps
//   stats.h     what was launched, compiled, loaded and waited for
//
// Every struct jc_..._params has zero as the default of each field. In C a macro of the same name
// makes one in place, jc_template_params(.file = "k.cu"); C++ has no such literal: there, zero the
// struct, fill in what is needed, and pass its address. There, too, `struct jc_kernel_info` and
// `struct jc_kernel_variant` keep the word `struct`: functions have the same names.

#ifndef JITCACHE_JITCACHE_H
#define JITCACHE_JITCACHE_H

#include <jitcache/cache.h>
#include <jitcache/context.h>
#include <jitcache/device.h>
#include <jitcache/event.h>
#include <jitcache/group.h>
#include <jitcache/kernel.h>
#include <jitcache/lint.h>
#include <jitcache/plan.h>
#include <jitcache/policy.h>
#include <jitcache/result.h>
#include <jitcache/safe_point.h>
#include <jitcache/stats.h>
#include <jitcache/template.h>

#ifdef __cplusplus
extern "C" {
#endif

// The library's version, such as "0.1.0". Threads: safe.
JC_API const char *jc_version(void);

#ifdef __cplusplus
}
#endif

#endif
