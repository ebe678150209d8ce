/* The reductions of package datatype on a device. The results are the same, bit for bit, except for the sign and
 * payload of NaN. make.sh compiles this file once for each element type TYPE.
 *
 * A thread holds elements as they are in memory, in words of 32 or 64 bits, with several small elements in a word:
 * results are rounded to the type after each operator anyway. So the loads, which are the limit, are the same for
 * all types: 16 bytes each, four at once per thread, 48 KiB in flight on a processor. On a Hopper, a processor's
 * bandwidth times the latency is about 30 KiB. */
#include "reduce.h"

#define DEVICE static __attribute__((device, always_inline, unused))

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum Operator { SUM, PROD, MAX, MIN };

/* ---- Memory. All addresses are global. volatile keeps the order: loads ahead of their uses. ---- */

DEVICE void load(u64 at, u8 &v) {
  u32 word;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(word) : "l"(at));
  v = (u8)word;
}
DEVICE void load(u64 at, u16 &v) { asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(at)); }
DEVICE void load(u64 at, u32 &v) { asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(at)); }
DEVICE void load(u64 at, u64 &v) { asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(at)); }
DEVICE void load(u64 at, u32 (&v)[4]) {
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(at));
}
DEVICE void load(u64 at, u64 (&v)[2]) {
  asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v[0]), "=l"(v[1]) : "l"(at));
}

