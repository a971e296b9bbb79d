// The command with statistics that are made up, so that what it shows can be looked at without an
// engine. JITCACHE_PRETEND names them:
//
//   serving   an hour of an engine with 30 kernels on two devices, three of them with storms
//   calm      the same without storms, and nothing after the seal
//   odd       names and texts that could be taken for markup or drive a terminal
//   dense     far more events than can be drawn one by one
//   none      nothing was counted
//   many      300 processes
//   wrong     times and counts that a damaged file may have
//   refused   an error

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/jitcache.h>

// What the linker makes of the calls.
enum jc_result __wrap_jc_stats_read(struct jc_context *context,
                                    const struct jc_stats_params *params, struct jc_stats **stats,
                                    struct jc_error *error);
void __wrap_jc_stats_destroy(struct jc_stats **stats);

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define START UINT64_C(1796029200000) // 2026-11-30 09:00 UTC
#define NUM_KERNELS 30
#define MAX_EVENTS 2048

struct pretended {
    struct jc_stats stats;
    struct jc_stats_kernel kernels[2 * NUM_KERNELS];
    struct jc_stats_process processes[300];
    struct jc_event events[MAX_EVENTS];
    int pids[MAX_EVENTS];
};

static uint64_t seed = 1;

// Below `limit`, the same in every run.
static uint64_t draw(uint64_t limit)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % limit;
}

static const char *const names[NUM_KERNELS] = {
    "silu_mul_fp8_quant", "fused_inv_rope_fp8_quant", "rms_norm", "rms_norm_residual",
    "rope_neox", "gather_rows", "scatter_rows", "topk_softmax", "moe_align", "moe_sum",
    "paged_attention", "kv_append", "kv_append_fp8", "sample_top_p", "argmax", "embed",
    "logit_softcap", "bias_gelu", "scale_rows", "transpose_tiles", "all_gather_pack",
    "all_gather_unpack", "mask_pad", "cumsum", "swiglu", "quant_int8", "dequant_int8",
    "layer_norm", "lora_shrink", "lora_expand",
};

// --- kernels -------------------------------------------------------------------------------------

static void add_samples(struct jc_stats_kernel *kernel, uint64_t count)
{
    // Most take 2 us, some ten times as long.
    static const uint64_t per_mille[] = {0, 0, 0, 0, 0, 1, 14, 120, 380, 310, 110, 40, 14, 6, 3, 2};
    for (size_t i = 0; i < sizeof(per_mille) / sizeof(per_mille[0]); i++)
        kernel->samples[i] = count * per_mille[i] / 1000;
    for (size_t i = 16; i < 24; i++)
        kernel->samples[i] = draw(3);
}

static void fill_kernel(struct jc_stats_kernel *kernel, const char *name, int device)
{
    uint64_t variants = 1 + draw(7), launches = 100000 + draw(3000000);
    *kernel = (struct jc_stats_kernel){
        .name = name, .device = device, .kernels = 1, .variants = variants, .stand_ins = 1,
        .total = {.launches = launches, .generic_launches = launches / (50 + draw(9000)),
                  .misses = variants + draw(9), .disk_hits = variants - variants / 3,
                  .saved_ns = variants * 400 * MS, .compiles = variants / 3,
                  .compile_ns = variants / 3 * (300 + draw(400)) * MS,
                  .queue_ns = variants / 3 * 20 * MS, .loads = variants,
                  .load_ns = variants * 900000, .held_ns = variants * 400000,
                  .loaded_bytes = variants * 23456, .queued = variants / 3,
                  .upgraded = variants / 3},
    };
    add_samples(kernel, launches / 1000);
}

static void count(struct jc_counts *to, const struct jc_counts *from)
{
    uint64_t *sums = (uint64_t *) (void *) to;
    const uint64_t *parts = (const uint64_t *) (const void *) from;
    for (size_t i = 0; i < sizeof(*to) / sizeof(*sums); i++)
        sums[i] += parts[i];
}

