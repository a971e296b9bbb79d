// The exchange of ranks that bring an all-gather of their own.
//
// The all-gather runs on a thread of the exchange, so that who waits for it can stop waiting. A
// thread that does not come back is left behind, with what it uses; the last of the two to let go
// of that frees it.

#ifndef JC_GATHERING_H
#define JC_GATHERING_H

#include "exchange.h"

// JC_ERROR_OUT_OF_MEMORY, JC_ERROR_IO: no thread is to be had.
enum jc_result jc_gathering_create(const struct jc_group_params *params,
                                   struct jc_exchange **exchange, struct jc_error *error);

#endif
