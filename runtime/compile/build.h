// The build of an NVRTC: which very files it is, whatever they are called and wherever they lie.

#ifndef JC_BUILD_H
#define JC_BUILD_H

// "<build of the library>+<build of its builtins>", each from the linker's build id or, where a
// file has none, from its bytes. Opens neither as a library, so this is safe in any process.
// Allocated. NULL, with errno: a file cannot be read, or out of memory.
char *jc_build_read(const char *library, const char *builtins);

#endif
