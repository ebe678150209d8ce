/* Operators of the user: their scalars, when these are read, and the communicator that an operator belongs to. */
#include "check.h"

enum { RANKS = 3 };

static ncclComm_t comms[RANKS];

/* The sum of the ranks' values, each with its own operator, in a group. */
static void run(const ncclRedOp_t* ops, int in, float* out) {
  static float from[RANKS];
  int r;
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) {
    from[r] = (float)(in + r);
    OK(ncclAllReduce(&from[r], &out[r], 1, ncclFloat, ops[r], comms[r], NULL));
  }
}

static void immediate(void) {
  ncclRedOp_t ops[RANKS];
  float out[RANKS], scalar;
  int r;
  for (r = 0; r < RANKS; r++) {
    scalar = (float)(10 * (r + 1));
    OK(ncclRedOpCreatePreMulSum(&ops[r], &scalar, ncclFloat, ncclScalarHostImmediate, comms[r]));
    CHECK(ops[r] >= ncclNumOps && ops[r] <= ncclMaxRedOp);
  }
  scalar = 1000; /* the scalar has been read already */
  run(ops, 1, out);
  /* Destroyed before the group runs: the call has copied it. */
  for (r = 0; r < RANKS; r++) OK(ncclRedOpDestroy(ops[r], comms[r]));
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++) CHECK(out[r] == 10 * 1 + 20 * 2 + 30 * 3);
  FAILS(ncclAllReduce(out, out, 1, ncclFloat, ops[0], comms[0], NULL), ncclInvalidArgument, "destroyed");
  FAILS(ncclRedOpDestroy(ops[0], comms[0]), ncclInvalidArgument, "destroyed");
}

/* A scalar that NCCL reads on the device is read when the call runs. */
static void later(void) {
  ncclRedOp_t ops[RANKS];
  float out[RANKS], scalar = 1;
  int r;
  for (r = 0; r < RANKS; r++) OK(ncclRedOpCreatePreMulSum(&ops[r], &scalar, ncclFloat, ncclScalarDevice, comms[r]));
  run(ops, 1, out);
  scalar = 2;
  for (r = 0; r < RANKS; r++) OK(ncclRedOpDestroy(ops[r], comms[r]));
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++) CHECK(out[r] == 2 * (1 + 2 + 3));
}

static void wrong(void) {
  ncclRedOp_t op;
  float in = 1, out = 7, scalar = 3;
  double wide = 1;
  FAILS(ncclRedOpCreatePreMulSum(NULL, &scalar, ncclFloat, ncclScalarHostImmediate, comms[0]), ncclInvalidArgument,
        "op is NULL");
  FAILS(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comms[0]), ncclInvalidArgument,
        "scalar");
  FAILS(ncclRedOpCreatePreMulSum(&op, &scalar, ncclNumTypes, ncclScalarHostImmediate, comms[0]), ncclInvalidArgument,
        "datatype");
  FAILS(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, (ncclScalarResidence_t)7, comms[0]), ncclInvalidArgument,
        "residence");
  FAILS(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, NULL), ncclInvalidArgument,
        "comm is NULL");
  OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comms[0]));
  FAILS(ncclAllReduce(&wide, &wide, 1, ncclDouble, op, comms[0], NULL), ncclInvalidArgument, "created for float");
  FAILS(ncclAllReduce(&in, &out, 1, ncclFloat, op, comms[1], NULL), ncclInvalidArgument, "belongs to another");
  FAILS(ncclRedOpDestroy(op, comms[1]), ncclInvalidArgument, "belongs to another");
  FAILS(ncclRedOpDestroy(ncclAvg, comms[0]), ncclInvalidArgument, "op 4");
  OK(ncclRedOpDestroy(op, comms[0]));
  CHECK(out == 7);
}

int main(void) {
  ncclComm_t one;
  ncclRedOp_t op;
  int64_t in[2] = {3, -5}, out[2], scalar = ((int64_t)1 << 60) + 1;
  int r;
  OK(ncclCommInitAll(comms, RANKS, NULL));
  immediate();
  later();
  wrong();
  for (r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  /* One rank, and a scalar that no float holds. */
  OK(ncclCommInitAll(&one, 1, NULL));
  OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclInt64, ncclScalarHostImmediate, one));
  OK(ncclReduceScatter(in, out, 2, ncclInt64, op, one, NULL));
  CHECK(out[0] == 3 * scalar && out[1] == -5 * scalar);
  OK(ncclCommDestroy(one));
  return 0;
}
