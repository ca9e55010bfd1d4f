// One row of logits over the shared memory of a cluster: rules, order, weights, histograms.
//
// Block `rank` of CLUSTER holds ids rank * chunk and on. Weights are whole numbers of 2^-44, so sums
// have one result in any order. A histogram has BINS bins of a count and a weight; weights are added
// up as three fields of 17 bits, which 2^15 ids of a block cannot overflow.
//
// Compile-time: CLUSTER, WARPS, LIST (entries that are sorted, a multiple of the threads), DTYPE of the
// logits (0 bfloat16, 1 binary16, 2 float32). Hopper and later.
#pragma once
#include "machine.cuh"

constexpr int BINS = 2048, THREADS = WARPS * 32, PART = BINS / CLUSTER, EACH = BINS / THREADS;
constexpr int HISTOGRAM = BINS * 16, STAGED = LIST * 8;
constexpr int WORK = HISTOGRAM > STAGED ? HISTOGRAM : STAGED;
constexpr u64 ONE = 1ull << 44, ALL = ~0ull >> 1;
constexpr u32 FIELD = (1u << 17) - 1;
static_assert(BINS % THREADS == 0 && LIST % THREADS == 0 && PART * CLUSTER == BINS, "whole shares");

struct Sum {
  u64 mass;
  u32 count;
};
INLINE Sum plus(Sum a, Sum b) { return {a.mass + b.mass, a.count + b.count}; }

// Where things lie in shared memory; what `work` holds, bins or staged entries, has different times.
struct Places {
  u32 work, part_mass, part_count, upto_mass, upto_count, list, scratch, slots, values;
  INLINE explicit Places(u32 base)
      : work(base), part_mass(work + WORK), part_count(part_mass + PART * 8), upto_mass(part_count + PART * 4),
        upto_count(upto_mass + BINS * 8), list(upto_count + BINS * 4), scratch(list + LIST * 8),
        slots(scratch + 512), values(slots + 256) {}
  INLINE u32 slot(int number) const { return slots + number * 8; }
};
// Slots of eight bytes; those of blocks that others read keep their number to one use.
enum Slot { BEST, LEAST, LOCAL, TOTAL, BASE, FOUND_BIN, FOUND_BEFORE, FOUND_UPTO, FOUND_COUNT, LAST, MASS, SHARES, EQUALS };

struct Rules {
  const long long* bias_ids;
  const float *bias_values, *presence, *frequency, *repetition;
  const int* counts;
  const long long *count_rows, *earlier;
  const u32* allowed;
  const long long* allowed_rows;
  int biases, earliers, words, width;
};

