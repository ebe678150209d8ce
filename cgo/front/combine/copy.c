#include "combine.h"

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LINE = 64 };

void lp_copy_past(void* dst, const void* src, size_t n) {
#ifdef __SSE2__
  char* d = dst;
  const char* s = src;
  size_t head = -(uintptr_t)d % LINE;
  if (head > n) head = n;
  memcpy(d, s, head);
  for (d += head, s += head, n -= head; n >= LINE; d += LINE, s += LINE, n -= LINE) {
    __m128i a = _mm_loadu_si128((const __m128i*)s), b = _mm_loadu_si128((const __m128i*)s + 1);
    __m128i c = _mm_loadu_si128((const __m128i*)s + 2), e = _mm_loadu_si128((const __m128i*)s + 3);
    _mm_stream_si128((__m128i*)d, a), _mm_stream_si128((__m128i*)d + 1, b);
    _mm_stream_si128((__m128i*)d + 2, c), _mm_stream_si128((__m128i*)d + 3, e);
  }
  memcpy(d, s, n);
  _mm_sfence(); /* stores past the caches become visible before later ones */
#else
  memcpy(dst, src, n);
#endif
}
