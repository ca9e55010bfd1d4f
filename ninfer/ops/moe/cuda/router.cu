// Experts of each token: logits by tensor cores, then the best top_k of them, their softmax, and the
// shared expert's score.
//
// A block multiplies 16 rows of the router, which it reads before the kernel before has ended, by 8
// tokens. Each of WARPS takes GROUPS groups of 64 columns; their sums are added in warp order. The
// last block to finish with 8 tokens chooses for them, a warp for each token in turn.
//
// Compile-time: WARPS, GROUPS (together at least the columns), EXPERT_ROOM (a multiple of 32).
#include "machine.cuh"

constexpr int EACH = EXPERT_ROOM / 32;  // experts that a lane looks at

struct Arguments {
  const u16 *router, *x;
  float* logits;  // [tokens, rows]
  float* weights;
  long long* ids;
  float* score;
  int x_stride, tokens, rows, columns, top_k;
};

// 8 neighbouring columns of a row, or zeros.
template <bool EARLY> INLINE uint4 eight(const u16* base, int row, int rows, int stride, int k, int columns) {
  if (row >= rows || k >= columns) return make_uint4(0, 0, 0, 0);
  const u16* from = base + (size_t)row * stride + k;
  return EARLY ? early_u4(from) : global_u4(from);
}

struct Rows {
  u32 a[GROUPS][4][4];
  INLINE void load(const Arguments& g, int first, int k0, int lane) {
    const int row = first + (lane >> 2);
    UNROLL for (int i = 0; i < GROUPS; i++)
      UNROLL for (int c = 0; c < 2; c++) {
        const int k = k0 + i * 64 + c * 32;
        const uint4 low = eight<true>(g.router, row, g.rows, g.columns, k, g.columns);
        const uint4 high = eight<true>(g.router, row + 8, g.rows, g.columns, k, g.columns);
        u32(&one)[4] = a[i][2 * c], (&two)[4] = a[i][2 * c + 1];
        one[0] = low.x, one[1] = high.x, one[2] = low.y, one[3] = high.y;
        two[0] = low.z, two[1] = high.z, two[2] = low.w, two[3] = high.w;
      }
  }
};

INLINE float4 multiply(const Arguments& g, const Rows& rows, int token, int k0) {
  u32 b[GROUPS][8];
  UNROLL for (int i = 0; i < GROUPS; i++)
    UNROLL for (int c = 0; c < 2; c++) {
      const uint4 v = eight<false>(g.x, token, g.tokens, g.x_stride, k0 + i * 64 + c * 32, g.columns);
      b[i][c * 4] = v.x, b[i][c * 4 + 1] = v.y, b[i][c * 4 + 2] = v.z, b[i][c * 4 + 3] = v.w;
    }
  float4 sum = make_float4(0, 0, 0, 0);
  UNROLL for (int i = 0; i < GROUPS; i++) {
    float p[4] = {0, 0, 0, 0};
    UNROLL for (int m = 0; m < 4; m++) mma(p, rows.a[i][m], b[i][2 * m], b[i][2 * m + 1], p[0], p[1], p[2], p[3]);
    sum = plus(sum, make_float4(p[0], p[1], p[2], p[3]));
  }
  return sum;
}

INLINE void put(const Arguments& g, int row, int token, float value) {
  if (row < g.rows && token < g.tokens) g.logits[(size_t)token * g.rows + row] = value;
}

// Words in the order of the logits, 0 for none; -0 is 0.
INLINE u32 key_of(float logit) {
  const u32 bits = float_word(logit == 0.f ? 0.f : logit);
  const u32 key = bits >> 31 ? ~bits : bits | 0x80000000u;
  return key ? key : 1;
}
INLINE float logit_of(u32 key) { return word_float(key >> 31 ? key & 0x7FFFFFFFu : ~key); }

// By one warp: best first, lower id first on ties.
INLINE void choose(const Arguments& g, int token, int lane) {
  const float* logits = g.logits + (size_t)token * g.rows;
  const int experts = g.rows - 1;
  u32 key[EACH];
  UNROLL for (int i = 0; i < EACH; i++) {
    const int e = i * 32 + lane;
    key[i] = e < experts ? key_of(global_f1(logits + e)) : 0;
  }
  float mine = 0.f, best = 0.f;
  u32 id = 0;
  for (int rank = 0; rank < g.top_k; rank++) {
    u32 own = 0, first = 0xFFFFFFFFu;
    UNROLL for (int i = 0; i < EACH; i++) own = key[i] > own ? key[i] : own;
    const u32 most = warp_most(own);
    UNROLL for (int i = EACH - 1; i >= 0; i--)
      if (key[i] == most) first = i * 32 + lane;
    first = warp_least(first);
    UNROLL for (int i = 0; i < EACH; i++)
      if (i * 32 + lane == first) key[i] = 0;
    const float value = logit_of(most);
    if (rank == 0) best = value;
    if (lane == rank) mine = value, id = first;
  }
  const float share = expf(mine - best);
  float sum = 0.f;
  for (int rank = 0; rank < g.top_k; rank++) sum += word_float(__shfl_sync(~0u, float_word(share), rank));
  if (lane < g.top_k) {
    g.weights[token * g.top_k + lane] = share / sum;
    g.ids[token * g.top_k + lane] = id;
  }
  if (lane == 0) g.score[token] = global_f1(logits + experts);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    moe_router(const u16* router, const u16* x, float* logits, u32* arrivals, float* weights, long long* ids,
               float* score, int x_stride, int tokens, int rows, int columns, int top_k) {
  extern __shared__ __align__(128) u8 memory[];
  const u32 sums = shared_address(memory), last = sums + WARPS * 512;
  const Arguments g = {router, x, logits, weights, ids, score, x_stride, tokens, rows, columns, top_k};
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int row_blocks = (rows + 15) / 16, first = blockIdx.x % row_blocks * 16, tile = blockIdx.x / row_blocks;
  const int k0 = warp * GROUPS * 64 + (lane & 3) * 8;
  Rows own;
  own.load(g, first, k0, lane);
  start_next_kernel();
  wait_for_kernel_before();
  shared_put(sums + warp * 512 + lane * 16, multiply(g, own, tile * 8 + (lane >> 2), k0));
  __syncthreads();
  if (warp == 0) {
    float4 sum = make_float4(0, 0, 0, 0);
    UNROLL for (int w = 0; w < WARPS; w++) sum = plus(sum, shared_f4(sums + w * 512 + lane * 16));
    const int row = first + (lane >> 2), token = tile * 8 + (lane & 3) * 2;
    put(g, row, token, sum.x), put(g, row, token + 1, sum.y);
    put(g, row + 8, token, sum.z), put(g, row + 8, token + 1, sum.w);
    __syncwarp();
    if (lane == 0) {
      const bool is_last = arrive_global(arrivals + tile) == (u32)(row_blocks - 1);
      if (is_last) arrivals[tile] = 0;
      shared_put(last, (u32)is_last);
    }
  }
  __syncthreads();
  if (shared_u1(last))
    for (int i = warp; i < 8; i += WARPS)
      if (tile * 8 + i < tokens) choose(g, tile * 8 + i, lane);
}
