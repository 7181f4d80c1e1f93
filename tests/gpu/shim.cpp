// The CUDA source as plain C++: every thread of the grid is one turn of a loop. SOURCE is the .cu file, given by the compiler's -D.
#include <cstdint>

struct Dim {
    unsigned x, y, z;
};
static thread_local Dim threadIdx, blockIdx, blockDim;
#define __global__
#define __device__
#include SOURCE

template <typename Kernel>
static void each_thread(const uint32_t grid[3], const uint32_t block[3], Kernel kernel) {
    blockDim = {block[0], block[1], block[2]};
    for (uint32_t z = 0; z < grid[2]; ++z)
        for (uint32_t y = 0; y < grid[1]; ++y)
            for (uint32_t x = 0; x < grid[0]; ++x)
                for (uint32_t ty = 0; ty < block[1]; ++ty)
                    for (uint32_t tx = 0; tx < block[0]; ++tx) {
                        blockIdx = {x, y, z};
                        threadIdx = {tx, ty, 0};
                        kernel();
                    }
}

#define RUN(NAME, NUMBER)                                                                                                  \
    extern "C" void run_##NAME(const uint32_t* grid, const uint32_t* block, const unsigned long long* sources, const int* dims, \
                               void* out, int height, int width, const float* mean, const float* scale) {                  \
        each_thread(grid, block, [=] {                                                                                     \
            NAME(sources, dims, static_cast<NUMBER*>(out), height, width, mean[0], mean[1], mean[2], scale[0], scale[1],   \
                 scale[2]);                                                                                                \
        });                                                                                                                \
    }

RUN(resize_rgb_fp32, float)
RUN(resize_rgb_fp16, unsigned short)
RUN(resize_grey_fp32, float)
RUN(resize_grey_fp16, unsigned short)
extern "C" unsigned short run_half_bits(float value) { return half_bits(value); }
