/* Short calls on shared memory, without the core: into Go and back is most of what they would take.
 *
 * A communicator's gate lets one thread in. Inside it has the arena to itself, lays out its part in its
 * slot and takes the others' out of theirs, as collectives/sharedmem does, whose ranks may be among the
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
#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "apart.h"
#include "combine/combine.h"
#include "front.h"
#include "laying.h"

#define LOAD(p, order) __atomic_load_n(p, __ATOMIC_##order)
#define STORE(p, v, order) __atomic_store_n(p, v, __ATOMIC_##order)

/* ---- The clock: CLOCK_MONOTONIC to a tenth of a microsecond, in half the time ---- */

/* For so many ticks of the processor's counter after it was last compared with the clock, the counter alone
 * tells the time, by the rate between the last two comparisons, which are RATE_TICKS apart at least. One that
 * takes longer than COMPARE_TICKS has been interrupted. */
enum { CLOCK_TICKS = 1 << 21, RATE_TICKS = 1 << 20, COMPARE_TICKS = 1 << 11 };

/* Whoever is inside a gate has its clock. */
static struct ticking {
  uint64_t at; /* ticks of the last comparison, 0: there was none */
  int64_t ns;
  double rate;    /* nanoseconds per tick */
  uint64_t valid; /* ticks for which that is good, 0: not known yet */
} clocks[LP_GATES];

static int64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#ifdef __x86_64__
static bool steady; /* the counter has one rate, whatever the processor does */

static void look_at_counter(void) {
  unsigned a, b, c, d;
  steady = __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1 << 8) != 0;
}

static int64_t compare(struct ticking* k) {
  uint64_t before = __rdtsc();
  int64_t ns = clock_ns();
  uint64_t took = __rdtsc() - before, at = before + took / 2;
  k->valid = 0;
  if (took > COMPARE_TICKS) return ns;
  if (k->at == 0 || at < k->at || ns < k->ns) {
    k->at = at, k->ns = ns;
  } else if (at - k->at >= RATE_TICKS) {
    k->rate = (double)(ns - k->ns) / (double)(at - k->at);
    k->at = at, k->ns = ns, k->valid = CLOCK_TICKS;
  }
  return ns;
}

static int64_t now(const struct lp_quick* q, struct ticking* k) {
  if (!q->timed) return 0;
  if (!steady) return clock_ns();
  uint64_t past = __rdtsc() - k->at;
  return past < k->valid ? k->ns + (int64_t)((double)past * k->rate) : compare(k);
}
#else
static void look_at_counter(void) {}

static int64_t now(const struct lp_quick* q, struct ticking* k) {
  (void)k;
  return q->timed ? clock_ns() : 0;
}
#endif

static const struct lp_kernels* kernels;

/* ---- Gates ---- */

static struct lp_gate gates[LP_GATES];

struct lp_gate* lp_gates(void) {
  look_at_counter();
  kernels = lp_kernels();
  return gates;
}

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

/* Whoever is inside a gate has its. */
static struct lp_apart aparts[LP_GATES];

/* After a wait in which this rank has yielded: to one that shares its CPU, perhaps without need. */
static void part(struct lp_quick* q, const struct lp_gate* gate) {
  uint32_t at[LP_QUICK_RANKS];
  for (uint32_t p = 0; p < q->ranks; p++) at[p] = p == q->rank ? 0 : LOAD(&q->bells[p][2], RELAXED);
  if (lp_apart(&aparts[gate - gates], at, q->ranks)) q->vain = 0;
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
  if (p.polls > p.spins) part(q, gate);
  *polls = p.polls;
  return true;
}

/* Whether one of the chunks that have come is not in its slot: the core knows where to read it. */
static bool elsewhere(const struct lp_quick* q, const struct lp_quick_recipe* r, uint64_t k) {
  if (r->ring != LP_RING_LARGE || r->from == LP_FROM_NOBODY) return false;
  for (uint32_t p = 0; p < q->ranks; p++)
    if (p != q->rank && (r->from < 0 || p == (uint32_t)r->from) && slot_of(q, &q->rings[r->ring], p, k)->at != 0) return true;
  return false;
}

