// What a warp does with a tile: scores of 16 keys over half of the columns, then weights of all keys
// and the weighted values of its own 64 columns.
#pragma once
#include "items.cuh"

using Columns = float[4][NT][4];  // a warp's 64 columns of the rows' weighted values

struct Warp {
  int warp, lane;
  Columns sums;
  float top[NT], weight[NT];  // of row n * 8 + lane / 4; weight of the keys that this thread took
  // Where this thread reads and writes, all in the first stage or buffer.
  u32 low_key, key_scales, queries, score_to, score_from, value_from, value_scales, factor_to, factor_from;

  INLINE Warp(const Places& at, int warp, int lane) : warp(warp), lane(lane) {
    const int half = warp >> 1, r = lane >> 2, j = lane & 3, low = (warp & 1) * 16 + r;
    low_key = held(at.keys + place_of(low, half * UNITS / 2 + j));
    key_scales = held(at.key_scales + (half * KEYS + low) * KEY_UNIT);
    value_scales = held(at.value_scales + (warp * 8 + (lane & 7)) * VALUE_UNIT +
                        (FORM == INT8_WORDS ? (lane >> 3) * 2 : 0));
    factor_to = held(at.factors + ((lane >> 3) * KEYS + warp * 8 + (lane & 7)) * 4);
    queries = held(at.queries + half * 8 * NT * 256 + lane * 8);
    score_to = held(at.score(half, j * 2, low));
    score_from = held(at.score(0, r, j * 4));
    // Matrix lane / 8 of the four that `turned_words` takes: second eight columns, second keys.
    const int matrix = lane >> 3, i = lane & 7;
    value_from = held(at.values + place_of((i >> 1) * 4 + (i & 1) + (matrix >> 1) * 2,
                                           warp * UNITS / 4 + (matrix & 1)));
    factor_from = held(at.factors + (warp * KEYS + j * 4) * 4);
  }

  INLINE void begin() {
    UNROLL for (int n = 0; n < NT; n++) {
      top[n] = -infinity(), weight[n] = 0.f;
      UNROLL for (int m = 0; m < 4; m++)
        UNROLL for (int i = 0; i < 4; i++) sums[m][n][i] = 0.f;
    }
  }

  // The item's rows as operands, and their positions; all threads, four values each time.
  INLINE void load_queries(const Arguments& g, const Places& at, const Item& item, int parity) {
    UNROLL for (int i = 0; i < NT * 4; i++) {
      const int step = i / NT * 4 + warp, row = i % NT * 8 + (lane >> 2), j = lane & 3;
      const int column = BYTES ? step / 4 * 64 + j * 16 + step % 4 * 4 : step / 2 * 32 + j * 8 + step % 2 * 4;
      uint2 v = make_uint2(0, 0);
      if (item.has(row))
        v = *(const uint2*)(g.q + (size_t)(item.of.start + item.token(row)) * g.q_row +
                            (size_t)item.query_head(row) * g.q_head + column);
      // Bytes 0 and 2 of a word of keys make a pair, bytes 1 and 3 the other.
      if (BYTES) v = make_uint2(bytes_of(v.x, v.y, 0x5410), bytes_of(v.x, v.y, 0x7632));
      shared_put(at.queries + (step * NT + i % NT) * 256 + lane * 8, v);
    }
    if (threadIdx.x < ROWS)
      shared_put(at.rows + (parity * ROWS + threadIdx.x) * 4, (u32)item.place(threadIdx.x));
  }

  // Scores of 16 keys over half of the columns.
  INLINE void score(int stage, int head, float scale) const {
    float scores[NT][4];
    UNROLL for (int n = 0; n < NT; n++)
      UNROLL for (int i = 0; i < 4; i++) scores[n][i] = 0.f;
    u32 low_scales = 0, high_scales = 0;
    if (BYTES) {
      const u32 scales = key_scales + stage * Places::KEY_SCALES + (FORM == FP8_WORDS ? head * 2 : 0);
      low_scales = scale_word(scales), high_scales = scale_word(scales + 8 * KEY_UNIT);
    }
    UNROLL for (int g = 0; g < 2; g++) {
      float part[NT][4];
      Words low_words, high_words;
      key_words(low_key + stage * PLANE, g, low_words);
      key_words((low_key + stage * PLANE + 8 * ROW) ^ turn_of(8), g, high_words);
      UNROLL for (int m = 0; m < 4; m++) {
        u32 a[4];
        key_operands(low_words, high_words, m, a);
        UNROLL for (int n = 0; n < NT; n++) {
          const uint2 b = shared_u2(queries + ((g * 4 + m) * NT + n) * 256);
          float(&p)[4] = part[n];
          if (m == 0) mma(p, a, b.x, b.y, 0.f, 0.f, 0.f, 0.f);
          else mma(p, a, b.x, b.y, p[0], p[1], p[2], p[3]);
        }
      }
      float f0 = scale, f1 = scale;
      if (BYTES) {
        const int by = FORM == INT8_WORDS ? 16 * g : 0;
        f0 = times(multiplier(low_scales >> by), scale);
        f1 = times(multiplier(high_scales >> by), scale);
      }
      UNROLL for (int n = 0; n < NT; n++)
        UNROLL for (int i = 0; i < 4; i++)
          scores[n][i] = fmaf(part[n][i], i < 2 ? f0 : f1, scores[n][i]);
    }
    UNROLL for (int n = 0; n < NT; n++)
      UNROLL for (int i = 0; i < 4; i++) {
        // The next row, the key eight behind: both turn the unit.
        const u32 to = score_to + stage * Places::SCORES + (n * 8 + (i & 1)) * KEYS * 4;
        shared_put(to ^ ((i & 1) * 64 + (i >> 1) * 32), __float_as_uint(scores[n][i]));
      }
  }

