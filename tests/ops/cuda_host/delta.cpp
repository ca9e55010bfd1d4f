// delta_rows of ninfer/ops/delta_net/cuda as a function of a library.
#include "machine.cuh"
u8 memory[1];
#include "rows.cu"

struct Buffer { const u8* data; size_t bytes; };

extern "C" void run(int grid, int threads, int shared, int cluster, u64 seed, Buffer* buffers, int count, void** a,
                    const int* n) {
  machine.buffers.clear();
  cluster_turns.clear();
  for (int i = 0; i < count; i++) machine.buffers.push_back({buffers[i].data, buffers[i].bytes});
  run_grid(grid, threads, shared, cluster, seed, [=] {
    delta_rows((u16*)a[0], (u16*)a[1], (u16*)a[2], (u16*)a[3], (u16*)a[4], (u16*)a[5], (u16*)a[6], (u16*)a[7], (float*)a[8],
               (float*)a[9], (u16*)a[10], (u16*)a[11], (u16*)a[12], (u8*)a[13], (u16*)a[14], (u16*)a[15], (float*)a[16],
               (float*)a[17], (u32*)a[18], (s64*)a[19], (s64*)a[20], (s64*)a[21], (s64*)a[22], (u8*)a[23], n[0], n[1], n[2],
               n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]);
  });
}
