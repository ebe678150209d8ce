#include "laying.h"

#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LINE = 64, COST_MASK = (1 << LP_COST_BITS) - 1 };

static struct lp_costs* costs_of(const struct lp_quick* q, uint32_t rank, uint32_t from) {
  return (struct lp_costs*)(q->memory + (size_t)rank * q->per_rank + q->costs_at + (size_t)from * sizeof(struct lp_costs));
}

static uint32_t load(const uint32_t* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
static void store(uint32_t* at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }

static int64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void lp_trial(struct lp_timing* t, uint64_t k) {
  uint64_t at = k % LP_TRIAL_EVERY - LP_TRIAL_AT; /* far beyond the trials where that is before them */
  if (at >= LP_WAYS * LP_TRIAL_RUN) return;
  t->on = true;
  t->way = (enum lp_way)(at / LP_TRIAL_RUN);
  t->k = k;
  t->began = clock_ns();
}

/* What a way costs, 0 where that is not known. */
static uint32_t cost(const struct lp_quick* q, int class, enum lp_way way) {
  uint32_t lay = 0, read = 0;
  for (uint32_t r = 0; r < q->ranks; r++) {
    uint32_t c = load(&costs_of(q, r, q->rank)->per_byte[class][way]) & COST_MASK;
    if (r == q->rank)
      lay = c;
    else if (c > read)
      read = c;
  }
  return lay == 0 || read == 0 ? 0 : lay + read;
}

static void weigh(const struct lp_quick* q) {
  struct lp_costs* mine = costs_of(q, q->rank, q->rank);
  uint32_t choice = load(&mine->choice);
  for (int class = 0; class < LP_COST_CLASSES; class++) {
    uint32_t kept = cost(q, class, LP_KEPT), past = cost(q, class, LP_PAST);
    if (kept == 0 || past == 0) continue;
    if (past < kept - kept / 8)
      choice |= 1u << class;
    else if (kept < past - past / 8)
      choice &= ~(1u << class);
  }
  store(&mine->choice, choice);
}

enum lp_way lp_chosen(const struct lp_quick* q, const struct lp_quick_ring* ring, int cost_class, uint64_t k) {
  if (k % LP_TRIAL_EVERY == LP_TRIAL_AT + LP_WAYS * LP_TRIAL_RUN + ring->mask + 1) weigh(q);
  return (enum lp_way)(load(&costs_of(q, q->rank, q->rank)->choice) >> cost_class & 1);
}

static void note(struct lp_costs* c, const struct lp_timing* t, size_t bytes, int64_t took) {
  if (bytes == 0) return;
  uint32_t* at = &c->per_byte[t->cost_class][t->way];
  uint32_t trials = (uint32_t)(t->k / LP_TRIAL_EVERY) << LP_COST_BITS, old = load(at);
  int64_t cost = took * 1000 / (int64_t)bytes;
  if (cost < 1) cost = 1;
  if (cost > COST_MASK) cost = COST_MASK;
  if ((old & ~(uint32_t)COST_MASK) == trials && (old & COST_MASK) != 0 && cost > (old & COST_MASK)) cost = old & COST_MASK;
  store(at, trials | (uint32_t)cost);
}

void lp_note(const struct lp_timing* t, const struct lp_quick* q, uint32_t p, size_t bytes) {
  note(costs_of(q, q->rank, p), t, bytes, clock_ns() - t->began);
}

void lp_note_all(const struct lp_timing* t, const struct lp_quick* q, size_t bytes) {
  int64_t took = clock_ns() - t->began;
  for (uint32_t p = 0; p < q->ranks; p++)
    if (p != q->rank) note(costs_of(q, q->rank, p), t, bytes * (q->ranks - 1), took);
}

void lp_copy_past(void* dst, const void* src, size_t n) {
#ifdef __SSE2__
  char* d = dst;
  const char* s = src;
  size_t head = -(uintptr_t)d % LINE;
  if (head > n) head = n;
  memcpy(d, s, head);
  for (d += head, s += head, n -= head; n >= LINE; d += LINE, s += LINE, n -= LINE) {
    __m128i a = _mm_loadu_si128((const __m128i*)s), b = _mm_loadu_si128((const __m128i*)s + 1);
    __m128i c = _mm_loadu_si128((const __m128i*)s + 2), e = _mm_loadu_si128((const __m128i*)s + 3);
    _mm_stream_si128((__m128i*)d, a), _mm_stream_si128((__m128i*)d + 1, b);
    _mm_stream_si128((__m128i*)d + 2, c), _mm_stream_si128((__m128i*)d + 3, e);
  }
  memcpy(d, s, n);
  _mm_sfence(); /* other stores do not pass these */
#else
  memcpy(dst, src, n);
#endif
}
