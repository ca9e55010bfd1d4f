// A code block of 16 rows x 64 columns in registers, and its A operands (see fragment_order.py).
//
// A bfloat16 has 7 mantissa bits, so u in 0..2^b - 1 put at their top, under the exponent of 2^b,
// is the number 2^b + u = code + 1.5 * 2^b: no conversion, one LOP3 for two columns (two with a
// high plane). The rotation left by 7 - b at load time puts the first field there; a rotation right
// brings each next one. Half a word has room for three codes of five bits: the fourth has four of its
// bits in the lane's last word and one in the bit left over, so that it alone takes two LOP3.
// `offset` is what has to come off: a product with ones, or `centred`.
#pragma once
#include "machine.cuh"

struct SharedMemory {
  u32 at;
  INLINE uint4 four(int byte) const { return shared_u4(at + byte); }
  INLINE uint2 two(int byte) const { return shared_u2(at + byte); }
  INLINE u32 one(int byte) const { return shared_u1(at + byte); }
};

template <int CODE_BITS> struct Codec {
  static constexpr int CODE_BYTES = 128 * CODE_BITS, RUNS = 1, SCALE_BYTES = 32;
  static constexpr int SHIFT = 7 - CODE_BITS;
  static constexpr u32 LOW = (CODE_BITS == 5 ? 0x001F001Fu : 0x000F000Fu) << SHIFT;
  static constexpr int FIELD = CODE_BITS == 5 ? 5 : 4;
  static constexpr u32 EXPONENT = (u32)(127 + CODE_BITS) << 7 | (u32)(127 + CODE_BITS) << 23;
  // -(2^b + 2^(b-1)) twice
  static constexpr u32 MINUS_OFFSET = EXPONENT | 0x80408040u;
  static constexpr bool HAS_OFFSET = true;
  u32 low[4];
  u32 high[CODE_BITS == 6 ? 2 : 1];

  template <class Memory> INLINE void load(Memory block, int lane) {
    const uint4 v = block.four(lane * 16);
    low[0] = v.x, low[1] = v.y, low[2] = v.z, low[3] = v.w;
    if constexpr (CODE_BITS == 5) high[0] = block.one(512 + lane * 4);
    if constexpr (CODE_BITS == 6) {
      const uint2 w = block.two(512 + lane * 8);
      high[0] = w.x, high[1] = w.y;
    }
  }
  // The A registers of product m, each code too large by the offset.
  INLINE void operands(int m, u32 (&a)[4]) const {
    UNROLL for (int i = 0; i < 4; i++) {
      if (CODE_BITS == 5 && i == 3) {
        a[i] = pick(low[m] << 1, 0x00040004u, pick(rotr(high[0], 4 * m), 0x00780078u, EXPONENT));
        continue;
      }
      a[i] = pick(rotr(low[m], FIELD * i), LOW, EXPONENT);
      if constexpr (CODE_BITS == 6)
        a[i] = pick(rotr(high[m >> 1], 2 * (4 * (m & 1) + i)), 0x00600060u, a[i]);
    }
  }
  // The A registers as the codes themselves; exact, since a bfloat16 holds them.
  INLINE void centred(int m, u32 (&a)[4]) const {
    operands(m, a);
    UNROLL for (int i = 0; i < 4; i++) a[i] = fma2(a[i], 0x3F803F80u, MINUS_OFFSET);
  }
};

// Bytes in two's complement: 128 + (q & 127), less 128 or, for a set sign bit, 256. Both exact.
template <> struct Codec<8> {
  static constexpr int CODE_BYTES = 1024, RUNS = 2, SCALE_BYTES = 64;
  static constexpr u32 MINUS_OFFSET = 0;
  static constexpr bool HAS_OFFSET = false;
  u32 words[8];

  template <class Memory> INLINE void load(Memory block, int lane) {
    const uint4 v = block.four(lane * 16), w = block.four(512 + lane * 16);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    words[4] = w.x, words[5] = w.y, words[6] = w.z, words[7] = w.w;
  }
  INLINE void operands(int m, u32 (&a)[4]) const {
    UNROLL for (int i = 0; i < 4; i++) {
      const u32 pair = words[2 * m + (i >> 1)] >> (8 * (i & 1));
      a[i] = fma2(pick(pair, 0x00800080u, 0x43004300u), 0xBF80BF80u,
                  pick(pair, 0x007F007Fu, 0x43004300u));
    }
  }
  INLINE void centred(int m, u32 (&a)[4]) const { operands(m, a); }
};
