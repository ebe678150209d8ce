/* The communicators of a process, by handle. Calls look them up without a lock; entries are never removed. If a library
 * gives a new communicator the handle of one that has ended, it takes over the place. */
#include "record.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 4096 /* a power of two, larger than LP_RECORD_COMMS */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lp_known places[PLACES];

/* The place of a communicator, or the free one where it belongs. */
static struct lp_known* place(ncclComm_t comm) {
  size_t at = (size_t)(lp_handle(comm) * UINT64_C(0x9e3779b97f4a7c15) >> 52) % PLACES;
  for (;; at = (at + 1) % PLACES) {
    ncclComm_t here = __atomic_load_n(&places[at].comm, __ATOMIC_ACQUIRE);
    if (here == comm || here == NULL) return &places[at];
  }
}

struct lp_known* lp_known(ncclComm_t comm) {
  struct lp_known* k = comm != NULL ? place(comm) : NULL;
  return k != NULL && k->comm != NULL && k->entry < LP_RECORD_COMMS ? k : NULL;
}

static void set_ranks(struct lp_known* k, struct lp_record_comm* entry, uint32_t ranks, uint32_t rank) {
  k->sent = calloc(2 * (size_t)ranks, sizeof *k->sent);
  k->received = k->sent != NULL ? k->sent + ranks : NULL;
  entry->rank = rank;
  entry->ranks = ranks;
  __atomic_store_n(&k->ranks, ranks, __ATOMIC_RELEASE);
}

void lp_know(ncclComm_t comm, uint64_t id, uint32_t ranks, uint32_t rank, ncclComm_t parent) {
  struct lp_record_file* f = lp_record_open();
  struct lp_known *k, *p = lp_known(parent);
  struct lp_record_comm* entry;
  if (f == NULL || comm == NULL) return;
  pthread_mutex_lock(&mutex);
  if (f->header.comms < LP_RECORD_COMMS) {
    k = place(comm);
    entry = &f->comms[f->header.comms];
    entry->id = id;
    entry->parent = p != NULL ? p->entry + 1 : 0;
    free(k->sent);
    k->sent = k->received = NULL;
    k->entry = f->header.comms;
    k->ranks = 0;
    k->collectives = k->children = 0;
    if (ranks > 0) set_ranks(k, entry, ranks, rank);
    __atomic_store_n(&f->header.comms, k->entry + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&k->comm, comm, __ATOMIC_RELEASE);
  } else {
    place(comm)->entry = LP_RECORD_COMMS; /* one that has ended had the handle */
  }
  pthread_mutex_unlock(&mutex);
}

bool lp_know_ranks(struct lp_known* k) {
  struct lp_record_file* f = lp_record_now();
  int ranks = 0, rank = 0;
  if (__atomic_load_n(&k->ranks, __ATOMIC_ACQUIRE) > 0) return true;
  if (LP_REAL(ncclCommCount)(k->comm, &ranks) != ncclSuccess || ranks < 1 ||
      LP_REAL(ncclCommUserRank)(k->comm, &rank) != ncclSuccess)
    return false;
  pthread_mutex_lock(&mutex);
  if (k->ranks == 0) set_ranks(k, &f->comms[k->entry], (uint32_t)ranks, (uint32_t)rank);
  pthread_mutex_unlock(&mutex);
  return true;
}

void lp_known_after_fork(void) {
  pthread_mutex_init(&mutex, NULL);
  memset(places, 0, sizeof places);
}
