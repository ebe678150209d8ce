/* Which library makes a call. */
#include "other.h"

bool lp_route_other(const struct lp_call* call) {
  if (!lp_other()) return false;
  return lp_other_takes_all() || call->stream != NULL || lp_other_device(call->send) || lp_other_device(call->recv);
}

/* A signal has no memory that could tell, so all one-sided calls of a process go one way. */
bool lp_route_other_onesided(const void* stream) {
  return lp_other() && (lp_other_takes_all() || stream != NULL || lp_other_cuda());
}

ncclResult_t lp_route_call(const char* function, const struct lp_call* call, const ncclCollConfig_t* config) {
  ncclRedOp_t op;
  ncclResult_t rc = ncclSuccess;
  if (lp_other_interposes()) return lp_interpose_call(function, call, config);
  if (lp_other_comm(function, lp_comm(call->comm), &rc) != NULL) rc = lp_other_op(function, call, &op);
  if (rc == ncclSuccess) rc = lp_other_enter_group();
  if (rc == ncclSuccess) rc = lp_other_forward(function, call, op, config);
  return lp_group_note(rc);
}
