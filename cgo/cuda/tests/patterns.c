/* How frameworks use communicators: several of them over the same ranks, streams that wait for each other, receives
 * that are posted early. patterns [NAME...] runs some of the tests. */
#include <unistd.h>

#include "tests.h"
#include "vector.h"

enum { MANY = 100000 }; /* floats of a long message */

/* A rank of several communicators. */
struct place {
  CUstream compute, pipe, data;
  ncclComm_t tensor, stage, replica;
  float *act, *grad, *got, *bucket;
};

static float *floats(int n, float of) {
  float *host = malloc((size_t)n * sizeof *host), *at = gpu_alloc((size_t)n * sizeof *at);
  int i;
  for (i = 0; i < n; i++) host[i] = of;
  gpu_copy(at, host, (size_t)n * sizeof *host);
  free(host);
  return at;
}

static void all_are(const float *at, int n, float want) {
  float *host = malloc((size_t)n * sizeof *host);
  int i;
  gpu_copy(host, at, (size_t)n * sizeof *host);
  for (i = 0; i < n; i++) {
    if (host[i] == want) continue;
    fprintf(stderr, "element %d is %g, want %g\n", i, (double)host[i], (double)want);
    exit(1);
  }
  free(host);
}

/* Stream to waits for what is on stream from. As in PyTorch, each time with an event of its own. */
static void after(CUstream to, CUstream from) {
  CUevent e;
  IS(gpu.EventCreate(&e, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  IS(gpu.EventRecord(e, from), CUDA_SUCCESS);
  IS(gpu.StreamWaitEvent(to, e, 0), CUDA_SUCCESS);
}

static void add(float *at, int n, ncclComm_t comm, CUstream s) {
  OK(ncclAllReduce(at, at, (size_t)n, ncclFloat, ncclSum, comm, (cudaStream_t)s));
}

/* The messages between two stages; NULL: none in this direction. */
static void pass(struct place *p, const float *send, float *recv) {
  int rank;
  OK(ncclCommUserRank(p->stage, &rank));
  after(p->pipe, p->compute);
  OK(ncclGroupStart());
  if (send != NULL) OK(ncclSend(send, MANY, ncclFloat, 1 - rank, p->stage, (cudaStream_t)p->pipe));
  if (recv != NULL) OK(ncclRecv(recv, MANY, ncclFloat, 1 - rank, p->stage, (cudaStream_t)p->pipe));
  OK(ncclGroupEnd());
  after(p->compute, p->pipe);
}

/* A pass of a microbatch through a stage. After a pass backward, the replicas' gradients are added beside it. */
static void run_stage(struct place *p, bool backward) {
  add(p->act, 1000, p->tensor, p->compute);
  if (!backward) return;
  after(p->data, p->compute);
  add(p->bucket, 20000, p->replica, p->data);
}

/* Megatron: 2 replicas, of 2 stages, of 2 ranks that share tensors. Each has its communicator and stream. Stages pass 3
 * microbatches forward, and their gradients back, one forward and one backward at a time. */
static void megatron(struct rank *r) {
  struct place p = {gpu_stream(CU_STREAM_NON_BLOCKING), gpu_stream(CU_STREAM_NON_BLOCKING),
                    gpu_stream(CU_STREAM_NON_BLOCKING)};
  const int tensor = r->rank & 1, stage = r->rank >> 1 & 1, replica = r->rank >> 2;
  int round;
  p.act = floats(MANY, 0);
  p.grad = floats(MANY, (float)(stage + 1));
  p.got = floats(MANY, 0);
  p.bucket = floats(20000, 1);
  OK(ncclCommSplit(r->comm, stage * 2 + replica, r->rank, &p.tensor, NULL));
  OK(ncclCommSplit(r->comm, tensor * 2 + replica, r->rank, &p.stage, NULL));
  OK(ncclCommSplit(r->comm, tensor * 2 + stage, r->rank, &p.replica, NULL));
  meet();
  for (round = 0; round < 2; round++) {
    if (stage == 0) {
      run_stage(&p, false);
      pass(&p, p.grad, NULL);
      run_stage(&p, false);
      pass(&p, p.grad, p.got);
      run_stage(&p, true);
      run_stage(&p, false);
      pass(&p, p.grad, p.got);
      run_stage(&p, true);
      pass(&p, NULL, p.got);
      run_stage(&p, true);
    } else {
      pass(&p, NULL, p.got);
      run_stage(&p, false);
      run_stage(&p, true);
      pass(&p, p.grad, p.got);
      run_stage(&p, false);
      run_stage(&p, true);
      pass(&p, p.grad, p.got);
      run_stage(&p, false);
      run_stage(&p, true);
      pass(&p, p.grad, NULL);
    }
    after(p.compute, p.data);
    add(p.act, 1, r->comm, p.compute); /* of all ranks: the norm of the gradients */
  }
  IS(gpu.StreamSynchronize(p.compute), CUDA_SUCCESS);
  all_are(p.got, MANY, (float)(2 - stage));
  all_are(p.bucket, 20000, 64); /* doubled 6 times */
  OK(ncclCommDestroy(p.tensor));
  OK(ncclCommDestroy(p.stage));
  OK(ncclCommDestroy(p.replica));
}

/* DDP: buckets of gradients on a stream of the communicator, beside the computation, and buffers on a second
 * communicator. */
static void ddp(struct rank *r) {
  enum { BUCKETS = 8, STEPS = 3 };
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *buckets[BUCKETS], *buffers = floats(100, (float)r->rank), want = 1;
  ncclComm_t other;
  int i, step;
  OK(ncclCommSplit(r->comm, 0, r->rank, &other, NULL));
  for (i = 0; i < BUCKETS; i++) buckets[i] = floats(30000, 1);
  meet();
  for (step = 0; step < STEPS; step++) {
    after(t, s);
    OK(ncclBroadcast(buffers, buffers, 100, ncclFloat, 0, other, (cudaStream_t)t));
    after(s, t);
    for (i = 0; i < BUCKETS; i++) {
      after(t, s);
      add(buckets[i], 30000, r->comm, t);
    }
    after(s, t);
    want *= (float)r->world;
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  for (i = 0; i < BUCKETS; i++) all_are(buckets[i], 30000, want);
  all_are(buffers, 100, 0);
  OK(ncclCommDestroy(other));
}

/* A stage posts the receive of the next microbatch before its peer has begun the collective that comes before the
 * send: on another communicator and stream. */
static void early_receive(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = floats(MANY, 1), *b = floats(MANY, (float)r->rank);
  ncclComm_t pipe;
  OK(ncclCommSplit(r->comm, 0, r->rank, &pipe, NULL));
  if (r->rank > 0) OK(ncclRecv(b, MANY, ncclFloat, 0, pipe, (cudaStream_t)t));
  meet();
  add(a, MANY, r->comm, s);
  if (r->rank == 0) {
    int i;
    after(t, s);
    OK(ncclGroupStart());
    for (i = 1; i < r->world; i++) OK(ncclSend(b, MANY, ncclFloat, i, pipe, (cudaStream_t)t));
    OK(ncclGroupEnd());
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
  all_are(a, MANY, (float)r->world);
  all_are(b, MANY, 0);
  OK(ncclCommDestroy(pipe));
}

/* With one queue that cannot work. It is an error of all ranks, and no stream hangs. */
static void early_receive_fails(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = floats(MANY, 1), *b = floats(MANY, 1);
  ncclResult_t rc;
  ncclComm_t pipe;
  OK(ncclCommSplit(r->comm, 0, r->rank, &pipe, NULL));
  if (r->rank > 0) OK(ncclRecv(b, MANY, ncclFloat, 0, pipe, (cudaStream_t)t));
  meet();
  rc = ncclAllReduce(a, a, MANY, ncclFloat, ncclSum, r->comm, (cudaStream_t)s);
  CHECK(rc == ncclSuccess || rc == ncclTimeout);
  rc = await_failure(r->rank == 0 ? r->comm : pipe);
  CHECK(rc == ncclTimeout || rc == ncclRemoteError); /* the other rank may be the first to abort */
  abort_comm(r);
  OK(ncclCommAbort(pipe));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
}

/* A group with several long messages to and from each peer. */
static void several_messages(struct rank *r) {
  enum { EACH = 3 };
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *send[EACH], *recv[EACH];
  int i, k;
  for (i = 0; i < EACH; i++) {
    send[i] = floats(MANY * r->world, (float)(10 * r->rank + i));
    recv[i] = floats(MANY * r->world, 0);
  }
  meet(); /* a rank that allocates may wait for the others of its context */
  OK(ncclGroupStart());
  for (i = 0; i < EACH; i++) {
    for (k = 0; k < r->world; k++) {
      OK(ncclSend(send[i] + MANY * k, MANY - i, ncclFloat, k, r->comm, (cudaStream_t)s));
      OK(ncclRecv(recv[i] + MANY * k, MANY - i, ncclFloat, k, r->comm, (cudaStream_t)s));
    }
  }
  OK(ncclGroupEnd());
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  for (i = 0; i < EACH; i++)
    for (k = 0; k < r->world; k++) all_are(recv[i] + MANY * k, MANY - i, (float)(10 * k + i));
}

/* One thread, with a graph for each of its devices: nccl-tests -g 2 -G 1. */
static void two_captures(struct rank *r) {
  enum { RANKS = 2 };
  ncclComm_t comms[RANKS];
  CUstream s[RANKS];
  CUgraphExec exec[RANKS];
  float *a[RANKS];
  int i, k;
  if (r->rank > 0) return;
  OK(ncclCommInitAll(comms, RANKS, NULL));
  for (i = 0; i < RANKS; i++) {
    gpu_use(i);
    s[i] = gpu_stream(CU_STREAM_NON_BLOCKING);
    a[i] = floats(MANY, 1);
  }
  for (i = 0; i < RANKS; i++) {
    gpu_use(i);
    IS(gpu.StreamBeginCapture(s[i], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  }
  for (k = 0; k < 2; k++) {
    OK(ncclGroupStart());
    for (i = 0; i < RANKS; i++) add(a[i], MANY, comms[i], s[i]);
    OK(ncclGroupEnd());
  }
  for (i = 0; i < RANKS; i++) {
    gpu_use(i);
    exec[i] = end_capture(s[i]);
  }
  for (k = 0; k < 3; k++)
    for (i = 0; i < RANKS; i++) {
      gpu_use(i);
      IS(gpu.GraphLaunch(exec[i], s[i]), CUDA_SUCCESS);
    }
  for (i = 0; i < RANKS; i++) {
    gpu_use(i);
    IS(gpu.StreamSynchronize(s[i]), CUDA_SUCCESS);
    all_are(a[i], MANY, 64);
    IS(gpu.GraphExecDestroy(exec[i]), CUDA_SUCCESS);
    OK(ncclCommDestroy(comms[i]));
  }
  gpu_use(r->device);
}

/* Calls on one communicator, behind a stream that waits for the caller, while another communicator ends. */
static void another_ends(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = floats(MANY, 1), *b = floats(MANY, 1);
  uint32_t *gate = new_gate();
  ncclComm_t other;
  int i;
  OK(ncclCommSplit(r->comm, 0, r->rank, &other, NULL));
  add(a, MANY, other, t);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
  meet();
  if (r->rank == 0) add(a, MANY, other, t); /* the others do not come */
  usleep(10000);
  wait_for_gate(s, gate);
  OK(ncclCommAbort(other));
  for (i = 0; i < 5; i++) {
    add(b, 100, r->comm, s);
    usleep(5000);
  }
  IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
  open_gate(gate);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
  all_are(b, 100, r->world == 2 ? 32 : 243);
}

/* Ranks of one context whose streams have one queue get an error. Rank 1 makes a stream on each queue, one after the
 * other, so one has the queue of rank 0's stream. */
static void shared_queue(struct rank *r) {
  enum { QUEUES = 8 };
  CUstream s[QUEUES];
  float *a = floats(100, 1);
  ncclResult_t rc = ncclSuccess;
  int streams = r->rank == 0 ? 1 : QUEUES, i;
  if (r->rank == 1) meet(); /* rank 0's stream is there */
  for (i = 0; i < streams; i++) s[i] = gpu_stream(CU_STREAM_NON_BLOCKING);
  if (r->rank == 0) meet();
  meet();
  for (i = 0; rc == ncclSuccess && i < QUEUES; i++)
    rc = ncclAllReduce(a, a, 100, ncclFloat, ncclSum, r->comm, (cudaStream_t)s[i % streams]);
  CHECK(rc == ncclSuccess || rc == ncclTimeout || rc == ncclRemoteError);
  rc = await_failure(r->comm);
  CHECK(rc == ncclTimeout || rc == ncclRemoteError);
  abort_comm(r);
  for (i = 0; i < streams; i++) IS(gpu.StreamSynchronize(s[i]), CUDA_SUCCESS);
}

/* With one queue they are refused. */
static void one_context(void) {
  ncclComm_t comms[2];
  const int devices[2] = {0, 0};
  gpu_use(0);
  FAILS(ncclCommInitAll(comms, 2, devices), ncclInvalidUsage, "2 ranks of this process share its device");
}

int main(int argc, char **argv) {
  static const struct test tests[] = {
      {"megatron", 8, megatron},
      {"ddp", 3, ddp},
      {"early_receive", 3, early_receive},
      {"early_receive_fails", 2, early_receive_fails, "2s"},
      {"several_messages", 2, several_messages},
      {"eight", 8, several_messages},
      {"two_captures", 2, two_captures},
      {"another_ends", 2, another_ends},
      {"shared_queue", 2, shared_queue, "2s"},
  };
  gpu_open();
  if (argc == 2 && strcmp(argv[1], "one_context") == 0) {
    one_context();
    return 0;
  }
  run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
  return 0;
}