static const char *const values[] = {"value: 1", "value: 17", "value: 256", "value: 1031",
                                     "value: 2048", "value: 4097"};
static const char *const strides[] = {"div: 16", "div: 8", "div: 4", "one"};
static const char *const alignments[] = {"align: 16", "align: 4"};

static const struct jc_stats_argument storms[] = {
    {.name = "num_tokens", .states = 212, .examples = values, .num_examples = 6,
     .file = "kernels/silu_mul_fp8_quant.cu", .line = 7,
     .replacement = "  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 8192]}",
     .advice = "If it is meant to vary, write that; otherwise plan for it with jc_kernel_warmup,"
               " or allow more with max_variants."},
    {.name = "scale_stride", .states = 31, .stopped = true, .examples = strides, .num_examples = 4,
     .file = "kernels/fused_inv_rope_fp8_quant.cu", .line = 12,
     .replacement = "  - {name: scale_stride, type: i32, derive: \"align(num_tokens, 4)\","
                    " do_not_specialize: true}",
     .advice = "It follows num_tokens, which is not specialized."},
    {.name = "rows", .states = 2, .examples = alignments, .num_examples = 2,
     .file = "kernels/gather_rows.cu", .line = 5,
     .replacement = "  - {name: rows, type: f16*, align: either}",
     .advice = "Calls slice that tensor: with `either` both are planned."},
};

static void add_storm(struct pretended *made, size_t index, size_t which)
{
    struct jc_stats_kernel *kernel = &made->kernels[index];
    kernel->varying = &storms[which];
    kernel->num_varying = 1;
    kernel->asked = storms[which].states;
    kernel->first_asked_ms = START + 600000;
    kernel->last_asked_ms = made->stats.now_ms - (which == 0 ? 4000 : 1500000);
    kernel->total.compiles += kernel->asked;
    kernel->total.loads += kernel->asked;
    kernel->total.held_ns += kernel->asked * 400000;
    kernel->total.compile_ns += kernel->asked * 410 * MS;
    kernel->sealed.misses = kernel->asked / 2;
    kernel->sealed.loads = kernel->sealed.compiles = kernel->asked / 4;
    kernel->total.misses += kernel->asked;
    if (which == 0) {
        kernel->total.stalls = 19;
        kernel->total.stall_ns = 8200 * MS;
    }
}

// --- events --------------------------------------------------------------------------------------

static struct jc_event *add_event(struct pretended *made, uint64_t time_ms, enum jc_event_kind kind,
                                  const char *kernel)
{
    size_t index = made->stats.num_events++;
    made->events[index] = (struct jc_event){
        .time_ms = time_ms, .kind = kind,
        .device = kind == JC_EVENT_COMPILE ? -1 : (int) (index & 1), .kernel = kernel,
        .specialization = "", .text = "", .sealed = time_ms > START + 420000,
    };
    return &made->events[index];
}

static void add_variant(struct pretended *made, uint64_t time_ms, const char *kernel)
{
    struct jc_event *event = add_event(made, time_ms, JC_EVENT_COMPILE, kernel);
    event->elapsed_ns = (250 + draw(600)) * MS;
    event->waited_ns = draw(3) ? 0 : draw(900) * MS;
    event->specialization = "parameter.BLOCK=128\nfacet.num_tokens=div: 16\n";
    event = add_event(made, time_ms + 20 + draw(400), JC_EVENT_LOAD, kernel);
    event->elapsed_ns = (1 + draw(9)) * MS;
    event->waited_ns = draw(2) * MS;
}

static int compare_events(const void *a, const void *b)
{
    const struct jc_event *one = a, *other = b;
    return one->time_ms < other->time_ms ? -1 : one->time_ms > other->time_ms;
}

