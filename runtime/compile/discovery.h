// The search for a toolchain. Only the worker does this: it opens NVRTC.

#ifndef JC_DISCOVERY_H
#define JC_DISCOVERY_H

#include "nvrtc.h"
#include "toolchain.h"

// `file` names the library and `origin` says who named it ("JITCACHE_NVRTC"): then it is that one
// or an error. "" searches: the loader's own way, toolkit folders, Python environments.
// JC_ERROR_TOOLCHAIN: none; the text says where it was looked for and what to install.
enum jc_result jc_toolchain_find(const char *file, const char *origin, struct jc_nvrtc **nvrtc,
                                 struct jc_toolchain *toolchain, struct jc_error *error);

#endif
