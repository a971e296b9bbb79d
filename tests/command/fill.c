// Fills a cache with records as the runtime writes them, so that the commands that read can be
// tested on many, on odd ones and without a compiler.
//
//   fill DIR              one kernel with a variant, a failed compile and a variant of one key
//   fill DIR many COUNT   that many variants more
//   fill DIR odd          names that could drive a terminal
//   fill DIR kinds        the kinds of record that belong to no kernel too

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jitcache/cache.h>

struct text {
    char bytes[2048];
    size_t size;
};

static struct text text_of(const char *lines, const char *source)
{
    struct text text;
    text.size = (size_t) snprintf(text.bytes, sizeof(text.bytes), "jitcache=1\n%ssource=%s", lines,
                                  source);
    return text;
}

static void insert(struct jc_cache *cache, struct jc_record record, const struct text *text,
                   const char *metadata, const char *payload)
{
    struct jc_error error;
    record.text = text->bytes;
    record.text_size = text->size;
    record.metadata = metadata;
    record.metadata_size = strlen(metadata);
    record.payload = payload;
    record.payload_size = strlen(payload);
    if (jc_cache_insert(cache, &record, &error)) {
        fprintf(stderr, "fill: %s\n", error.text);
        exit(1);
    }
}

static uint64_t insert_template(struct jc_cache *cache, const char *name)
{
    // The description holds a line that looks like the beginning of the source.
    static const char description[] = "kernel: k\nsource=not yet\n";
    char lines[512], metadata[256];
    snprintf(lines, sizeof(lines), "jitcache-template=1\nname=%s\ndescription_size=%zu\n%s", name,
             strlen(description), description);
    struct text text = text_of(lines, "the source\nof it\n");
    snprintf(metadata, sizeof(metadata), "name=%s\n", name);
    insert(cache, (struct jc_record){.kind = JC_RECORD_TEMPLATE}, &text, metadata, "");
    struct jc_key key = jc_key_of(text.bytes, text.size);
    uint64_t group = 0;
    for (int i = 0; i < 8; i++)
        group = group << 8 | key.bytes[i];
    return group;
}

static void insert_variant(struct jc_cache *cache, uint64_t group, const char *lines,
                           const char *metadata)
{
    struct text text = text_of(lines, "a kernel's source\x1b[31m\n");
    insert(cache,
           (struct jc_record){.kind = JC_RECORD_VARIANT,
                              .group = group,
                              .label = "sm_90a",
                              .cost_ns = 212000000},
           &text, metadata, "the cubin");
}

static void insert_failure(struct jc_cache *cache, uint64_t group, const char *lines)
{
    struct text text = text_of(lines, "a kernel's source\x1b[31m\n");
    insert(cache,
           (struct jc_record){.kind = JC_RECORD_FAILURE,
                              .group = group,
                              .label = "sm_90a",
                              .expires_ms = UINT64_C(1) << 45},
           &text, "", "it does not compile\nas the log says");
}

// With the kernel's group, as records of a plan may have.
static void insert_other(struct jc_cache *cache, uint64_t group, enum jc_record_kind kind,
                         const char *lines)
{
    struct text text;
    text.size = (size_t) snprintf(text.bytes, sizeof(text.bytes), "%s", lines);
    insert(cache, (struct jc_record){.kind = kind, .group = group, .label = "sm_90a"}, &text, "",
           "variants=3\n");
}

int main(int argc, char **argv)
{
    struct jc_cache *cache = NULL;
    struct jc_error error;
    if (argc < 2 || jc_cache_create(jc_cache_params(.dir = argv[1]), &cache, &error))
        return 1;
    bool odd = argc > 2 && strcmp(argv[2], "odd") == 0;
    uint64_t group = insert_template(cache, odd ? "od\x1b[2Jd\xff\xe2\x80\xae" : "plain_kernel");
    insert_variant(cache, group, "arch=sm_90a\nparameter.n=1\n",
                   "kernel=plain_kernel\nregisters=40\n");
    insert_failure(cache, group, "arch=sm_90a\nparameter.n=1\n");
    insert_variant(cache, ~group, "arch=sm_90a\nparameter.n=nobody's\n", "");
    if (argc > 2 && strcmp(argv[2], "kinds") == 0) {
        insert_other(cache, 0, JC_RECORD_TOOLCHAIN, "jitcache-toolchain=1\n");
        insert_other(cache, group, JC_RECORD_COVERAGE, "jitcache-coverage=1\n");
    }
    size_t count = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    for (size_t i = 0; i < count; i++) {
        char lines[64];
        snprintf(lines, sizeof(lines), "arch=sm_90a\nparameter.n=%zu\n", i + 1000);
        insert_variant(cache, group, lines, "");
    }
    jc_cache_destroy(&cache);
    return 0;
}
