/* Communicators: making, asking, ending. */
#include "front.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ncclConfig_t of 2.14, the first: header and blocking. */
#define CONFIG_MIN 24

LP_API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId* uniqueId)) {
  char err[LP_ERR_BYTES] = "";
  ncclResult_t why;
  const struct lp_core* core;
  if (uniqueId == NULL) return lp_fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
  core = lp_core(&why);
  if (core == NULL) return why;
  return lp_result(core->get_unique_id((unsigned char*)uniqueId->internal, err, sizeof err), err);
}

/* ---- Making ---- */

ncclResult_t lp_init_now(struct lp_init* inits, ncclComm_t* const* out, size_t n) {
  char err[LP_ERR_BYTES] = "";
  ncclResult_t rc;
  size_t i;
  const struct lp_core* core = lp_core(&rc);
  if (core == NULL) return rc;
  rc = lp_result(core->init(inits, n, err, sizeof err), err);
  for (i = 0; rc == ncclSuccess && i < n; i++) *out[i] = (ncclComm_t)(uintptr_t)inits[i].comm;
  return rc;
}

static ncclResult_t make(struct lp_init* inits, ncclComm_t* const* out, size_t n) {
  ncclResult_t rc;
  size_t i;
  for (i = 0; i < n; i++) *out[i] = NULL;
  if (!lp_group_open()) return lp_init_now(inits, out, n);
  if (lp_core(&rc) == NULL) return lp_group_note(rc);
  return lp_group_add_inits(inits, out, n);
}

static bool undef(int v) { return v == NCCL_CONFIG_UNDEF_INT; }

/* Copies what is known of a configuration of any age into *mine: size says which fields the caller
 * had, and the rest stay undefined. Size alone cannot tell padding from trafficClass (both structures
 * had 48 bytes), which nothing here reads. */
static ncclResult_t read_config(const char* function, const ncclConfig_t* config, ncclConfig_t* mine) {
  static const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
  *mine = fresh;
  if (config == NULL) return ncclSuccess;
  if (config->size < CONFIG_MIN || config->magic != NCCL_API_MAGIC)
    return lp_fail(ncclInvalidArgument, "%s: config is not initialized with NCCL_CONFIG_INITIALIZER (size %zu, magic 0x%x)",
                   function, config->size, config->magic);
  if (config->version < NCCL_VERSION(2, 14, 0))
    return lp_fail(ncclInvalidArgument, "%s: config: version %u is older than configurations are", function,
                   config->version);
  memcpy(mine, config, config->size < sizeof *mine ? config->size : sizeof *mine);
  if (undef(mine->blocking)) mine->blocking = 1;
  if (mine->blocking != 0 && mine->blocking != 1)
    return lp_fail(ncclInvalidArgument, "%s: config: blocking is %d, not 0 or 1", function, mine->blocking);
  if ((!undef(mine->minCTAs) && mine->minCTAs <= 0) || (!undef(mine->maxCTAs) && mine->maxCTAs <= 0) ||
      (!undef(mine->minCTAs) && !undef(mine->maxCTAs) && mine->minCTAs > mine->maxCTAs))
    return lp_fail(ncclInvalidArgument, "%s: config: minCTAs %d and maxCTAs %d are no range", function, mine->minCTAs,
                   mine->maxCTAs);
  return ncclSuccess;
}

static ncclResult_t init_rank(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId* id, int rank,
                              const ncclConfig_t* config) {
  struct lp_init init = {.nranks = nranks, .rank = rank, .device = 0};
  ncclConfig_t mine;
  ncclResult_t rc;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "%s: comm is NULL", function);
  if (nranks < 1) return lp_fail(ncclInvalidArgument, "%s: nranks is %d, must be at least 1", function, nranks);
  if (rank < 0 || rank >= nranks)
    return lp_fail(ncclInvalidArgument, "%s: rank is %d, must be 0 .. %d", function, rank, nranks - 1);
  rc = read_config(function, config, &mine);
  if (rc != ncclSuccess) return rc;
  memcpy(init.id, id->internal, sizeof init.id);
  init.blocking = mine.blocking != 0; /* undefined is blocking */
  init.name = mine.commName;
  return make(&init, &comm, 1);
}

LP_API(ncclResult_t, ncclCommInitRank, (ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank)) {
  return init_rank("ncclCommInitRank", comm, nranks, &commId, rank, NULL);
}

LP_API(ncclResult_t, ncclCommInitRankConfig,
       (ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config)) {
  return init_rank("ncclCommInitRankConfig", comm, nranks, &commId, rank, config);
}

LP_API(ncclResult_t, ncclCommInitRankScalable,
       (ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds, ncclConfig_t* config)) {
  if (commIds == NULL) return lp_fail(ncclInvalidArgument, "ncclCommInitRankScalable: commIds is NULL");
  if (nId < 1) return lp_fail(ncclInvalidArgument, "ncclCommInitRankScalable: nId is %d, must be at least 1", nId);
  if (nId > 1)
    return lp_group_note(lp_unsupported("ncclCommInitRankScalable with several ids", "pass one id (nId = 1)"));
  return init_rank("ncclCommInitRankScalable", newcomm, nranks, commIds, myrank, config);
}

