// The exchange of ranks that bring an all-gather of their own.
//
// The all-gather runs on a thread of the exchange, so that who waits for it can stop waiting. A
// thread that does not come back is left behind, with what it uses; the last of the two to let go
// of that frees it.
//
// What is gathered is a head of 64 bytes and then the block. The very first round is of a head
// alone, so that ranks whose versions of the library have blocks of other sizes find that out
// before these are mixed up. All numbers are little endian, texts are padded with zeroes.
//
//    0  8  "jc-group"
//    8  2  number of this protocol; up to here all versions have the same, and 64 bytes of it
//   10  2  rank
//   12  2  how many ranks the group has
//   14  2  size of the block; 0 in the first round
//   16  4  number of the round, from 0
//   20  4  PID
//   24 16  version of the library
//   40 24  host, cut off where it is longer

#ifndef JC_GATHERING_H
#define JC_GATHERING_H

#include "exchange.h"

// JC_ERROR_OUT_OF_MEMORY, JC_ERROR_IO: no thread is to be had.
enum jc_result jc_gathering_create(const struct jc_group_params *params,
                                   struct jc_exchange **exchange, struct jc_error *error);

#endif