  // What the other warps need of this one's quarter of the values: multipliers, or what is not
  // finite where some row must not see it.
  template <bool MASKED> INLINE void prepare_values(const Places& at, int stage, int head) const {
    if constexpr (BYTES) {
      const u32 from = value_scales + stage * Places::VALUE_SCALES + (FORM == FP8_WORDS ? head * 2 : 0);
      shared_put(factor_to + stage * 4 * KEYS * 4, __float_as_uint(multiplier(shared_h1(from))));
    } else if constexpr (MASKED) {
      for (int i = 0; i < 8; i++) {
        const int key = warp * 8 + i;
        const u32 place = at.values + stage * PLANE + place_of(key, lane);
        uint4 v = shared_u4(place);
        const bool bad = not_finite(v.x) | not_finite(v.y) | not_finite(v.z) | not_finite(v.w);
        if (bad) shared_put(place, make_uint4(0, 0, 0, 0));
        const bool spoiled = any_lane(bad);
        if (lane == 0) shared_put(at.spoiled + (stage * KEYS + key) * 4, (u32)spoiled);
      }
    }
  }

  // Weights of the tile's keys as operands, and what becomes of the sums so far.
  template <bool MASKED>
  INLINE void weigh(const Places& at, int stage, int first, u32 places, int n, u32 (&operand)[2][2],
                    float& fade) {
    const int j = lane & 3;
    float s[2][4], largest = -infinity();
    int place = 0;
    if (MASKED) place = (int)shared_u1(places + (n * 8 + (lane >> 2)) * 4);
    UNROLL for (int step = 0; step < 2; step++) {
      const int key = step * 16 + j * 4;
      const u32 from = (score_from + stage * Places::SCORES + n * 8 * KEYS * 4) ^ step * 64;
      const float4 sum = plus(shared_f4(from), shared_f4(from + NT * 8 * KEYS * 4));
      s[step][0] = sum.x, s[step][1] = sum.y, s[step][2] = sum.z, s[step][3] = sum.w;
      UNROLL for (int i = 0; i < 4; i++) {
        if (MASKED && first + key + i > place) s[step][i] = -infinity();
        largest = fmaxf(largest, s[step][i]);
      }
    }
    largest = fmaxf(largest, from_lane(largest, lane ^ 1));
    largest = fmaxf(largest, from_lane(largest, lane ^ 2));
    const float now = fmaxf(top[n], largest);
    // A row that has seen nothing yet must not subtract infinity from itself.
    const float level = now == -infinity() ? 0.f : now;
    fade = power_of_2(top[n] - level);
    top[n] = now;
    float mine = 0.f;
    UNROLL for (int step = 0; step < 2; step++) {
      const int key = step * 16 + j * 4;
      float w[4];
      UNROLL for (int i = 0; i < 4; i++) w[i] = power_of_2(s[step][i] - level);
      // Two warps take the weights of each half of the keys; one of them would do.
      if (step == (warp & 1)) mine = (w[0] + w[1]) + (w[2] + w[3]);
      if constexpr (BYTES) {
        const float4 f = shared_f4(factor_from + stage * 4 * KEYS * 4 + step * 64);
        w[0] = times(w[0], f.x), w[1] = times(w[1], f.y), w[2] = times(w[2], f.z), w[3] = times(w[3], f.w);
      }
      if constexpr (MASKED)
        UNROLL for (int i = 0; i < 4; i++) {
          const bool seen = first + key + i <= place;
          // What a row does not see weighs zero, even times a multiplier that is not finite.
          if (BYTES) w[i] = seen ? w[i] : 0.f;
          else if (seen && shared_u1(at.spoiled + (stage * KEYS + key + i) * 4)) w[i] = not_a_number();
        }
      operand[step][0] = pair_of(w[0], w[1]), operand[step][1] = pair_of(w[2], w[3]);
    }
    weight[n] = fmaf(weight[n], fade, mine);
  }

