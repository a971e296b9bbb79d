// The two pages at the start of an LMDB file, checked before LMDB maps it.

#ifndef JC_META_H
#define JC_META_H

#include <jitcache/result.h>

struct jc_meta {
    uint32_t page_size;
    uint64_t last_page; // in use
    uint64_t map_size;  // that its writer had
    uint64_t transaction;
};

// JC_ERROR_CORRUPT: not a file that LMDB could use without harm to this process.
// JC_ERROR_UNSUPPORTED: of another version of LMDB.
enum jc_result jc_meta_read(int fd, struct jc_meta *meta);

#endif
