// The next token of each row in one launch: a cluster of blocks holds a row in shared memory.
//
// Logits go through the rules once. A histogram by value says how many logits and how much weight lie
// before each bin, and so in which few bins a cut or the draw can fall. Their logits come together in
// the first block, which sorts them, cuts and draws. Where they are more than LIST (rows with
// thousands of equal logits) the whole cluster looks for each cut digit by digit of the order instead.
// Grid: CLUSTER blocks for each row. See row.cuh.
#include "row.cuh"

constexpr int BATCH = 8;  // logits that a thread reads at once
constexpr u32 COUNTED = 256;  // entries that are sorted by counting the ones before each

struct Cuts {
  u64 keep;  // 0: all
  double nucleus, floor, u;
};
struct Range {
  int first, last;
};
// The bins that decide, and the least weights of the top-k and of all that is kept.
struct Doubt {
  Range ranges[4];
  u64 low_keep, low;
};
struct Row {
  const Places at;
  const Scale scale;
  const int rank, thread, first, count;  // of the ids of this block
  INLINE float value(int i) const { return word_float(shared_u1(at.values + i * 4)); }
};

// The exact weight behind a cut is known once the logits of its bin are; until then it lies between
// the weights before and behind that bin, and so does all that follows from it.
INLINE Doubt doubt_of(const Places& at, const Cuts& cuts, int thread) {
  Doubt found;
  const u64 total = upto_bin(at, BINS - 1).mass;
  u64 low = total, high = total;
  for (Range& range : found.ranges) range = {BINS, -1};
  if (cuts.keep > 0) {
    const Crossing k = crossing<true>(at, cuts.keep, thread);
    if (k.bin >= 0) {
      low = k.before.mass, high = k.upto.mass;
      // A bin without weight needs no look.
      if (low < high) found.ranges[0] = {k.bin, k.bin};
    }
  }
  found.low_keep = low;
  if (cuts.nucleus < 1) {
    // A share just below 1 of a sum beyond 2^53 may round up to more than the sum.
    const u64 from = min(reached(cuts.nucleus, low), total), to = min(reached(cuts.nucleus, high), total);
    const Crossing a = crossing<false>(at, from ? from : 1, thread), b = crossing<false>(at, to ? to : 1, thread);
    found.ranges[1] = {a.bin, b.bin};
    low = min(low, a.before.mass), high = min(high, b.upto.mass);
  }
  if (cuts.floor > 0) {
    // The bin of that weight, and its neighbours for the rounding of the logarithm.
    const float edge = (float)-log(cuts.floor > 1e-300 ? cuts.floor : 1e-300);
    const Scale plain = {0.f, 1.f, 1.0};
    const int middle = plain.bin(edge > 0 ? -edge : 0.f);
    found.ranges[2] = {middle > 0 ? middle - 1 : 0, min(middle + 1, BINS - 1)};
    low = min(low, upto_bin(at, middle - 2).mass);
    high = min(high, upto_bin(at, min(middle + 1, BINS - 1)).mass);
  }
  const Crossing a = crossing<false>(at, low ? drawn_at(cuts.u, low) + 1 : 1, thread);
  const Crossing b = crossing<false>(at, high ? drawn_at(cuts.u, high) + 1 : 1, thread);
  found.ranges[3] = {a.bin, b.bin};
  found.low = low;
  return found;
}

// Entries (order falling, then id rising) as numbers that rise.
INLINE u64 entry_of(float value, int id) { return (u64)~order_of(value) << 32 | (u32)id; }
INLINE float value_in(u64 entry) { return value_of(~(u32)(entry >> 32)); }

