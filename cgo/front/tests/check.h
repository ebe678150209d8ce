/* Checks for the C tests: the first failure is printed with its place, and ends the program. */
#ifndef LP_TEST_CHECK_H
#define LP_TEST_CHECK_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lp_nccl_device.h"
#include "nccl.h"

#define CHECK(cond)                                                                           \
  do {                                                                                        \
    if (!(cond)) {                                                                            \
      fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #cond,             \
              ncclGetLastError(NULL));                                                        \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

/* The call returns the result. */
#define IS(call, want)                                                                            \
  do {                                                                                            \
    int got_ = (int)(call);                                                                       \
    if (got_ != (int)(want)) {                                                                    \
      fprintf(stderr, "%s:%d: %s is %d, want %s\n  last error: %s\n", __FILE__, __LINE__, #call,  \
              got_, #want, ncclGetLastError(NULL));                                               \
      exit(1);                                                                                    \
    }                                                                                             \
  } while (0)

#define OK(call) IS(call, ncclSuccess)

/* The call returns this error, and the text of the last error contains text. */
#define FAILS(call, want, text)                                                               \
  do {                                                                                        \
    IS(call, want);                                                                           \
    if (strstr(ncclGetLastError(NULL), text) == NULL) {                                       \
      fprintf(stderr, "%s:%d: %s: the last error does not mention \"%s\": %s\n", __FILE__,    \
              __LINE__, #call, text, ncclGetLastError(NULL));                                 \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

/* The number of entries of a directory such as /proc/self/task. */
static inline int count_entries(const char* path) {
  int n = -2; /* without . and .. */
  DIR* dir = opendir(path);
  if (dir == NULL) return -1;
  while (readdir(dir) != NULL) n++;
  closedir(dir);
  return n;
}

/* Reports whether this process has mapped a file whose path contains name. */
static inline int is_mapped(const char* name) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "re");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) found |= strstr(line, name) != NULL;
  if (maps != NULL) fclose(maps);
  return found;
}

#endif
