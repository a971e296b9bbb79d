// A profiler for tests, as NVTX_INJECTION64_PATH names one: it writes what the ranges of all
// threads say into the file NVTX_TEST_FILE, a line for each: "DOMAIN push NAME", "DOMAIN pop".

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVTX_SUPPORT_STATIC_INJECTION_LIBRARY 0
#include <nvtx3/nvToolsExt.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

// One write for a line, so that those of several threads stay whole.
static void note(const char *domain, const char *what, const char *name)
{
    FILE *file = fopen(getenv("NVTX_TEST_FILE"), "a");
    if (!file)
        abort();
    fprintf(file, "%s %s%s%s\n", domain, what, *name ? " " : "", name);
    fclose(file);
}

// The handle is the name.
static nvtxDomainHandle_t create_domain(const char *name)
{
    return (nvtxDomainHandle_t) (void *) strdup(name);
}

static const char *name_of(nvtxDomainHandle_t domain)
{
    return domain ? (const char *) (void *) domain : "default";
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    if (attributes->version != NVTX_VERSION || attributes->size != sizeof(*attributes) ||
        attributes->messageType != NVTX_MESSAGE_TYPE_ASCII)
        abort();
    note(name_of(domain), "push", attributes->message.ascii);
    return 0;
}

static int pop(nvtxDomainHandle_t domain)
{
    note(name_of(domain), "pop", "");
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer) create_domain;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer) push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer) pop;
    return 1;
}
