// The weighted ridge regressions of all rows of a log; one warp for each piece of a row.
//
// N factors fill T tiles of eight columns, D = 8 T. Of every eight cells, the lane
// (g, t) = (lane / 4, lane % 4) holds column g of all tiles of the cells t and t + 4. These are
// the fragments that the tensor cores take for x' and for x, so a Gram matrix is added up without
// shared memory. Float32 is split into two tf32 parts, and three of their four products are added:
// about 22 bits. Columns are numbered so that a lane reads up to four neighbours at once; see
// column_of.
//
// Factors and offset are solved separately. With L L' = sum w x x' + ridge, y1 = L^-1 sum w x t and
// y2 = L^-1 sum w x, the offset is a = (sum w t - y1.y2) / (sum w + ridge_a - y2.y2), and the
// factors are L'^-1 (y1 - a y2). HAS_OFFSET is 0 or 1.

extern "C" {

#define N N_FACTORS
#define T N_TILES
#define D (8 * T)
#define M ((T + 1) / 2)
#define TILES (M * (T - M + 1))
#define CHUNK (T % 4 == 0 ? 4 : T % 2 == 0 ? 2 : 1)
#define SLOTS ((D + 31) / 32)
#define STRIDE (D + 1)
#define PANEL 12
#define SUMS (32 * (4 * TILES + 2 * T + 3))
#define ALL 0xffffffffu

struct Sums {
    float gram[TILES][4];
    float xt[T], xw[T];
    float ww, wt, tt;
};

struct Cell {
    int opposite;
    float weight, rating;
};

struct Memory {
    float system[D * STRIDE];
    float panel[D * PANEL];
};

__device__ __forceinline__ int column_of(int tile, int g) {
    return tile / CHUNK * 8 * CHUNK + g * CHUNK + tile % CHUNK;
}

__device__ __forceinline__ float sum_of_warp(float value) {
    for (int far = 16; far; far /= 2) value += __shfl_xor_sync(ALL, value, far);
    return value;
}

__device__ __forceinline__ float sum_of_quad(float value) {
    value += __shfl_xor_sync(ALL, value, 1);
    return value + __shfl_xor_sync(ALL, value, 2);
}

__device__ __forceinline__ unsigned as_tf32(float value) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ void multiply_add(float* sum, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The cell of this lane among 32 cells; a cell of weight 0 after the end.
__device__ __forceinline__ Cell read_cell(long long first, long long end, const int* opposite,
                                          const float* root_weight, const float* rating) {
    long long cell = first + (threadIdx.x & 31);
    bool inside = cell < end;
    return {inside ? opposite[cell] : 0, inside ? root_weight[cell] : 0.0f,
            inside ? rating[cell] : 0.0f};
}

// The opposite factor rows of the eight cells from first on, in the layout of the fragments.
__device__ __forceinline__ void read_rows(int opposite, int first, const float* factors,
                                          float x[2][T]) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        long long row = __shfl_sync(ALL, opposite, first + lane % 4 + 4 * h);
        const float* from = factors + row * D + lane / 4 * CHUNK;
#pragma unroll
        for (int tile = 0; tile < T; tile += CHUNK) {
            if (CHUNK == 4) {
                float4 four = __ldg((const float4*)(from + tile * 8));
                x[h][tile] = four.x, x[h][tile + 1 < T ? tile + 1 : 0] = four.y;
                x[h][tile + 2 < T ? tile + 2 : 0] = four.z;
                x[h][tile + 3 < T ? tile + 3 : 0] = four.w;
            } else if (CHUNK == 2) {
                float2 two = __ldg((const float2*)(from + tile * 8));
                x[h][tile] = two.x, x[h][tile + 1 < T ? tile + 1 : 0] = two.y;
            } else {
                x[h][tile] = __ldg(from + tile * 8);
            }
        }
    }
}

