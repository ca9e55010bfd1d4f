// What becomes of a finished sum: rounded to bfloat16 once, after the residual or the gate.
#pragma once
#include "machine.cuh"

struct Output {
  u16* y;               // [tokens, rows], or [tokens, rows / 2] of a gated product
  const u16* residual;  // [tokens, rows] or null
  int tokens, rows;
  bool paired, gated;

  // Lane 4 r + j of a tile holds rows r (x, y) and r + 8 (z, w), tokens `token` and `token` + 1.
  INLINE void put(int tile, int lane, int token, float4 v) const {
    one(tile, lane, token, v.x, v.z);
    one(tile, lane, token + 1, v.y, v.w);
  }

 private:
  INLINE void one(int tile, int lane, int token, float first, float second) const {
    if (token >= tokens) return;
    const int half = rows >> 1;
    const int row = paired ? tile * 8 + (lane >> 2) : tile * 16 + (lane >> 2);
    if (gated) {
      // A large negative gate gives -0 through the infinite divisor.
      if (row < half) y[(size_t)token * half + row] = to_bf16(first / (1.f + __expf(-first)) * second);
      return;
    }
    if (paired && row >= half) return;
    plain(token, row, first);
    plain(token, paired ? half + row : row + 8, second);
  }
  INLINE void plain(int token, int row, float value) const {
    if (row >= rows) return;
    const size_t at = (size_t)token * rows + row;
    if (residual) value += from_bf16(residual[at]);
    y[at] = to_bf16(value);
  }
};
