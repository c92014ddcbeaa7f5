// Runs the kernels of digits.cu on the CPU: a block is that many threads, blocks run one after the other.

#include <barrier>
#include <cmath>
#include <thread>
#include <vector>

struct Index {
    unsigned x;
};
static thread_local Index blockIdx, threadIdx;
static Index blockDim, gridDim;
static std::barrier<> *block_barrier;

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static

static inline void __syncthreads() { block_barrier->arrive_and_wait(); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }

#include "../digits.cu"

// Calls body(data) in every thread of the launch.
extern "C" void run_launch(unsigned grid, unsigned block, void (*body)(const void *), const void *data) {
    gridDim.x = grid;
    blockDim.x = block;
    for (unsigned b = 0; b < grid; b++) {
        std::barrier<> barrier(block);
        block_barrier = &barrier;
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < block; t++)
            threads.emplace_back([=, &barrier] {
                blockIdx.x = b;
                threadIdx.x = t;
                body(data);
                // A thread that has returned no longer counts for the others, as on a GPU.
                barrier.arrive_and_drop();
            });
        for (auto &thread : threads) thread.join();
    }
}
