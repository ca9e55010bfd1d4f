// The whole Gated DeltaNet, row by row in one launch: convolution to gated norm. See delta_net.
//
// PIECES blocks share a V head of one sequence: each has 128 / PIECES value columns, that is rows of
// the matrix, in registers; LANES threads have a value column, and a thread has keys in runs of four.
// Up to ROWS rows are worked on at once: first what does not depend on the matrix (convolution, norms,
// gates), a warp for each row's query and key and one for its values, while the matrix is on its way;
// then the recurrence, whose sums over keys are additions in a thread and log2(LANES) exchanges; then
// the norm, whose squares the blocks of a cluster add up in the same order whatever the row is.
// A row's arithmetic thus depends on nothing but the row.
//
// Blocks that share a key head all read the state of its query and key channels, and the last one to
// have read it, by a counter, writes it.
//
// Compile-time: HEADS, GROUP (V heads of a key head), PIECES, WARPS, LANES, ROWS, STATE_BF16, and
// FORESEES: whether the matrix is asked for before the kernel before has ended.
#include "words.cuh"

constexpr int D = 128, TAPS = 4, PAST = TAPS - 1, CHUNK = 64;
constexpr int THREADS = WARPS * 32, COLUMNS = D / PIECES;
constexpr int KEYS = HEADS / GROUP, C = (2 * KEYS + HEADS) * D;
constexpr int RUNS = D / LANES / 4;              // of four keys in a thread
constexpr int STEP = THREADS / LANES;            // from a thread's value column to its next
constexpr int OWN = COLUMNS / STEP;              // value columns of a thread
constexpr int STATE_BYTES = STATE_BF16 ? 2 : 4;  // of a number of the matrix
constexpr int BEHIND = 1;
static_assert(OWN * STEP == COLUMNS && RUNS * LANES * 4 == D && ROWS % 4 == 0 && ROWS > PAST, "");
static_assert(THREADS >= (2 * D + COLUMNS) / 4, "a thread for every four channels");

// Shared memory, in bytes: for each row keys, queries, values, outputs, gates of the norm, numbers of
// the row (decay, strength, query . key, logarithm of decay), its inputs, and sums of squares.
constexpr int K_AT = 0, Q_AT = K_AT + ROWS * D * 4, V_AT = Q_AT + ROWS * D * 4;
constexpr int O_AT = V_AT + ROWS * COLUMNS * 4, Z_AT = O_AT + ROWS * COLUMNS * 4;
constexpr int ROW_AT = Z_AT + ROWS * COLUMNS * 4, X_AT = ROW_AT + ROWS * 16;
constexpr int X_ROW = (2 * D + COLUMNS) * 2;
constexpr int SUM_AT = X_AT + ROWS * X_ROW, LAST_AT = SUM_AT + 2 * ROWS * 4;

struct Arguments {
  const u16 *query, *key, *value, *gate, *a, *b;
  u16* out;                                         // [T, HEADS, D]
  const u16* convolution;                           // [TAPS, C]
  const float *a_log, *dt_bias;                     // [HEADS]
  const u16* norm;                                  // [D]
  u16 *inputs, *near;                               // [slots, PAST, C], [slots, near_rows, C]
  u8* matrix;                                       // [slots, HEADS, D, D]
  u16 *keys, *values;                               // [slots, window, KEYS or HEADS, D]
  float *decays, *betas;                            // [slots, window, HEADS]
  u32* arrivals;                                    // [slots, KEYS]
  const s64 *pending, *offsets, *lengths, *slots;
  const u8* held;                                   // or null
  int q_row, k_row, v_row, gate_row, a_row, b_row;  // from a row to the next
  int near_rows, window, part, eps, slot_count;
};

// What one block works on.
struct Work {
  int piece, h, head;    // V head and its key head
  s64 slot, start;       // first new row of the sequence
  int kept, begin, end;  // rows of the window that count; rows of this launch, from `start` on
  int owed, count;       // of the kept rows, those of this launch; all rows of this launch
  bool stays, ends;      // the new rows are held; nobody else commits the new rows
};

// Four channels of one row of the convolution's line: committed inputs, kept rows, new rows.
INLINE uint2 line_row(const Arguments& g, const Work& w, int place, const u16* x, int stride, int channel) {
  if (place < PAST) return global_u2(g.inputs + (w.slot * PAST + place) * C + channel);
  place -= PAST;
  if (place < w.kept) return global_u2(g.near + (w.slot * g.near_rows + place) * C + channel);
  return global_u2(x + (w.start + place - w.kept) * stride);
}

struct Four { float v[4]; };
INLINE Four floats(uint2 p) {
  return {__uint_as_float(p.x << 16), __uint_as_float(p.x & 0xFFFF0000), __uint_as_float(p.y << 16),
          __uint_as_float(p.y & 0xFFFF0000)};
}
INLINE uint2 packed(const Four& f) {
  return {to_bf16(f.v[0]) | (u32)to_bf16(f.v[1]) << 16, to_bf16(f.v[2]) | (u32)to_bf16(f.v[3]) << 16};
}
INLINE float rounded(float v) { return from_bf16(to_bf16(v)); }
INLINE float silu(float v) { return near_quotient(v, 1.f + __expf(-v)); }
INLINE float over_warp(float v) {
  UNROLL for (int lanes = 16; lanes; lanes >>= 1) v += exchanged(v, lanes);
  return v;
}
INLINE void put(u32 at, const Four& f) { shared_put(at, make_float4(f.v[0], f.v[1], f.v[2], f.v[3])); }

// The taps of four channels, requested: inputs oldest first, and their weights.
struct Taps { uint2 x[TAPS], w[TAPS]; };
INLINE Taps request(const Arguments& g, const Work& w, int row, const u16* x, int stride, int channel) {
  Taps t;
  UNROLL for (int j = 0; j < TAPS; j++) t.w[j] = global_u2(g.convolution + j * C + channel);
  UNROLL for (int j = 0; j < TAPS; j++) t.x[j] = line_row(g, w, row + w.kept + j, x, stride, channel);
  return t;
}
INLINE Four convolved(const Taps& t) {
  Four sum = {0.f, 0.f, 0.f, 0.f};
  UNROLL for (int j = 0; j < TAPS; j++) {
    const Four x = floats(t.x[j]), weight = floats(t.w[j]);
    UNROLL for (int i = 0; i < 4; i++) sum.v[i] += x.v[i] * weight.v[i];
  }
  UNROLL for (int i = 0; i < 4; i++) sum.v[i] = rounded(silu(sum.v[i]));
  return sum;
}
// The L2 norm of the 128 channels of a warp.
INLINE Four unit(Four f) {
  const float size = over_warp(f.v[0] * f.v[0] + f.v[1] * f.v[1] + f.v[2] * f.v[2] + f.v[3] * f.v[3]);
  const float scale = rsqrtf(size + 1e-6f);
  UNROLL for (int i = 0; i < 4; i++) f.v[i] = rounded(f.v[i] * scale);
  return f;
}
INLINE float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }

