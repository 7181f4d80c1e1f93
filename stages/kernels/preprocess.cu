// Pictures of any size to the rows of a model: resize (bilinear, half-pixel centres, no antialiasing), normalise, HWC to CHW, one launch.
//
// One thread writes one pixel of every channel; blockIdx.z is the row of the batch. The same text is compiled by NVRTC for a GPU and by
// g++ for the tests. All results are to be the same bits as those of the numpy twin (stages/resize.py): positions are exact
// integers, every float operation is rounded by itself (compile with --fmad=false, -ffp-contract=off), and halves are rounded here.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

// One axis of one pixel: its two neighbours, and how much of the second one.
struct Axis {
    int first, second;
    float weight;
};

// Output pixel `at` of `out_size` lies at ((2 at + 1) in_size - out_size) / (2 out_size) of the input. The host refuses sizes
// whose product reaches 2^30, so that 32 bits hold the numerator.
__device__ static Axis place(int at, int in_size, int out_size) {
    int numerator = (2 * at + 1) * in_size - out_size, denominator = 2 * out_size;
    int last = in_size - 1;
    if (numerator < 0) numerator = 0;
    Axis axis;
    axis.first = numerator / denominator;
    if (axis.first >= last) {
        axis.first = axis.second = last;
        axis.weight = 0.0f;
        return axis;
    }
    axis.second = axis.first + 1;
    axis.weight = (float)(numerator - axis.first * denominator) / (float)denominator;
    return axis;
}

// IEEE 754 binary16 of a float, rounded to nearest even; what is too large becomes infinity, NaN stays NaN.
__device__ static u16 half_bits(float value) {
    union { float number; u32 bits; } in;
    in.number = value;
    u32 sign = (in.bits >> 16) & 0x8000u, magnitude = in.bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (u16)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (u16)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) {
        u32 rebased = magnitude - 0x38000000u;
        return (u16)(sign | ((rebased + 0x0fffu + ((rebased >> 13) & 1u)) >> 13));
    }
    if (magnitude < 0x33000000u) return (u16)sign;
    u32 shift = 126u - (magnitude >> 23), mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    u32 kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u), middle = 1u << (shift - 1u);
    return (u16)(sign | (kept + (rest > middle || (rest == middle && (kept & 1u)) ? 1u : 0u)));
}

__device__ static void store(float* to, float value) { *to = value; }
__device__ static void store(u16* to, float value) { *to = half_bits(value); }

// sources[n]: address of a picture's first byte. dims[n][3]: height, width, bytes from one line to the next; height 0 is a padding
// row, written as zeros. out: (n, CHANNELS, out_height, out_width).
template <int CHANNELS, typename Number>
__device__ static void resize(const unsigned long long* sources, const int* dims, Number* out, int out_height, int out_width,
                              const float* mean, const float* scale) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, row = blockIdx.z;
    if (x >= out_width || y >= out_height) return;
    int height = dims[3 * row], width = dims[3 * row + 1];
    long long pitch = dims[3 * row + 2], plane = (long long)out_height * out_width;
    Number* to = out + row * CHANNELS * plane + (long long)y * out_width + x;
    if (height <= 0) {
        for (int c = 0; c < CHANNELS; ++c) store(to + c * plane, 0.0f);
        return;
    }
    Axis v = place(y, height, out_height), h = place(x, width, out_width);
    const u8* picture = (const u8*)sources[row];
    const u8 *upper = picture + v.first * pitch, *lower = picture + v.second * pitch;
    int left = h.first * CHANNELS, right = h.second * CHANNELS;
    for (int c = 0; c < CHANNELS; ++c) {
        float a = upper[left + c], b = upper[right + c], d = lower[left + c], e = lower[right + c];
        float top = a + (b - a) * h.weight, bottom = d + (e - d) * h.weight;
        store(to + c * plane, (top + (bottom - top) * v.weight - mean[c]) * scale[c]);
    }
}

#define KERNEL(NAME, CHANNELS, NUMBER)                                                                                             \
    extern "C" __global__ void NAME(const unsigned long long* sources, const int* dims, NUMBER* out, int out_height, int out_width, \
                                    float mean0, float mean1, float mean2, float scale0, float scale1, float scale2) {             \
        const float mean[3] = {mean0, mean1, mean2}, scale[3] = {scale0, scale1, scale2};                                          \
        resize<CHANNELS, NUMBER>(sources, dims, out, out_height, out_width, mean, scale);                                          \
    }

KERNEL(resize_rgb_fp32, 3, float)
KERNEL(resize_rgb_fp16, 3, u16)
KERNEL(resize_grey_fp32, 1, float)
KERNEL(resize_grey_fp16, 1, u16)
