package fleet

import (
	"testing"
	"time"
)

func TestProcessorTimeIsReadAfterAnyProcessName(t *testing.T) {
	t.Parallel()
	_, _, own, _, err := ParseStat([]byte("7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 200"))
	if err != nil || own != 3*time.Second {
		t.Errorf("%v, %v; expected 3 s", own, err)
	}
}