// Query and key, decay and strength of row i, which stands at place n of the block's rows.
INLINE void key_side(const Arguments& g, const Work& w, u32 shared, int i, int n, int lane) {
  const u32 k_at = shared + K_AT + (n * D + lane * 4) * 4, row_at = shared + ROW_AT + n * 16;
  const int channel = w.head * D + lane * 4;
  if (i < w.owed) {
    const s64 row = w.slot * g.window + i;
    const uint2 k = global_u2(g.keys + row * (KEYS * D) + channel);
    const float log = global_f1(g.decays + row * HEADS + w.h), beta = global_f1(g.betas + row * HEADS + w.h);
    put(k_at, floats(k));
    if (lane == 0) shared_put(row_at, make_float4(expf(log), beta, 0.f, log));
    return;
  }
  const int r = w.begin + i - w.owed;
  const s64 t = w.start + r;
  const Taps query = request(g, w, r, g.query + channel, g.q_row, channel);
  const Taps key = request(g, w, r, g.key + channel, g.k_row, KEYS * D + channel);
  const float a = from_bf16(global_u16(g.a + t * g.a_row + w.h)), b = from_bf16(global_u16(g.b + t * g.b_row + w.h));
  const float rate = expf(global_f1(g.a_log + w.h)), bias = global_f1(g.dt_bias + w.h);
  const u32 x_at = shared + X_AT + n * X_ROW + lane * 8;
  shared_put(x_at, query.x[PAST]);
  shared_put(x_at + D * 2, key.x[PAST]);
  const Four q = unit(convolved(query)), k = unit(convolved(key));
  put(shared + Q_AT + (n * D + lane * 4) * 4, q);
  put(k_at, k);
  const float both = over_warp(q.v[0] * k.v[0] + q.v[1] * k.v[1] + q.v[2] * k.v[2] + q.v[3] * k.v[3]);
  const float log = times(-rate, softplus(a + bias));
  if (lane == 0) shared_put(row_at, make_float4(expf(log), 1.f / (1.f + expf(-b)), both, log));
}

// Values of row i, and what its normed output is multiplied by.
INLINE void value_side(const Arguments& g, const Work& w, u32 shared, int i, int n, int lane) {
  if (lane * 4 >= COLUMNS) return;
  const u32 at = (n * COLUMNS + lane * 4) * 4;
  const int column = w.piece * COLUMNS + lane * 4, channel = w.h * D + column;
  if (i < w.owed) {
    put(shared + V_AT + at, floats(global_u2(g.values + (w.slot * g.window + i) * (HEADS * D) + channel)));
    return;
  }
  const int r = w.begin + i - w.owed;
  const Taps value = request(g, w, r, g.value + channel, g.v_row, 2 * KEYS * D + channel);
  Four z = floats(global_u2(g.gate + (w.start + r) * g.gate_row + channel));
  const Four norm = floats(global_u2(g.norm + column));
  shared_put(shared + X_AT + n * X_ROW + (2 * D + lane * 4) * 2, value.x[PAST]);
  put(shared + V_AT + at, convolved(value));
  UNROLL for (int j = 0; j < 4; j++) z.v[j] = norm.v[j] * silu(z.v[j]);
  put(shared + Z_AT + at, z);
}

// The thread's part of the matrix: keys 4 (LANES run + lane) + 0..3 of columns first + STEP own.
struct Matrix {
  Four s[OWN][RUNS];
  u8* at;

  INLINE u8* place(int own, int run) const { return at + (own * STEP * D + run * LANES * 4) * STATE_BYTES; }
  INLINE void load() {
    UNROLL for (int own = 0; own < OWN; own++) UNROLL for (int run = 0; run < RUNS; run++) {
      if constexpr (STATE_BF16) {
        s[own][run] = floats(global_u2(place(own, run)));
      } else {
        const float4 f = global_f4(place(own, run));
        s[own][run] = {f.x, f.y, f.z, f.w};
      }
    }
  }
  INLINE void store() const {
    UNROLL for (int own = 0; own < OWN; own++) UNROLL for (int run = 0; run < RUNS; run++) {
      const Four& f = s[own][run];
      if constexpr (STATE_BF16) global_put(place(own, run), packed(f));
      else global_put(place(own, run), make_float4(f.v[0], f.v[1], f.v[2], f.v[3]));
    }
  }
  // Sums over keys of each own column with a vector of keys; every lane of a column has them.
  INLINE void product(const Four (&x)[RUNS], float (&sum)[OWN]) const {
    UNROLL for (int own = 0; own < OWN; own++) {
      float part[2] = {0.f, 0.f};
      UNROLL for (int run = 0; run < RUNS; run++)
        UNROLL for (int i = 0; i < 4; i++) part[i & 1] = fused(s[own][run].v[i], x[run].v[i], part[i & 1]);
      sum[own] = part[0] + part[1];
    }
  }
  INLINE void add(float decay, const float (&error)[OWN], const Four (&k)[RUNS]) {
    UNROLL for (int own = 0; own < OWN; own++) UNROLL for (int run = 0; run < RUNS; run++)
      UNROLL for (int i = 0; i < 4; i++) {
        const float v = fused(s[own][run].v[i], decay, times(error[own], k[run].v[i]));
        s[own][run].v[i] = STATE_BF16 ? rounded(v) : v;
      }
  }
};

