// The exchange of ranks that are of one host: a file in memory that all of them map.
//
//   FOLDER/NAME.group    the folder is the one that statistics are published in, see bulletin.h, or
//                        the caller's
//
//   its head             magic, version of the format and of the library, a number for this job
//                        that no other has, how many ranks there are. Its first 128 bytes are the
//                        same in every version
//   the board            words that common steps are agreed with, see board.h
//   a slot for each rank its process and host, a word that says how many rounds it has given to and
//                        whether it is lost, and two blocks: one for the round that is read, and
//                        one for the next, which nobody begins before all have read
//
// Locks are OFD locks, each of one byte:
//
//   byte 0               the gate: held for moments by who joins or leaves
//   byte 1 + rank        held as long as the rank is in the group: its sign of life
//
// A rank is dead when its lock is gone, or, where its process can be seen from here, when that has
// ended: a child that was forked without the library's knowledge may have the lock still. Processes
// are told apart by PID namespace, PID and start time, so a PID that was given away again is no
// rank.
//
// Whoever comes to a file in which no rank is alive begins it anew; and the last to leave removes
// it. Files of other names in the folder that no rank holds are removed by who begins one.
//
// The word of a rank is changed by compare and swap: a rank gives to a round unless others have
// declared it lost, and it is declared lost unless it has given. So all ranks see the same, round
// by round, and one that wakes up after it was given up finds that out by itself.

#ifndef JC_HOST_H
#define JC_HOST_H

#include "exchange.h"

// How long one who joins waits for ranks that are about to end.
#define JC_HOST_GRACE_NS UINT64_C(5000000000)

// Joins; the errors of jc_group_create. `cache` is for the folder, and for what a child of a fork
// closes; it must outlive the exchange. The params were checked.
enum jc_result jc_host_create(struct jc_cache *cache, const struct jc_group_params *params,
                              struct jc_exchange **exchange, struct jc_error *error);

// Whether a rank's process is alive: some system calls. For who waits long for it.
bool jc_host_is_alive(struct jc_exchange *exchange, unsigned rank);

#endif
