// A kernel of ninfer/ops/linear/cuda as a function of a shared library. -DSOURCE=... -DWIDE=0 or 1
#include "machine.cuh"
u8 memory[1];
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#include TEXT(SOURCE)

struct Buffer { const u8* data; size_t bytes; };

#if WIDE
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
#else
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
#endif
