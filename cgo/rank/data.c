#include "rank.h"

#include <math.h>
#include <string.h>

/* Values are small integers, a hash of (rank, index), such that sums and products over ranks are exact in every
 * type. The oracle computes them again for each element. */

size_t type_size(ncclDataType_t t) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[t];
}

int reduces(const struct run *r) { return r->coll == ALLREDUCE || r->coll == REDUCE || r->coll == REDUCESCATTER; }

static int is_float(ncclDataType_t t) { return t >= ncclFloat16; }
static int is_signed(ncclDataType_t t) { return is_float(t) || t == ncclInt8 || t == ncclInt32 || t == ncclInt64; }
static int is_fp8(ncclDataType_t t) { return t == ncclFloat8e4m3 || t == ncclFloat8e5m2; }

static uint32_t hash(int rank, uint64_t i) {
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + (uint64_t)(rank + 1) * 0xC2B2AE3D27D4EB4Fu;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return (uint32_t)(x >> 32);
}

/* Whether a rank is one of the n that place i belongs to. The first n ranks have three of four places. */
static int has_place(int rank, uint64_t i, int n) {
  return rank / n == (i % 4 < 3 ? 0 : 1 + __builtin_ctzll(i / 4 + 1));
}

/* The value of element i of a rank. Products: 2 in one place out of eight, else 1. Others: -2..2, or 0..4 unsigned.
 * 8-bit floats: 1 in one place out of four, else 0. They hold whole numbers up to 8, and powers of two up to 256. So in
 * each place at most eight ranks have a 1, or a 2 of a product. Products of ncclFloat16 have as many, those of wider
 * floats 64: they hold powers of two up to 2^15, and 2^127. */
static int value(const struct run *r, int rank, uint64_t i) {
  uint32_t h = hash(rank, i);
  int narrow = is_fp8(r->type) || r->type == ncclFloat16;
  int large = !is_float(r->type) || has_place(rank, i, narrow ? 8 : 64);
  if (reduces(r) && r->op == ncclProd) return (h & 7) == 0 && large ? 2 : 1;
  if (is_fp8(r->type)) return (h & 3) == 0 && large;
  return (int)(h % 5) - (is_signed(r->type) ? 2 : 0);
}

/* The bits of small floats: exponent and mantissa. */
struct format {
  int exp, man;
};
static struct format format_of(ncclDataType_t t) {
  switch (t) {
    case ncclFloat16: return (struct format){5, 10};
    case ncclBfloat16: return (struct format){8, 7};
    case ncclFloat8e4m3: return (struct format){4, 3};
    default: return (struct format){5, 2};
  }
}

/* Encodes v, whose magnitude is in the normal range or 0, rounding to nearest even. */
static uint32_t encode_small(double v, struct format f) {
  uint32_t sign = signbit(v) ? 1u << (f.exp + f.man) : 0;
  if (v == 0) return sign;
  int e;
  double m = frexp(fabs(v), &e); /* m in [0.5, 1) */
  uint32_t q = (uint32_t)nearbyint(ldexp(m, f.man + 1));
  if (q >> (f.man + 1)) q >>= 1, e++;
  uint32_t biased = (uint32_t)(e - 1 + (1 << (f.exp - 1)) - 1);
  return sign | biased << f.man | (q & ((1u << f.man) - 1));
}

static double decode_small(uint32_t bits, struct format f, int finite_top) {
  uint32_t man = bits & ((1u << f.man) - 1), exp = bits >> f.man & ((1u << f.exp) - 1);
  double sign = bits >> (f.exp + f.man) & 1 ? -1 : 1;
  int bias = (1 << (f.exp - 1)) - 1;
  if (exp == (1u << f.exp) - 1 && (!finite_top || man == (1u << f.man) - 1))
    return man && !finite_top ? NAN : sign * INFINITY;
  if (exp == 0) return sign * ldexp(man, 1 - bias - f.man);
  return sign * ldexp((double)(man | 1u << f.man), (int)exp - bias - f.man);
}

static void store(void *buf, ncclDataType_t t, uint64_t i, int64_t v) {
  switch (t) {
    case ncclInt8:
    case ncclUint8: ((uint8_t *)buf)[i] = (uint8_t)v; break;
    case ncclInt32:
    case ncclUint32: ((uint32_t *)buf)[i] = (uint32_t)v; break;
    case ncclInt64:
    case ncclUint64: ((uint64_t *)buf)[i] = (uint64_t)v; break;
    case ncclFloat32: ((float *)buf)[i] = (float)v; break;
    case ncclFloat64: ((double *)buf)[i] = (double)v; break;
    case ncclFloat16:
    case ncclBfloat16: ((uint16_t *)buf)[i] = (uint16_t)encode_small((double)v, format_of(t)); break;
    default: ((uint8_t *)buf)[i] = (uint8_t)encode_small((double)v, format_of(t));
  }
}

static double load_float(const void *buf, ncclDataType_t t, uint64_t i) {
  switch (t) {
    case ncclFloat32: return ((const float *)buf)[i];
    case ncclFloat64: return ((const double *)buf)[i];
    case ncclFloat16:
    case ncclBfloat16: return decode_small(((const uint16_t *)buf)[i], format_of(t), 0);
    default: return decode_small(((const uint8_t *)buf)[i], format_of(t), t == ncclFloat8e4m3);
  }
}

static int int_matches(const void *buf, ncclDataType_t t, uint64_t i, int64_t want) {
  switch (type_size(t)) {
    case 1: return ((const uint8_t *)buf)[i] == (uint8_t)want;
    case 4: return ((const uint32_t *)buf)[i] == (uint32_t)want;
    default: return ((const uint64_t *)buf)[i] == (uint64_t)want;
  }
}

