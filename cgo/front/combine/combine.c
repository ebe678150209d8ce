/* The kernels of short calls: one loop for each type and operator, which the compiler vectorizes. Sums and products
 * of floats of 16 and 8 bits are computed in float32, a vector at a time, and rounded once; maxima and minima
 * compare bits. collectives/datatype defines the results, and its convert.go explains the conversions.
 * combine_avx2.c compiles this file again for wider vectors. */
#include "combine.h"

#include <stdint.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

#ifndef LP_TABLE
#define LP_TABLE lp_kernels_any
#endif

#define INLINE static inline __attribute__((always_inline))

/* ---- Narrow floats ---- */

/* Vectors of as many elements as a register holds as float32. A comparison sets all bits of an element, or none. */
#ifdef __AVX2__
#define LANES 8
#else
#define LANES 4
#endif
typedef uint32_t u32v __attribute__((vector_size(4 * LANES)));
typedef int32_t i32v __attribute__((vector_size(4 * LANES)));
typedef float f32v __attribute__((vector_size(4 * LANES)));
typedef uint16_t u16v __attribute__((vector_size(2 * LANES)));
typedef uint8_t u8v __attribute__((vector_size(LANES)));

#define ABS32 0x7fffffffu
#define INF32 0x7f800000u

INLINE u32v choose(i32v yes, u32v a, u32v b) { return b ^ ((a ^ b) & (u32v)yes); }

/* Compares numbers without sign bits: every instruction set has the signed comparison. */
INLINE i32v above(u32v a, uint32_t b) { return (i32v)a > (int32_t)b; }

/* A narrow format: its mantissa's bits and its exponent's bias. */
#define F16 10, 15
#define E4M3 3, 7
#define E5M2 2, 15

/* The float32 bits of finite codes without sign. No operation has a subnormal operand: those are slow. */
INLINE u32v widened(u32v code, uint32_t mantissa, uint32_t bias) {
  u32v bits = (code << (23 - mantissa)) + ((127 - bias) << 23), least = (u32v){0} + ((128 - bias) << 23);
  u32v small = (u32v)((f32v)(bits + (1u << 23)) - (f32v)least);
  return choose(above(code, (1u << mantissa) - 1), bits, small);
}

/* The codes of numbers' bits without sign, rounded to nearest even, of which largest is the greatest. */
INLINE u32v narrowed(u32v bits, uint32_t mantissa, uint32_t bias, uint32_t largest) {
  uint32_t shift = 23 - mantissa;
  u32v magic = (u32v){0} + ((128 - bias + shift) << 23);
  u32v small = (u32v)((f32v)bits + (f32v)magic) - magic;
  u32v code = ((bits + ((1u << (shift - 1)) - 1) + (bits >> shift & 1)) >> shift) - ((127 - bias) << mantissa);
  code = choose(above(bits, ((128 - bias) << 23) - 1), code, small);
  return choose(above(code, largest), (u32v){0} + largest, code);
}

/* Conversions: by instructions that compilers do not use by themselves, or without. */
#ifdef __F16C__
INLINE f32v number_f16(u16v h) { return (f32v)_mm256_cvtph_ps((__m128i)h); }
INLINE u16v rounded_f16(f32v f) { return (u16v)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT); }
INLINE u16v words_of(u8v v) { return (u16v)_mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)v)); }
INLINE u8v bytes_of(u32v v) {
  __m128i words = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  return (u8v)_mm_cvtsi128_si64(_mm_packus_epi16(words, words));
}
#else
INLINE f32v number_f16(u16v h) {
  u32v all = __builtin_convertvector(h, u32v), code = all & 0x7fff;
  return (f32v)(choose(above(code, 0x7bff), INF32 | code << 13, widened(code, F16)) | (all & 0x8000) << 16);
}

INLINE u16v rounded_f16(f32v f) {
  u32v bits = (u32v)f, abs = bits & ABS32, code = narrowed(abs, F16, 0x7c00);
  code = choose(above(abs, INF32), 0x7e00 | (abs >> 13 & 0x3ff), code);
  return __builtin_convertvector(code | (bits >> 16 & 0x8000), u16v);
}

INLINE u16v words_of(u8v v) { return __builtin_convertvector(v, u16v); }
INLINE u8v bytes_of(u32v v) { return __builtin_convertvector(v, u8v); }
#endif

INLINE f32v number_bf16(u16v h) { return (f32v)(__builtin_convertvector(h, u32v) << 16); }

INLINE u16v rounded_bf16(f32v f) {
  u32v bits = (u32v)f, nan = bits >> 16 | 0x40, code = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return __builtin_convertvector(choose(above(bits & ABS32, INF32), nan, code), u16v);
}

