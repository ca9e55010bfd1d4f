// Which experts a call reads and which rows each serves: every block finds out for itself.
//
// Pair p = t * top_k + r is rank r of token t. An item is one expert with up to 8 of its pairs, which
// are the 8 columns of its products; items follow each other by expert, pairs by token. Up to 8
// tokens (FEW) token t is column t of every item, so that all have the same activations.
//
// Compile-time: MOST_PAIRS (a multiple of 16), MOST_ITEMS, EXPERT_ROOM (a multiple of 32), FEW.
#pragma once
#include "machine.cuh"

constexpr u32 NONE = 0xFFFFFFFFu;

struct Items {
  u32 ids, bases, experts, pairs, count;  // shared addresses
  static constexpr int BYTES = (MOST_PAIRS + EXPERT_ROOM + 9 * MOST_ITEMS) * 4 + 16;

  INLINE explicit Items(u32 base)
      : ids(base), bases(ids + MOST_PAIRS * 4), experts(bases + EXPERT_ROOM * 4),
        pairs(experts + MOST_ITEMS * 4), count(pairs + MOST_ITEMS * 32) {}

  INLINE int total() const { return (int)shared_u1(count); }
  INLINE int expert(int item) const { return (int)shared_u1(experts + item * 4); }
  // The pair of a column, or NONE.
  INLINE u32 pair(int item, int column) const { return shared_u1(pairs + (item * 8 + column) * 4); }

  // All `threads` threads of the block; `chosen` are int64, read before the wait if EARLY.
  template <bool EARLY>
  INLINE void find(const u32* chosen, int tokens, int top_k, int thread, int threads) const {
    const int used = tokens * top_k;
    for (int p = thread; p < MOST_PAIRS; p += threads) {
      u32 id = NONE;
      if (p < used) id = EARLY ? early_u1(chosen + 2 * p) : global_u1(chosen + 2 * p);
      shared_put(ids + p * 4, id);
    }
    for (int i = thread; i < MOST_ITEMS * 8; i += threads) shared_put(pairs + i * 4, NONE);
    __syncthreads();
    for (int e = thread; e < EXPERT_ROOM; e += threads) {
      int rows = 0;
      for (int p = 0; p < used; p += 16) {
        uint4 four[4];
        UNROLL for (int i = 0; i < 4; i++) four[i] = shared_u4(ids + (p + 4 * i) * 4);
        UNROLL for (int i = 0; i < 4; i++)
          rows += (four[i].x == e) + (four[i].y == e) + (four[i].z == e) + (four[i].w == e);
      }
      shared_put(bases + e * 4, (u32)(FEW ? rows > 0 : (rows + 7) / 8));
    }
    __syncthreads();
    if (thread < 32) number(thread);
    __syncthreads();
    for (int e = thread; e < EXPERT_ROOM; e += threads) list(e, used, top_k);
    __syncthreads();
  }

 private:
  // Numbers of items as the number of the first item of each expert.
  INLINE void number(int lane) const {
    constexpr int EACH = EXPERT_ROOM / 32;
    const u32 own = bases + lane * EACH * 4;
    u32 sum = 0;
    for (int i = 0; i < EACH; i++) sum += shared_u1(own + i * 4);
    u32 upto = sum;
    UNROLL for (int d = 1; d < 32; d *= 2) {
      const u32 other = __shfl_sync(~0u, upto, lane >= d ? lane - d : lane);
      if (lane >= d) upto += other;
    }
    if (lane == 31) shared_put(count, upto);
    u32 before = upto - sum;
    for (int i = 0; i < EACH; i++) {
      const u32 next = before + shared_u1(own + i * 4);
      shared_put(own + i * 4, before);
      before = next;
    }
  }
  INLINE void list(int e, int used, int top_k) const {
    const int base = (int)shared_u1(bases + e * 4);
    int rows = 0;
    for (int p = 0; p < used; p += 16) {
      // All loads first: none of them can pass what `add` stores.
      uint4 four[4];
      UNROLL for (int i = 0; i < 4; i++) four[i] = shared_u4(ids + (p + 4 * i) * 4);
      UNROLL for (int i = 0; i < 4; i++) {
        if (four[i].x == e) add(e, base, rows++, p + 4 * i, top_k);
        if (four[i].y == e) add(e, base, rows++, p + 4 * i + 1, top_k);
        if (four[i].z == e) add(e, base, rows++, p + 4 * i + 2, top_k);
        if (four[i].w == e) add(e, base, rows++, p + 4 * i + 3, top_k);
      }
    }
  }
  INLINE void add(int e, int base, int place, int pair, int top_k) const {
    const int item = FEW ? base : base + place / 8, column = FEW ? pair / top_k : place % 8;
    shared_put(experts + item * 4, (u32)e);
    shared_put(pairs + (item * 8 + column) * 4, (u32)pair);
  }
};
