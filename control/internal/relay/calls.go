package relay

import (
	"iter"
	"maps"
	"time"

	"deeplink/shared/feed"
)

// wait is one call that waits for its change to be complete. Relay.mu guards acks.
type wait struct {
	change    feed.Change
	also      []uint64  // earlier transactions
	committed time.Time // not before the commit returned
	acks      map[feed.Ack]struct{}
	moved     chan struct{} // one slot: woken when the wait may be over
}

func (w *wait) wake() {
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// acknowledged records that an edge has acknowledged the call's change.
func (w *wait) acknowledged(ack feed.Ack) {
	w.acks[ack] = struct{}{}
	w.wake()
}

// calls are the calls that wait, indexed by the id of their change. Relay.mu guards them.
type calls struct {
	all map[*wait]struct{}
	// byChange holds no calls whose change has no id: control published no hint for them, so no edge acknowledges them.
	byChange map[int64]map[*wait]struct{}
}

func newCalls() calls {
	return calls{all: make(map[*wait]struct{}), byChange: make(map[int64]map[*wait]struct{})}
}

func (c calls) add(w *wait) {
	c.all[w] = struct{}{}
	if w.change.ID == 0 {
		return
	}
	same := c.byChange[w.change.ID]
	if same == nil {
		same = make(map[*wait]struct{}, 1)
		c.byChange[w.change.ID] = same
	}
	same[w] = struct{}{}
}

func (c calls) remove(w *wait) {
	delete(c.all, w)
	same := c.byChange[w.change.ID]
	delete(same, w)
	if len(same) == 0 {
		delete(c.byChange, w.change.ID)
	}
}

// of iterates over the calls that wait for the change with the id, and over no others: edges send an acknowledgement for each change, and
// thousands of calls may wait.
func (c calls) of(id int64) iter.Seq[*wait] { return maps.Keys(c.byChange[id]) }
