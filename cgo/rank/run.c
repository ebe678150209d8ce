#define _GNU_SOURCE
#include "rank.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The runs of a job and their timing, the same for every library. */

static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

static void put_text(FILE *out, const char *text) {
  for (const char *c = text; *c; c++) {
    if (*c == '"' || *c == '\\') putc('\\', out);
    putc((unsigned char)*c < 0x20 ? ' ' : *c, out);
  }
}

/* Ends the process: a failed rank cannot continue, and its launcher ends the others. */
void rank_fail(const struct worker *w, const char *what, int result, const char *text) {
  pthread_mutex_lock(&output);
  fprintf(w->out, "{\"rank\":%d,\"result\":%d,\"error\":\"%s: ", w->rank, result, what);
  put_text(w->out, text);
  fprintf(w->out, "\"}\n");
  fflush(w->out);
  _exit(1);
}

static void *scratch(const struct worker *w, size_t bytes) {
  void *p = malloc(bytes > 0 ? bytes : 1);
  if (!p) rank_fail(w, "malloc", errno, strerror(errno));
  return p;
}

/* Bytes of the buffers of a rank. */
struct sizes {
  size_t send, recv;
};

static struct sizes sizes_of(const struct run *r, int world) {
  size_t size = type_size(r->type);
  return (struct sizes){send_count(r, world) * size, recv_count(r, world) * size};
}

static struct sizes larger(struct sizes a, struct sizes b) {
  return (struct sizes){a.send > b.send ? a.send : b.send, a.recv > b.recv ? a.recv : b.recv};
}

/* Writes the input, and spoils the receive buffer. Without a check, buffers of a device keep what they hold. */
static void prepare(const struct worker *w, const struct run *r, struct buffers b, struct buffers at) {
  if (!r->check && w->memory->put) return;
  struct sizes n = sizes_of(r, w->world);
  if (!w->memory->put) {
    memset(b.recv, 0xA5, n.recv);
    fill(at.send, r, w->rank, send_count(r, w->world));
    return;
  }
  void *host = scratch(w, n.recv > n.send ? n.recv : n.send);
  memset(host, 0xA5, n.recv);
  w->memory->put(w, b.recv, host, n.recv);
  fill(host, r, w->rank, send_count(r, w->world));
  w->memory->put(w, at.send, host, n.send);
  free(host);
}

static uint64_t wrong_in(const struct worker *w, const struct run *r, const char *recv) {
  if (!w->memory->get) return count_wrong(recv, r, w->rank, w->world);
  size_t received = sizes_of(r, w->world).recv;
  void *host = scratch(w, received);
  w->memory->get(w, host, recv, received);
  uint64_t wrong = count_wrong(host, r, w->rank, w->world);
  free(host);
  return wrong;
}

/* A call, and waiting for its end. */
static void whole_call(const struct worker *w, const struct run *r, struct buffers at) {
  lib_call(w, r, at);
  if (w->memory->finish) w->memory->finish(w);
}

struct outcome {
  double us, cpu_us; /* of a call; cpu_us: processor time of the process, in loops */
  uint64_t wrong;
  int64_t (*iters)[2];
};

static void take_pause(const struct run *r) {
  nanosleep(&(struct timespec){r->pause / 1000, r->pause % 1000 * 1000000L}, NULL);
}

static struct outcome run_sync(const struct worker *w, const struct run *r, struct buffers b) {
  struct buffers at = place(r, w->rank, b);
  struct outcome out = {.iters = calloc((size_t)r->iters, sizeof *out.iters)};
  for (int i = -r->warmup; i < r->iters; i++) {
    prepare(w, r, b, at);
    take_pause(r);
    barrier_wait(w->bar);
    int64_t start = now_ns();
    whole_call(w, r, at);
    int64_t end = now_ns();
    barrier_wait(w->bar); /* else checking takes the CPU from ranks that are still in the call */
    if (r->check) out.wrong += wrong_in(w, r, at.recv);
    if (i < 0) continue;
    out.iters[i][0] = start, out.iters[i][1] = end;
    out.us += (double)(end - start) / 1e3 / r->iters;
  }
  return out;
}

/* The time of a call in us, for calls back to back. */
static double back_to_back(const struct worker *w, const struct run *r, struct buffers at, int64_t (*iters)[2]) {
  if (r->graph > 0) return w->memory->replay(w, r, at);
  int64_t started = w->memory->start(w);
  for (int i = 0; i < r->iters && !iters; i++) lib_call(w, r, at);
  for (int i = 0; i < r->iters && iters; i++) {
    iters[i][0] = now_ns();
    whole_call(w, r, at);
    iters[i][1] = now_ns();
  }
  return w->memory->stop(w, started) / r->iters;
}

static struct outcome run_loop(const struct worker *w, const struct run *r, struct buffers b) {
  struct buffers at = place(r, w->rank, b);
  struct outcome out = {.iters = r->each ? calloc((size_t)r->iters, sizeof *out.iters) : NULL};
  if (out.iters) memset(out.iters, 1, (size_t)r->iters * sizeof *out.iters); /* no page fault while timing */
  prepare(w, r, b, at);
  for (int i = 0; i < r->warmup; i++) whole_call(w, r, at);
  if (r->pause > 0) {
    take_pause(r);
    for (int i = 0; i < r->warmup; i++) whole_call(w, r, at);
  }
  if (w->bar) barrier_wait(w->bar);
  int64_t cpu = cpu_ns();
  out.us = back_to_back(w, r, at, out.iters);
  out.cpu_us = (double)(cpu_ns() - cpu) / 1e3 / r->iters;
  if (r->check) {
    if (w->bar) barrier_wait(w->bar); /* as in run_sync */
    prepare(w, r, b, at);
    if (r->graph > 0) {
      struct run once = *r;
      once.warmup = 0, once.iters = once.graph = 1;
      w->memory->replay(w, &once, at);
    } else {
      whole_call(w, r, at);
    }
    out.wrong = wrong_in(w, r, at.recv);
  }
  return out;
}

