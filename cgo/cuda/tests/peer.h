/* Functions of the libnccl in peer.c for tests, which find them by dlsym. */
#ifndef LP_CUDA_TESTS_PEER_H
#define LP_CUDA_TESTS_PEER_H

#include <stdbool.h>
#include <stdint.h>

struct peer_counts {
  long groups, messages;   /* groups by communicator and stream */
  long calls, passed;      /* collectives; of those, the ones with elements */
  long inits, destroyed, aborted; /* communicators; inits are counted only with PEER_INITS */
  long operators; /* that have not been destroyed */
  uint64_t tag, size;      /* of the last call with a configuration */
  char algorithm[32];
  bool broken;
};

void peerCounts(struct peer_counts* out);
/* Makes a send or receive fail, after so many others; negative: none. */
void peerFail(int after);
/* Stops all sends and receives while it is on. */
void peerMute(bool on);
/* Makes all communicators fail, as ncclCommGetAsyncError tells. */
void peerBreak(void);

#endif