// Bring the logits of the bins in doubt to the first block's list; gives their number, which may be
// more than were kept.
INLINE u32 gather(const Row& row, const Doubt& doubt) {
  const Places& at = row.at;
  for (int i = row.thread; i < row.count; i += THREADS) {
    const float value = row.value(i);
    if (!(value > word_float(0xFF800000u))) continue;
    const int bin = row.scale.bin(value);
    bool hit = false;
    UNROLL for (int n = 0; n < 4; n++) hit |= doubt.ranges[n].first <= bin && bin <= doubt.ranges[n].last;
    if (!hit) continue;
    const u32 place = shared_take(at.slot(LOCAL), 1u);
    if (place < LIST) shared_put_long(at.work + place * 8, entry_of(value, row.first + i));
  }
  __syncthreads();
  const u32 own = shared_u1(at.slot(LOCAL));
  if (row.thread == 0) shared_put(at.slot(BASE), cluster_take(at.slot(TOTAL), 0, own));
  __syncthreads();
  const u32 base = shared_u1(at.slot(BASE));
  for (u32 i = row.thread; i < own && base + i < LIST; i += THREADS) {
    const u64 entry = shared_long(at.work + i * 8);
    cluster_put(at.list + (base + i) * 8, 0, (u32)entry);
    cluster_put(at.list + (base + i) * 8 + 4, 0, (u32)(entry >> 32));
  }
  cluster_sync();
  const u32 total = cluster_u1(at.slot(TOTAL), 0);
  cluster_sync();
  return total;
}

// Sort a short list: an entry's place is the number of those before it. All are different.
INLINE void count_list(const Places& at, u32 count, int thread) {
  u64 own = 0;
  u32 place = 0;
  if (thread == 0) shared_put_long(at.list + count * 8, ~0ull);
  __syncthreads();
  if (thread < count) {
    own = shared_long(at.list + thread * 8);
    _Pragma("unroll 4") for (u32 i = 0; i < count; i += 2) {
      const uint4 two = shared_u4(at.list + i * 8);
      place += ((u64)two.y << 32 | two.x) < own;
      place += ((u64)two.w << 32 | two.z) < own;
    }
  }
  __syncthreads();
  if (thread < count) shared_put_long(at.list + place * 8, own);
  __syncthreads();
}

// Bitonic sort of the list, filled up to a power of two with entries behind all.
INLINE void sort_list(const Places& at, u32 count, int thread) {
  u32 size = 2;
  while (size < count) size *= 2;
  for (u32 i = count + thread; i < size; i += THREADS) shared_put_long(at.list + i * 8, ~0ull);
  for (u32 run = 2; run <= size; run *= 2)
    for (u32 step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (u32 n = thread; n < size / 2; n += THREADS) {
        const u32 i = n / step * step * 2 + n % step, a = at.list + i * 8, b = a + step * 8;
        const u64 left = shared_long(a), right = shared_long(b);
        if ((left > right) == ((i & run) == 0)) shared_put_long(a, right), shared_put_long(b, left);
      }
    }
  __syncthreads();
}

struct Listed {
  u64 weight[LIST / THREADS], upto[LIST / THREADS];
  u32 place[LIST / THREADS];
};

// Place and running weight of the sorted entries: those of the list, and of all bins left out of it.
INLINE void run_list(const Row& row, u32 count, Listed& mine) {
  const Places& at = row.at;
  Sum steps[LIST / THREADS], own = {0, 0};
  UNROLL for (int k = 0; k < LIST / THREADS; k++) {
    const u32 i = row.thread * (LIST / THREADS) + k;
    steps[k] = {0, 0}, mine.weight[k] = 0;
    if (i < count) {
      const float value = value_in(shared_long(at.list + i * 8));
      const int bin = row.scale.bin(value), before = i ? row.scale.bin(value_in(shared_long(at.list + i * 8 - 8))) : -1;
      mine.weight[k] = row.scale.weight(value);
      steps[k] = {mine.weight[k], 1};
      if (bin != before) {
        const Sum to = upto_bin(at, bin - 1), from = upto_bin(at, before);
        steps[k] = plus(steps[k], {to.mass - from.mass, to.count - from.count});
      }
    }
    own = plus(own, steps[k]);
  }
  const Sum all = scan(at, own, row.thread);
  Sum running = {all.mass - own.mass, all.count - own.count};
  UNROLL for (int k = 0; k < LIST / THREADS; k++) {
    running = plus(running, steps[k]);
    mine.upto[k] = running.mass, mine.place[k] = running.count - 1;
  }
}