// Words in the order of the logits; -0 is 0.
INLINE u32 order_of(float x) {
  const u32 bits = float_word(x == 0.f ? 0.f : x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
INLINE float value_of(u32 order) { return word_float(order >> 31 ? order & 0x7FFFFFFFu : ~order); }

struct Scale {
  float best, steps;  // the best logit, and 1 / temperature for bins
  double inverse;     // 1 / temperature for weights
  // 128 bins for each octave of y = (best - x) / temperature from 2^-10 to 2^6: each step is rounded
  // rightly, so bins never fall where logits fall.
  INLINE int bin(float x) const {
    const int place = (int)(float_word(times(minus(best, x), steps)) >> 16) - ((127 - 10) << 7);
    return place < 0 ? 0 : place < BINS ? place : BINS - 1;
  }
  INLINE u64 weight(float x) const {
    return (u64)(exp(((double)x - (double)best) * inverse) * (double)ONE + 0.5);
  }
};

// The least whole number that is not below share * mass.
INLINE u64 reached(double share, u64 mass) {
  const double exact = share * (double)mass;
  const u64 whole = (u64)exact;
  return (double)whole < exact ? whole + 1 : whole;
}
// What a running weight must exceed to be the draw.
INLINE u64 drawn_at(double u, u64 mass) {
  const u64 whole = (u64)(u * (double)mass);
  return whole < mass ? whole : mass - 1;
}

INLINE u64 mixed(u64 x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
INLINE double uniform(u64 seed, u64 position, u64 purpose) {
  const u64 key = mixed(mixed(seed ^ (position * 0xD1B54A32D192ED03ull)) ^ (purpose << 21));
  return (double)(key >> 40) * (1.0 / 16777216.0);
}

INLINE float logit(const void* row, int id) {
  if (DTYPE == 2) return ((const float*)row)[id];
  const u16 word = ((const u16*)row)[id];
  return DTYPE == 0 ? from_bf16(word) : half_low(word);
}

// The rules of one row, so that no logit waits for them.
struct RowRules {
  const int* counts;       // null: no penalties
  const long long* earlier;
  const u32* allowed;      // null: all are
  float repetition, presence, frequency;
  int earliers, words;

  INLINE RowRules(const Rules& rules, int row)
      : counts(nullptr), earlier(nullptr), allowed(nullptr), repetition(1.f), presence(0.f), frequency(0.f),
        earliers(rules.earliers), words(rules.words) {
    if (rules.count_rows && rules.count_rows[row] >= 0) {
      counts = rules.counts + rules.count_rows[row] * rules.width;
      earlier = rules.earlier + (size_t)row * earliers;
      repetition = rules.repetition[row], presence = rules.presence[row], frequency = rules.frequency[row];
    }
    if (rules.allowed_rows && rules.allowed_rows[row] >= 0) allowed = rules.allowed + rules.allowed_rows[row] * words;
  }
  // What of memory a logit's rules depend on.
  INLINE int count(int id) const { return counts ? counts[id] : 0; }
  INLINE u32 word(int id) const { return allowed ? id < 32 * words ? allowed[id / 32] : 0u : ~0u; }
  // The logit after penalties and constraint, each step rounded by itself; the bias comes before.
  INLINE float applied(float x, int id, int count, u32 word) const {
    if (counts) {
      for (int n = 0; n < earliers; n++) count += earlier[n] == id;
      if (count > 0) x = minus(x > 0 ? quotient(x, repetition) : times(x, repetition), presence);
      x = minus(x, times((float)count, frequency));
    }
    return word >> (id % 32) & 1 ? x : word_float(0xFF800000u);
  }
};

INLINE Sum from_lane(Sum v, int lane) {
  const u32 low = __shfl_sync(~0u, (u32)v.mass, lane), high = __shfl_sync(~0u, (u32)(v.mass >> 32), lane);
  return {(u64)high << 32 | low, __shfl_sync(~0u, v.count, lane)};
}
INLINE Sum warp_scan(Sum own, int lane) {
  UNROLL for (int d = 1; d < 32; d *= 2) {
    const Sum other = from_lane(own, lane >= d ? lane - d : lane);
    if (lane >= d) own = plus(own, other);
  }
  return own;
}
// Sums up to each thread of the block, its own with them. Begins and ends with all threads together.
INLINE Sum scan(const Places& at, Sum own, int thread) {
  const int lane = thread & 31, warp = thread >> 5;
  const Sum inside = warp_scan(own, lane);
  __syncthreads();
  if (lane == 31) {
    shared_put_long(at.scratch + warp * 16, inside.mass);
    shared_put(at.scratch + warp * 16 + 8, inside.count);
  }
  __syncthreads();
  if (warp == 0) {
    Sum all = {0, 0};
    if (lane < WARPS) all = {shared_long(at.scratch + lane * 16), shared_u1(at.scratch + lane * 16 + 8)};
    const Sum upto = warp_scan(all, lane);
    if (lane < WARPS) {
      shared_put_long(at.scratch + lane * 16, upto.mass - all.mass);
      shared_put(at.scratch + lane * 16 + 8, upto.count - all.count);
    }
  }
  __syncthreads();
  return plus(inside, {shared_long(at.scratch + warp * 16), shared_u1(at.scratch + warp * 16 + 8)});
}

INLINE void clear_bins(const Places& at, int thread) {
  for (int i = thread; i < BINS * 4; i += THREADS) shared_put(at.work + i * 4, 0u);
  __syncthreads();
}
INLINE void add_to_bin(const Places& at, int bin, u64 weight, u32 count) {
  const u32 to = at.work + bin * 4;
  if (count) shared_add(to, 1u);
  UNROLL for (int f = 0; f < 3; f++) {
    const u32 field = (u32)(weight >> (17 * f)) & FIELD;
    if (field) shared_add(to + (f + 1) * BINS * 4, field);
  }
}
// Sums of the cluster's bins, as running ones in every block's `upto` planes.
INLINE void combine_bins(const Places& at, int rank, int thread) {
  cluster_sync();
  for (int i = thread; i < PART; i += THREADS) {
    const u32 from = at.work + (rank * PART + i) * 4;
    Sum sum = {0, 0};
    for (int r = 0; r < CLUSTER; r++) {
      sum.count += cluster_u1(from, r);
      UNROLL for (int f = 0; f < 3; f++) sum.mass += (u64)cluster_u1(from + (f + 1) * BINS * 4, r) << (17 * f);
    }
    shared_put_long(at.part_mass + i * 8, sum.mass);
    shared_put(at.part_count + i * 4, sum.count);
  }
  cluster_sync();
  Sum bins[EACH], own = {0, 0};
  UNROLL for (int i = 0; i < EACH; i++) {
    const int bin = thread * EACH + i, owner = bin / PART, place = bin % PART;
    bins[i] = {cluster_long(at.part_mass + place * 8, owner), cluster_u1(at.part_count + place * 4, owner)};
    own = plus(own, bins[i]);
  }
  const Sum upto = scan(at, own, thread);
  Sum running = {upto.mass - own.mass, upto.count - own.count};
  UNROLL for (int i = 0; i < EACH; i++) {
    running = plus(running, bins[i]);
    shared_put_long(at.upto_mass + (thread * EACH + i) * 8, running.mass);
    shared_put(at.upto_count + (thread * EACH + i) * 4, running.count);
  }
  __syncthreads();
}

INLINE Sum upto_bin(const Places& at, int bin) {
  if (bin < 0) return {0, 0};
  return {shared_long(at.upto_mass + bin * 8), shared_u1(at.upto_count + bin * 4)};
}

// The bin in which a running sum reaches a target of at least 1; bin -1 where none does.
struct Crossing {
  int bin;
  Sum before, upto;
};
template <bool COUNTS> INLINE Crossing crossing(const Places& at, u64 target, int thread) {
  if (thread == 0) shared_put(at.slot(FOUND_BIN), 0xFFFFFFFFu);
  __syncthreads();
  for (int i = 0; i < EACH; i++) {
    const int bin = thread * EACH + i;
    const Sum before = upto_bin(at, bin - 1), upto = upto_bin(at, bin);
    const u64 low = COUNTS ? before.count : before.mass, high = COUNTS ? upto.count : upto.mass;
    if (low < target && target <= high) shared_put(at.slot(FOUND_BIN), (u32)bin);
  }
  __syncthreads();
  const int bin = (int)shared_u1(at.slot(FOUND_BIN));
  __syncthreads();
  if (bin < 0) return {-1, {0, 0}, {0, 0}};
  return {bin, upto_bin(at, bin - 1), upto_bin(at, bin)};
}

// The sum of a number of every thread of the cluster, through a slot that is free until all have read.
INLINE Sum cluster_total(const Places& at, Sum own, int thread) {
  const Sum upto = scan(at, own, thread);
  if (thread == THREADS - 1) {
    shared_put_long(at.slot(SHARES), upto.mass);
    shared_put(at.slot(EQUALS), upto.count);
  }
  cluster_sync();
  Sum all = {0, 0};
  for (int r = 0; r < CLUSTER; r++) all = plus(all, {cluster_long(at.slot(SHARES), r), cluster_u1(at.slot(EQUALS), r)});
  cluster_sync();
  return all;
}
