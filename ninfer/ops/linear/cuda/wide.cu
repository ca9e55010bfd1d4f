// y = x W^T for 17 to 64 tokens: tensor cores and the reading of W take about as long.
//
// A block takes ROW_WARPS * 2 row tiles; a warp owns two of them and all tokens. Group after group,
// codes, scales and the activations' 64 columns come through a ring in shared memory. All (row
// block, group) pairs stand in one line that is cut into equal runs, one for each block of the
// grid, so no multiprocessor idles whatever the shape. A row block cut by a border is added up in
// the order of its runs by the last that arrives; the cuts do not depend on the number of tokens.
//
// Compile-time: BITS, ROW_WARPS, STAGES, TOKEN_TILES (of 8).
#include "codec.cuh"
#include "output.cuh"

using Block = Codec<BITS>;
constexpr int THREADS = ROW_WARPS * 32;
constexpr int BLOCK_TILES = ROW_WARPS * 2;
constexpr int TILE_BYTES = Block::CODE_BYTES + Block::SCALE_BYTES;
constexpr int X_BYTES = TOKEN_TILES * 8 * 128;
constexpr int STAGE_BYTES = X_BYTES + BLOCK_TILES * TILE_BYTES;
constexpr int TILE_SUM = TOKEN_TILES * 512;

struct Arguments {
  const u8* weights;  // [tiles, slices, slice_groups * TILE_BYTES]
  const u16* x;       // [tokens, columns], rows 16-byte aligned
  u8* partial;        // [grid, 2, BLOCK_TILES, TILE_SUM]
  u32* arrivals;      // [row blocks], zero before and after
  int x_stride;
  int columns, tiles, slices, slice_groups, groups, run;
  Output output;
};

// Chunk `chunk` (8 columns) of a token's 128 bytes; two tokens share the 32 banks.
INLINE u32 x_place(u32 stage, int token, int chunk) {
  return stage + token * 128 + ((chunk ^ ((token & 1) << 2)) << 4);
}

struct Warp {
  int number, lane, tile;  // first of its two row tiles, in the matrix
};

INLINE void request(const Arguments& g, u32 stage, const Warp& warp, int group) {
  const int k = group * 64;
  for (int i = threadIdx.x; i < TOKEN_TILES * 64; i += THREADS) {
    const int token = i >> 3, chunk = i & 7, column = k + chunk * 8;
    const bool present = token < g.output.tokens && column < g.columns;
    copy16(x_place(stage, token, chunk), present ? g.x + (size_t)token * g.x_stride + column : g.x, present);
  }
  const int slice = group / g.slice_groups, place = group % g.slice_groups;
  UNROLL for (int i = 0; i < 2; i++) {
    const int tile = warp.tile + i;
    const bool present = tile < g.tiles;
    const size_t before = (size_t)(present ? tile : 0) * g.slices + slice;
    const u8* from = g.weights + before * g.slice_groups * TILE_BYTES;
    const u32 to = stage + X_BYTES + (warp.number * 2 + i) * TILE_BYTES;
    const u8* codes = from + place * Block::CODE_BYTES;
    const u8* scales = from + g.slice_groups * Block::CODE_BYTES + place * Block::SCALE_BYTES;
    UNROLL for (int b = 0; b < Block::CODE_BYTES; b += 512)
      if (b + warp.lane * 16 < Block::CODE_BYTES) copy16(to + b + warp.lane * 16, codes + b + warp.lane * 16, present);
    if (warp.lane * 16 < Block::SCALE_BYTES)
      copy16(to + Block::CODE_BYTES + warp.lane * 16, scales + warp.lane * 16, present);
  }
}

using Sums = float[2][TOKEN_TILES][4];

INLINE void group_product(u32 stage, const Warp& warp, Sums& sum) {
  const int lane = warp.lane;
  Block block[2];
  u32 scale[2][Block::RUNS];
  UNROLL for (int i = 0; i < 2; i++) {
    const u32 from = stage + X_BYTES + (warp.number * 2 + i) * TILE_BYTES;
    block[i].load(SharedMemory{from}, lane);
    UNROLL for (int r = 0; r < Block::RUNS; r++)
      scale[i][r] = shared_u1(from + Block::CODE_BYTES + r * 32 + (lane >> 2) * 4);
  }
  Sums part;
  UNROLL for (int c = 0; c < 2; c++) {
    u32 a[2][2][4];
    UNROLL for (int i = 0; i < 2; i++)
      UNROLL for (int m = 0; m < 2; m++) block[i].centred(2 * c + m, a[i][m]);
    UNROLL for (int n = 0; n < TOKEN_TILES; n++) {
      const uint4 b = shared_u4(x_place(stage, n * 8 + (lane >> 2), c * 4 + (lane & 3)));
      UNROLL for (int i = 0; i < 2; i++) {
        float(&p)[4] = part[i][n];
        if (c == 0 || Block::RUNS == 2) mma(p, a[i][0], b.x, b.y, 0.f, 0.f, 0.f, 0.f);
        else mma(p, a[i][0], b.x, b.y, p[0], p[1], p[2], p[3]);
        mma(p, a[i][1], b.z, b.w, p[0], p[1], p[2], p[3]);
      }
    }
    if (c == 0 && Block::RUNS == 1) continue;
    UNROLL for (int i = 0; i < 2; i++) {
      const u32 pair = scale[i][c * (Block::RUNS - 1)];
      const float s0 = half_low(pair), s1 = half_high(pair);
      UNROLL for (int n = 0; n < TOKEN_TILES; n++) {
        sum[i][n][0] += s0 * part[i][n][0], sum[i][n][1] += s0 * part[i][n][1];
        sum[i][n][2] += s1 * part[i][n][2], sum[i][n][3] += s1 * part[i][n][3];
      }
    }
  }
}

