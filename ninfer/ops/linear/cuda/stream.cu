// y = x W^T for up to 16 tokens: the time is that of reading W once.
//
// A block owns one column slice (WARPS * GROUPS groups of 64) of a run of row tiles. Each of its
// WARPS keeps the activations of its own GROUPS groups in registers for the block's life, and every
// row tile streams past: one bulk copy a tile slice into a ring of STAGES, 4 products a group, the
// group's scale. The warps' sums of a tile go through shared memory to one of REDUCERS warps, which
// adds them in warp order and refills the ring. SLICES blocks that share a tile add their sums in
// slice order: through the shared memory of their cluster, or through memory, where the last to
// arrive adds. So every sum has one order, whatever the number of tokens, blocks and tiles.
//
// Compile-time: BITS, WARPS, GROUPS, SLICES, STAGES, REDUCERS, TOKEN_TILES (of 8), AHEAD (stages
// that are requested before the kernel before has ended), TWINS (groups in flight together),
// MULTIPLIER_REGISTERS (what multiplying warps have, taken from the reducers; 0: all have the same).
#include "output.cuh"
#include "product.cuh"

static_assert(REDUCERS <= 4 && STAGES <= 8 && AHEAD <= STAGES, "barrier words");
static_assert(MULTIPLIER_REGISTERS == 0 || (WARPS % 4 == 0 && REDUCERS == 4), "whole warpgroups");

using Block = Codec<BITS>;
constexpr int SLICE_GROUPS = WARPS * GROUPS;
constexpr int SLICE_BYTES = SLICE_GROUPS * (Block::CODE_BYTES + Block::SCALE_BYTES);
constexpr int STAGE_BYTES = (SLICE_BYTES + 127) / 128 * 128;
constexpr int TILE_SUM = TOKEN_TILES * 512;
// What the launch gives to a thread, and what multiplying warps leave of it to reducers.
constexpr int LAUNCH_REGISTERS = 65536 / ((WARPS + REDUCERS) * 32) / 8 * 8;
constexpr int REDUCER_REGISTERS =
    (LAUNCH_REGISTERS * (WARPS + REDUCERS) - MULTIPLIER_REGISTERS * WARPS) / REDUCERS / 8 * 8;

struct Arguments {
  const u8* weights;  // [tiles, SLICES, SLICE_BYTES]
  const u16* x;       // [tokens, columns], rows 16-byte aligned
  float* partial;     // [tiles, SLICES, TILE_SUM] bytes, unused in a cluster or for one slice
  u32* arrivals;      // [tiles], zero before and after
  int x_stride;
  int columns, tiles, tiles_per_block;
  bool clustered;
  Output output;
};

// Where things lie in shared memory.
struct Places {
  u32 ring, sums, full, ready, free, tile_sums;
  INLINE explicit Places(u32 base)
      : ring(base), sums(ring + STAGES * STAGE_BYTES),
        full(sums + REDUCERS * WARPS * TILE_SUM), ready(full + 64), free(full + 96),
        tile_sums(full + 128) {}
  INLINE u32 stage(int number) const { return ring + number * STAGE_BYTES; }
  INLINE u32 sum(int buffer, int warp) const { return sums + (buffer * WARPS + warp) * TILE_SUM; }
};

struct Work {
  const u8* source;
  int slice, first, count;
  INLINE explicit Work(const Arguments& g) {
    slice = blockIdx.x % SLICES;
    first = blockIdx.x / SLICES * g.tiles_per_block;
    count = min(g.tiles_per_block, g.tiles - first);
    source = g.weights + ((size_t)first * SLICES + slice) * SLICE_BYTES;
  }
  INLINE const u8* tile(int number) const { return source + (size_t)number * SLICES * SLICE_BYTES; }
};

#if HOPPER
INLINE void request(const Places& at, const Work& work, int tile, u64 policy) {
  const int stage = tile % STAGES;
  copy_bulk(at.stage(stage), work.tile(tile), SLICE_BYTES, at.full + stage * 8, policy);
}
#else
// Each warp copies its own part, so no other warp has to know when it is there.
INLINE void request_own(const Places& at, const Work& work, int tile, int warp, int lane) {
  constexpr int CODES = GROUPS * Block::CODE_BYTES, SCALES = GROUPS * Block::SCALE_BYTES;
  const u32 to = at.stage(tile % STAGES);
  const u8* from = work.tile(tile);
  UNROLL for (int i = 0; i < CODES; i += 512)
    if (i + lane * 16 < CODES) copy16(to + warp * CODES + i + lane * 16, from + warp * CODES + i + lane * 16);
  const int base = WARPS * CODES + warp * SCALES;
  UNROLL for (int i = 0; i < SCALES; i += 512)
    if (i + lane * 16 < SCALES) copy16(to + base + i + lane * 16, from + base + i + lane * 16);
}
#endif

