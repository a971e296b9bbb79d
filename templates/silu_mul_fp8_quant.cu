/*jitcache
kernel: silu_mul_fp8_quant
parameters:
  - {name: scale_format, type: enum, values: [fp32, ue8m0], default: fp32}
arguments:
  - {name: input, type: const bf16*}
  - {name: fp8_out, type: e4m3*}
  - {name: scale_out, type: void*}
  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 1048576]}
  - {name: hidden, type: i32, typical: 2048}
  - {name: input_stride, type: i64, typical: 4096}
  - {name: scale_stride_k, type: i64, derive: "align(num_tokens, 4)", do_not_specialize: true}
launch: {grid: [scale_stride_k / 4, "ceildiv(hidden, 512)", 1], block: [32, 4, 1]}
*/

// The activation between the two GEMMs of a gated MLP: SiLU of the first half of each row times the
// second half, quantized to FP8 in groups of 128.
//
//   input      bf16 [num_tokens][2 * hidden], gate then up; input_stride in elements, the last
//              dimension contiguous; hidden is a multiple of 128
//   fp8_out    e4m3 [num_tokens][hidden]
//   scale_out  the token index contiguous and padded to a multiple of 4 (scale_stride_k).
//              fp32: f32 [hidden / 128][scale_stride_k]. ue8m0: u32 [ceil(hidden / 512)]
//              [scale_stride_k], four exponents in a word, the first in the low byte, those past
//              the end 0. Padding rows get scales of 0.
//
// A scale is the smallest power of two for which the group's largest magnitude, taken as at least
// 1e-10, fits in 448, the largest e4m3 number.

#include <jitcache.cuh>

#include "fp8_group.cuh"

static __device__ float silu(float x)
{
    return x / (1.0f + __expf(-x));
}

// Eight products of a row, or zeros where the row has ended.
static __device__ void load_products(float (&x)[CHUNK], const unsigned short *gate, int hidden,
                                     bool inside, bool vector)
{
    float up[CHUNK];
    if (inside) {
        load_chunk(x, gate, vector);
        load_chunk(up, gate + hidden, vector);
    }
    for (int i = 0; i < CHUNK; i++)
        x[i] = inside ? silu(x[i]) * up[i] : 0.0f;
}

// One warp for 512 columns of one token; a block holds four tokens, whose scales lie side by side.
extern "C" __global__ void __launch_bounds__(128)
silu_mul_fp8_quant(const unsigned short *__restrict__ input, unsigned char *__restrict__ fp8_out,
                   void *__restrict__ scale_out, int num_tokens, int hidden, i64 input_stride,
                   i64 scale_stride_k)
{
    JC_FACT(input);
    JC_FACT(fp8_out);
    JC_FACT(num_tokens);
    JC_FACT(hidden);
    JC_FACT(input_stride);
    JC_FACT(scale_stride_k);

    constexpr int GROUP_SIZE = 128;
    i64 token = static_cast<i64>(blockIdx.x) * 4 + threadIdx.y;
    int stretch = blockIdx.y;
    int first_column = stretch * 2 * HALF_ROW + threadIdx.x * CHUNK;
    int second_column = first_column + HALF_ROW;
    int groups = min(GROUPS, (hidden - stretch * 2 * HALF_ROW) / GROUP_SIZE);

    if (token >= num_tokens) {
        store_scales(scale_out, stretch, scale_stride_k, token, 0, 0, groups);
        return;
    }

    const unsigned short *gate = input + token * input_stride;
    bool vector = is_aligned(input, 16) && input_stride % CHUNK == 0;
    float first[CHUNK], second[CHUNK];
    load_products(first, gate + first_column, hidden, first_column < hidden, vector);
    load_products(second, gate + second_column, hidden, second_column < hidden, vector);

    u32 first_exponent = scale_exponent(group_max(first));
    u32 second_exponent = scale_exponent(group_max(second));
    unsigned char *to = fp8_out + token * hidden;
    if (first_column < hidden)
        store_chunk(to + first_column, first, first_exponent, is_aligned(fp8_out, 8));
    if (second_column < hidden)
        store_chunk(to + second_column, second, second_exponent, is_aligned(fp8_out, 8));
    store_scales(scale_out, stretch, scale_stride_k, token, first_exponent, second_exponent,
                 groups);
}
