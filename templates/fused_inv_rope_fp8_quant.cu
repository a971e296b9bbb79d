/*jitcache
kernel: fused_inv_rope_fp8_quant
parameters:
  - {name: heads_per_group, type: int, default: 8}
  - {name: scale_format, type: enum, values: [fp32, ue8m0], default: fp32}
  - {name: programmatic, type: bool, default: false}
  - name: tokens_per_block
    values: [1, 4]
    dispatch:
      - {when: num_tokens * heads <= 2048, value: 1}
      - {value: 4}
  - name: heads_per_warp
    values: [1, 4]
    dispatch:
      - {when: num_tokens * heads <= 131072, value: 1}
      - {value: 4}
fallback: {tokens_per_block: 4, heads_per_warp: 1}
arguments:
  - {name: o, type: const bf16*}
  - {name: positions, type: const i64*}
  - {name: cos_sin_cache, type: const f32*}
  - {name: fp8_out, type: e4m3*}
  - {name: scale_out, type: void*}
  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 1048576]}
  - {name: heads, type: i32, typical: 64}
  - {name: o_stride_token, type: i64, typical: 32768}
  - {name: o_stride_head, type: i64, typical: 512}
  - {name: fp8_stride_group, type: i64, derive: num_tokens * heads_per_group * 512}
  - {name: scale_stride_k, type: i64, derive: "align(num_tokens, 4)", do_not_specialize: true}
# Blocks side by side take tokens side by side; those of four heads a warp, heads side by side.
launch:
  grid:
    - (heads_per_warp == 1) * (scale_stride_k / tokens_per_block)
      + (heads_per_warp > 1) * ceildiv(heads, 4 / tokens_per_block * heads_per_warp)
    - (heads_per_warp == 1) * ceildiv(heads, 4 / tokens_per_block)
      + (heads_per_warp > 1) * min(scale_stride_k / tokens_per_block, 65535)
    - (heads_per_warp == 1)
      + (heads_per_warp > 1) * ceildiv(scale_stride_k / tokens_per_block, 65535)
  block: [32, 4, 1]
  programmatic: programmatic
*/

// Undoes the rotary embedding on the last 64 of each head's 512 values and quantizes the head to
// FP8 in groups of 128, as the grouped output projection of an MLA layer wants it.
//
//   o              bf16 [num_tokens][heads][512]; strides in elements, the last dimension
//                  contiguous
//   positions      i64 [num_tokens]
//   cos_sin_cache  f32 [positions][64]: 32 cosines, then 32 sines
//   fp8_out        e4m3 [groups][num_tokens][heads_per_group * 512],
//                  groups = heads / heads_per_group
//   scale_out      for each group its scales with the token index contiguous and padded to a
//                  multiple of 4 (scale_stride_k). fp32: f32 [4 * heads_per_group][scale_stride_k].
//                  ue8m0: u32 [heads_per_group][scale_stride_k], the four exponents of a head in
//                  one word, the first in the low byte. Padding rows get scales of 0.
//
// A scale is the smallest power of two for which the group's largest magnitude, taken as at least
// 1e-10, fits in 448, the largest e4m3 number.
//
// programmatic: launched with programmatic dependent launch (compute capability 9.0), the kernel
// may begin while the one before it ends; it reads and writes nothing before that has ended.

#include <jitcache.cuh>

#include "fp8_group.cuh"

constexpr int ROPE_DIM = 64;
constexpr int PAIRS = CHUNK / 2;
constexpr int FIRST_ROPE_LANE = (STRETCH - ROPE_DIM - HALF) / CHUNK; // of the second chunks

static_assert(JC_PARAM(heads_per_group) > 0 && JC_PARAM(heads_per_group) <= 0x7fffffff,
              "heads_per_group is how many heads an output group has: at least 1");
constexpr int HEADS_PER_GROUP = JC_PARAM(heads_per_group);
constexpr int TOKENS = JC_PARAM(tokens_per_block);
constexpr int HEADS = JC_PARAM(heads_per_warp);
constexpr int BLOCK_HEADS = WARPS / TOKENS * HEADS;

// What a multiprocessor can hold; elsewhere it is 1536.
#if __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
constexpr int MOST_THREADS = 2048;
#else
constexpr int MOST_THREADS = 1536;
#endif

// How many blocks are to fit on a multiprocessor: all the warps that it can hold, and fewer where
// each has the loads of several heads under way and needs the registers.
constexpr int BLOCKS = (HEADS == 1 ? MOST_THREADS : 768) / THREADS;

