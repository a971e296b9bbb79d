// The tests of the shipped kernels, by kernel. They share one session, whose cache has all that
// they launch.

#ifndef TEST_GPU_KERNELS_H
#define TEST_GPU_KERNELS_H

// rope.c: fused_inv_rope_fp8_quant
void heads_of_any_count_of_tokens_are_right(void **state);
void heads_of_every_kind_are_right(void **state);
void heads_in_slices_are_right(void **state);
void heads_in_every_cell_are_right(void **state);
void heads_at_every_boundary_of_the_dispatch_are_right(void **state);
void heads_of_random_shapes_are_right(void **state);
void many_tokens_are_right(void **state);
void more_tokens_than_the_range_says_are_right(void **state);

// silu.c: silu_mul_fp8_quant
void rows_of_any_count_of_tokens_are_right(void **state);
void rows_in_slices_are_right(void **state);
void rows_in_every_cell_are_right(void **state);
void rows_at_every_boundary_of_the_dispatch_are_right(void **state);
void rows_of_random_shapes_are_right(void **state);

// overlap.c: programmatic dependent launch
void a_kernel_that_does_not_wait_is_caught(void **state);
void heads_wait_for_the_kernel_before_them(void **state);
void rows_wait_for_the_kernel_before_them(void **state);

#endif
