/* The functions that are only passed on: a jump to the library's, whatever their arguments are. The first call of each
 * looks it up. On other processors than these, programs find these functions in the library itself, whose symbols are
 * global once it is loaded; programs that are linked with -z now do not start. */
#include "record.h"

#if defined(__x86_64__) || defined(__aarch64__)

struct lp_forward {
  void* to;
  const char* name;
};

/* Looks a function up for the code below. */
__attribute__((used, visibility("hidden"))) void* lp_forward_find(struct lp_forward* f) {
  void* to = lp_real(f->name);
  __atomic_store_n(&f->to, to, __ATOMIC_RELAXED);
  return to;
}

/* lp_forward_first keeps the registers of arguments. It gets the lp_forward in r11 or x16. */
#if defined(__x86_64__)
__asm__(
    ".text\n"
    "lp_forward_first:\n"
    "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  push %r10\n"
    "  mov %r11, %rdi\n"
    "  call lp_forward_find\n"
    "  pop %r10\n  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"
    "  jmp *%rax\n");
#define JUMP(NAME)                                                                  \
  "  mov .Lto_" #NAME "(%rip), %rax\n  test %rax, %rax\n  jz 1f\n  jmp *%rax\n" \
  "1: lea .Lto_" #NAME "(%rip), %r11\n  jmp lp_forward_first\n"
#else
__asm__(
    ".text\n"
    "lp_forward_first:\n"
    "  stp x29, x30, [sp, #-96]!\n  mov x29, sp\n"
    "  stp x0, x1, [sp, #16]\n  stp x2, x3, [sp, #32]\n  stp x4, x5, [sp, #48]\n  stp x6, x7, [sp, #64]\n"
    "  str x8, [sp, #80]\n"
    "  mov x0, x16\n"
    "  bl lp_forward_find\n"
    "  mov x17, x0\n"
    "  ldp x0, x1, [sp, #16]\n  ldp x2, x3, [sp, #32]\n  ldp x4, x5, [sp, #48]\n  ldp x6, x7, [sp, #64]\n"
    "  ldr x8, [sp, #80]\n  ldp x29, x30, [sp], #96\n"
    "  br x17\n");
#define JUMP(NAME)                                                               \
  "  adrp x16, .Lto_" #NAME "\n  add x16, x16, :lo12:.Lto_" #NAME "\n"         \
  "  ldr x17, [x16]\n  cbz x17, 1f\n  br x17\n"                               \
  "1: b lp_forward_first\n"
#endif

#define FORWARD(NAME)                                                                              \
  __asm__(".data\n.balign 8\n.Lto_" #NAME ": .quad 0, .Lname_" #NAME "\n"                       \
          ".section .rodata.str1.1,\"aMS\",@progbits,1\n.Lname_" #NAME ": .string \"" #NAME "\"\n" \
          ".text\n.balign 4\n.globl p" #NAME "\n.type p" #NAME ", @function\n"                 \
          ".weak " #NAME "\n.type " #NAME ", @function\n"                                        \
          "p" #NAME ":\n" #NAME ":\n" JUMP(NAME));

FORWARD(ncclCommAbort)
FORWARD(ncclCommCount)
FORWARD(ncclCommCuDevice)
FORWARD(ncclCommDeregister)
FORWARD(ncclCommDestroy)
FORWARD(ncclCommFinalize)
FORWARD(ncclCommGetAsyncError)
FORWARD(ncclCommGetUniqueId)
FORWARD(ncclCommGrow)
FORWARD(ncclCommMemStats)
FORWARD(ncclCommQueryProperties)
FORWARD(ncclCommRegister)
FORWARD(ncclCommResume)
FORWARD(ncclCommRevoke)
FORWARD(ncclCommSuspend)
FORWARD(ncclCommUserRank)
FORWARD(ncclCommWindowDeregister)
FORWARD(ncclCommWindowRegister)
FORWARD(ncclDevCommCreate)
FORWARD(ncclDevCommDestroy)
FORWARD(ncclGetCftDeviceLeInfo)
FORWARD(ncclGetErrorString)
FORWARD(ncclGetLastError)
FORWARD(ncclGetLsaDevicePointer)
FORWARD(ncclGetLsaMultimemDevicePointer)
FORWARD(ncclGetMultimemDeviceLeInfo)
FORWARD(ncclGetMultimemDevicePointer)
FORWARD(ncclGetPeerDeviceLeInfo)
FORWARD(ncclGetPeerDevicePointer)
FORWARD(ncclGetUniqueId)
FORWARD(ncclGetVersion)
FORWARD(ncclGinBarrierCreateRequirement)
FORWARD(ncclGinInboxA2ACreateRequirement)
FORWARD(ncclGinOutboxCreateRequirement)
FORWARD(ncclLLA2ACalcSlots)
FORWARD(ncclLLA2ACreateRequirement)
FORWARD(ncclLsaBarrierCreateRequirement)
FORWARD(ncclMemAlloc)
FORWARD(ncclMemFree)
FORWARD(ncclParamBind)
FORWARD(ncclParamDumpAll)
FORWARD(ncclParamGet)
FORWARD(ncclParamGetAllParameterKeys)
FORWARD(ncclParamGetI16)
FORWARD(ncclParamGetI32)
FORWARD(ncclParamGetI64)
FORWARD(ncclParamGetI8)
FORWARD(ncclParamGetParameter)
FORWARD(ncclParamGetStr)
FORWARD(ncclParamGetU16)
FORWARD(ncclParamGetU32)
FORWARD(ncclParamGetU64)
FORWARD(ncclParamGetU8)
FORWARD(ncclPutSignal)
FORWARD(ncclRedOpCreatePreMulSum)
FORWARD(ncclRedOpDestroy)
FORWARD(ncclResetDebugInit)
FORWARD(ncclResetDebugInitInternal)
FORWARD(ncclSetEncryption)
FORWARD(ncclSignal)
FORWARD(ncclTeamCft)
FORWARD(ncclTeamCftMultimem)
FORWARD(ncclTeamLsa)
FORWARD(ncclTeamRail)
FORWARD(ncclTeamRankToLsa)
FORWARD(ncclTeamRankToWorld)
FORWARD(ncclTeamWorld)
FORWARD(ncclWaitSignal)
FORWARD(ncclWinGetUserPtr)

__asm__(".text\n");

#endif
