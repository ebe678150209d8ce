/* Short calls on shared memory, made without the core: the way into Go and back would take most of their time.
 *
 * A communicator's gate admits one thread. Inside, the thread has the arena to itself: it fills its rank's slot and
 * reads the peers' slots, as collectives/sharedmem does, whose ranks may be among the peers. Everything unusual is
 * left to the core: before the slot is filled the whole call, afterwards (a peer does not come, or makes another
 * call) the rest of it. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "combine/combine.h"
#include "cpu_spread.h"
#include "front.h"

#define LOAD(p, order) __atomic_load_n(p, __ATOMIC_##order)
#define STORE(p, v, order) __atomic_store_n(p, v, __ATOMIC_##order)

/* ---- Gates ---- */

static struct lp_gate gates[LP_GATES];
static const struct lp_kernels* kernels;

/* State of each gate beside the communicator's, owned by the thread inside. */
static struct {
  struct clock {
    uint64_t at; /* ticks at the last comparison with CLOCK_MONOTONIC, 0: there was none */
    int64_t ns;  /* and the time */
    double rate; /* nanoseconds per tick */
    uint64_t valid; /* ticks for which the rate holds, 0: unknown */
  } clock;
  struct lp_spread spread;
} inside[LP_GATES];

/* ---- The clock: CLOCK_MONOTONIC to a tenth of a microsecond, in half the time ---- */

static int64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#ifdef __x86_64__
/* For CLOCK_TICKS after a comparison with the clock, the processor's counter alone tells the time, by the rate
 * between the last two comparisons, which are at least RATE_TICKS apart. A comparison that takes longer than
 * COMPARE_TICKS was interrupted. */
enum { CLOCK_TICKS = 1 << 21, RATE_TICKS = 1 << 20, COMPARE_TICKS = 1 << 11 };

static bool steady; /* the counter's rate does not depend on the processor's frequency */

static void look_at_counter(void) {
  unsigned a, b, c, d;
  steady = __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1 << 8) != 0;
}

static int64_t compare(struct clock* k) {
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

static int64_t now(const struct lp_quick* q, struct clock* k) {
  if (!q->timed) return 0;
  if (!steady) return clock_ns();
  uint64_t past = __rdtsc() - k->at;
  return past < k->valid ? k->ns + (int64_t)((double)past * k->rate) : compare(k);
}
#else
static void look_at_counter(void) {}

static int64_t now(const struct lp_quick* q, struct clock* k) {
  (void)k;
  return q->timed ? clock_ns() : 0;
}
#endif

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

/* Slots are used in turn. While a slot is filled or read, the first line of a later slot is fetched. That is the slot
 * that this rank will fill, or the slot that it will read if its writer seems to be ahead. */
enum { WRITE_AHEAD = 6, READ_AHEAD = 2 };

static void fetch_to_write(const void* line) {
#ifdef __x86_64__
  __asm__ volatile("prefetchw %0" : : "m"(*(const char*)line)); /* compilers use it for some targets only */
#else
  __builtin_prefetch(line, 1);
#endif
}

/* Wakes peers that sleep. The caller has stored what they wait for with sequential consistency. */
static void ring_bells(const struct lp_quick* q) {
  for (uint32_t p = 0; p < q->ranks; p++) {
    uint32_t* bell = q->bells[p];
    if (p == q->rank || LOAD(&bell[1], SEQ_CST) == 0 || __atomic_exchange_n(&bell[1], 0, __ATOMIC_SEQ_CST) == 0)
      continue;
    __atomic_fetch_add(&bell[0], 1, __ATOMIC_SEQ_CST);
    int saved = errno;
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = saved;
  }
}

/* ---- Waiting: as shim waits in a call that is alone ---- */

struct patience {
  struct lp_quick* q;
  uint32_t polls, spins;
  int64_t yielded; /* when it last yielded, 0: it has not */
};

static struct patience patience_for(struct lp_quick* q) {
  bool spin = q->vain < LP_SPIN_VAIN || ++q->waits % LP_SPIN_RETRY == 0;
  return (struct patience){q, 0, spin ? q->spin_long : q->spin_short, 0};
}

/* Yields the CPU, as exec.Yielder does. After a long yield it returns false in the next waits. */
static bool yield(struct patience* p) {
  int64_t before = p->yielded;
  if (p->q->sleeps < 0) return sched_yield(), true;
  if (p->q->sleeps > 0) return p->q->sleeps--, false;
  if (before == 0) before = clock_ns();
  sched_yield();
  p->yielded = clock_ns();
  if (p->yielded - before >= LP_LONG_YIELD) p->q->sleeps = LP_SLEEP_WAITS;
  return true;
}

/* Passes a little time; false when the call should continue in Go. */
static bool wait_more(struct patience* p, const struct lp_gate* gate) {
  if (p->polls++ < p->spins) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
    return true;
  }
  if (p->polls > p->spins + p->q->yields || LOAD(&gate->shut, RELAXED)) return false;
  return yield(p);
}

