// Instructions that CUDA C++ has no words for: tensor-core product, copies to shared memory,
// barriers, clusters. No header of the toolkit is needed, so NVRTC runs without any.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

// Hopper and later: bulk copies, clusters, programmatic dependent launch.
#if __CUDA_ARCH__ >= 900
#define HOPPER 1
#else
#define HOPPER 0
#endif
// What only sm_90a has: products of whole warpgroups, registers moved between them.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUPS 1
#else
#define WARPGROUPS 0
#endif

INLINE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
INLINE u32 rotr(u32 word, int count) { return __funnelshift_r(word, word, count); }

// (word & mask) | bits in one instruction
INLINE u32 pick(u32 word, u32 mask, u32 bits) {
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(word), "r"(mask), "r"(bits));
  return r;
}
// a * b + c of two bfloat16
INLINE u32 fma2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
INLINE float half_low(u32 pair) {
  float r;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(r) : "r"(pair));
  return r;
}
INLINE float half_high(u32 pair) {
  float r;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(r) : "r"(pair));
  return r;
}
INLINE float from_bf16(u16 word) { return __uint_as_float((u32)word << 16); }
INLINE u16 to_bf16(float value) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(value));
  return r;
}

// Two numbers rounded to bfloat16, the first one in the low half.
INLINE u32 pair_of(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// Four bytes of `low` (0 to 3) and `high` (4 to 7), as the digits of `which` say.
INLINE u32 bytes_of(u32 low, u32 high, u32 which) { return __byte_perm(low, high, which); }
// Products that the compiler must not fuse with a sum: the same line has to round alike everywhere.
INLINE float times(float a, float b) { return __fmul_rn(a, b); }
INLINE float power_of_2(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
// Whether a pair of bfloat16 has one that is NaN or infinite.
INLINE bool not_finite(u32 pair) {
  return (pair & 0x7F800000) == 0x7F800000 || (pair & 0x7F80) == 0x7F80;
}
// Computed here once: the compiler neither moves it to where it is used nor makes it anew there.
INLINE u32 held(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}
INLINE float infinity() { return __uint_as_float(0x7F800000); }
INLINE float not_a_number() { return __uint_as_float(0x7FFFFFFF); }

// Among the lanes of a warp: another's value, whether it holds for any, the first that it holds for.
INLINE float from_lane(float value, int lane) { return __shfl_sync(~0u, value, lane); }
INLINE bool any_lane(bool value) { return __any_sync(~0u, value); }
INLINE int first_lane(bool value) { return __ffs(__ballot_sync(~0u, value)) - 1; }
INLINE float word_float(u32 word) { return __uint_as_float(word); }
INLINE u32 float_word(float value) { return __float_as_uint(value); }

// The largest and the least word of a warp.
INLINE u32 warp_most(u32 word) {
  u32 r;
  asm volatile("redux.sync.max.u32 %0, %1, 0xFFFFFFFF;" : "=r"(r) : "r"(word));
  return r;
}
INLINE u32 warp_least(u32 word) {
  u32 r;
  asm volatile("redux.sync.min.u32 %0, %1, 0xFFFFFFFF;" : "=r"(r) : "r"(word));
  return r;
}

// d[16 x 8] = a[16 x 16] b[16 x 8] + c, bfloat16 operands, float32 sums
INLINE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, float c0, float c1, float c2,
                float c3) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2),
        "f"(c3));
}

// Volatile, so that reads stay behind the barrier that announces the data.
INLINE uint4 shared_u4(u32 a) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(a));
  return v;
}
INLINE uint2 shared_u2(u32 a) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a));
  return v;
}
INLINE u32 shared_u1(u32 a) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a));
  return v;
}
// 16 bits, zero-extended.
INLINE u32 shared_h1(u32 a) {
  u16 v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(a));
  return v;
}
// Four 8 x 8 matrices of 16-bit words, turned: lane i gives the place of row i % 8 of matrix i / 8,
// and gets words (2 (i % 4), i / 4) and (2 (i % 4) + 1, i / 4) of each.
INLINE void turned_words(u32 a, u32 (&v)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(a));
}
INLINE float4 shared_f4(u32 a) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(a));
  return v;
}
INLINE void shared_put(u32 a, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(a), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w)
               : "memory");
}
INLINE void shared_put(u32 a, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
INLINE void shared_put(u32 a, uint2 v) {
  asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(a), "r"(v.x), "r"(v.y) : "memory");
}
INLINE void shared_put(u32 a, u32 v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory");
}
// Activations are read after the wait for the kernel before, so not through the read-only path.
INLINE uint4 global_u4(const void* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
INLINE u32 global_u1(const void* p) {
  u32 v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
// What may be read before the wait: weights, and what a kernel has written that is over for sure.
INLINE u32 early_u1(const void* p) {
  u32 v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
INLINE uint4 early_u4(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
// Past L1: other blocks wrote it.
INLINE float global_f1(const void* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}
INLINE float4 global_f4(const void* p) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
INLINE void global_put(void* p, float4 v) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w)
               : "memory");
}
// Count an arrival; what was written before is seen by whoever counts later.
INLINE u32 arrive_global(u32* counter) {
  u32 before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// Words of shared memory that several threads change at once.
INLINE void shared_add(u32 a, u32 v) {
  asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory");
}
INLINE void shared_most(u32 a, u32 v) {
  asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory");
}
INLINE u32 shared_take(u32 a, u32 v) {
  u32 before;
  asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(before) : "r"(a), "r"(v) : "memory");
  return before;
}
INLINE u64 shared_long(u32 a) {
  u64 v;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(v) : "r"(a));
  return v;
}
INLINE void shared_put_long(u32 a, u64 v) {
  asm volatile("st.shared.u64 [%0], %1;" ::"r"(a), "l"(v) : "memory");
}
// Single steps, as `times`, that the compiler may not make one of.
INLINE float minus(float a, float b) { return __fsub_rn(a, b); }
INLINE float quotient(float a, float b) { return __fdiv_rn(a, b); }

