/*jitcache
kernel: fused_inv_rope_fp8_quant
parameters:
  - {name: heads_per_group, type: int, default: 8}
  - {name: scale_format, type: enum, values: [fp32, ue8m0], default: fp32}
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
  - {name: scale_stride_group, type: i64,
     derive: heads_per_group * scale_stride_k * (1 + 3 * (scale_format == fp32))}
  - {name: scale_stride_k, type: i64, derive: "align(num_tokens, 4)", do_not_specialize: true}
launch: {grid: [scale_stride_k / 4, heads, 1], block: [32, 4, 1]}
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

#include <jitcache.cuh>

#include "fp8_group.cuh"

constexpr int HEAD_DIM = 512;
constexpr int ROPE_DIM = 64;
constexpr int PAIRS = CHUNK / 2;
constexpr int FIRST_ROPE_LANE = (HEAD_DIM - ROPE_DIM - HALF_ROW) / CHUNK; // in the second half

static __device__ void load_angles(float (&x)[PAIRS], const float *from, bool vector)
{
    if (vector) {
        Word4 words = *reinterpret_cast<const Word4 *>(from);
        for (int i = 0; i < PAIRS; i++)
            x[i] = __uint_as_float(words.word[i]);
    } else {
        for (int i = 0; i < PAIRS; i++)
            x[i] = from[i];
    }
}

// Turns interleaved pairs (even, odd) back by the angle of their position.
static __device__ void rotate_back(float (&x)[CHUNK], const float *angles, bool vector)
{
    float cosine[PAIRS], sine[PAIRS];
    load_angles(cosine, angles, vector);
    load_angles(sine, angles + ROPE_DIM / 2, vector);
    for (int i = 0; i < PAIRS; i++) {
        float even = x[2 * i], odd = x[2 * i + 1];
        x[2 * i] = even * cosine[i] + odd * sine[i];
        x[2 * i + 1] = odd * cosine[i] - even * sine[i];
    }
}

// One warp for one token and head; a block holds four tokens, whose scales lie side by side.
extern "C" __global__ void __launch_bounds__(128)
fused_inv_rope_fp8_quant(const unsigned short *__restrict__ o, const i64 *__restrict__ positions,
                         const float *__restrict__ cos_sin_cache,
                         unsigned char *__restrict__ fp8_out, void *__restrict__ scale_out,
                         int num_tokens, int heads, i64 o_stride_token, i64 o_stride_head,
                         i64 fp8_stride_group, i64 scale_stride_group, i64 scale_stride_k)
{
    JC_FACT(o);
    JC_FACT(cos_sin_cache);
    JC_FACT(fp8_out);
    JC_FACT(num_tokens);
    JC_FACT(o_stride_token);
    JC_FACT(o_stride_head);
    JC_FACT(fp8_stride_group);
    JC_FACT(scale_stride_k);

    constexpr int heads_per_group = JC_PARAM(heads_per_group);
    constexpr i64 scale_bytes = 4;
    int lane = threadIdx.x;
    i64 token = static_cast<i64>(blockIdx.x) * 4 + threadIdx.y;
    int head = blockIdx.y;
    int group = head / heads_per_group;
    int head_in_group = head % heads_per_group;
    char *scales = static_cast<char *>(scale_out) + group * scale_stride_group * scale_bytes;

    if (token >= num_tokens) {
        store_scales(scales, head_in_group, scale_stride_k, token, 0, 0, GROUPS);
        return;
    }

    const unsigned short *from = o + token * o_stride_token + head * o_stride_head + lane * CHUNK;
    bool vector = is_aligned(o, 16) && o_stride_token % CHUNK == 0 && o_stride_head % CHUNK == 0;
    float first[CHUNK], second[CHUNK];
    load_chunk(first, from, vector);
    load_chunk(second, from + HALF_ROW, vector);

    if (lane >= FIRST_ROPE_LANE) {
        const float *angles = cos_sin_cache + positions[token] * ROPE_DIM +
                              (lane - FIRST_ROPE_LANE) * PAIRS;
        rotate_back(second, angles, is_aligned(cos_sin_cache, 16));
    }

    u32 first_exponent = scale_exponent(group_max(first));
    u32 second_exponent = scale_exponent(group_max(second));
    unsigned char *to = fp8_out + group * fp8_stride_group +
                        (token * heads_per_group + head_in_group) * HEAD_DIM + lane * CHUNK;
    store_chunk(to, first, first_exponent, is_aligned(fp8_out, 8));
    store_chunk(to + HALF_ROW, second, second_exponent, is_aligned(fp8_out, 8));
    store_scales(scales, head_in_group, scale_stride_k, token, first_exponent, second_exponent,
                 GROUPS);
}
