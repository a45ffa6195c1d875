//go:build linux && !cgo

#include "textflag.h"

// See ignored.
DATA _cgo_mmap(SB)/8, $map<>(SB)
GLOBL _cgo_mmap(SB), NOPTR, $8
GLOBL looked<>(SB), NOPTR, $1

// map is mmap for Go's runtime, which wants an error as its number. At its first call the runtime has not touched any signal.
TEXT map<>(SB), NOSPLIT, $48
	MOVD $222, R8 // mmap
	SVC
	CMN  $4095, R0
	BCC  mapped
	NEG  R0, R0
mapped:
	MOVBU looked<>(SB), R1
	CBNZ R1, done
	MOVD $1, R1
	MOVB R1, looked<>(SB)
	MOVD R0, result-8(SP)
	MOVD ZR, R0
	MOVD ZR, R1
	MOVD $·blocked(SB), R2
	MOVD $8, R3
	MOVD $135, R8 // rt_sigprocmask
	SVC
	MOVD ZR, R5
	MOVD $64, R4
	MOVD $134, R8 // rt_sigaction
next:
	LSL  $1, R5
	MOVD R4, R0
	MOVD ZR, R1
	MOVD $action-40(SP), R2
	SVC
	CBNZ R0, other
	MOVD action-40(SP), R1
	CMP  $1, R1 // SIG_IGN
	BNE  other
	ORR  $1, R5
other:
	SUB  $1, R4
	CBNZ R4, next
	MOVD R5, ·ignored(SB)
	MOVD result-8(SP), R0
done:
	RET
