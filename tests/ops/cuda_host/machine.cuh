// The instructions of ninfer/ops/linear/cuda/machine.cuh on a host: every CUDA thread is a fiber.
//
// Same names, so that the kernels compile here unchanged. Copies arrive late and in any order, what
// they will overwrite is poisoned at once, fibers run in a random order, and every address of
// shared memory, and of global memory in the copies, is checked. A kernel that reads too early,
// forgets a barrier or leaves a thread waiting then gives wrong numbers or stops.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE inline
#define UNROLL
#define __device__
#define __global__
#define __shared__
#define __align__(n)
#define __launch_bounds__(...)
#ifndef HOPPER
#error "-DHOPPER=0 or 1"
#endif

struct float2 { float x, y; };
struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct float4 { float x, y, z, w; };
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
inline float __expf(float v) { return std::exp(v); }

#define CHECK(what) \
  do { if (!(what)) { std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); std::abort(); } } while (0)

constexpr u32 BLOCK_SPACE = 1 << 18;  // addresses of one block's shared memory

struct Copy { u32 to; const u8* from; int bytes; u32 barrier; };
struct Warp_ { int arrived = 0; u64 turn = 0; int operation = 0; bool still = false; void* args[32]; };
struct Meeting { int arrived = 0; u64 turn = 0; };
struct Block_ { int number, threads; Meeting all, named, other; std::vector<Warp_> warps; };
// A product of a warpgroup as one thread issued it: where its operands are, not what they were.
struct Issued { float* d; const u32* a; u64 b; int columns; bool is_new; };
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Block_* block;
  int thread;
  bool done = false, waited = false;
  std::vector<std::vector<Copy>> groups{1};
  std::vector<std::vector<Issued>> products{1};
  bool may_issue = false;
};
struct Barrier { int count, pending, bytes; u32 phase; };

struct Machine {
  std::vector<u8> shared;
  u32 shared_bytes = 0;
  std::map<u32, Barrier> barriers;
  std::vector<Copy> bulk;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<std::unique_ptr<Block_>> blocks;
  std::vector<std::pair<const u8*, size_t>> buffers;
  Meeting cluster;
  Fiber* current = nullptr;
  ucontext_t scheduler;
  std::function<void()> kernel;
  u64 seed = 1;
  int first_block = 0;
  u32 random() { seed = seed * 6364136223846793005ull + 1442695040888963407ull; return seed >> 33; }
};
inline Machine machine;

struct Index { int x; };
inline Index threadIdx, blockIdx, gridDim;
extern "C" inline void fiber_main() {
  machine.kernel();
  CHECK(machine.current->groups.size() == 1 || machine.current->groups.back().empty());
  CHECK(machine.current->products.size() == 1 && machine.current->products.back().empty());
  machine.current->done = true;
  swapcontext(&machine.current->context, &machine.scheduler);
}
inline void yield() { swapcontext(&machine.current->context, &machine.scheduler); }
template <class Ready> void wait_until(Ready ready) { while (!ready()) yield(); }

inline u8* shared_at(u32 a, int bytes) {
  CHECK(a % BLOCK_SPACE + bytes <= machine.shared_bytes && a % min(bytes, 16) == 0);
  return &machine.shared.at(a);
}
inline u8* own_at(u32 a, int bytes) {
  CHECK((int)(a / BLOCK_SPACE) == machine.current->block->number - machine.first_block);
  return shared_at(a, bytes);
}
inline void check_global(const void* p, size_t bytes) {
  for (auto& buffer : machine.buffers)
    if (p >= buffer.first && (const u8*)p + bytes <= buffer.first + buffer.second) return;
  CHECK(!"address outside every buffer");
}
inline void settle(Barrier& b) {
  if (b.pending == 0 && b.bytes == 0) b.phase ^= 1, b.pending = b.count;
}
inline void deliver(const Copy& copy) {
  if (copy.from) std::memcpy(shared_at(copy.to, copy.bytes), copy.from, copy.bytes);
  else std::memset(shared_at(copy.to, copy.bytes), 0, copy.bytes);
}
inline void deliver_bulk(size_t i) {
  const Copy copy = machine.bulk[i];
  machine.bulk.erase(machine.bulk.begin() + i);
  deliver(copy);
  Barrier& b = machine.barriers.at(copy.barrier);
  b.bytes -= copy.bytes;
  settle(b);
}