template <int COUNT> INLINE void over_lanes(float (&sum)[COUNT]) {
  UNROLL for (int lanes = LANES / 2; lanes; lanes >>= 1)
    UNROLL for (int i = 0; i < COUNT; i++) sum[i] += exchanged(sum[i], lanes);
}
INLINE void fetch(u32 at, int lane, Four (&x)[RUNS]) {
  UNROLL for (int run = 0; run < RUNS; run++) {
    const float4 f = shared_f4(at + (run * LANES + lane) * 16);
    x[run] = {f.x, f.y, f.z, f.w};
  }
}

// Row n of the block's rows through the matrix; its output, if it has one, to shared memory. The
// output comes from the matrix before the row, so that both sums are taken at once.
template <bool NEW> INLINE void advance(Matrix& m, u32 shared, int n, int lane, int first) {
  const float4 row = shared_f4(shared + ROW_AT + n * 16);
  const u32 columns = (n * COLUMNS + first) * 4;
  Four k[RUNS];
  fetch(shared + K_AT + n * D * 4, lane, k);
  float sum[NEW ? 2 * OWN : OWN], error[OWN];
  float(&read)[OWN] = *(float(*)[OWN])sum;
  m.product(k, read);
  if constexpr (NEW) {
    Four q[RUNS];
    fetch(shared + Q_AT + n * D * 4, lane, q);
    m.product(q, *(float(*)[OWN])(sum + OWN));
  }
  over_lanes(sum);
  UNROLL for (int own = 0; own < OWN; own++) {
    const float v = shared_f1(shared + V_AT + columns + own * STEP * 4);
    error[own] = times(row.y, fused(-row.x, read[own], v));
    if constexpr (NEW) {
      const float o = (row.x * sum[OWN + own] + error[own] * row.z) * 0.08838834764831845f;  // D^-0.5
      if (lane == 0) shared_put(shared + O_AT + columns + own * STEP * 4, o);
    }
  }
  m.add(row.x, error, k);
}

// Two outputs of a lane: columns 64 round + 2 lane and the next.
constexpr int ROUNDS = COLUMNS > 64 ? COLUMNS / 64 : 1;
struct Outputs {
  float v[2 * ROUNDS];
  INLINE void load(u32 at, int lane) {
    UNROLL for (int i = 0; i < 2 * ROUNDS; i++) {
      const int column = i / 2 * 64 + lane * 2 + (i & 1);
      v[i] = column < COLUMNS ? shared_f1(at + column * 4) : 0.f;
    }
  }
};

// Gated norm of the new rows among `size` from row `first` on; a warp has a row. `turn` counts calls.
INLINE void normed(const Arguments& g, const Work& w, u32 shared, int first, int size, int turn) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const u32 sums = shared + SUM_AT + (turn & 1) * ROWS * 4;
  constexpr int MOST = (ROWS + WARPS - 1) / WARPS;
  Outputs o[MOST];
  float total[MOST];
  UNROLL for (int j = 0; j < MOST; j++) {
    const int n = warp + j * WARPS;
    if (n >= size || first + n < w.owed) continue;
    o[j].load(shared + O_AT + n * COLUMNS * 4, lane);
    float part = 0.f;
    UNROLL for (int i = 0; i < 2 * ROUNDS; i++) part += o[j].v[i] * o[j].v[i];
    total[j] = over_warp(part);
    if (PIECES > 1 && lane == 0) shared_put(sums + n * 4, total[j]);
  }
