#include "peers.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* The process of a rank. MPI numbers the ranks, and allocates the library's buffers. */

void mpi_check(const struct worker *w, const char *what, int result) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int n;
  MPI_Error_string(result, text, &n);
  rank_fail(w, what, result, text);
}

void *lib_alloc(const struct worker *w, size_t bytes) {
  void *p = NULL;
  mpi_check(w, "MPI_Alloc_mem", MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &p));
  return p;
}

void lib_free(const struct worker *w, void *mem, size_t bytes) {
  (void)bytes;
  mpi_check(w, "MPI_Free_mem", MPI_Free_mem(mem));
}

const char *peer_refuses(const struct run *r) {
  if (r->coll == GATHER || r->coll == SCATTER || r->coll == SENDRECV || r->coll == ALLTOALLV)
    return "not one of the collectives that are compared";
  return r->inplace && r->coll != BROADCAST ? "runs out of place only" : NULL;
}

int main(int argc, char **argv) {
  static struct job job;
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (argc != 3 || strcmp(argv[1], "--job") != 0 || job_read(argv[2], &job) || (!*job.commands && !job.nruns)) {
    fprintf(stderr, "usage: mpirun ... %s --job FILE with commands= (started by lightpath bench peers), or runs\n",
            argv[0]);
    return 2;
  }
  struct worker w = {.memory = job.memory == PLAIN ? &plain_memory : &library_memory, .out = stdout};
  MPI_Comm_rank(MPI_COMM_WORLD, &w.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &w.world);
  if (*job.barrier) w.bar = barrier_open(&w, job.barrier);
  if (w.world != job.world) {
    fprintf(stderr, "%s: a world of %d, not of %d\n", argv[0], w.world, job.world);
    return 2;
  }
  peer_open(&w);
  int bad = work(&w, &job);
  peer_close(&w);
  MPI_Finalize();
  free(w.bar);
  return bad ? 1 : 0;
}
