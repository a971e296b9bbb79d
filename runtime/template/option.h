// Options that a template may pass to NVRTC.

#ifndef JC_OPTION_H
#define JC_OPTION_H

// Whether a template may carry the option. NULL if so, otherwise what to write instead.
const char *jc_option_check(const char *option);

#endif
