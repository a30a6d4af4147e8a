package feed

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Snapshot is a pg_snapshot: which transactions a reader saw as finished. The zero Snapshot has seen none. Snapshot is immutable.
type Snapshot struct {
	xmin, xmax uint64
	running    []uint64 // ascending, all in [xmin, xmax)
}

// ParseSnapshot reads the text form of pg_snapshot, "xmin:xmax:xip,xip".
func ParseSnapshot(text string) (Snapshot, error) {
	bad := func() (Snapshot, error) { return Snapshot{}, fmt.Errorf("not a pg_snapshot: %.64q", text) }
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return bad()
	}
	var s Snapshot
	var err1, err2 error
	s.xmin, err1 = strconv.ParseUint(parts[0], 10, 64)
	s.xmax, err2 = strconv.ParseUint(parts[1], 10, 64)
	if err1 != nil || err2 != nil || s.xmin == 0 || s.xmax < s.xmin {
		return bad()
	}
	if parts[2] == "" {
		return s, nil
	}
	for x := range strings.SplitSeq(parts[2], ",") {
		xid, err := strconv.ParseUint(x, 10, 64)
		if err != nil || xid < s.xmin || xid >= s.xmax || len(s.running) > 0 && xid <= s.running[len(s.running)-1] {
			return bad()
		}
		s.running = append(s.running, xid)
	}
	return s, nil
}

// Sees reports whether the snapshot saw the transaction as finished, as pg_visible_in_snapshot does.
func (s Snapshot) Sees(xid uint64) bool {
	if xid < s.xmin {
		return true
	}
	if xid >= s.xmax {
		return false
	}
	_, running := slices.BinarySearch(s.running, xid)
	return !running
}

// Xmin is the oldest transaction that was still running. The snapshot sees every older transaction. Zero for the zero Snapshot.
func (s Snapshot) Xmin() uint64 { return s.xmin }

// Xmax is greater than every transaction that had ended. The snapshot sees no transaction from Xmax on. In one history it never decreases.
func (s Snapshot) Xmax() uint64 { return s.xmax }

// IsZero reports whether the snapshot is the zero one.
func (s Snapshot) IsZero() bool { return s.xmax == 0 }

// String returns the text form of pg_snapshot.
func (s Snapshot) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:%d:", s.xmin, s.xmax)
	for i, xid := range s.running {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(xid, 10))
	}
	return b.String()
}

// Point is a position in the history of a database. Transaction numbers are unique within one history only: a server that was restored
// to an earlier state, or that lost its last unwritten transactions in a crash, reuses numbers.
type Point struct {
	History  string // postgres.History
	Snapshot Snapshot
}

// LeadsTo reports whether next is the same or a later point of the same history.
func (p Point) LeadsTo(next Point) bool {
	return p.History == next.History && p.Snapshot.xmax <= next.Snapshot.xmax
}
