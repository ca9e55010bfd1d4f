// A kernel of ninfer/ops/linear/cuda as a function of a shared library. -DSOURCE=... and -DSTREAM,
// -DWIDE, -DWARPGROUP or -DARRANGE
#include "machine.cuh"
u8 memory[1];
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#include TEXT(SOURCE)

struct Buffer { const u8* data; size_t bytes; };

#ifdef WIDE
extern "C" void run(int grid, int threads, int shared, int cluster, u64 seed, Buffer* buffers, int count,
                    const u8* weights, const u16* x, u16* y, const u16* residual, u8* partial, u32* arrivals,
                    int stride, int tokens, int rows, int columns, int tiles, int slices, int slice_groups, int groups,
                    int length, int paired, int gated) {
  machine.buffers.clear();
  for (int i = 0; i < count; i++) machine.buffers.push_back({buffers[i].data, buffers[i].bytes});
  run_grid(grid, threads, shared, cluster, seed, [=] {
    linear_wide(weights, x, y, residual, partial, arrivals, stride, tokens, rows, columns, tiles, slices, slice_groups, groups,
                length, paired, gated);
  });
}
#elif defined STREAM
extern "C" void run(int grid, int threads, int shared, int cluster, u64 seed, Buffer* buffers, int count,
                    const u8* weights, const u16* x, u16* y, const u16* residual, float* partial, u32* arrivals,
                    int stride, int tokens, int rows, int columns, int tiles, int tiles_per_block,
                    int clustered, int paired, int gated) {
  machine.buffers.clear();
  for (int i = 0; i < count; i++) machine.buffers.push_back({buffers[i].data, buffers[i].bytes});
  run_grid(grid, threads, shared, cluster, seed, [=] {
    linear_stream(weights, x, y, residual, partial, arrivals, stride, tokens, rows, columns, tiles, tiles_per_block,
                  clustered, paired, gated);
  });
}
#elif defined WARPGROUP
extern "C" void run(int grid, int threads, int shared, int cluster, u64 seed, Buffer* buffers, int count,
                    const u8* weights, const u8* image, u16* y, const u16* residual, u8* partial, u32* arrivals,
                    int tokens, int rows, int tiles, int slices, int slice_groups, int units, int length, int paired,
                    int gated) {
  machine.buffers.clear();
  for (int i = 0; i < count; i++) machine.buffers.push_back({buffers[i].data, buffers[i].bytes});
  run_grid(grid, threads, shared, cluster, seed, [=] {
    linear_warpgroup(weights, image, y, residual, partial, arrivals, tokens, rows, tiles, slices, slice_groups, units,
                     length, paired, gated);
  });
}
#elif defined ARRANGE
extern "C" void run(int grid, int threads, Buffer x, u8* image, int stride, int tokens, int columns, int groups) {
  machine.buffers = {{x.data, x.bytes}};
  run_grid(grid, threads, 0, 1, 1, [=] { arrange_activations((const u16*)x.data, image, stride, tokens, columns, groups); });
}
#endif
