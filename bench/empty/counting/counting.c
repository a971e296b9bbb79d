// A driver that does nothing, and counts launches: for tests of so many that any other would take
// too long. counting_get tells of them as the driver in tests/sim/counting does.

#define cuLaunchKernelEx launch_nothing
#include "bench/empty/driver.c"
#undef cuLaunchKernelEx

#include <stdatomic.h>
#include <stdint.h>

// Relaxed: it orders nothing, and is read when the launches are over.
static atomic_uint_fast64_t launches;

CALL(cuLaunchKernelEx, const struct jc_cu_launch_config *config, CUfunction function,
     void **arguments, void **extra)
{
    atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
    return launch_nothing(config, function, arguments, extra);
}

// How often a call was made so far; UINT64_MAX: that is not counted here.
__attribute__((visibility("default"))) uint64_t counting_get(const char *symbol);
uint64_t counting_get(const char *symbol)
{
    return strcmp(symbol, "cuLaunchKernelEx") == 0
               ? atomic_load_explicit(&launches, memory_order_relaxed) : UINT64_MAX;
}
