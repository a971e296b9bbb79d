#include "range.h"

#include <string.h>

void jc_range_line(const char *specialization, char line[JC_RANGE_LINE_SIZE])
{
    size_t size = 0;
    for (const char *at = specialization, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        const char *from = strchr(at, '.') + 1;
        size_t length = (size_t) (end - from);
        if (size + 1 + length >= JC_RANGE_LINE_SIZE)
            break;
        line[size] = ' ';
        memcpy(line + size + 1, from, length);
        size += 1 + length;
    }
    line[size] = '\0';
}

#ifdef JC_HAS_NVTX

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

// Profilers put themselves in place by a library; what else the header looks for is no business of
// ours, and a symbol that every user of it would define.
#define NVTX_SUPPORT_STATIC_INJECTION_LIBRARY 0
#include <nvtx3/nvToolsExt.h>

#define NAME_SIZE 1024

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain; // written once; NULL where no profiler is there

static void make_domain(void)
{
    domain = nvtxDomainCreateA("jitcache");
}

bool jc_range_is_built(void)
{
    return true;
}

void jc_range_begin(const char *format, ...)
{
    char name[NAME_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    pthread_once(&once, make_domain);
    const nvtxEventAttributes_t attributes = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message.ascii = name,
    };
    nvtxDomainRangePushEx(domain, &attributes);
}

void jc_range_end(void)
{
    nvtxDomainRangePop(domain);
}

#else

bool jc_range_is_built(void)
{
    return false;
}

void jc_range_begin(const char *format, ...)
{
    (void) format;
}

void jc_range_end(void)
{
}

#endif
