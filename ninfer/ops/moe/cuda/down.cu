// y = sum of the ranks' down products by their weights, and the shared expert's, up to 64 tokens.
//
// A block owns a tile of 16 rows of the result for all experts, so nothing is added up between
// blocks. Each of WARPS takes every WARPS-th item (items.cuh) and computes its product alone, group
// after group of 64 columns, from its own ring of STAGES tiles; one warp more serves the shared
// expert. Products of all pairs meet in shared memory, where a thread for each (token, row) adds them
// in rank order, the shared expert last.
//
// Follows gate_up.cu, which starts it when what wrote ids, weights and score is over: those are read,
// and the first tiles requested, before the wait.
//
// Compile-time: ROUTED_BITS, SHARED_BITS, GROUPS and SHARED_GROUPS (the columns), WARPS, STAGES,
// MOST_TOKENS, LEAST_BLOCKS (2 limits the registers, so that a block fits beside one of gate_up.cu),
// and those of items.cuh. Hopper and later.
#include "codec.cuh"
#include "items.cuh"

constexpr int THREADS = (WARPS + 1) * 32;
static_assert(STAGES <= 4, "barrier words");

template <int BITS, int WIDTH> struct Part {
  using Block = Codec<BITS>;
  static constexpr int CODES = WIDTH * Block::CODE_BYTES;
  static constexpr int TILE_BYTES = CODES + WIDTH * Block::SCALE_BYTES;
  static constexpr int STAGE_BYTES = (TILE_BYTES + 127) / 128 * 128;
};
using Routed = Part<ROUTED_BITS, GROUPS>;
using Shared = Part<SHARED_BITS, SHARED_GROUPS>;

struct Places {
  u32 rings, shared_tile, full, sums, factors, items;
  INLINE explicit Places(u32 base)
      : rings(base), shared_tile(rings + WARPS * STAGES * Routed::STAGE_BYTES),
        full(shared_tile + Shared::STAGE_BYTES), sums(full + (WARPS + 1) * 32),
        factors(sums + (MOST_PAIRS + MOST_TOKENS) * 64), items(factors + (MOST_PAIRS + MOST_TOKENS) * 4) {}
  INLINE u32 stage(int warp, int stage) const { return rings + (warp * STAGES + stage) * Routed::STAGE_BYTES; }
  INLINE u32 barrier(int warp, int stage) const { return full + warp * 32 + stage * 8; }
};

template <int WIDTH> INLINE void load_activations(const u16* row, int lane, u32 (&b)[WIDTH][8]) {
  UNROLL for (int i = 0; i < WIDTH; i++)
    UNROLL for (int c = 0; c < 2; c++) {
      uint4 v = make_uint4(0, 0, 0, 0);
      if (row) v = global_u4(row + i * 64 + c * 32 + (lane & 3) * 8);
      b[i][c * 4] = v.x, b[i][c * 4 + 1] = v.y, b[i][c * 4 + 2] = v.z, b[i][c * 4 + 3] = v.w;
    }
}

// The product of one tile, groups added one after another.
template <class P, int WIDTH> INLINE void whole_product(u32 tile, const u32 (&b)[WIDTH][8], int lane, float (&sum)[4]) {
  using Block = typename P::Block;
  UNROLL for (int i = 0; i < 4; i++) sum[i] = 0.f;
  UNROLL for (int g = 0; g < WIDTH; g++) {
    Block block;
    block.load(SharedMemory{tile + g * Block::CODE_BYTES}, lane);
    UNROLL for (int r = 0; r < Block::RUNS; r++) {
      const u32 pair = shared_u1(tile + P::CODES + g * Block::SCALE_BYTES + r * 32 + (lane >> 2) * 4);
      float p[4] = {0, 0, 0, 0};
      UNROLL for (int i = 0; i < 4 / Block::RUNS; i++) {
        const int m = r * (4 / Block::RUNS) + i;
        u32 a[4];
        block.centred(m, a);
        mma(p, a, b[g][2 * m], b[g][2 * m + 1], p[0], p[1], p[2], p[3]);
      }
      const float s0 = half_low(pair), s1 = half_high(pair);
      sum[0] += s0 * p[0], sum[1] += s0 * p[1], sum[2] += s1 * p[2], sum[3] += s1 * p[3];
    }
  }
}

// Lane 4 r + j holds rows r and r + 8 of columns 2 j and 2 j + 1, whose places are given.
INLINE void keep(const Places& at, u32 left, u32 right, int lane, const float (&sum)[4]) {
  const int row = (lane >> 2) * 4;
  if (left != NONE) {
    shared_put(at.sums + left * 64 + row, float_word(sum[0]));
    shared_put(at.sums + left * 64 + row + 32, float_word(sum[2]));
  }
  if (right != NONE) {
    shared_put(at.sums + right * 64 + row, float_word(sum[1]));
    shared_put(at.sums + right * 64 + row + 32, float_word(sum[3]));
  }
}

struct Arguments {
  const u8 *routed, *shared;
  const u16 *act, *shared_act;
  u16* y;
  int tokens, top_k, rows;
};

INLINE void request(const Arguments& g, const Places& at, const Items& items, int tile, int item, int turn,
                    int warp, u64 policy) {
  const size_t row = (size_t)items.expert(item) * (g.rows / 16) + tile;
  copy_bulk(at.stage(warp, turn % STAGES), g.routed + row * Routed::TILE_BYTES, Routed::TILE_BYTES,
            at.barrier(warp, turn % STAGES), policy);
}