using Activations = Operands<Block, GROUPS, TOKEN_TILES>;
using Sums = float[TOKEN_TILES][4];

INLINE void load_activations(const Arguments& g, int slice, int warp, int lane, Activations& x) {
  const int k0 = (slice * WARPS + warp) * GROUPS * 64 + (lane & 3) * 8;
  UNROLL for (int i = 0; i < GROUPS; i++)
    UNROLL for (int n = 0; n < TOKEN_TILES; n++) {
      const int token = n * 8 + (lane >> 2);
      UNROLL for (int c = 0; c < 2; c++) {
        const int k = k0 + i * 64 + c * 32;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (token < g.output.tokens && k < g.columns) v = global_u4(g.x + (size_t)token * g.x_stride + k);
        x.put(i, n, c, v);
      }
    }
}

INLINE void multiply(const Arguments& g, const Places& at, const Work& work, int warp, int lane) {
#if !HOPPER
  UNROLL for (int i = 0; i < STAGES - 1; i++) {
    if (i < work.count) request_own(at, work, i, warp, lane);
    copies_commit();
  }
#endif
  wait_for_kernel_before();
  Activations x;
  load_activations(g, work.slice, warp, lane, x);
#if HOPPER
  // The rest of the ring is requested behind the activations, which would else wait for it.
  if (AHEAD < STAGES) rendezvous_arrive<(WARPS + 1) * 32>();
#endif
  x.take_offset();
  for (int tile = 0; tile < work.count; tile++) {
    const int stage = tile % STAGES, buffer = tile % REDUCERS;
#if HOPPER
    barrier_wait(at.full + stage * 8, (tile / STAGES) & 1);
#else
    if (tile + STAGES - 1 < work.count) request_own(at, work, tile + STAGES - 1, warp, lane);
    copies_commit();
    copies_wait<STAGES - 1>();
    __syncwarp();
#endif
    const u32 codes = at.stage(stage) + warp * GROUPS * Block::CODE_BYTES;
    const u32 scales = at.stage(stage) + SLICE_GROUPS * Block::CODE_BYTES + warp * GROUPS * Block::SCALE_BYTES;
    Sums sum;
    tile_product<TWINS>(codes, scales, x, lane, sum);
    if (tile >= REDUCERS) barrier_wait(at.free + buffer * 8, ((tile / REDUCERS) & 1) ^ 1);
    UNROLL for (int n = 0; n < TOKEN_TILES; n++)
      shared_put(at.sum(buffer, warp) + n * 512 + lane * 16,
                 make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]));
    __syncwarp();
    if (lane == 0) barrier_arrive(at.ready + buffer * 8);
  }
}

// Sum of the slices of a tile when they come through memory; null work for all but the last.
INLINE void meet_in_memory(const Arguments& g, int tile, int slice, int lane, const float4 (&sum)[TOKEN_TILES]) {
  u8* place = (u8*)g.partial + (size_t)tile * SLICES * TILE_SUM + lane * 16;
  UNROLL for (int n = 0; n < TOKEN_TILES; n++)
    if (n * 8 + (lane & 3) * 2 < g.output.tokens) global_put(place + slice * TILE_SUM + n * 512, sum[n]);
  __syncwarp();
  u32 before = 0;
  if (lane == 0) before = arrive_global(g.arrivals + tile);
  before = __shfl_sync(~0u, before, 0);
  if (before != SLICES - 1) return;
  UNROLL for (int n = 0; n < TOKEN_TILES; n++) {
    const int token = n * 8 + (lane & 3) * 2;
    if (token >= g.output.tokens) continue;
    float4 all = make_float4(0, 0, 0, 0);
    UNROLL for (int s = 0; s < SLICES; s++) all = plus(all, global_f4(place + s * TILE_SUM + n * 512));
    g.output.put(tile, lane, token, all);
  }
  if (lane == 0) g.arrivals[tile] = 0;
}

