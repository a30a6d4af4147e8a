#include "textflag.h"

// func Line(address uintptr)
TEXT ·Line(SB), NOSPLIT, $0-8
	MOVD address+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET
