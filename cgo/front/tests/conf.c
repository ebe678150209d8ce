/* Where values of variables come from: the environment at the time of the call, then nccl.conf files. */
#include "check.h"

static const char* value(const char* name) {
  const char* text = NULL;
  OK(ncclParamGetParameter(name, &text, NULL));
  return text;
}

int main(int argc, char** argv) {
  ncclUniqueId id;
  ncclComm_t comm;
  FILE* f = fopen(argv[argc - 1], "we");
  CHECK(f != NULL);
  fputs(
      "# NCCL_DEBUG=TRACE\n=x\nno "
      "assignment\nNCCL_DEBUG=WARN\nLIGHTPATH_PLANES=3\r\nLIGHTPATH_TIMEOUT=never\nNCCL_DEBUG=INFO",
      f);
  fclose(f);
  setenv("NCCL_CONF_FILE", argv[argc - 1], 1);
  setenv("LIGHTPATH_PLANES", "5", 1);
  CHECK(strcmp(value("NCCL_DEBUG"), "WARN") == 0);
  CHECK(strcmp(value("LIGHTPATH_PLANES"), "5") == 0);
  unsetenv("LIGHTPATH_PLANES");
  CHECK(strcmp(value("LIGHTPATH_PLANES"), "3") == 0);
  CHECK(strcmp(value("LIGHTPATH_SPIN"), "-1") == 0);
  CHECK(getenv("NCCL_DEBUG") == NULL);
  /* The core reads the same files and environment, at the time of its call. */
  FAILS(ncclGetUniqueId(&id), ncclInvalidUsage, "LIGHTPATH_TIMEOUT");
  setenv("LIGHTPATH_TIMEOUT", "20s", 1);
  OK(ncclGetUniqueId(&id));
  setenv("LIGHTPATH_SPIN", "many", 1);
  FAILS(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage, "LIGHTPATH_SPIN");
  return 0;
}