/* ---- A call ---- */

/* Whether the call is one of the recipe's, with this rank's buffers as it has them. */
static bool fits(const struct lp_quick* q, const struct lp_quick_recipe* r, const struct lp_call* c) {
  uintptr_t s = (uintptr_t)c->send, d = (uintptr_t)c->recv;
  if (r->kind != c->kind || r->count != c->count || r->type != c->type || r->op != c->op || r->peer != c->peer) return false;
  if (r->op >= LP_QUICK_USER && r->ended != LOAD(&q->ended, RELAXED)) return false;
  if (r->send_bytes == 0 || r->recv_bytes == 0 || s + r->send_bytes <= d || d + r->recv_bytes <= s)
    return !r->in_place && (s != 0 || r->send_bytes == 0) && (d != 0 || r->recv_bytes == 0);
  return r->in_place && (int64_t)(s - d) == r->shift;
}

static struct lp_quick_recipe* find(struct lp_quick* q, const struct lp_call* c) {
  uint32_t at;
  if (q->used == 0) return NULL;
  if (fits(q, &q->recipes[q->last], c)) return &q->recipes[q->last];
  at = (uint32_t)lp_quick_hash(c->kind, c->type, c->op, c->peer, c->count) & q->index_mask;
  for (; q->index[at] != 0; at = (at + 1) & q->index_mask) {
    struct lp_quick_recipe* r = &q->recipes[q->index[at] - 1];
    if (!fits(q, r, c)) continue;
    q->last = (uint32_t)(r - q->recipes);
    return r;
  }
  return NULL;
}

static bool special(const struct lp_call* c) {
  return c->stream != NULL || (c->plan | c->plan_digits | c->deadline_us | c->planes | c->scalar_where) != 0;
}

/* Puts a contribution into a slot. */
static void load(const struct lp_quick_recipe* r, enum lp_way way, void* dst, const void* src) {
  if (r->scales)
    kernels[r->type].scale(dst, src, r->factor_at != NULL ? r->factor_at : r->factor, r->block);
  else if (way == LP_PAST)
    lp_copy_past(dst, src, r->block);
  else
    memcpy(dst, src, r->block);
}

static void lay(struct lp_quick* q, const struct lp_quick_recipe* r, const struct lp_call* c, uint64_t k) {
  uint8_t* at = data_of(q, r, q->rank, k);
  const uint8_t* send = c->send;
  fetch_to_write(slot_of(q, &q->rings[r->ring], q->rank, k + WRITE_AHEAD));
  struct lp_timing t = lp_laying(q, &q->rings[r->ring], r->cost_class, k);
  if (r->lay == LP_LAY_BLOCK) {
    load(r, t.way, at, send);
    if (t.on) lp_note(&t, q, q->rank, r->block);
  } else if (r->lay == LP_LAY_PIECES) {
    for (uint32_t p = 0; p < q->ranks; p++)
      if (p != q->rank || r->scales) load(r, t.way, at + (size_t)p * r->stride, send + p * r->block);
    if (t.on) lp_note(&t, q, q->rank, r->block * (q->ranks - 1));
  }
  struct lp_slot* s = slot_of(q, &q->rings[r->ring], q->rank, k);
  s->seq = q->seq, s->chain = q->chain, s->sig = r->sig;
  if (r->ring == LP_RING_LARGE) s->at = 0;
  lp_apart_say(&q->bells[q->rank][2]);
  STORE(&s->number, k + 1, SEQ_CST);
  ring_bells(q);
}

