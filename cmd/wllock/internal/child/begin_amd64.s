//go:build linux && !cgo

#include "textflag.h"

// See ignored.
DATA _cgo_mmap(SB)/8, $map<>(SB)
GLOBL _cgo_mmap(SB), NOPTR, $8
GLOBL looked<>(SB), NOPTR, $1

// map is mmap for Go's runtime, which wants an error as its number. At its first call the runtime has not touched any signal.
TEXT map<>(SB), NOSPLIT, $48
	MOVQ  CX, R10
	MOVL  $9, AX // mmap
	SYSCALL
	CMPQ  AX, $-4095
	JCS   mapped
	NEGQ  AX
mapped:
	CMPB  looked<>(SB), $0
	JNE   done
	MOVB  $1, looked<>(SB)
	MOVQ  AX, result-8(SP)
	MOVL  $0, DI
	MOVL  $0, SI
	LEAQ  ·blocked(SB), DX
	MOVL  $8, R10
	MOVL  $14, AX // rt_sigprocmask
	SYSCALL
	MOVL  $0, R8
	MOVL  $64, DI
next:
	SHLQ  $1, R8
	MOVL  $0, SI
	LEAQ  action-40(SP), DX
	MOVL  $13, AX // rt_sigaction
	SYSCALL
	TESTQ AX, AX
	JNE   other
	CMPQ  action-40(SP), $1 // SIG_IGN
	JNE   other
	ORQ   $1, R8
other:
	DECQ  DI
	JNE   next
	MOVQ  R8, ·ignored(SB)
	MOVQ  result-8(SP), AX
done:
	RET
