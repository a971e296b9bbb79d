// Compiles every variant of a template for one architecture: prewarm FILE [ARCH]
//
//   cc prewarm.c $(pkg-config --cflags --libs jitcache) -o prewarm
//
// On a machine without a GPU, such as the one that builds a container image. Run it twice: the
// second time everything is a hit.

#include <stdio.h>
#include <stdlib.h>

#include <jitcache/jitcache.h>

static bool show(void *user, const struct jc_prewarm_event *event)
{
    (void) user;
    if (event->outcome == JC_PREWARM_UNDERWAY)
        return true; // here a program could stop it
    static const char *const outcomes[] = {"hit", "compiled", "missing", "failed"};
    printf("%zu/%zu %s, %.1f ms\n%s%s", event->done, event->planned, outcomes[event->outcome],
           (double) event->elapsed_ns / 1e6, event->variant->specialization, event->message);
    return true;
}

int main(int argc, char **argv)
{
    struct jc_template *tmpl = NULL;
    struct jc_plan *plan = NULL;
    struct jc_context *context = NULL;
    struct jc_prewarm_report report = {0};
    struct jc_error error = {0};
    const char *arch = argc > 2 ? argv[2] : "9.0";

    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE [ARCH]\n", argv[0]);
        return 2;
    }
    if (jc_template_create(jc_template_params(.file = argv[1]), &tmpl, &error) == JC_OK
        && jc_plan_create(tmpl, NULL, &plan, &error) == JC_OK
        && jc_context_create(NULL, &context, &error) == JC_OK
        && jc_context_prewarm(context, plan,
                              jc_prewarm_params(.capabilities = &arch, .num_capabilities = 1,
                                                .progress = show),
                              &report, &error) == JC_OK)
        printf("%s: %zu compiled, %zu were there, %zu failed\n", jc_template_name(tmpl),
               report.compiled, report.hits, report.failed);
    else
        fprintf(stderr, "%s\n", error.text);

    jc_context_destroy(&context);
    jc_plan_destroy(&plan);
    jc_template_destroy(&tmpl);
    return error.text[0] || report.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
