// Compiled once for each dtype, with three definitions before it (see source() in kernels.py):
//   STORED  the C type of an element in memory: float, unsigned short, ...
//   KIND    how elements are computed with: Single, Half, Brain (bfloat16), Double or Integer
//   WORDS   how many words a launch's table has
// It includes no header, because CuPy's wheel has none of CUDA's.
enum { ADD, SUB, MUL, DIV, MIN, MAX, UPDATE };  // OPERATIONS in kernels.py

#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
#define PARAMETER __grid_constant__
// Inline PTX: the compiler is told to flush subnormal numbers, and leaves these instructions alone.
#define ROUNDED(name, instruction) DEVICE float name(float a, float b) { \
    float r; asm(instruction " %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
ROUNDED(add_f, "add.rn.f32")
ROUNDED(sub_f, "sub.rn.f32")
ROUNDED(mul_f, "mul.rn.f32")
ROUNDED(div_f, "div.rn.f32")
DEVICE float half_up(unsigned short h) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h)); return r; }
DEVICE unsigned short half_down(float f) {
    unsigned short r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(f)); return r; }
DEVICE float of_bits(unsigned int u) { return __uint_as_float(u); }
DEVICE unsigned int bits_of(float f) { return __float_as_uint(f); }
#endif
DEVICE bool nan_f(float f) { return (bits_of(f) & 0x7fffffffu) > 0x7f800000u; }
// Orders floats by their bits, because a comparison flushes subnormal numbers too.
DEVICE int rank_f(float f) { int u = (int)bits_of(f); return u < 0 ? (int)0x80000000 - u : u; }

struct Single {
    typedef float Wide;
    DEVICE float up(float x) { return x; }
    DEVICE float down(float x) { return x; }
};
struct Half {
    typedef float Wide;
    DEVICE float up(unsigned short x) { return half_up(x); }
    DEVICE unsigned short down(float x) { return half_down(x); }
};
struct Brain {
    typedef float Wide;
    DEVICE float up(unsigned short x) { return of_bits((unsigned int)x << 16); }
    DEVICE unsigned short down(float x) {
        unsigned int u = bits_of(x);
        if (nan_f(x)) return (unsigned short)(u >> 16) | 0x40;
        return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
};
struct Double {
    typedef double Wide;
    DEVICE double up(double x) { return x; }
    DEVICE double down(double x) { return x; }
};
struct Integer {
    typedef STORED Wide;
    DEVICE STORED up(STORED x) { return x; }
    DEVICE STORED down(STORED x) { return x; }
};

DEVICE float compute(int op, float a, float b) {
    switch (op) {
        case ADD: return add_f(a, b);
        case SUB: return sub_f(a, b);
        case MUL: return mul_f(a, b);
        case DIV: return div_f(a, b);
        case MIN: return nan_f(a) || (!nan_f(b) && rank_f(a) < rank_f(b)) ? a : b;
        case MAX: return nan_f(a) || (!nan_f(b) && rank_f(a) > rank_f(b)) ? a : b;
    }
    return b;
}
DEVICE double compute(int op, double a, double b) {
    switch (op) {
        case ADD: return a + b;
        case SUB: return a - b;
        case MUL: return a * b;
        case DIV: return a / b;
        case MIN: return a != a || a < b ? a : b;
        case MAX: return a != a || a > b ? a : b;
    }
    return b;
}
// Wraps around as NumPy's integers do; signed numbers may not overflow in C.
template <typename T> DEVICE T compute(int op, T a, T b) {
    switch (op) {
        case ADD: return (T)((unsigned long long)a + (unsigned long long)b);
        case SUB: return (T)((unsigned long long)a - (unsigned long long)b);
        case MUL: return (T)((unsigned long long)a * (unsigned long long)b);
        case DIV: return (T)-1 < (T)0 && b == (T)-1 ? (T)(0ull - (unsigned long long)a) : a / b;
        case MIN: return a < b ? a : b;
        case MAX: return a > b ? a : b;
    }
    return b;
}
DEVICE STORED apply(int op, STORED a, STORED b) { return KIND::down(compute(op, KIND::up(a), KIND::up(b))); }

struct Table { unsigned long long word[WORDS]; };
struct alignas(16) Lanes { STORED lane[16 / sizeof(STORED)]; };

// One job per row of the grid.  In the table: length, address of the result, addresses of k arrays.  The result may be
// the first array.
template <int OP> DEVICE void combine_by(const Table& table, int k, int aligned) {
    const int job = blockIdx.y * (k + 2);
    const long long length = (long long)table.word[job];
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long step = (long long)gridDim.x * blockDim.x;
    const int lanes = 16 / sizeof(STORED);
    const long long wide = aligned ? length / lanes : 0;
    for (long long i = first; i < wide; i += step) {
        Lanes total = ((const Lanes*)table.word[job + 2])[i];
        #pragma unroll 8
        for (int j = 1; j < k; ++j) {
            const Lanes next = ((const Lanes*)table.word[job + 2 + j])[i];
            #pragma unroll
            for (int l = 0; l < lanes; ++l) total.lane[l] = apply(OP, total.lane[l], next.lane[l]);
        }
        ((Lanes*)table.word[job + 1])[i] = total;
    }
    for (long long i = wide * lanes + first; i < length; i += step) {
        STORED total = ((const STORED*)table.word[job + 2])[i];
        for (int j = 1; j < k; ++j) total = apply(OP, total, ((const STORED*)table.word[job + 2 + j])[i]);
        ((STORED*)table.word[job + 1])[i] = total;
    }
}
extern "C" __global__ void combine(const PARAMETER Table table, int k, int op, int aligned) {
    if (op == ADD) combine_by<ADD>(table, k, aligned);
    else combine_by<SUB>(table, k, aligned);
}

// The divisor is exact in the dtype.  Parts of complex numbers are multiplied by its reciprocal, as in NumPy.
extern "C" __global__ void divide(STORED* result, const STORED* array, long long length, double divisor, int parts) {
    const KIND::Wide by = parts ? compute(DIV, (KIND::Wide)1, (KIND::Wide)divisor) : (KIND::Wide)divisor;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < length; i += step)
        result[i] = KIND::down(compute(parts ? MUL : DIV, KIND::up(array[i]), by));
}

// `rows` is sorted; entry i changes row rows[i] by row order[i] of `values`, equal rows in the order of the indices.
// The first entry of a row does what all of them do, element by element.
extern "C" __global__ void scatter(STORED* array, const STORED* values, const long long* rows, const long long* order,
                                   long long count, long long width, int op) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count * width; i += step) {
        const long long entry = i / width, column = i % width, row = rows[entry];
        if (entry > 0 && rows[entry - 1] == row) continue;
        STORED total = array[row * width + column];
        for (long long next = entry; next < count && rows[next] == row; ++next)
            total = op == UPDATE ? values[order[next] * width + column]
                            : apply(op, total, values[order[next] * width + column]);
        array[row * width + column] = total;
    }
}
