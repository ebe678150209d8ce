/* ncclCommQueryProperties: its values, how much of a caller's structure it writes, and its errors. */
#include "check.h"

#include <stddef.h>

/* Offsets in NVIDIA's headers: where the structures of 2.29, 2.30 and 2.32 begin to differ. */
_Static_assert(offsetof(ncclCommProperties_t, rank) == 16, "rank");
_Static_assert(offsetof(ncclCommProperties_t, ginType) == 36, "ginType");
_Static_assert(offsetof(ncclCommProperties_t, nLsaTeams) == 40, "nLsaTeams");
_Static_assert(offsetof(ncclCommProperties_t, commHash) == 56, "commHash");
_Static_assert(offsetof(ncclCommProperties_t, devCommRuntimeVersionSize) == 136, "devCommRuntimeVersionSize");
_Static_assert(sizeof(ncclCommProperties_t) == 152, "size");

#define RANKS 3
static ncclComm_t comms[RANKS];

static void answers(void) {
  int i;
  for (i = 0; i < RANKS; i++) {
    ncclCommProperties_t p, zero = {0};
    memset(&p, 0xff, sizeof p); /* so that fields that are not written show */
    p.size = sizeof p, p.magic = NCCL_API_MAGIC, p.version = NCCL_VERSION_CODE;
    OK(ncclCommQueryProperties(comms[i], &p));
    CHECK(p.size == sizeof p && p.magic == NCCL_API_MAGIC && p.version == NCCL_VERSION_CODE);
    CHECK(p.rank == i && p.nRanks == RANKS && p.cudaDev == i + 4 && p.nvmlDev == -1 && p.nLsaTeams == RANKS);
    CHECK(!p.deviceApiSupport && !p.multimemSupport && p.hostRmaSupport);
    CHECK(p.ginType == NCCL_GIN_TYPE_NONE && p.railedGinType == NCCL_GIN_TYPE_NONE);
    CHECK(memcmp(&p.commHash, &zero.commHash, offsetof(ncclCommProperties_t, cftCountedSupport) + 1 -
          offsetof(ncclCommProperties_t, commHash)) == 0);
  }
}

/* The library writes all bytes of a shorter structure and none behind it. In a longer one it writes the fields that it
 * knows. */
static void sizes(void) {
  union {
    ncclCommProperties_t p;
    unsigned char bytes[sizeof(ncclCommProperties_t) + 32];
  } u;
  size_t sizes[] = {40, 56, 152, 184}, i, j;
  for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    memset(&u, 0xa5, sizeof u);
    u.p.size = sizes[i], u.p.magic = NCCL_API_MAGIC, u.p.version = 22705;
    OK(ncclCommQueryProperties(comms[1], &u.p));
    CHECK(u.p.size == sizes[i] && u.p.rank == 1 && u.p.nRanks == RANKS);
    if (sizes[i] >= 56) CHECK(u.p.nLsaTeams == RANKS);
    for (j = sizes[i] < 152 ? sizes[i] : 152; j < sizeof u; j++) CHECK(u.bytes[j] == 0xa5);
  }
}

static void refusals(void) {
  ncclCommProperties_t p = {.size = sizeof p, .magic = NCCL_API_MAGIC, .version = NCCL_VERSION_CODE};
  FAILS(ncclCommQueryProperties(comms[0], NULL), ncclInvalidArgument, "props is NULL");
  FAILS(ncclCommQueryProperties(NULL, &p), ncclInvalidArgument, "comm is NULL");
  FAILS(ncclCommQueryProperties((ncclComm_t)&p, &p), ncclInvalidArgument, "comm");
  p.magic = 1;
  FAILS(ncclCommQueryProperties(comms[0], &p), ncclInvalidArgument, "NCCL_COMM_PROPERTIES_INITIALIZER");
  p.magic = NCCL_API_MAGIC, p.size = 39;
  FAILS(ncclCommQueryProperties(comms[0], &p), ncclInvalidArgument, "NCCL_COMM_PROPERTIES_INITIALIZER");
  CHECK(p.rank == 0 && p.nRanks == 0);
}

int main(void) {
  int devices[RANKS] = {4, 5, 6}, i;
  OK(ncclCommInitAll(comms, RANKS, devices));
  answers();
  sizes();
  refusals();
  for (i = 0; i < RANKS; i++) OK(ncclCommDestroy(comms[i]));
  return 0;
}
