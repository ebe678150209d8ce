/* The function table of lp_core.h, filled with what exports.go exports. cgo drops const from
 * parameters, so functions with const ones go through a wrapper. */
#include "_cgo_export.h"
#include "lp_core.h"

/* bridge.Call repeats this layout; Go checks the size, this checks the order. */
_Static_assert(offsetof(struct lp_call, kind) == 8 && offsetof(struct lp_call, type) == 12 &&
                   offsetof(struct lp_call, op) == 16 && offsetof(struct lp_call, peer) == 20 &&
                   offsetof(struct lp_call, count) == 24 && offsetof(struct lp_call, send) == 32 &&
                   offsetof(struct lp_call, recv) == 40 && offsetof(struct lp_call, stream) == 48 &&
                   offsetof(struct lp_call, plan) == 56 && offsetof(struct lp_call, plan_digits) == 64 &&
                   offsetof(struct lp_call, deadline_us) == 68 && offsetof(struct lp_call, planes) == 72 &&
                   offsetof(struct lp_call, scalar_where) == 80 && offsetof(struct lp_call, scalar) == 88 &&
                   offsetof(struct lp_call, scalar_at) == 96 && offsetof(struct lp_call, window) == 104 &&
                   offsetof(struct lp_call, offset) == 112,
               "bridge.Call no longer matches struct lp_call");

static int run(const struct lp_call* calls, size_t n, char* err, size_t errlen) {
  return lpGoRun((struct lp_call*)calls, n, err, errlen);
}

static int op_create(uint64_t comm, int32_t type, const void* scalar, int32_t later, int32_t* op, char* err, size_t errlen) {
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

static int memory_remove(const void* base, char* err, size_t errlen) { return lpGoMemoryRemove((void*)base, err, errlen); }

static int interpose(const uint64_t* comms, size_t n, const struct lp_other* other, char* err, size_t errlen) {
  return lpGoInterpose((uint64_t*)comms, n, (struct lp_other*)other, err, errlen);
}

/* Values of bridge.Question. */
static int count(uint64_t comm, int32_t* out, char* err, size_t errlen) { return lpGoAsk(comm, 0, out, err, errlen); }
static int rank(uint64_t comm, int32_t* out, char* err, size_t errlen) { return lpGoAsk(comm, 1, out, err, errlen); }
static int device(uint64_t comm, int32_t* out, char* err, size_t errlen) { return lpGoAsk(comm, 2, out, err, errlen); }

static int blocking(uint64_t comm, int32_t* out, char* err, size_t errlen) {
  return lpGoAsk(comm, 3, out, err, errlen);
}

static struct lp_core table = {
    .abi = LP_CORE_ABI,
    .size = sizeof(struct lp_core),
    .get_unique_id = lpGoUniqueID,
    .init = lpGoInit,
    .check = lpGoCheck,
    .run = run,
    .finalize = lpGoFinalize,
    .destroy = lpGoDestroy,
    .abort = lpGoAbort,
    .count = count,
    .rank = rank,
    .device = device,
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
    .revoke = lpGoRevoke,
    .suspend = lpGoSuspend,
    .resume = lpGoResume,
    .grow_id = lpGoGrowID,
    .blocking = blocking,
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
