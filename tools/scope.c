#include "scope.h"

#include <errno.h>
#include <stdlib.h>

#include "moment.h"
#include "output.h"
#include "session.h"
#include "units.h"

int jc_scope_since(struct jc_scope *scope, const struct jc_command *command, const char *text)
{
    const char *wrong = jc_moment_parse(text, jc_now_ms(), &scope->since_ms);
    if (wrong)
        return jc_options_misuse(command, "--since %s %s: write %s", text, wrong,
                                 JC_MOMENT_FORMS);
    scope->since = text;
    return JC_STATUS_DONE;
}

int jc_scope_pid(struct jc_scope *scope, const struct jc_command *command, const char *text)
{
    char *end;
    errno = 0;
    long pid = strtol(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || pid <= 0 || pid > INT32_MAX)
        return jc_options_misuse(command, "--pid %s: write a process's number", text);
    scope->pid = (int) pid;
    return JC_STATUS_DONE;
}

int jc_scope_read(const struct jc_scope *scope, struct jc_context *context,
                  struct jc_stats **stats)
{
    struct jc_error error;
    enum jc_result result = jc_stats_read(
        context,
        jc_stats_params(.scope = JC_STATS_CACHE, .since_ms = scope->since_ms, .pid = scope->pid,
                        .fold = true),
        stats, &error);
    return result ? jc_session_complain(error.text) : JC_STATUS_DONE;
}
