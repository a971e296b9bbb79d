// Stored: what the cache's records say of templates and their variants, read back.
//
// A template's record holds all that its compile reads but the toolkit's headers, so the template
// can be made again where its files are gone, and its keys come out as they would of its files; see
// runtime/compile/include.h. The text of a variant's record names its specialization. What is not
// in the record is the name of the file that a description beside the source had, and its lines:
// messages about such a template name its source alone.

#ifndef JC_STORED_H
#define JC_STORED_H

#include <jitcache/context.h>

#include "runtime/plan/specialization.h"

struct jc_stored_template {
    struct jc_template *tmpl; // destroyed by its owner
    char closure[JC_KEY_STRING_SIZE]; // the digest that its variants' texts have
};

// Makes the template again. JC_ERROR_CORRUPT: the record is not one of a template, or of a version
// that is not known. The errors of jc_template_create.
enum jc_result jc_stored_template_read(const struct jc_record *record,
                                       struct jc_stored_template *stored, struct jc_error *error);

struct jc_stored_variant {
    struct jc_specialization specialization; // of the template
    const char *text;                        // of it, canonical
    char arch[JC_ARCH_SIZE];
};

// Reads what a variant or a failed compile of the template is of. It lives in the arena.
// JC_ERROR_CORRUPT: it is none of this template's. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_stored_variant_read(struct jc_arena *arena,
                                      const struct jc_stored_template *stored,
                                      const struct jc_record *record,
                                      struct jc_stored_variant *variant, struct jc_error *error);

// What the record of the template will be called once that is followed with another toolchain:
// equal for two records of one template that come to one closure.
enum jc_result jc_stored_identity(const struct jc_record *record, const char *closure,
                                  struct jc_key *identity, struct jc_error *error);

#endif
