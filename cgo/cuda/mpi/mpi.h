/* The part of MPI that nccl-tests calls, for processes of one host. Several ranks on one GPU need processes, and
 * machines with GPUs may have no MPI. The processes share the file that MPI_SHIM_FILE names, which is empty at
 * first. */
#ifndef LP_MPI_SHIM_H
#define LP_MPI_SHIM_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int MPI_Comm;
typedef int MPI_Datatype; /* 0, or its number and its size in bytes */
typedef int MPI_Op;

#define MPI_COMM_WORLD 1
#define MPI_SUCCESS 0
#define MPI_IN_PLACE ((void *)-1)
#define MPI_DATATYPE_NULL 0
#define MPI_BYTE 0x101
#define MPI_INT 0x204
#define MPI_LONG 0x308
#define MPI_LONG_LONG 0x308
#define MPI_INT64_T 0x308
#define MPI_DOUBLE 0x408
#define MPI_SUM 1
#define MPI_MIN 2
#define MPI_MAX 3

int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
/* All ranks must have one color. */
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *part);
int MPI_Comm_free(MPI_Comm *comm);
int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Allreduce(const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Allgather(const void *send, int n, MPI_Datatype type, void *recv, int each, MPI_Datatype recv_type,
                  MPI_Comm comm);
int MPI_Gather(const void *send, int n, MPI_Datatype type, void *recv, int each, MPI_Datatype recv_type, int root,
               MPI_Comm comm);

#ifdef __cplusplus
}
#endif
#endif