struct Angles {
    float cosine[PAIRS], sine[PAIRS];
};

static __device__ void load_angles(float (&x)[PAIRS], const float *from, bool vector)
{
    if (vector) {
        Word4 words = load_words(from);
        for (int i = 0; i < PAIRS; i++)
            x[i] = __uint_as_float(words.word[i]);
    } else {
        for (int i = 0; i < PAIRS; i++)
            x[i] = from[i];
    }
}

static __device__ i64 load_position(const i64 *from)
{
    i64 position;
    asm volatile("ld.global.s64 %0, [%1];" : "=l"(position) : "l"(from));
    return position;
}

// Turns interleaved pairs (even, odd) back by the angle of their position.
static __device__ void rotate_back(float (&x)[CHUNK], const Angles &angles)
{
    for (int i = 0; i < PAIRS; i++) {
        float even = x[2 * i], odd = x[2 * i + 1];
        x[2 * i] = even * angles.cosine[i] + odd * angles.sine[i];
        x[2 * i + 1] = odd * angles.cosine[i] - even * angles.sine[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
fused_inv_rope_fp8_quant(const unsigned short *o, const i64 *positions, const float *cos_sin_cache,
                         unsigned char *fp8_out, void *scale_out, int num_tokens, int heads,
                         i64 o_stride_token, i64 o_stride_head, i64 fp8_stride_group,
                         i64 scale_stride_k)
{
    JC_FACT(o);
    JC_FACT(cos_sin_cache);
    JC_FACT(fp8_out);
    JC_FACT(num_tokens);
    JC_FACT(o_stride_token);
    JC_FACT(o_stride_head);
    JC_FACT(fp8_stride_group);
    JC_FACT(scale_stride_k);

    bool heads_first = HEADS > 1;
    int tile = heads_first ? blockIdx.z * gridDim.y + blockIdx.y : blockIdx.x;
    int block_head = (heads_first ? blockIdx.x : blockIdx.y) * BLOCK_HEADS;
    int head = block_head + threadIdx.y / TOKENS * HEADS;
    int token = tile * TOKENS + threadIdx.y % TOKENS;
    int lane = threadIdx.x;
    u32 exponents[HEADS] = {};

    wait_for_kernel_before();
    if (token < num_tokens) {
        const unsigned short *from =
            o + token * o_stride_token + head * o_stride_head + lane * CHUNK;
        bool vector =
            is_aligned(o, 16) && o_stride_token % CHUNK == 0 && o_stride_head % CHUNK == 0;
        Word4 words[HEADS][2];
#pragma unroll
        for (int i = 0; i < HEADS; i++) {
            if (head + i < heads) {
                words[i][0] = load_chunk(from + i * o_stride_head, vector);
                words[i][1] = load_chunk(from + i * o_stride_head + HALF, vector);
            }
        }

        Angles angles;
        if (lane >= FIRST_ROPE_LANE) {
            const float *row = cos_sin_cache + load_position(positions + token) * ROPE_DIM;
            bool aligned = is_aligned(cos_sin_cache, 16);
            row += (lane - FIRST_ROPE_LANE) * PAIRS;
            load_angles(angles.cosine, row, aligned);
            load_angles(angles.sine, row + ROPE_DIM / 2, aligned);
        }

        unsigned char *to_token =
            fp8_out + static_cast<i64>(token) * HEADS_PER_GROUP * STRETCH + lane * CHUNK;
#pragma unroll
        for (int i = 0; i < HEADS; i++) {
            if (head + i >= heads)
                break;
            float first[CHUNK], second[CHUNK];
            unpack(first, words[i][0]);
            unpack(second, words[i][1]);
            if (lane >= FIRST_ROPE_LANE)
                rotate_back(second, angles);
            u32 first_exponent = scale_exponent(first), second_exponent = scale_exponent(second);
            exponents[i] = share_exponents(first_exponent, second_exponent);
            unsigned char *to = to_token + (head + i) / HEADS_PER_GROUP * fp8_stride_group +
                                (head + i) % HEADS_PER_GROUP * STRETCH;
            store_chunk(to, first, first_exponent, is_aligned(fp8_out, 8));
            store_chunk(to + HALF, second, second_exponent, is_aligned(fp8_out, 8));
        }
    }
    store_scales<TOKENS>(scale_out, block_head, tile * TOKENS, heads * GROUPS, scale_stride_k,
                         exponents);
}
