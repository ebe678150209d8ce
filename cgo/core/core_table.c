/* The function table of lp_core.h, filled with the exports of exports.go. cgo drops const from parameters, so
 * functions with const parameters have a wrapper. */
#include "_cgo_export.h"
#include "lp_core.h"

static int run(const struct lp_call* calls, size_t n, char* err, size_t errlen) {
  return lpGoRun((struct lp_call*)calls, n, err, errlen);
}

static int op_create(uint64_t comm, int32_t type, const void* scalar, bool later, int32_t* op, char* err,
                     size_t errlen) {
  return lpGoOpCreate(comm, type, (void*)scalar, later, op, err, errlen);
}

static int run_begun(const struct lp_call* call, char* err, size_t errlen) {
  return lpGoRunBegun((struct lp_call*)call, err, errlen);
}

static char** (*all_variables)(void);

static void use_environ(char** (*all)(void)) {
  all_variables = all;
  lpGoUseEnviron();
}

char** lp_core_environ(void) { return all_variables(); }

static void memory_add(const void* base, size_t size, int fd) { lpGoMemoryAdd((void*)base, size, fd); }

static int simulate(const struct lp_call* calls, size_t n, double* us, char* err, size_t errlen) {
  return lpGoSimulate((struct lp_call*)calls, n, us, err, errlen);
}

static int memory_remove(const void* base, char* err, size_t errlen) {
  return lpGoMemoryRemove((void*)base, err, errlen);
}

static int interpose(const uint64_t* comms, size_t n, const struct lp_other* other, char* err, size_t errlen) {
  return lpGoInterpose((uint64_t*)comms, n, (struct lp_other*)other, err, errlen);
}

static struct lp_core table = {
    .get_unique_id = lpGoUniqueID,
    .init = lpGoInit,
    .check = lpGoCheck,
    .run = run,
    .act = lpGoAct,
    .ask = lpGoAsk,
    .async_error = lpGoAsyncError,
    .op_create = op_create,
    .op_destroy = lpGoOpDestroy,
    .use_environ = use_environ,
    .memory_add = memory_add,
    .memory_remove = memory_remove,
    .reg = lpGoRegister,
    .reg_find = lpGoRegistered,
    .simulate = simulate,
    .mem_stats = lpGoMemStats,
    .grow_id = lpGoGrowID,
    .use_gates = lpGoUseGates,
    .run_begun = run_begun,
    .interpose = interpose,
    .interposes = lpGoInterposes,
    .device_alloc = lpGoDeviceAlloc,
    .device_free = lpGoDeviceFree,
};

/* Called once per process, by the front. */
__attribute__((visibility("default"))) const struct lp_core* lpCoreTable(uint32_t abi) {
  if (abi != LP_CORE_ABI) return NULL;
  if (table.version == NULL) table.version = lpGoStart();
  return &table;
}
