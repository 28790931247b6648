/* What the operations compute: integers wrap, NaNs that arithmetic makes are 0x7fffffff (H200); no control flow.
 *
 * Each function is one loop over lanes that the compiler vectorises, on x86 for processors with and without AVX2. */
#include "operations.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=haswell", "default")))
#else
#define WIDE
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;

#define UNARY(name, to, of, value)                                                  \
    WIDE static void name(void *result, const void *const *operands, long lanes) { \
        to *restrict r = result;                                                    \
        const of *xs = operands[0];                                                 \
        for (long i = 0; i < lanes; i++) {                                          \
            const of x = xs[i];                                                     \
            r[i] = (to)(value);                                                     \
        }                                                                           \
    }                                                                               \
    static const struct operation name##_entry = {#name, name, 1, sizeof(to), {sizeof(of)}};
#define BINARY(name, to, of, and, value)                                            \
    WIDE static void name(void *result, const void *const *operands, long lanes) { \
        to *restrict r = result;                                                    \
        const of *xs = operands[0];                                                 \
        const and *ys = operands[1];                                                \
        for (long i = 0; i < lanes; i++) {                                          \
            const of x = xs[i];                                                     \
            const and y = ys[i];                                                    \
            r[i] = (to)(value);                                                     \
        }                                                                           \
    }                                                                               \
    static const struct operation name##_entry = {#name, name, 2, sizeof(to), {sizeof(of), sizeof(and)}};
#define TERNARY(name, to, of, and, also, value)                                     \
    WIDE static void name(void *result, const void *const *operands, long lanes) { \
        to *restrict r = result;                                                    \
        const of *xs = operands[0];                                                 \
        const and *ys = operands[1];                                                \
        const also *zs = operands[2];                                               \
        for (long i = 0; i < lanes; i++) {                                          \
            const of x = xs[i];                                                     \
            const and y = ys[i];                                                    \
            const also z = zs[i];                                                   \
            r[i] = (to)(value);                                                     \
        }                                                                           \
    }                                                                               \
    static const struct operation name##_entry = {#name, name, 3, sizeof(to), {sizeof(of), sizeof(and), sizeof(also)}};