static void add_warmup(struct pretended *made)
{
    for (size_t i = 0; i < 60; i++)
        add_variant(made, START + 30000 + i * 1100 + draw(5000), names[i % NUM_KERNELS]);
    for (size_t i = 0; i < 2; i++) {
        struct jc_event *event = add_event(made, START + 420000 + i * 300, JC_EVENT_SEAL, "");
        event->text = "log";
        event = add_event(made, START + 419000 + i * 300, JC_EVENT_SAFE_POINT, "");
        event->elapsed_ns = 48 * MS;
        event->count = 60;
    }
}

static void add_trouble(struct pretended *made)
{
    for (size_t i = 0; i < 70; i++) {
        uint64_t time_ms = START + 600000 + draw(2900000);
        add_variant(made, time_ms, names[draw(10) ? 0 : 1]);
        if (draw(2))
            add_event(made, time_ms - 900, JC_EVENT_SEALED_MISS, names[0])->specialization =
                "facet.num_tokens=value: 4097\n";
        if (i % 6 == 0) {
            struct jc_event *event = add_event(made, time_ms + 5000, JC_EVENT_SAFE_POINT, "");
            event->elapsed_ns = (3 + draw(20)) * MS;
            event->count = 1 + draw(3);
        }
    }
    add_event(made, START + 1810000, JC_EVENT_STORM, names[1])->text = "scale_stride";
    struct jc_event *event = add_event(made, START + 2400000, JC_EVENT_FAILURE, names[28]);
    event->text = "lora_shrink.cu:31: error: identifier \"rank\" is undefined";
    event->elapsed_ns = 90 * MS;
}

static void sort_events(struct pretended *made)
{
    qsort(made->events, made->stats.num_events, sizeof(*made->events), compare_events);
    for (size_t i = 0; i < made->stats.num_events; i++)
        made->pids[i] = 4100 + (made->events[i].device == 1);
}

// --- statistics ----------------------------------------------------------------------------------

static void add_processes(struct pretended *made, size_t num_processes)
{
    for (size_t i = 0; i < num_processes; i++)
        made->processes[i] = (struct jc_stats_process){
            .pid = 4100 + (int) i, .command = "serve", .host = "gpu-17",
            .start_ms = START + i * 900, .seen_ms = made->stats.now_ms, .running = true,
            .seal = "log", .counts = {.safe_points = 7, .safe_point_ns = 60 * MS, .cache_hits = 71,
                                     .cache_misses = 20},
        };
    made->stats.num_processes = num_processes;
}

static void add_up(struct pretended *made)
{
    for (size_t i = 0; i < made->stats.num_kernels; i++) {
        count(&made->stats.total, &made->kernels[i].total);
        count(&made->stats.sealed, &made->kernels[i].sealed);
    }
}

static void serve(struct pretended *made, bool is_calm)
{
    made->stats.ended = 3;
    add_processes(made, 2);
    for (size_t i = 0; i < 2 * NUM_KERNELS; i++)
        fill_kernel(&made->kernels[i], names[i / 2], (int) (i & 1));
    made->stats.num_kernels = 2 * NUM_KERNELS;
    add_warmup(made);
    if (!is_calm) {
        add_trouble(made);
        add_storm(made, 0, 0);
        add_storm(made, 1, 0);
        add_storm(made, 3, 1);
        add_storm(made, 10, 2);
        made->kernels[56].total.failures = made->kernels[56].sealed.failures = 1;
    }
    add_up(made);
}

