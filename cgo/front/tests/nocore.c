/* A core that cannot be loaded: run with LIGHTPATH_CORE naming nothing (argv[1] is what the error must
 * mention). The failure is the same every time, and an open group reports it at its end. */
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
