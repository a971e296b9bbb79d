#include "option.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

// What is decided elsewhere, or would make the result depend on what no key knows. `prefix` with a
// '=' at its end also stands for the word without a value.
static const struct {
    const char *prefix, *advice;
} refused[] = {
    {"-I", "folders for #include stand in the field `include`"},
    {"--include-path=", "folders for #include stand in the field `include`"},
    {"-include", "a file that is included unseen is not in the key; write the #include in the "
                 "source"},
    {"--pre-include=", "a file that is included unseen is not in the key; write the #include in "
                       "the source"},
    {"-arch=", "the architecture is chosen for each device; remove it, or write arch: portable"},
    {"--gpu-architecture=",
     "the architecture is chosen for each device; remove it, or write arch: portable"},
    {"--frandom-seed=", "the seed is fixed, so that equal keys give equal code; remove it"},
    {"-frandom-seed=", "the seed is fixed, so that equal keys give equal code; remove it"},
    {"-dc", "kernels are compiled whole, without linking; remove it"},
    {"-rdc=", "kernels are compiled whole, without linking; remove it"},
    {"--device-c", "kernels are compiled whole, without linking; remove it"},
    {"--relocatable-device-code=", "kernels are compiled whole, without linking; remove it"},
    {"-dlto", "kernels are compiled whole, without linking; remove it"},
    {"--dlink-time-opt", "kernels are compiled whole, without linking; remove it"},
    {"--optix-ir", "a kernel is machine code, not an intermediate one; remove it"},
    {"-optix-ir", "a kernel is machine code, not an intermediate one; remove it"},
    {"--fdevice-syntax-only", "a check of the syntax makes no kernel; remove it"},
    {"-fdevice-syntax-only", "a check of the syntax makes no kernel; remove it"},
    {"--std=c++03", "templates are C++11 or newer; remove it, or write --std=c++17"},
    {"-std=c++03", "templates are C++11 or newer; remove it, or write --std=c++17"},
    {"-pch", "precompiled headers are made and kept by jitcache; write pch: true"},
    {"--pch", "precompiled headers are made and kept by jitcache; write pch: true"},
    {"-create-pch=", "precompiled headers are made and kept by jitcache; write pch: true"},
    {"--create-pch=", "precompiled headers are made and kept by jitcache; write pch: true"},
    {"-use-pch=", "precompiled headers are made and kept by jitcache; write pch: true"},
    {"--use-pch=", "precompiled headers are made and kept by jitcache; write pch: true"},
    {"-time=", "timings are taken by jitcache; remove it"},
    {"--time=", "timings are taken by jitcache; remove it"},
    {"-fdevice-time-trace=", "timings are taken by jitcache; remove it"},
    {"--fdevice-time-trace=", "timings are taken by jitcache; remove it"},
};

static const char *check_macro(const char *macro)
{
    macro += strspn(macro, " ");
    if (begins(macro, "JC_") || begins(macro, "JITCACHE"))
        return "macros that begin with JC_ or JITCACHE are jitcache's own; declare a parameter";
    if (*macro == '\0')
        return "write the macro right after -D, in one item";
    return NULL;
}

const char *jc_option_check(const char *option)
{
    if (option[0] != '-')
        return "an option begins with '-'; write an option and its value in one item, with '='";
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const char *prefix = refused[i].prefix;
        size_t length = strlen(prefix);
        bool valued = prefix[length - 1] == '=';
        if (begins(option, prefix) ||
            (valued && strncmp(option, prefix, length - 1) == 0 &&
             (option[length - 1] == '\0' || option[length - 1] == ' ')))
            return refused[i].advice;
    }
    if (begins(option, "-D"))
        return check_macro(option + 2);
    if (begins(option, "-U"))
        return check_macro(option + 2);
    if (begins(option, "--define-macro"))
        return check_macro(option + strlen("--define-macro") + (option[14] == '='));
    if (begins(option, "--undefine-macro"))
        return check_macro(option + strlen("--undefine-macro") + (option[16] == '='));
    return NULL;
}
