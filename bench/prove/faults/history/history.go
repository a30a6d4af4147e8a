// Package history remembers what was asked to be true of each key, with the times at which that was answered, and judges what
// is read of it. Its promise: an answer that the freshness protocol forbids is found, and none that it allows is called wrong.
//
// A read is stale when the state it shows had been replaced, for good, before the read was sent:
//
//   - by a change that was answered "complete" before;
//   - by a change that was answered "pending" longer ago than the edge may answer while it reaches neither Postgres nor Redis (S). The answer to a
//     create does not wait for leases, so there it is a lease and S;
//   - by a change made by hand in the database longer ago than a lease and S. Control does not wait for the edges then; this is as long
//     as the least lucky edge may go on.
//
// A change without an answer (an error, a time-out, a killed control) may have happened, may still happen at any later time,
// or never: what it asked for is allowed, and what it would replace as well, until a later deletion is answered. A deletion
// ends that, because whatever was asked of a link does nothing once the link is gone.
//
// A state that no writer requested is corruption. The register is a regular one, not a linearizable one: while a change is under
// way one edge may show the new state and another, later, the old one.
package history

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// State is what an edge shows of a key: where it leads, from 0 on, or one of the constants.
type State int32

const (
	// Gone is a key that leads nowhere (404). Every key begins so.
	Gone State = -1
	// Off is a key that must not resolve: deactivated, or its organization suspended (410).
	Off State = -2
	// Foreign is an answer that belongs to no state of this key.
	Foreign State = -3
)

// Outcome is how a change was answered.
type Outcome string

// The outcomes. Open changes have no answer yet.
const (
	Open     Outcome = "no answer yet"
	Complete Outcome = "complete"
	Pending  Outcome = "pending"
	ByHand   Outcome = "by hand"
	Unknown  Outcome = "unknown"
	Refused  Outcome = "refused" // it certainly did not happen
)

// Kind says what is special about a change.
type Kind string

const (
	// Edit is every change that is none of the others.
	Edit Kind = "edit"
	// Create replaces nothing but Gone.
	Create Kind = "create"
	// Delete makes everything that was asked of the key before it impossible.
	Delete Kind = "delete"
)

// write is one change of one key.
type write struct {
	what    string
	kind    Kind
	state   State
	begun   time.Duration
	ended   time.Duration
	outcome Outcome
}

// Terms are what the edges may do.
type Terms struct {
	// Lease is L of every edge, StaleIfError S of each.
	Lease        time.Duration
	StaleIfError []time.Duration
}

// drift stretches a span as control does: clocks may differ by 1 % and 10 ms.
func drift(span time.Duration) time.Duration { return span + span/100 + 10*time.Millisecond }

// effective is when a change has replaced, on an edge, what was before it. ok is false as long as nothing is certain.
func (t Terms) effective(w write, edge int) (at time.Duration, ok bool) {
	switch w.outcome {
	case Complete:
		return w.ended, true
	case Pending:
		if w.kind == Create {
			return w.ended + drift(t.Lease+t.StaleIfError[edge]), true
		}
		return w.ended + t.StaleIfError[edge], true
	case ByHand:
		return w.ended + drift(t.Lease+t.StaleIfError[edge]), true
	}
	return 0, false
}

// Read is one answer of an edge.
type Read struct {
	Edge           int
	Sent, Answered time.Duration
	State          State
}

// Recorder is the clock and the memory of one run. Its methods are safe for concurrent use.
type Recorder struct {
	terms   Terms
	began   time.Time
	reads   atomic.Int64
	mu      sync.Mutex
	keys    []*Key
	notes   []note
	found   []Finding
	counts  map[Verdict]int
	onFound chan struct{} // closed with the first finding
}

// New returns a recorder whose time begins now.
func New(terms Terms) *Recorder {
	return &Recorder{terms: terms, began: time.Now(), counts: make(map[Verdict]int), onFound: make(chan struct{})}
}

// Now is the one clock: monotonic, from the beginning of the run.
func (r *Recorder) Now() time.Duration { return time.Since(r.began) }

// Reads returns how many reads were judged.
func (r *Recorder) Reads() int64 { return r.reads.Load() }

// Key is the history of one key, written by one writer, one change at a time, and read by many.
type Key struct {
	// Name is what people call it.
	Name     string
	recorder *Recorder

	mu       sync.Mutex
	writes   []write
	unknowns bool // there is one among writes
	retired  bool
	sample   *sample // nil: its reads are only judged
}

// NewKey begins a history. A sampled key keeps some of its reads, for [Recorder.Linearize].
func (r *Recorder) NewKey(name string, sampled bool) *Key {
	k := &Key{Name: name, recorder: r}
	if sampled {
		k.sample = new(sample)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, k)
	return k
}

// Keys returns all keys there were.
func (r *Recorder) Keys() []*Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys)
}

// Begin notes that a change is about to be asked for. what is told in stories. The next change must wait for End.
func (k *Key) Begin(what string, kind Kind, state State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes = append(k.writes, write{what: what, kind: kind, state: state, begun: k.recorder.Now(), outcome: Open})
}

// End notes the answer to the change that Begin noted, and returns how long that took.
func (k *Key) End(outcome Outcome) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := &k.writes[len(k.writes)-1]
	// The time is taken while the key is locked: no read that was sent later can be judged before this is known.
	w.ended, w.outcome = k.recorder.Now(), outcome
	k.unknowns = k.unknowns || outcome == Unknown
	return w.ended - w.begun
}

// Unsure reports whether some change of the present link has no answer.
func (k *Key) Unsure() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range slices.Backward(k.writes) {
		if w.outcome == Unknown {
			return true
		}
		if w.kind == Delete && w.outcome != Refused {
			break
		}
	}
	return false
}

// Possible reports whether the database may show a state now.
func (k *Key) Possible(state State) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.recorder.Now()
	return k.allowed(Read{Edge: inDatabase, Sent: now, Answered: now, State: state})
}

// Retire ends the history: nothing will be asked of the key any more.
func (k *Key) Retire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.retired = true
}

// Retired reports whether Retire was called.
func (k *Key) Retired() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.retired
}
