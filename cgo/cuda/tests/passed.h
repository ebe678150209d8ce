/* Internal to the libnccl for tests. */
#ifndef LP_CUDA_TESTS_PASSED_H
#define LP_CUDA_TESTS_PASSED_H

#include <stddef.h>

#include "nccl.h"

/* Counts a collective that was passed on, and keeps its configuration, which may be NULL. */
ncclResult_t peer_passed(size_t elements, const ncclCollConfig_t* config);

#endif
