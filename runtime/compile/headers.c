#include "headers.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// Reads "#define CUDA_VERSION 13000" or its like. False: the file is not there or has none.
static bool read_version(const char *folder, const char *file, const char *macro, int *version)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", folder, file) >= (int) sizeof(path))
        return false;
    FILE *stream = fopen(path, "re");
    if (!stream)
        return false;
    char line[512], name[64];
    bool found = false;
    while (!found && fgets(line, sizeof(line), stream))
        found = sscanf(line, " # define %63s %d", name, version) == 2 && strcmp(name, macro) == 0;
    fclose(stream);
    return found;
}

bool jc_headers_version(const char *folder, int *major, int *minor)
{
    int version;
    if (!read_version(folder, "cuda.h", "CUDA_VERSION", &version)
        && !read_version(folder, "cuda_runtime_api.h", "CUDART_VERSION", &version))
        return false;
    *major = version / 1000;
    *minor = version % 1000 / 10;
    return true;
}

static bool is_folder(const char *base, const char *relative)
{
    char path[PATH_MAX];
    struct stat status;
    return snprintf(path, sizeof(path), "%s/%s", base, relative) < (int) sizeof(path)
        && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

// CCCL lies in the include folder itself (CUDA 12), in one of its own below it (CUDA 13), or in the
// wheel of its own (CUDA 12 wheels).
size_t jc_headers_roots(const char *folder, const char **roots, size_t max)
{
    static const char *const apart[] = {"cccl", "../../cuda_cccl/include"};
    size_t count = 0;
    if (count < max)
        roots[count++] = ".";
    for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]) && count < max; i++) {
        if (is_folder(folder, apart[i]))
            roots[count++] = apart[i];
    }
    return count;
}
