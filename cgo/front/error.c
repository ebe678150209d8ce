/* Results as text, and the last error. */
#include "front.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* NCCL's last error belongs to the process. Each thread gets a copy of the text, so that the pointer that a caller
 * holds does not change under it. */
static pthread_mutex_t last_mutex = PTHREAD_MUTEX_INITIALIZER;
static char last_text[LP_ERR_BYTES];

static void set_last(const char* text) {
  pthread_mutex_lock(&last_mutex);
  snprintf(last_text, sizeof last_text, "%s", text);
  pthread_mutex_unlock(&last_mutex);
}

void lp_error_after_fork(void) { pthread_mutex_init(&last_mutex, NULL); }

ncclResult_t lp_fail(ncclResult_t code, const char* format, ...) {
  char text[LP_ERR_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  set_last(text);
  return code;
}

ncclResult_t lp_result(int code, const char* err) {
  if (code == ncclSuccess || code == ncclInProgress) return (ncclResult_t)code;
  set_last(err[0] != '\0' ? err : pncclGetErrorString((ncclResult_t)code));
  return (ncclResult_t)code;
}

LP_API(const char*, ncclGetLastError, (ncclComm_t comm)) {
  static __thread char mine[LP_ERR_BYTES];
  (void)comm; /* NCCL ignores it too: it need not be valid any more */
  pthread_mutex_lock(&last_mutex);
  memcpy(mine, last_text, sizeof mine);
  pthread_mutex_unlock(&last_mutex);
  return mine;
}

/* These are NCCL's phrases: frameworks search for them. */
LP_API(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the Lightpath developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    case ncclTimeout: return "timeout";
    default: return "unknown result code";
  }
}
