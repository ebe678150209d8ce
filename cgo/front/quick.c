/* Short calls on shared memory, without the core: into Go and back is most of what they would take.
 *
 * A communicator's gate lets one thread in. Inside it has the arena to itself, lays out its part in its
 * slot and takes the others' out of theirs, as collectives/shared does, whose ranks may be among the
 * others. What is not as usual is left to the core: before anything has been published the call as it is, and
 * afterwards (a rank that does not come, or comes with another call) what is left of it. */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "front.h"

static struct lp_gate gates[LP_GATES];

struct lp_gate* lp_gates(void) { return gates; }

#define LOAD(p, order) __atomic_load_n(p, __ATOMIC_##order)
#define STORE(p, v, order) __atomic_store_n(p, v, __ATOMIC_##order)

/* ---- Combining: bit for bit as collectives/datatype does ---- */

typedef void (*combine)(void* dst, const void* a, const void* b, size_t bytes);

/* A version for wider vectors, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

#define COMBINE(NAME, TYPE, EXPR)                                                   \
  WIDE static void NAME(void* dst, const void* a, const void* b, size_t bytes) {         \
    TYPE* d = dst;                                                                  \
    const TYPE *x = a, *y = b;                                                      \
    for (size_t i = 0; i < bytes / sizeof(TYPE); i++) d[i] = (TYPE)(EXPR);          \
  }
#define SUM(T) COMBINE(sum_##T, T, x[i] + y[i])
#define PROD(T, WIDE) COMBINE(prod_##T, T, (WIDE)x[i] * (WIDE)y[i])
#define MAX(T) COMBINE(max_##T, T, x[i] > y[i] ? x[i] : y[i])
#define MIN(T) COMBINE(min_##T, T, x[i] < y[i] ? x[i] : y[i])
#define UNSIGNED(T) SUM(T) PROD(T, uint64_t) MAX(T) MIN(T)
#define SIGNED(T) MAX(T) MIN(T)

UNSIGNED(uint8_t)
UNSIGNED(uint32_t)
UNSIGNED(uint64_t)
SIGNED(int8_t)
SIGNED(int32_t)
SIGNED(int64_t)
SUM(float)
SUM(double)
PROD(float, float)
PROD(double, double)

/* By type and operator; integers wrap, so that sums and products need no sign. */
#define ROW(U, S) {sum_##U, prod_##U, max_##S, min_##S}
static const combine kernels[ncclNumTypes][4] = {
    [ncclInt8] = ROW(uint8_t, int8_t),     [ncclUint8] = ROW(uint8_t, uint8_t),
    [ncclInt32] = ROW(uint32_t, int32_t),  [ncclUint32] = ROW(uint32_t, uint32_t),
    [ncclInt64] = ROW(uint64_t, int64_t),  [ncclUint64] = ROW(uint64_t, uint64_t),
    [ncclFloat32] = {sum_float, prod_float}, [ncclFloat64] = {sum_double, prod_double},
};

/* ---- Slots ---- */

static struct lp_slot* slot_of(const struct lp_quick* q, const struct lp_quick_ring* ring, uint32_t rank, uint64_t k) {
  return (struct lp_slot*)(q->memory + (size_t)rank * q->per_rank + ring->at + (k & ring->mask) * ring->slot);
}

static uint8_t* data_of(const struct lp_quick* q, const struct lp_quick_recipe* r, uint32_t rank, uint64_t k) {
  return (uint8_t*)slot_of(q, &q->rings[r->ring], rank, k) + (r->is_inline ? q->inline_at : q->data_at);
}

static uint64_t* consumed(const struct lp_quick* q, const struct lp_quick_ring* ring, uint32_t rank) {
  return (uint64_t*)(q->memory + (size_t)rank * q->per_rank + ring->counter);
}

/* Slots are written and read in turn: the lines of those to come are fetched while this one is at work, to be
 * written, or to be read where their rank seems to be ahead. */
enum { WRITE_AHEAD = 6, READ_AHEAD = 2 };

static void fetch_to_write(const void* line) {
#ifdef __x86_64__
  __asm__ volatile("prefetchw %0" : : "m"(*(const char*)line)); /* not every target lets a compiler use it */
#else
  __builtin_prefetch(line, 1);
#endif
}

/* Wakes ranks that sleep, after what they wait for has been stored in one order with this. */
static void ring_bells(const struct lp_quick* q) {
  for (uint32_t p = 0; p < q->ranks; p++) {
    uint32_t* bell = q->bells[p];
    if (p == q->rank || LOAD(&bell[1], SEQ_CST) == 0 || __atomic_exchange_n(&bell[1], 0, __ATOMIC_SEQ_CST) == 0) continue;
    __atomic_fetch_add(&bell[0], 1, __ATOMIC_SEQ_CST);
    int kept = errno;
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = kept;
  }
}