DEVICE void store(u64 at, u8 v) { asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"((u32)v) : "memory"); }
DEVICE void store(u64 at, u16 v) { asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"(v) : "memory"); }
DEVICE void store(u64 at, u32 v) { asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory"); }
DEVICE void store(u64 at, u64 v) { asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory"); }
DEVICE void store(u64 at, const u32 (&v)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}
DEVICE void store(u64 at, const u64 (&v)[2]) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(v[0]), "l"(v[1]) : "memory");
}

/* Words that other devices and the CPU see. A fence before a store orders it after all that the thread knows of. */
DEVICE void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
DEVICE void store_system(u64 at, u32 v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory"); }
DEVICE void store_system(u64 at, u64 v) { asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory"); }
/* Adds 1 to a word of the device. Returns the sum. */
DEVICE u32 count(u64 at) {
  u32 was;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(was) : "l"(at) : "memory");
  return was + 1;
}
/* Waits for all threads of the block. Returns whether one of them has said so. */
DEVICE u32 any(u32 said) {
  u32 one;
  asm volatile(
      "{\n.reg .pred %%some;\nsetp.ne.s32 %%some, %1, 0;\nbar.red.or.pred %%some, 0, %%some;\n"
      "selp.b32 %0, 1, 0, %%some;\n}"
      : "=r"(one)
      : "r"(said)
      : "memory");
  return one;
}

/* Elements at any alignment. */
template <class Bits> DEVICE Bits load_element(u64 at) {
  Bits v = 0;
  if (at % sizeof(Bits) == 0) {
    load(at, v);
  } else {
#pragma unroll 1
    for (u32 i = 0; i < sizeof(Bits); i++) {
      u8 byte;
      load(at + i, byte);
      v |= (Bits)((Bits)byte << 8 * i);
    }
  }
  return v;
}
template <class Bits> DEVICE void store_element(u64 at, Bits v) {
  if (at % sizeof(Bits) == 0) {
    store(at, v);
  } else {
#pragma unroll 1
    for (u32 i = 0; i < sizeof(Bits); i++) store(at + i, (u8)(v >> 8 * i));
  }
}

/* ---- Operators on numbers ---- */

template <int OP, class T> DEVICE T combine(T a, T b) { return OP == MAX ? (a > b ? a : b) : (a < b ? a : b); }

/* -0 is less than +0, and a number is chosen before NaN. No product is fused with a sum: -ffp-contract=off. */
template <int OP> DEVICE float combine(float a, float b) {
  switch (OP) {
    case SUM: return a + b;
    case PROD: return a * b;
    case MAX: return __builtin_fmaxf(a, b);
    default: return __builtin_fminf(a, b);
  }
}
template <int OP> DEVICE double combine(double a, double b) {
  switch (OP) {
    case SUM: return a + b;
    case PROD: return a * b;
    case MAX: return __builtin_fmax(a, b);
    default: return __builtin_fmin(a, b);
  }
}

/* ---- Elements: their bits, and the number to compute with ---- */

/* A number that the language has. */
template <class T, class U> struct Plain {
  typedef U Bits;
  typedef T Value;
  DEVICE T value(U bits) { return __builtin_bit_cast(T, bits); }
  DEVICE U bits(T v) { return __builtin_bit_cast(U, v); }
};

struct Float16 {
  typedef u16 Bits;
  typedef float Value;
  DEVICE float value(u16 bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
  }
  DEVICE u16 bits(float v) {
    u16 b;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(v));
    return b;
  }
};

/* ---- Types: operators on words ---- */

template <unsigned SIZE> struct WordOf { typedef u32 Type; };
template <> struct WordOf<8> { typedef u64 Type; };

/* Element by element. */
template <class E> struct Lanes {
  typedef typename E::Bits Bits;
  typedef typename WordOf<sizeof(Bits)>::Type Word;
  enum { DEPTH = 4 };

  template <int OP> DEVICE Word combine(Word a, Word b) {
    Word r = 0;
#pragma unroll
    for (u32 at = 0; at < 8 * sizeof(Word); at += 8 * sizeof(Bits))
      r |= (Word)E::bits(::combine<OP>(E::value((Bits)(a >> at)), E::value((Bits)(b >> at)))) << at;
    return r;
  }
  DEVICE Word divide(Word a, const lp_reduction &) { return a; }
  DEVICE Word finite(Word factor) { return factor; }
};

/* By 2^64 / d, rounded up, a division of 32 bits becomes a multiplication; its upper half serves for 8 bits. */
DEVICE u32 quotient(u8 v, const lp_reduction &r) { return (u32)(v * ((r.reciprocal + ~0u) >> 32) >> 32); }
DEVICE u32 quotient(u32 v, const lp_reduction &r) { return (u32)((unsigned __int128)v * r.reciprocal >> 64); }
DEVICE u64 quotient(u64 v, const lp_reduction &r) { return v / r.divisor; }

/* Sums and products wrap, with and without sign. */
template <class T, class U> struct Integer {
  typedef U Bits;
  typedef typename WordOf<sizeof(U)>::Type Word;
  enum { DEPTH = 4 };

  template <int OP> DEVICE U combine(U a, U b) {
    switch (OP) {
      case SUM: return a + b;
      case PROD: return a * b;
      default: return (U)::combine<OP>((T)a, (T)b);
    }
  }
  DEVICE Word divide(Word a, const lp_reduction &d) {
    Word r = 0;
#pragma unroll
    for (u32 at = 0; at < 8 * sizeof(Word); at += 8 * sizeof(U)) {
      U v = (U)(a >> at);
      bool negative = (T)v < 0;
      U q = (U)quotient(negative ? (U)(0 - v) : v, d);
      r |= (Word)(negative ? (U)(0 - q) : q) << at;
    }
    return r;
  }
  DEVICE Word finite(Word factor) { return factor; }
};

/* Four at once. No carry reaches the next element. */
template <class T> struct Bytes : Integer<T, u8> {
  enum { DEPTH = 3 }; /* 36 KiB in flight; averages need the registers */
  enum : u32 { TOPS = 0x80808080, SIGNS = (T)-1 < 0 ? TOPS : 0 };

  /* Sets all bits of each byte of a that is not less than the byte of b. */
  DEVICE u32 not_less(u32 a, u32 b) {
    a ^= SIGNS, b ^= SIGNS;
    u32 rest = (a | TOPS) - (b & ~TOPS);
    u32 top = ((a & ~b) | (~(a ^ b) & rest)) & TOPS;
    return top | (top - (top >> 7));
  }
  template <int OP> DEVICE u32 combine(u32 a, u32 b) {
    u32 r = 0;
    switch (OP) {
      case SUM: return ((a & ~TOPS) + (b & ~TOPS)) ^ ((a ^ b) & TOPS);
      case PROD:
#pragma unroll
        for (u32 at = 0; at < 32; at += 8) r |= (((a >> at) * (b >> at)) & 0xff) << at;
        return r;
      default:
        r = OP == MAX ? not_less(a, b) : not_less(b, a);
        return (a & r) | (b & ~r);
    }
  }
};

/* Later devices have instructions for types that sm_70 lacks. Modules for these devices have the same kernels, with
 * the same results. */
#define NATIVE_FP8 (__CUDA_ARCH__ >= 890)
#define NATIVE_BFLOAT16 (__CUDA_ARCH__ >= 900)
#define NATIVE_LESSER \
  (__CUDA_ARCH__ >= 800) /* of two halves: -0 is less than +0, and a number than NaN, as for float32 */

/* Two at once. Rounding a float32 result to half precision gives the result of half precision: 24 bits are 2 * 11
 * + 2. */
struct Half : Lanes<Float16> {
  template <int OP> DEVICE u32 combine(u32 a, u32 b) {
    u32 r;
    switch (OP) {
      case SUM: asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r;
      case PROD: asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r;
#if NATIVE_LESSER
      case MAX: asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r;
      default: asm("min.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r;
#else
      default: return Lanes<Float16>::combine<OP>(a, b);
#endif
    }
  }
};

#if NATIVE_BFLOAT16
/* Two at once. */
struct Bfloat16 : Lanes<Plain<float, u32>> {
  typedef u16 Bits;
  template <int OP> DEVICE u32 combine(u32 a, u32 b) {
    u32 r;
    switch (OP) {
      case SUM: asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r;
      case PROD: asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r;
      case MAX: asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r;
      default: asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r;
    }
  }
};
#else
/* Two at once, each the leading half of a float32. */
struct Bfloat16 : Lanes<Plain<float, u32>> {
  typedef u16 Bits;
  DEVICE u32 rounded(float v) {
    u32 b = __builtin_bit_cast(u32, v);
    return b + (v != v ? 0 : 0x7fff + (b >> 16 & 1)); /* NaN of devices is 0x7fffffff */
  }
  /* Combines the leading halves of a and b. The other half of the result is undefined. */
  template <int OP> DEVICE u32 leading(u32 a, u32 b) {
    float v = ::combine<OP>(__builtin_bit_cast(float, a), __builtin_bit_cast(float, b));
    return OP == SUM || OP == PROD ? rounded(v) : __builtin_bit_cast(u32, v);
  }
  template <int OP> DEVICE u32 combine(u32 a, u32 b) {
    const u32 lead = 0xffff0000;
    return (leading<OP>(a & lead, b & lead) & lead) | leading<OP>(a << 16, b << 16) >> 16;
  }
};
#endif

/* FP8 is computed in half precision, two elements at once: its 11 bits suffice for 4 or 3. E5M2 is the leading byte of
 * a half. E4M3 shifted right by one is 2^-8 times its value, also for subnormals, which matters only for products.
 * Results saturate. The CPU's kernels round once from float32, which gives the same result for each pair of numbers. */
template <u32 MANTISSA> struct Fp8 {
  typedef u8 Bits;
  typedef u32 Word;
#if NATIVE_FP8
  enum { DEPTH = 3 }; /* four need more registers than there are */
  enum : u32 { E4M3 = MANTISSA == 3 };

  /* Halves of two bytes. */
  DEVICE u32 widen(u32 w) {
    u32 h;
    if (E4M3)
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"((u16)w));
    else
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(h) : "h"((u16)w));
    return h;
  }

  /* The inverse, rounded to even. */
  DEVICE u32 narrow(u32 h) {
    u16 w;
    if (E4M3)
      asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(w) : "r"(h));
    else
      asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(w) : "r"(h));
    return w;
  }

  template <int OP> DEVICE u32 halves(u32 a, u32 b) { return narrow(Half::combine<OP>(widen(a), widen(b))); }
  template <int OP> DEVICE u32 combine(u32 a, u32 b) { return halves<OP>(a, b) | halves<OP>(a >> 16, b >> 16) << 16; }
#else
  enum { DEPTH = 2 };
  enum : u32 {
    E4M3 = MANTISSA == 3,
    DROPPED = 10 - MANTISSA, /* bits of a half's mantissa */
    HALF = 1 << (DROPPED - 1),
    LANES = 0x00010001,
    SIGNS = 0x8000 * LANES,
    LARGEST = (E4M3 ? 0x3f00 : 0x7b00) * LANES,
    NAN = (E4M3 ? 0x3f80 : 0x7e00) * LANES,
  };

  /* Halves of the bytes that lead each 16 bits; the other bytes are 0. */
  DEVICE u32 widen(u32 w) {
    if (!E4M3) return w;
    u32 h = (w & SIGNS) | (w & ~SIGNS) >> 1;
    return h | (((h & NAN) + 0x80 * LANES) & 0x4000 * LANES); /* NaN has all bits set, so a carry finds it */
  }

  /* The inverse, rounded to even. */
  DEVICE u32 narrow(u32 h) {
    u32 v = h & ~SIGNS;
    u32 nan = (v + 0x3ff * LANES) & SIGNS;
    v = (v + (HALF - 1) * LANES + (v >> DROPPED & LANES)) &
        ~(SIGNS | (2 * HALF - 1) * LANES); /* of NaN, only the sign remains */
    u32 over = (v + (SIGNS - LARGEST - LANES)) & SIGNS;
    over -= over >> 15; /* all bits but the sign */
    v = (v & ~over) | (LARGEST & over);
    nan -= nan >> 15;
    v = (v & ~nan) | (NAN & nan);
    return (h & SIGNS) | (E4M3 ? v << 1 : v);
  }

  template <int OP> DEVICE u32 halves(u32 a, u32 b) {
    a = widen(a), b = widen(b);
    if (E4M3 && OP == PROD) a = Half::combine<PROD>(a, 0x5c00 * LANES); /* 2^8 */
    return narrow(Half::combine<OP>(a, b));
  }
  template <int OP> DEVICE u32 combine(u32 a, u32 b) {
    const u32 leading = 0xff00 * LANES;
    return halves<OP>(a & leading, b & leading) | halves<OP>(a << 8 & leading, b << 8 & leading) >> 8;
  }
#endif
  DEVICE u32 divide(u32 a, const lp_reduction &) { return a; }
  DEVICE u32 finite(u32 factor) { return combine<MAX>(factor, factor); } /* infinities saturate */
};

