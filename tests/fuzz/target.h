// What a fuzz target gives to driver.c, and to libFuzzer.

#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// What is written into inputs to change them: pieces of the target's language. NULL ends it.
extern const char *const fuzz_words[];

#endif
