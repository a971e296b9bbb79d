// The storm guard of a kernel: it counts the variants that calls ask for beyond what was planned,
// and, when they are too many, stops the argument that varies most.

#ifndef JC_STORM_H
#define JC_STORM_H

#include "runtime/compile/buffer.h"
#include "runtime/plan/specialization.h"

#define JC_DEFAULT_MAX_VARIANTS 16
#define JC_MOST_VARIANTS 256

// What was stopped: an argument's facets, or that calls choose a dispatched parameter freely.
struct jc_storm_stop {
    bool is_parameter;
    size_t index;
    size_t states;   // how many different ones it took
    size_t variants; // among how many that were asked for
};

// Guarded by its kernel's lock.
struct jc_storm {
    const struct jc_template *tmpl;
    size_t max;
    struct jc_storm_variant *first; // those asked for, as far as they differ in what is not stopped
    size_t num_facets, num_parameters; // different sets of them
    bool *is_stopped; // of each argument
    struct jc_storm_stop *stops; // in the order in which they came
    size_t num_stops, num_told; // the first of them were logged
    struct jc_arena arena;
};

// `max`: 0 for the default. JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_storm_init(struct jc_storm *storm, const struct jc_template *tmpl, size_t max,
                             struct jc_error *error);
// Accepts one that is all zero.
void jc_storm_finish(struct jc_storm *storm);

// Leaves out of a specialization the facets of arguments that are stopped.
void jc_storm_narrow(const struct jc_storm *storm, struct jc_facet *facets);

enum jc_storm_answer {
    JC_STORM_NEW,   // to be made
    JC_STORM_KNOWN, // was asked for before: it is being made
    JC_STORM_FULL   // not to be made: parameters alone make too many, it was given up, or there is
                    // no memory
};

// Asks for one that a call wants and that is not loaded, narrowed before. If it is one too many,
// arguments are stopped until it is not, and `facets`, those of `wanted`, are narrowed again: then
// it may be loaded, or known, which the answer says for what was left of it.
enum jc_storm_answer jc_storm_ask(struct jc_storm *storm, const struct jc_specialization *wanted,
                                  struct jc_facet *facets);

// One that was asked for could not be made: it is not to be asked for again.
void jc_storm_give_up(struct jc_storm *storm, const struct jc_specialization *wanted);

// Takes back that one was asked for: it will be new again.
void jc_storm_unask(struct jc_storm *storm, const struct jc_specialization *wanted);

// What a template is to say of an argument for it to be specialized no more, in place of the item
// that has it: in YAML, or in C where it came as a struct; and the file in which that item stands,
// as it was named. The latter is empty where nobody named one.
void jc_storm_put_item(const struct jc_template *tmpl, size_t argument, struct jc_buffer *item);
void jc_storm_put_file(const struct jc_template *tmpl, struct jc_buffer *file);

// One warning, with the line of the template to write.
void jc_storm_tell(const struct jc_template *tmpl, const struct jc_storm_stop *stop,
                   const struct jc_log *log);

#endif
