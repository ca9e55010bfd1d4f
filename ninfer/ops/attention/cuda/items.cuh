// What is to be done: items in a list that the lengths on the device make, and their tiles in order.
#pragma once
#include "cache.cuh"

constexpr int WARPS = 4, ROWS = NT * 8;

struct Arguments {
  const u16* q;
  const u8 *keys, *values, *key_scales, *value_scales;
  const u64 *offsets, *lengths, *table;
  float* partial;  // [T, Hq, capacity, DIM] weighted values of each split
  float2* parts;   // [T, Hq, capacity] its largest score and weight
  int q_row, q_head, table_row, sequences, capacity;
  float scale;  // of scores, as powers of two
};

// Items of a sequence end at `end`; they are numbered with the tile fastest, then the head.
struct Sequence {
  int end, start, count, length;
  INLINE int tiles() const { return (count * GROUP + ROWS - 1) / ROWS; }
  INLINE int items() const { return count > 0 ? tiles() * HEADS * (split_of(length - 1) + 1) : 0; }
};
INLINE Sequence sequence_at(const Places& at, int b) {
  const uint4 v = shared_u4(at.sequences + b * 16);
  return {(int)v.x, (int)v.y, (int)v.z, (int)v.w};
}

// The sequences and their items to shared memory; all threads. Gives the number of items.
INLINE int find_sequences(const Arguments& g, const Places& at) {
  const int b = threadIdx.x;
  Sequence own = {0, 0, 0, 0};
  if (b < g.sequences) {
    own.start = (int)g.offsets[b], own.count = (int)g.offsets[b + 1] - own.start;
    own.length = (int)g.lengths[b];
    shared_put(at.sequences + b * 16, make_uint4(own.items(), own.start, own.count, own.length));
  }
  __syncthreads();
  int all = 0;
  for (int i = 0; i < g.sequences; i++) {
    all += (int)shared_u1(at.sequences + i * 16);
    if (i == b) own.end = all;
  }
  __syncthreads();
  if (b < g.sequences) shared_put(at.sequences + b * 16, (u32)own.end);
  __syncthreads();
  return all;
}

struct Item {
  int b, head, first, split;  // `first` row of the tile, of the sequence's rows
  Sequence of;
  INLINE int token(int row) const { return min((first + row) / GROUP, of.count - 1); }
  INLINE int query_head(int row) const { return head * GROUP + (first + row) % GROUP; }
  INLINE bool has(int row) const { return first + row < of.count * GROUP; }
  INLINE int place(int row) const { return of.length - of.count + token(row); }
  INLINE int begin() const { return first_key(split); }
  INLINE int end() const { return min(first_key(split + 1), place(ROWS - 1) + 1); }
  INLINE int tiles() const { return max((end() - begin() + KEYS - 1) / KEYS, 0); }
};
// Late splits come first: they are the long ones, so the short ones fill up the end.
INLINE Item item_at(const Places& at, int number) {
  Item item;
  int before = 0;
  for (item.b = 0;; item.b++) {
    item.of = sequence_at(at, item.b);
    if (number < item.of.end) break;
    before = item.of.end;
  }
  const int tiles = item.of.tiles(), rest = number - before;
  item.first = rest % tiles * ROWS;
  item.head = rest / tiles % HEADS;
  item.split = split_of(item.of.length - 1) - rest / tiles / HEADS;
  return item;
}

// The tiles of a block's items in order, requested ahead of their use.
struct Reader {
  int number, step, all;   // the item behind the one being read
  int tile, tiles, begin, end, head;
  int next_tiles, next_begin, next_end, next_head;
  u32 page, next_page;     // lane i has the i-th page of the item

  INLINE void look_ahead(const Arguments& g, const Places& at, int lane) {
    next_tiles = 0;
    for (; number < all && next_tiles == 0; number += step) {
      const Item item = item_at(at, number);
      next_tiles = item.tiles(), next_begin = item.begin(), next_end = item.end();
      next_head = item.head;
      if (next_tiles && next_begin + lane * PAGE < next_end)
        next_page = (u32)g.table[(size_t)item.b * g.table_row + next_begin / PAGE + lane];
    }
  }
  INLINE bool take(const Arguments& g, const Places& at, int lane, Tile& found) {
    if (tile == tiles) {
      if (next_tiles == 0) return false;
      tile = 0, tiles = next_tiles, begin = next_begin, end = next_end, head = next_head;
      page = next_page;
      look_ahead(g, at, lane);
    }
    const int key = tile * KEYS;
    const u32 in = __shfl_sync(~0u, page, key / PAGE);
    found = {in * PAGE + key % PAGE, head, min(end - begin - key, KEYS)};
    tile++;
    return true;
  }
};
