// y = x W^T for 17 to 64 tokens by products of warpgroups with A in registers: Hopper only.
//
// A block takes ROW_GROUPS * SUBTILES * 64 rows; each of ROW_GROUPS warpgroups owns SUBTILES times
// 64 of them and all tokens. A warp of one more fills a ring: a stage holds STAGE_GROUPS groups of
// columns, the activations as arrange.cu left them, then codes and scales of each row tile. See
// runs.cuh for how the work is shared out. A lane decodes its words to A registers as everywhere,
// and while the tensor core multiplies by them it decodes the next ones and scales what is ready:
// two products of 64 rows and one run of columns are in flight, in two sets of registers.
//
// Compile-time: BITS, ROW_GROUPS, SUBTILES, STAGES, STAGE_GROUPS, TOKEN_TILES (of 8).
#include "codec.cuh"

using Block = Codec<BITS>;
constexpr int THREADS = ROW_GROUPS * 128;
constexpr int WARP_TILES = SUBTILES;
constexpr int BLOCK_TILES = ROW_GROUPS * SUBTILES * 4;
#include "runs.cuh"

constexpr int X_BYTES = TOKEN_TILES * 8 * 128;
constexpr int CODES = STAGE_GROUPS * Block::CODE_BYTES, SCALES = STAGE_GROUPS * Block::SCALE_BYTES;
constexpr int CODES_AT = STAGE_GROUPS * X_BYTES, SCALES_AT = CODES_AT + BLOCK_TILES * CODES;
// Whole kilobytes: the swizzle goes by the address.
constexpr int STAGE_BYTES = (SCALES_AT + BLOCK_TILES * SCALES + 1023) / 1024 * 1024;
// What the launch gives to a thread, and what the warpgroup that fills leaves to the others.
constexpr int LAUNCH_REGISTERS = 65536 / (THREADS + 128) / 8 * 8;
constexpr int MULTIPLIER_REGISTERS = (LAUNCH_REGISTERS * (ROW_GROUPS + 1) - 40) / ROW_GROUPS / 8 * 8;
constexpr int STEPS = STAGE_GROUPS * SUBTILES * Block::RUNS;
constexpr int PRODUCTS = 4 / Block::RUNS;
static_assert(STEPS % 2 == 0 && STAGES <= 8, "two sets of registers in turn; barrier words");

struct Arguments {
  const u8* weights;  // [tiles, slices, slice_groups * (CODE_BYTES + SCALE_BYTES)]
  const u8* image;    // [units, STAGE_GROUPS * X_BYTES]
  int slices, slice_groups;
  Line line;          // its unit is STAGE_GROUPS groups
};

struct Places {
  u32 base;
  INLINE u32 stage(int number) const { return base + number % STAGES * STAGE_BYTES; }
  INLINE u32 full(int number) const { return base + STAGES * STAGE_BYTES + number % STAGES * 8; }
  INLINE u32 empty(int number) const { return full(number) + 64; }
  INLINE u32 flag() const { return base + STAGES * STAGE_BYTES + 128; }
};

#if WARPGROUPS
// The units of this block in order, for the warp that fills the ring: without any division.
struct Walk {
  int number = 0, left, first, unit, slice, place;
  INLINE Walk(const Line& line, int slice_groups) {
    const int begin = line.first();
    left = line.end() - begin;
    first = begin / line.units * BLOCK_TILES, unit = begin % line.units;
    slice = unit * STAGE_GROUPS / slice_groups, place = unit * STAGE_GROUPS % slice_groups;
  }
  INLINE void next(int units, int slice_groups) {
    number++, left--, unit++, place += STAGE_GROUPS;
    if (place == slice_groups) place = 0, slice++;
    if (unit == units) unit = slice = place = 0, first += BLOCK_TILES;
  }
};

INLINE void request_weights(const Arguments& g, const Places& p, const Walk& walk, int lane, u64 policy) {
  const int present = min(BLOCK_TILES, g.line.tiles - walk.first);
  const int slice_bytes = g.slice_groups * (Block::CODE_BYTES + Block::SCALE_BYTES);
  const u32 stage = p.stage(walk.number), full = p.full(walk.number);
  if (lane == 0) barrier_expect(full, CODES_AT + present * (CODES + SCALES));
  __syncwarp();
  _Pragma("unroll 1") for (int i = lane; i < present * 2; i += 32) {
    const int tile = i >> 1;
    const u8* from = g.weights + (size_t)((walk.first + tile) * g.slices + walk.slice) * slice_bytes;
    if (i & 1) {
      const u8* scales = from + g.slice_groups * Block::CODE_BYTES + walk.place * Block::SCALE_BYTES;
      copy_bulk_part(stage + SCALES_AT + tile * SCALES, scales, SCALES, full, policy);
    } else {
      const u8* codes = from + walk.place * Block::CODE_BYTES;
      copy_bulk_part(stage + CODES_AT + tile * CODES, codes, CODES, full, policy);
    }
  }
}

INLINE void request_activations(const Arguments& g, const Places& p, const Walk& walk, u64 policy) {
  const u8* from = g.image + walk.unit * (size_t)CODES_AT;
  copy_bulk_part(p.stage(walk.number), from, CODES_AT, p.full(walk.number), policy);
}

