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

/* ---- Threads ---- */

/* Threads of a block run together, LANES at a time: one look at an instruction serves all that are there. A slot has a
 * value for each of them. */
enum { LANES = 32 };
typedef uint64_t slot_t[LANES];
typedef const struct ptx_instruction *where_t;

/* Some lanes of a group. */
struct lanes {
  int n, list[LANES];
};
#define EACH(lanes) (int k = 0, lane; k < (lanes)->n && (lane = (lanes)->list[k], true); k++)

/* The lanes whose guard lets them run the instruction. Returns a pointer to one of its arguments. */
static const struct lanes *allowed(const struct lanes *all, where_t i, const slot_t *slots, struct lanes *some) {
  if (i->guard == PTX_NONE) return all;
  some->n = 0;
  for EACH (all)
    if ((slots[i->guard][lane] != 0) != i->unless) some->list[some->n++] = lane;
  return some;
}

static bool waits(where_t i) { return i->op == PTX_RETURN || i->op == PTX_ANY; }

/* The lanes at the lowest of all instructions. next becomes the lowest one of the others, NULL if there are none. */
static where_t lowest(where_t *at, int threads, struct lanes *lanes, where_t *next) {
  where_t low = NULL;
  lanes->n = 0;
  *next = NULL;
  for (int lane = 0; lane < threads; lane++) {
    where_t i = at[lane];
    if (waits(i)) continue;
    if (low == NULL || i < low) *next = low, low = i, lanes->n = 0;
    if (i == low) lanes->list[lanes->n++] = lane;
    else if (*next == NULL || i < *next) *next = i;
  }
  return low;
}

/* Values of a width that the compiler knows, and is fast for. The CPU and other devices may look at a word that is
 * stored meanwhile. */
#define MOVES(width, move)         \
  switch (width) {                 \
    case 1: move(uint8_t); break;  \
    case 2: move(uint16_t); break; \
    case 4: move(uint32_t); break; \
    default: move(uint64_t);       \
  }
#define IN(type) \
  for (int k = 0; k < i->count; k++) slots[i->slot[k]][lane] = ((const type *)at)[k]
#define OUT(type) \
  for (int k = 0; k < i->count; k++) __atomic_store_n((type *)at + k, (type)slots[i->slot[k]][lane], __ATOMIC_RELEASE)

/* Loads or stores the registers of one lane. Returns false if the address is invalid. */
static bool access_memory(const struct ptx_function *f, struct reach *r, const char *params, slot_t *slots, where_t i,
                          int lane, CUdeviceptr *address) {
  size_t size = (size_t)(i->count * i->width);
  char *at;
  *address = slots[i->base][lane] + (uint64_t)i->offset;
  if (i->op == PTX_LOAD_PARAM)
    at = *address <= f->params && size <= f->params - *address ? (char *)params + *address : NULL;
  else
    at = *address % size == 0 ? reach(r, *address, size) : NULL;
  if (at == NULL) return false;
  if (i->op == PTX_ADD_1)
    slots[i->slot[0]][lane] = __atomic_fetch_add((uint32_t *)at, 1, __ATOMIC_ACQ_REL);
  else if (i->op == PTX_STORE)
    MOVES(i->width, OUT)
  else
    MOVES(i->width, IN)
  return true;
}

/* Runs the threads of a group, which are at[], until each has ended or come to a barrier. Those furthest behind run
 * first, so threads that have parted at a branch soon run together again. Returns -1, or the lane of a thread that has
 * used an invalid address. */
