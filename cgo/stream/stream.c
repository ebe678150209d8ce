/* STREAM's loops (J. McCalpin), for lightpath bench kernels to compare with the library's kernels: lightpath-stream
 * BYTES THREADS. A line of input names a loop, "copy", "add" or "triad", with "-nt" for stores past the caches. The
 * answer is the nanoseconds of the loop over arrays of BYTES each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { MAX_THREADS = 256 };

typedef void loop(float* restrict a, const float* restrict b, const float* restrict c, size_t n);

#define LOOP(NAME, EXPR)                                                                  \
  static void NAME(float* restrict a, const float* restrict b, const float* restrict c, size_t n) { \
    (void)c;                                                                              \
    for (size_t i = 0; i < n; i++) a[i] = EXPR;                                           \
  }

LOOP(copy, b[i])
LOOP(add, b[i] + c[i])
LOOP(triad, b[i] + 3.0f * c[i])

#ifdef __x86_64__
/* Arrays are aligned, and have whole cache lines. */
#define STREAMING(NAME, EXPR)                                                             \
  static void NAME(float* restrict a, const float* restrict b, const float* restrict c, size_t n) { \
    (void)c;                                                                              \
    for (size_t i = 0; i < n; i += 16)                                                    \
      for (size_t k = i; k < i + 16; k += 4) {                                            \
        __m128 x = _mm_load_ps(b + k), y = _mm_load_ps(c + k);                            \
        (void)y;                                                                          \
        _mm_stream_ps(a + k, EXPR);                                                       \
      }                                                                                   \
    _mm_sfence();                                                                         \
  }
STREAMING(copy_nt, x)
STREAMING(add_nt, _mm_add_ps(x, y))
STREAMING(triad_nt, _mm_add_ps(x, _mm_mul_ps(_mm_set1_ps(3), y)))
#else
#define copy_nt copy
#define add_nt add
#define triad_nt triad
#endif

static const struct {
  const char* name;
  loop* run;
} loops[] = {{"copy", copy},       {"add", add},       {"triad", triad},
             {"copy-nt", copy_nt}, {"add-nt", add_nt}, {"triad-nt", triad_nt}};

static size_t count;
static unsigned threads;
static loop* current; /* NULL: the end */
static pthread_barrier_t begin, end;

static float* array(void) {
  float* at = mmap(NULL, count * sizeof *at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    perror("lightpath-stream: mmap");
    exit(1);
  }
  for (size_t i = 0; i < count; i++) at[i] = 1;
  return at;
}

/* Each thread has its own arrays, which it has touched first. */
static void* work(void* unused) {
  float *a = array(), *b = array(), *c = array();
  (void)unused;
  for (pthread_barrier_wait(&begin); current != NULL; pthread_barrier_wait(&begin)) {
    current(a, b, c, count);
    pthread_barrier_wait(&end);
  }
  return NULL;
}

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char** argv) {
  char line[64];
  pthread_t thread;
  size_t bytes = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
  threads = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
  count = bytes / sizeof(float) / (threads > 0 ? threads : 1) & ~(size_t)15;
  if (threads < 1 || threads > MAX_THREADS || count == 0) {
    fprintf(stderr, "usage: lightpath-stream BYTES THREADS\n");
    return 2;
  }
  pthread_barrier_init(&begin, NULL, threads + 1);
  pthread_barrier_init(&end, NULL, threads + 1);
  for (unsigned i = 0; i < threads; i++)
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    current = NULL;
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
      if (strcmp(line, loops[i].name) == 0) current = loops[i].run;
    if (current == NULL) {
      fprintf(stderr, "lightpath-stream: no loop %s\n", line);
      return 1;
    }
    pthread_barrier_wait(&begin);
    long long started = now_ns();
    pthread_barrier_wait(&end);
    printf("%lld\n", now_ns() - started);
    fflush(stdout);
  }
  return 0;
}