INLINE float4 four(const float (&v)[4]) { return make_float4(v[0], v[1], v[2], v[3]); }

INLINE void put(const Arguments& g, const Warp& warp, int i, int n, float4 v) {
  if (warp.tile + i < g.tiles) g.output.put(warp.tile + i, warp.lane, n * 8 + (warp.lane & 3) * 2, v);
}

// A row block that a border cuts: `head` says that this run holds its later groups, `flag` is a
// word of shared memory.
INLINE void meet(const Arguments& g, const Warp& warp, int row_block, bool head, const Sums& sum, u32 flag) {
  const int own = (warp.number * 2 * TOKEN_TILES * 32 + warp.lane) * 16;
  constexpr size_t SLOT = BLOCK_TILES * TILE_SUM;
  u8* slot = g.partial + (blockIdx.x * 2 + (head ? 0 : 1)) * SLOT + own;
  UNROLL for (int i = 0; i < 2; i++)
    UNROLL for (int n = 0; n < TOKEN_TILES; n++) global_put(slot + (i * TOKEN_TILES + n) * 512, four(sum[i][n]));
  const long long begin = (long long)row_block * g.groups;
  const int first = begin / g.run, last = (begin + g.groups - 1) / g.run;
  __syncthreads();
  if (threadIdx.x == 0) shared_put(flag, arrive_global(g.arrivals + row_block));
  __syncthreads();
  if (shared_u1(flag) != (u32)(last - first)) return;
  UNROLL for (int i = 0; i < 2; i++)
    UNROLL for (int n = 0; n < TOKEN_TILES; n++) {
      float4 all = make_float4(0, 0, 0, 0);
      for (int b = first; b <= last; b++) {
        const bool later = (long long)b * g.run > begin;
        all = plus(all, global_f4(g.partial + (b * 2 + (later ? 0 : 1)) * SLOT + own + (i * TOKEN_TILES + n) * 512));
      }
      put(g, warp, i, n, all);
    }
  if (threadIdx.x == 0) g.arrivals[row_block] = 0;
}

// Groups first .. first + count - 1 of one row block.
INLINE void run_product(const Arguments& g, u32 base, const Warp& warp, int first, int count, Sums& sum) {
  UNROLL for (int i = 0; i < 2; i++)
    UNROLL for (int n = 0; n < TOKEN_TILES; n++)
      UNROLL for (int v = 0; v < 4; v++) sum[i][n][v] = 0.f;
  UNROLL for (int s = 0; s < STAGES - 1; s++) {
    if (s < count) request(g, base + s * STAGE_BYTES, warp, first + s);
    copies_commit();
  }
  for (int step = 0; step < count; step++) {
    copies_wait<STAGES - 2>();
    __syncthreads();
    const int next = step + STAGES - 1;
    if (next < count) request(g, base + next % STAGES * STAGE_BYTES, warp, first + next);
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
  const Arguments g = {weights, x,     partial, arrivals, x_stride,
                       columns, tiles, slices,  slice_groups, groups, run,
                       {y, residual, tokens, rows, paired != 0, gated != 0}};
  const u32 base = shared_address(memory);
  start_next_kernel();
  wait_for_kernel_before();
  const long long all = (long long)((tiles + BLOCK_TILES - 1) / BLOCK_TILES) * groups;
  long long at = (long long)blockIdx.x * run;
  const long long end = min(at + run, all);
  while (at < end) {
    const int row_block = at / groups, first = at % groups;
    const int count = (int)min((long long)(groups - first), end - at);
    Warp warp;
    warp.number = threadIdx.x >> 5, warp.lane = threadIdx.x & 31;
    warp.tile = row_block * BLOCK_TILES + warp.number * 2;
    Sums sum;
    run_product(g, base, warp, first, count, sum);
    if (count == groups) {
      UNROLL for (int i = 0; i < 2; i++)
        UNROLL for (int n = 0; n < TOKEN_TILES; n++) put(g, warp, i, n, four(sum[i][n]));
    } else {
      meet(g, warp, row_block, first != 0, sum, base + STAGES * STAGE_BYTES);
    }
    at += count;
  }
}
