#include "watch.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/report.h"
#include "range.h"
#include "runtime/context.h"
#include "value.h"

bool jc_watch_wanted(const struct jc_kernel *kernel)
{
    const struct jc_context *context = kernel->device->context;
    return context->sample > 0 || context->sync || context->nvtx;
}

// --- samples -------------------------------------------------------------------------------------

// The first bucket whose bound it keeps, or the last one.
static size_t bucket_of(uint64_t elapsed_ns)
{
    size_t low = 0, high = JC_STATS_SAMPLES - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (elapsed_ns <= jc_stats_sample_bound(middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int launch(struct jc_kernel *kernel, const struct jc_watched *watched)
{
    return kernel->device->driver->cuLaunchKernelEx(
        watched->config, watched->variant->shape.function,
        (void **) (uintptr_t) watched->arguments, NULL);
}

// Times what the driver takes, if it is this launch's turn among those of its thread.
static int launch_and_sample(struct jc_kernel *kernel, const struct jc_watched *watched)
{
    unsigned sample = kernel->device->context->sample;
    if (sample == 0 || jc_tally_of_slot(kernel->tally) % sample != 0)
        return launch(kernel, watched);
    uint64_t start_ns = jc_now_ns();
    int status = launch(kernel, watched);
    uint64_t elapsed_ns = jc_now_ns() - start_ns;
    if (status == JC_CU_SUCCESS)
        atomic_fetch_add_explicit(&kernel->samples[bucket_of(elapsed_ns)], 1,
                                  memory_order_relaxed);
    return status;
}

void jc_watch_collect(const struct jc_kernel *kernel, uint64_t samples[JC_STATS_SAMPLES])
{
    for (size_t i = 0; i < JC_STATS_SAMPLES; i++)
        samples[i] += atomic_load_explicit(&kernel->samples[i], memory_order_relaxed);
}

// --- names for a profiler ------------------------------------------------------------------------

static void begin_range(const struct jc_kernel *kernel, const struct jc_watched *watched)
{
    const struct jc_kernel_variant *info = &watched->variant->info;
    char key[JC_KEY_STRING_SIZE], line[JC_RANGE_LINE_SIZE];
    jc_key_format(&info->key, key);
    jc_range_line(info->specialization, line);
    jc_range_begin("%s %.8s%s%s%s", kernel->tmpl->name, key, line,
                   info->generic ? " generic" : "", watched->stands_in ? " stands in" : "");
}

// --- waiting for the GPU -------------------------------------------------------------------------

// Whether a wait would spoil a capture, or it cannot be told.
static bool may_capture(const struct jc_device *device, CUstream stream)
{
    int state = JC_CU_CAPTURE_NONE;
    return device->driver->cuStreamIsCapturing(stream, &state) != JC_CU_SUCCESS ||
           state != JC_CU_CAPTURE_NONE;
}

// The driver takes a wait for unsafe while another stream is captured, but for a thread in relaxed
// mode.
static int wait_for(const struct jc_device *device, CUstream stream)
{
    const struct jc_driver *driver = device->driver;
    int mode = JC_CU_CAPTURE_RELAXED;
    int status = driver->cuThreadExchangeStreamCaptureMode(&mode);
    if (status != JC_CU_SUCCESS)
        return status;
    status = driver->cuStreamSynchronize(stream);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    return status;
}

static enum jc_result tell_earlier(const struct jc_kernel *kernel, int status,
                                   struct jc_error *error)
{
    jc_driver_fail(kernel->device->driver, status, error,
                   "%s was not launched: an earlier launch failed, and all fail since then. The"
                   " first failure tells which one it was, unless that was captured, or not made by"
                   " jc_kernel_launch. Launching", kernel->tmpl->name);
    return JC_ERROR_DRIVER;
}

static void print_indented(struct jc_buffer *text, const char *lines)
{
    for (const char *end; *lines; lines = end + 1) {
        end = strchr(lines, '\n');
        jc_buffer_print(text, "\n  %.*s", (int) (end - lines), lines);
    }
}

static void print_arguments(struct jc_buffer *text, const struct jc_kernel *kernel,
                            const struct jc_watched *watched)
{
    for (size_t i = 0; i < kernel->tmpl->num_arguments; i++) {
        const struct jc_argument *argument = &kernel->tmpl->arguments[i];
        jc_buffer_print(text, "\n  %s %s = ", argument->type_name, argument->name);
        jc_value_print(text, argument, watched->arguments[i]);
    }
}

static void print_launch(struct jc_buffer *text, const struct jc_kernel *kernel,
                         const struct jc_watched *watched)
{
    const struct jc_cu_launch_config *config = watched->config;
    const struct jc_kernel_variant *info = &watched->variant->info;
    char key[JC_KEY_STRING_SIZE];
    jc_key_format(&info->key, key);
    jc_buffer_print(text, "\n  variant %s%s%s", key, info->generic ? ", generic" : "",
                    watched->stands_in ? ", stands in for the call's own" : "");
    print_indented(text, info->specialization);
    jc_buffer_print(text, "\n  grid %u %u %u, block %u %u %u, shared %u, stream 0x%" PRIxPTR,
                    config->grid[0], config->grid[1], config->grid[2], config->block[0],
                    config->block[1], config->block[2], config->shared,
                    (uintptr_t) config->stream);
    print_arguments(text, kernel, watched);
}

static enum jc_result tell_fault(const struct jc_kernel *kernel, const struct jc_watched *watched,
                                 int status, struct jc_error *error)
{
    struct jc_buffer text = {0};
    const char *name, *words;
    jc_driver_explain(kernel->device->driver, status, &name, &words);
    print_launch(&text, kernel, watched);
    jc_fail(error, JC_ERROR_DRIVER,
            "%s failed on device %d: %s (%d), %s. It is this launch, which was waited for, or one"
            " that ran beside it in another stream. The process has to be started again;"
            " compute-sanitizer tells the address and, with -lineinfo among the template's options,"
            " the line%s", kernel->tmpl->name, kernel->device->info.ordinal, name, status, words,
            text.failed ? "" : text.data);
    jc_buffer_finish(&text);
    return JC_ERROR_DRIVER;
}

// --- all together --------------------------------------------------------------------------------

static enum jc_result launch_and_count(struct jc_kernel *kernel, const struct jc_watched *watched,
                                       struct jc_error *error)
{
    const struct jc_context *context = kernel->device->context;
    if (context->nvtx)
        begin_range(kernel, watched);
    int status = launch_and_sample(kernel, watched);
    if (context->nvtx)
        jc_range_end();
    if (context->sync && jc_driver_is_fault(status))
        return tell_earlier(kernel, status, error);
    if (status != JC_CU_SUCCESS)
        return jc_device_launch_fail(kernel->device, kernel->tmpl->name, status, error);
    jc_tally_count(kernel->tally, watched->stands_in);
    return JC_OK;
}

// A fault shows in whatever call of the driver comes next. So what ran before is waited for too.
static enum jc_result launch_and_wait(struct jc_kernel *kernel, const struct jc_watched *watched,
                                      struct jc_error *error)
{
    CUstream stream = watched->config->stream;
    if (may_capture(kernel->device, stream))
        return launch_and_count(kernel, watched, error);
    int status = wait_for(kernel->device, stream);
    if (jc_driver_is_fault(status))
        return tell_earlier(kernel, status, error);
    enum jc_result result = launch_and_count(kernel, watched, error);
    if (result != JC_OK)
        return result;
    status = wait_for(kernel->device, stream);
    return status == JC_CU_SUCCESS ? JC_OK : tell_fault(kernel, watched, status, error);
}

enum jc_result jc_watch_launch(struct jc_kernel *kernel, const struct jc_watched *watched,
                               struct jc_error *error)
{
    int saved = errno;
    enum jc_result result = kernel->device->context->sync
        ? launch_and_wait(kernel, watched, error) : launch_and_count(kernel, watched, error);
    errno = saved;
    return result;
}
