// Activations in the order in which products of warpgroups (warpgroup.cu) read them.
//
// For each group of 64 columns TOKENS rows of 128 bytes, absent ones zero. The sixteen columns of
// product m stand side by side in the order of its A operand (see fragment_order.py): place
// 16 m + 8 e + 2 j + p holds column 32 c + 8 j + 4 m0 + 2 e + p. The eight pieces of 16 bytes of a
// row stand where the tensor core's 128-byte swizzle looks for them.
//
// Compile-time: TOKENS.
#include "machine.cuh"

extern "C" __global__ void __launch_bounds__(256)
    arrange_activations(const u16* x, u8* image, int x_stride, int tokens, int columns, int groups) {
  start_next_kernel();
  wait_for_kernel_before();
  const int at = blockIdx.x * 256 + threadIdx.x;
  const int chunk = at & 7, token = at / 8 % TOKENS, group = at / 8 / TOKENS;
  if (group >= groups) return;
  const int column = group * 64 + chunk * 8;
  uint4 v = make_uint4(0, 0, 0, 0);
  if (token < tokens && column < columns) v = global_u4(x + (size_t)token * x_stride + column);
  u8* row = image + ((size_t)group * TOKENS + token) * 128 + (chunk & 3) * 4;
  const u32 words[4] = {v.x, v.y, v.z, v.w};
  // Word 2 m0 + e of chunk 4 c + j is place j of piece 4 c + 2 m0 + e.
  UNROLL for (int i = 0; i < 4; i++)
    *(u32*)(row + (((chunk & 4) + i) ^ (token & 7)) * 16) = words[i];
}
