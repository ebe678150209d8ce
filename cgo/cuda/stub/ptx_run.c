/* Runs the threads of kernels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ptx.h"

/* ---- Numbers ---- */

#define U16(v) ((uint64_t)(uint16_t)(v))
#define U32(v) ((uint64_t)(uint32_t)(v))
#define S32(v) ((int32_t)(v))
#define S64(v) ((int64_t)(v))
#define PAIR(low, high) ((low) | (high) << 16)
#define LOW_F16(v) f16(U16(v))
#define HIGH_F16(v) f16(U16((v) >> 16))

static bool is_nan(float v) { return v != v; }

static float f32(uint64_t bits) {
  uint32_t b = (uint32_t)bits;
  float v;
  memcpy(&v, &b, sizeof v);
  return v;
}

static uint64_t from_f32(float v) {
  uint32_t b;
  memcpy(&b, &v, sizeof b);
  return v != v ? 0x7fffffff : b;
}

static double f64(uint64_t bits) {
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static uint64_t from_f64(double v) {
  uint64_t b;
  memcpy(&b, &v, sizeof b);
  return v != v ? 0x7fffffffffffffff : b;
}

/* -0 is less than +0, and any number less than NaN. */
static double lesser(double a, double b) {
  if (a != a || b != b) return a != a ? b : a;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a < b ? a : b;
}

static float f16(uint64_t h) {
  uint64_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  float v;
  if (exponent == 31) return f32(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return f32(sign | (exponent + 112) << 23 | fraction << 13);
  v = (float)fraction / (1 << 24);
  return sign != 0 ? -v : v;
}

/* To nearest, ties to even. */
static uint64_t to_f16(float v) {
  uint64_t bits = from_f32(v), sign = bits >> 16 & 0x8000, abs = bits & 0x7fffffff, exponent = abs >> 23;
  uint64_t whole, rest, units, shift = 13;
  if (v != v) return 0x7fff;
  if (abs >= 0x477ff000) return sign | 0x7c00; /* 65520 */
  whole = (abs & 0x7fffff) | (exponent > 0 ? 0x800000 : 0);
  if (exponent < 113) shift = exponent < 96 ? 30 : 126 - exponent; /* subnormal: units of 2^-24 */
  units = whole >> shift;
  rest = whole & ((UINT64_C(1) << shift) - 1);
  units += rest > UINT64_C(1) << (shift - 1) || (rest == UINT64_C(1) << (shift - 1) && (units & 1) != 0);
  return sign | (units + (exponent < 113 ? 0 : (exponent - 113) << 10)); /* the leading bit counts as exponent */
}

/* A number rounded to nearest, ties to even, to so many bits after the leading one, or to units of 2^least. */
static double rounded(double v, int bits, int least) {
  double units, below;
  int exponent;
  if (v != v || v - v != 0 || v == 0) return v;
  (void)frexp(v, &exponent);
  exponent -= bits + 1;
  if (exponent < least) exponent = least;
  units = ldexp(v < 0 ? -v : v, -exponent); /* fits into 53 bits, and into an integer */
  below = (double)(int64_t)units;
  if (units - below > 0.5 || (units - below == 0.5 && (int64_t)below % 2 != 0)) below++;
  below = ldexp(below, exponent);
  return v < 0 ? -below : below;
}

/* Sums and products of two bfloat16 may be rounded to double first: 53 bits are more than 2 * 8 + 2. */
static double bf16(uint64_t bits) { return f32(U16(bits) << 16); }
static uint64_t to_bf16(double v) { return v != v ? 0x7fff : from_f32((float)rounded(v, 7, -133)) >> 16; }

/* FP8, by its bits of mantissa. E4M3 has no infinity, and one NaN of each sign. */
static float f8(uint64_t bits, int mantissa) {
  int exponent = (int)(bits & 0x7f) >> mantissa, bias = mantissa == 3 ? 7 : 15, one = 1 << mantissa,
      fraction = (int)bits & (one - 1);
  double v = ldexp(exponent > 0 ? fraction + one : fraction, (exponent > 0 ? exponent : 1) - bias - mantissa);
  if (mantissa == 3 ? (bits & 0x7f) == 0x7f : exponent == 31 && fraction != 0) return f32(0x7fffffff);
  if (mantissa == 2 && exponent == 31) v = f32(0x7f800000);
  return (float)((bits & 0x80) != 0 ? -v : v);
}

/* Saturates. */
static uint64_t to_f8(float from, int mantissa) {
  int bias = mantissa == 3 ? 7 : 15, exponent;
  double most = mantissa == 3 ? 448 : 57344, v = rounded(from, mantissa, 1 - bias - mantissa);
  uint64_t sign = __builtin_signbit(from) ? 0x80 : 0;
  if (v != v) return 0x7f;
  if (v < 0) v = -v;
  if (v > most) v = most;
  (void)frexp(v, &exponent);
  if (v == 0 || exponent < 2 - bias) return sign | (uint64_t)ldexp(v, bias + mantissa - 1);
  return sign | (((uint64_t)(exponent - 2 + bias) << mantissa) + (uint64_t)ldexp(v, mantissa + 1 - exponent));
}

/* bfe: some bits of a, from a position, in a register of so many bits. */
static uint64_t field(uint64_t a, uint64_t from, uint64_t bits, uint64_t width) {
  from &= 0xff, bits &= 0xff;
  if (from >= width) return 0;
  a >>= from;
  return bits >= width ? a : a & ((UINT64_C(1) << bits) - 1);
}

/* ---- Memory ---- */

/* Memory that the context reaches. */
struct window {
  CUdeviceptr at;
  size_t size;
  char *alias;
  const uint32_t *freed; /* of imported memory: its owner has freed it; else NULL */
};

enum { WINDOWS = 48 }; /* a reduction reaches up to 16 sources, 16 targets and their words */

struct reach {
  CUcontext ctx;
  struct window windows[WINDOWS]; /* the last ones found */
  int next;
};

struct search {
  CUcontext ctx;
  struct window found;
  bool others; /* it belongs to another device */
};

static void found(struct block *b, void *arg) {
  struct search *s = arg;
  if (b == NULL || !stub_may_touch(b)) return;
  if (b->piece != NULL) {
    if ((b->granted >> s->ctx->device & 1) == 0) return;
  } else if (b->type == CU_MEMORYTYPE_DEVICE && !b->managed && b->ctx != s->ctx &&
             !__atomic_load_n(&s->ctx->reaches[b->ctx->device], __ATOMIC_ACQUIRE)) {
    return;
  }
  s->found = (struct window){(uintptr_t)b->at, b->size, b->alias, b->imported != 0 ? b->freed : NULL};
  s->others = b->ctx != s->ctx;
  if (b->freed != NULL && (s->others || b->imported != 0)) __atomic_fetch_add(&b->freed[2], 1, __ATOMIC_RELEASE);
}

/* Kernels of other devices that come to this allocation wait. */
static struct hold {
  CUdeviceptr at;
  const uint32_t *gate; /* until it is 1 */
  uint32_t *held;       /* how many have waited */
} hold;

/* For tests: makes kernels of other devices wait at the allocation at an address other than 0. No kernel may run
 * when it is called. */
STUB_API void stubHold(CUdeviceptr at, const uint32_t *gate, uint32_t *held) {
  hold = (struct hold){.gate = gate, .held = held};
  __atomic_store_n(&hold.at, at, __ATOMIC_RELEASE);
}

static void hold_up(CUdeviceptr at) {
  const struct timespec pause = {0, 20000};
  if (at != __atomic_load_n(&hold.at, __ATOMIC_ACQUIRE)) return;
  __atomic_fetch_add(hold.held, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(hold.gate, __ATOMIC_ACQUIRE) != 1) nanosleep(&pause, NULL);
}

/* NULL unless the context reaches all of the memory. Kernels reach only host memory that the driver knows. */
static char *reach(struct reach *r, CUdeviceptr at, size_t size) {
  struct search s = {.ctx = r->ctx};
  const struct window *w;
  for (w = r->windows; w < r->windows + WINDOWS; w++)
    if (at >= w->at && at - w->at < w->size && size <= w->size - (at - w->at) &&
        (w->freed == NULL || __atomic_load_n(w->freed, __ATOMIC_RELAXED) == 0))
      return w->alias + (at - w->at);
  stub_with_block(at, found, &s);
  if (s.found.size == 0 || size > s.found.size - (at - s.found.at)) return NULL;
  r->windows[r->next++ % WINDOWS] = s.found;
  if (s.others) hold_up(s.found.at);
  return s.found.alias + (at - s.found.at);
}

/* Values of a width that the compiler knows, and is fast for. */
#define MOVES(width, move)         \
  switch (width) {                 \
    case 1: move(uint8_t); break;  \
    case 2: move(uint16_t); break; \
    case 4: move(uint32_t); break; \
    default: move(uint64_t);       \
  }

static void move_in(uint64_t *slots, const struct ptx_instruction *i, const char *from) {
  int k;
#define IN(type) \
  for (k = 0; k < i->count; k++) slots[i->slot[k]] = ((const type *)from)[k]
  MOVES(i->width, IN)
#undef IN
}

/* The CPU and other devices may look at a word meanwhile. */
static void move_out(const uint64_t *slots, const struct ptx_instruction *i, char *to) {
  int k;
#define OUT(type) \
  for (k = 0; k < i->count; k++) __atomic_store_n((type *)to + k, (type)slots[i->slot[k]], __ATOMIC_RELEASE)
  MOVES(i->width, OUT)
#undef OUT
}

/* ---- Threads ---- */

/* A thread runs until it ends, uses an invalid address or comes to a barrier: the instruction where it is. */
static const struct ptx_instruction *run_thread(const struct ptx_function *f, struct reach *r, const char *params,
                                                uint64_t *slots, const struct ptx_instruction *i, CUdeviceptr *bad) {
  char *at;
  for (;; i++) {
    if (i->guard != PTX_NONE && (slots[i->guard] != 0) == i->unless) continue;
    uint64_t *D = &slots[i->slot[0]], A = slots[i->slot[1]], B = slots[i->slot[2]], C = slots[i->slot[3]];
    (void)A, (void)B, (void)C;
    switch (i->op) {
#define D *D
#define OPERATION(name, text, sources, effect) \
  case PTX_##name: effect; break;
#include "ptx_ops.h"
#undef OPERATION
#undef D
      case PTX_BRANCH: i = f->code + i->target - 1; break;
      case PTX_FENCE: __atomic_thread_fence(__ATOMIC_SEQ_CST); break;
      case PTX_ANY:
      case PTX_RETURN: return i;
      default: {
        size_t size = (size_t)(i->count * i->width);
        CUdeviceptr address = slots[i->base] + (uint64_t)i->offset;
        if (i->op == PTX_LOAD_PARAM)
          at = address <= f->params && size <= f->params - address ? (char *)params + address : NULL;
        else
          at = address % size == 0 ? reach(r, address, size) : NULL;
        if (at == NULL) {
          *bad = address;
          return i;
        }
        if (i->op == PTX_STORE)
          move_out(slots, i, at);
        else if (i->op == PTX_ADD_1)
          slots[i->slot[0]] = __atomic_fetch_add((uint32_t *)at, 1, __ATOMIC_ACQ_REL);
        else
          move_in(slots, i, at);
      }
    }
  }
}

/* A block: its threads run in the order of their numbers, each up to the next barrier. */
struct crew {
  const struct ptx_instruction *at[1024]; /* of each thread */
  uint64_t *slots[1024];
  size_t room;       /* of memory, in bytes */
  uint64_t memory[]; /* the slots of all threads */
};

static pthread_key_t crews;
static void make_key(void) {
  if (pthread_key_create(&crews, free) != 0) abort();
}

/* The crew of this thread, which it keeps for its next kernel: fresh memory costs more than a small kernel. */
static struct crew *crew_of(const struct ptx_function *f, unsigned threads) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  size_t size = (size_t)f->n_slots * sizeof(uint64_t);
  struct crew *c;
  unsigned t;
  pthread_once(&once, make_key);
  c = pthread_getspecific(crews);
  if (c == NULL || c->room < threads * size) {
    free(c);
    if ((c = malloc(sizeof *c + threads * size)) == NULL) abort();
    c->room = threads * size;
    pthread_setspecific(crews, c);
  }
  for (t = 0; t < threads; t++) {
    c->slots[t] = c->memory + t * (size_t)f->n_slots;
    memcpy(c->slots[t], f->slots, size); /* constants; kernels write registers before they read them */
  }
  return c;
}

/* Returns the thread that has used an invalid address, -1 if none has. */
static int run_block(const struct ptx_function *f, struct reach *r, const char *params, struct crew *c, unsigned block,
                     unsigned blocks, unsigned threads, CUdeviceptr *bad) {
  unsigned t, ended = 0;
  uint64_t any;
  for (t = 0; t < threads; t++) {
    c->slots[t][PTX_TID] = t, c->slots[t][PTX_NTID] = threads;
    c->slots[t][PTX_CTAID] = block, c->slots[t][PTX_NCTAID] = blocks;
    c->at[t] = f->code;
  }
  while (ended < threads) {
    ended = 0;
    any = 0;
    for (t = 0; t < threads; t++) {
      if (c->at[t]->op != PTX_RETURN || c->at[t] == f->code)
        c->at[t] = run_thread(f, r, params, c->slots[t], c->at[t], bad);
      if (c->at[t]->op == PTX_RETURN) ended++;
      else if (c->at[t]->op == PTX_ANY) any |= c->slots[t][c->at[t]->slot[1]];
      else return (int)t;
    }
    for (t = 0; t < threads; t++) { /* those that have ended count as waiting */
      if (c->at[t]->op != PTX_ANY) continue;
      c->slots[t][c->at[t]->slot[0]] = any;
      c->at[t]++;
    }
  }
  return -1;
}

bool ptx_run(const struct ptx_function *f, CUcontext ctx, const void *params, unsigned blocks, unsigned threads,
             char *why, size_t size) {
  struct reach r = {.ctx = ctx};
  struct crew *c = crew_of(f, threads);
  CUdeviceptr at = 0;
  unsigned b;
  int bad = -1;
  for (b = 0; bad < 0 && b < blocks; b++) bad = run_block(f, &r, params, c, b, blocks, threads, &at);
  if (bad >= 0) {
    const struct ptx_instruction *i = c->at[bad];
    snprintf(why, size, "%s: thread %d of block %u: %s of %d bytes at 0x%llx", f->name, bad, b - 1,
             i->op == PTX_STORE ? "store" : "load", i->count * i->width, (unsigned long long)at);
  }
  return bad < 0;
}