// All lanes of a warp, each with its arguments; the last to come computes for all.
template <class Compute> void together(int operation, void* mine, Compute compute) {
  Warp_& w = machine.current->block->warps[threadIdx.x / 32];
  CHECK(w.arrived == 0 || w.operation == operation);
  w.operation = operation;
  w.args[threadIdx.x % 32] = mine;
  const u64 turn = w.turn;
  if (++w.arrived == 32) {
    compute(w.args);
    w.arrived = 0, w.turn++;
  } else {
    wait_until([&] { return w.turn != turn; });
  }
}
inline void meet_all(Meeting& m, int count) {
  const u64 turn = m.turn;
  if (++m.arrived == count) m.arrived = 0, m.turn++;
  else wait_until([&] { return m.turn != turn; });
}

inline void __syncwarp() { together(1, nullptr, [](void**) {}); }
inline void __syncthreads() { meet_all(machine.current->block->all, machine.current->block->threads); }
inline u32 __shfl_sync(u32, u32 value, int source) {
  struct { u32 in, out; int source; } mine = {value, 0, source & 31};
  using Pair = decltype(mine);
  together(2, &mine, [&](void** all) {
    for (int i = 0; i < 32; i++) ((Pair*)all[i])->out = ((Pair*)all[((Pair*)all[i])->source])->in;
  });
  return mine.out;
}
inline u32 ballot(bool value) {
  struct { bool in; u32 out; } mine = {value, 0};
  using Vote = decltype(mine);
  together(6, &mine, [&](void** all) {
    u32 found = 0;
    for (int i = 0; i < 32; i++) found |= (u32)((Vote*)all[i])->in << i;
    for (int i = 0; i < 32; i++) ((Vote*)all[i])->out = found;
  });
  return mine.out;
}
inline bool any_lane(bool value) { return ballot(value) != 0; }
inline int first_lane(bool value) { return __builtin_ffs(ballot(value)) - 1; }
inline u32 __float_as_uint(float value) { u32 r; std::memcpy(&r, &value, 4); return r; }
inline float __uint_as_float(u32 word) { float r; std::memcpy(&r, &word, 4); return r; }
inline float from_lane(float value, int lane) { return __uint_as_float(__shfl_sync(~0u, __float_as_uint(value), lane)); }
struct Word { u32 in, out; };
inline u32 warp_most(u32 word) {
  Word mine = {word, 0};
  together(7, &mine, [](void** all) {
    u32 best = 0;
    for (int i = 0; i < 32; i++) best = ((Word*)all[i])->in > best ? ((Word*)all[i])->in : best;
    for (int i = 0; i < 32; i++) ((Word*)all[i])->out = best;
  });
  return mine.out;
}
inline u32 warp_least(u32 word) { return ~warp_most(~word); }
template <int THREADS> void rendezvous_arrive() {
  Meeting& m = machine.current->block->named;
  if (++m.arrived == THREADS) m.arrived = 0, m.turn++;
}
template <int THREADS> void rendezvous_wait() { meet_all(machine.current->block->named, THREADS); }
template <int THREADS> void meeting() { meet_all(machine.current->block->other, THREADS); }