// Copy 16 bytes to shared memory, or write zeros there.
INLINE void copy16(u32 to, const void* from, bool present = true) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(present ? 16 : 0)
               : "memory");
}
// The same with 4, 8 or 16 bytes.
template <int BYTES> INLINE void copy_few(u32 to, const void* from, bool present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
               "r"(present ? BYTES : 0)
               : "memory");
}
INLINE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> INLINE void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// One-time meeting of THREADS threads: some only report, the others wait for them.
template <int THREADS> INLINE void rendezvous_arrive() {
  asm volatile("bar.arrive 1, %0;" ::"n"(THREADS) : "memory");
}
template <int THREADS> INLINE void rendezvous_wait() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// All of THREADS threads wait for each other; the other threads of the block take no part.
template <int THREADS> INLINE void meeting() {
  asm volatile("bar.sync 2, %0;" ::"n"(THREADS) : "memory");
}

INLINE void barrier_init(u32 a, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(a), "r"(count) : "memory");
}
INLINE void barrier_arrive(u32 a) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(a) : "memory");
}
INLINE void barrier_wait(u32 a, u32 phase) {
#if HOPPER
  asm volatile(
      "{ .reg .pred p;\n AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
      " @!p bra AGAIN;\n }" ::"r"(a), "r"(phase)
      : "memory");
#else
  asm volatile(
      "{ .reg .pred p;\n AGAIN: mbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n"
      " @!p bra AGAIN;\n }" ::"r"(a), "r"(phase)
      : "memory");
#endif
}

#if HOPPER
INLINE u64 read_once_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
INLINE u64 keep_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Arrive at a barrier, which from now on expects `bytes` of copies as well.
INLINE void barrier_expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// One copy of `bytes`, which `barrier` expects already.
INLINE void copy_bulk_part(u32 to, const void* from, int bytes, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// One copy of `bytes`, which `barrier` expects and completes.
INLINE void copy_bulk(u32 to, const void* from, int bytes, u32 barrier, u64 policy) {
  barrier_expect(barrier, bytes);
  copy_bulk_part(to, from, bytes, barrier, policy);
}
INLINE void barriers_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
INLINE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
}
// What the block of rank `rank` holds at our shared address `a`.
INLINE float4 cluster_f4(u32 a, u32 rank) {
  float4 v;
  asm volatile(
      "{ .reg .u32 r; mapa.shared::cluster.u32 r, %4, %5;\n"
      " ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [r]; }"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(a), "r"(rank)
      : "memory");
  return v;
}
INLINE u32 cluster_u1(u32 a, u32 rank) {
  u32 v;
  asm volatile(
      "{ .reg .u32 r; mapa.shared::cluster.u32 r, %1, %2;\n ld.shared::cluster.u32 %0, [r]; }"
      : "=r"(v)
      : "r"(a), "r"(rank)
      : "memory");
  return v;
}
INLINE u64 cluster_long(u32 a, u32 rank) {
  u64 v;
  asm volatile(
      "{ .reg .u32 r; mapa.shared::cluster.u32 r, %1, %2;\n ld.shared::cluster.u64 %0, [r]; }"
      : "=l"(v)
      : "r"(a), "r"(rank)
      : "memory");
  return v;
}
INLINE void cluster_put(u32 a, u32 rank, u32 v) {
  asm volatile(
      "{ .reg .u32 r; mapa.shared::cluster.u32 r, %0, %1;\n st.shared::cluster.u32 [r], %2; }" ::"r"(a),
      "r"(rank), "r"(v)
      : "memory");
}
INLINE u32 cluster_take(u32 a, u32 rank, u32 v) {
  u32 before;
  asm volatile(
      "{ .reg .u32 r; mapa.shared::cluster.u32 r, %1, %2;\n atom.shared::cluster.add.u32 %0, [r], %3; }"
      : "=r"(before)
      : "r"(a), "r"(rank), "r"(v)
      : "memory");
  return before;
}
// Programmatic dependent launch; both are nothing in an ordinary launch.
INLINE void start_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
INLINE void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
INLINE void start_next_kernel() {}
INLINE void wait_for_kernel_before() {}
#endif