#if PIECES > 1
  cluster_arrive();
  cluster_wait();
#endif
  UNROLL for (int j = 0; j < MOST; j++) {
    const int n = warp + j * WARPS;
    if (n >= size || first + n < w.owed) continue;
#if PIECES > 1
    total[j] = 0.f;
    UNROLL for (int rank = 0; rank < PIECES; rank++) total[j] += cluster_f1(sums + n * 4, rank);
#endif
    const float scale = rsqrtf(total[j] * (1.f / D) + __uint_as_float((u32)g.eps));
    Outputs z;
    z.load(shared + Z_AT + n * COLUMNS * 4, lane);
    u16* row = g.out + ((w.start + w.begin + first + n - w.owed) * HEADS + w.h) * D + w.piece * COLUMNS;
    UNROLL for (int i = 0; i < ROUNDS; i++) {
      const u32 low = to_bf16(o[j].v[2 * i] * scale * z.v[2 * i]);
      const u32 high = to_bf16(o[j].v[2 * i + 1] * scale * z.v[2 * i + 1]);
      if (lane * 2 < COLUMNS) global_put(row + i * 64 + lane * 2, low | high << 16);
    }
  }
}

// Four channels of a thread: those of query, key and value in turn, and where a row of a block has them.
struct Channels {
  int state;          // in rows of the convolution's state; -1: this thread has none
  const u16* x;       // of row 0 of its inputs
  int stride, shared;
  bool is_shared;     // with the other blocks of the key head

  INLINE Channels(const Arguments& g, const Work& w) {
    const int four = threadIdx.x * 4;
    is_shared = four < 2 * D, shared = four * 2;
    const int column = w.piece * COLUMNS + four - 2 * D;
    if (four < D) state = w.head * D + four, x = g.query + state, stride = g.q_row;
    else if (four < 2 * D) state = KEYS * D + w.head * D + four - D, x = g.key + (state - KEYS * D), stride = g.k_row;
    else if (four < 2 * D + COLUMNS) state = (2 * KEYS + w.h) * D + column, x = g.value + w.h * D + column, stride = g.v_row;
    else state = -1, x = g.value, stride = 0;
  }
};

// The held rows among `size` from row `first` on go to the window; `writes`: so do those of the key head.
INLINE void keep(const Arguments& g, const Work& w, u32 shared, int first, int size, const Channels& mine, bool writes) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int skipped = w.owed > first ? w.owed - first : 0;
  if (mine.state >= 0 && (writes || !mine.is_shared))
    for (int n = skipped; n < size; n++) {
      const int r = first + n - w.owed;
      if (r >= g.near_rows) break;
      const uint2 x = shared_u2(shared + X_AT + n * X_ROW + mine.shared);
      global_put(g.near + (w.slot * g.near_rows + r) * C + mine.state, x);
    }
  for (int n = skipped + warp; n < size; n += WARPS) {
    const int r = first + n - w.owed;
    if (r >= g.window) break;
    const s64 row = w.slot * g.window + r;
    if (writes) {
      const float4 k = shared_f4(shared + K_AT + (n * D + lane * 4) * 4);
      global_put(g.keys + (row * KEYS + w.head) * D + lane * 4, packed({k.x, k.y, k.z, k.w}));
    }
    if (lane * 4 < COLUMNS) {
      const float4 v = shared_f4(shared + V_AT + (n * COLUMNS + lane * 4) * 4);
      u16* to = g.values + (row * HEADS + w.h) * D + w.piece * COLUMNS + lane * 4;
      global_put(to, packed({v.x, v.y, v.z, v.w}));
    }
    // The other pieces have read theirs: they have met in `normed` since.
    if (w.piece == 0 && lane == 0) {
      const float4 numbers = shared_f4(shared + ROW_AT + n * 16);
      global_put(g.decays + row * HEADS + w.h, numbers.w);
      global_put(g.betas + row * HEADS + w.h, numbers.y);
    }
  }
}

