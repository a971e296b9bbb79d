// Quantizing stretches of 512 bfloat16 values: FP8 in groups of 128, each with a power of two as
// its scale. Shared by the templates beside it; docs/kernels.md tells how it came to be as it is.
//
// A block has four warps, each of which takes one token, and of it one stretch or several. A lane
// holds two chunks of eight values, 256 apart, so that a warp reads and writes whole lines; each
// half of the warp holds one group of the first chunks and one of the second.

#ifndef FP8_GROUP_CUH
#define FP8_GROUP_CUH

using i64 = long long;
using u32 = unsigned int;

constexpr int CHUNK = 8;         // 16 bytes of bf16, 8 of e4m3
constexpr int HALF = 32 * CHUNK; // what a warp's first chunks cover
constexpr int STRETCH = 2 * HALF;
constexpr int GROUP = 128;
constexpr int GROUPS = STRETCH / GROUP;
constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr u32 ALL_LANES = 0xffffffffu;

struct alignas(16) Word4 {
    u32 word[4];
};

struct alignas(8) Word2 {
    u32 word[2];
};

// With programmatic dependent launch a kernel begins while the one before it ends: waits until what
// that has written can be read. Then the next one may begin; let in earlier, it was seen to slow
// this one down.
static __device__ void wait_for_kernel_before()
{
#if JC_PARAM(programmatic)
    static_assert(__CUDA_ARCH__ >= 900, "programmatic: needs compute capability 9.0");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ bool is_aligned(const void *pointer, int bytes)
{
    return (reinterpret_cast<unsigned long long>(pointer) & (bytes - 1)) == 0;
}

// --- values --------------------------------------------------------------------------------------

// 16 bytes, and `volatile` so that loads are issued in the order in which they are written: all of
// the values first, then what is fetched by an index.
static __device__ Word4 load_words(const void *from)
{
    Word4 words;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.word[0]), "=r"(words.word[1]), "=r"(words.word[2]),
                   "=r"(words.word[3])
                 : "l"(from));
    return words;
}

// Eight bf16 values as they lie in memory, with one load where `vector` says that the address
// allows it. Unpacked later, when all loads are under way.
static __device__ Word4 load_chunk(const unsigned short *from, bool vector)
{
    if (vector)
        return load_words(from);
    Word4 words;
    for (int i = 0; i < CHUNK / 2; i++)
        words.word[i] = from[2 * i] | static_cast<u32>(from[2 * i + 1]) << 16;
    return words;
}

static __device__ void unpack(float (&x)[CHUNK], const Word4 &words)
{
    for (int i = 0; i < CHUNK / 2; i++) {
        x[2 * i] = __uint_as_float(words.word[i] << 16);
        x[2 * i + 1] = __uint_as_float(words.word[i] & 0xffff0000u);
    }
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

// --- scales --------------------------------------------------------------------------------------

// The biased exponent of the smallest power of two s with 448 * s >= the largest magnitude, which
// counts as 1e-10 at least. 448, the largest e4m3 number, is 1.75 * 2^8: a fraction above 0.75
// carries into the exponent, exactly.
static __device__ u32 scale_exponent(const float (&x)[CHUNK])
{
    float largest[CHUNK / 2];
    for (int i = 0; i < CHUNK / 2; i++)
        largest[i] = fmaxf(fabsf(x[i]), fabsf(x[i + CHUNK / 2]));
    largest[0] = fmaxf(largest[0], largest[2]);
    largest[1] = fmaxf(largest[1], largest[3]);
    float most = fmaxf(fmaxf(largest[0], largest[1]), 1e-10f);
    return ((__float_as_uint(most) + 0x1fffffu) >> 23) - 8;
}

// Makes the exponents of a lane's two chunks those of their groups, and returns all four of the
// stretch, the first in the low byte. The whole warp takes part.
static __device__ u32 share_exponents(u32 &first, u32 &second)
{
    bool low = threadIdx.x < 16;
    u32 group0 = __reduce_max_sync(ALL_LANES, low ? first : 0);
    u32 group1 = __reduce_max_sync(ALL_LANES, low ? 0 : first);
    u32 group2 = __reduce_max_sync(ALL_LANES, low ? second : 0);
    u32 group3 = __reduce_max_sync(ALL_LANES, low ? 0 : second);
    first = low ? group0 : group1;
    second = low ? group2 : group3;
    return group0 | group1 << 8 | group2 << 16 | group3 << 24;
}

// A scale of 0 for exponents of 0.
static __device__ void store_scale(void *scales, i64 stretch, int group, i64 token,
                                   i64 scale_stride_k, u32 exponents)
{
#if JC_PARAM(scale_format) == JC_VALUE(scale_format, fp32)
    static_cast<float *>(scales)[(stretch * GROUPS + group) * scale_stride_k + token] =
        __uint_as_float((exponents >> (8 * group) & 0xffu) << 23);
#else
    static_cast<u32 *>(scales)[stretch * scale_stride_k + token] = exponents;
#endif
}

// Stores the scales of a block's TOKENS tokens. Those of a stretch lie with the token index
// contiguous: they come together in shared memory, so that threads side by side store tokens side
// by side. `exponents` are those of the warp's token and stretches, 0 where there is no token;
// `groups` is how many groups a token has. Nothing is stored past the padding. The whole block
// takes part.
template <int TOKENS, int STRETCHES>
static __device__ void store_scales(void *scales, int first_stretch, int first_token, int groups,
                                    i64 scale_stride_k, const u32 (&exponents)[STRETCHES])
{
    constexpr int BLOCK_STRETCHES = WARPS / TOKENS * STRETCHES;
    constexpr int STORES = JC_PARAM(scale_format) == JC_VALUE(scale_format, fp32) ? GROUPS : 1;
    int lane = threadIdx.x, own = threadIdx.y / TOKENS * STRETCHES;
    if (TOKENS == 1) { // nothing to bring together
        for (int i = 0; i < STRETCHES; i++)
            if (lane < STORES && (first_stretch + own + i) * GROUPS + lane < groups &&
                first_token < scale_stride_k)
                store_scale(scales, first_stretch + own + i, lane, first_token, scale_stride_k,
                            exponents[i]);
        return;
    }

    __shared__ u32 shared[BLOCK_STRETCHES][TOKENS];
    if (lane == 0)
        for (int i = 0; i < STRETCHES; i++)
            shared[own + i][threadIdx.y % TOKENS] = exponents[i];
    __syncthreads();
    static_assert(BLOCK_STRETCHES * STORES * TOKENS <= THREADS, "a thread stores one scale");
    int thread = threadIdx.y * 32 + lane, token = first_token + thread % TOKENS;
    int group = thread / TOKENS % STORES, stretch = thread / TOKENS / STORES;
    if (stretch < BLOCK_STRETCHES && (first_stretch + stretch) * GROUPS + group < groups &&
        token < scale_stride_k)
        store_scale(scales, first_stretch + stretch, group, token, scale_stride_k,
                    shared[stretch][thread % TOKENS]);
}

#endif