static void report(const struct worker *w, const struct run *r, const struct outcome *o) {
  pthread_mutex_lock(&output);
  fprintf(
      w->out,
      "{\"rank\":%d,\"collective\":\"%s\",\"bytes\":%llu,\"count\":%llu,\"inplace\":%d,\"time_us\":%.4f,"
      "\"cpu_us\":%.4f,\"wrong\":%llu",
      w->rank, collective_name(r->coll), (unsigned long long)r->bytes, (unsigned long long)r->count, r->inplace, o->us,
      o->cpu_us, (unsigned long long)o->wrong);
  if (o->iters) {
    fprintf(w->out, ",\"iters_ns\":[");
    for (int i = 0; i < r->iters; i++)
      fprintf(w->out, "%s[%lld,%lld]", i ? "," : "", (long long)o->iters[i][0], (long long)o->iters[i][1]);
    fprintf(w->out, "]");
  }
  fprintf(w->out, "}\n");
  fflush(w->out);
  pthread_mutex_unlock(&output);
}

static void run_one(const struct worker *w, const struct run *r, struct buffers b) {
  if (r->sync && !w->bar) rank_fail(w, "mode=sync", 0, "needs a barrier");
  if (r->graph > 0 && !w->memory->replay) rank_fail(w, "graph", 0, "needs memory=device");
  struct outcome o = r->sync ? run_sync(w, r, b) : run_loop(w, r, b);
  report(w, r, &o);
  free(o.iters);
}

/* Host memory is written once so that its pages are there. */
static char *library_obtain(const struct worker *w, size_t bytes) {
  char *p = lib_alloc(w, bytes);
  memset(p, 0, bytes);
  return p;
}

static char *plain_obtain(const struct worker *w, size_t bytes) {
  char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) rank_fail(w, "mmap", errno, strerror(errno));
  memset(p, 0, bytes);
  return p;
}

static void library_give_back(const struct worker *w, char *mem, size_t bytes) {
  if (mem) lib_free(w, mem, bytes);
}

static void plain_give_back(const struct worker *w, char *mem, size_t bytes) {
  (void)w;
  if (mem) munmap(mem, bytes);
}

static int64_t clock_start(const struct worker *w) {
  (void)w;
  return now_ns();
}

static double clock_stop(const struct worker *w, int64_t started) {
  (void)w;
  return (double)(now_ns() - started) / 1e3;
}

const struct memory library_memory = {
    .obtain = library_obtain, .give_back = library_give_back, .start = clock_start, .stop = clock_stop};
const struct memory plain_memory = {
    .obtain = plain_obtain, .give_back = plain_give_back, .start = clock_start, .stop = clock_stop};

static struct buffers obtain(const struct worker *w, struct sizes n) {
  return (struct buffers){w->memory->obtain(w, n.send), w->memory->obtain(w, n.recv)};
}

static void give_back(const struct worker *w, struct buffers b, struct sizes n) {
  w->memory->give_back(w, b.send, n.send);
  w->memory->give_back(w, b.recv, n.recv);
}

static void work_through(struct worker *w, const struct job *job) {
  struct sizes need = {1, 1};
  for (size_t i = 0; i < job->nruns; i++) need = larger(need, sizes_of(&job->runs[i], w->world));
  struct buffers b = obtain(w, need);
  if (w->bar) barrier_wait(w->bar); /* an allocation may wait for the device, and so for calls of other ranks */
  for (size_t i = 0; i < job->nruns; i++) run_one(w, &job->runs[i], b);
  give_back(w, b, need);
}

static int dial(const char *path) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (strlen(path) < sizeof at.sun_path) strcpy(at.sun_path, path);
  if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) {
    fprintf(stderr, "lightpath-rank: %s: %s\n", path, strerror(errno));
    return -1;
  }
  return fd;
}

static int work_session(struct worker *w, const struct job *job) {
  int fd = dial(job->commands);
  FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
  FILE *out = fd < 0 ? NULL : fdopen(dup(fd), "w");
  if (!in || !out) return -1;
  w->out = out;
  struct sizes most = larger((struct sizes){1, 1}, (struct sizes){job->reserve, job->reserve});
  struct buffers shared = obtain(w, most);
  fprintf(w->out, "{\"rank\":%d,\"library\":\"", w->rank);
  put_text(w->out, lib_name());
  fprintf(w->out, "\"}\n");
  fflush(w->out);
  char line[1024];
  int bad = 0;
  while (!bad && fgets(line, sizeof line, in)) {
    struct run r;
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "run ", 4) != 0 || run_parse(line + 4, w->world, &r)) {
      bad = -1;
      break;
    }
    const char *why = lib_unsupported(&r);
    if (why) {
      fprintf(w->out, "{\"rank\":%d,\"unsupported\":\"%s\"}\n", w->rank, why);
      fflush(w->out);
      free(r.matrix);
      continue;
    }
    struct sizes need = sizes_of(&r, w->world);
    if (need.send <= most.send && need.recv <= most.recv) {
      run_one(w, &r, shared);
    } else {
      struct buffers own = obtain(w, need);
      run_one(w, &r, own);
      give_back(w, own, need);
    }
    free(r.matrix);
  }
  give_back(w, shared, most);
  fclose(in);
  fclose(w->out);
  w->out = stdout;
  return bad;
}

int work(struct worker *w, const struct job *job) {
  if (*job->commands) return work_session(w, job);
  work_through(w, job);
  return 0;
}