  template <bool MASKED> INLINE void add_values(const Places& at, int stage, int first, u32 places) {
    u32 operand[NT][2][2];
    float fade[NT];
    bool fades = false;
    UNROLL for (int n = 0; n < NT; n++) {
      weigh<MASKED>(at, stage, first, places, n, operand[n], fade[n]);
      fades |= fade[n] != 1.f;
    }
    if (any_lane(fades))
      UNROLL for (int n = 0; n < NT; n++) {
        const float even = from_lane(fade[n], (lane & 3) * 8), odd = from_lane(fade[n], (lane & 3) * 8 + 4);
        UNROLL for (int m = 0; m < 4; m++)
          UNROLL for (int i = 0; i < 4; i++) sums[m][n][i] = times(sums[m][n][i], i & 1 ? odd : even);
      }
    UNROLL for (int step = 0; step < 2; step++)
      UNROLL for (int m = 0; m < 4; m += BYTES ? 2 : 1) {
        u32 v[4];
        // 16 keys of 16 columns (bytes: of 32), turned; lane / 4 is the column, or pair of columns.
        turned_words((value_from + stage * PLANE + step * 16 * ROW) ^ m * (BYTES ? 16 : 32), v);
        if constexpr (BYTES) {
          const u32 even[4] = {even_pair(v[0]), even_pair(v[1]), even_pair(v[2]), even_pair(v[3])};
          add_product(m, step, even, operand);
          const u32 odd[4] = {odd_pair(v[0]), odd_pair(v[1]), odd_pair(v[2]), odd_pair(v[3])};
          add_product(m + 1, step, odd, operand);
        } else {
          add_product(m, step, v, operand);
        }
      }
  }

  // Weighted values of a split to memory; weights and tops to where `put_parts` finds them.
  INLINE void put_sums(const Arguments& g, const Places& at, const Item& item) const {
    const int r = lane >> 2, j = lane & 3;
    UNROLL for (int n = 0; n < NT; n++) {
      float all = weight[n] + from_lane(weight[n], lane ^ 1);
      all += from_lane(all, lane ^ 2);
      if (j == 0) {
        shared_put(at.ends + (warp * ROWS + n * 8 + r) * 4, __float_as_uint(all));
        if (warp == 0) shared_put(at.ends + (WARPS * ROWS + n * 8 + r) * 4, __float_as_uint(top[n]));
      }
      UNROLL for (int e = 0; e < 2; e++) {
        const int row = n * 8 + j * 2 + e;
        if (!item.has(row)) continue;
        float* to = g.partial + part_of(g, item, row) * DIM + warp * 64;
        UNROLL for (int m = 0; m < 4; m += 2)
          UNROLL for (int i = 0; i < 2; i++)
            if constexpr (BYTES) {
              const float2 v = {sums[m][n][2 * i + e], sums[m + 1][n][2 * i + e]};
              *(float2*)(to + m * 16 + i * 16 + r * 2) = v;
            } else {
              to[m * 16 + i * 8 + r] = sums[m][n][2 * i + e];
              to[m * 16 + 16 + i * 8 + r] = sums[m + 1][n][2 * i + e];
            }
      }
    }
  }
  INLINE void put_parts(const Arguments& g, const Places& at, const Item& item) const {
    const int row = threadIdx.x;
    if (row >= ROWS || !item.has(row)) return;
    float all[WARPS + 1];
    UNROLL for (int w = 0; w <= WARPS; w++) all[w] = __uint_as_float(shared_u1(at.ends + (w * ROWS + row) * 4));
    g.parts[part_of(g, item, row)] = {all[WARPS], all[0] + all[1]};
  }

 private:
  static INLINE u32 scale_word(u32 place) { return FORM == INT8_WORDS ? shared_u1(place) : shared_h1(place); }

  // A key's 64 columns of group g of this warp's two, this thread's quarter of them.
  using Words = uint4[BYTES ? 1 : 2];
  static INLINE void key_words(u32 key, int g, Words& words) {
    UNROLL for (int i = 0; i < (BYTES ? 1 : 2); i++) words[i] = shared_u4(key ^ (BYTES ? g : g * 2 + i) * 64);
  }
  static INLINE u32 word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
  // 16 columns of two keys.
  static INLINE void key_operands(const Words& low, const Words& high, int m, u32 (&a)[4]) {
    if constexpr (BYTES) {
      const u32 x = word_of(low[0], m), y = word_of(high[0], m);
      a[0] = even_pair(x), a[1] = even_pair(y), a[2] = odd_pair(x), a[3] = odd_pair(y);
    } else {
      const uint4 &x = low[m / 2], &y = high[m / 2];
      a[0] = word_of(x, m % 2 * 2), a[1] = word_of(y, m % 2 * 2);
      a[2] = word_of(x, m % 2 * 2 + 1), a[3] = word_of(y, m % 2 * 2 + 1);
    }
  }
  INLINE void add_product(int m, int step, const u32 (&a)[4], const u32 (&operand)[NT][2][2]) {
    UNROLL for (int n = 0; n < NT; n++) {
      float(&s)[4] = sums[m][n];
      mma(s, a, operand[n][step][0], operand[n][step][1], s[0], s[1], s[2], s[3]);
    }
  }
  static INLINE size_t part_of(const Arguments& g, const Item& item, int row) {
    const size_t token = item.of.start + item.token(row);
    return (token * (HEADS * GROUP) + item.query_head(row)) * g.capacity + item.split;
  }
};
