// A kernel of ninfer/ops/moe/cuda as a function of a shared library. -DSOURCE=... and -DROUTER,
// -DGATE_UP or -DDOWN
#include "machine.cuh"
u8 memory[1];
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#include TEXT(SOURCE)

struct Buffer { const u8* data; size_t bytes; };

// Parameters as the launcher gives them: addresses, then integers.
extern "C" void run(int grid, int threads, int shared, u64 seed, Buffer* buffers, int count, void** p, const int* n) {
  machine.buffers.clear();
  for (int i = 0; i < count; i++) machine.buffers.push_back({buffers[i].data, buffers[i].bytes});
  run_grid(grid, threads, shared, 1, seed, [=] {
#ifdef ROUTER
    moe_router((u16*)p[0], (u16*)p[1], (float*)p[2], (u32*)p[3], (float*)p[4], (long long*)p[5], (float*)p[6], n[0], n[1],
               n[2], n[3], n[4]);
#elif defined GATE_UP
    moe_gate_up((u8*)p[0], (u8*)p[1], (u16*)p[2], (u32*)p[3], (u16*)p[4], (u16*)p[5], n[0], n[1], n[2], n[3], n[4], n[5],
                n[6]);
#elif defined DOWN
    moe_down((u8*)p[0], (u8*)p[1], (u16*)p[2], (u16*)p[3], (u32*)p[4], (u32*)p[5], (u32*)p[6], (u16*)p[7], n[0], n[1], n[2],
             n[3]);
#endif
  });
}
