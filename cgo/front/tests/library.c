/* Calls that need no communicator: version, strings, last error, parameters, memory, and the functions that are
 * not implemented. None of them may load the core. */
#include "check.h"

#include <pthread.h>

static void versions(void) {
  int v = 0;
  OK(ncclGetVersion(&v));
  CHECK(v == 23203);
  setenv("LIGHTPATH_NCCL_VERSION", "22705", 1);
  OK(ncclGetVersion(&v));
  CHECK(v == 22705);
  setenv("LIGHTPATH_NCCL_VERSION", "2.27.5", 1);
  FAILS(ncclGetVersion(&v), ncclInvalidArgument, "LIGHTPATH_NCCL_VERSION");
  unsetenv("LIGHTPATH_NCCL_VERSION");
  FAILS(ncclGetVersion(NULL), ncclInvalidArgument, "version is NULL");
}

static void strings(void) {
  int r;
  for (r = -1; r <= ncclNumResults + 1; r++) CHECK(ncclGetErrorString((ncclResult_t)r)[0] != '\0');
  CHECK(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
  CHECK(strstr(ncclGetErrorString(ncclSystemError), "unhandled system error") != NULL);
  CHECK(strcmp(ncclGetErrorString(ncclRemoteError), "remote process exited or there was a network error") == 0);
}

static void* fail_elsewhere(void* arg) {
  (void)arg;
  FAILS(ncclGetVersion(NULL), ncclInvalidArgument, "version is NULL");
  return NULL;
}

/* The last error belongs to the process. A text that a thread has received does not change. */
static void last_error(void) {
  pthread_t t;
  const char* mine;
  FAILS(ncclGetUniqueId(NULL), ncclInvalidArgument, "uniqueId");
  mine = ncclGetLastError(NULL);
  CHECK(strstr(ncclGetLastError((ncclComm_t)(uintptr_t)0x1234), "uniqueId") != NULL);
  CHECK(pthread_create(&t, NULL, fail_elsewhere, NULL) == 0 && pthread_join(t, NULL) == 0);
  CHECK(strstr(mine, "uniqueId") != NULL);
  CHECK(strstr(ncclGetLastError(NULL), "version is NULL") != NULL);
}

static void params(void) {
  ncclParamHandle_t h;
  const char *text, **keys;
  int64_t wide;
  int8_t narrow;
  uint32_t natural;
  char raw[64];
  int n, found = 0;
  OK(ncclParamBind(&h, "LIGHTPATH_PLANES"));
  setenv("LIGHTPATH_PLANES", "300", 1);
  OK(ncclParamGetI64(h, &wide));
  CHECK(wide == 300);
  FAILS(ncclParamGetI8(h, &narrow), ncclInvalidArgument, "LIGHTPATH_PLANES");
  OK(ncclParamGetU32(h, &natural));
  setenv("LIGHTPATH_PLANES", "-3", 1);
  OK(ncclParamGetI8(h, &narrow));
  CHECK(narrow == -3);
  FAILS(ncclParamGetU32(h, &natural), ncclInvalidArgument, "-3");
  OK(ncclParamGetStr(h, &text));
  CHECK(strcmp(text, "-3") == 0);
  FAILS(ncclParamGet(h, raw, 2, &n), ncclInvalidArgument, "maxLen");
  OK(ncclParamGet(h, raw, sizeof raw, &n));
  CHECK(n == 3 && strcmp(raw, "-3") == 0);
  unsetenv("LIGHTPATH_PLANES");
  OK(ncclParamGetParameter("LIGHTPATH_PLANES", &text, &n));
  CHECK(strcmp(text, "1") == 0 && n == 1);
  FAILS(ncclParamBind(&h, "NCCL_NO_SUCH"), ncclInvalidArgument, "NCCL_NO_SUCH");
  FAILS(ncclParamGetI64((ncclParamHandle_t)raw, &wide), ncclInvalidArgument, "ncclParamBind");
  OK(ncclParamGetAllParameterKeys(&keys, &n));
  while (n-- > 0) found += strcmp(keys[n], "NCCL_DEBUG") == 0;
  CHECK(found == 1);
}

static void memory(void) {
  void* p = NULL;
  OK(ncclMemAlloc(&p, 12345));
  CHECK(p != NULL && (uintptr_t)p % NCCL_WIN_REQUIRED_ALIGNMENT == 0);
  memset(p, 1, 12345);
  OK(ncclMemFree(p));
  OK(ncclMemFree(NULL));
  FAILS(ncclMemAlloc(&p, SIZE_MAX / 2), ncclSystemError, "out of memory");
  FAILS(ncclMemAlloc(NULL, 1), ncclInvalidArgument, "ptr");
}

#define REFUSES(call) FAILS(call, ncclInvalidUsage, "is not implemented by Lightpath")

static void unsupported(void) {
  ncclComm_t c = NULL;
  ncclTeam_t t = {1, 0, 1};
  REFUSES(ncclSetEncryption(NULL));
  REFUSES(ncclDevCommCreate(c, NULL, NULL));
  REFUSES(ncclDevCommDestroy(c, NULL));
  REFUSES(ncclGetLsaDevicePointer(NULL, 0, 0, NULL));
  REFUSES(ncclLsaBarrierCreateRequirement(t, 1, NULL, NULL));
  REFUSES(ncclLLA2ACreateRequirement(1, 1, NULL, NULL));
  CHECK(ncclLLA2ACalcSlots(1, 1) == 0);
}

int main(void) {
  versions();
  strings();
  last_error();
  params();
  memory();
  unsupported();
  CHECK(!is_mapped("liblightpath"));
  return 0;
}