/* Notes whether spinning paid. A wait that ended at once says nothing. */
static void learn(const struct patience* p) {
  if (p->polls <= p->q->spin_short) return;
  if (p->polls <= p->spins)
    p->q->vain = 0;
  else if (p->spins == p->q->spin_long)
    p->q->vain++;
}

/* The word of a rank's bell that says on which CPU the rank runs. */
static uint32_t* cpu_of(const struct lp_quick* q, uint32_t rank) { return &q->bells[rank][2]; }

/* After a wait in which this rank has yielded: it may share its CPU with a peer without need. */
static void spread(struct lp_quick* q, const struct lp_gate* gate) {
  uint32_t at[LP_QUICK_RANKS];
  for (uint32_t p = 0; p < q->ranks; p++) at[p] = p == q->rank ? 0 : LOAD(cpu_of(q, p), RELAXED);
  if (lp_spread(&inside[gate - gates].spread, at, q->ranks)) q->vain = 0;
}

/* Waits until this rank may fill the slot of chunk k. */
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

/* Whether rank's chunk has arrived and is part of this call. If it is part of another, the core reports the error. */
static bool arrived(const struct lp_quick* q, const struct lp_quick_recipe* r, uint32_t rank, uint64_t k) {
  struct lp_slot* s = slot_of(q, &q->rings[r->ring], rank, k);
  return LOAD(&s->number, ACQUIRE) == k + 1 && s->seq == q->seq && s->signature == r->signature && s->chain == q->chain;
}

static bool await(struct lp_quick* q, const struct lp_quick_recipe* r, uint64_t k, const struct lp_gate* gate,
                  uint32_t* polls) {
  uint32_t first = 0, n = q->ranks;
  if (r->from == LP_FROM_NONE) return true;
  if (r->from >= 0) first = (uint32_t)r->from, n = first + 1;
  struct patience p = patience_for(q);
  for (uint32_t rank = first; rank < n; rank++)
    while (rank != q->rank && !arrived(q, r, rank, k))
      if (!wait_more(&p, gate)) {
        learn(&p);
        return false;
      }
  learn(&p);
  if (p.polls > p.spins && q->spread) spread(q, gate);
  *polls = p.polls;
  return true;
}

/* Whether an arrived chunk lies outside its slot. The core knows where to read it. */
static bool elsewhere(const struct lp_quick* q, const struct lp_quick_recipe* r, uint64_t k) {
  if (r->ring != LP_RING_LARGE || r->from == LP_FROM_NONE) return false;
  for (uint32_t p = 0; p < q->ranks; p++)
    if (p != q->rank && (r->from < 0 || p == (uint32_t)r->from) && slot_of(q, &q->rings[r->ring], p, k)->at != 0)
      return true;
  return false;
}

/* ---- Recipes ---- */

