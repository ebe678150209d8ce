/* The context of each thread, and the settings of devices. */
#include "stub.h"

#include <stdlib.h>

static __thread CUcontext current;
static __thread bool called_back;

CUcontext stub_current(void) { return current; }
void stub_set_current(CUcontext ctx) { current = ctx; }

void stub_call_back(CUhostFn fn, void *data) {
  called_back = true;
  fn(data);
  called_back = false;
}

bool stub_called_back(void) { return called_back; }

CUresult stub_failed(CUcontext ctx) { return __atomic_load_n(&ctx->error, __ATOMIC_ACQUIRE); }

int stub_devices(void) {
  const char *n = getenv("STUB_CUDA_DEVICES");
  int count = n != NULL ? atoi(n) : 2;
  return count < 0 || count > MAX_DEVICES ? MAX_DEVICES : count;
}

int stub_version(void) {
  const char *v = getenv("STUB_CUDA_VERSION");
  return v != NULL ? atoi(v) : 12040;
}

/* STUB_CUDA_ARCH is the architecture of all devices: 90 is sm_90. Without it they differ, so that different
 * kernels meet. */
int stub_architecture(CUdevice device) {
  const char *arch = getenv("STUB_CUDA_ARCH");
  if (arch != NULL) return atoi(arch);
  return device % 2 == 0 ? 90 : 70;
}

/* STUB_CUDA_PEERS=0: devices do not reach each other. */
bool stub_peers(void) {
  const char *peers = getenv("STUB_CUDA_PEERS");
  return peers == NULL || atoi(peers) != 0;
}