/* ---- Waiting: as shim's calls do that are alone ---- */

struct patience {
  struct lp_quick* q;
  uint32_t polls, spins;
};

static struct patience patience_for(struct lp_quick* q) {
  bool spin = q->vain < 3 || ++q->waits % 32 == 0;
  return (struct patience){q, 0, spin ? q->spin_long : q->spin_short};
}

/* Passes a little time; false when that has been long enough. */
static bool wait_more(struct patience* p, const struct lp_gate* gate) {
  if (p->polls++ < p->spins) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
    return true;
  }
  if (p->polls > p->spins + p->q->yields || LOAD(&gate->shut, RELAXED)) return false;
  sched_yield();
  return true;
}

/* Learns whether spinning pays; from who came at once, nothing. */
static void learn(const struct patience* p) {
  if (p->polls <= p->q->spin_short) return;
  if (p->polls <= p->spins)
    p->q->vain = 0;
  else if (p->spins == p->q->spin_long)
    p->q->vain++;
}

/* Waits until this rank may write chunk k. */
static bool have_room(struct lp_quick* q, struct lp_quick_ring* ring, uint64_t k, const struct lp_gate* gate) {
  if (k <= ring->mask || k - ring->mask <= ring->free) return true;
  struct patience p = patience_for(q);
  do {
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < q->ranks; r++) {
      uint64_t n = r == q->rank ? least : LOAD(consumed(q, ring, r), ACQUIRE);
      if (n < least) least = n;
    }
    ring->free = least;
    if (k - ring->mask <= least) return true;
  } while (wait_more(&p, gate));
  return false;
}

/* Whether rank's chunk is there, and part of this call; what it is instead is for the core to say. */
static bool arrived(const struct lp_quick* q, const struct lp_quick_recipe* r, uint32_t rank, uint64_t k) {
  struct lp_slot* s = slot_of(q, &q->rings[r->ring], rank, k);
  return LOAD(&s->number, ACQUIRE) == k + 1 && s->seq == q->seq && s->sig == r->sig && s->chain == q->chain;
}

static bool await(struct lp_quick* q, const struct lp_quick_recipe* r, uint64_t k, const struct lp_gate* gate, uint32_t* polls) {
  uint32_t first = 0, n = q->ranks;
  if (r->from == LP_FROM_NOBODY) return true;
  if (r->from >= 0) first = (uint32_t)r->from, n = first + 1;
  struct patience p = patience_for(q);
  for (uint32_t rank = first; rank < n; rank++)
    while (rank != q->rank && !arrived(q, r, rank, k))
      if (!wait_more(&p, gate)) {
        learn(&p);
        return false;
      }
  learn(&p);
  *polls = p.polls;
  return true;
}

/* ---- A call ---- */

