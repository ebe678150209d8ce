/* The environment, and the nccl.conf files that add to it.
 *
 * As in NCCL a file has lines NAME=value; lines that begin with # are comments. The environment overrides the file
 * that NCCL_CONF_FILE names, or else ~/.nccl.conf, and that file overrides /etc/nccl.conf. The first look-up reads
 * the files. Unlike NCCL, Lightpath does not write to the environment: other threads may be reading it. */
#include "front.h"

#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char** environ;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char** lines; /* NAME=value, for the life of the process */
static size_t count;

static void add(char* line) {
  char** bigger = realloc(lines, (count + 1) * sizeof *lines);
  if (bigger == NULL) {
    free(line);
    return;
  }
  lines = bigger;
  lines[count++] = line;
}

static void read_file(const char* path) {
  char* line = NULL;
  size_t room = 0;
  FILE* f = fopen(path, "re");
  if (f == NULL) return; /* as in NCCL, a missing file is no error */
  while (getline(&line, &room, f) > 0) {
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '#' || line[0] == '=' || strchr(line, '=') == NULL) continue;
    add(line);
    line = NULL;
    room = 0;
  }
  free(line);
  fclose(f);
}

static void read_files(void) {
  const char *named = secure_getenv("NCCL_CONF_FILE"), *home = secure_getenv("HOME");
  char path[4096];
  if (named != NULL && named[0] != '\0') {
    read_file(named);
  } else {
    struct passwd* user = home == NULL ? getpwuid(getuid()) : NULL;
    if (user != NULL) home = user->pw_dir;
    if (home != NULL && (size_t)snprintf(path, sizeof path, "%s/.nccl.conf", home) < sizeof path) read_file(path);
  }
  read_file("/etc/nccl.conf");
}

/* The value of an entry NAME=value, NULL if it has another name. */
static const char* match(const char* entry, const char* name, size_t n) {
  return strncmp(entry, name, n) == 0 && entry[n] == '=' ? entry + n + 1 : NULL;
}

const char* lp_env(const char* name) {
  const char* v = getenv(name);
  size_t i, n = strlen(name);
  if (v != NULL) return v;
  pthread_once(&once, read_files);
  for (i = 0; v == NULL && i < count; i++) v = match(lines[i], name, n);
  return v;
}

char** lp_environ(void) {
  char **all, **e;
  size_t i, n = 0;
  pthread_once(&once, read_files);
  for (e = environ; e != NULL && *e != NULL; e++) n++;
  all = malloc((n + count + 1) * sizeof *all);
  if (all == NULL) return NULL;
  for (i = 0; i < n && environ[i] != NULL; i++) all[i] = environ[i];
  n = i;
  for (i = 0; i < count; i++) all[n + i] = lines[i];
  all[n + count] = NULL;
  return all;
}
