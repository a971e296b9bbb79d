// One job, compiled and waited for.

#ifndef JC_TEST_COMPILE_H
#define JC_TEST_COMPILE_H

#include "runtime/compile/compiler.h"

// The result is that of the answer, or why there is none.
static inline struct jc_compiler_answer compile_job(struct jc_compiler *compiler,
                                                    const struct jc_job *job)
{
    const struct jc_request request = {.job = job, .priority = JC_PRIORITY_WARMUP, .flight = -1};
    struct jc_compiler_answer answer = {0};
    struct jc_mailbox mailbox;
    jc_mailbox_init(&mailbox, compiler);
    enum jc_result result = jc_compiler_submit(compiler, &mailbox, &request, NULL, NULL);
    if (result == JC_OK)
        result = jc_mailbox_take(&mailbox, UINT64_C(300000000000), &answer);
    if (result != JC_OK)
        answer.job.result = result;
    jc_mailbox_finish(&mailbox);
    return answer;
}

#endif
