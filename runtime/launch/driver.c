#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/report.h"

#define OLDEST_VERSION 12000
#define OLDEST_DRIVER "CUDA 12.0 or newer is needed, which the driver has from 525 on"

// --- the driver's words --------------------------------------------------------------------------

bool jc_driver_is_fault(int cu_result)
{
    switch (cu_result) {
    case JC_CU_ILLEGAL_ADDRESS:
    case JC_CU_LAUNCH_TIMEOUT:
    case JC_CU_ASSERT:
    case JC_CU_HARDWARE_STACK_ERROR:
    case JC_CU_ILLEGAL_INSTRUCTION:
    case JC_CU_MISALIGNED_ADDRESS:
    case JC_CU_INVALID_ADDRESS_SPACE:
    case JC_CU_INVALID_PC:
    case JC_CU_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

// What is known to help. The rest is the driver's to explain.
static const char *advice_for(int cu_result)
{
    if (jc_driver_is_fault(cu_result))
        return "a kernel failed that ran before, of whomever, and the process has to be started"
               " again: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1, tells which";
    switch (cu_result) {
    case JC_CU_OUT_OF_MEMORY:
        return "leave the GPU some memory: nvidia-smi tells which processes hold it";
    case JC_CU_NOT_INITIALIZED:
        return "CUDA works in no process that was forked from one that uses it: start this one with"
               " exec, or Python's multiprocessing with 'spawn'";
    case JC_CU_DEINITIALIZED:
        return "this process is ending: destroy what uses CUDA before that";
    case JC_CU_STUB_LIBRARY:
        return "it comes with the toolkit, to link with: take its folder out of LD_LIBRARY_PATH,"
               " and install the NVIDIA driver";
    case JC_CU_DEVICE_UNAVAILABLE:
        return "another process has the GPU for itself: end it, or let nvidia-smi -c 0 share it";
    case JC_CU_SYSTEM_NOT_READY:
        return "machines with NVSwitch need the service nvidia-fabricmanager, of the driver's very"
               " version: start it";
    case JC_CU_SYSTEM_DRIVER_MISMATCH:
        return "this library and the kernel module are of different versions: restart the machine"
               " after a driver update, and in a container use the host's library";
    case JC_CU_COMPAT_NOT_SUPPORTED:
        return "the cuda-compat package does not work with this GPU: take its folder out of"
               " LD_LIBRARY_PATH, and update the NVIDIA driver instead";
    case JC_CU_ECC_UNCORRECTABLE:
    case JC_CU_NVLINK_UNCORRECTABLE:
        return "the hardware failed: nvidia-smi -q tells more; start the process again, on another"
               " GPU if it stays so";
    case JC_CU_CAPTURE_IMPLICIT:
        return "the legacy default stream cannot be used while another stream of the context is"
               " captured: pass a stream of your own";
    case JC_CU_CAPTURE_INVALIDATED:
        return "the stream's capture was spoiled by an earlier call: end it and capture again";
    default:
        return NULL;
    }
}

void jc_driver_explain(const struct jc_driver *driver, int cu_result, const char **name,
                       const char **text)
{
    *name = *text = NULL;
    if (driver->cuGetErrorName(cu_result, name) != JC_CU_SUCCESS || !*name)
        *name = "an error that it has no name for";
    if (driver->cuGetErrorString(cu_result, text) != JC_CU_SUCCESS || !*text)
        *text = "not explained";
}

enum jc_result jc_driver_fail(const struct jc_driver *driver, int cu_result, struct jc_error *error,
                              const char *format, ...)
{
    char doing[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(doing, sizeof(doing), format, args);
    va_end(args);

    const char *name, *text;
    jc_driver_explain(driver, cu_result, &name, &text);
    const char *advice = advice_for(cu_result);
    return jc_fail(error,
                   cu_result == JC_CU_OUT_OF_MEMORY ? JC_ERROR_DEVICE_MEMORY : JC_ERROR_DRIVER,
                   "%s: %s (%d), %s%s%s", doing, name, cu_result, text, advice ? "; " : "",
                   advice ? advice : "");
}

// --- opening -------------------------------------------------------------------------------------

static enum jc_result open_library(struct jc_driver *driver, struct jc_error *error)
{
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver->library)
        return JC_OK;
    driver->absent = true;
    return jc_fail(error, JC_ERROR_DRIVER,
                   "no CUDA driver: %s; install the NVIDIA driver, or start the container with its"
                   " GPUs, or put the folder of libcuda.so.1 into LD_LIBRARY_PATH", dlerror());
}

static enum jc_result bind_symbols(struct jc_driver *driver, struct jc_error *error)
{
    const struct {
        const char *name;
        void *function; // POSIX makes dlsym's pointer good for functions; see memcpy below
        bool optional;
    } symbols[] = {
#define REQUIRED(name, symbol, parameters) {symbol, &driver->name, false},
#define OPTIONAL(name, symbol, parameters) {symbol, &driver->name, true},
        JC_DRIVER_CALLS(REQUIRED)
        JC_DRIVER_OPTIONAL_CALLS(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
    };
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(driver->library, symbols[i].name);
        if (!symbol && !symbols[i].optional)
            return jc_fail(error, JC_ERROR_DRIVER,
                           "%s is no CUDA driver, or too old a one: it has no %s. " OLDEST_DRIVER,
                           driver->file, symbols[i].name);
        memcpy(symbols[i].function, &symbol, sizeof(symbol));
    }
    return JC_OK;
}

// The name under which the loader found the library.
static char *library_file(void *library)
{
    void *symbol = dlsym(library, "cuInit");
    Dl_info info;
    bool known = symbol && dladdr(symbol, &info) && info.dli_fname;
    return strdup(known ? info.dli_fname : "libcuda.so.1");
}

static enum jc_result no_device(struct jc_driver *driver, struct jc_error *error)
{
    driver->absent = true;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible)
        return jc_fail(error, JC_ERROR_DRIVER,
                       "the CUDA driver, %s, shows no GPU: CUDA_VISIBLE_DEVICES is '%s'; unset it,"
                       " or name one that nvidia-smi -L lists", driver->file, visible);
    return jc_fail(error, JC_ERROR_DRIVER,
                   "the CUDA driver, %s, finds no GPU; nvidia-smi -L lists those of this machine,"
                   " and a container has to be started with them", driver->file);
}

static enum jc_result initialize(struct jc_driver *driver, struct jc_error *error)
{
    int status = driver->cuInit(0);
    if (status == JC_CU_NO_DEVICE)
        return no_device(driver, error);
    if (status != JC_CU_SUCCESS) {
        jc_driver_fail(driver, status, error, "initializing the CUDA driver, %s", driver->file);
        return JC_ERROR_DRIVER;
    }
    status = driver->cuDriverGetVersion(&driver->version);
    if (status == JC_CU_SUCCESS && driver->version < OLDEST_VERSION)
        return jc_fail(error, JC_ERROR_DRIVER,
                       "the CUDA driver, %s, works with CUDA %d.%d at most. " OLDEST_DRIVER,
                       driver->file, driver->version / 1000, driver->version % 1000 / 10);
    if (status == JC_CU_SUCCESS)
        status = driver->cuDeviceGetCount(&driver->num_devices);
    if (status != JC_CU_SUCCESS)
        return jc_driver_fail(driver, status, error, "asking the CUDA driver, %s, for its GPUs",
                              driver->file);
    return driver->num_devices > 0 ? JC_OK : no_device(driver, error);
}

enum jc_result jc_driver_init(struct jc_driver *driver, struct jc_error *error)
{
    *driver = (struct jc_driver){0};
    enum jc_result result = open_library(driver, error);
    if (result != JC_OK)
        return result;
    driver->file = library_file(driver->library);
    if (!driver->file)
        result = jc_fail_memory(error);
    if (result == JC_OK)
        result = bind_symbols(driver, error);
    // Nothing of it has run until here, so it can be closed, and another one found later.
    if (result != JC_OK)
        dlclose(driver->library);
    else
        result = initialize(driver, error);
    if (result == JC_OK) {
        driver->process = getpid();
    } else {
        bool absent = driver->absent;
        jc_driver_finish(driver);
        driver->absent = absent;
    }
    return result;
}

void jc_driver_finish(struct jc_driver *driver)
{
    free(driver->file);
    *driver = (struct jc_driver){0};
}

enum jc_result jc_driver_check_process(const struct jc_driver *driver, struct jc_error *error)
{
    if (driver->process == getpid())
        return JC_OK;
    return jc_fail(error, JC_ERROR_DRIVER,
                   "this process was forked from one that uses CUDA, process %d, and cannot use it;"
                   " %s", (int) driver->process, advice_for(JC_CU_NOT_INITIALIZED));
}
