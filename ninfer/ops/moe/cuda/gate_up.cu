// act = silu(gate(x)) * up(x) of the routed experts and the shared one, up to 64 tokens.
//
// The first `shared_blocks` blocks serve the shared expert and request its weights before the kernel
// before has ended; the others the experts that were chosen. A block owns a run of units: a tile of
// 16 gate rows and then the tile of their up rows, of one item (items.cuh). Tiles stream through a
// ring of bulk copies. Each of WARPS keeps the activations of its GROUPS groups of 64 columns in
// registers, for the block's life up to 8 tokens, else for an item. Its sums go through shared
// memory to one of REDUCERS warps, which adds them in warp order, refills the ring, and gates.
//
// Compile-time: ROUTED_BITS, SHARED_BITS, WARPS, GROUPS (together the columns), RING_BYTES, REDUCERS,
// TWINS, and those of items.cuh. Hopper and later.
#include "items.cuh"
#include "product.cuh"

constexpr int BUFFERS = 2 * REDUCERS;
static_assert(BUFFERS <= 8, "barrier words");
constexpr int THREADS = (WARPS + REDUCERS) * 32;

// How tiles of one part, the routed experts or the shared one, lie in memory and in the ring.
template <int BITS> struct Part {
  using Block = Codec<BITS>;
  static constexpr int CODES = WARPS * GROUPS * Block::CODE_BYTES;
  static constexpr int TILE_BYTES = CODES + WARPS * GROUPS * Block::SCALE_BYTES;
  static constexpr int STAGE_BYTES = (TILE_BYTES + 127) / 128 * 128;
  static constexpr int FITTING = RING_BYTES / STAGE_BYTES;
  static constexpr int STAGES = FITTING < 8 ? FITTING : 8;
  static_assert(STAGES >= 2, "a ring of two tiles");
};

struct Places {
  u32 ring, sums, full, ready, free, items;
  INLINE explicit Places(u32 base)
      : ring(base), sums(ring + RING_BYTES), full(sums + BUFFERS * WARPS * 512), ready(full + 64),
        free(full + 128), items(full + 192) {}
  INLINE u32 sum(int buffer, int warp) const { return sums + (buffer * WARPS + warp) * 512; }
};

struct Arguments {
  const u8* weights;
  const u16* x;
  u16* act;  // [pairs or tokens, width]
  int x_stride, tokens, top_k, width;
};

// A run of units: unit number first + i is tile pair q of item (first + i) / units_of_item.
struct Run {
  int first, count, units;
  INLINE Run(int items, int width, int block, int blocks) {
    units = width / 16;
    const long long all = (long long)items * units;
    first = (int)(all * block / blocks);
    count = (int)(all * (block + 1) / blocks) - first;
  }
  INLINE int item(int tile) const { return (first + tile / 2) / units; }
};

template <bool ROUTED> struct Columns {
  Items items;
  int tokens, top_k;
  // The row of x, and the row of act, of a column of an item; NONE for neither.
  INLINE u32 token(int item, int column) const {
    if (!ROUTED || FEW) return own(item * (FEW && ROUTED ? 0 : 8) + column);
    const u32 pair = items.pair(item, column);
    return pair == NONE ? NONE : pair / top_k;
  }
  INLINE u32 target(int item, int column) const {
    return ROUTED ? items.pair(item, column) : own(item * 8 + column);
  }
  INLINE int expert(int item) const { return ROUTED ? items.expert(item) : 0; }

 private:
  INLINE u32 own(int token) const { return token < tokens ? (u32)token : NONE; }
};

template <class P, bool ROUTED>
INLINE void request(const Arguments& g, const Places& at, const Run& run, const Columns<ROUTED>& columns,
                    int tile, u64 policy) {
  const int unit = run.first + tile / 2, item = unit / run.units, stage = tile % P::STAGES;
  const size_t row = ((size_t)columns.expert(item) * 2 + (tile & 1)) * run.units + unit % run.units;
  copy_bulk(at.ring + stage * P::STAGE_BYTES, g.weights + row * P::TILE_BYTES, P::TILE_BYTES,
            at.full + stage * 8, policy);
}

template <class P, bool ROUTED>
INLINE void load_activations(const Arguments& g, const Columns<ROUTED>& columns, int item, int warp, int lane,
                             Operands<typename P::Block, GROUPS, 1>& x) {
  const u32 token = columns.token(item, lane >> 2);
  const u16* from = g.x + (size_t)(token == NONE ? 0 : token) * g.x_stride + warp * GROUPS * 64 + (lane & 3) * 8;
  UNROLL for (int i = 0; i < GROUPS; i++)
    UNROLL for (int c = 0; c < 2; c++) {
      uint4 v = make_uint4(0, 0, 0, 0);
      if (token != NONE) v = global_u4(from + i * 64 + c * 32);
      x.put(i, 0, c, v);
    }
}

