package feed_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deeplink/shared/feed"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m)
}

func TestSnapshotAgreesWithPostgres(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	rapid.Check(t, func(rt *rapid.T) {
		start := rapid.Uint64Range(1, math.MaxInt64-100).Draw(rt, "xmin")
		length := rapid.Uint64Range(0, 20).Draw(rt, "length")
		var running []string
		for xid := start; xid < start+length; xid++ {
			if rapid.Bool().Draw(rt, "running") {
				running = append(running, fmt.Sprint(xid))
			}
		}
		text := fmt.Sprintf("%d:%d:%s", start, start+length, strings.Join(running, ","))
		snapshot, err := feed.ParseSnapshot(text)
		if err != nil {
			rt.Fatalf("%s: %v", text, err)
		}
		if snapshot.String() != text || snapshot.Xmin() != start || snapshot.IsZero() {
			rt.Errorf("%s was read as %s, xmin %d, zero %t", text, snapshot, snapshot.Xmin(), snapshot.IsZero())
		}
		xid := rapid.Uint64Range(start-1, start+length+1).Draw(rt, "xid")
		var expected bool
		if err := conn.QueryRow(t.Context(), `select pg_visible_in_snapshot($1::xid8, $2::text::pg_snapshot)`, xid, text).Scan(&expected); err != nil {
			rt.Fatal(err)
		}
		if got := snapshot.Sees(xid); got != expected {
			rt.Errorf("%s sees %d: %t, Postgres says %t", text, xid, got, expected)
		}
	})
}

func TestZeroSnapshotSeesNothing(t *testing.T) {
	t.Parallel()
	var zero feed.Snapshot
	for _, xid := range []uint64{0, 1, math.MaxUint64} {
		if zero.Sees(xid) {
			t.Errorf("the zero snapshot sees %d", xid)
		}
	}
	if !zero.IsZero() || zero.Xmin() != 0 {
		t.Errorf("zero snapshot: IsZero %t, Xmin %d", zero.IsZero(), zero.Xmin())
	}
}

var notSnapshots = []string{
	"", "1", "1:2", "1:2:3:4", ":2:", "1::", "0:2:", "2:1:", "-1:2:", "+1:2:", " 1:2:", "1:2: ", "a:b:c", "1:3:3", "2:3:1", "1:5:3,2", "1:5:2,2", "1:5:2,",
	"1:5:,2", "1:18446744073709551616:",
}

func TestParseSnapshotRejectsInvalidText(t *testing.T) {
	t.Parallel()
	for _, text := range notSnapshots {
		if got, err := feed.ParseSnapshot(text); err == nil || !got.IsZero() {
			t.Errorf("%q: got %s and %v, expected an error and nothing else", text, got, err)
		}
	}
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add("10:20:10,14,15", uint64(14))
	f.Add("1:1:", uint64(1))
	for _, text := range notSnapshots {
		f.Add(text, uint64(3))
	}
	f.Fuzz(func(t *testing.T, text string, xid uint64) {
		snapshot, err := feed.ParseSnapshot(text)
		if err != nil {
			return
		}
		again, err := feed.ParseSnapshot(snapshot.String())
		if err != nil || again.String() != snapshot.String() || again.Sees(xid) != snapshot.Sees(xid) {
			t.Errorf("%q was read as %s, and after writing that as %s, %v", text, snapshot, again, err)
		}
		if xid < snapshot.Xmin() && !snapshot.Sees(xid) {
			t.Errorf("%s does not see %d, which is older than its xmin", snapshot, xid)
		}
	})
}
