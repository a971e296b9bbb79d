// Records that can be told right from wrong: the payload follows from the number.

#ifndef TEST_FAULTS_RECORD_H
#define TEST_FAULTS_RECORD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/cache.h>

static inline size_t record_size(unsigned number)
{
    return 100 + number * 7919 % 20000;
}

static inline enum jc_result record_put(struct jc_cache *cache, unsigned number,
                                        struct jc_error *error)
{
    char text[32];
    snprintf(text, sizeof(text), "number=%u", number);
    size_t size = record_size(number);
    unsigned char *payload = malloc(size);
    if (!payload)
        return JC_ERROR_OUT_OF_MEMORY;
    for (size_t at = 0; at < size; at++)
        payload[at] = (unsigned char) (number * 31 + at * 7);
    struct jc_record record = {.kind = JC_RECORD_VARIANT, .text = text, .text_size = strlen(text),
                               .payload = payload, .payload_size = size};
    enum jc_result result = jc_cache_insert(cache, &record, error);
    free(payload);
    return result;
}

// JC_ERROR_CORRUPT if what is found is wrong.
static inline enum jc_result record_get(struct jc_cache *cache, unsigned number)
{
    char text[32];
    struct jc_record record;
    snprintf(text, sizeof(text), "number=%u", number);
    enum jc_result result = jc_cache_find(cache, JC_RECORD_VARIANT, text, strlen(text), &record);
    if (result != JC_OK)
        return result;
    const unsigned char *payload = record.payload;
    if (record.payload_size != record_size(number))
        result = JC_ERROR_CORRUPT;
    for (size_t at = 0; result == JC_OK && at < record.payload_size; at++) {
        if (payload[at] != (unsigned char) (number * 31 + at * 7))
            result = JC_ERROR_CORRUPT;
    }
    jc_record_finish(&record);
    return result;
}

#endif