template <class P, bool ROUTED>
INLINE void multiply(const Arguments& g, const Places& at, const Run& run, const Columns<ROUTED>& columns,
                     Operands<typename P::Block, GROUPS, 1>& x, int warp, int lane) {
  using Block = typename P::Block;
  int item = FEW ? 0 : -1;
  if (FEW) x.take_offset();
  for (int tile = 0; tile < 2 * run.count; tile++) {
    if (!FEW && run.item(tile) != item) {
      item = run.item(tile);
      load_activations<P, ROUTED>(g, columns, item, warp, lane, x);
      x.take_offset();
    }
    const int stage = tile % P::STAGES, buffer = tile % BUFFERS;
    barrier_wait(at.full + stage * 8, (tile / P::STAGES) & 1);
    const u32 from = at.ring + stage * P::STAGE_BYTES;
    float sum[1][4];
    tile_product<TWINS>(from + warp * GROUPS * Block::CODE_BYTES,
                        from + P::CODES + warp * GROUPS * Block::SCALE_BYTES, x, lane, sum);
    if (tile >= BUFFERS) barrier_wait(at.free + buffer * 8, ((tile / BUFFERS) & 1) ^ 1);
    shared_put(at.sum(buffer, warp) + lane * 16, make_float4(sum[0][0], sum[0][1], sum[0][2], sum[0][3]));
    __syncwarp();
    if (lane == 0) barrier_arrive(at.ready + buffer * 8);
  }
}

// A large negative gate gives -0 through the infinite divisor.
INLINE u16 gated(float gate, float up) { return to_bf16(gate / (1.f + __expf(-gate)) * up); }

template <class P, bool ROUTED>
INLINE void reduce(const Arguments& g, const Places& at, const Run& run, const Columns<ROUTED>& columns,
                   int reducer, int lane) {
  const u64 policy = ROUTED || FEW ? read_once_policy() : keep_policy();
  for (int unit = reducer; unit < run.count; unit += REDUCERS) {
    float4 half[2];
    UNROLL for (int h = 0; h < 2; h++) {
      const int tile = 2 * unit + h, buffer = tile % BUFFERS;
      barrier_wait(at.ready + buffer * 8, (tile / BUFFERS) & 1);
      // All warps have read this tile's stage.
      if (lane == 0 && tile + P::STAGES < 2 * run.count) request<P, ROUTED>(g, at, run, columns, tile + P::STAGES, policy);
      half[h] = make_float4(0, 0, 0, 0);
      UNROLL for (int w = 0; w < WARPS; w++) half[h] = plus(half[h], shared_f4(at.sum(buffer, w) + lane * 16));
      __syncwarp();
      if (lane == 0) barrier_arrive(at.free + buffer * 8);
    }
    const int item = run.item(2 * unit), row = (run.first + unit) % run.units * 16 + (lane >> 2);
    const u32 left = columns.target(item, (lane & 3) * 2), right = columns.target(item, (lane & 3) * 2 + 1);
    if (left != NONE) {
      u16* to = g.act + (size_t)left * g.width + row;
      to[0] = gated(half[0].x, half[1].x), to[8] = gated(half[0].z, half[1].z);
    }
    if (right != NONE) {
      u16* to = g.act + (size_t)right * g.width + row;
      to[0] = gated(half[0].y, half[1].y), to[8] = gated(half[0].w, half[1].w);
    }
  }
}

template <int BITS, bool ROUTED>
INLINE void serve(const Arguments& g, const Places& at, const u32* ids, int block, int blocks) {
  using P = Part<BITS>;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const Columns<ROUTED> columns = {Items(at.items), g.tokens, g.top_k};
  const bool starts = threadIdx.x == WARPS * 32;
  const u64 policy = ROUTED || FEW ? read_once_policy() : keep_policy();
  const int shared_items = (g.tokens + 7) / 8;
  if (!ROUTED && starts) {
    const Run run(shared_items, g.width, block, blocks);
    for (int i = 0; i < min(P::STAGES, 2 * run.count); i++) request<P, ROUTED>(g, at, run, columns, i, policy);
  }
  wait_for_kernel_before();
  // Not earlier: the kernel after reads the ids before its own wait, so what wrote them must be over.
  start_next_kernel();
  Operands<typename P::Block, GROUPS, 1> x;
  if (FEW && warp < WARPS) load_activations<P, ROUTED>(g, columns, 0, warp, lane, x);
  if (ROUTED) columns.items.template find<false>(ids, g.tokens, g.top_k, threadIdx.x, THREADS);
  const Run run(ROUTED ? columns.items.total() : shared_items, g.width, block, blocks);
  if (ROUTED && starts)
    for (int i = 0; i < min(P::STAGES, 2 * run.count); i++) request<P, ROUTED>(g, at, run, columns, i, policy);
  __syncwarp();
  if (warp < WARPS)
    multiply<P, ROUTED>(g, at, run, columns, x, warp, lane);
  else
    reduce<P, ROUTED>(g, at, run, columns, warp - WARPS, lane);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_gate_up(const u8* routed, const u8* shared, const u16* x, const u32* ids, u16* act, u16* shared_act,
                int x_stride, int tokens, int top_k, int width, int shared_width, int shared_blocks, int blocks) {
  extern __shared__ __align__(128) u8 memory[];
  const Places at(shared_address(memory));
  if (threadIdx.x == WARPS * 32) {
    for (int i = 0; i < 8; i++) barrier_init(at.full + i * 8, 1);
    for (int i = 0; i < BUFFERS; i++) {
      barrier_init(at.ready + i * 8, WARPS);
      barrier_init(at.free + i * 8, 1);
    }
    barriers_visible();
  }
  __syncthreads();
  const int block = blockIdx.x;
  if (block < shared_blocks) {
    const Arguments g = {shared, x, shared_act, x_stride, tokens, top_k, shared_width};
    serve<SHARED_BITS, false>(g, at, ids, block, shared_blocks);
  } else {
    const Arguments g = {routed, x, act, x_stride, tokens, top_k, width};
    serve<ROUTED_BITS, true>(g, at, ids, block - shared_blocks, blocks - shared_blocks);
  }
}
