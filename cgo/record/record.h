/* The recorder of the calls of NCCL: a library that is preloaded into a job in place of libnccl.so.2. It passes every
 * call to the library that makes it, and keeps the call's shape and time. It never touches data, devices or streams.
 *
 * The record is a file of fixed size, mapped into memory: a call that is written survives the death of its process. */
#ifndef LP_RECORD_H
#define LP_RECORD_H

#include "../front/front.h"

/* ---- The file: header, communicators, ring of calls. shim/recording reads it. ---- */

enum {
  LP_RECORD_VERSION = 1,
  LP_RECORD_COMMS = 1024,
  LP_RECORD_CALLS = 1 << 15,
  LP_RECORD_GROUP_END = 255, /* a kind besides those of lp_call */
};
#define LP_RECORD_MAGIC "LPRECORD"

struct lp_record_header {
  char magic[8];
  uint32_t version, comm_room, call_room;
  int32_t pid, launcher_rank; /* -1: the launcher has set none */
  uint32_t comms;
  int64_t monotonic, realtime; /* ns, of one moment */
  uint64_t calls;              /* written, with those that the ring has lost */
  uint64_t groups;
  uint64_t unknown; /* calls without an entry: of communicators beyond comm_room, or made by ncclCommGrow */
  char host[64];
  char library[376];
};

struct lp_record_comm {
  uint64_t id; /* equal on all its ranks */
  uint32_t ranks, rank;
  uint32_t parent; /* of a split or shrunk one: the number of its entry, counted from 1; else 0 */
  uint32_t reserved;
};

/* A call. In a group it has no times: those of the group are in the record of its end. */
struct lp_record_call {
  uint64_t seq;       /* n for the n-th call of the process, counted from 1; another value: not written */
  int64_t begin, end; /* ns, monotonic; end 0 of a group: it has not been run */
  uint64_t count;
  uint64_t number; /* of this collective of its communicator, or of this message between the two ranks, from 0 */
  uint64_t group;  /* 0: none */
  int32_t peer;    /* or root */
  uint16_t comm;
  uint8_t kind, type_bytes, op;
  uint8_t stream; /* 1: it has a stream, so the times are those of issuing it */
  uint8_t reserved[6];
};

struct lp_record_file {
  struct lp_record_header header;
  struct lp_record_comm comms[LP_RECORD_COMMS];
  struct lp_record_call calls[LP_RECORD_CALLS];
};

_Static_assert(sizeof(struct lp_record_header) == 512 && sizeof(struct lp_record_comm) == 24 &&
                   sizeof(struct lp_record_call) == 64,
               "the format of the file");

/* ---- real.c: the library that makes the calls ---- */

/* Its function of that name, never NULL. If it has none, a function that fails. */
void* lp_real(const char* name);
/* The path of its file. */
const char* lp_real_path(void);
/* The same, looked up once. */
#define LP_REAL(NAME)                                                                    \
  ({                                                                                     \
    static void* real_;                                                                  \
    void* known_ = __atomic_load_n(&real_, __ATOMIC_RELAXED);                            \
    if (known_ == NULL) __atomic_store_n(&real_, known_ = lp_real(#NAME), __ATOMIC_RELAXED); \
    (__typeof__(NAME)*)known_;                                                           \
  })

/* ---- file.c ---- */

/* The file of this process. The first call makes it; NULL if nothing is to be recorded, or it cannot be made. */
struct lp_record_file* lp_record_open(void);
/* The same, or NULL if it has not been made. */
struct lp_record_file* lp_record_now(void);
/* In a child of fork, which has another file. */
void lp_record_after_fork(void);

/* ---- comms.c ---- */

/* The facts known of a communicator of this process. */
struct lp_known {
  ncclComm_t comm; /* written last */
  uint32_t entry; /* LP_RECORD_COMMS: there is no room for it */
  uint32_t ranks; /* 0: not known yet */
  uint64_t collectives, children;
  uint64_t *sent, *received; /* messages by peer; NULL without memory */
};

/* NULL if it is not known. */
struct lp_known* lp_known(ncclComm_t comm);
/* Makes an entry for a communicator. ranks 0: the library is asked at its first call. */
void lp_know(ncclComm_t comm, uint64_t id, uint32_t ranks, uint32_t rank, ncclComm_t parent);
/* Asks the library for ranks and rank, if they are not known. Returns whether they are. */
bool lp_know_ranks(struct lp_known* k);
void lp_known_after_fork(void);

#endif
