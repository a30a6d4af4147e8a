package doctor

import (
	"testing"
	"time"
)

func TestClockDifferenceExcludesTheTimeOfTheQuery(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for off, expected := range map[time.Duration]Status{
		0: OK, 900 * time.Millisecond: OK, -900 * time.Millisecond: OK, 2 * time.Second: Warning, -2 * time.Second: Warning,
		time.Minute: Error, -time.Minute: Error,
	} {
		if got := compareClocks(at, at.Add(off), at); got.Status != expected || (got.Do == "") != (expected == OK) {
			t.Errorf("%v: %+v, expected %s", off, got, expected)
		}
		if got := compareClocks(at, at.Add(off), at.Add(2*time.Minute)); off > 0 && got.Status != OK {
			t.Errorf("%v within a question of two minutes: %+v, expected ok", off, got)
		}
	}
}
