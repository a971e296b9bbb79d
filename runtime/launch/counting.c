#include "counting.h"

#include "cache/report.h"
#include "device.h"
#include "runtime/context.h"
#include "watch.h"

bool jc_kernel_is_sealed(const struct jc_kernel *kernel)
{
    // The other side is jc_context_seal.
    return atomic_load_explicit(&kernel->device->context->seal, memory_order_acquire) !=
           JC_SEAL_OPEN;
}

// --- adding up -----------------------------------------------------------------------------------

void jc_kernel_count_locked(struct jc_kernel *kernel, const struct jc_counts *counts)
{
    struct jc_context *context = kernel->device->context;
    jc_counts_add(&kernel->counts, counts);
    if (!jc_kernel_is_sealed(kernel))
        return;
    jc_counts_add(&kernel->sealed_counts, counts);
    atomic_fetch_add_explicit(&context->sealed_compiles, counts->compiles, memory_order_relaxed);
    atomic_fetch_add_explicit(&context->sealed_loads, counts->loads, memory_order_relaxed);
}

void jc_kernel_count(struct jc_kernel *kernel, const struct jc_counts *counts)
{
    pthread_mutex_lock(&kernel->lock);
    jc_kernel_count_locked(kernel, counts);
    pthread_mutex_unlock(&kernel->lock);
}

void jc_kernel_count_effort(struct jc_kernel *kernel, const struct jc_obtained *obtained,
                            const char *specialization)
{
    struct jc_counts counts = {0};
    jc_obtained_count(obtained, &counts);
    jc_kernel_count(kernel, &counts);
    if (obtained->compiled)
        jc_kernel_tell(kernel, &(struct jc_event){
            .kind = JC_EVENT_COMPILE, .specialization = specialization,
            .elapsed_ns = obtained->effort.compile_ns, .waited_ns = obtained->effort.queue_ns});
}

void jc_kernel_count_failure(struct jc_kernel *kernel, enum jc_result result,
                             const struct jc_effort *effort, const char *specialization,
                             const struct jc_error *error)
{
    const struct jc_obtained nothing = {.effort = effort ? *effort : (struct jc_effort){0}};
    struct jc_counts counts = {.failures = 1, .out_of_memory = result == JC_ERROR_DEVICE_MEMORY};
    char line[JC_REPORT_LINE_SIZE];
    jc_obtained_count(&nothing, &counts);
    jc_kernel_count(kernel, &counts);
    jc_report_line(error->text, line);
    jc_kernel_tell(kernel, &(struct jc_event){
        .kind = JC_EVENT_FAILURE, .specialization = specialization, .text = line,
        .elapsed_ns = nothing.effort.compile_ns, .waited_ns = nothing.effort.queue_ns});
}

void jc_kernel_tell(const struct jc_kernel *kernel, const struct jc_event *event)
{
    struct jc_event told = *event;
    told.kernel = kernel->tmpl->name;
    told.device = kernel->device->info.ordinal;
    told.specialization = told.specialization ? told.specialization : "";
    told.text = told.text ? told.text : "";
    jc_run_tell(kernel->device->context->run, &told);
}

// --- launches after the seal ---------------------------------------------------------------------

void jc_kernel_follow_seal(struct jc_kernel *kernel)
{
    struct jc_sealed_launches *launches = &kernel->sealed_launches;
    uint64_t served[2];
    jc_tally_sum(kernel->member.cell, served);
    pthread_mutex_lock(&kernel->lock);
    // As it is now: of two who change it at once the last one to come here may be the first.
    bool is_sealed = jc_kernel_is_sealed(kernel);
    for (size_t i = 0; i < 2; i++) {
        if (launches->is_sealed && !is_sealed)
            launches->served[i] += served[i] - launches->before[i];
        if (!launches->is_sealed)
            launches->before[i] = served[i];
    }
    launches->is_sealed = is_sealed;
    pthread_mutex_unlock(&kernel->lock);
}

// Adding up all threads takes a while, for which the lock is not held. No seal comes meanwhile: who
// collects and who follows it both have the run's mutex, but for a kernel that is being made, which
// has no launches.
static void count_launches(const struct jc_kernel *kernel,
                           const struct jc_sealed_launches *launches, struct jc_counts *total,
                           struct jc_counts *sealed)
{
    uint64_t served[2], after[2];
    jc_tally_sum(kernel->member.cell, served);
    for (size_t i = 0; i < 2; i++) {
        uint64_t now = launches->is_sealed ? served[i] - launches->before[i] : 0;
        after[i] = launches->served[i] + now;
    }
    total->launches += served[0] + served[1];
    total->generic_launches += served[1];
    sealed->launches += after[0] + after[1];
    sealed->generic_launches += after[1];
}

