// The shipped kernels on a real GPU, launched through the library and compared with float64 on the
// CPU: kernels TEMPLATES [--quick]
//
// --quick leaves the large cases out, for compute-sanitizer. On the simulated driver, which
// computes nothing, all but the comparison is tested.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "kernels.h"
#include "shipped.h"

// One session for all tests: what one has loaded is there for the next.
static int set_up(void **state)
{
    int status = session_set_up(state);
    if (status == 0)
        shipped_prewarm(*state);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s TEMPLATES [--quick]\n", argv[0]);
        return 2;
    }
    shipped_folder = argv[1];
    shipped_quick = argc > 2 && strcmp(argv[2], "--quick") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_any_count_of_tokens_are_right),
        cmocka_unit_test(heads_of_every_kind_are_right),
        cmocka_unit_test(heads_in_slices_are_right),
        cmocka_unit_test(heads_in_every_cell_are_right),
        cmocka_unit_test(heads_at_every_boundary_of_the_dispatch_are_right),
        cmocka_unit_test(heads_of_random_shapes_are_right),
        cmocka_unit_test(many_tokens_are_right),
        cmocka_unit_test(more_tokens_than_the_range_says_are_right),
        cmocka_unit_test(rows_of_any_count_of_tokens_are_right),
        cmocka_unit_test(rows_in_slices_are_right),
        cmocka_unit_test(rows_in_every_cell_are_right),
        cmocka_unit_test(rows_at_every_boundary_of_the_dispatch_are_right),
        cmocka_unit_test(rows_of_random_shapes_are_right),
        cmocka_unit_test(a_kernel_that_does_not_wait_is_caught),
        cmocka_unit_test(heads_wait_for_the_kernel_before_them),
        cmocka_unit_test(rows_wait_for_the_kernel_before_them),
    };
    if (!gpu_open())
        return 77;
    return cmocka_run_group_tests(tests, set_up, session_tear_down);
}
