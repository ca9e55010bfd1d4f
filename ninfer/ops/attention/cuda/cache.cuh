// Keys and values of a tile: how their words come to shared memory, and become operands there.
#pragma once
#include "splits.cuh"

#define BF16_WORDS 0
#define INT8_WORDS 1
#define FP8_WORDS 2

constexpr bool BYTES = FORM != BF16_WORDS;
constexpr int KEYS = 32;                         // of a tile
constexpr int ROW = DIM * (BYTES ? 1 : 2);       // bytes of a head's row
constexpr int UNITS = ROW / 16;                  // of 16 bytes in a row
constexpr int PLANE = KEYS * ROW;                // keys or values of a tile
constexpr int SCALES = FORM == INT8_WORDS ? 4 : FORM == FP8_WORDS ? 1 : 0;  // of a head's row
// What is copied of a key's scales: two of the four keys' scales, which a warp needs, and all four
// of the values' scales; where a head has one scale, those of all heads.
constexpr int KEY_UNIT = FORM == INT8_WORDS ? 4 : FORM == FP8_WORDS ? 2 * HEADS : 0;
constexpr int VALUE_UNIT = FORM == INT8_WORDS ? 8 : FORM == FP8_WORDS ? 2 * HEADS : 0;

// Where a unit of 16 bytes lies in a plane. Rows that are read together have other banks; what is
// xored depends on three bits of the key, so places of other keys and units differ by xors too.
INLINE constexpr int turn_of(int key) { return ((key & 1) << 2 | (key >> 2 & 3)) << 4; }
INLINE constexpr int place_of(int key, int unit) { return key * ROW + (unit << 4 ^ turn_of(key)); }

// Bytes 0 and 2 of a word as two bfloat16, without their scale; exact.
INLINE u32 even_pair(u32 word) {
  if (FORM == INT8_WORDS)  // 128 plus the low seven bits, less 128 plus the sign bit
    return fma2(pick(word, 0x00800080, 0x43004300), 0xBF80BF80, pick(word, 0x007F007F, 0x43004300));
  // Exponent and mantissa where bfloat16 has them, times 2^120 for the other bias.
  return fma2(pick(word << 8, 0x80008000, word << 4 & 0x07F007F0), 0x7B807B80, 0x80008000);
}
// Bytes 1 and 3.
INLINE u32 odd_pair(u32 word) {
  if (FORM == INT8_WORDS) return even_pair(word >> 8);
  return fma2(pick(word, 0x80008000, word >> 4 & 0x07F007F0), 0x7B807B80, 0x80008000);
}

// A scale as a multiplier: NaN when it is not finite, since a group that held infinity has no codes.
INLINE float multiplier(u32 half) {
  const float found = half_low(half);
  return (found - found) + found;
}

// A tile: its first row in the cache (KEYS rows of one page), its head, and how many keys there are.
struct Tile {
  u32 row;
  int head, live;
};

// Shared memory of a block.
struct Places {
  u32 keys, values, queries, scores, key_scales, value_scales, factors, spoiled, rows, ends, sequences;
  static constexpr int KEY_SCALES = 2 * KEYS * KEY_UNIT, VALUE_SCALES = KEYS * VALUE_UNIT;
  static constexpr int SCORES = 2 * NT * 8 * KEYS * 4;  // of a buffer
  INLINE explicit Places(u32 base)
      : keys(base), values(keys + 2 * PLANE), queries(values + 2 * PLANE),
        scores(queries + NT * 16 * 256), key_scales(scores + 4 * NT * 8 * KEYS * 4),
        value_scales(key_scales + 2 * KEY_SCALES), factors(value_scales + 2 * VALUE_SCALES),
        spoiled(factors + 2 * 4 * KEYS * 4), rows(spoiled + 2 * KEYS * 4),
        ends(rows + 2 * NT * 8 * 4), sequences(ends + 5 * NT * 8 * 4) {}
  // A score's place in the first of two buffers: `half` of the columns it is the sum of, query row,
  // key. Rows and keys are turned as in a plane.
  INLINE u32 score(int half, int row, int key) const {
    const int unit = key >> 2 ^ ((row & 1) << 2 | (row >> 1 & 3));
    return scores + (half * NT * 8 + row) * KEYS * 4 + unit * 16 + (key & 3) * 4;
  }
};

// Copies of rows of a plane by a warp: UNITS_EACH units of each row from key `first` on.
template <int UNITS_EACH> struct Copies {
  static constexpr int AT_ONCE = 32 / UNITS_EACH;  // rows
  u32 from, to;
  int key;
  INLINE Copies(u32 plane, int first, int unit, int lane) {
    key = first + lane / UNITS_EACH, unit += lane % UNITS_EACH;
    from = held(key * HEADS * ROW + unit * 16), to = held(plane + place_of(key, unit));
    key = (int)held(key);
  }
  template <int COUNT> INLINE void request(const u8* words, int stage, const Tile& t) const {
    const u8* source = words + ((size_t)t.row * HEADS + t.head) * ROW + from;
    const int left = t.live - key;
    UNROLL for (int i = 0; i < COUNT; i++)
      copy16((to + stage * PLANE + i * AT_ONCE * ROW) ^ turn_of(i * AT_ONCE),
             source + i * AT_ONCE * HEADS * ROW, i * AT_ONCE < left);
  }
};

// What one warp copies: of the keys those that it multiplies itself, which are 16 rows, half of
// their columns; of the values all columns of a quarter of the rows.
struct Requests {
  Copies<UNITS / 2> keys;
  Copies<UNITS> values;
  int key, value;  // the rows whose scales this thread copies
  u32 key_to, value_to;
  const u8 *key_from, *value_from;

  INLINE Requests(const Places& at, const u8* key_scales, const u8* value_scales, int warp, int lane)
      : keys(at.keys, (warp & 1) * 16, (warp >> 1) * UNITS / 2, lane), values(at.values, warp * 8, 0, lane) {
    const int half = warp >> 1;
    // Threads without a row of their own have one that no tile has.
    key = (int)held(lane < 16 ? (warp & 1) * 16 + lane : KEYS), value = (int)held(lane < 8 ? warp * 8 + lane : KEYS);
    key_to = at.key_scales + (half * KEYS + key) * KEY_UNIT;
    value_to = at.value_scales + value * VALUE_UNIT;
    key_from = key_scales + key * HEADS * SCALES * 2 + (FORM == INT8_WORDS ? half * KEY_UNIT : 0);
    value_from = value_scales + value * HEADS * SCALES * 2;
  }
  INLINE void of_keys(const u8* words, int stage, const Tile& t) const {
    keys.request<UNITS / 4>(words, stage, t);
    if (BYTES && key < KEYS)
      copy_few<KEY_UNIT ? KEY_UNIT : 4>(key_to + stage * Places::KEY_SCALES, key_from + scales_of(t), key < t.live);
  }
  INLINE void of_values(const u8* words, int stage, const Tile& t) const {
    values.request<UNITS / 4>(words, stage, t);
    if (BYTES && value < KEYS)
      copy_few<VALUE_UNIT ? VALUE_UNIT : 4>(value_to + stage * Places::VALUE_SCALES, value_from + scales_of(t),
                                            value < t.live);
  }

 private:
  // Bytes before the scales of the tile's first row, of its head where heads are copied apart.
  static INLINE size_t scales_of(const Tile& t) {
    return ((size_t)t.row * HEADS + (FORM == INT8_WORDS ? t.head : 0)) * SCALES * 2;
  }
};
