// attend_splits or join_splits (-DJOIN) of ninfer/ops/attention/cuda as a function of a library.
#include "machine.cuh"
u8 memory[1];
#ifdef JOIN
#include "join.cu"
#else
#include "attend.cu"
#endif

struct Buffer { const u8* data; size_t bytes; };

extern "C" void run(int grid, int threads, int shared, u64 seed, Buffer* buffers, int count, void** at,
                    const int* n) {
  machine.buffers.clear();
  for (int i = 0; i < count; i++) machine.buffers.push_back({buffers[i].data, buffers[i].bytes});
  run_grid(grid, threads, shared, 1, seed, [=] {
#ifdef JOIN
    join_splits((const float*)at[0], (const float2*)at[1], (const u64*)at[2], (const u64*)at[3],
                (u16*)at[4], n[0], n[1]);
#else
    attend_splits((const u16*)at[0], (const u8*)at[1], (const u8*)at[2], (const u8*)at[3],
                  (const u8*)at[4], (const u64*)at[5], (const u64*)at[6], (const u64*)at[7],
                  (float*)at[8], (float2*)at[9], n[0], n[1], n[2], n[3], n[4], n[5]);
#endif
  });
}