static uint64_t mix(uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

static int64_t now(const struct lp_quick* q) {
  struct timespec t;
  if (!q->timed) return 0;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Where this rank's buffers are as the recipe has them. */
static bool fits(const struct lp_quick_recipe* r, const struct lp_call* c) {
  uintptr_t s = (uintptr_t)c->send, d = (uintptr_t)c->recv;
  if (r->kind != c->kind || r->count != c->count || r->type != c->type || r->op != c->op || r->peer != c->peer) return false;
  if (r->send_bytes == 0 || r->recv_bytes == 0 || s + r->send_bytes <= d || d + r->recv_bytes <= s)
    return !r->in_place && (s != 0 || r->send_bytes == 0) && (d != 0 || r->recv_bytes == 0);
  return r->in_place && (int64_t)(s - d) == r->shift;
}

static struct lp_quick_recipe* find(struct lp_quick* q, const struct lp_call* c) {
  for (uint32_t i = 0, at = q->last; i < q->used; i++, at = at + 1 == q->used ? 0 : at + 1) {
    if (!fits(&q->recipes[at], c)) continue;
    q->last = at;
    return &q->recipes[at];
  }
  return NULL;
}

static bool special(const struct lp_call* c) {
  return c->stream != NULL || (c->plan | c->plan_digits | c->deadline_us | c->planes | c->scalar_where) != 0;
}

static void lay(struct lp_quick* q, const struct lp_quick_recipe* r, const struct lp_call* c, uint64_t k) {
  uint8_t* at = data_of(q, r, q->rank, k);
  const uint8_t* send = c->send;
  fetch_to_write(slot_of(q, &q->rings[r->ring], q->rank, k + WRITE_AHEAD));
  if (r->lay == LP_LAY_BLOCK) {
    memcpy(at, send, r->block);
  } else if (r->lay == LP_LAY_PIECES) {
    for (uint32_t p = 0; p < q->ranks; p++)
      if (p != q->rank) memcpy(at + (size_t)p * r->stride, send + p * r->block, r->block);
  }
  struct lp_slot* s = slot_of(q, &q->rings[r->ring], q->rank, k);
  s->seq = q->seq, s->chain = q->chain, s->sig = r->sig;
  if (r->ring == 1) s->at = 0;
  STORE(&s->number, k + 1, SEQ_CST);
  ring_bells(q);
}

/* Combines n bytes at each of the sources, in the order of ranks. */
static void fold(combine f, uint8_t* dst, const uint8_t* const* from, uint32_t ranks, size_t n) {
  uint8_t tile[2048] __attribute__((aligned(64)));
  if (ranks == 2) {
    f(dst, from[0], from[1], n);
    return;
  }
  for (size_t at = 0; at < n; at += sizeof tile) {
    size_t m = n - at < sizeof tile ? n - at : sizeof tile;
    f(tile, from[0] + at, from[1] + at, m);
    for (uint32_t p = 2; p < ranks; p++) f(tile, tile, from[p] + at, m);
    memcpy(dst + at, tile, m); /* which may be one of the sources */
  }
}

static void take(struct lp_quick* q, const struct lp_quick_recipe* r, const struct lp_call* c, uint64_t k) {
  const uint8_t* from[LP_QUICK_RANKS];
  const uint8_t* send = c->send;
  uint8_t* recv = c->recv;
  uint32_t p;
  switch (r->take) {
    case LP_TAKE_ONE: memcpy(recv, data_of(q, r, (uint32_t)r->from, k) + r->piece, r->block); break;
    case LP_TAKE_EACH:
      for (p = 0; p < q->ranks; p++)
        if (p != q->rank) memcpy(recv + p * r->block, data_of(q, r, p, k) + r->piece, r->block);
      break;
    case LP_TAKE_FOLD:
      for (p = 0; p < q->ranks; p++) from[p] = data_of(q, r, p, k) + r->piece;
      if (r->own_input) from[q->rank] = send + r->keep_send;
      fold(kernels[r->type][r->op], recv, from, q->ranks, r->block);
      break;
    default: break;
  }
  if (r->keep) memcpy(recv + r->keep_recv, send + r->keep_send, r->block);
}

static enum lp_quick_end inside(struct lp_gate* gate, struct lp_quick* q, const struct lp_call* c) {
  struct lp_quick_recipe* r = find(q, c);
  if (r == NULL || LOAD(&gate->shut, RELAXED) || (r->take == LP_TAKE_FOLD && kernels[r->type][r->op] == NULL)) return LP_QUICK_NOT;
  struct lp_quick_ring* ring = &q->rings[r->ring];
  uint64_t k = ring->next;
  if (!have_room(q, ring, k, gate)) return LP_QUICK_NOT;

  uint64_t n = q->head + 1;
  struct lp_quick_record* log = &q->log[n & q->log_mask];
  q->seq++;
  q->chain = mix(mix(q->chain ^ q->seq) ^ r->sig);
  ring->next = k + 1;
  STORE(&log->seq, q->seq, RELAXED);
  STORE(&log->recipe, (uint32_t)(r - q->recipes), RELAXED);
  STORE(&log->done, 0, RELAXED);
  STORE(&log->begin, now(q), RELAXED);
  STORE(&log->end, 0, RELAXED);
  STORE(&q->head, n, RELEASE);
  STORE(&r->calls, r->calls + 1, RELAXED);

  lay(q, r, c, k);
  uint32_t polls = 0;
  if (!await(q, r, k, gate, &polls)) return LP_QUICK_BEGUN;
  if (r->from >= 0 && polls == 0) __builtin_prefetch(slot_of(q, ring, (uint32_t)r->from, k + READ_AHEAD));
  take(q, r, c, k);
  if (((k + 1) & (ring->report - 1)) == 0) {
    STORE(consumed(q, ring, q->rank), k + 1, SEQ_CST);
    ring_bells(q);
  }
  STORE(&log->end, polls > q->spin_short ? now(q) : log->begin, RELAXED);
  STORE(&log->done, 1, RELEASE);
  return LP_QUICK_DONE;
}

enum lp_quick_end lp_quick_run(const struct lp_call* call) {
  uint64_t open = call->comm;
  struct lp_gate* gate = &gates[open % LP_GATES];
  /* Handles of other communicators may end alike: the gate knows whose it is. */
  if (LOAD(&gate->word, RELAXED) != open || special(call)) return LP_QUICK_NOT;
  if (!__atomic_compare_exchange_n(&gate->word, &open, LP_GATE_BUSY, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return LP_QUICK_NOT;
  struct lp_quick* q = gate->quick;
  enum lp_quick_end end = inside(gate, q, call);
  if (end == LP_QUICK_BEGUN) q->begun = 1;
  STORE(&gate->word, end == LP_QUICK_BEGUN ? 0 : call->comm, RELEASE);
  return end;
}