typedef Bytes<signed char> type_int8;
typedef Bytes<u8> type_uint8;
typedef Integer<int, u32> type_int32;
typedef Integer<u32, u32> type_uint32;
typedef Integer<long long, u64> type_int64;
typedef Integer<u64, u64> type_uint64;
typedef Half type_half;
typedef Lanes<Plain<float, u32>> type_float;
typedef Lanes<Plain<double, u64>> type_double;
typedef Bfloat16 type_bfloat16;
typedef Fp8<3> type_f8e4m3;
typedef Fp8<2> type_f8e5m2;

/* ---- Units: what a thread loads at once ---- */

enum { VECTOR = 16 };

/* 16 aligned bytes. */
template <class Type> struct Vector {
  enum { WORDS = VECTOR / sizeof(typename Type::Word) };
  typename Type::Word w[WORDS];
  DEVICE void load(Vector &v, u64 at) { ::load(at, v.w); }
  DEVICE void store(u64 at, const Vector &v) { ::store(at, v.w); }
};

/* An element, at any alignment. */
template <class Type> struct Element {
  typedef typename Type::Bits Bits;
  enum { WORDS = 1 };
  typename Type::Word w[1];
  DEVICE void load(Element &v, u64 at) { v.w[0] = load_element<Bits>(at); }
  DEVICE void store(u64 at, const Element &v) { store_element(at, (Bits)v.w[0]); }
};

