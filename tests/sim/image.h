// A cubin, taken apart as far as the driver's answers need it.

#ifndef SIM_IMAGE_H
#define SIM_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

struct image_parameter {
    unsigned offset, size;
};

struct image_function {
    char *name;
    unsigned registers;     // of a thread
    unsigned local;         // bytes of a thread
    unsigned static_shared; // bytes of a block, without what the system keeps for itself
    unsigned max_threads;   // of a block by its launch bounds; 0: it says nothing
    unsigned cluster[3];    // that it was compiled for; 0, 0, 0: none
    struct image_parameter *parameters;
    unsigned num_parameters;
};

struct image {
    unsigned major, minor;
    bool only_this; // "sm_90a": it runs on no later device
    unsigned toolkit; // the newest that a kernel was compiled with: 130 for CUDA 13.0; 0: unknown
    size_t size;
    struct image_function *functions;
    unsigned num_functions;
};

// False: it is no linked cubin, damaged, or memory ran out. Like the driver, it is not told how
// long the data is, so a file that ends too early is read past its end.
bool image_init(struct image *image, const void *data);
void image_finish(struct image *image);

#endif
