#include "coverage.h"

#include <inttypes.h>
#include <string.h>

#include "cache/report.h"
#include "outcome.h"

// The text of a record, a line each:
//
//   jitcache-coverage=1
//   epoch=          of the cache: 16 hexadecimal digits; see jc_cache_epoch
//   first=          key of the first variant, which covers toolchain, architecture and sources
//   variants=       how many there are
//   specializations=  digest of their texts, each chained to the one before
//
// The payload is the line that says how many; the metadata names the template.

// The digest of any number of texts, without holding them all.
static bool digest_specializations(const struct jc_batch *batch, char string[JC_KEY_STRING_SIZE])
{
    struct jc_buffer link = {0};
    struct jc_key digest = {{0}};
    for (size_t i = 0; i < batch->num_variants && !link.failed; i++) {
        link.size = 0;
        jc_buffer_append(&link, &digest, sizeof(digest));
        jc_buffer_string(&link, batch->variants[i].specialization);
        digest = jc_key_of(link.data, link.size);
    }
    bool complete = !link.failed;
    jc_buffer_finish(&link);
    jc_key_format(&digest, string);
    return complete;
}

enum jc_result jc_coverage_init(struct jc_coverage *coverage, struct jc_batch *batch,
                                const char *arch, uint64_t epoch, struct jc_error *error)
{
    struct jc_unit unit;
    char first[JC_KEY_STRING_SIZE], specializations[JC_KEY_STRING_SIZE];
    *coverage = (struct jc_coverage){0};
    if (epoch == 0)
        return JC_OK;
    struct jc_source *source = &batch->source;
    enum jc_result result = jc_unit_init(&unit, batch->specializations[0], source->toolchain,
                                         &source->closure, arch, error);
    if (result != JC_OK)
        return result;
    jc_key_format(&unit.key, first);
    jc_unit_finish(&unit);
    if (!digest_specializations(batch, specializations))
        return jc_fail_memory(error);
    jc_buffer_print(&coverage->text, "jitcache-coverage=1\nepoch=%016" PRIx64 "\nfirst=%s\n"
                    "variants=%zu\nspecializations=%s\n", epoch, first, batch->num_variants,
                    specializations);
    return coverage->text.failed ? jc_fail_memory(error) : JC_OK;
}

void jc_coverage_finish(struct jc_coverage *coverage)
{
    jc_buffer_finish(&coverage->text);
}

bool jc_coverage_is_kept(const struct jc_coverage *coverage, const struct jc_batch *batch)
{
    struct jc_record record;
    if (coverage->text.size == 0
        || jc_cache_find(batch->source.context->cache, JC_RECORD_COVERAGE, coverage->text.data,
                         coverage->text.size, &record) != JC_OK)
        return false;
    jc_record_finish(&record);
    return true;
}

void jc_coverage_keep(const struct jc_coverage *coverage, struct jc_batch *batch, const char *arch)
{
    struct jc_source *source = &batch->source;
    struct jc_buffer metadata = {0}, payload = {0};
    // The template may have been dropped with an old segment while its variants were kept.
    if (coverage->text.size == 0 || jc_source_keep_template(source, NULL) != JC_OK)
        return;
    jc_buffer_print(&metadata, "name=%s\narch=%s\n", source->tmpl->name, arch);
    jc_buffer_print(&payload, "variants=%zu\n", batch->num_variants);
    struct jc_record record = {
        .kind = JC_RECORD_COVERAGE,
        .text = coverage->text.data,
        .text_size = coverage->text.size,
        .metadata = metadata.data,
        .metadata_size = metadata.size,
        .payload = payload.data,
        .payload_size = payload.size,
    };
    jc_outcome_label(&record, source, arch);
    if (!metadata.failed && !payload.failed)
        jc_cache_insert(source->context->cache, &record, NULL);
    jc_buffer_finish(&metadata);
    jc_buffer_finish(&payload);
}