/* The factor in every element of a word. */
template <class Type> DEVICE typename Type::Word factor_of(const lp_reduction &r) {
  typedef typename Type::Bits Bits;
  typedef typename Type::Word Word;
  Bits v = (Bits)r.factor;
  if (r.factor_at != 0) v = load_element<Bits>(r.factor_at);
  return Type::finite((Word)v * ((Word)~0ull / (Bits)~0ull));
}

/* Keeps a word in one register: compilers split words that are computed by elements, and run out of registers. */
DEVICE void keep(u32 &w) { asm("" : "+r"(w)); }
DEVICE void keep(u64 &w) { asm("" : "+l"(w)); }

/* Applies f to all words of some units, with the words of other units. */
template <class Unit, u32 DEPTH, class F> DEVICE void each(Unit (&a)[DEPTH], const Unit (&b)[DEPTH], F f) {
#pragma unroll
  for (u32 d = 0; d < DEPTH; d++)
#pragma unroll
    for (u32 i = 0; i < Unit::WORDS; i++) {
      a[d].w[i] = f(a[d].w[i], b[d].w[i]);
      keep(a[d].w[i]);
    }
}

/* The address in a word, plus an offset; 0 if the word has another tag. The writer may withdraw it while the kernel
 * runs, so no thread keeps it. */
