#include "textflag.h"

// Each function combines n elements, a positive multiple of 16.

// func sumF32(dst, src unsafe.Pointer, n int)
TEXT ·sumF32(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

f32:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VADDPS  (SI), Y0, Y0
	VADDPS  32(SI), Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ    $64, DI
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     f32
	VZEROUPPER
	RET

// func sumF16(dst, src unsafe.Pointer, n int)
TEXT ·sumF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

f16:
	VCVTPH2PS (DI), Y0
	VCVTPH2PS 16(DI), Y1
	VCVTPH2PS (SI), Y2
	VCVTPH2PS 16(SI), Y3
	VADDPS    Y2, Y0, Y0
	VADDPS    Y3, Y1, Y1
	VCVTPS2PH $0, Y0, (DI)   // to nearest even, whatever MXCSR says
	VCVTPS2PH $0, Y1, 16(DI)
	ADDQ      $32, DI
	ADDQ      $32, SI
	SUBQ      $16, CX
	JNZ       f16
	VZEROUPPER
	RET

// ROUND makes of the float32s in y the bits of bfloat16s, as F32ToBF16 does: Y13 holds
// 0x7fff, Y14 1 and Y15 0x40 in every element.
#define ROUND(y, a, b, nan) \
	VPSRLD    $16, y, a          \
	VPAND     Y14, a, b          \
	VPADDD    Y13, b, b          \
	VPADDD    y, b, b            \
	VPSRLD    $16, b, b          \
	VPOR      Y15, a, a          \
	VCMPPS    $3, y, y, nan      \
	VBLENDVPS nan, a, b, y

// func sumBF16(dst, src unsafe.Pointer, n int)
TEXT ·sumBF16(SB), NOSPLIT, $0-24
	MOVQ     dst+0(FP), DI
	MOVQ     src+8(FP), SI
	MOVQ     n+16(FP), CX
	VPCMPEQD Y0, Y0, Y0
	VPSRLD   $17, Y0, Y13
	VPSRLD   $31, Y0, Y14
	VPSLLD   $6, Y14, Y15

bf16:
	VPMOVZXWD (DI), Y0
	VPMOVZXWD 16(DI), Y1
	VPMOVZXWD (SI), Y2
	VPMOVZXWD 16(SI), Y3
	VPSLLD    $16, Y0, Y0
	VPSLLD    $16, Y1, Y1
	VPSLLD    $16, Y2, Y2
	VPSLLD    $16, Y3, Y3
	VADDPS    Y2, Y0, Y0
	VADDPS    Y3, Y1, Y1
	ROUND(Y0, Y4, Y5, Y6)
	ROUND(Y1, Y7, Y8, Y9)
	VPACKUSDW Y1, Y0, Y0     // by halves: 0-3, 8-11, 4-7, 12-15
	VPERMQ    $0xd8, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $32, DI
	ADDQ      $32, SI
	SUBQ      $16, CX
	JNZ       bf16
	VZEROUPPER
	RET
