/* The properties of a communicator, for programs that choose between host-side and device-side collectives. */
#include <stddef.h>
#include <string.h>

#include "front.h"

/* The first ncclCommProperties_t, of 2.29. */
#define PROPERTIES_MIN 40

/* The structure's size says which fields the caller knows: new fields were added only at the end. Its version does not:
 * bindings copy it from ncclGetVersion, which a variable can set. */
LP_API(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* props)) {
  const size_t header = offsetof(ncclCommProperties_t, rank);
  ncclCommProperties_t mine = {
      .nvmlDev = -1, .ginType = NCCL_GIN_TYPE_NONE, .ginConnectionType = NCCL_GIN_CONNECTION_NONE};
  ncclResult_t rc;
  size_t known;
  if (props == NULL) return lp_fail(ncclInvalidArgument, "ncclCommQueryProperties: props is NULL");
  if (props->size < PROPERTIES_MIN || props->magic != NCCL_API_MAGIC)
    return lp_fail(ncclInvalidArgument,
                   "ncclCommQueryProperties: props is not initialized with NCCL_COMM_PROPERTIES_INITIALIZER (size %zu, "
                   "magic 0x%x)",
                   props->size, props->magic);
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclCommQueryProperties: comm is NULL");
  rc = pncclCommCount(comm, &mine.nRanks);
  if (rc == ncclSuccess) rc = pncclCommUserRank(comm, &mine.rank);
  if (rc == ncclSuccess) rc = pncclCommCuDevice(comm, &mine.cudaDev);
  if (rc != ncclSuccess) return rc;
  mine.nLsaTeams = mine.nRanks;
  mine.hostRmaSupport = true;
  known = props->size < sizeof mine ? props->size : sizeof mine;
  memcpy((char*)props + header, (const char*)&mine + header, known - header);
  return ncclSuccess;
}