inline u32 shared_address(const void*) {
  return (machine.current->block->number - machine.first_block) * BLOCK_SPACE;
}
inline u32 rotr(u32 word, int count) { return count ? word >> count | word << (32 - count) : word; }
inline u32 pick(u32 word, u32 mask, u32 bits) { return (word & mask) | bits; }
inline float word_float(u32 word) { float r; std::memcpy(&r, &word, 4); return r; }
inline u32 float_word(float value) { u32 r; std::memcpy(&r, &value, 4); return r; }
inline float from_bf16(u16 word) { return word_float((u32)word << 16); }
inline u16 to_bf16(float value) {
  u32 w;
  std::memcpy(&w, &value, 4);
  if (std::isnan(value)) return 0x7FFF;
  return (w + 0x7FFF + ((w >> 16) & 1)) >> 16;
}
inline u32 fma2(u32 a, u32 b, u32 c) {
  const float low = from_bf16(a) * from_bf16(b) + from_bf16(c);
  const float high = from_bf16(a >> 16) * from_bf16(b >> 16) + from_bf16(c >> 16);
  return to_bf16(low) | (u32)to_bf16(high) << 16;
}
inline float half_float(u16 h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  const float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                     : exponent ? std::ldexp(1.f + mantissa / 1024.f, exponent - 15) : std::ldexp((float)mantissa, -24);
  return h >> 15 ? -size : size;
}
inline float half_low(u32 pair) { return half_float(pair); }
inline float half_high(u32 pair) { return half_float(pair >> 16); }

