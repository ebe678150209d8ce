/* Queues of devices.
 *
 * Streams of a context share 8 queues of the device, unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise when the driver
 * starts. A stream that waits for a peer holds up all others of its queue. So the library asks for 32, the most, when
 * it is loaded. Only then may it write to the environment: the program has one thread, so no thread is reading it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "front.h"

/* A folder has a link from each of its folders, besides its own two: one folder for each thread. */
static int single_threaded(void) {
  struct stat threads;
  return stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 3;
}

__attribute__((constructor)) static void ask_for_queues(void) {
  const char* queues = secure_getenv("LIGHTPATH_DEVICE_QUEUES");
  if (!single_threaded() || getenv("CUDA_DEVICE_MAX_CONNECTIONS") != NULL) return;
  if (queues == NULL || queues[0] == '\0') queues = "32";
  if (strcmp(queues, "0") != 0) (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 0);
}
