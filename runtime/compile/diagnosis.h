// What a compiler's log means to the person who reads it.

#ifndef JC_DIAGNOSIS_H
#define JC_DIAGNOSIS_H

#include "buffer.h"
#include "runtime/template/template.h"
#include "toolchain.h"

// Appends what is to be done, where more is known than the compiler says, then the log without what
// follows from that and without the lines of the compile unit that nobody has written.
void jc_diagnosis_print(const struct jc_template *tmpl, const struct jc_toolchain *toolchain,
                        const char *log, struct jc_buffer *out);

#endif
