/* Options of a call: they take effect, and wrong ones are errors. */
#include "check.h"
#include "lightpath.h"

enum { RANKS = 2 };

static ncclComm_t comms[RANKS];
static float in[RANKS] = {1, 2}, out[RANKS];

static ncclResult_t reduce(int rank, ncclConfigExt_t* ext) {
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = ext;
  return ncclAllReduceConfig(&in[rank], &out[rank], 1, ncclFloat, ncclSum, comms[rank], NULL, &config);
}

static void refused(void) {
  ncclConfigExt_t option = {NULL, {LP_VENDOR_ID, 77}, {.i = 3}}, round;
  FAILS(reduce(0, &option), ncclInvalidArgument, "no option 77");
  option.key.optionId = LP_OPTION_PLAN;
  option.val.s = "12xy";
  FAILS(reduce(0, &option), ncclInvalidArgument, "LP_OPTION_PLAN \"12xy\"");
  option.val.s = NULL;
  FAILS(reduce(0, &option), ncclInvalidArgument, "LP_OPTION_PLAN");
  option.val.s = "12ab";
  FAILS(reduce(0, &option), ncclInvalidArgument, "plan 12ab: the communicator has no planes with circuits");
  option.key.optionId = LP_OPTION_PLANES;
  option.val.raw = LP_PLANES(0);
  FAILS(reduce(0, &option), ncclInvalidArgument, "no plane");
  option.val.raw = LP_PLANES(0x10);
  FAILS(reduce(0, &option), ncclInvalidArgument, "planes 0x10");
  option.key.optionId = LP_OPTION_DEADLINE_US;
  option.val.raw = NULL;
  FAILS(reduce(0, &option), ncclInvalidArgument, "LP_OPTION_DEADLINE_US is 0");
  round = option;
  round.key.vendorId = 1;
  round.next = &round;
  FAILS(reduce(0, &round), ncclInvalidArgument, "options");
}

static void obeyed(void) {
  ncclConfigExt_t other = {NULL, {0x123, LP_OPTION_PLAN}, {.s = "not ours"}};
  ncclConfigExt_t deadline = {&other, {LP_VENDOR_ID, LP_OPTION_DEADLINE_US}, {.i = 60 * 1000 * 1000}};
  ncclConfigExt_t planes = {&deadline, {LP_VENDOR_ID, LP_OPTION_PLANES}, {.raw = LP_PLANES(0x2)}};
  int r;
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(reduce(r, &planes));
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++) CHECK(out[r] == 3);
}

/* The other rank never makes the call. */
static void missed(void) {
  ncclConfigExt_t deadline = {NULL, {LP_VENDOR_ID, LP_OPTION_DEADLINE_US}, {.i = 50 * 1000}};
  FAILS(reduce(0, &deadline), ncclTimeout, "not done by its deadline");
}

int main(void) {
  int r;
  CHECK(LP_VENDOR_ID > 0 && LP_VENDOR_ID < 1 << 24);
  OK(ncclCommInitAll(comms, RANKS, NULL));
  refused();
  obeyed();
  missed();
  for (r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  return 0;
}
