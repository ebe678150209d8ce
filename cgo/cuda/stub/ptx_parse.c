/* Parses PTX text into functions. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

enum { CLASSES = 16, LABELS = 256, WORD = 96 };

/* A class of registers, such as %rd<10>: a name is a class and a number. */
struct class {
  char prefix[8];
  int first, count; /* slots */
};

struct label {
  char name[32];
  int at; /* instruction, PTX_NONE until it is found */
};

struct parser {
  const char *at;
  int line;
  char *why;
  size_t size;
  bool failed;
  int target, version; /* 70 is sm_70, 60 is 6.0 */
  struct ptx_function *f;
  struct class classes[CLASSES];
  int n_classes;
  struct label labels[LABELS];
  int n_labels, room; /* room for instructions */
};

/* Instructions whose text contains this need so much: the architecture of the target, and the version of PTX. */
static const struct { const char *text; int target, version; } needs[] = {
    {".e4m3x2", 89, 81}, {".e5m2x2", 89, 81},   {"add.rn.bf16x2", 90, 78}, {"mul.rn.bf16x2", 90, 78},
    {"max.bf16x2", 80, 70}, {"min.bf16x2", 80, 70}, {"max.f16x2", 80, 70},     {"min.f16x2", 80, 70},
};

static const struct { const char *text; int sources; } operations[] = {
#define OPERATION(name, text, sources, effect) {text, sources},
#include "ptx_ops.h"
#undef OPERATION
};

static void fail(struct parser *p, const char *format, ...) {
  int n;
  va_list args;
  if (p->failed) return;
  p->failed = true;
  n = snprintf(p->why, p->size, "line %d: ", p->line);
  if (n < 0 || (size_t)n >= p->size) return;
  va_start(args, format);
  vsnprintf(p->why + n, p->size - (size_t)n, format, args);
  va_end(args);
}

/* ---- Words ---- */

static void skip(struct parser *p) {
  for (;; p->at++) {
    if (p->at[0] == '/' && p->at[1] == '/') p->at += strcspn(p->at, "\n");
    if (*p->at == '\n') p->line++;
    if (!isspace((unsigned char)*p->at)) return;
  }
}

/* Whether the text continues with this; if so, goes past it. */
static bool accept(struct parser *p, const char *text) {
  skip(p);
  if (strncmp(p->at, text, strlen(text)) != 0) return false;
  p->at += strlen(text);
  return true;
}

static void expect(struct parser *p, const char *text) {
  if (!accept(p, text)) fail(p, "'%s' is missing before '%.20s'", text, p->at);
}