static inline u32 bits_of(f32 value) {
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline f32 float_of(u32 bits) {
    f32 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The bits of a result, every NaN the one that arithmetic makes. */
static inline u32 made(f32 value) {
    return value == value ? bits_of(value) : 0x7fffffffu;
}

static inline int is_nan(u32 bits) {
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* float32 bits as integers that are ordered as the numbers are, -0 below +0. */
static inline s32 order(u32 bits) {
    return (s32)bits ^ (s32)((u32)((s32)bits >> 31) & 0x7fffffffu);
}

static inline u32 greatest(u32 a, u32 b) {
    const u32 best = order(a) > order(b) ? a : b;
    const u32 one = is_nan(a) ? b : is_nan(b) ? a : best;
    return is_nan(one) ? 0x7fffffffu : one;
}

static inline u32 least(u32 a, u32 b) {
    const u32 best = order(a) < order(b) ? a : b;
    const u32 one = is_nan(a) ? b : is_nan(b) ? a : best;
    return is_nan(one) ? 0x7fffffffu : one;
}

/* float32 bits to bfloat16 bits, to nearest even. */
static inline u32 nearest_bf16(u32 bits) {
    return is_nan(bits) ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

/* float32 to an integer, toward zero, clamped; NaN becomes zero. */
static inline s32 to_s32(f32 value) {
    return value >= 2147483648.0f ? INT32_MAX : value >= -2147483648.0f ? (s32)value : value == value ? INT32_MIN : 0;
}

static inline u32 to_u32(f32 value) {
    return value >= 4294967296.0f ? UINT32_MAX : value > 0.0f ? (u32)(s64)value : 0;
}

/* Integers of one width, unsigned `u` and signed `s`. */
#define INTEGERS(u, s, bits)                                             \
    BINARY(add_##bits, u, u, u, x + y)                                   \
    BINARY(sub_##bits, u, u, u, x - y)                                   \
    BINARY(mul_##bits, u, u, u, (u64)x * y)                              \
    BINARY(and_##bits, u, u, u, x & y)                                   \
    BINARY(or_##bits, u, u, u, x | y)                                    \
    BINARY(xor_##bits, u, u, u, x ^ y)                                   \
    UNARY(not_##bits, u, u, ~x)                                          \
    UNARY(neg_##bits, u, u, 0 - x)                                       \
    UNARY(abs_s##bits, u, s, x < 0 ? 0 - (u)x : (u)x)                    \
    BINARY(shl_##bits, u, u, u32, y < bits ? x << (y & (bits - 1)) : 0)  \
    BINARY(shr_u##bits, u, u, u32, y < bits ? x >> (y & (bits - 1)) : 0) \
    BINARY(shr_s##bits, u, s, u32, x >> (y < bits ? y : bits - 1))       \
    BINARY(min_u##bits, u, u, u, x < y ? x : y)                          \
    BINARY(max_u##bits, u, u, u, x > y ? x : y)                          \
    BINARY(min_s##bits, u, s, s, x < y ? x : y)                          \
    BINARY(max_s##bits, u, s, s, x > y ? x : y)                          \
    BINARY(eq_##bits, u8, u, u, x == y)                                  \
    BINARY(ne_##bits, u8, u, u, x != y)                                  \
    BINARY(lt_u##bits, u8, u, u, x < y)                                  \
    BINARY(le_u##bits, u8, u, u, x <= y)                                 \
    BINARY(lt_s##bits, u8, s, s, x < y)                                  \
    BINARY(le_s##bits, u8, s, s, x <= y)                                 \
    TERNARY(select_##bits, u, u8, u, u, x ? y : z)
INTEGERS(u16, s16, 16)
INTEGERS(u32, s32, 32)
INTEGERS(u64, s64, 64)

BINARY(and_8, u8, u8, u8, x &y)
BINARY(or_8, u8, u8, u8, x | y)
BINARY(xor_8, u8, u8, u8, x ^ y)
UNARY(not_8, u8, u8, x ^ 1)
TERNARY(select_8, u8, u8, u8, u8, x ? y : z)

UNARY(cut_64_32, u32, u64, x)
UNARY(cut_64_16, u16, u64, x)
UNARY(cut_32_16, u16, u32, x)
UNARY(zero_16_32, u32, u16, x)
UNARY(zero_16_64, u64, u16, x)
UNARY(zero_32_64, u64, u32, x)
UNARY(sign_16_32, u32, s16, x)
UNARY(sign_16_64, u64, s16, x)
UNARY(sign_32_64, u64, s32, x)
UNARY(upper_64, u32, u64, x >> 32)
UNARY(upper_32, u16, u32, x >> 16)
BINARY(join_32, u64, u32, u32, (u64)y << 32 | x)
BINARY(join_16, u32, u16, u16, (u32)y << 16 | x)

BINARY(wide_u32, u64, u32, u32, (u64)x *y)
BINARY(wide_s32, u64, s32, s32, (s64)x *y)
BINARY(wide_u16, u32, u16, u16, (u32)x *y)
BINARY(wide_s16, u32, s16, s16, (s32)x *y)
BINARY(high_u32, u32, u32, u32, (u64)x *y >> 32)
BINARY(high_s32, u32, s32, s32, (u64)((s64)x * y) >> 32)
BINARY(div_u32, u32, u32, u32, y ? x / y : UINT32_MAX)
BINARY(rem_u32, u32, u32, u32, y ? x % y : UINT32_MAX)
BINARY(div_s32, u32, s32, s32, y ? (s64)x / y : -1)
BINARY(rem_s32, u32, s32, s32, y ? (s64)x % y : -1)
UNARY(popc_32, u32, u32, __builtin_popcount(x))
UNARY(popc_64, u32, u64, __builtin_popcountll(x))
UNARY(clz_32, u32, u32, x ? __builtin_clz(x) : 32)
UNARY(clz_64, u32, u64, x ? __builtin_clzll(x) : 64)

BINARY(add_f32, u32, f32, f32, made(x + y))
BINARY(sub_f32, u32, f32, f32, made(x - y))
BINARY(mul_f32, u32, f32, f32, made(x *y))
BINARY(div_f32, u32, f32, f32, made(x / y))
TERNARY(fma_f32, u32, f32, f32, f32, made(fmaf(x, y, z)))
UNARY(sqrt_f32, u32, f32, made(sqrtf(x)))
UNARY(neg_f32, u32, f32, made(-x))
UNARY(abs_f32, u32, f32, made(fabsf(x)))
BINARY(min_f32, u32, u32, u32, least(x, y))
BINARY(max_f32, u32, u32, u32, greatest(x, y))
UNARY(flush_f32, u32, u32, x & 0x7f800000u ? x : x & 0x80000000u)
UNARY(saturate_f32, u32, f32, x > 0.0f ? bits_of(x < 1.0f ? x : 1.0f) : 0)
BINARY(lt_f32, u8, f32, f32, x < y)
BINARY(le_f32, u8, f32, f32, x <= y)
BINARY(eq_f32, u8, f32, f32, x == y)
BINARY(unordered_f32, u8, f32, f32, x != x || y != y)

UNARY(ex2_f32, u32, f32, made((f32)exp2((f64)x)))
UNARY(lg2_f32, u32, f32, made((f32)log2((f64)x)))
UNARY(rcp_f32, u32, f32, made((f32)(1.0 / (f64)x)))
UNARY(rsqrt_f32, u32, f32, made((f32)(1.0 / sqrt((f64)x))))

BINARY(pack_bf16, u32, u32, u32, nearest_bf16(x) << 16 | nearest_bf16(y))
UNARY(bf16_f32, u16, u32, nearest_bf16(x))
UNARY(f32_bf16, u32, u16, (u32)x << 16)
UNARY(f32_u32, u32, u32, bits_of((f32)x))
UNARY(f32_s32, u32, s32, bits_of((f32)x))
UNARY(u32_f32, u32, f32, to_u32(x))
UNARY(s32_f32, u32, f32, to_s32(x))

/* shfl.sync: the lane to read from, its own where that is out of range (PTX ISA, section shfl.sync). */
struct source {
    long lane;
    int inside;
};

static inline struct source source_of(char mode, long lane, u32 by, u32 control) {
    const long step = by & 31, clamp = control & 31, segment = control >> 8 & 31;
    const long first = lane & segment, last = first | (clamp & ~segment);
    const long from = mode == 'u' ? lane - step
                    : mode == 'd' ? lane + step
                    : mode == 'b' ? (lane ^ step)
                                  : (first | (step & ~segment));
    const int inside = mode == 'u' ? from >= last : from <= last;
    return (struct source){inside ? from : lane, inside};
}

#define SHUFFLE(mode, letter)                                                            \
    static void shfl_##mode(void *result, const void *const *operands, long lanes) {     \
        u32 *restrict r = result;                                                        \
        const u8 *active = operands[0];                                                  \
        const u32 *value = operands[1], *by = operands[2], *control = operands[3];       \
        for (long i = 0; i < lanes; i++) {                                               \
            const long from = (i & ~31L) + source_of(letter, i & 31, by[i], control[i]).lane; \
            r[i] = active[from] ? value[from] : 0;                                       \
        }                                                                                \
    }                                                                                    \
    static const struct operation shfl_##mode##_entry = {"shfl_" #mode, shfl_##mode, 4, 4, {1, 4, 4, 4}}; \
    static void inside_##mode(void *result, const void *const *operands, long lanes) {   \
        u8 *restrict r = result;                                                         \
        const u32 *by = operands[0], *control = operands[1];                             \
        for (long i = 0; i < lanes; i++) {                                               \
            r[i] = (u8)source_of(letter, i & 31, by[i], control[i]).inside;              \
        }                                                                                \
    }                                                                                    \
    static const struct operation inside_##mode##_entry = {"inside_" #mode, inside_##mode, 2, 1, {4, 4}};
SHUFFLE(up, 'u')
SHUFFLE(down, 'd')
SHUFFLE(bfly, 'b')
SHUFFLE(idx, 'i')

#define ENTRY(name) &name##_entry
#define ENTRIES(bits)                                                                       \
    ENTRY(add_##bits), ENTRY(sub_##bits), ENTRY(mul_##bits),           \
        ENTRY(and_##bits), ENTRY(or_##bits), ENTRY(xor_##bits),        \
        ENTRY(not_##bits), ENTRY(neg_##bits), ENTRY(abs_s##bits),      \
        ENTRY(shl_##bits), ENTRY(shr_u##bits), ENTRY(shr_s##bits),     \
        ENTRY(min_u##bits), ENTRY(max_u##bits), ENTRY(min_s##bits),    \
        ENTRY(max_s##bits), ENTRY(eq_##bits), ENTRY(ne_##bits),              \
        ENTRY(lt_u##bits), ENTRY(le_u##bits), ENTRY(lt_s##bits),                \
        ENTRY(le_s##bits), ENTRY(select_##bits)
#define EXCHANGES(mode) ENTRY(shfl_##mode), ENTRY(inside_##mode)

const struct operation *const operations[] = {
    ENTRIES(16), ENTRIES(32), ENTRIES(64),
    ENTRY(and_8), ENTRY(or_8), ENTRY(xor_8), ENTRY(not_8), ENTRY(select_8),
    ENTRY(cut_64_32), ENTRY(cut_64_16), ENTRY(cut_32_16),
    ENTRY(zero_16_32), ENTRY(zero_16_64), ENTRY(zero_32_64),
    ENTRY(sign_16_32), ENTRY(sign_16_64), ENTRY(sign_32_64),
    ENTRY(upper_64), ENTRY(upper_32), ENTRY(join_32), ENTRY(join_16),
    ENTRY(wide_u32), ENTRY(wide_s32), ENTRY(wide_u16), ENTRY(wide_s16),
    ENTRY(high_u32), ENTRY(high_s32),
    ENTRY(div_u32), ENTRY(rem_u32), ENTRY(div_s32), ENTRY(rem_s32),
    ENTRY(popc_32), ENTRY(popc_64), ENTRY(clz_32), ENTRY(clz_64),
    ENTRY(add_f32), ENTRY(sub_f32), ENTRY(mul_f32), ENTRY(div_f32), ENTRY(fma_f32),
    ENTRY(sqrt_f32), ENTRY(neg_f32), ENTRY(abs_f32), ENTRY(min_f32), ENTRY(max_f32),
    ENTRY(flush_f32), ENTRY(saturate_f32),
    ENTRY(lt_f32), ENTRY(le_f32), ENTRY(eq_f32), ENTRY(unordered_f32),
    ENTRY(ex2_f32), ENTRY(lg2_f32), ENTRY(rcp_f32), ENTRY(rsqrt_f32),
    ENTRY(pack_bf16), ENTRY(bf16_f32), ENTRY(f32_bf16),
    ENTRY(f32_u32), ENTRY(f32_s32), ENTRY(u32_f32), ENTRY(s32_f32),
    EXCHANGES(up), EXCHANGES(down), EXCHANGES(bfly), EXCHANGES(idx),
};
const int operation_count = sizeof operations / sizeof *operations;