// sums += w [x, t, 1]' [x, t, 1] over eight cells. Of the Gram matrix, only the tiles on and above
// the diagonal are added up.
__device__ __forceinline__ void add_cells(Sums& sums, float weight, float target, int first,
                                          const float x[2][T]) {
    unsigned large[2 * M][2], small[2 * M][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        int from = first + (threadIdx.x & 3) + 4 * h;
        float w = __shfl_sync(ALL, weight, from), t = w * __shfl_sync(ALL, target, from);
        sums.tt += t * t;
        if (HAS_OFFSET) sums.ww += w * w, sums.wt += w * t;
#pragma unroll
        for (int tile = 0; tile < 2 * M; ++tile) {
            float value = tile < T ? w * x[h][tile < T ? tile : 0] : 0.0f;
            if (tile < T) {
                sums.xt[tile < T ? tile : 0] += value * t;
                if (HAS_OFFSET) sums.xw[tile < T ? tile : 0] += value * w;
            }
            large[tile][h] = as_tf32(value);
            small[tile][h] = as_tf32(value - __uint_as_float(large[tile][h]));
        }
    }
    int index = 0;
#pragma unroll
    for (int i = 0; i < M; ++i) {
        unsigned big[4] = {large[2 * i][0], large[2 * i + 1][0],
                           large[2 * i][1], large[2 * i + 1][1]};
        unsigned rest[4] = {small[2 * i][0], small[2 * i + 1][0],
                            small[2 * i][1], small[2 * i + 1][1]};
#pragma unroll
        for (int n = 2 * i; n < T; ++n, ++index) {
            multiply_add(sums.gram[index], rest, large[n]);
            multiply_add(sums.gram[index], big, small[n]);
            multiply_add(sums.gram[index], big, large[n]);
        }
    }
}

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
    for (int index = 0; index < TILES; ++index) {
        float* gram = sums.gram[index];
        gram[0] = gram[1] = gram[2] = gram[3] = 0.0f;
    }
#pragma unroll
    for (int tile = 0; tile < T; ++tile) sums.xt[tile] = sums.xw[tile] = 0.0f;
    sums.ww = sums.wt = sums.tt = 0.0f;
}

// Writes the sums of a piece of a long row, in the order in which the lanes hold them.
__device__ __forceinline__ void write_sums(const Sums& sums, float* slot_sums) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int index = 0; index < TILES; ++index) {
        const float* gram = sums.gram[index];
        ((float4*)slot_sums)[index * 32 + lane] = make_float4(gram[0], gram[1], gram[2], gram[3]);
    }
    slot_sums += TILES * 128 + lane;
#pragma unroll
    for (int tile = 0; tile < T; ++tile)
        slot_sums[tile * 32] = sums.xt[tile], slot_sums[(T + tile) * 32] = sums.xw[tile];
    slot_sums[2 * T * 32] = sums.ww;
    slot_sums[(2 * T + 1) * 32] = sums.wt;
    slot_sums[(2 * T + 2) * 32] = sums.tt;
}

__device__ __forceinline__ void add_sums(Sums& sums, const float* slot_sums) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int index = 0; index < TILES; ++index) {
        float4 four = ((const float4*)slot_sums)[index * 32 + lane];
        float* gram = sums.gram[index];
        gram[0] += four.x, gram[1] += four.y, gram[2] += four.z, gram[3] += four.w;
    }
    slot_sums += TILES * 128 + lane;
#pragma unroll
    for (int tile = 0; tile < T; ++tile)
        sums.xt[tile] += slot_sums[tile * 32], sums.xw[tile] += slot_sums[(T + tile) * 32];
    sums.ww += slot_sums[2 * T * 32];
    sums.wt += slot_sums[(2 * T + 1) * 32];
    sums.tt += slot_sums[(2 * T + 2) * 32];
}

__device__ __forceinline__ void put(Memory& memory, int row, int column, float value) {
    memory.system[row * STRIDE + column] = memory.system[column * STRIDE + row] = value;
}

// Writes the normal matrix in the order of the factors, with 1 on the diagonal of padding columns.
__device__ __forceinline__ void lay_out(Sums& sums, float ridge, Memory& memory) {
    int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4, index = 0;
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
        for (int n = 2 * i; n < T; ++n, ++index) {
            put(memory, column_of(2 * i, g), column_of(n, 2 * t), sums.gram[index][0]);
            put(memory, column_of(2 * i, g), column_of(n, 2 * t + 1), sums.gram[index][1]);
            if (2 * i + 1 < T) {
                put(memory, column_of(2 * i + 1, g), column_of(n, 2 * t), sums.gram[index][2]);
                put(memory, column_of(2 * i + 1, g), column_of(n, 2 * t + 1), sums.gram[index][3]);
            }
        }
#pragma unroll
    for (int tile = 0; tile < T; ++tile) {
        float xt = sum_of_quad(sums.xt[tile]);
        float xw = HAS_OFFSET ? sum_of_quad(sums.xw[tile]) : 0.0f;
        int column = column_of(tile, g);
        if (t == 0) memory.panel[column] = xt, memory.panel[D + column] = xw;
    }
    sums.ww = sum_of_quad(sums.ww);
    sums.wt = sum_of_quad(sums.wt);
    sums.tt = sum_of_quad(sums.tt);
    __syncwarp();
    for (int row = lane; row < D; row += 32)
        memory.system[row * STRIDE + row] += row < N ? ridge : 1.0f;
    __syncwarp();
}

