// The splits of each row as one: out = sum of 2^(top - largest top) * values over the same sum of
// weights. A block has 64 columns of a row of a head. It has two chains a warp, each of which takes
// every so-manieth split; then they are added in order.
//
// Compile-time: HEADS of the queries, WARPS of a block, SHORTS, SHORT and LONG (splits.cuh).
#include "splits.cuh"

constexpr int LANES = 16, CHAINS = WARPS * 2, THREADS = WARPS * 32;
constexpr int AHEAD = 4;  // splits of a chain whose loads wait together

struct Row {
  int splits, live;
};
// How many splits a row has; all lanes of a warp. Not live: it lies behind the last sequence.
INLINE Row row_at(const u64* offsets, const u64* lengths, int sequences, int t, int lane) {
  int before = 0, start = 0, stop = 0, length = 0;
  for (int first = 0; first < sequences; first += 32) {
    const int b = first + lane;
    const int from = b < sequences ? (int)offsets[b] : 0, to = b < sequences ? (int)offsets[b + 1] : 0;
    const int keys = b < sequences ? (int)lengths[b] : 0;
    const int found = first_lane(b < sequences && from <= t && t < to);
    if (found < 0) continue;
    before = 1;
    start = (int)__shfl_sync(~0u, (u32)from, found);
    stop = (int)__shfl_sync(~0u, (u32)to, found);
    length = (int)__shfl_sync(~0u, (u32)keys, found);
  }
  return {before ? split_of(length - (stop - start) + t - start) + 1 : 0, before};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    join_splits(const float* partial, const float2* parts, const u64* offsets, const u64* lengths,
                u16* out, int sequences, int capacity) {
  extern __shared__ __align__(128) u8 memory[];
  const u32 sums = shared_address(memory), weights = sums + WARPS * 256, tops = weights + WARPS * 4;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int chain = threadIdx.x / LANES, row = blockIdx.x / 4;
  start_next_kernel();
  wait_for_kernel_before();
  const Row found = row_at(offsets, lengths, sequences, row / HEADS, lane);
  if (!found.live) return;
  const float2* part = parts + (size_t)row * capacity;
  const float* values = partial + (size_t)row * capacity * DIM + blockIdx.x % 4 * 64 + threadIdx.x % LANES * 4;
  // The first splits' values wait for memory together with the tops.
  float4 v[AHEAD];
  float2 p[AHEAD];
  UNROLL for (int i = 0; i < AHEAD; i++) {
    const int split = chain + i * CHAINS;
    if (split < found.splits) v[i] = global_f4(values + (size_t)split * DIM), p[i] = part[split];
  }
  float top = -infinity();
  for (int split = threadIdx.x; split < found.splits; split += THREADS) top = fmaxf(top, part[split].x);
  UNROLL for (int by = 1; by < 32; by *= 2) top = fmaxf(top, from_lane(top, lane ^ by));
  if (lane == 0) shared_put(tops + warp * 4, __float_as_uint(top));
  __syncthreads();
  UNROLL for (int w = 0; w < WARPS; w++) top = fmaxf(top, __uint_as_float(shared_u1(tops + w * 4)));
  const float level = top == -infinity() ? 0.f : top;
  float4 sum = make_float4(0, 0, 0, 0);
  float weight = 0.f;
  for (int first = chain; first < found.splits; first += AHEAD * CHAINS) {
    UNROLL for (int i = 0; i < AHEAD; i++) {
      if (first + i * CHAINS >= found.splits) break;
      const float by = power_of_2(p[i].x - level);
      sum.x = fmaf(by, v[i].x, sum.x), sum.y = fmaf(by, v[i].y, sum.y);
      sum.z = fmaf(by, v[i].z, sum.z), sum.w = fmaf(by, v[i].w, sum.w);
      weight = fmaf(by, p[i].y, weight);
    }
    UNROLL for (int i = 0; i < AHEAD; i++) {
      const int split = first + (AHEAD + i) * CHAINS;
      if (split < found.splits) v[i] = global_f4(values + (size_t)split * DIM), p[i] = part[split];
    }
  }
  // The two chains of a warp, then the warps in order.
  sum = plus(sum, make_float4(from_lane(sum.x, lane ^ 16), from_lane(sum.y, lane ^ 16),
                              from_lane(sum.z, lane ^ 16), from_lane(sum.w, lane ^ 16)));
  weight += from_lane(weight, lane ^ 16);
  if (lane < LANES) shared_put(sums + warp * 256 + lane * 16, sum);
  if (lane == 0) shared_put(weights + warp * 4, __float_as_uint(weight));
  __syncthreads();
  if (threadIdx.x >= 32) return;
  float first = 0.f, second = 0.f, by = 0.f;
  UNROLL for (int w = 0; w < WARPS; w++) {
    const uint2 both = shared_u2(sums + w * 256 + lane * 8);
    first += __uint_as_float(both.x), second += __uint_as_float(both.y);
    by += __uint_as_float(shared_u1(weights + w * 4));
  }
  ((u32*)out)[(size_t)row * DIM / 2 + blockIdx.x % 4 * 32 + lane] = pair_of(first / by, second / by);
}
