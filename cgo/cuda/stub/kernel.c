/* Modules and kernels. Reductions only, in C. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

#include "../kernels/reduce.h"

struct CUfunc_st { char type[16], op[8]; };
struct CUmod_st { int unused; };

STUB_API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values) {
  (void)image, (void)n, (void)options, (void)values;
  BEGIN();
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *module = calloc(1, sizeof **module);
  return CUDA_SUCCESS;
}
STUB_API CUresult cuModuleUnload(CUmodule module) { BEGIN(); free(module); return CUDA_SUCCESS; }

STUB_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  char type[16], op[8], *at;
  (void)module;
  BEGIN();
  if (strncmp(name, "lightpath_reduce_", 17) != 0) return CUDA_ERROR_NOT_FOUND;
  strncpy(type, name + 17, 15); type[15] = 0;
  at = strrchr(type, '_'); *at = 0; strcpy(op, strrchr(name, '_') + 1);
  *function = calloc(1, sizeof **function);
  strcpy((*function)->type, type); strcpy((*function)->op, op);
  return CUDA_SUCCESS;
}

struct work { struct CUfunc_st f; struct lp_reduction r; };

static float widen_half(uint16_t h) { _Float16 f; memcpy(&f, &h, 2); return (float)f; }
static uint16_t narrow_half(float f) { _Float16 h = (_Float16)f; uint16_t u; memcpy(&u, &h, 2); return u; }
static float widen_bf(uint16_t h) { uint32_t u = (uint32_t)h << 16; float f; memcpy(&f, &u, 4); return f; }
static uint16_t narrow_bf(float f) { uint32_t b; memcpy(&b, &f, 4); if ((b & 0x7fffffff) > 0x7f800000) return (uint16_t)(b >> 16 | 0x40); return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16); }
static float widen_e5(uint8_t v) { return widen_half((uint16_t)(v << 8)); }
static uint8_t narrow8(uint32_t b, uint32_t m, uint32_t bias) {
  uint32_t shift = 23 - m;
  if (b < (127 - bias + 1) << 23) { uint32_t magic = (127 - bias + shift + 1) << 23, u; float x, y; memcpy(&x, &b, 4); memcpy(&y, &magic, 4); x += y; memcpy(&u, &x, 4); u -= magic; return u > 255 ? 255 : (uint8_t)u; }
  b += (1u << (shift - 1)) - 1 + (b >> shift & 1); b = (b >> shift) - ((127 - bias) << m);
  return b > 255 ? 255 : (uint8_t)b;
}
static uint8_t narrow_fp8(float f, uint32_t m, uint32_t bias, uint8_t top, uint8_t nan) {
  uint32_t b, abs; uint8_t sign, v; memcpy(&b, &f, 4); sign = (b >> 24) & 0x80; abs = b & 0x7fffffff;
  if (abs > 0x7f800000) return sign | nan;
  v = abs >= 0x7f800000 ? 255 : narrow8(abs, m, bias); return sign | (v > top ? top : v);
}
static uint8_t narrow_e5(float f) { return narrow_fp8(f, 2, 15, 0x7b, 0x7e); }
static uint8_t narrow_e4(float f) { return narrow_fp8(f, 3, 7, 0x7e, 0x7f); }
static float widen_e4(uint8_t v) { uint32_t u = (uint32_t)(v & 0x7f) << 20; float f; if ((v & 0x7f) == 0x7f) return __builtin_nanf(""); memcpy(&f, &u, 4); f *= 0x1p120f; return v & 0x80 ? -f : f; }
#define SAME(x) (x)
#define REDUCE(NAME, M, T, IN, OUT, DIV)                                                         \
  static void reduce_##NAME(const struct lp_reduction *r, char op) {                             \
    uint64_t i; unsigned s; M f, v, a, fv; T t;                                                  \
    memcpy(&t, &r->factor, sizeof t); if (r->factor_at) memcpy(&t, stub_reach(r->factor_at, sizeof t), sizeof t);  f = IN(t);       \
    T *dst = stub_reach(r->dst, r->count * sizeof t); const T *src[16];                          \
    for (s = 0; s < r->n; s++) src[s] = stub_reach(r->sources[s], r->count * sizeof t);          \
    for (i = 0; i < r->count; i++) {                                                             \
      memcpy(&t, src[0] + i, sizeof t); if (r->n == 1 && !r->scaled && r->divisor < 2) { memcpy(dst + i, &t, sizeof t); continue; }  \
      a = IN(t); if (r->scaled) a = IN(OUT((M)(a * f)));                                         \
      for (s = 1; s < r->n; s++) {                                                               \
        memcpy(&t, src[s] + i, sizeof t); v = IN(t); if (r->scaled) v = IN(OUT((M)(v * f)));      \
        switch (op) { case 's': a = a + v; break; case 'p': a = a * v; break;                    \
          case 'a': a = a != a ? v : v != v ? a : a > v ? a : v > a ? v : MAXEQ(a, v); break;     \
          default: a = a != a ? v : v != v ? a : a < v ? a : v < a ? v : MINEQ(a, v); }             \
        a = IN(OUT(a));                                                                          \
      }                                                                                          \
      fv = a; DIV; t = OUT(fv); memcpy(dst + i, &t, sizeof t);                                   \
    }                                                                                            \
  }
#define MAXEQ(a, v) (__builtin_signbit((double)(a)) ? (v) : (a))
#define MINEQ(a, v) (__builtin_signbit((double)(a)) ? (a) : (v))
#define IDIV if (r->divisor > 1) fv = fv / (long long)r->divisor
#define UDIV if (r->divisor > 1) fv = fv / r->divisor
REDUCE(int8, int8_t, int8_t, SAME, SAME, IDIV)
REDUCE(uint8, uint8_t, uint8_t, SAME, SAME, UDIV)
REDUCE(int32, int32_t, int32_t, SAME, SAME, IDIV)
REDUCE(uint32, uint32_t, uint32_t, SAME, SAME, UDIV)
REDUCE(int64, int64_t, int64_t, SAME, SAME, IDIV)
REDUCE(uint64, uint64_t, uint64_t, SAME, SAME, UDIV)
REDUCE(half, float, uint16_t, widen_half, narrow_half, )
REDUCE(float, float, float, SAME, SAME, )
REDUCE(double, double, double, SAME, SAME, )
REDUCE(bfloat16, float, uint16_t, widen_bf, narrow_bf, )
REDUCE(f8e4m3, float, uint8_t, widen_e4, narrow_e4, )
REDUCE(f8e5m2, float, uint8_t, widen_e5, narrow_e5, )

static void work(void *arg) {
  struct work *w = arg;
#define TRY(T) if (strcmp(w->f.type, #T) == 0) reduce_##T(&w->r, strcmp(w->f.op, "max") == 0 ? 'a' : w->f.op[0])
  TRY(int8); TRY(uint8); TRY(int32); TRY(uint32); TRY(int64); TRY(uint64);
  TRY(half); TRY(float); TRY(double); TRY(bfloat16); TRY(f8e4m3); TRY(f8e5m2);
}

STUB_API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
  struct work *w;
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
  BEGIN();
  w = malloc(sizeof *w); /* never freed: a graph may run it again */
  w->f = *function;
  memcpy(&w->r, params[0], sizeof w->r);
  return stub_submit(stream, (struct op){.kind = CALL, .fn = work, .data = w});
}