INLINE void reduce(const Arguments& g, const Places& at, const Work& work, int reducer, int lane) {
#if HOPPER
  const u64 policy = read_once_policy();
  if (AHEAD < STAGES && reducer == 0) {
    rendezvous_wait<(WARPS + 1) * 32>();
    if (lane == 0)
      for (int i = AHEAD; i < min(STAGES, work.count); i++) request(at, work, i, policy);
    __syncwarp();
  }
#endif
  wait_for_kernel_before();
  for (int tile = reducer; tile < work.count; tile += REDUCERS) {
    barrier_wait(at.ready + reducer * 8, (tile / REDUCERS) & 1);
#if HOPPER
    // All warps have read this tile's stage.
    if (lane == 0 && tile + STAGES < work.count) request(at, work, tile + STAGES, policy);
#endif
    float4 sum[TOKEN_TILES];
    UNROLL for (int n = 0; n < TOKEN_TILES; n++) {
      sum[n] = make_float4(0, 0, 0, 0);
      _Pragma("unroll 10") for (int w = 0; w < WARPS; w++)
        sum[n] = plus(sum[n], shared_f4(at.sum(reducer, w) + n * 512 + lane * 16));
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(at.free + reducer * 8);
    if (SLICES == 1) {
      UNROLL for (int n = 0; n < TOKEN_TILES; n++)
        g.output.put(work.first + tile, lane, n * 8 + (lane & 3) * 2, sum[n]);
    } else if (g.clustered) {
      UNROLL for (int n = 0; n < TOKEN_TILES; n++)
        shared_put(at.tile_sums + tile * TILE_SUM + n * 512 + lane * 16, sum[n]);
    } else {
      meet_in_memory(g, work.first + tile, work.slice, lane, sum);
    }
  }
}

#if HOPPER
// Sums of a cluster's slices: each block adds its share of the tiles.
INLINE void meet_in_cluster(const Arguments& g, const Places& at, const Work& work, int warp, int lane) {
  __syncwarp();
  cluster_sync();
  for (int i = warp; i < work.count * TOKEN_TILES; i += WARPS + REDUCERS) {
    const int tile = i / TOKEN_TILES, n = i % TOKEN_TILES;
    if (tile % SLICES != work.slice) continue;
    float4 all = make_float4(0, 0, 0, 0);
    UNROLL for (int s = 0; s < SLICES; s++)
      all = plus(all, cluster_f4(at.tile_sums + i * 512 + lane * 16, s));
    g.output.put(work.first + tile, lane, n * 8 + (lane & 3) * 2, all);
  }
  cluster_sync();  // no block leaves while another reads its memory
}
#endif

extern "C" __global__ void __launch_bounds__((WARPS + REDUCERS) * 32, 1)
    linear_stream(const u8* weights, const u16* x, u16* y, const u16* residual, float* partial,
                  u32* arrivals, int x_stride, int tokens, int rows, int columns, int tiles,
                  int tiles_per_block, int clustered, int paired, int gated) {
  extern __shared__ __align__(128) u8 memory[];
  const Arguments g = {weights, x,     partial,         arrivals,       x_stride,
                       columns, tiles, tiles_per_block, clustered != 0,
                       {y, residual, tokens, rows, paired != 0, gated != 0}};
  const Places at(shared_address(memory));
  const Work work(g);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (threadIdx.x == WARPS * 32) {
    for (int i = 0; i < STAGES; i++) barrier_init(at.full + i * 8, 1);
    for (int i = 0; i < REDUCERS; i++) {
      barrier_init(at.ready + i * 8, WARPS);
      barrier_init(at.free + i * 8, 1);
    }
#if HOPPER
    barriers_visible();
    const u64 policy = read_once_policy();
    for (int i = 0; i < min(AHEAD, work.count); i++) request(at, work, i, policy);
#endif
  }
  __syncthreads();
  start_next_kernel();
  if (warp < WARPS) {
    if constexpr (MULTIPLIER_REGISTERS) more_registers<MULTIPLIER_REGISTERS>();
    multiply(g, at, work, warp, lane);
  } else {
    if constexpr (MULTIPLIER_REGISTERS) fewer_registers<REDUCER_REGISTERS>();
    reduce(g, at, work, warp - WARPS, lane);
  }
#if HOPPER
  if (SLICES > 1 && g.clustered) meet_in_cluster(g, at, work, warp, lane);
#endif
}
