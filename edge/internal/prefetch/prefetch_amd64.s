#include "textflag.h"

// func Line(address uintptr)
TEXT ·Line(SB), NOSPLIT, $0-8
	MOVQ address+0(FP), AX
	PREFETCHT0 (AX)
	RET
