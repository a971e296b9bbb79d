/*jitcache
kernel: row_norms
name_expression: "row_norms<{THREADS}>"
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
#include <cuda/std/mdspan>
#include <cuda/std/optional>
#include <cuda/std/ranges>

using Matrix = cuda::std::mdspan<const float, cuda::std::dextents<cuda::std::int64_t, 2>>;

static __device__ cuda::std::optional<float> norm(float sum, int columns)
{
    if (columns <= 0)
        return cuda::std::nullopt;
    return cuda::std::sqrt(sum / columns);
}

// One block for one row.
template <int THREADS>
__global__ void row_norms(float *norms, const float *from, int rows, int columns)
{
    using Reduce = cub::BlockReduce<float, THREADS>;
    __shared__ typename Reduce::TempStorage storage;
    Matrix matrix(from, rows, columns);
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += THREADS)
        sum += matrix(blockIdx.x, i) * matrix(blockIdx.x, i);
    sum = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0)
        norms[blockIdx.x] = fmaxf(norm(sum, columns).value_or(0),
                                  cuda::std::numeric_limits<float>::min());
}
