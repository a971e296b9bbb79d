/*jitcache
kernel: silu_mul_fp8_quant
parameters:
  - {name: scale_format, type: enum, values: [fp32, ue8m0], default: fp32}
  - {name: programmatic, type: bool, default: false}
arguments:
  - {name: input, type: const bf16*}
  - {name: fp8_out, type: e4m3*}
  - {name: scale_out, type: void*}
  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 1048576]}
  - {name: hidden, type: i32, typical: 2048}
  - {name: input_stride, type: i64, typical: 4096}
  - {name: scale_stride_k, type: i64, derive: "align(num_tokens, 4)", do_not_specialize: true}
# Blocks side by side take columns side by side, 512 each.
launch:
  grid:
    - ceildiv(hidden, 512)
    - min(scale_stride_k / 4, 65535)
    - ceildiv(scale_stride_k / 4, 65535)
  block: [32, 4, 1]
  programmatic: programmatic
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
//
// programmatic: launched with programmatic dependent launch (compute capability 9.0), the kernel
// may begin while the one before it ends; it reads and writes nothing before that has ended.

#include <jitcache.cuh>

#include "fp8_group.cuh"

constexpr int TOKENS = WARPS; // of a block

// Turns eight gates into eight products: each step for all of them, so that none waits for another.
static __device__ void multiply(float (&x)[CHUNK], const Word4 &gates, const Word4 &ups)
{
    float up[CHUNK], divisor[CHUNK];
    unpack(x, gates);
    unpack(up, ups);
    for (int i = 0; i < CHUNK; i++)
        divisor[i] = 1.0f + __expf(-x[i]);
    for (int i = 0; i < CHUNK; i++)
        x[i] = __fdividef(x[i], divisor[i]) * up[i];
}

extern "C" __global__ void __launch_bounds__(THREADS)
silu_mul_fp8_quant(const unsigned short *input, unsigned char *fp8_out, void *scale_out,
                   int num_tokens, int hidden, i64 input_stride, i64 scale_stride_k)
{
    JC_FACT(input);
    JC_FACT(fp8_out);
    JC_FACT(num_tokens);
    JC_FACT(hidden);
    JC_FACT(input_stride);
    JC_FACT(scale_stride_k);

    int tile = blockIdx.z * gridDim.y + blockIdx.y, stretch = blockIdx.x;
    int token = tile * TOKENS + threadIdx.y;
    int column = stretch * STRETCH + threadIdx.x * CHUNK;
    bool inside[2] = {column < hidden, column + HALF < hidden};
    u32 exponents[1] = {};

    wait_for_kernel_before();
    if (token < num_tokens) {
        const unsigned short *from = input + token * input_stride + column;
        bool vector = is_aligned(input, 16) && input_stride % CHUNK == 0;
        Word4 gates[2] = {}, ups[2] = {};
        for (int i = 0; i < 2; i++) {
            if (inside[i]) {
                gates[i] = load_chunk(from + i * HALF, vector);
                ups[i] = load_chunk(from + hidden + i * HALF, vector);
            }
        }

        float x[2][CHUNK];
        u32 exponent[2];
        for (int i = 0; i < 2; i++) {
            multiply(x[i], gates[i], ups[i]);
            exponent[i] = inside[i] ? scale_exponent(x[i]) : 0;
        }
        exponents[0] = share_exponents(exponent[0], exponent[1]);
        unsigned char *to = fp8_out + static_cast<i64>(token) * hidden + column;
        for (int i = 0; i < 2; i++)
            if (inside[i])
                store_chunk(to + i * HALF, x[i], exponent[i], is_aligned(fp8_out, 8));
    }
    store_scales<TOKENS>(scale_out, stretch, tile * TOKENS, hidden / GROUP, scale_stride_k,
                         exponents);
}
