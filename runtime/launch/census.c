#include "census.h"

#include <stdlib.h>

struct jc_census { const struct jc_template *tmpl; };
struct jc_census *jc_census_create(const struct jc_template *tmpl)
{
    struct jc_census *census = calloc(1, sizeof(*census));
    if (census)
        census->tmpl = tmpl;
    return census;
}
void jc_census_destroy(struct jc_census **census) { free(*census); *census = NULL; }
void jc_census_plan(struct jc_census *census, const struct jc_specialization *of)
{
    (void) census; (void) of;
}
void jc_census_ask(struct jc_census *census, const struct jc_specialization *wanted,
                   uint64_t now_ms)
{
    (void) census; (void) wanted; (void) now_ms;
}
void jc_census_report(const struct jc_census *census, const struct jc_storm *storm,
                      struct jc_sheet *sheet, struct jc_sheet_kernel *kernel)
{
    (void) census; (void) storm; (void) sheet; (void) kernel;
}