// The items of a warp on one tile; `turn` counts its tiles so far. Those of the first STAGES items
// have been requested.
INLINE int serve_routed(const Arguments& g, const Places& at, const Items& items, int tile, int turn, int warp,
                        int lane, u64 policy) {
  const int total = items.total();
  for (int item = warp; item < total; item += WARPS, turn++) {
    const u32 pair = items.pair(item, lane >> 2);
    u32 b[GROUPS][8];
    load_activations(pair == NONE ? nullptr : g.act + (size_t)pair * (GROUPS * 64), lane, b);
    barrier_wait(at.barrier(warp, turn % STAGES), (turn / STAGES) & 1);
    float sum[4];
    whole_product<Routed>(at.stage(warp, turn % STAGES), b, lane, sum);
    __syncwarp();
    const int next = item + STAGES * WARPS;
    if (lane == 0 && next < total) request(g, at, items, tile, next, turn + STAGES, warp, policy);
    keep(at, items.pair(item, (lane & 3) * 2), items.pair(item, (lane & 3) * 2 + 1), lane, sum);
  }
  return turn;
}

INLINE void serve_shared(const Arguments& g, const Places& at, int turn, int lane) {
  barrier_wait(at.barrier(WARPS, 0), turn & 1);
  for (int first = 0; first < g.tokens; first += 8) {
    const int token = first + (lane >> 2), column = first + (lane & 3) * 2;
    u32 b[SHARED_GROUPS][8];
    load_activations(token < g.tokens ? g.shared_act + (size_t)token * (SHARED_GROUPS * 64) : nullptr, lane, b);
    float sum[4];
    whole_product<Shared>(at.shared_tile, b, lane, sum);
    keep(at, column < g.tokens ? MOST_PAIRS + column : NONE,
         column + 1 < g.tokens ? MOST_PAIRS + column + 1 : NONE, lane, sum);
  }
  __syncwarp();
}

// What a warp can ask for before it may multiply.
INLINE void request_first(const Arguments& g, const Places& at, const Items& items, int tile, int turn, int warp,
                          u64 policy) {
  if (warp == WARPS) {
    copy_bulk(at.shared_tile, g.shared + (size_t)tile * Shared::TILE_BYTES, Shared::TILE_BYTES,
              at.barrier(WARPS, 0), policy);
    return;
  }
  const int total = items.total();
  for (int s = 0; s < STAGES && warp + s * WARPS < total; s++)
    request(g, at, items, tile, warp + s * WARPS, turn + s, warp, policy);
}

// Factors of the pairs, then of the tokens' shared expert.
INLINE void load_factors(const Arguments& g, const Places& at, const u32* weights, const u32* score, int thread) {
  for (int p = thread; p < g.tokens * g.top_k; p += THREADS) shared_put(at.factors + p * 4, early_u1(weights + p));
  for (int t = thread; t < g.tokens; t += THREADS) {
    const float gate = 1.f / (1.f + __expf(-word_float(early_u1(score + t))));
    shared_put(at.factors + (MOST_PAIRS + t) * 4, float_word(gate));
  }
}

INLINE void add_ranks(const Arguments& g, const Places& at, int tile, int thread) {
  for (int i = thread; i < g.tokens * 16; i += THREADS) {
    const int t = i >> 4, row = (i & 15) * 4;
    float total = 0.f;
    _Pragma("unroll 3") for (int r = 0; r <= g.top_k; r++) {
      const int place = r < g.top_k ? t * g.top_k + r : MOST_PAIRS + t;
      total += word_float(shared_u1(at.factors + place * 4)) * word_float(shared_u1(at.sums + place * 64 + row));
    }
    g.y[(size_t)t * g.rows + tile * 16 + (i & 15)] = to_bf16(total);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, LEAST_BLOCKS)
    moe_down(const u8* routed, const u8* shared, const u16* act, const u16* shared_act, const u32* ids,
             const u32* weights, const u32* score, u16* y, int tokens, int top_k, int rows, int blocks) {
  extern __shared__ __align__(128) u8 memory[];
  const Places at(shared_address(memory));
  const Arguments g = {routed, shared, act, shared_act, y, tokens, top_k, rows};
  const Items items(at.items);
  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  if (lane == 0) {
    for (int s = 0; s < STAGES; s++) barrier_init(at.barrier(warp, s), 1);
    barriers_visible();
  }
  const u64 policy = read_once_policy();
  int tile = blockIdx.x, turn = 0;
  // The shared expert's tile does not depend on the ids.
  if (warp == WARPS && lane == 0) request_first(g, at, items, tile, turn, warp, policy);
  load_factors(g, at, weights, score, thread);
  items.find<true>(ids, tokens, top_k, thread, THREADS);
  if (warp < WARPS && lane == 0) request_first(g, at, items, tile, turn, warp, policy);
  __syncwarp();
  start_next_kernel();
  wait_for_kernel_before();
  while (tile < rows / 16) {
    if (warp < WARPS) {
      turn = serve_routed(g, at, items, tile, turn, warp, lane, policy);
    } else {
      serve_shared(g, at, turn, lane);
      turn++;
    }
    const int next = tile + blocks;
    if (lane == 0 && next < rows / 16) request_first(g, at, items, next, turn, warp, policy);
    __syncthreads();
    add_ranks(g, at, tile, thread);
    __syncthreads();
    tile = next;
  }
}