DEVICE u64 said(const lp_reduction &r, u64 word, u64 offset) {
  u64 at = 0;
  if (word != 0) load(word, at);
  return at != 0 && (at & LP_SAID_TAG) == r.tag ? (at & ~LP_SAID_TAG) + offset : 0;
}

DEVICE u64 source_of(const lp_reduction &r, u32 source) {
  u64 at = said(r, r.sources[source].found, r.sources[source].offset);
  return at != 0 ? at : r.sources[source].at;
}

/* What the blocks of a job do. */
struct Job {
  u32 number;
  u32 first, end;      /* sources */
  u32 thread, threads; /* of the job */
};

/* Loads units of a source, and scales them if the job does. Threads with fewer units left load only these. */
template <class Type, int OP, class Unit, u32 DEPTH>
DEVICE void load_all(Unit (&v)[DEPTH], const lp_reduction &r, const Job &job, u32 source, const u64 (&at)[DEPTH],
                     u32 units, typename Type::Word factor) {
  typedef typename Type::Word Word;
  u64 from = source_of(r, source);
#pragma unroll
  for (u32 d = 0; d < DEPTH; d++)
    if (d < units) Unit::load(v[d], from + at[d]);
  if (OP == SUM && (r.scaled >> job.number & 1)) each(v, v, [=](Word w, Word) { return Type::template combine<PROD>(w, factor); });
}

/* Reduces units: unit i of count is offset(i) bytes into the arrays. */
template <class Type, int OP, class Unit, class Offset>
DEVICE void reduce_units(const lp_reduction &r, const Job &job, typename Type::Word factor, u64 count, Offset offset) {
  typedef typename Type::Word Word;
  const u32 depth = Type::DEPTH;
  const u64 threads = job.threads;
#pragma unroll 1
  for (u64 first = job.thread; first < count; first += depth * threads) {
    u64 at[depth];
    u32 units = 0;
    Unit result[depth] = {}, v[depth] = {};
#pragma unroll
    for (u32 d = 0; d < depth; d++) {
      at[d] = offset(first + d * threads);
      units += first + d * threads < count;
    }
    load_all<Type, OP>(result, r, job, job.first, at, units, factor);
#pragma unroll 1
    for (u32 s = job.first + 1; s < job.end; s++) {
      load_all<Type, OP>(v, r, job, s, at, units, factor);
      each(result, v, [](Word a, Word b) { return Type::template combine<OP>(a, b); });
    }
    if (OP == SUM && job.number == 0 && r.divisor > 1) each(result, result, [&](Word w, Word) { return Type::divide(w, r); });
    u64 to = r.job[job.number].dst, spare = 0;
#pragma unroll 1
    for (u32 t = 0;; t++) { /* dst, the targets, and the spare last */
#pragma unroll
      for (u32 d = 0; d < depth; d++)
        if (to != 0 && d < units) Unit::store(to + at[d], result[d]);
      if (job.number != 0 || t > r.targets) break;
      to = t < r.targets ? said(r, r.target[t], r.target_offset) : spare;
      if (to == 0) spare = r.spare;
    }
  }
}