// Before the kernel before has ended: ask for what this one will read if the slot is still the same.
INLINE void foresee(const Arguments& g, int piece, int h, int b) {
  const s64 slot = fresh_s64(g.slots + b);
  if (slot < 0 || slot >= g.slot_count) return;
  const u8* matrix = g.matrix + ((slot * HEADS + h) * D + piece * COLUMNS) * D * STATE_BYTES;
  for (int i = threadIdx.x * 128; i < COLUMNS * D * STATE_BYTES; i += THREADS * 128) touch(matrix + i);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = h / GROUP;
  if (lane >= 6) return;
  // Two lines of 64 channels for each of query, key and value.
  const int part = lane / 2;
  const int channel = (part == 2 ? 2 * KEYS + h : part * KEYS + head) * D + (lane & 1) * 64;
  for (int i = warp; i < TAPS + PAST; i += WARPS) {
    const bool is_weight = i < TAPS;
    touch(is_weight ? g.convolution + i * C + channel : g.inputs + (slot * PAST + i - TAPS) * C + channel);
  }
  const s64 kept = fresh_s64(g.pending + slot);
  for (int i = warp; i < kept && i < g.window && i < g.near_rows; i += WARPS) {
    touch(g.near + (slot * g.near_rows + i) * C + channel);
    const s64 row = slot * g.window + i;
    if (part == 1) touch(g.keys + (row * KEYS + head) * D + (lane & 1) * 64);
    if (part == 2) touch(g.values + (row * HEADS + h) * D + (lane & 1) * 64);
    if (lane < 2) touch((lane ? g.decays : g.betas) + row * HEADS + h);
  }
}

// What the block has to do; false: nothing at all.
INLINE bool found(const Arguments& g, int h, int piece, int b, Work& w) {
  w.piece = piece, w.h = h, w.head = h / GROUP;
  w.start = fresh_s64(g.offsets + b);
  const int rows = (int)(fresh_s64(g.offsets + b + 1) - w.start);
  w.slot = fresh_s64(g.slots + b);
  const s64 length = fresh_s64(g.lengths + b);
  w.stays = g.held && fresh_u8(g.held + b) != 0;
  if (rows == 0) return false;
  w.kept = (int)fresh_s64(g.pending + w.slot);
  // Whole chunks of the sequence's grid, which other launches compute.
  const int beyond = (int)((length - rows) % CHUNK), left = beyond ? CHUNK - beyond : 0;
  const int first = left < rows ? left : rows, last = first + (rows - first) / CHUNK * CHUNK;
  const bool has_chunks = last > first;
  if (g.part == BEHIND) w.begin = last, w.end = rows, w.owed = 0;
  else w.begin = 0, w.end = has_chunks ? first : rows, w.owed = w.kept;
  w.count = w.owed + w.end - w.begin;
  w.ends = g.part == BEHIND || !has_chunks;
  return g.part == BEHIND ? has_chunks : w.count > 0;
}