static void be_odd(struct pretended *made)
{
    static const char *const odd[] = {
        "<script>alert(1)</script>", "two \"quotes\" & 'more'", "noyau_\xc3\xa9t\xc3\xa9",
        "bad\xff\xfe\x7f", "right\xe2\x80\xaeto left", "line\nbreak\x1b[31m", "</style></svg>",
        "", " a very long name that goes on and on and on and on and on and on and on and on ",
    };
    static const char *const example[] = {"value: <b>1</b>"};
    static struct jc_stats_argument argument = {
        .name = "<i>n</i>", .states = 1024, .more = true, .examples = example, .num_examples = 1,
        .file = "a \"b\".cu", .line = 3, .replacement = "  - {name: <i>n</i>}\n    second line",
        .advice = "</pre><img src=http://127.0.0.1:9/x>",
    };
    made->stats.num_kernels = sizeof(odd) / sizeof(odd[0]);
    add_processes(made, 1);
    made->processes[0].command = "<img src=x>";
    made->processes[0].host = "\"><svg onload=alert(1)>";
    for (size_t i = 0; i < made->stats.num_kernels; i++) {
        fill_kernel(&made->kernels[i], odd[i], 0);
        add_variant(made, START + i * 5000, odd[i]);
        add_event(made, START + i * 5000, JC_EVENT_FAILURE, odd[i])->text = odd[i];
        add_event(made, START + i * 5000, JC_EVENT_SEAL, "")->text = odd[i];
        made->kernels[i].varying = &argument;
        made->kernels[i].num_varying = 1;
    }
    made->stats.trouble = "a <file> of\nanother & version";
    add_up(made);
}

static void be_dense(struct pretended *made)
{
    serve(made, false);
    while (made->stats.num_events < MAX_EVENTS - 2)
        add_variant(made, START + 60000 + draw(3500000), names[draw(NUM_KERNELS)]);
    made->stats.process_total.events_dropped = 12345;
}

static void be_wrong(struct pretended *made)
{
    serve(made, true);
    add_event(made, UINT64_MAX, JC_EVENT_COMPILE, "later")->elapsed_ns = UINT64_MAX;
    add_event(made, 0, JC_EVENT_LOAD, "earlier")->waited_ns = UINT64_MAX;
    add_event(made, START, (enum jc_event_kind) 99, "unknown")->text = "of a later version";
    memset(&made->stats.total, 0xff, sizeof(made->stats.total));
    memset(&made->kernels[0].total, 0xff, sizeof(made->kernels[0].total));
    memset(made->kernels[1].samples, 0xff, sizeof(made->kernels[1].samples));
    made->kernels[2].asked = made->kernels[2].last_asked_ms = UINT64_MAX;
    made->processes[0].start_ms = UINT64_MAX;
    made->stats.since_ms = UINT64_MAX;
}

enum jc_result __wrap_jc_stats_read(struct jc_context *context,
                                    const struct jc_stats_params *params, struct jc_stats **stats,
                                    struct jc_error *error)
{
    const char *which = getenv("JITCACHE_PRETEND");
    *stats = NULL;
    (void) context;
    if (which && strcmp(which, "refused") == 0) {
        snprintf(error->text, sizeof(error->text), "no process %d that counts was found",
                 params->pid);
        return JC_ERROR_NOT_FOUND;
    }
    struct pretended *made = calloc(1, sizeof(*made));
    if (!which || !made)
        abort();
    made->stats.now_ms = START + 3600000;
    made->stats.since_ms = params->since_ms;
    made->stats.trouble = made->stats.folder = "";
    if (strcmp(which, "odd") == 0)
        be_odd(made);
    else if (strcmp(which, "dense") == 0)
        be_dense(made);
    else if (strcmp(which, "wrong") == 0)
        be_wrong(made);
    else if (strcmp(which, "none") != 0)
        serve(made, strcmp(which, "calm") == 0);
    if (strcmp(which, "many") == 0)
        add_processes(made, 300);
    sort_events(made);
    made->stats.kernels = made->kernels;
    made->stats.processes = made->processes;
    made->stats.events = made->events;
    made->stats.event_pids = made->pids;
    *stats = &made->stats;
    return JC_OK;
}

void __wrap_jc_stats_destroy(struct jc_stats **stats)
{
    free(*stats); // the first member of what was allocated
    *stats = NULL;
}