LP_API(ncclResult_t, ncclCommInitAll, (ncclComm_t* comm, int ndev, const int* devlist)) {
  ncclUniqueId id;
  struct lp_init* inits;
  ncclComm_t** out;
  ncclResult_t rc;
  int i;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclCommInitAll: comm is NULL");
  if (ndev < 1) return lp_fail(ncclInvalidArgument, "ncclCommInitAll: ndev is %d, must be at least 1", ndev);
  for (i = 0; devlist != NULL && i < ndev; i++)
    if (devlist[i] < 0) return lp_fail(ncclInvalidArgument, "ncclCommInitAll: devlist[%d] is %d", i, devlist[i]);
  rc = pncclGetUniqueId(&id);
  if (rc != ncclSuccess) return lp_group_note(rc);
  inits = calloc((size_t)ndev, sizeof *inits);
  out = calloc((size_t)ndev, sizeof *out);
  if (inits == NULL || out == NULL) {
    rc = lp_group_note(lp_fail(ncclSystemError, "ncclCommInitAll: out of memory for %d communicators", ndev));
  } else {
    for (i = 0; i < ndev; i++) {
      memcpy(inits[i].id, id.internal, sizeof id.internal);
      inits[i].nranks = ndev;
      inits[i].rank = i;
      inits[i].device = devlist != NULL ? devlist[i] : i;
      inits[i].blocking = 1;
      out[i] = &comm[i];
    }
    rc = make(inits, out, (size_t)ndev);
  }
  free(inits);
  free(out);
  return rc;
}

/* ---- Ending. NULL is fine, as it is for free and for NCCL. ---- */

#define END(NAME, FIELD)                                                                  \
  LP_API(ncclResult_t, NAME, (ncclComm_t comm)) {                                         \
    char err[LP_ERR_BYTES] = "";                                                          \
    ncclResult_t why;                                                                     \
    const struct lp_core* core;                                                           \
    if (comm == NULL) return ncclSuccess;                                                 \
    core = lp_core(&why);                                                                 \
    return core == NULL ? why : lp_result(core->FIELD(lp_handle(comm), err, sizeof err), err); \
  }

END(ncclCommFinalize, finalize)
END(ncclCommDestroy, destroy)
END(ncclCommAbort, abort)

/* ---- Asking ---- */

typedef int question(uint64_t comm, int32_t* out, char* err, size_t errlen);

static ncclResult_t ask(const char* function, ncclComm_t comm, const char* what, void* out, size_t offset) {
  char err[LP_ERR_BYTES] = "";
  ncclResult_t rc;
  const struct lp_core* core;
  int32_t answer = 0;
  question* q;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "%s: comm is NULL", function);
  if (out == NULL) return lp_fail(ncclInvalidArgument, "%s: %s is NULL", function, what);
  core = lp_core(&rc);
  if (core == NULL) return rc;
  q = *(question* const*)((const char*)core + offset);
  rc = lp_result(q(lp_handle(comm), &answer, err, sizeof err), err);
  if (rc != ncclSuccess) return rc;
  memcpy(out, &answer, sizeof answer);
  /* The state of a communicator is an answer, but its text must be found too. */
  if (err[0] != '\0') lp_fail(rc, "%s", err);
  return rc;
}

#define ASK(NAME, COMM, TYPE, WHAT, FIELD)                                   \
  LP_API(ncclResult_t, NAME, (COMM comm, TYPE* WHAT)) {                      \
    return ask(#NAME, comm, #WHAT, WHAT, offsetof(struct lp_core, FIELD)); \
  }

ASK(ncclCommCount, const ncclComm_t, int, count, count)
ASK(ncclCommCuDevice, const ncclComm_t, int, device, device)
ASK(ncclCommUserRank, const ncclComm_t, int, rank, rank)
ASK(ncclCommGetAsyncError, ncclComm_t, ncclResult_t, asyncError, async_error)

/* ---- The library itself ---- */

/* Needs no core: frameworks ask while they are being imported. They also switch features on by it, so
 * it can be set lower. */
LP_API(ncclResult_t, ncclGetVersion, (int* version)) {
  const char* given = lp_env("LIGHTPATH_NCCL_VERSION");
  char* end;
  long v;
  if (version == NULL) return lp_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = NCCL_VERSION_CODE;
  if (given == NULL || given[0] == '\0') return ncclSuccess;
  v = strtol(given, &end, 10);
  if (*end != '\0' || v < 2000 || v > 999999)
    return lp_fail(ncclInvalidArgument, "LIGHTPATH_NCCL_VERSION is \"%s\", not a version code such as 22705", given);
  *version = (int)v;
  return ncclSuccess;
}
