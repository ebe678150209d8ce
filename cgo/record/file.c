/* The file of a process: LIGHTPATH_ITERATION_RECORD names its folder. It is made with the first communicator, so other
 * processes of the job, such as launchers, have none. */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lp_record_file* file;
static bool tried;

static int64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int32_t launcher_rank(void) {
  static const char* const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    const char* text = getenv(names[i]);
    if (text != NULL && text[0] >= '0' && text[0] <= '9') return atoi(text);
  }
  return -1;
}

static void fill(struct lp_record_header* h, const char* host) {
  memcpy(h->magic, LP_RECORD_MAGIC, sizeof h->magic);
  h->version = LP_RECORD_VERSION;
  h->comm_room = LP_RECORD_COMMS;
  h->call_room = LP_RECORD_CALLS;
  h->pid = (int32_t)getpid();
  h->launcher_rank = launcher_rank();
  h->monotonic = now(CLOCK_MONOTONIC);
  h->realtime = now(CLOCK_REALTIME);
  snprintf(h->host, sizeof h->host, "%s", host);
  snprintf(h->library, sizeof h->library, "%s", lp_real_path());
}

/* Makes the file at path. It takes all its room on the disk now: a disk that is full later would end the job. */
static struct lp_record_file* map(const char* path) {
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  void* at = MAP_FAILED;
  int why;
  if (fd < 0) return NULL;
  why = posix_fallocate(fd, 0, sizeof(struct lp_record_file));
  if (why == 0) {
    at = mmap(NULL, sizeof(struct lp_record_file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    why = errno;
  }
  close(fd);
  if (at != MAP_FAILED) return at;
  unlink(path);
  errno = why;
  return NULL;
}

static void make(const char* folder) {
  char path[4096], host[64] = "";
  struct lp_record_file* f;
  (void)mkdir(folder, 0777);
  gethostname(host, sizeof host - 1);
  snprintf(path, sizeof path, "%s/%s-%d-%llx.record", folder, host, (int)getpid(),
           (unsigned long long)now(CLOCK_REALTIME));
  f = map(path);
  if (f == NULL) {
    fprintf(stderr, "lightpath iteration record: process %d is not recorded: %s: %s\n", (int)getpid(), path,
            strerror(errno));
    return;
  }
  fill(&f->header, host);
  __atomic_store_n(&file, f, __ATOMIC_RELEASE);
}

struct lp_record_file* lp_record_open(void) {
  const char* folder;
  pthread_mutex_lock(&mutex);
  folder = tried ? NULL : getenv("LIGHTPATH_ITERATION_RECORD");
  tried = true;
  if (folder != NULL && folder[0] != '\0') make(folder);
  pthread_mutex_unlock(&mutex);
  return file;
}

struct lp_record_file* lp_record_now(void) { return __atomic_load_n(&file, __ATOMIC_ACQUIRE); }

void lp_record_after_fork(void) {
  pthread_mutex_init(&mutex, NULL);
  if (file != NULL) munmap(file, sizeof *file);
  file = NULL;
  tried = false;
}