// Replaces the system by its Cholesky factor L, eight columns at a time, and both right-hand sides
// y by L^-1 y. A lane owns every 32nd row.
__device__ __forceinline__ void factor(Memory& memory, float y1[SLOTS], float y2[SLOTS],
                                       float inverse[SLOTS]) {
    int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int first = 0; first < D; first += 8) {
        float p[SLOTS][8];
        bool upper_half = SLOTS > 1 && first >= 32;
#pragma unroll
        for (int s = 0; s < SLOTS; ++s)
#pragma unroll
            for (int q = 0; q < 8; ++q) {
                int row = lane + 32 * s;
                p[s][q] = row < D ? memory.system[row * STRIDE + first + q] : 0.0f;
            }
#pragma unroll
        for (int q = 0; q < 8; ++q) {
            int owner = (first + q) & 31;
            float pivot = __shfl_sync(ALL, upper_half ? p[SLOTS - 1][q] : p[0][q], owner);
            // The pivot is 0 in a row without cells and without penalty.
            float inv = rsqrtf(pivot == 0.0f ? 1.0f : pivot);
            float one = __shfl_sync(ALL, upper_half ? y1[SLOTS - 1] : y1[0], owner) * inv;
            float two = 0.0f;
            if (HAS_OFFSET) two = __shfl_sync(ALL, upper_half ? y2[SLOTS - 1] : y2[0], owner) * inv;
#pragma unroll
            for (int s = 0; s < SLOTS; ++s) {
                int row = lane + 32 * s;
                p[s][q] *= inv;
                if (row == first + q) inverse[s] = inv, y1[s] = one, y2[s] = two;
                if (row > first + q) {
                    y1[s] -= p[s][q] * one;
                    if (HAS_OFFSET) y2[s] -= p[s][q] * two;
                }
            }
#pragma unroll
            for (int next = q + 1; next < 8; ++next) {
                float value = upper_half ? p[SLOTS - 1][q] : p[0][q];
                float by = __shfl_sync(ALL, value, (first + next) & 31);
#pragma unroll
                for (int s = 0; s < SLOTS; ++s) p[s][next] -= p[s][q] * by;
            }
        }
        __syncwarp();
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            int row = lane + 32 * s;
            if (row < D) {
                float4* to = (float4*)(memory.panel + row * PANEL);
                to[0] = make_float4(p[s][0], p[s][1], p[s][2], p[s][3]);
                to[1] = make_float4(p[s][4], p[s][5], p[s][6], p[s][7]);
#pragma unroll
                for (int q = 0; q < 8; ++q) memory.system[row * STRIDE + first + q] = p[s][q];
            }
        }
        __syncwarp();
#pragma unroll 4
        for (int column = first + 8; column < D; ++column) {
            const float4* of = (const float4*)(memory.panel + column * PANEL);
            float4 low = of[0], high = of[1];
#pragma unroll
            for (int s = 0; s < SLOTS; ++s) {
                int row = lane + 32 * s;
                if ((SLOTS > 1 && s == 0 && column >= 32) || row >= D) continue;
                float* entry = memory.system + row * STRIDE + column;
                const float* q = p[s];
                float left = q[0] * low.x + q[1] * low.y + q[2] * low.z + q[3] * low.w;
                float right = q[4] * high.x + q[5] * high.y + q[6] * high.z + q[7] * high.w;
                *entry -= left + right;
            }
        }
    }
}

__device__ __forceinline__ void solve(Sums& sums, Memory& memory, long long row, float* factors,
                                      float* offset, float* minima, float ridge,
                                      float ridge_offset) {
    int lane = threadIdx.x & 31;
    lay_out(sums, ridge, memory);
    float y1[SLOTS], y2[SLOTS], inverse[SLOTS], y11 = 0.0f, y12 = 0.0f, y22 = 0.0f;
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
        int index = lane + 32 * s;
        y1[s] = index < D ? memory.panel[index] : 0.0f;
        y2[s] = index < D ? memory.panel[D + index] : 0.0f;
        inverse[s] = 1.0f;
    }
    factor(memory, y1, y2, inverse);
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
        y11 += y1[s] * y1[s];
        y12 += y1[s] * y2[s];
        y22 += y2[s] * y2[s];
    }
    float minimum = sums.tt - sum_of_warp(y11);
    if (HAS_OFFSET) {
        float right = sums.wt - sum_of_warp(y12), left = sums.ww + ridge_offset - sum_of_warp(y22);
        float best = sums.ww > 0.0f ? right / left : 0.0f;
        minimum -= right * best;
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) y1[s] -= best * y2[s];
        if (lane == 0) offset[row] = best;
    }
