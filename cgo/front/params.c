/* Parameters by name: the variables that Lightpath reads.
 *
 * A parameter's value is that of the environment now, else of an nccl.conf file, else its default. params.inc is
 * generated from package settings, so that a question about a parameter does not load the core. */
#include "front.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ncclParamHandle {
  const char* name;
  const char* fallback;
};

static const struct ncclParamHandle params[] = {
#define PARAM(name, fallback) {name, fallback},
#include "params.inc"
#undef PARAM
};

enum { PARAMS = sizeof params / sizeof *params };

static const char* value_of(const struct ncclParamHandle* p) {
  const char* v = lp_env(p->name);
  return v != NULL && v[0] != '\0' ? v : p->fallback;
}

LP_API(ncclResult_t, ncclParamBind, (ncclParamHandle_t* out, const char* key)) {
  int i;
  if (out == NULL) return lp_fail(ncclInvalidArgument, "ncclParamBind: out is NULL");
  if (key == NULL) return lp_fail(ncclInvalidArgument, "ncclParamBind: key is NULL");
  *out = NULL;
  for (i = 0; i < PARAMS; i++)
    if (strcmp(params[i].name, key) == 0) {
      *out = (ncclParamHandle_t)&params[i]; /* never written through */
      return ncclSuccess;
    }
  return lp_fail(ncclInvalidArgument, "ncclParamBind: Lightpath has no parameter \"%s\"", key);
}

/* Checks a handle, which may be of another library, and where the value goes. */
static ncclResult_t check(const char* function, ncclParamHandle_t h, const void* out) {
  int i;
  for (i = 0; i < PARAMS && &params[i] != h; i++) {
  }
  if (i == PARAMS) return lp_fail(ncclInvalidArgument, "%s: h is not from ncclParamBind", function);
  if (out == NULL) return lp_fail(ncclInvalidArgument, "%s: out is NULL", function);
  return ncclSuccess;
}

static ncclResult_t not_a_number(const char* function, ncclParamHandle_t h) {
  return lp_fail(ncclInvalidArgument, "%s: %s is \"%s\", which this type cannot hold", function, h->name,
                 value_of(h));
}

#define GET(NAME, TYPE, WIDE, PARSE, MIN, MAX)                                                              \
  LP_API(ncclResult_t, NAME, (ncclParamHandle_t h, TYPE* out)) {                                            \
    ncclResult_t rc = check(#NAME, h, out);                                                                 \
    const char* text;                                                                                       \
    char* end;                                                                                              \
    WIDE v;                                                                                                 \
    if (rc != ncclSuccess) return rc;                                                                       \
    text = value_of(h);                                                                                     \
    errno = 0;                                                                                              \
    v = PARSE(text, &end, 0);                                                                               \
    if (errno != 0 || end == text || *end != '\0' || BELOW(v, text, MIN) || v > MAX) return not_a_number(#NAME, h); \
    *out = (TYPE)v;                                                                                         \
    return ncclSuccess;                                                                                     \
  }

#define BELOW(v, text, min) ((v) < (min))
GET(ncclParamGetI8, int8_t, long long, strtoll, INT8_MIN, INT8_MAX)
GET(ncclParamGetI16, int16_t, long long, strtoll, INT16_MIN, INT16_MAX)
GET(ncclParamGetI32, int32_t, long long, strtoll, INT32_MIN, INT32_MAX)
GET(ncclParamGetI64, int64_t, long long, strtoll, INT64_MIN, INT64_MAX)
#undef BELOW
/* strtoull takes "-1" and wraps. */
#define BELOW(v, text, min) (strchr(text, '-') != NULL)
GET(ncclParamGetU8, uint8_t, unsigned long long, strtoull, 0, UINT8_MAX)
GET(ncclParamGetU16, uint16_t, unsigned long long, strtoull, 0, UINT16_MAX)
GET(ncclParamGetU32, uint32_t, unsigned long long, strtoull, 0, UINT32_MAX)
GET(ncclParamGetU64, uint64_t, unsigned long long, strtoull, 0, UINT64_MAX)

/* Copies a value. The copy stays until the thread's next call, whatever setenv does meanwhile. */
static const char* keep(char* room, size_t size, const struct ncclParamHandle* p) {
  snprintf(room, size, "%s", value_of(p));
  return room;
}

LP_API(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t h, const char** out)) {
  static __thread char room[4096];
  ncclResult_t rc = check("ncclParamGetStr", h, out);
  if (rc == ncclSuccess) *out = keep(room, sizeof room, h);
  return rc;
}

LP_API(ncclResult_t, ncclParamGet, (ncclParamHandle_t h, void* out, int maxLen, int* len)) {
  ncclResult_t rc = check("ncclParamGet", h, out);
  const char* value;
  size_t need;
  if (rc != ncclSuccess) return rc;
  value = value_of(h);
  need = strlen(value) + 1;
  if (maxLen < 0 || need > (size_t)maxLen)
    return lp_fail(ncclInvalidArgument, "ncclParamGet: %s needs %zu bytes, maxLen is %d", h->name, need, maxLen);
  memcpy(out, value, need);
  if (len != NULL) *len = (int)need;
  return ncclSuccess;
}

LP_API(ncclResult_t, ncclParamGetParameter, (const char* key, const char** value, int* valueLen)) {
  static __thread char room[4096];
  ncclParamHandle_t h;
  ncclResult_t rc;
  if (value == NULL) return lp_fail(ncclInvalidArgument, "ncclParamGetParameter: value is NULL");
  rc = pncclParamBind(&h, key);
  if (rc != ncclSuccess) return rc;
  *value = keep(room, sizeof room, h);
  if (valueLen != NULL) *valueLen = (int)strlen(*value);
  return ncclSuccess;
}

LP_API(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* tableLen)) {
  static __thread const char* keys[PARAMS];
  int i;
  if (table == NULL || tableLen == NULL)
    return lp_fail(ncclInvalidArgument, "ncclParamGetAllParameterKeys: table or tableLen is NULL");
  for (i = 0; i < PARAMS; i++) keys[i] = params[i].name;
  *table = keys;
  *tableLen = PARAMS;
  return ncclSuccess;
}

/* The only function of this library that prints. */
LP_API(void, ncclParamDumpAll, (void)) {
  int i;
  for (i = 0; i < PARAMS; i++) printf("%s=%s\n", params[i].name, value_of(&params[i]));
  fflush(stdout);
}