// All warps of a warpgroup ask for more registers, or give some back.
template <int COUNT> INLINE void more_registers() {
#if WARPGROUPS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}
template <int COUNT> INLINE void fewer_registers() {
#if WARPGROUPS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

#if WARPGROUPS
// Products of a warpgroup: d[64 x N] (+)= a[64 x 16] b[16 x N], a as in `mma` with 16 rows for each
// warp, b in shared memory by its descriptor. They end some time before `products_wait`; until
// then nobody may touch d, a and b.
INLINE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Rows of 128 bytes with the 128-byte swizzle, eight of them (1024 bytes) after another.
INLINE u64 swizzled(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

#define SUM8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define NEW8(d, i) "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), "=f"(d[i + 6]), "=f"(d[i + 7])
#define LEFT4(a) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
template <bool NEW> INLINE void product(float (&d)[8], const u32 (&a)[4], u64 b) {
  if constexpr (NEW)
    asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 0, 0;\n wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, p, 1, 1, 0; }"
      : NEW8(d, 0)
      : LEFT4(a), "l"(b));
  else
    asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 1, 0;\n wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, p, 1, 1, 0; }"
      : SUM8(d, 0)
      : LEFT4(a), "l"(b));
}
template <bool NEW> INLINE void product(float (&d)[16], const u32 (&a)[4], u64 b) {
  if constexpr (NEW)
    asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 0, 0;\n wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
      : NEW8(d, 0), NEW8(d, 8)
      : LEFT4(a), "l"(b));
  else
    asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 1, 0;\n wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
      : SUM8(d, 0), SUM8(d, 8)
      : LEFT4(a), "l"(b));
}
template <bool NEW> INLINE void product(float (&d)[32], const u32 (&a)[4], u64 b) {
  if constexpr (NEW)
    asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 0, 0;\n wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
      : NEW8(d, 0), NEW8(d, 8), NEW8(d, 16), NEW8(d, 24)
      : LEFT4(a), "l"(b));
  else
    asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, 1, 0;\n wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
      : SUM8(d, 0), SUM8(d, 8), SUM8(d, 16), SUM8(d, 24)
      : LEFT4(a), "l"(b));
}
// What was computed is computed by here: later products do not have to share registers with it.
INLINE void settled(float* d, int count) {
  UNROLL for (int i = 0; i < count; i += 8) asm volatile("" : SUM8(d, i));
}
// Wait until at most LEFT committed groups of products are under way. `d` and `a` are those of the
// group that has to be over, so that the compiler leaves them alone until here.
#define HELD4(a) "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])
template <int LEFT> INLINE void products_wait(float (&d)[8], u32 (&a)[2][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %16;"
               : SUM8(d, 0),
                 HELD4(a[0]), HELD4(a[1])
               : "n"(LEFT)
               : "memory");
}
template <int LEFT> INLINE void products_wait(float (&d)[8], u32 (&a)[4][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %24;"
               : SUM8(d, 0),
                 HELD4(a[0]), HELD4(a[1]), HELD4(a[2]), HELD4(a[3])
               : "n"(LEFT)
               : "memory");
}
template <int LEFT> INLINE void products_wait(float (&d)[16], u32 (&a)[2][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %24;"
               : SUM8(d, 0), SUM8(d, 8),
                 HELD4(a[0]), HELD4(a[1])
               : "n"(LEFT)
               : "memory");
}
template <int LEFT> INLINE void products_wait(float (&d)[16], u32 (&a)[4][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;"
               : SUM8(d, 0), SUM8(d, 8),
                 HELD4(a[0]), HELD4(a[1]), HELD4(a[2]), HELD4(a[3])
               : "n"(LEFT)
               : "memory");
}
template <int LEFT> INLINE void products_wait(float (&d)[32], u32 (&a)[2][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %40;"
               : SUM8(d, 0), SUM8(d, 8), SUM8(d, 16), SUM8(d, 24),
                 HELD4(a[0]), HELD4(a[1])
               : "n"(LEFT)
               : "memory");
}
template <int LEFT> INLINE void products_wait(float (&d)[32], u32 (&a)[4][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %48;"
               : SUM8(d, 0), SUM8(d, 8), SUM8(d, 16), SUM8(d, 24),
                 HELD4(a[0]), HELD4(a[1]), HELD4(a[2]), HELD4(a[3])
               : "n"(LEFT)
               : "memory");
}
#endif

INLINE float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
