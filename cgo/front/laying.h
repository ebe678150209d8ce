/* How what a rank brings gets into its slots: collectives/sharedmem/laying.go says it, this does the same to the same tables. */
#ifndef LAYING_H
#define LAYING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../core/lp_quick.h"

/* A measurement, if on. */
struct lp_timing {
  bool on;
  enum lp_way way;
  int cost_class;
  uint64_t k;
  int64_t began;
};

/* Begins to time chunk k where it is a trial, and says which way that goes. Not for calls of no class. */
void lp_trial(struct lp_timing* t, uint64_t k);

/* The way that this rank has chosen, after it has looked at the trials where chunk k of a ring is the time for it. */
enum lp_way lp_chosen(const struct lp_quick* q, const struct lp_quick_ring* ring, int cost_class, uint64_t k);

/* Of what is read of chunk k. */
static inline struct lp_timing lp_reading(int cost_class, uint64_t k) {
  struct lp_timing t = {.cost_class = cost_class, .way = LP_KEPT};
  if (cost_class >= 0) lp_trial(&t, k);
  return t;
}

/* Of what is laid out of it, and which way. */
static inline struct lp_timing lp_laying(const struct lp_quick* q, const struct lp_quick_ring* ring, int cost_class, uint64_t k) {
  struct lp_timing t = lp_reading(cost_class, k);
  if (cost_class >= 0 && !t.on) t.way = lp_chosen(q, ring, cost_class, k);
  return t;
}

/* Notes what bytes that rank p laid out have cost, and what as many of each of the others have. */
void lp_note(const struct lp_timing* t, const struct lp_quick* q, uint32_t p, size_t bytes);
void lp_note_all(const struct lp_timing* t, const struct lp_quick* q, size_t bytes);

/* memcpy past the caches, where the processor can; others see it like any. */
void lp_copy_past(void* dst, const void* src, size_t n);

#endif
