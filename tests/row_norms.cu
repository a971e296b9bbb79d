/*jitcache
kernel: row_norms
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
  - {name: norms, type: f32*}
  - {name: from, type: const f32*}
  - {name: rows, type: i32, do_not_specialize: true, range: [1, 65536]}
  - {name: columns, type: i32, do_not_specialize: true, range: [1, 8192]}
fallback: {THREADS: 512}
launch: {grid: [rows], block: [THREADS]}
*/

// A kernel as others write them, on headers that take many times longer to read than it does: the
// root of the mean square of each row, and at least the smallest normal number.

#include <cub/block/block_reduce.cuh>
#include <cuda/std/cmath>
#include <cuda/std/cstdint>
#include <cuda/std/limits>

#include <jitcache.cuh>

// One block for one row.
extern "C" __global__ void row_norms(float *norms, const float *from, int rows, int columns)
{
    using Reduce = cub::BlockReduce<float, JC_PARAM(THREADS)>;
    __shared__ typename Reduce::TempStorage storage;
    const float *row = from + static_cast<cuda::std::int64_t>(blockIdx.x) * columns;
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += JC_PARAM(THREADS))
        sum += row[i] * row[i];
    sum = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0)
        norms[blockIdx.x] = fmaxf(cuda::std::sqrt(sum / columns),
                                  cuda::std::numeric_limits<float>::min());
}
