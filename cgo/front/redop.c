/* Operators of the user: sums of contributions that are multiplied first. */
#include "fallback.h"

/* A scalar in device memory is read by the collective, on its stream. Here memory is the host's and
 * the stream is NULL, so it is read when the call runs: at once, or at the end of the group. */
LP_API(ncclResult_t, ncclRedOpCreatePreMulSum,
       (ncclRedOp_t* op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  int32_t number;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: comm is NULL");
  if (op == NULL) return lp_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op is NULL");
  if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
    return lp_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: residence is %d", (int)residence);
  core = lp_core(&rc);
  if (core == NULL) return rc;
  rc = lp_result(core->op_create(lp_handle(comm), (int32_t)datatype, scalar, residence == ncclScalarDevice, &number, err,
                                 sizeof err),
                 err);
  if (rc != ncclSuccess) return rc;
  *op = (ncclRedOp_t)number;
  lp_fallback_op(comm, *op, scalar, datatype, residence);
  return ncclSuccess;
}

LP_API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclRedOpDestroy: comm is NULL");
  core = lp_core(&rc);
  if (core == NULL) return rc;
  lp_fallback_op_end(comm, op);
  return lp_result(core->op_destroy(lp_handle(comm), (int32_t)op, err, sizeof err), err);
}