/* Whether element i of the buffer, of any type, has this value. */
static int matches(const void *buf, ncclDataType_t t, uint64_t i, int64_t want) {
  return is_float(t) ? load_float(buf, t, i) == (double)want : int_matches(buf, t, i, want);
}

static int per_rank(enum collective c) { return c == ALLGATHER || c == GATHER; }

uint64_t send_count(const struct run *r, int world) {
  return r->count * (r->coll == REDUCESCATTER || r->coll == ALLTOALL || r->coll == SCATTER ? (uint64_t)world : 1);
}

uint64_t recv_count(const struct run *r, int world) {
  return r->count * (per_rank(r->coll) || r->coll == ALLTOALL ? (uint64_t)world : 1);
}

struct buffers place(const struct run *r, int rank, struct buffers b) {
  if (!r->inplace) return b;
  size_t block = r->count * type_size(r->type);
  switch (r->coll) {
    case ALLGATHER: return (struct buffers){b.recv + (size_t)rank * block, b.recv};
    case GATHER: return rank == r->root ? (struct buffers){b.recv + (size_t)rank * block, b.recv} : b;
    case REDUCESCATTER: return (struct buffers){b.send, b.send + (size_t)rank * block};
    case SCATTER: return rank == r->root ? (struct buffers){b.send, b.send + (size_t)rank * block} : b;
    default: return (struct buffers){b.recv, b.recv};
  }
}

void fill(void *buf, const struct run *r, int rank, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) store(buf, r->type, i, value(r, rank, i));
}

/* Whether an element is the reduction of element i over all ranks. Averages of floats multiply by 1/n rounded to
 * the type, so they may differ by rounding unless n is a power of two that every type has; everything else is exact. */
static int reduction_matches(const void *recv, const struct run *r, uint64_t at, uint64_t i, int world) {
  int64_t acc = value(r, 0, i), magnitude = acc < 0 ? -acc : acc;
  for (int q = 1; q < world; q++) {
    int64_t v = value(r, q, i);
    magnitude += v < 0 ? -v : v;
    switch (r->op) {
      case ncclProd: acc = (int64_t)((uint64_t)acc * (uint64_t)v); break;
      case ncclMax: acc = v > acc ? v : acc; break;
      case ncclMin: acc = v < acc ? v : acc; break;
      default: acc += v;
    }
  }
  if (r->op == ncclAvg && r->type == ncclInt8) acc = (int8_t)acc; /* the sum wraps in the type before it is divided */
  if (r->op == ncclAvg && r->type == ncclUint8) acc = (uint8_t)acc;
  if (!is_float(r->type)) return int_matches(recv, r->type, at, r->op == ncclAvg ? acc / world : acc);
  double got = load_float(recv, r->type, at), want = (double)acc;
  if (r->op != ncclAvg) return got == want;
  if (world <= 64 && (world & (world - 1)) == 0) return got == want / world;
  static const double ulp[] = {[ncclFloat16] = 0x1p-10,   [ncclFloat32] = 0x1p-23,     [ncclFloat64] = 0x1p-52,
                               [ncclBfloat16] = 0x1p-7,   [ncclFloat8e4m3] = 0x1p-3,   [ncclFloat8e5m2] = 0x1p-2};
  return fabs(got - want / world) <= ulp[r->type] * (double)magnitude;
}

/* The source of element i of the receive buffer, for collectives that copy. */
static void source(const struct run *r, int rank, int world, uint64_t i, int *from, uint64_t *at) {
  uint64_t block = r->count ? i / r->count : 0, within = r->count ? i % r->count : 0;
  *at = within;
  switch (r->coll) {
    case BROADCAST: *from = r->root; break;
    case ALLGATHER:
    case GATHER: *from = (int)block; break;
    case ALLTOALL: *from = (int)block, *at = (uint64_t)rank * r->count + within; break;
    case SCATTER: *from = r->root, *at = (uint64_t)rank * r->count + within; break;
    default: *from = (rank + world - 1) % world;
  }
}

/* Rank s's elements for d lie in its buffer after those for the ranks before d. */
static uint64_t matrix_offset(const struct run *r, int world, int s, int d) {
  uint64_t at = 0;
  for (int q = 0; q < d; q++) at += r->matrix[(size_t)s * world + q];
  return at;
}

static uint64_t exchange_wrong(const void *recv, const struct run *r, int rank, int world) {
  uint64_t wrong = 0, i = 0;
  for (int s = 0; s < world; s++) {
    uint64_t n = r->matrix[(size_t)s * world + rank], at = matrix_offset(r, world, s, rank);
    for (uint64_t k = 0; k < n; k++, i++) wrong += !matches(recv, r->type, i, value(r, s, at + k));
  }
  return wrong;
}

uint64_t count_wrong(const void *recv, const struct run *r, int rank, int world) {
  if ((r->coll == REDUCE || r->coll == GATHER) && rank != r->root) return 0;
  if (r->coll == ALLTOALLV) return exchange_wrong(recv, r, rank, world);
  uint64_t wrong = 0, n = recv_count(r, world);
  for (uint64_t i = 0; i < n; i++) {
    if (reduces(r)) {
      uint64_t at = r->coll == REDUCESCATTER ? (uint64_t)rank * r->count + i : i;
      wrong += !reduction_matches(recv, r, i, at, world);
      continue;
    }
    int from;
    uint64_t at;
    source(r, rank, world, i, &from, &at);
    wrong += !matches(recv, r->type, i, value(r, from, at));
  }
  return wrong;
}
