// Quantizing 512 bfloat16 values with one warp: FP8 in groups of 128, each with a power of two as
// its scale. Shared by the templates beside it.
//
// A lane holds two chunks of eight values, 256 apart, so that a warp reads and writes whole lines;
// each half of the warp holds one group of the first chunks and one of the second.

#ifndef FP8_GROUP_CUH
#define FP8_GROUP_CUH

using i64 = long long;
using u32 = unsigned int;

constexpr int CHUNK = 8;              // 16 bytes of bf16, 8 of e4m3
constexpr int HALF_ROW = 32 * CHUNK;  // what a warp's first chunks cover
constexpr int GROUPS = 4;             // of 128 values in 512

struct alignas(16) Word4 {
    u32 word[4];
};

struct alignas(8) Word2 {
    u32 word[2];
};

static __device__ bool is_aligned(const void *pointer, int bytes)
{
    return (reinterpret_cast<unsigned long long>(pointer) & (bytes - 1)) == 0;
}

// Eight bf16 values, with one load where `vector` says that the address allows it.
static __device__ void load_chunk(float (&x)[CHUNK], const unsigned short *from, bool vector)
{
    if (vector) {
        Word4 words = *reinterpret_cast<const Word4 *>(from);
        for (int i = 0; i < CHUNK / 2; i++) {
            x[2 * i] = __uint_as_float(words.word[i] << 16);
            x[2 * i + 1] = __uint_as_float(words.word[i] & 0xffff0000u);
        }
    } else {
        for (int i = 0; i < CHUNK; i++)
            x[i] = __uint_as_float(static_cast<u32>(from[i]) << 16);
    }
}

// The largest magnitude of the group of 128 that 16 lanes hold together, at least 1e-10.
static __device__ float group_max(const float (&x)[CHUNK])
{
    float largest = 1e-10f;
    for (int i = 0; i < CHUNK; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    for (int lanes = 8; lanes > 0; lanes /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
    return largest;
}

// The biased exponent of the smallest power of two s with 448 * s >= largest. 448, the largest e4m3
// number, is 1.75 * 2^8, so comparing the fraction with 0.75 decides, exactly.
static __device__ u32 scale_exponent(float largest)
{
    u32 bits = __float_as_uint(largest);
    return (bits >> 23) - 8 + ((bits & 0x7fffffu) > 0x600000u ? 1 : 0);
}

static __device__ u32 quantize_pair(float low, float high)
{
    unsigned short packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

// Divides by the scale with this exponent, rounds to the nearest e4m3, and stores.
static __device__ void store_chunk(unsigned char *to, const float (&x)[CHUNK], u32 exponent,
                                   bool vector)
{
    float inverse = __uint_as_float((254 - exponent) << 23);
    Word2 words;
    for (int i = 0; i < 2; i++) {
        words.word[i] = quantize_pair(x[4 * i] * inverse, x[4 * i + 1] * inverse);
        words.word[i] |= quantize_pair(x[4 * i + 2] * inverse, x[4 * i + 3] * inverse) << 16;
    }
    if (vector) {
        *reinterpret_cast<Word2 *>(to) = words;
    } else {
        for (int i = 0; i < CHUNK; i++)
            to[i] = static_cast<unsigned char>(words.word[i / 4] >> (8 * (i % 4)));
    }
}

// Stores the scales of one token's 512 values, the `row`th such stretch; of its four groups the
// first `groups` exist. `first` and `second` are the exponents of the lane's own two groups; 0
// makes a scale of 0. The whole warp takes part.
static __device__ void store_scales(void *scales, i64 row, i64 scale_stride_k, i64 token, u32 first,
                                    u32 second, int groups)
{
    int group = threadIdx.x % GROUPS;
    int source = (group & 1) * 16;
    u32 from_first = __shfl_sync(0xffffffffu, first, source);
    u32 from_second = __shfl_sync(0xffffffffu, second, source);
    u32 exponent = group & 2 ? from_second : from_first;
    if (group >= groups)
        exponent = 0;
#if JC_PARAM(scale_format) == JC_VALUE(scale_format, fp32)
    if (threadIdx.x < groups)
        static_cast<float *>(scales)[(GROUPS * row + group) * scale_stride_k + token] =
            __uint_as_float(exponent << 23);
#else
    u32 word = exponent << (8 * group);
    word |= __shfl_xor_sync(0xffffffffu, word, 1);
    word |= __shfl_xor_sync(0xffffffffu, word, 2);
    if (threadIdx.x == 0)
        static_cast<u32 *>(scales)[row * scale_stride_k + token] = word;
#endif
}

#endif
