// What a kernel template sees of its specialization. The compile unit defines, ahead of the source,
// one macro for each parameter, each value of an enum and each argument; these three read them.
//
//   JC_PARAM(name)         the parameter's value: a constant expression
//   JC_VALUE(name, value)  a value of an enum parameter, to compare with JC_PARAM(name)
//   JC_FACT(name);         at the top of the kernel: what is known of argument `name` from here on.
//                          For the optimiser only; a kernel is right without it.
//
// Included by a compiler other than jitcache, JC_FACT says nothing and parameters are to be given
// as -DJC_PARAM_name=... .

#ifndef JITCACHE_CUH
#define JITCACHE_CUH

#define JC_PARAM(name) JC_PARAM_##name
#define JC_VALUE(name, value) JC_VALUE_##name##_##value

#ifdef JITCACHE
#define JC_FACT(name) JC_FACT_##name
#else
#define JC_FACT(name) ((void) 0)
#endif

#endif
