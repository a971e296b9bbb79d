#include "agreement.h"

#include "cache/report.h"

void jc_agreement_sort(struct jc_agreed *list, size_t *num, struct jc_key *digest)
{
    (void) list, (void) num;
    *digest = (struct jc_key){0};
}

unsigned jc_agreement_majority(const struct jc_exchange *exchange, const struct jc_key *digests,
                               bool *same)
{
    (void) exchange, (void) digests;
    *same = true;
    return 0;
}

enum jc_result jc_agreement_explain(const struct jc_agreement *agreement,
                                    const struct jc_key *digests, struct jc_error *error)
{
    (void) agreement, (void) digests;
    return jc_fail(error, JC_ERROR_UNSUPPORTED, "not yet");
}
