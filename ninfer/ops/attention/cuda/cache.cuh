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

// Where a unit of 16 bytes lies in a plane. Rows that are read together have other banks.
INLINE int place_of(int key, int unit) {
  return key * ROW + ((unit ^ ((key & 1) << 2 | (key >> 2 & 3))) << 4);
}

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
  INLINE explicit Places(u32 base)
      : keys(base), values(keys + 2 * PLANE), queries(values + 2 * PLANE),
        scores(queries + NT * 16 * 256), key_scales(scores + 4 * NT * 8 * KEYS * 4),
        value_scales(key_scales + 2 * KEY_SCALES), factors(value_scales + 2 * VALUE_SCALES),
        spoiled(factors + 2 * 4 * KEYS * 4), rows(spoiled + 2 * KEYS * 4),
        ends(rows + 2 * NT * 8 * 4), sequences(ends + 5 * NT * 8 * 4) {}
  // A score's place: `half` of the columns it is the sum of, query row, key.
  INLINE u32 score(int buffer, int half, int row, int key) const {
    const int unit = key >> 2 ^ ((row & 1) << 2 | (row >> 1 & 3));
    return scores + ((buffer * 2 + half) * NT * 8 + row) * KEYS * 4 + unit * 16 + (key & 3) * 4;
  }
};

// The part of a tile's keys that this warp multiplies: 16 rows, half of the columns, their scales.
INLINE void request_keys(const u8* keys, const u8* scales, const Places& at, int stage, const Tile& t,
                         int warp, int lane) {
  constexpr int HALF = UNITS / 2;
  const int first = (warp & 1) * 16, half = warp >> 1;
  const u8* from = keys + ((size_t)t.row * HEADS + t.head) * ROW;
  UNROLL for (int i = 0; i < HALF / 2; i++) {
    const int index = i * 32 + lane, key = first + index / HALF, unit = half * HALF + index % HALF;
    copy16(at.keys + stage * PLANE + place_of(key, unit),
           from + (size_t)key * HEADS * ROW + unit * 16, key < t.live);
  }
  if constexpr (BYTES) {
    const int key = first + lane;
    const size_t row = t.row + key;
    const u8* scale = scales + (FORM == INT8_WORDS ? ((row * HEADS + t.head) * 4 + 2 * half) * 2
                                                   : row * KEY_UNIT);
    if (lane < 16)
      copy_few<KEY_UNIT>(at.key_scales + stage * Places::KEY_SCALES + (half * KEYS + key) * KEY_UNIT,
                         scale, key < t.live);
  }
}
// A quarter of a tile's values, and their scales.
INLINE void request_values(const u8* values, const u8* scales, const Places& at, int stage,
                           const Tile& t, int warp, int lane) {
  const int first = warp * 8;
  const u8* from = values + ((size_t)t.row * HEADS + t.head) * ROW;
  UNROLL for (int i = 0; i < UNITS / 4; i++) {
    const int index = i * 32 + lane, key = first + index / UNITS, unit = index % UNITS;
    copy16(at.values + stage * PLANE + place_of(key, unit),
           from + (size_t)key * HEADS * ROW + unit * 16, key < t.live);
  }
  if constexpr (BYTES) {
    const int key = first + lane;
    const size_t row = t.row + key;
    const u8* scale = scales + (FORM == INT8_WORDS ? (row * HEADS + t.head) * 8 : row * VALUE_UNIT);
    if (lane < 8)
      copy_few<VALUE_UNIT>(at.value_scales + stage * Places::VALUE_SCALES + key * VALUE_UNIT, scale,
                           key < t.live);
  }
}
