// y = x W^T for 17 to 64 tokens by products of single warps: what every card has. See warpgroup.cu
// for Hopper.
//
// A block takes ROW_WARPS * 2 row tiles; a warp owns two of them and all tokens. Group after group,
// codes, scales and the activations' 64 columns come through a ring in shared memory; see runs.cuh
// for how the work is shared out. A warp decodes a group once and goes over the tokens with it, so
// that beside its sums it holds the products of TWINS token tiles only: three or four warps fit a
// scheduler and hide the latency of each other's products.
//
// Compile-time: BITS, ROW_WARPS, STAGES, TOKEN_TILES (of 8).
#include "codec.cuh"

using Block = Codec<BITS>;
constexpr int THREADS = ROW_WARPS * 32;
constexpr int WARP_TILES = 2;
constexpr int BLOCK_TILES = ROW_WARPS * WARP_TILES;
#include "runs.cuh"

constexpr int TILE_BYTES = Block::CODE_BYTES + Block::SCALE_BYTES;
constexpr int X_BYTES = TOKEN_TILES * 8 * 128;
constexpr int STAGE_BYTES = X_BYTES + BLOCK_TILES * TILE_BYTES;
constexpr int TWINS = 2;

struct Arguments {
  const u8* weights;  // [tiles, slices, slice_groups * TILE_BYTES]
  const u16* x;       // [tokens, columns], rows 16-byte aligned
  int x_stride;
  int columns, slices, slice_groups;
  Line line;
};

// Chunk `chunk` (8 columns) of a token's 128 bytes; two tokens share the 32 banks.
INLINE u32 x_place(u32 stage, int token, int chunk) {
  return stage + token * 128 + ((chunk ^ ((token & 1) << 2)) << 4);
}

INLINE void request(const Arguments& g, u32 stage, const Warp& warp, int group) {
  const int k = group * 64;
  for (int i = threadIdx.x; i < TOKEN_TILES * 64; i += THREADS) {
    const int token = i >> 3, chunk = i & 7, column = k + chunk * 8;
    const bool present = token < g.line.output.tokens && column < g.columns;
    copy16(x_place(stage, token, chunk), present ? g.x + (size_t)token * g.x_stride + column : g.x, present);
  }
  const int slice = group / g.slice_groups, place = group % g.slice_groups;
  UNROLL for (int i = 0; i < WARP_TILES; i++) {
    const bool present = warp.at(i) < g.line.tiles;
    const size_t before = (size_t)(present ? warp.at(i) : 0) * g.slices + slice;
    const u8* from = g.weights + before * g.slice_groups * TILE_BYTES;
    const u32 to = stage + X_BYTES + (warp.number * WARP_TILES + i) * TILE_BYTES;
    const u8* codes = from + place * Block::CODE_BYTES;
    const u8* scales = from + g.slice_groups * Block::CODE_BYTES + place * Block::SCALE_BYTES;
    UNROLL for (int b = 0; b < Block::CODE_BYTES; b += 512)
      if (b + warp.lane * 16 < Block::CODE_BYTES) copy16(to + b + warp.lane * 16, codes + b + warp.lane * 16, present);
    if (warp.lane * 16 < Block::SCALE_BYTES)
      copy16(to + Block::CODE_BYTES + warp.lane * 16, scales + warp.lane * 16, present);
  }
}

using Sums = float[WARP_TILES][TOKEN_TILES][4];