// --- giving the numbers --------------------------------------------------------------------------

static void count_free(const struct jc_kernel *kernel, bool sealed, struct jc_counts *counts)
{
    const struct jc_free_counts *free_counts = &kernel->free_counts[sealed];
    counts->misses += atomic_load_explicit(&free_counts->misses, memory_order_relaxed);
    counts->missed_launches +=
        atomic_load_explicit(&free_counts->missed_launches, memory_order_relaxed);
    counts->captured_generic +=
        atomic_load_explicit(&free_counts->captured_generic, memory_order_relaxed);
}

// Those with less aligned pointers, which struct jc_counts has by kind.
static uint64_t unaligned_misses(const struct jc_kernel *kernel)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < 2; i++)
        sum += atomic_load_explicit(&kernel->free_counts[i].unaligned_misses,
                                    memory_order_relaxed);
    return sum;
}

// What is counted right now. The kernel's lock is held.
static void read_counts(const struct jc_kernel *kernel, struct jc_counts *total,
                        struct jc_counts *sealed)
{
    *total = kernel->counts;
    *sealed = kernel->sealed_counts;
    count_free(kernel, true, sealed);
    count_free(kernel, false, total);
    count_free(kernel, true, total);
}

static void collect_counts(struct jc_kernel *kernel, struct jc_sheet_kernel *row)
{
    struct jc_counts total, sealed;
    pthread_mutex_lock(&kernel->lock);
    read_counts(kernel, &total, &sealed);
    const struct jc_sealed_launches launches = kernel->sealed_launches;
    size_t variants = kernel->num_variants, stand_ins = kernel->table.num_stand_ins;
    pthread_mutex_unlock(&kernel->lock);
    count_launches(kernel, &launches, &total, &sealed);
    jc_counts_add(&row->total, &total);
    jc_counts_add(&row->sealed, &sealed);
    row->kernels++;
    row->variants += variants;
    row->stand_ins += stand_ins;
}

// A launch that misses wants the lock too: it is held for one argument at a time.
static void collect_census(struct jc_kernel *kernel, struct jc_sheet *sheet,
                           struct jc_sheet_kernel *row)
{
    struct jc_finding finding;
    pthread_mutex_lock(&kernel->lock);
    bool asked = jc_census_read(kernel->census, row);
    pthread_mutex_unlock(&kernel->lock);
    for (size_t i = 0; asked && i < jc_census_size(kernel->census); i++) {
        pthread_mutex_lock(&kernel->lock);
        bool found = jc_census_find(kernel->census, &kernel->storm, i, &finding);
        pthread_mutex_unlock(&kernel->lock);
        if (found)
            jc_finding_write(kernel->census, &finding, sheet, row);
    }
}

void jc_kernel_collect(struct jc_kernel *kernel, struct jc_sheet *sheet)
{
    struct jc_sheet_kernel *row =
        jc_sheet_kernel(sheet, kernel->tmpl->name, kernel->device->info.ordinal);
    if (!row)
        return;
    collect_counts(kernel, row);
    collect_census(kernel, sheet, row);
    jc_watch_collect(kernel, row->samples);
}

void jc_kernel_info(struct jc_kernel *kernel, struct jc_kernel_info *info)
{
    struct jc_counts total, sealed;
    if (!info)
        return;
    *info = (struct jc_kernel_info){0};
    if (!kernel)
        return;
    pthread_mutex_lock(&kernel->lock);
    read_counts(kernel, &total, &sealed);
    info->variants = kernel->num_variants;
    info->stand_ins = kernel->table.num_stand_ins;
    info->sealed_misses = kernel->sealed_misses;
    pthread_mutex_unlock(&kernel->lock);
    info->arguments = kernel->scheme.num_passed;
    info->compiles = total.compiles;
    info->hits = total.disk_hits;
    info->loads = total.loads;
    info->failures = total.failures;
    info->out_of_memory = total.out_of_memory;
    info->unaligned = total.unaligned;
    info->captured_generic = total.captured_generic;
    info->load_ns = total.load_ns;
    info->misses = total.misses + unaligned_misses(kernel);
    info->queued = total.queued;
    info->upgraded = total.upgraded;
    info->storms = total.storms;
    info->sealed_compiles = sealed.compiles;
    info->sealed_loads = sealed.loads;
}
