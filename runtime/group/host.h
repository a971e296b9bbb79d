// The exchange of ranks that are of one host: a file in memory that all of them map. roster.h says
// what is in it, and who; host.c has the rounds.
//
// The folder is the one that statistics are published in, see bulletin.h, or the caller's. Whoever
// comes to a file in which no rank is alive makes another in its place; and the last to leave
// removes it. Files of other names in the folder that no rank holds are removed by who begins one.
//
// A rank is dead when its lock is gone, or, where its process can be seen from here, when that has
// ended: a child that was forked without the library's knowledge may have the lock still. Processes
// are told apart by PID namespace, PID and start time, so a PID that was given away again is no
// rank.
//
// The word of a rank is changed by compare and swap: a rank gives to a round unless others have
// declared it lost, and it is declared lost unless it has given. So all ranks see the same, round
// by round, and one that wakes up after it was given up finds that out by itself.
//
// A slot has two blocks: one for the round that is read, and one for the next, which nobody begins
// before all that are not lost have read.

#ifndef JC_HOST_H
#define JC_HOST_H

#include "exchange.h"

// How long one who joins waits for ranks that are about to end.
#define JC_HOST_GRACE_NS UINT64_C(5000000000)

// Joins; the errors of jc_group_create. `cache` is for the folder, and for what a child of a fork
// closes; it must outlive the exchange. The params were checked.
enum jc_result jc_host_create(struct jc_cache *cache, const struct jc_group_params *params,
                              struct jc_exchange **exchange, struct jc_error *error);

// Whether a rank's process is alive, and still in the group: some system calls. For who waits long
// for it. Threads: safe.
bool jc_host_is_alive(struct jc_exchange *exchange, unsigned rank);

#endif
