/* What the front needs to make short calls by itself, on the slots that ranks have in shared memory.
 *
 * collectives/sharedmem (Go) says what a slot is and in which order it is written and read, and shim what of a
 * communicator C may have: struct lp_gate is shim.Gate, struct lp_quick is shared.Quick, and so are their
 * parts; cgo/core checks at compile time that they agree. Everything that could be decided has been
 * decided in Go: a recipe says how a call is made that has been made there before. */
#ifndef LP_QUICK_H
#define LP_QUICK_H

#include <stdint.h>

#define LP_QUICK_RANKS 64
#define LP_QUICK_KINDS 16 /* more than there are kinds of calls */
#define LP_GATES 1024 /* by the last 16 bits of a handle; communicators beyond have none */
#define LP_GATE_BUSY 1u
#define LP_QUICK_USER 5 /* ncclNumOps: operators from here on are the user's, and end */

/* What a rank lays out, and what it takes. */
enum lp_lay { LP_LAY_NOTHING, LP_LAY_BLOCK, LP_LAY_PIECES };
enum lp_take { LP_TAKE_NOTHING, LP_TAKE_ONE, LP_TAKE_EACH, LP_TAKE_FOLD };
#define LP_FROM_EVERYONE (-1)
#define LP_FROM_NOBODY (-2)

/* The beginning of a slot. */
struct lp_slot {
  uint64_t number; /* atomic: chunk + 1, stored last */
  uint64_t seq, chain;
  uint32_t sig, unused;
  uint64_t at; /* in large slots: 0 where the data is here */
};

/* What the slots of one rank cost another one, or itself to lay out: a line, see collectives/sharedmem/laying.go. */
enum lp_way { LP_KEPT, LP_PAST, LP_WAYS };
#define LP_COST_CLASSES 6
struct lp_costs {
  uint32_t per_byte[LP_COST_CLASSES][LP_WAYS]; /* atomic: in picoseconds, and above LP_COST_BITS of which trials */
  uint32_t choice, unused[3];
};
enum { LP_TRIAL_EVERY = 256, LP_TRIAL_AT = 64, LP_TRIAL_RUN = 4, LP_COST_BITS = 24 };

enum { LP_RING_SMALL, LP_RING_MIDDLE, LP_RING_LARGE, LP_RINGS };

struct lp_quick_ring {
  uint64_t next, free, mask, report;
  uint32_t at, slot, counter, unused;
};

struct lp_quick_recipe {
  uint32_t kind;
  int32_t type, op, peer;
  uint64_t count;
  uint64_t send_bytes, recv_bytes;
  int64_t shift;
  uint32_t in_place;

  uint32_t sig;
  uint64_t block, keep_recv, keep_send;
  uint32_t stride, piece;
  int32_t from;
  uint8_t ring, is_inline, lay, take, keep, own_input;
  uint8_t combine, scales, divides;
  int8_t cost_class; /* of struct lp_costs; below 0: none */
  uint8_t unused[2];
  uint32_t ended;        /* of an operator of the user: lp_quick.ended then */
  uint8_t factor[8];     /* an element, where scales is 1 and factor_at is NULL */
  const void *factor_at; /* where that is read instead, by every call */
};

struct lp_quick_record {
  uint64_t seq;
  uint32_t recipe, done;
  int64_t begin, end;
};

struct lp_quick {
  uint8_t *memory;
  uint32_t ranks, rank, per_rank, inline_at, data_at;
  uint32_t spin_long, spin_short, yields, vain, waits;
  uint32_t begun, timed;
  uint32_t costs_at, unused;
  struct lp_quick_ring rings[LP_RINGS];
  uint64_t seq, chain;
  uint32_t used, last;
  struct lp_quick_recipe *recipes;
  uint16_t *index; /* by lp_quick_hash, probed linearly: a recipe's number + 1; some are 0 */
  uint32_t index_mask;
  uint32_t ended; /* atomic: so many operators of the user have been destroyed */
  struct lp_quick_record *log;
  uint64_t log_mask, head;        /* head: atomic */
  uint64_t calls[LP_QUICK_KINDS]; /* atomic: that have been made, by kind */
  uint32_t *bells[LP_QUICK_RANKS]; /* a count and a flag each, see shmring.Doorbell; and where the rank runs, see apart.h */
};

static inline uint64_t lp_quick_mix(uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

/* Of what identifies a recipe: shared.QuickRecipe.hash. */
static inline uint64_t lp_quick_hash(uint32_t kind, int32_t type, int32_t op, int32_t peer, uint64_t count) {
  return lp_quick_mix(lp_quick_mix(count) ^ (uint64_t)(uint32_t)op << 32 ^ (uint64_t)(uint32_t)peer << 16 ^ (uint64_t)kind << 8 ^ (uint64_t)(uint32_t)type);
}

struct lp_gate {
  uint64_t word; /* atomic: the handle while it is open, LP_GATE_BUSY, or 0 */
  struct lp_quick *quick;
  uint32_t shut, unused; /* atomic */
  uint64_t owner, room[4];
};

#endif