static uint64_t mix(uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

/* sharedmem.QuickRecipe.hash. */
static uint64_t hash(const struct lp_call* c) {
  return mix(mix(c->count) ^ (uint64_t)(uint32_t)c->op << 32 ^ (uint64_t)(uint32_t)c->peer << 16 ^
             (uint64_t)c->kind << 8 ^ (uint64_t)(uint32_t)c->type);
}

/* Whether the recipe is for the call, with buffers that lie to each other as in the recipe. */
static bool fits(const struct lp_quick* q, const struct lp_quick_recipe* r, const struct lp_call* c) {
  uintptr_t s = (uintptr_t)c->send, d = (uintptr_t)c->recv;
  if (r->kind != c->kind || r->count != c->count || r->type != c->type || r->op != c->op || r->peer != c->peer)
    return false;
  if (r->op >= LP_QUICK_USER && r->ended != LOAD(&q->ended, RELAXED)) return false;
  if (r->send_bytes == 0 || r->recv_bytes == 0 || s + r->send_bytes <= d || d + r->recv_bytes <= s)
    return !r->in_place && (s != 0 || r->send_bytes == 0) && (d != 0 || r->recv_bytes == 0);
  return r->in_place && (int64_t)(s - d) == r->shift;
}

static struct lp_quick_recipe* find(struct lp_quick* q, const struct lp_call* c) {
  uint32_t at;
  if (q->used == 0) return NULL;
  if (fits(q, &q->recipes[q->last], c)) return &q->recipes[q->last];
  at = (uint32_t)hash(c) & q->index_mask;
  for (; q->index[at] != 0; at = (at + 1) & q->index_mask) {
    struct lp_quick_recipe* r = &q->recipes[q->index[at] - 1];
    if (!fits(q, r, c)) continue;
    q->last = (uint32_t)(r - q->recipes);
    return r;
  }
  return NULL;
}

/* Whether a call has options, or a stream, that no recipe has. */
static bool special(const struct lp_call* c) {
  return c->stream != NULL || (c->plan | c->plan_digits | c->deadline_us | c->planes | c->scalar_where) != 0;
}

/* Whether Go must make the call of chunk k: it is a trial of slot placements, or Go compares their costs then. */
static bool for_trial(const struct lp_quick_recipe* r, const struct lp_quick_ring* ring, uint64_t k) {
  uint64_t at = k % LP_TRIAL_EVERY - LP_TRIAL_AT; /* wraps before the trials */
  return r->cost_class >= 0 && (at < LP_TRIAL_CHUNKS || at == LP_TRIAL_CHUNKS + ring->mask + 1);
}

/* ---- A call ---- */

/* Copies a contribution into a slot, past the caches or not. */
static void load(const struct lp_quick_recipe* r, bool past, void* dst, const void* src) {
  if (r->scales)
    kernels[r->type].scale(dst, src, r->factor_at != NULL ? r->factor_at : r->factor, r->block);
  else if (past)
    lp_copy_past(dst, src, r->block);
  else
    memcpy(dst, src, r->block);
}

static void fill(struct lp_quick* q, const struct lp_quick_recipe* r, const struct lp_call* c, uint64_t k) {
  uint8_t* at = data_of(q, r, q->rank, k);
  const uint8_t* send = c->send;
  bool past = r->cost_class >= 0 && (LOAD(q->choice, RELAXED) >> r->cost_class & 1) != 0;
  fetch_to_write(slot_of(q, &q->rings[r->ring], q->rank, k + WRITE_AHEAD));
  if (r->fill == LP_FILL_BLOCK) {
    load(r, past, at, send);
  } else if (r->fill == LP_FILL_PIECES) {
    for (uint32_t p = 0; p < q->ranks; p++)
      if (p != q->rank || r->scales) load(r, past, at + (size_t)p * r->stride, send + p * r->block);
  }
  struct lp_slot* s = slot_of(q, &q->rings[r->ring], q->rank, k);
  s->seq = q->seq, s->chain = q->chain, s->signature = r->signature;
  if (r->ring == LP_RING_LARGE) s->at = 0;
  if (q->spread) lp_spread_say(cpu_of(q, q->rank));
  STORE(&s->number, k + 1, SEQ_CST);
  ring_bells(q);
}

/* Combines n bytes of each of the sources, in the order of ranks. */
static void fold(void (*f)(void*, const void*, const void*, size_t), uint8_t* dst, const uint8_t* const* from,
                 uint32_t ranks, size_t n) {
  uint8_t tile[2048] __attribute__((aligned(64)));
  if (ranks == 2) {
    f(dst, from[0], from[1], n);
    return;
  }
  for (size_t at = 0; at < n; at += sizeof tile) {
    size_t m = n - at < sizeof tile ? n - at : sizeof tile;
    f(tile, from[0] + at, from[1] + at, m);
    for (uint32_t p = 2; p < ranks; p++) f(tile, tile, from[p] + at, m);
    memcpy(dst + at, tile, m); /* dst may be one of the sources */
  }
}

static void read_slots(struct lp_quick* q, const struct lp_quick_recipe* r, const struct lp_call* c, uint64_t k) {
  const uint8_t* from[LP_QUICK_RANKS];
  const uint8_t* send = c->send;
  uint8_t* recv = c->recv;
  uint32_t p;
  switch (r->read) {
    case LP_READ_ONE: memcpy(recv, data_of(q, r, (uint32_t)r->from, k) + r->piece, r->block); break;
    case LP_READ_EACH:
      for (p = 0; p < q->ranks; p++)
        if (p != q->rank) memcpy(recv + p * r->block, data_of(q, r, p, k) + r->piece, r->block);
      break;
    case LP_READ_FOLD:
      for (p = 0; p < q->ranks; p++) from[p] = data_of(q, r, p, k) + r->piece;
      if (r->own_input) from[q->rank] = send + r->own_from;
      fold(kernels[r->type].combine[r->combine], recv, from, q->ranks, r->block);
      if (r->divides) kernels[r->type].divide(recv, q->ranks, r->block);
      break;
    default: break;
  }
  if (r->copy_own) memcpy(recv + r->own_to, send + r->own_from, r->block);
}

/* Numbers the call, and begins its record. */
static struct lp_quick_record* begin(struct lp_quick* q, const struct lp_quick_recipe* r, struct clock* clock) {
  uint64_t n = q->head + 1;
  struct lp_quick_record* log = &q->log[n & q->log_mask];
  q->seq++;
  q->chain = mix(mix(q->chain ^ q->seq) ^ r->signature);
  STORE(&log->seq, q->seq, RELAXED);
  STORE(&log->recipe, (uint32_t)(r - q->recipes), RELAXED);
  STORE(&log->done, 0, RELAXED);
  STORE(&log->begin, now(q, clock), RELAXED);
  STORE(&log->end, 0, RELAXED);
  STORE(&q->head, n, RELEASE);
  STORE(&q->call_counts[r->kind], q->call_counts[r->kind] + 1, RELAXED);
  return log;
}

static enum lp_quick_end run(struct lp_gate* gate, struct lp_quick* q, const struct lp_call* c) {
  struct lp_quick_recipe* r = find(q, c);
  if (r == NULL || LOAD(&gate->shut, RELAXED)) return LP_QUICK_NOT;
  struct lp_quick_ring* ring = &q->rings[r->ring];
  struct clock* clock = &inside[gate - gates].clock;
  uint64_t k = ring->next;
  if (for_trial(r, ring, k) || !have_room(q, ring, k, gate)) return LP_QUICK_NOT;

  struct lp_quick_record* log = begin(q, r, clock);
  ring->next = k + 1;
  fill(q, r, c, k);
  uint32_t polls = 0;
  if (!await(q, r, k, gate, &polls) || elsewhere(q, r, k)) return LP_QUICK_BEGUN;
  if (r->from >= 0 && polls == 0) __builtin_prefetch(slot_of(q, ring, (uint32_t)r->from, k + READ_AHEAD));
  read_slots(q, r, c, k);
  if (((k + 1) & (ring->report - 1)) == 0) {
    STORE(consumed(q, ring, q->rank), k + 1, SEQ_CST);
    ring_bells(q);
  }
  bool measured = q->timed > 1;
  int64_t end = measured || polls > q->spin_short ? now(q, clock) : 0;
  if (end < log->begin) end = log->begin;
  STORE(&log->end, end, RELAXED);
  if (measured) {
    STORE(&r->calls, r->calls + 1, RELAXED);
    STORE(&r->nanoseconds, r->nanoseconds + (uint64_t)(end - log->begin), RELAXED);
  }
  STORE(&log->done, 1, RELEASE);
  return LP_QUICK_DONE;
}

enum lp_quick_end lp_quick_run(struct lp_call* call) {
  uint64_t open = call->comm;
  struct lp_gate* gate = &gates[open % LP_GATES];
  /* Several communicators share a gate; its word is the handle of the one that has it. */
  if (LOAD(&gate->word, RELAXED) != open || special(call)) return LP_QUICK_NOT;
  if (!__atomic_compare_exchange_n(&gate->word, &open, LP_GATE_BUSY, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return LP_QUICK_NOT;
  struct lp_quick* q = gate->quick;
  enum lp_quick_end end = run(gate, q, call);
  if (end == LP_QUICK_BEGUN) {
    q->begun = 1;
    /* The factor has been applied. The rest of the call must not look up its operator, which may be destroyed
     * meanwhile. */
    if (call->op >= LP_QUICK_USER) call->scalar_where = LP_SCALAR_HERE;
  }
  STORE(&gate->word, end == LP_QUICK_BEGUN ? 0 : call->comm, RELEASE);
  return end;
}
