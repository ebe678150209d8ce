/* Modules of machine code, which a CPU cannot run. The stub checks what a driver does: the file and the architecture.
 * It then runs the text that the code was made of, which must have the same functions: kernels.sm_NN.ptx in the folder
 * STUB_CUDA_PTX. Without the folder it refuses all machine code, as a driver older than the assembler does. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

enum { MACHINE_CUDA = 190, NEW_FLAGS = 8 /* the version of the ABI that has other flags */ };

bool stub_is_cubin(const void *image) { return memcmp(image, ELFMAG, SELFMAG) == 0; }

static int architecture_of(const Elf64_Ehdr *h) {
  return (int)(h->e_ident[EI_ABIVERSION] >= NEW_FLAGS ? h->e_flags >> 8 & 0xff : h->e_flags & 0xff);
}

static const Elf64_Shdr *section(const Elf64_Ehdr *h, size_t i) {
  return (const Elf64_Shdr *)((const char *)h + h->e_shoff + i * h->e_shentsize);
}

static bool has(const struct ptx_module *m, const char *name) {
  const struct ptx_function *f;
  for (f = m->functions; f != NULL; f = f->next)
    if (strcmp(f->name, name) == 0) return true;
  return false;
}

/* Whether the code has the functions of the text, and no others. */
static bool same_functions(const Elf64_Ehdr *h, const struct ptx_module *m) {
  size_t i, k, found = 0, wanted = 0;
  const struct ptx_function *f;
  for (f = m->functions; f != NULL; f = f->next) wanted++;
  for (i = 0; i < h->e_shnum; i++) {
    const Elf64_Shdr *s = section(h, i);
    const Elf64_Sym *symbols = (const Elf64_Sym *)((const char *)h + s->sh_offset);
    if (s->sh_type != SHT_SYMTAB) continue;
    for (k = 0; k < s->sh_size / sizeof *symbols; k++) {
      const char *names = (const char *)h + section(h, s->sh_link)->sh_offset;
      if (ELF64_ST_TYPE(symbols[k].st_info) != STT_FUNC || ELF64_ST_BIND(symbols[k].st_info) != STB_GLOBAL) continue;
      if (!has(m, names + symbols[k].st_name)) return false;
      found++;
    }
  }
  return found == wanted;
}

static char *text_of(int architecture) {
  const char *folder = getenv("STUB_CUDA_PTX");
  char path[4096], *text = NULL;
  FILE *file;
  long size;
  if (folder == NULL || *folder == '\0') return NULL;
  snprintf(path, sizeof path, "%s/kernels.sm_%d.ptx", folder, architecture);
  if ((file = fopen(path, "r")) == NULL) {
    perror(path);
    return NULL;
  }
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  rewind(file);
  text = calloc(1, (size_t)size + 1);
  if (text == NULL || fread(text, 1, (size_t)size, file) != (size_t)size) abort();
  fclose(file);
  return text;
}

size_t stub_cubin_bytes(const void *image) {
  const Elf64_Ehdr *h = image;
  return h->e_shoff + (size_t)h->e_shnum * h->e_shentsize; /* the table of sections is near the end */
}

CUresult stub_load_cubin(const void *image, int device, struct ptx_module **module) {
  const Elf64_Ehdr *h = image;
  int architecture = architecture_of(h);
  char why[256], *text;
  if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_machine != MACHINE_CUDA) return CUDA_ERROR_INVALID_IMAGE;
  if (architecture / 10 != device / 10 || architecture > device) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if ((text = text_of(architecture)) == NULL) return CUDA_ERROR_INVALID_IMAGE;
  *module = ptx_parse(text, why, sizeof why);
  free(text);
  if (*module == NULL) fprintf(stderr, "stub libcuda: PTX %s\n", why);
  if (*module == NULL) return CUDA_ERROR_INVALID_PTX;
  if (same_functions(h, *module)) return CUDA_SUCCESS;
  fputs("stub libcuda: the machine code and its text have different functions\n", stderr);
  ptx_free(*module);
  return CUDA_ERROR_INVALID_IMAGE;
}
