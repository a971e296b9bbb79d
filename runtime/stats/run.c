#include "run.h"

#include <stdlib.h>

#include "cache/report.h"

struct jc_run {
    pthread_mutex_t mutex;
    struct jc_tallies tallies;
};

enum jc_result jc_run_create(const struct jc_run_params *params, struct jc_run **out,
                             struct jc_error *error)
{
    struct jc_run *run = calloc(1, sizeof(*run));
    (void) params;
    *out = run;
    if (!run)
        return jc_fail_memory(error);
    pthread_mutex_init(&run->mutex, NULL);
    return JC_OK;
}
void jc_run_destroy(struct jc_run **out)
{
    struct jc_run *run = *out;
    *out = NULL;
    if (!run)
        return;
    jc_tallies_finish(&run->tallies);
    pthread_mutex_destroy(&run->mutex);
    free(run);
}
enum jc_result jc_run_join(struct jc_run *run, struct jc_kernel *kernel, struct jc_member *member,
                           struct jc_error *error)
{
    pthread_mutex_lock(&run->mutex);
    member->kernel = kernel;
    member->cell = jc_tallies_take(&run->tallies);
    pthread_mutex_unlock(&run->mutex);
    return member->cell ? JC_OK : jc_fail_memory(error);
}
void jc_run_leave(struct jc_run *run, struct jc_member *member)
{
    pthread_mutex_lock(&run->mutex);
    jc_tallies_give(&run->tallies, member->cell);
    pthread_mutex_unlock(&run->mutex);
}
void jc_run_visit(struct jc_run *run, void (*each)(void *user, struct jc_kernel *kernel),
                  void *user)
{
    (void) run; (void) each; (void) user;
}
void jc_run_count(struct jc_run *run, const char *kernel, int device,
                  const struct jc_counts *counts)
{
    (void) run; (void) kernel; (void) device; (void) counts;
}
void jc_run_tell(struct jc_run *run, const struct jc_event *event) { (void) run; (void) event; }
void jc_run_count_safe_point(struct jc_run *run, uint64_t elapsed_ns)
{
    (void) run; (void) elapsed_ns;
}
void jc_run_sheet(struct jc_run *run, struct jc_sheet *sheet) { (void) run; (void) sheet; }
