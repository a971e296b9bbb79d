/*jitcache
kernel: row_softmax
pch: true
parameters:
  - name: THREADS
    type: int
    dispatch:
      - {when: columns <= 128, value: 32}
      - {when: columns <= 256, value: 64}
      - {when: columns <= 384, value: 96}
      - {when: columns <= 512, value: 128}
      - {when: columns <= 768, value: 192}
      - {when: columns <= 1024, value: 256}
      - {when: columns <= 1536, value: 384}
      - {value: 512}
arguments:
  - {name: to, type: f32*}
  - {name: from, type: const f32*}
  - {name: rows, type: i32, do_not_specialize: true, range: [1, 65536]}
  - {name: columns, type: i32, do_not_specialize: true, range: [1, 2048]}
fallback: {THREADS: 512}
launch: {grid: [rows], block: [THREADS]}
*/

// A kernel as others write them, on headers that take many times longer to read than it does.

#include <cooperative_groups.h>
#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_store.cuh>
#include <cuda/std/cmath>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda/std/span>

#include <jitcache.cuh>

constexpr int ITEMS = 4; // of one thread: 2048 columns are the most

struct Larger {
    __device__ float operator()(float a, float b) const { return a < b ? b : a; }
};

// The result of a block's reduction, which one thread has, for all of them.
static __device__ float share(float value)
{
    __shared__ float shared;
    namespace groups = cooperative_groups;
    groups::thread_block block = groups::this_thread_block();
    if (block.thread_rank() == 0)
        shared = value;
    block.sync();
    float result = shared;
    block.sync();
    return result;
}

// One block for one row.
extern "C" __global__ void row_softmax(float *to, const float *from, int rows, int columns)
{
    constexpr int THREADS = JC_PARAM(THREADS);
    using Load = cub::BlockLoad<float, THREADS, ITEMS, cub::BLOCK_LOAD_STRIPED>;
    using Store = cub::BlockStore<float, THREADS, ITEMS, cub::BLOCK_STORE_STRIPED>;
    using Reduce = cub::BlockReduce<float, THREADS>;
    __shared__ typename Reduce::TempStorage storage;

    cuda::std::int64_t offset = static_cast<cuda::std::int64_t>(blockIdx.x) * columns;
    float row[ITEMS];
    Load().Load(from + offset, row, columns, -cuda::std::numeric_limits<float>::infinity());

    float largest = share(Reduce(storage).Reduce(row, Larger()));
    float sum = 0;
    for (float &value : cuda::std::span<float, ITEMS>(row)) {
        value = cuda::std::exp(value - largest);
        sum += value;
    }
    sum = share(Reduce(storage).Sum(sum));
    for (float &value : row)
        value /= sum;
    Store().Store(to + offset, row, columns);
}
