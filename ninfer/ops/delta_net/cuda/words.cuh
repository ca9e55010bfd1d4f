// Loads and stores of less than 16 bytes, sums over the lanes of a warp, clusters in two steps.
#pragma once
#include "machine.cuh"

typedef long long s64;

// What another kernel may have written a moment ago, or write right now: past L1.
INLINE s64 fresh_s64(const void* p) {
  s64 v;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
INLINE u32 fresh_u8(const void* p) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u8 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
INLINE uint2 global_u2(const void* p) {
  uint2 v;
  asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}
INLINE u16 global_u16(const void* p) {
  u16 v;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
  return v;
}
INLINE void global_put(void* p, uint2 v) {
  asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}
INLINE void global_put(void* p, u32 v) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
INLINE void global_put(void* p, float v) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
}
// Ask the L2 cache for the 128 bytes around an address; nothing waits for them.
INLINE void touch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

INLINE float shared_f1(u32 a) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(a));
  return v;
}
INLINE void shared_put(u32 a, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(a), "f"(v) : "memory");
}

// a b + c rounded once, wherever it stands: pending rows and new ones have code of their own.
INLINE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// a / b to two units in the last place, 0 for an infinite b.
INLINE float near_quotient(float a, float b) { return __fdividef(a, b); }
INLINE float exchanged(float v, int lanes) { return __shfl_xor_sync(0xFFFFFFFF, v, lanes); }

#if HOPPER
// cluster_sync in two steps: what was done before the first is seen behind the second.
INLINE void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
INLINE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
INLINE float cluster_f1(u32 a, u32 rank) {
  float v;
  asm volatile(
      "{ .reg .u32 r; mapa.shared::cluster.u32 r, %1, %2;\n ld.shared::cluster.f32 %0, [r]; }"
      : "=f"(v)
      : "r"(a), "r"(rank)
      : "memory");
  return v;
}
#endif