/* The next name, number or instruction. */
static void word(struct parser *p, char out[WORD]) {
  size_t n;
  skip(p);
  n = strspn(p->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.%$-");
  if (n == 0 || n >= WORD) {
    fail(p, "'%.20s' is no word", p->at);
    n = 0;
  }
  memcpy(out, p->at, n);
  out[n] = '\0';
  p->at += n;
}

static long number(struct parser *p) {
  char *end;
  long n;
  skip(p);
  n = strtol(p->at, &end, 10);
  if (end == p->at) fail(p, "'%.20s' is no number", p->at);
  p->at = end;
  return n;
}

/* ---- Operands ---- */

static int add_constant(struct parser *p, uint64_t value) {
  struct ptx_function *f = p->f;
  struct ptx_constant *list = realloc(f->constants, ((size_t)f->n_constants + 1) * sizeof *list);
  if (list == NULL) abort();
  f->constants = list;
  list[f->n_constants++] = (struct ptx_constant){f->n_slots, value};
  return f->n_slots++;
}

static int special(const char *name) {
  static const char *const names[PTX_SPECIALS] = {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x"};
  int i;
  for (i = 0; i < PTX_SPECIALS; i++)
    if (strcmp(name, names[i]) == 0) return i;
  return PTX_NONE;
}

static int register_slot(struct parser *p, const char *name) {
  size_t prefix = strcspn(name, "0123456789");
  int i, n = atoi(name + prefix);
  if (special(name) != PTX_NONE) return special(name);
  for (i = 0; i < p->n_classes; i++) {
    const struct class *c = &p->classes[i];
    if (strlen(c->prefix) == prefix && strncmp(c->prefix, name, prefix) == 0 && n < c->count) return c->first + n;
  }
  fail(p, "there is no register %s", name);
  return 0;
}

/* A register, or a number: whole, or the bits of a float. The parameter is at address 0 of its space. */
static int operand(struct parser *p) {
  char w[WORD], *end = w;
  uint64_t bits;
  word(p, w);
  if (w[0] == '%') return register_slot(p, w);
  if (strncmp(w, p->f->name, strlen(p->f->name)) == 0 && strcmp(w + strlen(p->f->name), "_param_0") == 0)
    return add_constant(p, 0);
  if (strncmp(w, "0f", 2) == 0 || strncmp(w, "0d", 2) == 0)
    bits = strtoull(w + 2, &end, 16);
  else
    bits = (uint64_t)strtoll(w, &end, 10);
  if (end == w || *end != '\0') fail(p, "'%s' is no operand", w);
  return add_constant(p, bits);
}

/* [register+number] or [parameter+number] */
static void address(struct parser *p, struct ptx_instruction *i) {
  expect(p, "[");
  i->base = operand(p);
  i->offset = accept(p, "+") ? number(p) : 0;
  expect(p, "]");
}

static void registers(struct parser *p, struct ptx_instruction *i) {
  int k;
  if (i->count > 1) expect(p, "{");
  for (k = 0; k < i->count; k++) {
    if (k > 0) expect(p, ",");
    i->slot[k] = operand(p);
  }
  if (i->count > 1) expect(p, "}");
}

/* ---- Instructions ---- */

static int label(struct parser *p, const char *name) {
  int i;
  for (i = 0; i < p->n_labels; i++)
    if (strcmp(p->labels[i].name, name) == 0) return i;
  if (p->n_labels == LABELS || strlen(name) >= sizeof p->labels[0].name) {
    fail(p, "too many labels, or too long: %s", name);
    return 0;
  }
  snprintf(p->labels[i].name, sizeof p->labels[i].name, "%.31s", name);
  p->labels[i].at = PTX_NONE;
  return p->n_labels++;
}

/* ld and st: space, registers (.v2, .v4), type. */
static bool memory(struct parser *p, const char *text, struct ptx_instruction *i) {
  static const struct { const char *text; enum ptx_op op; } spaces[] = {
      {"ld.param.", PTX_LOAD_PARAM}, {"ld.global.", PTX_LOAD}, {"st.global.", PTX_STORE},
      {"st.relaxed.sys.global.", PTX_STORE}, {"atom.relaxed.gpu.global.add.", PTX_ADD_1}};
  static const struct { const char *text; int count, width; } shapes[] = {
      {"u8", 1, 1}, {"u16", 1, 2}, {"u32", 1, 4}, {"u64", 1, 8}, {"v2.u32", 2, 4}, {"v4.u32", 4, 4}, {"v2.u64", 2, 8}};
  size_t s, k;
  for (s = 0; s < sizeof spaces / sizeof *spaces; s++) {
    if (strncmp(text, spaces[s].text, strlen(spaces[s].text)) != 0) continue;
    for (k = 0; k < sizeof shapes / sizeof *shapes; k++) {
      if (strcmp(text + strlen(spaces[s].text), shapes[k].text) != 0) continue;
      i->op = spaces[s].op, i->count = shapes[k].count, i->width = shapes[k].width;
      if (i->op == PTX_STORE) {
        address(p, i);
        expect(p, ",");
        registers(p, i);
      } else {
        registers(p, i);
        expect(p, ",");
        address(p, i);
        if (i->op == PTX_ADD_1) expect(p, ", 1");
      }
      return true;
    }
  }
  return false;
}

/* Barriers and fences. The interpreter's stores are in order anyway. */
static bool meeting(struct parser *p, const char *text, struct ptx_instruction *i) {
  if (strncmp(text, "fence.acq_rel.", 14) == 0) {
    i->op = PTX_FENCE;
    return true;
  }
  if (strcmp(text, "bar.red.or.pred") != 0) return false;
  i->op = PTX_ANY;
  i->slot[0] = operand(p);
  expect(p, ", 0,");
  i->slot[1] = operand(p);
  return true;
}

static bool operation(struct parser *p, const char *text, struct ptx_instruction *i) {
  size_t op;
  int k;
  for (op = 0; op < sizeof operations / sizeof *operations; op++) {
    if (strcmp(text, operations[op].text) != 0) continue;
    for (k = 0; k < (int)(sizeof needs / sizeof *needs); k++)
      if (strstr(text, needs[k].text) != NULL && (p->target < needs[k].target || p->version < needs[k].version))
        fail(p, "%s needs sm_%d and PTX %d.%d", text, needs[k].target, needs[k].version / 10, needs[k].version % 10);
    i->op = (enum ptx_op)op;
    for (k = 0; k <= operations[op].sources; k++) {
      if (k > 0) expect(p, ",");
      i->slot[k] = operand(p);
    }
    for (; k < PTX_OPERANDS; k++) i->slot[k] = i->slot[0]; /* unused, but read */
    return true;
  }
  return false;
}

static void append(struct parser *p, const struct ptx_instruction *i) {
  struct ptx_function *f = p->f;
  if (f->length == p->room) {
    p->room = p->room * 2 + 64;
    f->code = realloc(f->code, (size_t)p->room * sizeof *f->code);
    if (f->code == NULL) abort();
  }
  f->code[f->length++] = *i;
}

/* Parses an instruction: a word, and its operands up to the semicolon. */
static void instruction(struct parser *p, const char *first) {
  struct ptx_instruction i = {.guard = PTX_NONE};
  char w[WORD];
  snprintf(w, sizeof w, "%s", first);
  if (w[0] == '\0') { /* @p or @!p */
    expect(p, "@");
    i.unless = accept(p, "!");
    i.guard = operand(p);
    word(p, w);
  }
  if (strcmp(w, "bra") == 0 || strcmp(w, "bra.uni") == 0) {
    i.op = PTX_BRANCH;
    word(p, w);
    i.target = label(p, w);
  } else if (strcmp(w, "ret") == 0) {
    i.op = PTX_RETURN;
  } else if (!memory(p, w, &i) && !meeting(p, w, &i) && !operation(p, w, &i)) {
    fail(p, "the stub does not know the instruction %s", w);
  }
  expect(p, ";");
  append(p, &i);
}

/* .reg .b32 %r<10>; or .reg .pred %name; */
static void declaration(struct parser *p) {
  struct class *c = &p->classes[p->n_classes];
  char w[WORD];
  word(p, w);
  word(p, w);
  if (p->n_classes == CLASSES || strlen(w) >= sizeof c->prefix) {
    fail(p, "too many kinds of registers, or too long: %s", w);
    return;
  }
  snprintf(c->prefix, sizeof c->prefix, "%.7s", w);
  c->count = 1;
  if (accept(p, "<")) {
    c->count = (int)number(p);
    expect(p, ">");
  }
  expect(p, ";");
  c->first = p->f->n_slots;
  p->f->n_slots += c->count;
  p->n_classes++;
}

/* The body of a function. A block in it has registers of its own; a name may be declared again. */
static void body(struct parser *p) {
  char w[WORD];
  int i, depth = 1;
  while (!p->failed) {
    if (accept(p, "}")) {
      if (--depth == 0) break;
      continue;
    }
    if (accept(p, "{")) {
      depth++;
      continue;
    }
    w[0] = '\0';
    if (*p->at != '@') word(p, w);
    if (strcmp(w, ".reg") == 0) {
      declaration(p);
    } else if (strcmp(w, ".pragma") == 0) {
      p->at += strcspn(p->at, ";");
      expect(p, ";");
    } else if (w[0] == '$') {
      expect(p, ":");
      p->labels[label(p, w)].at = p->f->length;
    } else {
      instruction(p, w);
    }
  }
  for (i = 0; !p->failed && i < p->f->length; i++) {
    struct ptx_instruction *in = &p->f->code[i];
    if (in->op != PTX_BRANCH) continue;
    if (p->labels[in->target].at == PTX_NONE) fail(p, "there is no label %s", p->labels[in->target].name);
    in->target = p->labels[in->target].at;
  }
  if (!p->failed && (p->f->length == 0 || p->f->code[p->f->length - 1].op != PTX_RETURN))
    fail(p, "%s does not end with ret", p->f->name);
}

/* NAME(.param .align 8 .b8 NAME_param_0[184]) .maxntid 256, 1, 1 ... { */
static void entry(struct parser *p, struct ptx_module *m) {
  char w[WORD];
  p->f = calloc(1, sizeof *p->f);
  if (p->f == NULL) abort();
  p->n_classes = p->n_labels = p->room = 0;
  p->f->next = m->functions;
  m->functions = p->f;
  p->f->n_slots = PTX_SPECIALS;
  word(p, p->f->name);
  expect(p, "(");
  expect(p, ".param");
  expect(p, ".align");
  (void)number(p);
  expect(p, ".b8");
  word(p, w);
  expect(p, "[");
  p->f->params = (size_t)number(p);
  expect(p, "]");
  expect(p, ")");
  p->f->max_threads = 1024;
  while (!p->failed && !accept(p, "{")) {
    word(p, w);
    if (strcmp(w, ".maxntid") == 0) p->f->max_threads = (unsigned)number(p);
    p->at += strcspn(p->at, "\n");
  }
  body(p);
}

struct ptx_module *ptx_parse(const char *text, char *why, size_t size) {
  struct parser *p = calloc(1, sizeof *p);
  struct ptx_module *m = calloc(1, sizeof *m);
  char w[WORD];
  bool failed;
  if (p == NULL || m == NULL) abort();
  p->at = text, p->line = 1, p->why = why, p->size = size;
  expect(p, ".version");
  p->version = (int)number(p) * 10;
  expect(p, ".");
  p->version += (int)number(p);
  expect(p, ".target");
  word(p, w);
  if (strncmp(w, "sm_", 3) != 0) fail(p, "'%s' is no target", w);
  p->target = atoi(w + 3);
  m->version = p->version, m->target = p->target;
  expect(p, ".address_size");
  if (number(p) != 64) fail(p, "addresses are not of 64 bits");
  for (skip(p); !p->failed && *p->at != '\0'; skip(p)) {
    expect(p, ".visible");
    expect(p, ".entry");
    if (!p->failed) entry(p, m);
  }
  failed = p->failed;
  free(p);
  if (!failed) return m;
  ptx_free(m);
  return NULL;
}

void ptx_free(struct ptx_module *m) {
  while (m->functions != NULL) {
    struct ptx_function *f = m->functions;
    m->functions = f->next;
    free(f->code);
    free(f->constants);
    free(f);
  }
  free(m);
}
