#include "meta.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"

// LMDB takes what stands in its meta pages at its word: a page size of 0 is a division by zero, a
// flag maps the file over whatever is at an address that it gives, a file shorter than it says is
// SIGBUS. What it reads there, on a 64-bit machine, in the byte order of the machine (a file from
// one of the other order has another magic number):
//
//   0  page header: u64 page number, u16, u16 flags, u32
//  16  u32 magic 0xBEEFC0DE
//  20  u32 version, 1 in all of LMDB 0.9
//  24  u64 address, for MDB_FIXEDMAP
//  32  u64 map size
//  40  the list of free pages: u32 page size, u16 flags, u16 depth, 4 u64, u64 root at 80
//  88  the main database: u32, u16 flags, u16 depth, 4 u64, u64 root at 128
// 136  u64 last page in use
// 144  u64 transaction: the page with the higher one counts
enum {
    FLAGS = 10,
    MAGIC = 16,
    VERSION = 20,
    MAP_SIZE = 32,
    PAGE_SIZE = 40,
    ENV_FLAGS = 44,
    FREE_DEPTH = 46,
    FREE_ROOT = 80,
    MAIN_FLAGS = 92,
    MAIN_DEPTH = 94,
    MAIN_ROOT = 128,
    LAST_PAGE = 136,
    TRANSACTION = 144,
    META_BYTES = 152
};

#define META_PAGE 0x08  // a page's flag
#define FIXED_MAP 0x01  // an environment's
#define MAX_DEPTH 32    // of LMDB's cursors
#define MAX_MAP_BYTES (UINT64_C(1) << 46)
#define MAX_TRANSACTION (UINT64_C(1) << 56) // so that none wraps around

static bool is_meta(const uint8_t *page)
{
    uint32_t size = jc_load_u32(page + PAGE_SIZE);
    return (jc_load_u16(page + FLAGS) & META_PAGE) && jc_load_u32(page + MAGIC) == 0xBEEFC0DE &&
           size >= 512 && size <= 65536 && (size & (size - 1)) == 0 &&
           !(jc_load_u16(page + ENV_FLAGS) & FIXED_MAP) && jc_load_u16(page + MAIN_FLAGS) == 0 &&
           jc_load_u64(page + MAP_SIZE) <= MAX_MAP_BYTES &&
           jc_load_u64(page + TRANSACTION) <= MAX_TRANSACTION;
}

static bool is_root(const uint8_t *page, size_t root_at, size_t depth_at, uint64_t last_page)
{
    uint64_t root = jc_load_u64(page + root_at);
    return (root == UINT64_MAX || root <= last_page) && jc_load_u16(page + depth_at) <= MAX_DEPTH;
}

// What the disk cannot give is as good as damaged.
static bool read_at(int fd, void *to, size_t size, uint64_t offset)
{
    return pread(fd, to, size, (off_t) offset) == (ssize_t) size;
}

enum jc_result jc_meta_read(int fd, struct jc_meta *meta)
{
    uint8_t first[META_BYTES], second[META_BYTES];
    struct stat stat;
    if (fstat(fd, &stat) != 0 || !read_at(fd, first, sizeof(first), 0))
        return JC_ERROR_CORRUPT;
    if (jc_load_u32(first + MAGIC) == 0xBEEFC0DE && jc_load_u32(first + VERSION) != 1)
        return JC_ERROR_UNSUPPORTED;
    if (!is_meta(first))
        return JC_ERROR_CORRUPT;
    uint32_t page_size = jc_load_u32(first + PAGE_SIZE);
    if (!read_at(fd, second, sizeof(second), page_size) || !is_meta(second) ||
        jc_load_u32(second + VERSION) != 1 || jc_load_u32(second + PAGE_SIZE) != page_size)
        return JC_ERROR_CORRUPT;

    bool newer = jc_load_u64(second + TRANSACTION) > jc_load_u64(first + TRANSACTION);
    const uint8_t *current = newer ? second : first;
    uint64_t last_page = jc_load_u64(current + LAST_PAGE);
    if (last_page < 1 || last_page >= (uint64_t) stat.st_size / page_size ||
        !is_root(current, FREE_ROOT, FREE_DEPTH, last_page) ||
        !is_root(current, MAIN_ROOT, MAIN_DEPTH, last_page))
        return JC_ERROR_CORRUPT;
    *meta = (struct jc_meta){
        .page_size = page_size,
        .last_page = last_page,
        .map_size = jc_load_u64(current + MAP_SIZE),
        .transaction = jc_load_u64(current + TRANSACTION),
    };
    return JC_OK;
}