INLINE void delta_rows_of(const Arguments& g, const Work& w, u32 shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int key_lane = threadIdx.x % LANES, column = threadIdx.x / LANES;
  const s64 matrix_row = (w.slot * HEADS + w.h) * D + w.piece * COLUMNS + column;
  Matrix m;
  m.at = g.matrix + (matrix_row * D + key_lane * 4) * STATE_BYTES;
  if (w.count) m.load();
  // The next committed inputs of the convolution, read before anyone may write them.
  const Channels mine(g, w);
  const bool commits = mine.state >= 0 && (w.stays ? w.owed > 0 : w.ends);
  const int reached = w.kept + (w.stays ? 0 : w.end);
  uint2 inputs[PAST];
  UNROLL for (int j = 0; j < PAST; j++)
    if (commits) inputs[j] = line_row(g, w, reached + j, mine.x, mine.stride, mine.state);
  bool writes = GROUP * PIECES == 1 || (g.part == BEHIND && w.h % GROUP == 0 && w.piece == 0);
  const bool counts = GROUP * PIECES > 1 && g.part != BEHIND;

  int size;
  for (int first = 0, turn = 0; first < w.count; first += size, turn++) {
    size = w.count - first < ROWS ? w.count - first : ROWS;
    // The rows that read old inputs are worked on together: behind them these may be overwritten.
    if (first < w.owed && first + size > w.owed && first + size < w.count && first + size < w.owed + PAST)
      size = w.owed - first;
    for (int u = warp; u < 2 * size; u += WARPS) {
      if (u & 1) value_side(g, w, shared, first + u / 2, u / 2, lane);
      else key_side(g, w, shared, first + u / 2, u / 2, lane);
    }
    __syncthreads();
    const bool arrives = counts && first <= w.owed && first + size > w.owed;
    if (arrives && threadIdx.x == 0) {
      u32* counter = g.arrivals + w.slot * KEYS + w.head;
      const bool last = arrive_global(counter) == GROUP * PIECES - 1;
      if (last) *counter = 0;
      shared_put(shared + LAST_AT, (u32)last);
    }
    const int old = w.owed - first < size ? w.owed - first : size;
    for (int n = 0; n < size; n++) {
      if (n < old) advance<false>(m, shared, n, key_lane, column);
      else advance<true>(m, shared, n, key_lane, column);
      if (w.stays && first + n == w.owed - 1) m.store();
    }
    if (!w.stays && first + size == w.count) m.store();
    __syncthreads();
    if (arrives) writes = shared_u1(shared + LAST_AT);
    normed(g, w, shared, first, size, turn);
    if (w.stays) keep(g, w, shared, first, size, mine, writes);
    if (first + size < w.count) __syncthreads();
  }
#if PIECES > 1
  cluster_arrive();
#endif
  if (commits && (writes || !mine.is_shared))
    UNROLL for (int j = 0; j < PAST; j++) global_put(g.inputs + (w.slot * PAST + j) * C + mine.state, inputs[j]);
#if PIECES > 1
  // Others may be reading sums from this block's shared memory.
  cluster_wait();
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
    delta_rows(const u16* query, const u16* key, const u16* value, const u16* gate, const u16* a, const u16* b, u16* out,
               const u16* convolution, const float* a_log, const float* dt_bias, const u16* norm, u16* inputs, u16* near,
               u8* matrix, u16* keys, u16* values, float* decays, float* betas, u32* arrivals, const s64* pending,
               const s64* offsets, const s64* lengths, const s64* slots, const u8* held, int q_row, int k_row, int v_row,
               int gate_row, int a_row, int b_row, int near_rows, int window, int part, int eps, int slot_count) {
  extern __shared__ __align__(16) u8 memory[];
  const Arguments g = {query,  key,    value,  gate,  a,        b,       out,     convolution, a_log,     dt_bias, norm,  inputs, near,
                       matrix, keys,   values, decays, betas,   arrivals, pending, offsets,     lengths,   slots,   held,  q_row,  k_row,
                       v_row,  gate_row, a_row, b_row, near_rows, window, part,    eps,         slot_count};
  start_next_kernel();
  const int piece = blockIdx.x % PIECES, pair = blockIdx.x / PIECES, h = pair % HEADS, sequence = pair / HEADS;
  if constexpr (FORESEES) foresee(g, piece, h, sequence);
  wait_for_kernel_before();
  Work w;
  if (found(g, h, piece, sequence, w)) delta_rows_of(g, w, shared_address(memory));
}
