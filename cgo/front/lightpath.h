/* What Lightpath's libnccl.so.2 offers beyond NCCL.
 *
 * Options of one collective call: entries of vendor LP_VENDOR_ID in the list that ncclCollConfig_t.ext
 * begins. NVIDIA's library ignores them, and Lightpath ignores those of other vendors; an option of
 * this vendor that it does not know is ncclInvalidArgument.
 *
 *   ncclConfigExt_t planes = {NULL, {LP_VENDOR_ID, LP_OPTION_PLANES}, {.raw = LP_PLANES(0x5)}};
 *   ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
 *   config.ext = &planes;
 *   ncclAllReduceConfig(send, recv, count, ncclFloat, ncclSum, comm, NULL, &config);
 */
#ifndef LIGHTPATH_H_
#define LIGHTPATH_H_

#include "nccl.h"

#define LP_VENDOR_ID 0x4c5054

/* val.s: the first 1 .. 16 or all hexadecimal digits of the digest of the plan to run, as logs and
 * `lightpath plan cache ls` show it. It must be a plan for this very call: one in use, or one of any
 * planner in LIGHTPATH_PLAN_DIR of rank 0. The same on every rank. */
#define LP_OPTION_PLAN 1
/* val.raw: LP_PLANES(mask), bit j for plane j: the only planes that the call may use. Planes with
 * circuits where the communicator has such, else packet planes. The same on every rank. */
#define LP_OPTION_PLANES 2
/* val.i: the most microseconds that the call may take, and the group that it is in. A call that
 * misses it is ncclTimeout, and its communicator fails on all ranks. Each rank's own. */
#define LP_OPTION_DEADLINE_US 3

#define LP_PLANES(mask) ((void*)(uintptr_t)(mask))

#endif
