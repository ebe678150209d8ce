/* The programs of this folder: the rank of cgo/rank over other libraries. mpirun starts each. */
#ifndef LIGHTPATH_PEERS_H
#define LIGHTPATH_PEERS_H

#include "../rank/rank.h"

/* Set up and end a library besides MPI, once in a process. A failure ends the process through rank_fail. */
void peer_open(const struct worker *w);
void peer_close(const struct worker *w);

/* Why no program of this folder makes r's calls, or NULL. */
const char *peer_refuses(const struct run *r);

/* Ends the process unless result is MPI_SUCCESS. */
void mpi_check(const struct worker *w, const char *what, int result);

#endif
