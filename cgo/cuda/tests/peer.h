/* What tests ask of the libnccl in peer.c, by dlsym. */
#ifndef LP_CUDA_TESTS_PEER_H
#define LP_CUDA_TESTS_PEER_H

#include <stdbool.h>
#include <stdint.h>

struct peer_counts {
  long groups, messages;   /* groups by communicator and stream */
  long calls, passed;      /* collectives that came as such; of those that have elements */
  long inits, destroyed, aborted; /* communicators; inits are counted where PEER_INITS limits them */
  uint64_t tag;            /* of the last call with a configuration */
  char algorithm[32];
  bool broken;
};

void peerCounts(struct peer_counts* out);
/* The send or receive after so many more fails; negative: none does. */
void peerFail(int after);
/* Nothing is sent or received until it is off again. */
void peerMute(bool on);
/* All communicators have failed, which their owners learn when they ask. */
void peerBreak(void);

#endif