// Weight of all candidates that the cuts keep, `low` if no listed one is the last.
INLINE u64 kept_mass(const Places& at, const Listed& mine, u32 count, int thread, u64 low, u64 keep, u64 nucleus_at,
                     double floor) {
  if (thread == 0) shared_put(at.slot(LAST), 0u), shared_put_long(at.slot(MASS), 0);
  __syncthreads();
  u32 last = 0;
  u64 mass = 0;
  UNROLL for (int k = 0; k < LIST / THREADS; k++) {
    const u32 i = thread * (LIST / THREADS) + k;
    const u64 before = mine.upto[k] - mine.weight[k];
    const bool fits = before == 0 || (before < nucleus_at && (double)mine.weight[k] >= floor * (double)ONE);
    if (i < count && fits && (keep == 0 || mine.place[k] < keep)) last = i + 1, mass = mine.upto[k];
  }
  if (last) shared_most(at.slot(LAST), last);
  __syncthreads();
  if (last && shared_u1(at.slot(LAST)) == last) shared_put_long(at.slot(MASS), mass);
  __syncthreads();
  const u64 found = shared_long(at.slot(MASS));
  __syncthreads();
  return found > low ? found : low;
}

// By the first block alone; the list has been gathered.
INLINE void draw_from_list(const Row& row, const Cuts& cuts, const Doubt& doubt, u32 count, long long* out) {
  if (count < min(COUNTED, (u32)min(THREADS, LIST)))
    count_list(row.at, count, row.thread);
  else
    sort_list(row.at, count, row.thread);
  Listed mine;
  run_list(row, count, mine);
  u64 mass = kept_mass(row.at, mine, count, row.thread, doubt.low_keep, cuts.keep, ALL, 0.0);
  const u64 nucleus_at = cuts.nucleus < 1 ? reached(cuts.nucleus, mass) : ALL;
  mass = kept_mass(row.at, mine, count, row.thread, doubt.low, cuts.keep, nucleus_at, cuts.floor);
  const u64 target = drawn_at(cuts.u, mass);
  UNROLL for (int k = 0; k < LIST / THREADS; k++)
    if (mine.upto[k] - mine.weight[k] <= target && target < mine.upto[k])
      *out = (u32)shared_long(row.at.list + (row.thread * (LIST / THREADS) + k) * 8);
}

struct Passing {
  u32 key;
  u64 before;
};
// The key (~order) at which the running count or weight of the row exceeds the target.
template <bool COUNTS> INLINE Passing passing(const Row& row, u64 target) {
  Passing found = {0, 0};
  UNROLL for (int digit = 0; digit < 3; digit++) {
    const int width = digit < 2 ? 11 : 10, shift = digit == 0 ? 21 : digit == 1 ? 10 : 0;
    clear_bins(row.at, row.thread);
    for (int i = row.thread; i < row.count; i += THREADS) {
      const float value = row.value(i);
      const u32 key = ~order_of(value);
      if ((u32)((u64)key >> (shift + width)) == found.key)
        add_to_bin(row.at, key >> shift & ((1 << width) - 1), COUNTS ? 0 : row.scale.weight(value), COUNTS);
    }
    combine_bins(row.at, row.rank, row.thread);
    const Crossing c = crossing<COUNTS>(row.at, target - found.before + 1, row.thread);
    found.key = found.key << width | (u32)c.bin;
    found.before += COUNTS ? c.before.count : c.before.mass;
  }
  return found;
}

// Count of the equal of a key in this block, then the place-th of them in the row by id.
INLINE void put_equal(const Row& row, u32 key, u64 place, long long* out) {
  Sum own = {0, 0};
  for (int i = row.thread; i < row.count; i += THREADS) own.count += ~order_of(row.value(i)) == key;
  const Sum upto = scan(row.at, own, row.thread);
  if (row.thread == THREADS - 1) shared_put(row.at.slot(EQUALS), upto.count);
  cluster_sync();
  u64 before = 0;
  for (int r = 0; r < row.rank; r++) before += cluster_u1(row.at.slot(EQUALS), r);
  for (int start = 0; start < row.count; start += THREADS) {
    const int i = start + row.thread;
    const bool equal = i < row.count && ~order_of(row.value(i)) == key;
    const Sum seen = scan(row.at, {0, equal}, row.thread);
    if (equal && before + seen.count - 1 == place) *out = row.first + i;
    if (row.thread == THREADS - 1) shared_put(row.at.slot(LAST), seen.count);
    __syncthreads();
    before += shared_u1(row.at.slot(LAST));
  }
  cluster_sync();  // no block leaves while another reads its memory
}

