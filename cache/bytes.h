// Numbers as they stand on disk: little endian, at any alignment.

#ifndef JC_BYTES_H
#define JC_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t jc_load_u16(const void *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof(value));
    return le16toh(value);
}

static inline uint32_t jc_load_u32(const void *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof(value));
    return le32toh(value);
}

static inline uint64_t jc_load_u64(const void *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof(value));
    return le64toh(value);
}

static inline void jc_store_u16(void *to, uint16_t value)
{
    value = htole16(value);
    memcpy(to, &value, sizeof(value));
}

static inline void jc_store_u32(void *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof(value));
}

static inline void jc_store_u64(void *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof(value));
}

#endif
