// Work of the kernels for many tokens: all (row block, unit of columns) pairs stand in one line,
// which is cut into equal runs, one for each block of the grid, so that no multiprocessor idles
// whatever the shape. A row block cut by a border is added up in the order of its runs by the last
// that arrives; the cuts do not depend on the number of tokens.
//
// Before: BLOCK_TILES, WARP_TILES (row tiles of a block and of a warp), TOKEN_TILES (of 8), THREADS
// (that multiply).
#pragma once
#include "output.cuh"

constexpr int TILE_SUM = TOKEN_TILES * 512;

struct Line {
  u8* partial;    // [grid, 2, BLOCK_TILES, TILE_SUM]
  u32* arrivals;  // [row blocks], zero before and after
  int tiles, units, run;
  Output output;

  INLINE int first() const { return blockIdx.x * run; }
  INLINE int end() const {
    return min(first() + run, (tiles + BLOCK_TILES - 1) / BLOCK_TILES * units);
  }
};

// Units first .. first + count - 1 of a row block.
struct Part {
  int row_block, first, count;
  INLINE Part(const Line& line, int at, int end) {
    row_block = at / line.units, first = at % line.units;
    count = min(line.units - first, end - at);
  }
};

// A warp and where its row tiles are in the matrix.
struct Warp {
  int number, lane, tile, step;
  INLINE int at(int i) const { return tile + i * step; }
};

INLINE float4 four(const float* v) { return make_float4(v[0], v[1], v[2], v[3]); }

INLINE void put(const Line& line, const Warp& warp, int i, int n, float4 v) {
  if (warp.at(i) < line.tiles) line.output.put(warp.at(i), warp.lane, n * 8 + (warp.lane & 3) * 2, v);
}

// The sums of a part, where `sum(i, n)` are the four of row tile i and token tile n; `flag` is a
// word of shared memory.
template <class Sum> INLINE void finish(const Line& line, const Warp& warp, const Part& part, u32 flag, Sum sum) {
  if (part.count == line.units) {
    UNROLL for (int i = 0; i < WARP_TILES; i++)
      UNROLL for (int n = 0; n < TOKEN_TILES; n++) put(line, warp, i, n, four(sum(i, n)));
    return;
  }
  const int own = (warp.number * WARP_TILES * TOKEN_TILES * 32 + warp.lane) * 16;
  constexpr size_t SLOT = BLOCK_TILES * TILE_SUM;
  u8* slot = line.partial + (blockIdx.x * 2 + (part.first != 0 ? 0 : 1)) * SLOT + own;
  UNROLL for (int i = 0; i < WARP_TILES; i++)
    UNROLL for (int n = 0; n < TOKEN_TILES; n++) global_put(slot + (i * TOKEN_TILES + n) * 512, four(sum(i, n)));
  const int begin = part.row_block * line.units;
  const int first = begin / line.run, last = (begin + line.units - 1) / line.run;
  meeting<THREADS>();
  if (warp.number == 0 && warp.lane == 0) shared_put(flag, arrive_global(line.arrivals + part.row_block));
  meeting<THREADS>();
  if (shared_u1(flag) != (u32)(last - first)) return;
  UNROLL for (int i = 0; i < WARP_TILES; i++)
    UNROLL for (int n = 0; n < TOKEN_TILES; n++) {
      float4 all = make_float4(0, 0, 0, 0);
      for (int b = first; b <= last; b++) {
        const bool later = b * line.run > begin;
        all = plus(all, global_f4(line.partial + (b * 2 + (later ? 0 : 1)) * SLOT + own + (i * TOKEN_TILES + n) * 512));
      }
      put(line, warp, i, n, all);
    }
  if (warp.number == 0 && warp.lane == 0) line.arrivals[part.row_block] = 0;
}
