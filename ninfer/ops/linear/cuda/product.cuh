// Products of one row tile with a warp's groups of columns, for kernels that stream weights.
#pragma once
#include "codec.cuh"

// B operands of a warp's G groups and N token tiles, and the products with the offset that each group begins with.
template <class Block, int G, int N>
struct Operands {
  u32 b[G][N][8];
  float minus[G][N][2];

  // Half c of group i: the 8 columns of this lane, of token tile n.
  INLINE void put(int i, int n, int c, uint4 v) {
    b[i][n][c * 4] = v.x, b[i][n][c * 4 + 1] = v.y;
    b[i][n][c * 4 + 2] = v.z, b[i][n][c * 4 + 3] = v.w;
  }
  INLINE void take_offset() {
    if constexpr (!Block::HAS_OFFSET) return;
    const u32 a[4] = {Block::MINUS_OFFSET, Block::MINUS_OFFSET, Block::MINUS_OFFSET,
                      Block::MINUS_OFFSET};
    UNROLL for (int i = 0; i < G; i++)
      UNROLL for (int n = 0; n < N; n++) {
        float d[4] = {0, 0, 0, 0};
        UNROLL for (int m = 0; m < 4; m++)
          mma(d, a, b[i][n][2 * m], b[i][n][2 * m + 1], d[0], d[1], d[2], d[3]);
        minus[i][n][0] = d[0], minus[i][n][1] = d[1];
      }
  }
};

// Products of one tile with one warp's groups, scaled and added in group order; TOGETHER groups are in
// flight at once.
template <int TOGETHER, class Block, int G, int N>
INLINE void tile_product(u32 codes, u32 scales, const Operands<Block, G, N>& x,
                         int lane, float (&sum)[N][4]) {
  UNROLL for (int n = 0; n < N; n++)
    UNROLL for (int i = 0; i < 4; i++) sum[n][i] = 0.f;
  UNROLL for (int g0 = 0; g0 < G; g0 += TOGETHER) {
    Block block[TOGETHER];
    u32 scale[TOGETHER][Block::RUNS];
    float part[TOGETHER][N][4];
    UNROLL for (int u = 0; u < TOGETHER; u++)
      if (g0 + u < G) {
        block[u].load(SharedMemory{codes + (g0 + u) * Block::CODE_BYTES}, lane);
        UNROLL for (int r = 0; r < Block::RUNS; r++)
          scale[u][r] = shared_u1(scales + (g0 + u) * Block::SCALE_BYTES + r * 32 + (lane >> 2) * 4);
      }
    UNROLL for (int m = 0; m < 4; m++)
      UNROLL for (int u = 0; u < TOGETHER; u++)
        if (g0 + u < G) {
          const bool begins = m % (4 / Block::RUNS) == 0;
          const bool ends = (m + 1) % (4 / Block::RUNS) == 0;
          u32 a[4];
          block[u].operands(m, a);
          UNROLL for (int n = 0; n < N; n++) {
            float(&p)[4] = part[u][n];
            const u32 *b = x.b[g0 + u][n];
            if (begins && Block::HAS_OFFSET) {
              const float c0 = x.minus[g0 + u][n][0], c1 = x.minus[g0 + u][n][1];
              mma(p, a, b[2 * m], b[2 * m + 1], c0, c1, c0, c1);
            } else if (begins) {
              mma(p, a, b[2 * m], b[2 * m + 1], 0.f, 0.f, 0.f, 0.f);
            } else {
              mma(p, a, b[2 * m], b[2 * m + 1], p[0], p[1], p[2], p[3]);
            }
            if (ends) {
              const u32 pair = scale[u][m / (4 / Block::RUNS)];
              const float s0 = half_low(pair), s1 = half_high(pair);
              sum[n][0] += s0 * p[0], sum[n][1] += s0 * p[1];
              sum[n][2] += s1 * p[2], sum[n][3] += s1 * p[3];
            }
          }
        }
  }
}
