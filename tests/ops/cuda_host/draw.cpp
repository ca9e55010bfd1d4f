// The kernel of ninfer/ops/sampling/cuda as a function of a shared library. -DSOURCE=...
#include "machine.cuh"
u8 memory[1];
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#include TEXT(SOURCE)

// Parameters as the launcher gives them: addresses, then integers.
extern "C" void run(int grid, int threads, int shared, int cluster, u64 seed, void** p, const int* n) {
  machine.buffers.clear();
  run_grid(grid, threads, shared, cluster, seed, [=] {
    draw_tokens((u8*)p[0], (double*)p[1], (long long*)p[2], (double*)p[3], (double*)p[4], (double*)p[5], (long long*)p[6],
                (long long*)p[7], (long long*)p[8], (long long*)p[9], (float*)p[10], (float*)p[11], (float*)p[12],
                (float*)p[13], (int*)p[14], (long long*)p[15], (long long*)p[16], (u32*)p[17], (long long*)p[18],
                (long long*)p[19], n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
  });
}
