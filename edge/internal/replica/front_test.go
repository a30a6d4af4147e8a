package replica

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"
)

func TestEntryInTheFrontIndexIsNotServedAfterItsChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		return Result{OrgKey: "abcd", Value: []byte("old")}, nil
	})
	f.mustGet(t, "abcd", "code", "old")
	f.positive.Wait()
	f.mustGet(t, "abcd", "code", "old")
	if e := f.front.get(maphash.String(f.Replica.seed, "abcd/code")); e == nil || !e.named([]byte("abcd/code")) {
		t.Fatalf("the index has %q, expected the entry that ristretto returned", e)
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

func TestFrontIndexReturnsTheEntryOfEachHash(t *testing.T) {
	t.Parallel()
	f := newFront(0) // two buckets, chosen by the highest bit of a hash
	entries := make([]entry, bucketPlaces+1)
	for i := range entries {
		entries[i] = newEntry(version{sum: 7}, fmt.Sprintf("abcd/%d", i), []byte(strings.Repeat("x", 700)))
	}
	if f.get(1) != nil {
		t.Error("an empty index has an entry")
	}
	for i := range bucketPlaces {
		if !f.put(uint64(i+1), entries[i], false) || f.put(uint64(i+1), entries[i], true) {
			t.Errorf("entry %d was not added exactly once", i)
		}
	}
	for i := range bucketPlaces {
		if got := f.get(uint64(i + 1)); string(got) != string(entries[i]) || cap(got) != len(entries[i]) {
			t.Errorf("hash %d: %d bytes, expected those of its entry", i+1, len(got))
		}
	}
	last := entries[bucketPlaces]
	if f.put(9, last, false) || f.get(9) != nil {
		t.Error("an entry took a place in a full bucket without displacing")
	}
	if !f.put(9, last, true) || string(f.get(9)) != string(last) {
		t.Error("an entry that displaces another one is not there")
	}
	left := 0
	for i := range bucketPlaces {
		if f.get(uint64(i+1)) != nil {
			left++
		}
	}
	if left != bucketPlaces-1 {
		t.Errorf("%d of %d entries are left, expected all but one", left, bucketPlaces)
	}
	f.drop(9, last)
	if f.get(9) != nil {
		t.Error("a dropped entry is still there")
	}
}

// The index must not keep entries that ristretto has evicted: their memory would be in addition to the configured bound.
func TestFrontIndexHoldsOnlyWhatRistrettoHolds(t *testing.T) {
	t.Parallel()
	r, err := New(Options{CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r.lease.Store(&lease{start: time.Now()})
	const keys = 20_000 // ten times as many as there is room for
	for i := range keys {
		name := fmt.Sprintf("abcd/%d", i)
		hash := maphash.String(r.seed, name)
		r.remember(hash, newEntry(r.stamps.read("abcd", "abcd", name), name, []byte(strings.Repeat("x", 300))))
		if i%100 == 0 {
			r.positive.Wait()
		}
		// Sooner or later each entry that ristretto has admitted is in the index.
		for j := max(0, i-50); j <= i; j += 10 {
			name := []byte(fmt.Sprintf("abcd/%d", j))
			r.lookup(r.lease.Load(), time.Now(), time.Hour, maphash.Bytes(r.seed, name), name)
		}
	}
	r.positive.Wait()
	indexed := 0
	for i := range r.front.buckets {
		for j := range r.front.buckets[i] {
			first := r.front.buckets[i][j].first.Load()
			if first == nil {
				continue
			}
			indexed++
			if cacheGet(r.positive, maphash.Bytes(r.seed, entryAt(first).name())).pointer() != first {
				t.Errorf("the index holds %q, which ristretto has dropped", entryAt(first).name())
			}
		}
	}
	if indexed < 100 {
		t.Errorf("the index holds %d entries: this test shows nothing", indexed)
	}
}
