// Splits of the keys of some sequences against the few rows at their ends: the time is that of
// reading keys and values once. join.cu adds the splits up.
//
// An item is one split, one KV head and one tile of up to NT * 8 query rows (pairs of a token and a
// query head). A block of four warps takes every so-manieth item, tile by tile of 32 keys. First
// each warp multiplies 16 keys by the rows over half of the columns; the sums meet in shared memory.
// Then each warp makes the weights of all 32 keys and adds their values up in its own 64 columns.
// There is one meeting of the warps a tile, at which the stages that all have read are requested
// anew: keys come two tiles ahead, values one, across the borders of items. A row's sums have one
// order, whatever the rows beside it and the number of blocks.
//
// Compile-time: FORM of the words, HEADS of the cache, GROUP of query heads that share one, NT,
// SHORTS, SHORT and LONG (splits.cuh), BLOCKS of a multiprocessor.
#include "warp.cuh"

// The first item from `number` on that has keys, or none (false).
INLINE bool find_item(const Places& at, int& number, int step, int all, Item& item) {
  for (; number < all; number += step) {
    item = item_at(at, number);
    if (item.tiles()) return true;
  }
  return false;
}

INLINE void attend(const Arguments& g, const Places& at) {
  const int all = find_sequences(g, at);
  // No more blocks than share the items evenly.
  const int rounds = (all + gridDim.x - 1) / gridDim.x, step = (all + rounds - 1) / max(rounds, 1);
  if ((int)blockIdx.x >= step) return;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int number = blockIdx.x;
  Item item;
  if (!find_item(at, number, step, all, item)) return;
  Reader reader = {(int)blockIdx.x, step, all};
  reader.look_ahead(g, at, lane);
  Tile ahead;
  reader.take(g, at, lane, ahead);
  const Requests request(at, g.key_scales, g.value_scales, warp, lane);
  request.of_keys(g.keys, 0, ahead);
  copies_commit();
  request.of_values(g.values, 0, ahead);
  copies_commit();
  bool more = reader.take(g, at, lane, ahead);
  if (more) request.of_keys(g.keys, 1, ahead);
  copies_commit();
  Warp mine(at, warp, lane);
  mine.load_queries(g, at, item, 0);
  __syncthreads();
  for (int turn = 0, parity = 0;; parity ^= 1) {
    mine.begin();
    const int tiles = (int)held(item.tiles()), seen_by_all = (int)held(item.place(0) + 1);
    int first = (int)held(item.begin());
    const u32 places = at.rows + parity * ROWS * 4;
    for (int i = 0; i < tiles; i++, turn++, first += KEYS) {
      const int stage = turn & 1;
      const bool masked = first + KEYS > seen_by_all;
      // Behind this tile's keys its values and the next keys have been requested.
      copies_wait<2>();
      __syncwarp();
      mine.score(stage, item.head, g.scale);
      copies_wait<1>();
      __syncwarp();
      if (!BYTES && masked) mine.prepare_values<true>(at, stage, item.head);
      else mine.prepare_values<false>(at, stage, item.head);
      __syncthreads();
      if (more) request.of_values(g.values, stage ^ 1, ahead);
      copies_commit();
      more = more && reader.take(g, at, lane, ahead);
      if (more) request.of_keys(g.keys, stage, ahead);
      copies_commit();
      if (masked) mine.add_values<true>(at, stage, first, places);
      else mine.add_values<false>(at, stage, first, places);
    }
    mine.put_sums(g, at, item);
    const Item done = item;
    number += step;
    const bool goes_on = find_item(at, number, step, all, item);
    // All warps have read the queries of the item that is done, though not yet its positions.
    if (goes_on) mine.load_queries(g, at, item, parity ^ 1);
    __syncthreads();
    mine.put_parts(g, at, done);
    if (!goes_on) return;
  }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    attend_splits(const u16* q, const u8* keys, const u8* values, const u8* key_scales,
                  const u8* value_scales, const u64* offsets, const u64* lengths, const u64* table,
                  float* partial, float2* parts, int q_row, int q_head, int table_row,
                  int sequences, int capacity, int scale) {
  extern __shared__ __align__(1024) u8 memory[];
  const Arguments g = {q,       keys,    values, key_scales, value_scales, offsets,
                       lengths, table,   partial, parts,     q_row,        q_head,
                       table_row, sequences, capacity, __uint_as_float((u32)scale)};
  start_next_kernel();
  wait_for_kernel_before();
  attend(g, Places(shared_address(memory)));
}