INLINE void draw_from_all(const Row& row, const Cuts& cuts, long long* out) {
  u32 last = 0xFFFFFFFFu;
  u64 mass = 0;
  // Weight of the top-k: of all better keys, and of as many of the last key as it takes.
  if (cuts.keep > 0) {
    const Passing k = passing<true>(row, cuts.keep - 1);
    last = k.key, mass = (cuts.keep - k.before) * row.scale.weight(value_of(~last));
  }
  Sum better = {0, 0}, heavy = {0, 0};
  for (int i = row.thread; i < row.count; i += THREADS) {
    const float value = row.value(i);
    const u64 weight = row.scale.weight(value);
    if (~order_of(value) < last) better.mass += weight;
    if ((double)weight >= cuts.floor * (double)ONE) heavy.mass += weight;
  }
  mass += cluster_total(row.at, better, row.thread).mass;
  const u64 floored = cluster_total(row.at, heavy, row.thread).mass;
  // A min-p above 1 leaves the best candidate.
  u64 kept = min(mass, cuts.floor > 1 ? ONE : floored);
  if (cuts.nucleus < 1) {
    const u64 wanted = reached(cuts.nucleus, mass), target = wanted ? wanted - 1 : 0;
    const Passing p = passing<false>(row, target);
    const u64 weight = row.scale.weight(value_of(~p.key));
    kept = min(kept, p.before + ((target - p.before) / weight + 1) * weight);
  }
  const u64 target = drawn_at(cuts.u, kept);
  const Passing drawn = passing<false>(row, target);
  put_equal(row, drawn.key, (target - drawn.before) / row.scale.weight(value_of(~drawn.key)), out);
}

struct Settings {
  const double* temperature;
  const long long* top_k;
  const double *top_p, *min_p, *u;
  const long long *seeds, *positions, *purposes;
};

// A greedy row keeps its best candidate and has u = 0.
INLINE Cuts cuts_of(const Settings& s, int row, int limit) {
  if (s.temperature[row] <= 0) return {1, 1.0, 0.0, 0.0};
  const long long keep = s.top_k[row];
  const double u = s.u ? s.u[row] : uniform(s.seeds[row], s.positions[row], s.purposes[row]);
  return {keep > 0 && keep < limit ? (u64)keep : 0, s.top_p[row], s.min_p[row], u};
}

// Logits after the rules, and the orders of the best one of the row and of the least best of a warp.
INLINE void load_row(const Places& at, const Rules& rules, const void* logits, int row, int first, int count, int rank,
                     int thread) {
  const bool is_biased = rules.biases > 0;
  if (is_biased) {
    for (int i = thread; i < count; i += THREADS) shared_put(at.values + i * 4, float_word(logit(logits, first + i)));
    __syncthreads();
    for (int n = thread; n < rules.biases; n += THREADS) {
      const long long place = rules.bias_ids[(size_t)row * rules.biases + n] - first;
      if (place < 0 || place >= count) continue;
      const float sum = minus(word_float(shared_u1(at.values + place * 4)), -rules.bias_values[(size_t)row * rules.biases + n]);
      shared_put(at.values + place * 4, float_word(sum));
    }
    __syncthreads();
  }
  const RowRules own(rules, row);
  u32 top = 0;
  for (int start = thread; start < count; start += BATCH * THREADS) {
    // All loads first: none of them can pass a store.
    float x[BATCH];
    int counted[BATCH];
    u32 words[BATCH];
    UNROLL for (int k = 0; k < BATCH; k++) {
      const int i = start + k * THREADS;
      if (i >= count) continue;
      x[k] = is_biased ? word_float(shared_u1(at.values + i * 4)) : logit(logits, first + i);
      counted[k] = own.count(first + i), words[k] = own.word(first + i);
    }
    UNROLL for (int k = 0; k < BATCH; k++) {
      const int i = start + k * THREADS;
      if (i >= count) continue;
      const float value = own.applied(x[k], first + i, counted[k], words[k]);
      shared_put(at.values + i * 4, float_word(value));
      const u32 order = value == value ? order_of(value) : order_of(word_float(0x7F800000u));
      top = order > top ? order : top;
    }
  }
  top = warp_most(top);
  if (thread % 32 == 0) shared_put(at.scratch + thread / 32 * 4, top);
  __syncthreads();
  if (thread < 32) {
    const u32 own = thread < WARPS ? shared_u1(at.scratch + thread * 4) : shared_u1(at.scratch);
    const u32 best = warp_most(own), least = warp_least(own);
    if (thread == 0) shared_put(at.slot(BEST), best), shared_put(at.slot(LEAST), least);
  }
}