INLINE void fill(const Arguments& g, const Places& p, int lane) {
  const u64 once = read_once_policy(), often = keep_policy();
  // Weights do not come from the kernel before: the ring is filled with them while it still runs.
  _Pragma("unroll 1") for (Walk w(g.line, g.slice_groups); w.left > 0 && w.number < STAGES; w.next(g.line.units, g.slice_groups))
    request_weights(g, p, w, lane, once);
  wait_for_kernel_before();
  _Pragma("unroll 1") for (Walk w(g.line, g.slice_groups); w.left > 0; w.next(g.line.units, g.slice_groups)) {
    if (w.number >= STAGES) {
      barrier_wait(p.empty(w.number), w.number / STAGES & 1 ^ 1);
      request_weights(g, p, w, lane, once);
    }
    if (lane == 0) request_activations(g, p, w, often);
    __syncwarp();
  }
}

using Sums = float[SUBTILES][TOKEN_TILES * 4];
using Operands = u32[PRODUCTS][4];

// One step of a stage: a run of columns of a group, times a warp's rows of one subtile.
struct Step {
  int group, subtile, run;
  INLINE explicit Step(int number)
      : group(number / Block::RUNS / SUBTILES), subtile(number / Block::RUNS % SUBTILES), run(number % Block::RUNS) {}
  // This warp's row tile in the block.
  INLINE int tile(int warp) const { return (warp / 4 * SUBTILES + subtile) * 4 + warp % 4; }
  INLINE u32 codes(u32 stage, int warp) const {
    return stage + CODES_AT + tile(warp) * CODES + group * Block::CODE_BYTES;
  }
  INLINE u32 scale(u32 stage, const Warp& warp) const {
    return stage + SCALES_AT + tile(warp.number) * SCALES + group * Block::SCALE_BYTES + run * 32 + (warp.lane >> 2) * 4;
  }
};

INLINE void add_scaled(Sums& sum, const Step& step, u32 scale, const float (&part)[TOKEN_TILES * 4]) {
  const float s0 = half_low(scale), s1 = half_high(scale);
  float(&all)[TOKEN_TILES * 4] = sum[step.subtile];
  UNROLL for (int n = 0; n < TOKEN_TILES * 4; n += 4) {
    all[n] += s0 * part[n], all[n + 1] += s0 * part[n + 1];
    all[n + 2] += s1 * part[n + 2], all[n + 3] += s1 * part[n + 3];
  }
  settled(all, TOKEN_TILES * 4);
}

INLINE void stage_product(u32 stage, const Warp& warp, Sums& sum) {
  float part[2][TOKEN_TILES * 4];
  Operands a[2];
  u32 scale[2];
  Block block;
  block.load(SharedMemory{Step(0).codes(stage, warp.number)}, warp.lane);
  UNROLL for (int s = 0; s < STEPS; s++) {
    const Step step(s);
    UNROLL for (int m = 0; m < PRODUCTS; m++) block.centred(step.run * PRODUCTS + m, a[s & 1][m]);
    scale[s & 1] = shared_u1(step.scale(stage, warp));
    // The next words are on their way while these are multiplied.
    if (s + 1 < STEPS && Step(s + 1).run == 0)
      block.load(SharedMemory{Step(s + 1).codes(stage, warp.number)}, warp.lane);
    products_begin();
    UNROLL for (int m = 0; m < PRODUCTS; m++) {
      const u64 x = swizzled(stage + step.group * X_BYTES + (step.run * PRODUCTS + m) * 32);
      if (m == 0) product<true>(part[s & 1], a[s & 1][m], x);
      else product<false>(part[s & 1], a[s & 1][m], x);
    }
    products_commit();
    if (s == 0) continue;
    products_wait<1>(part[(s + 1) & 1], a[(s + 1) & 1]);
    add_scaled(sum, Step(s - 1), scale[(s + 1) & 1], part[(s + 1) & 1]);
  }
  products_wait<0>(part[1], a[1]);
  add_scaled(sum, Step(STEPS - 1), scale[1], part[1]);
}

INLINE void multiply(const Arguments& g, const Places& p, int number, int lane) {
  wait_for_kernel_before();
  const int end = g.line.end();
  int unit = 0;
  for (int at = g.line.first(); at < end;) {
    const Part part(g.line, at, end);
    const Warp warp = {number, lane, part.row_block * BLOCK_TILES + Step(0).tile(number), 4};
    Sums sum;
    UNROLL for (int i = 0; i < SUBTILES; i++)
      UNROLL for (int n = 0; n < TOKEN_TILES * 4; n++) sum[i][n] = 0.f;
    for (int i = 0; i < part.count; i++, unit++) {
      barrier_wait(p.full(unit), unit / STAGES & 1);
      stage_product(p.stage(unit), warp, sum);
      __syncwarp();
      if (lane == 0) barrier_arrive(p.empty(unit));
    }
    finish(g.line, warp, part, p.flag(), [&](int i, int n) { return sum[i] + n * 4; });
    at += part.count;
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS + 128, 1)
    linear_warpgroup(const u8* weights, const u8* image, u16* y, const u16* residual, u8* partial,
                     u32* arrivals, int tokens, int rows, int tiles, int slices, int slice_groups,
                     int units, int run, int paired, int gated) {
#if WARPGROUPS
  extern __shared__ __align__(1024) u8 memory[];
  const Arguments g = {weights, image, slices, slice_groups,
                       {partial, arrivals, tiles, units, run,
                        {y, residual, tokens, rows, paired != 0, gated != 0}}};
  const Places p = {shared_address(memory)};
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (threadIdx.x == THREADS) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(p.full(i), 1);
      barrier_init(p.empty(i), THREADS / 32);
    }
    barriers_visible();
  }
  __syncthreads();
  start_next_kernel();
  if (warp < THREADS / 32) {
    more_registers<MULTIPLIER_REGISTERS>();
    multiply(g, p, warp, lane);
  } else {
    fewer_registers<40>();
    if (warp == THREADS / 32) fill(g, p, lane);
  }
#endif
}
