/* A core that cannot be loaded: LIGHTPATH_CORE names no core, and the error must contain argv[1]. Every call fails
 * in the same way, and a group reports the failure at its end. */
#include "check.h"

int main(int argc, char** argv) {
  ncclUniqueId id;
  ncclComm_t comm;
  int n;
  CHECK(argc == 2);
  FAILS(ncclGetUniqueId(&id), ncclSystemError, argv[1]);
  FAILS(ncclGetUniqueId(&id), ncclSystemError, argv[1]);
  OK(ncclGroupStart());
  memset(&id, 0, sizeof id);
  FAILS(ncclCommInitRank(&comm, 1, id, 0), ncclSystemError, argv[1]);
  IS(ncclGroupEnd(), ncclSystemError);
  OK(ncclGetVersion(&n));
  return 0;
}
