/* Operators of the user: sums of contributions that are multiplied by a factor first. */
#include "other.h"

/* A scalar in device memory is read when a call runs: on its stream, at once, or at the end of the group. */
LP_API(ncclResult_t, ncclRedOpCreatePreMulSum,
       (ncclRedOp_t* op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)) {
  ncclResult_t rc;
  int32_t number;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: comm is NULL");
  if (op == NULL) return lp_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op is NULL");
  if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
    return lp_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: residence is %d", (int)residence);
  rc = LP_CORE(op_create, lp_handle(comm), (int32_t)datatype, scalar, residence == ncclScalarDevice, &number);
  if (rc != ncclSuccess) return rc;
  *op = (ncclRedOp_t)number;
  lp_other_op_create(comm, *op, scalar, datatype, residence);
  return ncclSuccess;
}

/* Ends the other library's operator, after the queued calls that need it. */
static void end_other(ncclComm_t comm, ncclRedOp_t op) {
  ncclRedOp_t other = lp_other_op_remove(comm, op);
  if (other != ncclNumOps && !lp_interpose_op_end(comm, other)) lp_other_op_destroy(comm, other);
}

LP_API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  ncclResult_t rc;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclRedOpDestroy: comm is NULL");
  if (lp_core(&rc) == NULL) return rc;
  end_other(comm, op);
  return LP_CORE(op_destroy, lp_handle(comm), (int32_t)op);
}
