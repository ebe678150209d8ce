#include "rank.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const collectives[NCOLLECTIVES] = {"allreduce", "broadcast", "reduce",  "allgather", "reducescatter",
                                                      "alltoall",  "gather",    "scatter", "sendrecv",  "alltoallv"};
static const char *const types[] = {"int8",  "uint8", "int32",  "uint32",   "int64",  "uint64",
                                    "half",  "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};

const char *collective_name(enum collective c) { return collectives[c]; }

static int lookup(const char *const *names, size_t n, const char *value) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(names[i], value) == 0) return (int)i;
  return -1;
}
#define LOOKUP(names, value) lookup(names, sizeof names / sizeof *names, value)

static int number(const char *text, uint64_t max, uint64_t *out) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (errno || end == text || *end || v > max) return -1;
  *out = v;
  return 0;
}

static int run_field(struct run *r, const char *key, const char *value) {
  uint64_t n;
  int i;
  if (strcmp(key, "collective") == 0) {
    if ((i = LOOKUP(collectives, value)) < 0) return -1;
    r->coll = (enum collective)i;
  } else if (strcmp(key, "type") == 0) {
    if ((i = LOOKUP(types, value)) < 0) return -1;
    r->type = (ncclDataType_t)i;
  } else if (strcmp(key, "op") == 0) {
    if ((i = LOOKUP(ops, value)) < 0) return -1;
    r->op = (ncclRedOp_t)i;
  } else if (strcmp(key, "mode") == 0) {
    static const char *const modes[] = {"loop", "each", "sync"};
    if ((i = LOOKUP(modes, value)) < 0) return -1;
    r->each = i == 1, r->sync = i == 2;
  } else if (strcmp(key, "bytes") == 0) {
    return number(value, UINT64_MAX >> 8, &r->bytes);
  } else if (strcmp(key, "count") == 0) {
    return number(value, UINT64_MAX >> 8, &r->count);
  } else {
    static const char *const names[] = {"root", "warmup", "iters", "check", "inplace", "pause", "graph"};
    int *const fields[] = {&r->root, &r->warmup, &r->iters, &r->check, &r->inplace, &r->pause, &r->graph};
    if ((i = LOOKUP(names, key)) < 0 || number(value, 1 << 30, &n)) return -1;
    *fields[i] = (int)n;
  }
  return 0;
}

/* Every row and column of the matrix must fit the buffers, which have count elements. */
static int matrix_read(struct run *r, const char *path, int world) {
  FILE *f = fopen(path, "re");
  size_t n = (size_t)world;
  r->matrix = calloc(n * n, sizeof *r->matrix);
  uint64_t *column = calloc(n, sizeof *column);
  int bad = !f || !r->matrix || !column;
  for (size_t s = 0; s < n && !bad; s++) {
    uint64_t row = 0;
    for (size_t d = 0; d < n && !bad; d++) {
      unsigned long long v;
      bad = fscanf(f, "%llu", &v) != 1 || v > r->count;
      if (bad) break;
      r->matrix[s * n + d] = v;
      bad = (row += v) > r->count || (column[d] += v) > r->count;
    }
  }
  free(column);
  if (f) fclose(f);
  if (bad)
    fprintf(stderr, "lightpath-rank: %s is no matrix of %d x %d element counts of at most %llu a row or column\n", path,
            world, world, (unsigned long long)r->count);
  return bad ? -1 : 0;
}

int run_parse(char *text, int world, struct run *r) {
  char *save = NULL;
  const char *matrix = NULL;
  *r = (struct run){0};
  for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
    char *eq = strchr(word, '=');
    if (strncmp(word, "matrix=", 7) == 0) {
      matrix = word + 7;
      continue;
    }
    if (!eq || (*eq = 0, run_field(r, word, eq + 1))) {
      fprintf(stderr, "lightpath-rank: run: bad field %s=%s\n", word, eq ? eq + 1 : "");
      return -1;
    }
  }
  if (r->iters < 1 || r->root >= world) {
    fprintf(stderr, "lightpath-rank: run: iters or root out of range\n");
    return -1;
  }
  if ((r->coll == ALLTOALLV) != (matrix != NULL) || (r->inplace && matrix)) {
    fprintf(stderr, "lightpath-rank: run: alltoallv has a matrix, and only out of place\n");
    return -1;
  }
  if (r->graph > 0 && (r->sync || r->each)) {
    fprintf(stderr, "lightpath-rank: run: graphs are for mode=loop\n");
    return -1;
  }
  return matrix ? matrix_read(r, matrix, world) : 0;
}

static int run_line(struct job *job, char *text, int line) {
  struct run r;
  if (run_parse(text, job->world, &r)) {
    fprintf(stderr, "lightpath-rank: in line %d of the job\n", line);
    return -1;
  }
  struct run *grown = realloc(job->runs, (job->nruns + 1) * sizeof r);
  if (!grown) return -1;
  job->runs = grown;
  job->runs[job->nruns++] = r;
  return 0;
}

static int setting(struct job *job, const char *key, const char *value) {
  uint64_t n;
  static const char *const names[] = {"rank", "world", "threads", "device"};
  int *const fields[] = {&job->rank, &job->world, &job->threads, &job->device};
  int i = LOOKUP(names, key);
  if (i >= 0) {
    if (number(value, 1 << 20, &n)) return -1;
    *fields[i] = (int)n;
    return 0;
  }
  if (strcmp(key, "memory") == 0) {
    static const char *const memories[] = {[LIBRARY] = "library", [PLAIN] = "plain", [DEVICE] = "device",
                                           [REGISTERED] = "registered"};
    if ((i = LOOKUP(memories, value)) < 0) return -1;
    job->memory = (enum where)i;
    return 0;
  }
  if (strcmp(key, "reserve") == 0) {
    if (number(value, UINT64_C(1) << 40, &n)) return -1;
    job->reserve = n;
    return 0;
  }
  static const char *const paths[] = {"rendezvous", "barrier", "commands", "library"};
  char *const texts[] = {job->rendezvous, job->barrier, job->commands, job->library};
  if ((i = LOOKUP(paths, key)) < 0 || strlen(value) >= sizeof job->rendezvous) return -1;
  strcpy(texts[i], value);
  return 0;
}

int job_read(const char *path, struct job *job) {
  FILE *f = strcmp(path, LAUNCHER) == 0 ? stdin : fopen(path, "re");
  if (!f) {
    fprintf(stderr, "lightpath-rank: %s: %s\n", path, strerror(errno));
    return -1;
  }
  char text[8192];
  int line = 0, err = 0;
  *job = (struct job){.world = 1, .threads = 1, .device = -1};
  while (!err && fgets(text, sizeof text, f)) {
    line++;
    text[strcspn(text, "\n")] = 0;
    char *eq = strchr(text, '=');
    if (!*text) continue;
    if (strcmp(text, "end") == 0) break;
    if (strncmp(text, "run ", 4) == 0) {
      err = run_line(job, text + 4, line);
    } else if (!eq || (*eq = 0, setting(job, text, eq + 1))) {
      fprintf(stderr, "lightpath-rank: job line %d: bad setting %s\n", line, text);
      err = -1;
    }
  }
  if (f != stdin) fclose(f);
  if (!err && (job->threads < 1 || job->rank + job->threads > job->world)) {
    fprintf(stderr, "lightpath-rank: rank %d with %d threads does not fit a world of %d\n", job->rank, job->threads,
            job->world);
    err = -1;
  }
  return err;
}
