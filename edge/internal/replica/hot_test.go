package replica

import (
	"context"
	"hash/maphash"
	"strings"
	"testing"
)

// The hot table is voided like the cache.
func TestHotEntryNeverServesAfterChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		return Result{OrgKey: "abcd", Value: []byte("old")}, nil
	})
	f.mustGet(t, "abcd", "code", "old")
	f.positive.Wait()
	hash := maphash.String(f.Replica.seed, "abcd/code")
	isHot := func() bool { e := f.hot.get(hash); return e != nil && e.named([]byte("abcd/code")) }
	for n := 0; !isHot(); n++ {
		if n > 1000*cacheEvery {
			t.Fatal("the entry did not become hot")
		}
		f.mustGet(t, "abcd", "code", "old")
	}
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		return Result{OrgKey: "abcd", Value: []byte("new")}, nil
	})
	for _, tag := range []string{"k:abcd/code", "d:abcd", "o:abcd", "*"} {
		f.bump([]string{tag})
		for range 4 * cacheEvery {
			f.mustGet(t, "abcd", "code", "new")
		}
	}
}

func TestHotTableReturnsWhatWasPutLast(t *testing.T) {
	t.Parallel()
	var h hot
	first, second := newEntry(version{key: 7}, "abcd/first", []byte(strings.Repeat("x", 700))), newEntry(version{}, "abcd/second", nil)
	if h.get(1) != nil {
		t.Error("an empty slot has an entry")
	}
	h.put(1, first)
	if got := h.get(2); string(got) != string(first) || cap(got) != len(first) {
		t.Errorf("%d bytes of %d came back", len(got), len(first))
	}
	h.put(2, second)
	h.put(1<<63, first)
	if got := h.get(1); string(got) != string(second) {
		t.Errorf("%q, expected the last entry put into its slot", got)
	}
}
