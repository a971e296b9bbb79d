#include <jitcache/jitcache.h>

const char *jc_version(void)
{
    return JC_VERSION;
}
