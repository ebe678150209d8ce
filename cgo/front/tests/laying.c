/* Which way a rank's slots are written: trials, what they cost, and what follows from it. Linked with cgo/front/laying.c. */
#include "laying.h"

#include "check.h"

enum { RANKS = 3, PER_RANK = 4096, COSTS_AT = 64 };

static const struct lp_quick_ring ring = {.mask = 15};
enum { WEIGH_AT = LP_TRIAL_AT + LP_WAYS * LP_TRIAL_RUN + 16 };

static uint8_t memory[RANKS * PER_RANK] __attribute__((aligned(64)));

static struct lp_costs* costs(uint32_t rank, uint32_t from) {
  return (struct lp_costs*)(memory + rank * PER_RANK + COSTS_AT) + from;
}

static void copies(void) {
  static uint8_t from[1024], to[1024 + 128];
  for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 7 + 1);
  for (size_t at = 0; at < 64; at += 3)
    for (size_t n = 0; n <= 900; n += n < 140 ? 1 : 53) {
      memset(to, 0, sizeof to);
      lp_copy_past(to + at, from + at % 5, n);
      if (memcmp(to + at, from + at % 5, n) != 0 || to[at + n] != 0 || (at > 0 && to[at - 1] != 0))
        fprintf(stderr, "%zu bytes to %zu\n", n, at), exit(1);
    }
}

static void trials(const struct lp_quick* q) {
  int tried[LP_WAYS] = {0};
  for (uint64_t k = 0; k < 2 * LP_TRIAL_EVERY; k++) {
    struct lp_timing t = lp_laying(q, &ring, 1, k), none = lp_laying(q, &ring, -1, k);
    CHECK(!none.on && none.way == LP_KEPT);
    tried[t.way] += t.on;
    CHECK(t.on == lp_reading(1, k).on);
  }
  CHECK(tried[LP_KEPT] == 2 * LP_TRIAL_RUN && tried[LP_PAST] == 2 * LP_TRIAL_RUN);
}

/* The same cases as collectives/sharedmem has. */
static void weighs(const struct lp_quick* q) {
  static const struct {
    uint32_t lay[LP_WAYS], one[LP_WAYS], two[LP_WAYS];
    enum lp_way want;
  } cases[] = {
      {{0, 0}, {0, 0}, {0, 0}, LP_KEPT},          {{30, 10}, {0, 0}, {0, 0}, LP_KEPT},       {{30, 10}, {100, 0}, {0, 0}, LP_KEPT},
      {{25, 40}, {50, 80}, {50, 80}, LP_KEPT},    {{25, 40}, {50, 80}, {500, 80}, LP_PAST},  {{25, 40}, {85, 80}, {50, 80}, LP_PAST},
      {{25, 40}, {50, 80}, {50, 80}, LP_KEPT},    {{25, 40}, {100, 80}, {0, 0}, LP_KEPT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    memcpy(costs(1, 1)->per_byte[2], cases[i].lay, sizeof cases[i].lay);
    memcpy(costs(0, 1)->per_byte[2], cases[i].one, sizeof cases[i].one);
    memcpy(costs(2, 1)->per_byte[2], cases[i].two, sizeof cases[i].two);
    struct lp_timing t = lp_laying(q, &ring, 2, WEIGH_AT);
    if (t.on || t.way != cases[i].want || lp_laying(q, &ring, 2, 0).way != cases[i].want) fprintf(stderr, "case %zu: %d\n", i, t.way), exit(1);
    CHECK(lp_laying(q, &ring, 1, 0).way == LP_KEPT);
  }
}

/* What is known of reading rank 2's chunks. */
static uint32_t known(void) { return costs(1, 2)->per_byte[0][LP_PAST] & ((1 << LP_COST_BITS) - 1); }

static void notes(const struct lp_quick* q) {
  struct lp_timing t = lp_reading(0, LP_TRIAL_AT + LP_TRIAL_RUN);
  CHECK(t.on && t.way == LP_PAST);
  memset(memory, 0, sizeof memory);
  lp_note(&t, q, 2, 0);
  CHECK(known() == 0);
  t.began -= 1000000000; /* a second ago */
  lp_note(&t, q, 2, 1 << 30);
  uint32_t first = known();
  CHECK(first >= 931 && first < 1200);
  t.began -= 1000000000000; /* interrupted */
  lp_note(&t, q, 2, 1 << 30);
  CHECK(known() == first);
  t.k += LP_TRIAL_EVERY; /* the next trials count alone */
  lp_note(&t, q, 2, 1 << 30);
  CHECK(known() > 900 * first);
  lp_note_all(&t, q, 1 << 30);
  CHECK((costs(1, 0)->per_byte[0][LP_PAST]) > 0 && costs(1, 1)->per_byte[0][LP_PAST] == 0);
}

int main(void) {
  struct lp_quick q = {.memory = memory, .ranks = RANKS, .rank = 1, .per_rank = PER_RANK, .costs_at = COSTS_AT};
  copies();
  trials(&q);
  weighs(&q);
  notes(&q);
  return 0;
}
