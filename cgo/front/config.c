/* Configurations of communicators and of calls.
 *
 * NCCL's own fields change nothing in Lightpath, except blocking. But a field that cannot be honoured, or a
 * structure that is no configuration, is an error. Lightpath's options of a call are in its list of extensions. */
#include "front.h"

#include <string.h>

#include "lightpath.h"

/* The first ncclConfig_t, of 2.14: header and blocking. */
#define CONFIG_MIN 24
/* The first ncclCollConfig_t, of 2.31. */
#define COLL_CONFIG_MIN 64
/* A longer list has a cycle. */
#define MAX_OPTIONS 256

/* ---- Communicators ---- */

int lp_comm_blocking(int configured) {
  const char* v = lp_env("NCCL_COMM_BLOCKING");
  if (v == NULL || (strcmp(v, "0") != 0 && strcmp(v, "1") != 0)) return configured;
  return v[0] - '0';
}

/* The bytes of a configuration that a caller knows, by the version that it was compiled with. Its size does not
 * tell: until 2.25 the last 4 of 48 bytes were padding, where trafficClass is now. */
static size_t config_known(unsigned version) {
  static const struct {
    unsigned since;
    size_t end;
  } history[] = {
      {NCCL_VERSION(2, 17, 0), offsetof(ncclConfig_t, cgaClusterSize)},
      {NCCL_VERSION(2, 18, 0), offsetof(ncclConfig_t, splitShare)},
      {NCCL_VERSION(2, 25, 0), offsetof(ncclConfig_t, trafficClass)},
      {NCCL_VERSION(2, 27, 0), offsetof(ncclConfig_t, commName)},
      {NCCL_VERSION(2, 28, 0), offsetof(ncclConfig_t, nChannelsPerNetPeer)},
      {NCCL_VERSION(2, 29, 0), offsetof(ncclConfig_t, graphUsageMode)},
      {NCCL_VERSION(2, 30, 0), offsetof(ncclConfig_t, maxP2pPeers)},
      {NCCL_VERSION(2, 31, 0), offsetof(ncclConfig_t, launchOrderImplicit)},
      {NCCL_VERSION(2, 32, 0), offsetof(ncclConfig_t, nvlsHostMode)},
  };
  size_t i;
  for (i = 0; i < sizeof history / sizeof *history; i++)
    if (version < history[i].since) return history[i].end;
  return sizeof(ncclConfig_t);
}

static bool undef(int v) { return v == NCCL_CONFIG_UNDEF_INT; }
static bool undef_or_bool(int v) { return undef(v) || v == 0 || v == 1; }

static ncclResult_t check_comm_config(const char* function, const ncclConfig_t* c) {
  if (!undef_or_bool(c->blocking))
    return lp_fail(ncclInvalidArgument, "%s: config: blocking is %d, not 0 or 1", function, c->blocking);
  if ((!undef(c->minCTAs) && c->minCTAs <= 0) || (!undef(c->maxCTAs) && c->maxCTAs <= 0) ||
      (!undef(c->minCTAs) && !undef(c->maxCTAs) && c->minCTAs > c->maxCTAs))
    return lp_fail(ncclInvalidArgument, "%s: config: minCTAs %d and maxCTAs %d are no range", function, c->minCTAs,
                   c->maxCTAs);
  if (!undef_or_bool(c->splitShare) || !undef_or_bool(c->shrinkShare))
    return lp_fail(ncclInvalidArgument, "%s: config: splitShare %d or shrinkShare %d is neither 0 nor 1", function,
                   c->splitShare, c->shrinkShare);
  return ncclSuccess;
}

ncclResult_t lp_comm_config(const char* function, const ncclConfig_t* config, ncclConfig_t* mine) {
  static const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
  ncclResult_t rc;
  size_t known;
  *mine = fresh;
  mine->blocking = lp_comm_blocking(fresh.blocking);
  if (config == NULL) return ncclSuccess;
  if (config->size < CONFIG_MIN || config->magic != NCCL_API_MAGIC)
    return lp_fail(ncclInvalidArgument,
                   "%s: config is not initialized with NCCL_CONFIG_INITIALIZER (size %zu, magic 0x%x)", function,
                   config->size, config->magic);
  if (config->version < NCCL_VERSION(2, 14, 0))
    return lp_fail(ncclInvalidArgument, "%s: config: version %u is older than configurations are", function,
                   config->version);
  known = config_known(config->version);
  memcpy(mine, config, config->size < known ? config->size : known);
  rc = check_comm_config(function, mine);
  mine->blocking = lp_comm_blocking(mine->blocking);
  return rc;
}