INLINE f32v number_e4m3(u8v v) {
  u32v all = __builtin_convertvector(words_of(v), u32v), code = all & 0x7f;
  u32v nan = (u32v)above(code, 0x7e) & 0x7fc00000;
  return (f32v)(widened(code, E4M3) | nan | (all & 0x80) << 24);
}

INLINE f32v number_e5m2(u8v v) { return number_f16(words_of(v) << 8); }

INLINE u8v rounded_fp8(f32v f, u32v code, uint32_t nan) {
  u32v bits = (u32v)f;
  code = choose(above(bits & ABS32, INF32), (u32v){0} + nan, code);
  return bytes_of(code | (bits >> 24 & 0x80));
}

INLINE u8v rounded_e4m3(f32v f) { return rounded_fp8(f, narrowed((u32v)f & ABS32, E4M3, 0x7e), 0x7f); }
INLINE u8v rounded_e5m2(f32v f) { return rounded_fp8(f, narrowed((u32v)f & ABS32, E5M2, 0x7b), 0x7e); }

/* Rounding of a result that is a code already: NaN becomes quiet or canonical, and infinity the largest number if
 * the format saturates. */
INLINE uint64_t fixed_f64(uint64_t v) { return v; }
INLINE uint32_t fixed_f32(uint32_t v) { return v; }
INLINE uint16_t fixed_f16(uint16_t v) { return (uint16_t)((v & 0x7fff) > 0x7c00 ? v | 0x200 : v); }
INLINE uint16_t fixed_bf16(uint16_t v) { return (uint16_t)((v & 0x7fff) > 0x7f80 ? v | 0x40 : v); }
INLINE uint8_t fixed_e4m3(uint8_t v) { return v; }
INLINE uint8_t fixed_e5m2(uint8_t v) {
  uint8_t code = v & 0x7f, sign = v & 0x80;
  return (uint8_t)(code > 0x7c ? sign | 0x7e : code == 0x7c ? v - 1 : v);
}

/* ---- Loops ---- */

/* Elements of memory as it comes. */
#define ELEMENTS(T) typedef T element __attribute__((aligned(1), may_alias))

/* EXPR of x and y. An element is stored after all loads of the same index: ivdep. */
#define COMBINE(NAME, T, EXPR)                                                                   \
  static void NAME(void* dst, const void* a, const void* b, size_t bytes) {           \
    ELEMENTS(T);                                                                                 \
    element* d = dst;                                                                            \
    const element *p = a, *q = b;                                                                \
    _Pragma("GCC ivdep") for (size_t i = 0; i < bytes / sizeof(T); i++) {                        \
      T x = p[i], y = q[i];                                                                      \
      d[i] = (T)(EXPR);                                                                          \
    }                                                                                            \
  }

/* Scaling a contribution is a product, too. */
#define PRODUCT(NAME, T, EXPR)                                                                   \
  COMBINE(prod_##NAME, T, EXPR)                                                                  \
  static void scale_##NAME(void* dst, const void* src, const void* factor, size_t bytes) { \
    ELEMENTS(T);                                                                                 \
    element* d = dst;                                                                            \
    const element* p = src;                                                                      \
    const T y = *(const element*)factor;                                                         \
    _Pragma("GCC ivdep") for (size_t i = 0; i < bytes / sizeof(T); i++) {                        \
      T x = p[i];                                                                                \
      d[i] = (T)(EXPR);                                                                          \
    }                                                                                            \
  }

#define DIVIDE(NAME, T)                                                                          \
  static void divide_##NAME(void* dst, unsigned n, size_t bytes) {                               \
    ELEMENTS(T);                                                                                 \
    element* d = dst;                                                                            \
    for (size_t i = 0; i < bytes / sizeof(T); i++) d[i] = (T)(d[i] / (T)n);                      \
  }