INLINE void count_values(const Row& row, const Cuts& cuts, float least) {
  for (int start = row.thread; start < row.count; start += 2 * THREADS) {
    float value[2];
    u64 weight[2] = {0, 0};
    bool live[2];
    UNROLL for (int k = 0; k < 2; k++) {
      const int i = start + k * THREADS;
      value[k] = i < row.count ? row.value(i) : word_float(0xFF800000u);
      live[k] = value[k] >= least && value[k] > word_float(0xFF800000u);
    }
    UNROLL for (int k = 0; k < 2; k++)
      if (live[k]) weight[k] = row.scale.weight(value[k]);
    UNROLL for (int k = 0; k < 2; k++)
      if (live[k]) add_to_bin(row.at, row.scale.bin(value[k]), weight[k], cuts.keep > 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    draw_tokens(const u8* logits, const double* temperature, const long long* top_k, const double* top_p,
                const double* min_p, const double* u, const long long* seeds, const long long* positions,
                const long long* purposes, const long long* bias_ids, const float* bias_values, const float* presence,
                const float* frequency, const float* repetition, const int* counts, const long long* count_rows,
                const long long* earlier, const u32* allowed, const long long* allowed_rows, long long* out,
                int stride, int limit, int biases, int earliers, int words, int width, int chunk) {
  extern __shared__ __align__(128) u8 memory[];
  const Places at(shared_address(memory));
  const int number = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER, thread = threadIdx.x;
  const int first = min(rank * chunk, limit), count = min(chunk, limit - first);
  const Rules rules = {bias_ids, bias_values, presence, frequency, repetition, counts, count_rows,
                       earlier,  allowed,     allowed_rows, biases, earliers,  words,  width};
  if (thread == 0) shared_put(at.slot(LOCAL), 0u), shared_put(at.slot(TOTAL), 0u);
  clear_bins(at, thread);
  start_next_kernel();
  wait_for_kernel_before();
  const Settings settings = {temperature, top_k, top_p, min_p, u, seeds, positions, purposes};
  const Cuts cuts = cuts_of(settings, number, limit);
  const u8* source = logits + (size_t)number * stride * (DTYPE == 2 ? 4 : 2);
  load_row(at, rules, source, number, first, count, rank, thread);
  cluster_sync();
  u32 best = 0, least = 0xFFFFFFFFu;
  for (int r = 0; r < CLUSTER; r++) {
    best = max(best, cluster_u1(at.slot(BEST), r));
    least = min(least, cluster_u1(at.slot(LEAST), r));
  }
  const float top = value_of(best);
  // A row that cannot be used.
  if (!(top < word_float(0x7F800000u) && top > word_float(0xFF800000u))) {
    if (rank == 0 && thread == 0) out[number] = -1;
    cluster_sync();
    return;
  }
  const double heat = temperature[number] > 0 ? temperature[number] : 1.0;
  const double steps = 1.0 / heat < 1e-30 ? 1e-30 : 1.0 / heat > 1e30 ? 1e30 : 1.0 / heat;
  const Row row = {at, {top, (float)steps, min(1.0 / heat, 1e300)}, rank, thread, first, count};
  // As many logits as there are warps are not below `least`, so the best `keep` are among those.
  // 0 is the order of no logit: some warp has none.
  const bool prunes = cuts.keep > 0 && cuts.keep <= CLUSTER * WARPS && least > 0;
  count_values(row, cuts, prunes ? value_of(least) : word_float(0xFF800000u));
  combine_bins(at, rank, thread);
  const Doubt doubt = doubt_of(at, cuts, thread);
  const u32 listed = gather(row, doubt);
  if (listed > LIST)
    draw_from_all(row, cuts, out + number);
  else if (rank == 0)
    draw_from_list(row, cuts, doubt, listed, out + number);
}
