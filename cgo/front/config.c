/* The configuration of one collective call.
 *
 * Of NCCL's own fields nothing changes what Lightpath does, but one that cannot be honoured, or is not
 * a configuration at all, must not pass in silence. Lightpath's options are in the list of extensions. */
#include <string.h>

#include "front.h"
#include "lightpath.h"

/* Sizes of ncclCollConfig_t over time: 2.31's, and 2.32's with launchCompletionEvent. */
#define COLL_CONFIG_MIN 64
/* A list that is longer has a cycle. */
#define MAX_OPTIONS 256

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

/* Digits beyond the sixteenth must be digits too, and are not needed to tell plans apart. */
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
      return lp_fail(ncclInvalidArgument, "%s: config: LP_OPTION_PLAN \"%.80s\" is not 1 to 64 hexadecimal digits", function,
                     option->val.s != NULL ? option->val.s : "");
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
    if (++n > MAX_OPTIONS) return lp_fail(ncclInvalidArgument, "%s: config: more than %d options", function, MAX_OPTIONS);
    if (option->key.vendorId == LP_VENDOR_ID) rc = read_option(function, option, call);
  }
  return rc;
}