inline u32 pair_of(float low, float high) { return to_bf16(low) | (u32)to_bf16(high) << 16; }
inline u32 bytes_of(u32 low, u32 high, u32 which) {
  u32 found = 0;
  for (int i = 0; i < 4; i++) found |= (u32)(((u64)high << 32 | low) >> (which >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return found;
}
inline float times(float a, float b) { return a * b; }
inline float power_of_2(float v) { return std::exp2(v); }
inline bool not_finite(u32 pair) { return (pair & 0x7F800000) == 0x7F800000 || (pair & 0x7F80) == 0x7F80; }
inline u32 held(u32 value) { return value; }
inline float infinity() { return INFINITY; }
inline float not_a_number() { return NAN; }

struct Product { float d[4]; u32 a[4], b[2]; float c[4]; };
inline void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, float c0, float c1, float c2, float c3) {
  Product mine = {{}, {a[0], a[1], a[2], a[3]}, {b0, b1}, {c0, c1, c2, c3}};
  together(3, &mine, [](void** all) {
    float left[16][16], right[16][8];
    auto half = [](u32 word, int p) { return from_bf16(word >> (16 * p)); };
    for (int lane = 0; lane < 32; lane++) {
      const Product& m = *(Product*)all[lane];
      const int r = lane / 4, j = lane % 4;
      for (int p = 0; p < 2; p++) {
        for (int i = 0; i < 4; i++) left[r + 8 * (i & 1)][2 * j + p + 8 * (i >> 1)] = half(m.a[i], p);
        for (int e = 0; e < 2; e++) right[2 * j + p + 8 * e][r] = half(m.b[e], p);
      }
    }
    for (int lane = 0; lane < 32; lane++) {
      Product& m = *(Product*)all[lane];
      for (int v = 0; v < 4; v++) {
        double sum = m.c[v];
        for (int k = 0; k < 16; k++) sum += (double)left[lane / 4 + 8 * (v >> 1)][k] * right[k][lane % 4 * 2 + (v & 1)];
        m.d[v] = sum;
      }
    }
  });
  std::memcpy(d, mine.d, sizeof d);
}

// Products of warpgroups end at any time from their commit to their wait. Until they have ended
// their sums are NaN, and their operands are read at that time only.
inline void products_begin() { machine.current->may_issue = true; }
inline u64 swizzled(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
// Element (k, n) of the tile that a descriptor names: bf16, K-major, 128-byte swizzle.
inline float described(u64 d, int k, int n, u32 block) {
  CHECK(d >> 62 == 1 && (d >> 49 & 7) == 0);
  const u32 start = (d & 0x3FFF) << 4, stride = (d >> 32 & 0x3FFF) << 4;
  u32 at = start + n / 8 * stride + n % 8 * 128 + k * 2;
  at ^= (at >> 7 & 7) << 4;
  u16 word;
  std::memcpy(&word, own_at(block + at, 2), 2);
  return from_bf16(word);
}
inline void multiply_issued(Issued (&all)[32], u32 block) {
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < all[lane].columns / 2; i++) {
      const Issued& mine = all[lane];
      CHECK(mine.b == all[0].b && mine.columns == all[0].columns && mine.is_new == all[0].is_new);
      const int row = lane / 4 + 8 * (i >> 1 & 1), n = i / 4 * 8 + lane % 4 * 2 + (i & 1);
      double sum = mine.is_new ? 0 : mine.d[i];
      for (int k = 0; k < 16; k++) {
        // Half k & 1 of register (row half) + 2 (k half) of the lane that has this row and column pair.
        const u32 pair = all[row % 8 * 4 + k % 8 / 2].a[row / 8 + 2 * (k / 8)];
        sum += (double)from_bf16(pair >> (16 * (k & 1))) * described(mine.b, k, n, block);
      }
      mine.d[i] = sum;
    }
}
// The oldest committed group of this warp's lanes; called by the last of them that came.
inline void end_group(void** all) {
  const u32 block = (machine.current->block->number - machine.first_block) * BLOCK_SPACE;
  const size_t count = ((Fiber*)all[0])->products.front().size();
  for (size_t i = 0; i < count; i++) {
    Issued issued[32];
    for (int lane = 0; lane < 32; lane++) issued[lane] = ((Fiber*)all[lane])->products.front().at(i);
    multiply_issued(issued, block);
  }
  for (int lane = 0; lane < 32; lane++) {
    auto& groups = ((Fiber*)all[lane])->products;
    groups.erase(groups.begin());
  }
}
inline void products_commit() {
  machine.current->products.emplace_back();
  machine.current->may_issue = false;
  together(4, machine.current, [](void** all) { if (machine.random() % 2) end_group(all); });
}
template <bool NEW, size_t N> void product(float (&d)[N], const u32 (&a)[4], u64 b) {
  CHECK(machine.current->may_issue);
  for (float& value : d) value = NAN;
  machine.current->products.back().push_back({d, a, b, (int)N * 2, NEW});
}
template <int LEFT, size_t N, size_t M> void products_wait(float (&)[N], u32 (&)[M][4]) {
  together(5, machine.current, [](void** all) {
    while (((Fiber*)all[0])->products.size() > LEFT + 1) end_group(all);
  });
}
inline void settled(float*, int) {}
template <int COUNT> void more_registers() {}
template <int COUNT> void fewer_registers() {}

template <class T> T read_shared(u32 a) { T v; std::memcpy(&v, own_at(a, sizeof v), sizeof v); return v; }
inline uint4 shared_u4(u32 a) { return read_shared<uint4>(a); }
inline uint2 shared_u2(u32 a) { return read_shared<uint2>(a); }
inline u32 shared_u1(u32 a) { return read_shared<u32>(a); }
inline float4 shared_f4(u32 a) { return read_shared<float4>(a); }
inline u32 shared_h1(u32 a) { return read_shared<u16>(a); }
inline void turned_words(u32 a, u32 (&v)[4]) {
  struct { u32 a, v[4]; } mine = {a, {}};
  using Matrix = decltype(mine);
  together(7, &mine, [](void** all) {
    for (int lane = 0; lane < 32; lane++)
      for (int m = 0; m < 4; m++) {
        u32 found = 0;
        for (int e = 0; e < 2; e++) {
          const u32 row = ((Matrix*)all[m * 8 + lane % 4 * 2 + e])->a;
          CHECK(row % 16 == 0);
          found |= (u32)read_shared<u16>(row + lane / 4 * 2) << 16 * e;
        }
        ((Matrix*)all[lane])->v[m] = found;
      }
  });
  std::memcpy(v, mine.v, sizeof mine.v);
}
inline void shared_put(u32 a, uint4 v) { std::memcpy(own_at(a, 16), &v, 16); }
inline void shared_put(u32 a, uint2 v) { std::memcpy(own_at(a, 8), &v, 8); }
inline void shared_put(u32 a, float4 v) { std::memcpy(own_at(a, 16), &v, 16); }
inline void shared_put(u32 a, u32 v) { std::memcpy(own_at(a, 4), &v, 4); }
inline void shared_add(u32 a, u32 v) { shared_put(a, read_shared<u32>(a) + v); }
inline void shared_most(u32 a, u32 v) { if (v > read_shared<u32>(a)) shared_put(a, v); }
inline u32 shared_take(u32 a, u32 v) { const u32 before = read_shared<u32>(a); shared_put(a, before + v); return before; }
inline u64 shared_long(u32 a) { return read_shared<u64>(a); }
inline void shared_put_long(u32 a, u64 v) { std::memcpy(own_at(a, 8), &v, 8); }
inline float minus(float a, float b) { return a - b; }
inline float quotient(float a, float b) { return a / b; }
template <class T> T read_global(const void* p) {
  CHECK(machine.current->waited && (u64)p % 16 == 0);
  check_global(p, 16);
  T v;
  std::memcpy(&v, p, 16);
  return v;
}
template <class T> T read_early(const void* p) {
  CHECK((u64)p % sizeof(T) == 0);
  check_global(p, sizeof(T));
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline u32 early_u1(const void* p) { return read_early<u32>(p); }
inline uint4 early_u4(const void* p) { return read_early<uint4>(p); }
inline u32 global_u1(const void* p) { CHECK(machine.current->waited); return read_early<u32>(p); }
inline float global_f1(const void* p) { CHECK(machine.current->waited); return read_early<float>(p); }
inline uint4 global_u4(const void* p) { return read_global<uint4>(p); }
inline float4 global_f4(const void* p) { return read_global<float4>(p); }
inline void global_put(void* p, float4 v) {
  CHECK(machine.current->waited);
  check_global(p, 16);
  std::memcpy(p, &v, 16);
}
inline u32 arrive_global(u32* counter) { check_global(counter, 4); return (*counter)++; }

inline void copy16(u32 to, const void* from, bool present = true) {
  if (present) check_global(from, 16);
  std::memset(own_at(to, 16), 0xFF, 16);
  machine.current->groups.back().push_back({to, present ? (const u8*)from : nullptr, 16, 0});
}
template <int BYTES> void copy_few(u32 to, const void* from, bool present) {
  if (present) check_global(from, BYTES);
  CHECK((u64)from % BYTES == 0);
  std::memset(own_at(to, BYTES), 0xFF, BYTES);
  machine.current->groups.back().push_back({to, present ? (const u8*)from : nullptr, BYTES, 0});
}
inline void copies_commit() { machine.current->groups.emplace_back(); }
template <int LEFT> void copies_wait() {
  auto& groups = machine.current->groups;
  while ((int)groups.size() - 1 > LEFT) {
    for (auto& copy : groups.front()) deliver(copy);
    groups.erase(groups.begin());
  }
  yield();
}

inline void barrier_init(u32 a, int count) { own_at(a, 8); machine.barriers[a] = {count, count, 0, 0}; }
inline void barrier_arrive(u32 a) {
  Barrier& b = machine.barriers.at(a);
  CHECK(b.pending > 0);
  b.pending--;
  settle(b);
}
inline void barrier_wait(u32 a, u32 phase) {
  wait_until([&] { return machine.barriers.at(a).phase != phase; });
}
inline u64 read_once_policy() { return 0; }
inline u64 keep_policy() { return 0; }
inline void barrier_expect(u32 barrier, int bytes) {
  Barrier& b = machine.barriers.at(barrier);
  CHECK(b.pending > 0);
  b.pending--, b.bytes += bytes;
}
inline void copy_bulk_part(u32 to, const void* from, int bytes, u32 barrier, u64) {
  check_global(from, bytes);
  CHECK(bytes % 16 == 0 && (u64)from % 16 == 0);
  std::memset(own_at(to, bytes), 0xFF, bytes);
  machine.bulk.push_back({to, (const u8*)from, bytes, barrier});
}
inline void copy_bulk(u32 to, const void* from, int bytes, u32 barrier, u64 policy) {
  barrier_expect(barrier, bytes);
  copy_bulk_part(to, from, bytes, barrier, policy);
}
inline void barriers_visible() {}
inline void cluster_sync() { meet_all(machine.cluster, machine.fibers.size()); }
inline float4 cluster_f4(u32 a, u32 rank) {
  float4 v;
  std::memcpy(&v, shared_at(a % BLOCK_SPACE + rank * BLOCK_SPACE, 16), 16);
  return v;
}
template <class T> T read_cluster(u32 a, u32 rank) {
  T v;
  std::memcpy(&v, shared_at(a % BLOCK_SPACE + rank * BLOCK_SPACE, sizeof v), sizeof v);
  return v;
}
inline u32 cluster_u1(u32 a, u32 rank) { return read_cluster<u32>(a, rank); }
inline u64 cluster_long(u32 a, u32 rank) { return read_cluster<u64>(a, rank); }
inline void cluster_put(u32 a, u32 rank, u32 v) {
  std::memcpy(shared_at(a % BLOCK_SPACE + rank * BLOCK_SPACE, 4), &v, 4);
}
inline u32 cluster_take(u32 a, u32 rank, u32 v) {
  const u32 before = cluster_u1(a, rank);
  cluster_put(a, rank, before + v);
  return before;
}
inline void start_next_kernel() {}
inline void wait_for_kernel_before() { machine.current->waited = true; }
inline float4 plus(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// Run `blocks` blocks that see each other, from number `first` on.
inline void run_blocks(int first, int blocks, int threads) {
  machine.first_block = first;
  machine.shared.assign((size_t)blocks * BLOCK_SPACE, 0xFF);
  machine.barriers.clear(), machine.bulk.clear(), machine.fibers.clear(), machine.blocks.clear();
  machine.cluster = {};
  for (int b = 0; b < blocks; b++) {
    machine.blocks.emplace_back(new Block_{first + b, threads, {}, {}, {}, std::vector<Warp_>(threads / 32)});
    for (int t = 0; t < threads; t++) {
      machine.fibers.emplace_back(new Fiber);
      Fiber& f = *machine.fibers.back();
      constexpr size_t STACK = 1 << 16;
      f.block = machine.blocks.back().get(), f.thread = t, f.stack.reset(new char[STACK]);
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.get(), f.context.uc_stack.ss_size = STACK;
      makecontext(&f.context, fiber_main, 0);
    }
  }
  std::vector<Fiber*> alive;
  for (auto& f : machine.fibers) alive.push_back(f.get());
  u64 rounds = 0;
  while (!alive.empty()) {
    CHECK(++rounds < 2000000);  // else some thread waits for ever
    // Mostly in order, from a random start, which is fast; now and then backwards.
    const size_t start = machine.random() % alive.size();
    const bool back = machine.random() % 4 == 0;
    // Some warps stand still for a while, so that the others run as far ahead as they can.
    if (rounds % 150 == 1)
      for (auto& block : machine.blocks)
        for (Warp_& w : block->warps) w.still = machine.random() % 3 == 0;
    for (size_t i = 0; i < alive.size(); i++) {
      const size_t at = (start + (back ? alive.size() - 1 - i : i)) % alive.size();
      if (alive[at]->block->warps[alive[at]->thread / 32].still) continue;
      machine.current = alive[at];
      threadIdx.x = alive[at]->thread, blockIdx.x = alive[at]->block->number;
      swapcontext(&machine.scheduler, &alive[at]->context);
    }
    size_t kept = 0;
    for (Fiber* f : alive) if (!f->done) alive[kept++] = f;
    alive.resize(kept);
    if (!machine.bulk.empty() && machine.random() % 3 == 0) deliver_bulk(machine.random() % machine.bulk.size());
  }
  CHECK(machine.bulk.empty());
}

// A whole grid: clusters, or single blocks, in a random order.
inline void run_grid(int grid, int threads, int shared_bytes, int cluster, u64 seed, std::function<void()> kernel) {
  machine.kernel = kernel, machine.seed = seed, machine.shared_bytes = shared_bytes;
  gridDim.x = grid;
  std::vector<int> order;
  for (int i = 0; i < grid; i += cluster) order.push_back(i);
  for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[machine.random() % i]);
  for (int first : order) run_blocks(first, cluster, threads);
}
