#include "params.h"

#include <assert.h>
#include <string.h>

#include "report.h"

// Larger than any of them will be: what is more is no size.
#define MOST_BYTES 4096

enum jc_result jc_params_copy(void *params, size_t size, const void *given, const char *name,
                              struct jc_error *error)
{
    size_t given_size = size;
    memset(params, 0, size);
    if (!given)
        return JC_OK;
    memcpy(&given_size, given, sizeof(given_size));
    if (given_size == 0)
        given_size = size;
    if (given_size < sizeof(given_size) || given_size > MOST_BYTES)
        return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                       "%s.size is %zu; set it to sizeof(struct %s), or to 0", name, given_size,
                       name);
    const unsigned char *bytes = given;
    for (size_t i = size; i < given_size; i++)
        if (bytes[i])
            return jc_fail(error, JC_ERROR_INVALID_ARGUMENT,
                           "%s has a field that this version of the library, %s, does not know; "
                           "install the version whose headers the program was built with", name,
                           JC_VERSION);
    memcpy(params, given, given_size < size ? given_size : size);
    return JC_OK;
}
