// The instructions of ninfer/ops/delta_net/cuda/words.cuh on a host; see machine.cuh beside it.
#pragma once
#include "machine.cuh"

typedef long long s64;

inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline float near_quotient(float a, float b) { return a / b; }
inline float rsqrtf(float v) { return 1.f / std::sqrt(v); }
template <class T> T __shfl_xor_sync(u32, T value, int lanes) {
  struct { T in, out; } mine = {value, {}};
  using Pair = decltype(mine);
  together(20, &mine, [&](void** all) {
    for (int i = 0; i < 32; i++) ((Pair*)all[i])->out = ((Pair*)all[i ^ lanes])->in;
  });
  return mine.out;
}
inline float exchanged(float v, int lanes) { return __shfl_xor_sync(~0u, v, lanes); }

template <class T> T read_at(const void* p, bool early) {
  CHECK((early || machine.current->waited) && (u64)p % sizeof(T) == 0);
  check_global(p, sizeof(T));
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T> void write_at(void* p, T v) {
  CHECK(machine.current->waited && (u64)p % sizeof(T) == 0);
  check_global(p, sizeof v);
  std::memcpy(p, &v, sizeof v);
}
inline s64 fresh_s64(const void* p) { return read_at<s64>(p, true); }
inline u32 fresh_u8(const void* p) { return read_at<u8>(p, true); }
inline uint2 global_u2(const void* p) { return read_at<uint2>(p, false); }
inline u16 global_u16(const void* p) { return read_at<u16>(p, false); }
inline void global_put(void* p, uint2 v) { write_at(p, v); }
inline void global_put(void* p, u32 v) { write_at(p, v); }
inline void global_put(void* p, float v) { write_at(p, v); }
inline void touch(const void* p) { check_global(p, 1); }

inline float shared_f1(u32 a) { return read_shared<float>(a); }
inline void shared_put(u32 a, float v) { std::memcpy(own_at(a, 4), &v, 4); }

// Turn of the cluster's meeting that each thread has come to.
inline std::map<Fiber*, u64> cluster_turns;
inline void cluster_arrive() {
  Meeting& m = machine.cluster;
  cluster_turns[machine.current] = m.turn;
  if (++m.arrived == (int)machine.fibers.size()) m.arrived = 0, m.turn++;
}
inline void cluster_wait() {
  const u64 turn = cluster_turns.at(machine.current);
  wait_until([&] { return machine.cluster.turn != turn; });
}
inline float cluster_f1(u32 a, u32 rank) {
  float v;
  std::memcpy(&v, shared_at(a % BLOCK_SPACE + rank * BLOCK_SPACE, 4), 4);
  return v;
}