// Token tiles n .. n + TWINS - 1 of one group: products, then the scale of each run of columns.
INLINE void tokens_product(u32 stage, int lane, int n, const u32 (&a)[WARP_TILES][4][4],
                           const u32 (&scale)[WARP_TILES][Block::RUNS], Sums& sum) {
  constexpr int PRODUCTS = 4 / Block::RUNS;
  uint4 x[TWINS][2];
  UNROLL for (int u = 0; u < TWINS; u++)
    UNROLL for (int c = 0; c < 2; c++)
      x[u][c] = shared_u4(x_place(stage, (n + u) * 8 + (lane >> 2), c * 4 + (lane & 3)));
  UNROLL for (int run = 0; run < Block::RUNS; run++) {
    float part[TWINS][WARP_TILES][4];
    UNROLL for (int m = run * PRODUCTS; m < (run + 1) * PRODUCTS; m++)
      UNROLL for (int u = 0; u < TWINS; u++)
        UNROLL for (int i = 0; i < WARP_TILES; i++) {
          float(&p)[4] = part[u][i];
          const uint4& v = x[u][m >> 1];
          const u32 b0 = m & 1 ? v.z : v.x, b1 = m & 1 ? v.w : v.y;
          if (m == run * PRODUCTS) mma(p, a[i][m], b0, b1, 0.f, 0.f, 0.f, 0.f);
          else mma(p, a[i][m], b0, b1, p[0], p[1], p[2], p[3]);
        }
    UNROLL for (int i = 0; i < WARP_TILES; i++) {
      const float s0 = half_low(scale[i][run]), s1 = half_high(scale[i][run]);
      UNROLL for (int u = 0; u < TWINS; u++) {
        sum[i][n + u][0] += s0 * part[u][i][0], sum[i][n + u][1] += s0 * part[u][i][1];
        sum[i][n + u][2] += s1 * part[u][i][2], sum[i][n + u][3] += s1 * part[u][i][3];
      }
    }
  }
}

INLINE void group_product(u32 stage, const Warp& warp, Sums& sum) {
  u32 a[WARP_TILES][4][4], scale[WARP_TILES][Block::RUNS];
  UNROLL for (int i = 0; i < WARP_TILES; i++) {
    const u32 from = stage + X_BYTES + (warp.number * WARP_TILES + i) * TILE_BYTES;
    Block block;
    block.load(SharedMemory{from}, warp.lane);
    UNROLL for (int m = 0; m < 4; m++) block.centred(m, a[i][m]);
    UNROLL for (int r = 0; r < Block::RUNS; r++)
      scale[i][r] = shared_u1(from + Block::CODE_BYTES + r * 32 + (warp.lane >> 2) * 4);
  }
  UNROLL for (int n = 0; n < TOKEN_TILES; n += TWINS) tokens_product(stage, warp.lane, n, a, scale, sum);
}

INLINE void part_product(const Arguments& g, u32 base, const Warp& warp, const Part& part, Sums& sum) {
  UNROLL for (int i = 0; i < WARP_TILES; i++)
    UNROLL for (int n = 0; n < TOKEN_TILES; n++)
      UNROLL for (int v = 0; v < 4; v++) sum[i][n][v] = 0.f;
  UNROLL for (int s = 0; s < STAGES - 1; s++) {
    if (s < part.count) request(g, base + s * STAGE_BYTES, warp, part.first + s);
    copies_commit();
  }
  for (int step = 0; step < part.count; step++) {
    copies_wait<STAGES - 2>();
    __syncthreads();
    const int next = step + STAGES - 1;
    if (next < part.count) request(g, base + next % STAGES * STAGE_BYTES, warp, part.first + next);
    copies_commit();
    group_product(base + step % STAGES * STAGE_BYTES, warp, sum);
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    linear_wide(const u8* weights, const u16* x, u16* y, const u16* residual, u8* partial,
                u32* arrivals, int x_stride, int tokens, int rows, int columns, int tiles,
                int slices, int slice_groups, int groups, int run, int paired, int gated) {
  extern __shared__ __align__(128) u8 memory[];
  const Arguments g = {weights, x, x_stride, columns, slices, slice_groups,
                       {partial, arrivals, tiles, groups, run,
                        {y, residual, tokens, rows, paired != 0, gated != 0}}};
  const u32 base = shared_address(memory);
  start_next_kernel();
  wait_for_kernel_before();
  const int end = g.line.end();
  for (int at = g.line.first(); at < end;) {
    const Part part(g.line, at, end);
    const int number = threadIdx.x >> 5;
    const Warp warp = {number, (int)threadIdx.x & 31, part.row_block * BLOCK_TILES + number * WARP_TILES, 1};
    Sums sum;
    part_product(g, base, warp, part, sum);
    finish(g.line, warp, part, base + STAGES * STAGE_BYTES, [&](int i, int n) { return sum[i][n]; });
    at += part.count;
  }
}