/* ---- Calls ---- */

static ncclResult_t check(const char* function, const ncclCollConfig_t* config) {
  if (config->size < COLL_CONFIG_MIN || config->magic != NCCL_API_MAGIC)
    return lp_fail(ncclInvalidArgument,
                   "%s: config is not initialized with NCCL_COLLCONFIG_INITIALIZER (size %zu, magic 0x%x)", function,
                   config->size, config->magic);
  if (config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      config->minCTAs > config->maxCTAs)
    return lp_fail(ncclInvalidArgument, "%s: config: minCTAs %d is above maxCTAs %d", function, config->minCTAs,
                   config->maxCTAs);
  if (config->algSelection != NULL && config->algSelection[0] != '\0' && config->forceAlgSelection == 1)
    return lp_fail(ncclInvalidArgument,
                   "%s: config: algSelection \"%s\" cannot be forced: plans choose the algorithm (set "
                   "forceAlgSelection to 0)",
                   function, config->algSelection);
  if (config->size >= sizeof *config && config->launchCompletionEvent != NULL)
    return lp_fail(ncclInvalidArgument,
                   "%s: config: launchCompletionEvent must be NULL: events need a build of Lightpath with CUDA support",
                   function);
  return ncclSuccess;
}

/* Sixteen digits identify a plan. Further characters are not used, but must be digits, too. */
static bool read_digest(const char* text, struct lp_call* call) {
  size_t i, n = text != NULL ? strlen(text) : 0;
  if (n < 1 || n > 64 || strspn(text, "0123456789abcdefABCDEF") != n) return false;
  call->plan = 0;
  call->plan_digits = n < 16 ? (uint32_t)n : 16;
  for (i = 0; i < call->plan_digits; i++) {
    int digit = text[i] <= '9' ? text[i] - '0' : (text[i] | 0x20) - 'a' + 10;
    call->plan |= (uint64_t)digit << (60 - 4 * i);
  }
  return true;
}

static ncclResult_t read_option(const char* function, const ncclConfigExt_t* option, struct lp_call* call) {
  switch (option->key.optionId) {
    case LP_OPTION_PLAN:
      if (read_digest(option->val.s, call)) return ncclSuccess;
      return lp_fail(ncclInvalidArgument, "%s: config: LP_OPTION_PLAN \"%.80s\" is not 1 to 64 hexadecimal digits",
                     function, option->val.s != NULL ? option->val.s : "");
    case LP_OPTION_PLANES:
      call->planes = (uint64_t)(uintptr_t)option->val.raw;
      if (call->planes != 0) return ncclSuccess;
      return lp_fail(ncclInvalidArgument, "%s: config: LP_OPTION_PLANES allows no plane", function);
    case LP_OPTION_DEADLINE_US:
      if (option->val.i <= 0)
        return lp_fail(ncclInvalidArgument, "%s: config: LP_OPTION_DEADLINE_US is %d", function, option->val.i);
      call->deadline_us = (uint32_t)option->val.i;
      return ncclSuccess;
  }
  return lp_fail(ncclInvalidArgument, "%s: config: Lightpath %s has no option %d", function, LP_VERSION,
                 option->key.optionId);
}

ncclResult_t lp_config_read(const char* function, const ncclCollConfig_t* config, struct lp_call* call) {
  const ncclConfigExt_t* option;
  ncclResult_t rc;
  int n = 0;
  if (config == NULL) return ncclSuccess;
  rc = check(function, config);
  if (rc != ncclSuccess) return rc;
  for (option = config->ext; rc == ncclSuccess && option != NULL; option = option->next) {
    if (++n > MAX_OPTIONS)
      return lp_fail(ncclInvalidArgument, "%s: config: more than %d options", function, MAX_OPTIONS);
    if (option->key.vendorId == LP_VENDOR_ID) rc = read_option(function, option, call);
  }
  return rc;
}