/* Sums and products of integers wrap, and need no sign. */
#define INTEGERS(U, UT, S, ST)                                                                   \
  COMBINE(sum_##U, UT, x + y)                                                                    \
  PRODUCT(U, UT, (uint64_t)x * y)                                                                \
  COMBINE(max_##U, UT, x > y ? x : y) COMBINE(min_##U, UT, x < y ? x : y) DIVIDE(U, UT)          \
  COMBINE(max_##S, ST, x > y ? x : y) COMBINE(min_##S, ST, x < y ? x : y) DIVIDE(S, ST)

/* The extremes of floats, as unsigned bits UT, whose order as integers ST is that of their values once the bits of
 * negative ones are turned over. Codes above INF are NaN, which gives way to a number. */
#define ABS_OF(T) ((T)((T)~(T)0 >> 1))
#define ORDER(UT, ST, V) ((ST)((V) ^ (((ST)(V) >> (8 * sizeof(UT) - 1)) & ABS_OF(UT))))
#define IS_NAN(UT, ST, V, INF) ((ST)((V) & ABS_OF(UT)) > (ST)(INF))
#define EXTREME(FIX, UT, ST, INF, THAN)                                                          \
  FIX(IS_NAN(UT, ST, x, INF) ? y : IS_NAN(UT, ST, y, INF) ? x : ORDER(UT, ST, x) THAN ORDER(UT, ST, y) ? x : y)
#define EXTREMES(NAME, UT, ST, INF)                                                              \
  COMBINE(max_##NAME, UT, EXTREME(fixed_##NAME, UT, ST, INF, >))                                 \
  COMBINE(min_##NAME, UT, EXTREME(fixed_##NAME, UT, ST, INF, <))

#define FLOATS(NAME, T, UT, ST, INF)                                                             \
  COMBINE(sum_##NAME, T, x + y) PRODUCT(NAME, T, x * y) EXTREMES(NAME, UT, ST, INF)

/* The same for narrow floats: rounded is OP of numbers, of a vector V at a time. */
#define VECTOR(V, NAME, OP, N)                                                                    \
  memcpy(&x, p, N);                                                                              \
  memcpy(&y, q, N);                                                                              \
  x = rounded_##NAME(number_##NAME(x) OP number_##NAME(y));                                      \
  memcpy(d, &x, N)

#define NARROW_COMBINE(FUNCTION, NAME, V, OP)                                                    \
  static void FUNCTION(void* dst, const void* a, const void* b, size_t bytes) {                  \
    const char *p = a, *q = b;                                                                   \
    char* d = dst;                                                                               \
    V x = {0}, y = {0};                                                                          \
    for (; bytes >= sizeof(V); bytes -= sizeof(V), p += sizeof(V), q += sizeof(V), d += sizeof(V)) { \
      VECTOR(V, NAME, OP, sizeof(V));                                                             \
    }                                                                                            \
    if (bytes > 0) {                                                                             \
      VECTOR(V, NAME, OP, bytes);                                                                 \
    }                                                                                            \
  }

/* Multiplies a run of elements at a time by as many of the factor. */
#define NARROW_SCALE(NAME, T)                                                                    \
  static void scale_##NAME(void* dst, const void* src, const void* factor, size_t bytes) {       \
    T y[64];                                                                                     \
    for (size_t i = 0; i < 64; i++) memcpy(&y[i], factor, sizeof(T));                            \
    for (size_t n, at = 0; at < bytes; at += n) {                                                \
      n = bytes - at < sizeof y ? bytes - at : sizeof y;                                         \
      prod_##NAME((char*)dst + at, (const char*)src + at, y, n);                                 \
    }                                                                                            \
  }

#define NARROW(NAME, T, S, V, INF)                                                               \
  NARROW_COMBINE(sum_##NAME, NAME, V, +)                                                         \
  NARROW_COMBINE(prod_##NAME, NAME, V, *)                                                        \
  NARROW_SCALE(NAME, T)                                                                          \
  EXTREMES(NAME, T, S, INF)

INTEGERS(u8, uint8_t, i8, int8_t)
INTEGERS(u32, uint32_t, i32, int32_t)
INTEGERS(u64, uint64_t, i64, int64_t)
FLOATS(f32, float, uint32_t, int32_t, INF32)
FLOATS(f64, double, uint64_t, int64_t, 0x7ff0000000000000)
NARROW(f16, uint16_t, int16_t, u16v, 0x7c00)
NARROW(bf16, uint16_t, int16_t, u16v, 0x7f80)
NARROW(e4m3, uint8_t, int8_t, u8v, 0x7e)
NARROW(e5m2, uint8_t, int8_t, u8v, 0x7c)

#define INTEGER(U, S) {{sum_##U, prod_##U, max_##S, min_##S}, scale_##U, divide_##S}
#define FLOAT(NAME) {{sum_##NAME, prod_##NAME, max_##NAME, min_##NAME}, scale_##NAME, NULL}

const struct lp_kernels LP_TABLE[ncclNumTypes] = {
    [ncclInt8] = INTEGER(u8, i8),       [ncclUint8] = INTEGER(u8, u8),
    [ncclInt32] = INTEGER(u32, i32),    [ncclUint32] = INTEGER(u32, u32),
    [ncclInt64] = INTEGER(u64, i64),    [ncclUint64] = INTEGER(u64, u64),
    [ncclFloat16] = FLOAT(f16),         [ncclFloat32] = FLOAT(f32),
    [ncclFloat64] = FLOAT(f64),         [ncclBfloat16] = FLOAT(bf16),
    [ncclFloat8e4m3] = FLOAT(e4m3),     [ncclFloat8e5m2] = FLOAT(e5m2),
};