/* Uses vectors if all addresses are equal modulo their size, else elements. Elements also cover what is before the
 * first vector and after the last. */
template <class Type, int OP> DEVICE void work(const lp_reduction &r, const Job &job) {
  const u32 size = sizeof(typename Type::Bits), per_vector = VECTOR / size;
  __builtin_assume(job.first < job.end);
  u64 differ = 0, vectors = 0, dst = r.job[job.number].dst, count = r.job[job.number].count;
#pragma unroll 1
  for (u32 s = job.first; s < job.end; s++) differ |= source_of(r, s) ^ dst;
  if (job.number == 0) {
#pragma unroll 1
    for (u32 t = 0; t < r.targets; t++) {
      u64 to = said(r, r.target[t], r.target_offset);
      if (to != 0) differ |= to ^ dst;
    }
    if (r.spare != 0) differ |= r.spare ^ dst;
  }
  u64 head = (0 - dst) % VECTOR;
  if (differ % VECTOR == 0 && head % size == 0 && head / size < count)
    vectors = (count - head / size) / per_vector;

  typename Type::Word factor = factor_of<Type>(r);
  reduce_units<Type, OP, Vector<Type>>(r, job, factor, vectors, [=](u64 i) { return head + i * VECTOR; });
  reduce_units<Type, OP, Element<Type>>(r, job, factor, count - vectors * per_vector,
                                        [=](u64 i) { return (i < head / size ? i : i + vectors * per_vector) * size; });
}

DEVICE void write(const lp_store &s) {
  if (s.counter != 0) {
    if (count(s.counter) != (u32)(s.value >> 32)) return;
    store(s.counter, (u32)0);
    fence_system(); /* after what the others have done before they counted */
  }
  if (s.at & 1)
    store_system(s.at - 1, s.value);
  else
    store_system(s.at, (u32)s.value);
}

/* The last block to get here writes the last words: they are seen after all that the kernel has done. */
DEVICE void finish(const lp_reduction &r) {
  u32 thread = __nvvm_read_ptx_sreg_tid_x(), blocks = __nvvm_read_ptx_sreg_nctaid_x(), last = 0;
  if (r.before == r.stores) return;
  if (blocks > 1) {
    (void)any(0);
    if (thread == 0) {
      fence_device();
      last = count(r.blocks) == blocks;
      if (last) store(r.blocks, (u32)0);
    }
  }
  if (!any(last || blocks == 1) || r.before + thread >= r.stores) return;
  fence_system();
  write(r.store[r.before + thread]);
}

template <class Type, int OP> DEVICE void run(const lp_reduction &r) {
  u32 thread = __nvvm_read_ptx_sreg_tid_x(), block = __nvvm_read_ptx_sreg_ctaid_x(), j = 0;
  if (block == 0 && thread < r.before) write(r.store[thread]);
#pragma unroll 1
  while (j <= r.copies && block >= r.first[j + 1]) j++;
  if (j <= r.copies) {
    Job job;
    job.number = j;
    job.first = j == 0 ? 0 : LP_REDUCE_SOURCES + j - 1;
    job.end = j == 0 ? r.n : job.first + 1;
    job.thread = (block - r.first[j]) * LP_REDUCE_THREADS + thread;
    job.threads = (r.first[j + 1] - r.first[j]) * LP_REDUCE_THREADS;
    work<Type, OP>(r, job);
  }
  finish(r);
}

#define KERNEL(type, op, OP)                                                                          \
  extern "C" __attribute__((global, launch_bounds(LP_REDUCE_THREADS, LP_REDUCE_BLOCKS)))                             \
  void lightpath_reduce_##type##_##op(const lp_reduction r) {                                         \
    run<type_##type, OP>(r);                                                                          \
  }
#define KERNELS(type)     \
  KERNEL(type, sum, SUM)  \
  KERNEL(type, prod, PROD) \
  KERNEL(type, max, MAX)  \
  KERNEL(type, min, MIN)

KERNELS(TYPE)
