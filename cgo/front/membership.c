/* Communicators made from others: split, shrink and grow; and revoke, suspend and resume. */
#include "other.h"

#include <string.h>

/* A child blocks as its configuration says, else as its parent does. */
static ncclResult_t inherit(const ncclConfig_t* mine, struct lp_init* init) {
  init->name = mine->commName;
  if (mine->blocking != NCCL_CONFIG_UNDEF_INT) {
    init->blocking = mine->blocking;
    return ncclSuccess;
  }
  return LP_CORE(ask, init->parent, LP_ASK_BLOCKING, &init->blocking);
}

static ncclResult_t make_child(const char* function, ncclComm_t parent, ncclComm_t* newcomm, const ncclConfig_t* config,
                         struct lp_init* init) {
  ncclConfig_t mine;
  ncclResult_t rc;
  if (parent == NULL) return LP_REFUSE("%s: comm is NULL", function);
  if (newcomm == NULL) return LP_REFUSE("%s: newcomm is NULL", function);
  init->parent = lp_handle(parent);
  rc = lp_comm_config(function, config, &mine);
  if (rc == ncclSuccess) rc = inherit(&mine, init);
  return rc == ncclSuccess ? lp_make(init, &newcomm, 1) : lp_group_note(rc);
}

LP_API(ncclResult_t, ncclCommSplit,
       (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config)) {
  struct lp_init init = {.how = LP_BY_SPLIT, .color = color, .key = key};
  return make_child("ncclCommSplit", comm, newcomm, config, &init);
}

LP_API(ncclResult_t, ncclCommShrink,
       (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config,
        int shrinkFlags)) {
  struct lp_init init = {
      .how = LP_BY_SHRINK, .exclude = excludeRanksList, .abort_parent = shrinkFlags == NCCL_SHRINK_ABORT};
  if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
    return LP_REFUSE("ncclCommShrink: shrinkFlags is 0x%x, not NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT",
                     (unsigned)shrinkFlags);
  if (excludeRanksCount < 1 || excludeRanksList == NULL)
    return LP_REFUSE("ncclCommShrink: excludeRanksCount is %d, or excludeRanksList is NULL", excludeRanksCount);
  init.excluded = (uint32_t)excludeRanksCount;
  if (shrinkFlags == NCCL_SHRINK_ABORT && comm != NULL) lp_other_stop(comm);
  return make_child("ncclCommShrink", comm, newcomm, config, &init);
}

LP_API(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId)) {
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclCommGetUniqueId: comm is NULL");
  if (uniqueId == NULL) return lp_fail(ncclInvalidArgument, "ncclCommGetUniqueId: uniqueId is NULL");
  return LP_CORE(grow_id, lp_handle(comm), (unsigned char*)uniqueId->internal);
}

/* A rank of comm keeps its number and passes -1. A new rank passes no comm, and its number. */
LP_API(ncclResult_t, ncclCommGrow,
       (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
        ncclConfig_t* config)) {
  struct lp_init init = {.how = LP_BY_GROW, .nranks = nRanks, .has_id = uniqueId != NULL};
  if (comm == NULL) {
    if (uniqueId == NULL)
      return LP_REFUSE("ncclCommGrow: uniqueId is NULL, which a rank without comm needs");
    return lp_init_rank("ncclCommGrow", newcomm, nRanks, uniqueId, 1, rank, config);
  }
  if (rank != -1)
    return LP_REFUSE("ncclCommGrow: rank is %d, but a rank of comm keeps its own: say -1", rank);
  if (uniqueId != NULL) memcpy(init.id, uniqueId->internal, sizeof init.id);
  return make_child("ncclCommGrow", comm, newcomm, config, &init);
}

/* ---- Revoke, suspend, resume ---- */

static ncclResult_t change(const char* function, ncclComm_t comm, int flags, int allowed, int32_t act) {
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "%s: comm is NULL", function);
  if (flags != allowed)
    return lp_fail(ncclInvalidArgument, "%s: flags are 0x%x, and can only be 0x%x", function, (unsigned)flags,
                   (unsigned)allowed);
  return LP_CORE(act, lp_handle(comm), act);
}

LP_API(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags)) {
  ncclResult_t rc = change("ncclCommRevoke", comm, revokeFlags, NCCL_REVOKE_DEFAULT, LP_REVOKE);
  return rc == ncclSuccess ? lp_other_revoke(comm, revokeFlags) : rc;
}

LP_API(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags)) {
  return change("ncclCommSuspend", comm, flags, NCCL_SUSPEND_MEM, LP_SUSPEND);
}

LP_API(ncclResult_t, ncclCommResume, (ncclComm_t comm)) { return change("ncclCommResume", comm, 0, 0, LP_RESUME); }
