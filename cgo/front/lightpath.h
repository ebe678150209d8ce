/* Lightpath's additions to NCCL: options of one collective call.
 *
 * An option is an entry with vendor LP_VENDOR_ID in the list that ncclCollConfig_t.ext begins. NVIDIA's library ignores
 * these entries, and Lightpath ignores entries of other vendors. An unknown option of this vendor is
 * ncclInvalidArgument.
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

/* val.s: the plan to run, as the first 1 .. 16 or all hexadecimal digits of its digest, which logs and `lightpath
 * plan cache ls` show. It must be a plan for this call: one in use, or one of any planner in LIGHTPATH_PLAN_DIR of
 * rank 0. The same on every rank. */
#define LP_OPTION_PLAN 1
/* val.raw: LP_PLANES(mask), bit j for plane j: the only planes that the call may use. They are the planes with
 * circuits if the communicator has such, else the packet planes. The same on every rank. */
#define LP_OPTION_PLANES 2
/* val.i: the most microseconds that the call, and its group, may take. A call that takes longer is ncclTimeout, and its
 * communicator fails on all ranks. Ranks may differ. */
#define LP_OPTION_DEADLINE_US 3

#define LP_PLANES(mask) ((void*)(uintptr_t)(mask))

#endif