#pragma unroll 4
    for (int k = D - 1; k >= 0; --k) {
        float mine = SLOTS > 1 && k >= 32 ? y1[SLOTS - 1] * inverse[SLOTS - 1] : y1[0] * inverse[0];
        float solved = __shfl_sync(ALL, mine, k & 31);
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            int index = lane + 32 * s;
            if (index < k) y1[s] -= memory.system[k * STRIDE + index] * solved;
            if (index == k) y1[s] = solved;
        }
    }
#pragma unroll
    for (int s = 0; s < SLOTS; ++s)
        if (lane + 32 * s < N) factors[row * N + lane + 32 * s] = y1[s];
    if (lane == 0) minima[row] = minimum;
    __syncwarp();
}

// One warp adds up one piece, and solves for its row if the row has no other piece.
__global__ void __launch_bounds__(32 * N_WARPS)
solve_pieces(const long long* piece_row, const long long* piece_first, const long long* piece_end,
             const long long* piece_slot, const int* opposite, const float* root_weight,
             const float* rating, const float* factors, const float* offset, int constant_bits,
             float* long_sums, float* out, float* out_offset, float* minima, int ridge_bits,
             int ridge_offset_bits, int n_pieces) {
    __shared__ __align__(16) Memory memory[N_WARPS];
    long long piece = (long long)blockIdx.x * N_WARPS + threadIdx.x / 32;
    if (piece >= n_pieces) return;
    long long first = piece_first[piece], end = piece_end[piece], slot = piece_slot[piece];
    float constant = __int_as_float(constant_bits);
    Sums sums;
    clear(sums);
    if (first < end) {
        Cell now = read_cell(first, end, opposite, root_weight, rating);
        Cell next = read_cell(first + 32, end, opposite, root_weight, rating);
        float cell_constant = constant + (HAS_OFFSET ? __ldg(offset + now.opposite) : 0.0f);
        float x[2][T];
        read_rows(now.opposite, 0, factors, x);
#pragma unroll 1
        for (long long start = first; start < end; start += 32) {
            float next_constant = constant + (HAS_OFFSET ? __ldg(offset + next.opposite) : 0.0f);
            Cell after = read_cell(start + 64, end, opposite, root_weight, rating);
#pragma unroll
            for (int eighth = 0; eighth < 32; eighth += 8) {
                if (start + eighth >= end) break;
                float ahead[2][T];
                int from = eighth < 24 ? now.opposite : next.opposite;
                read_rows(from, (eighth + 8) % 32, factors, ahead);
                add_cells(sums, now.weight, now.rating - cell_constant, eighth, x);
#pragma unroll
                for (int tile = 0; tile < T; ++tile)
                    x[0][tile] = ahead[0][tile], x[1][tile] = ahead[1][tile];
            }
            now = next, next = after, cell_constant = next_constant;
        }
    }
    if (slot < 0)
        solve(sums, memory[threadIdx.x / 32], piece_row[piece], out, out_offset, minima,
              __int_as_float(ridge_bits), __int_as_float(ridge_offset_bits));
    else
        write_sums(sums, long_sums + slot * SUMS);
}

// One warp adds the sums of the pieces of a long row, in order, and solves for the row.
__global__ void __launch_bounds__(32 * N_WARPS)
solve_long_rows(const long long* long_row, const long long* long_start, const float* long_sums,
                float* out, float* out_offset, float* minima, int ridge_bits,
                int ridge_offset_bits, int n_rows) {
    __shared__ __align__(16) Memory memory[N_WARPS];
    long long index = (long long)blockIdx.x * N_WARPS + threadIdx.x / 32;
    if (index >= n_rows) return;
    Sums sums;
    clear(sums);
    for (long long slot = long_start[index]; slot < long_start[index + 1]; ++slot)
        add_sums(sums, long_sums + slot * SUMS);
    solve(sums, memory[threadIdx.x / 32], long_row[index], out, out_offset, minima,
          __int_as_float(ridge_bits), __int_as_float(ridge_offset_bits));
}

}