/* Combines n bytes at each of the sources, in the order of ranks. */
static void fold(void (*f)(void*, const void*, const void*, size_t), uint8_t* dst, const uint8_t* const* from, uint32_t ranks, size_t n) {
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
  struct lp_timing t = lp_reading(r->cost_class, k);
  switch (r->take) {
    case LP_TAKE_ONE:
      memcpy(recv, data_of(q, r, (uint32_t)r->from, k) + r->piece, r->block);
      if (t.on) lp_note(&t, q, (uint32_t)r->from, r->block);
      break;
    case LP_TAKE_EACH:
      for (p = 0; p < q->ranks; p++) {
        if (p == q->rank) continue;
        if (p > 0) t = lp_reading(r->cost_class, k);
        memcpy(recv + p * r->block, data_of(q, r, p, k) + r->piece, r->block);
        if (t.on) lp_note(&t, q, p, r->block);
      }
      break;
    case LP_TAKE_FOLD:
      for (p = 0; p < q->ranks; p++) from[p] = data_of(q, r, p, k) + r->piece;
      if (r->own_input) from[q->rank] = send + r->keep_send;
      fold(kernels[r->type].combine[r->combine], recv, from, q->ranks, r->block);
      if (t.on) lp_note_all(&t, q, r->block);
      if (r->divides) kernels[r->type].divide(recv, q->ranks, r->block);
      break;
    default: break;
  }
  if (r->keep) memcpy(recv + r->keep_recv, send + r->keep_send, r->block);
}

static enum lp_quick_end inside(struct lp_gate* gate, struct lp_quick* q, const struct lp_call* c) {
  struct lp_quick_recipe* r = find(q, c);
  if (r == NULL || LOAD(&gate->shut, RELAXED)) return LP_QUICK_NOT;
  struct lp_quick_ring* ring = &q->rings[r->ring];
  struct ticking* clock = &clocks[gate - gates];
  uint64_t k = ring->next;
  if (!have_room(q, ring, k, gate)) return LP_QUICK_NOT;

  uint64_t n = q->head + 1;
  struct lp_quick_record* log = &q->log[n & q->log_mask];
  q->seq++;
  q->chain = lp_quick_mix(lp_quick_mix(q->chain ^ q->seq) ^ r->sig);
  ring->next = k + 1;
  STORE(&log->seq, q->seq, RELAXED);
  STORE(&log->recipe, (uint32_t)(r - q->recipes), RELAXED);
  STORE(&log->done, 0, RELAXED);
  STORE(&log->begin, now(q, clock), RELAXED);
  STORE(&log->end, 0, RELAXED);
  STORE(&q->head, n, RELEASE);
  STORE(&q->calls[r->kind], q->calls[r->kind] + 1, RELAXED);

  lay(q, r, c, k);
  uint32_t polls = 0;
  if (!await(q, r, k, gate, &polls) || elsewhere(q, r, k)) return LP_QUICK_BEGUN;
  if (r->from >= 0 && polls == 0) __builtin_prefetch(slot_of(q, ring, (uint32_t)r->from, k + READ_AHEAD));
  take(q, r, c, k);
  if (((k + 1) & (ring->report - 1)) == 0) {
    STORE(consumed(q, ring, q->rank), k + 1, SEQ_CST);
    ring_bells(q);
  }
  int64_t end = polls > q->spin_short ? now(q, clock) : 0;
  STORE(&log->end, end > log->begin ? end : log->begin, RELAXED);
  STORE(&log->done, 1, RELEASE);
  return LP_QUICK_DONE;
}

enum lp_quick_end lp_quick_run(struct lp_call* call) {
  uint64_t open = call->comm;
  struct lp_gate* gate = &gates[open % LP_GATES];
  /* Handles of other communicators may end alike: the gate knows whose it is. */
  if (LOAD(&gate->word, RELAXED) != open || special(call)) return LP_QUICK_NOT;
  if (!__atomic_compare_exchange_n(&gate->word, &open, LP_GATE_BUSY, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return LP_QUICK_NOT;
  struct lp_quick* q = gate->quick;
  enum lp_quick_end end = inside(gate, q, call);
  if (end == LP_QUICK_BEGUN) {
    q->begun = 1;
    /* Its factor has been used: what goes on does not look for an operator that may be gone meanwhile. */
    if (call->op >= LP_QUICK_USER) call->scalar_where = LP_SCALAR_HERE;
  }
  STORE(&gate->word, end == LP_QUICK_BEGUN ? 0 : call->comm, RELEASE);
  return end;
}
