// Reads memory once and keeps nothing: the roof that the products are measured against.
#include "machine.cuh"

constexpr int LOADS = 8;  // in flight for each thread

extern "C" __global__ void __launch_bounds__(512)
    read_memory(const uint4* from, u32* never, int units, int rounds) {
  // `units` times `rounds` loads of 16 bytes.
  const size_t all = (size_t)units * rounds;
  const size_t step = (size_t)gridDim.x * blockDim.x;
  u32 seen = 0;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step * LOADS) {
    uint4 v[LOADS];
    UNROLL for (int u = 0; u < LOADS; u++) {
      v[u] = make_uint4(0, 0, 0, 0);
      if (i + u * step < all)
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v[u].x), "=r"(v[u].y), "=r"(v[u].z), "=r"(v[u].w)
                     : "l"(from + i + u * step));
    }
    UNROLL for (int u = 0; u < LOADS; u++) seen ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (seen == 0x9E3779B9u) *never = seen;  // so that the loads are not removed
}