static int run_group(const struct ptx_function *f, struct reach *r, const char *params, slot_t *slots, where_t *at,
                     int threads, CUdeviceptr *bad) {
  struct lanes all, some;
  where_t i, next;
  while ((i = lowest(at, threads, &all, &next)) != NULL) {
    const struct lanes *now;
    bool parted = false;
    for (; !parted && (next == NULL || i < next); i++) {
      now = allowed(&all, i, slots, &some);
      switch (i->op) {
#define D slots[i->slot[0]][lane]
#define A slots[i->slot[1]][lane]
#define B slots[i->slot[2]][lane]
#define C slots[i->slot[3]][lane]
#define OPERATION(name, text, sources, effect) \
  case PTX_##name:                             \
    for EACH (now) effect;                     \
    break;
#include "ptx_ops.h"
#undef OPERATION
#undef D
#undef A
#undef B
#undef C
        case PTX_FENCE: __atomic_thread_fence(__ATOMIC_SEQ_CST); break;
        case PTX_BRANCH:
          if (now->n == all.n) {
            i = f->code + i->target - 1;
            break;
          }
          /* fall through */
        case PTX_ANY:
        case PTX_RETURN:
          if (now->n == 0) break;
          for EACH (&all) at[lane] = i + 1;
          for EACH (now) at[lane] = i->op == PTX_BRANCH ? f->code + i->target : i;
          parted = true;
          break;
        default:
          for EACH (now) {
            if (access_memory(f, r, params, slots, i, lane, bad)) continue;
            at[lane] = i;
            return lane;
          }
      }
    }
    if (!parted)
      for EACH (&all) at[lane] = i;
  }
  return -1;
}

/* A block. */
struct crew {
  where_t at[1024]; /* of each thread */
  size_t room;      /* slots */
  slot_t slots[];   /* of each group of threads */
};

static pthread_key_t crews;
static void make_key(void) {
  if (pthread_key_create(&crews, free) != 0) abort();
}

static slot_t *slots_of(const struct ptx_function *f, struct crew *c, unsigned thread) {
  return c->slots + thread / LANES * (size_t)f->n_slots;
}

/* The crew of this thread, which it keeps for its next kernel: fresh memory costs more than a small kernel. */
static struct crew *crew_of(const struct ptx_function *f, unsigned threads) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  size_t groups = (threads + LANES - 1) / LANES, slots = groups * (size_t)f->n_slots;
  struct crew *c;
  pthread_once(&once, make_key);
  c = pthread_getspecific(crews);
  if (c == NULL || c->room < slots) {
    free(c);
    if ((c = malloc(sizeof *c + slots * sizeof(slot_t))) == NULL) abort();
    memset(c->slots, 0xa5, slots * sizeof(slot_t)); /* no kernel may rely on zeros */
    c->room = slots;
    pthread_setspecific(crews, c);
  }
  for (unsigned t = 0; t < threads; t += LANES)
    for (const struct ptx_constant *k = f->constants; k < f->constants + f->n_constants; k++)
      for (int lane = 0; lane < LANES; lane++) slots_of(f, c, t)[k->slot][lane] = k->value;
  return c;
}

/* Returns the thread that has used an invalid address, -1 if none has. */
static int run_block(const struct ptx_function *f, struct reach *r, const char *params, struct crew *c, unsigned block,
                     unsigned blocks, unsigned threads, CUdeviceptr *bad) {
  unsigned t, ended = 0;
  uint64_t any;
  for (t = 0; t < threads; t++) {
    slot_t *slots = slots_of(f, c, t);
    slots[PTX_TID][t % LANES] = t, slots[PTX_NTID][t % LANES] = threads;
    slots[PTX_CTAID][t % LANES] = block, slots[PTX_NCTAID][t % LANES] = blocks;
    c->at[t] = f->code;
  }
  while (ended < threads) {
    for (t = 0; t < threads; t += LANES) {
      int lanes = threads - t < LANES ? (int)(threads - t) : LANES;
      int lane = run_group(f, r, params, slots_of(f, c, t), c->at + t, lanes, bad);
      if (lane >= 0) return (int)t + lane;
    }
    ended = 0;
    any = 0;
    for (t = 0; t < threads; t++) {
      if (c->at[t]->op == PTX_RETURN) ended++;
      else any |= slots_of(f, c, t)[c->at[t]->slot[1]][t % LANES];
    }
    for (t = 0; t < threads; t++) { /* those that have ended count as waiting */
      if (c->at[t]->op == PTX_RETURN) continue;
      slots_of(f, c, t)[c->at[t]->slot[0]][t % LANES] = any;
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
