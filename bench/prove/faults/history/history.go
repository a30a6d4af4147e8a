// Package history records which changes of each key were requested and when their responses arrived, and checks every read against that. It
// finds every response that the freshness protocol forbids, and calls none wrong that the protocol allows.
//
// A read is stale when the state it shows had been replaced, for good, before the read was sent:
//
//   - by a change whose response said "complete" before;
//   - by a change whose response said "pending" longer ago than the edge may serve while it reaches neither Postgres nor Redis (S). The
//     response to a create does not wait for leases, so there the bound is a lease and S;
//   - by a change made by hand in the database longer ago than a lease and S. Control does not wait for the edges then; this is the
//     longest that an edge may continue.
//
// A change without a response (an error, a time-out, a killed control) may have happened, may still happen at any later time, or never:
// both the requested state and the state that it would replace are allowed until a later delete gets its response. A delete ends that,
// because changes of a deleted link have no effect.
//
// A state that no writer requested is corruption. The register is a regular one, not a linearizable one: while a change is in progress one
// edge may show the new state and another, later, the old one.
package history

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// State is what an edge shows of a key: the number of its target, from 0, or one of the constants.
type State int32

const (
	// Gone is a key without a link (404). Every key starts so.
	Gone State = -1
	// Off is a key that must not resolve: deactivated, or its organization suspended (410).
	Off State = -2
	// Foreign is a response that matches no state of this key.
	Foreign State = -3
)

// Outcome is the result of a change.
type Outcome string

// The outcomes. Open changes have no response yet.
const (
	Open     Outcome = "no response yet"
	Complete Outcome = "complete"
	Pending  Outcome = "pending"
	ByHand   Outcome = "by hand"
	Unknown  Outcome = "unknown"
	Refused  Outcome = "refused" // it certainly had no effect
)

// Kind distinguishes changes that need special rules.
type Kind string

const (
	// Edit is every other change.
	Edit Kind = "edit"
	// Create replaces only Gone.
	Create Kind = "create"
	// Delete cancels every change requested for the key before it.
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

// Terms are what the protocol allows edges to do.
type Terms struct {
	// Lease is L of every edge, StaleIfError is S of each.
	Lease        time.Duration
	StaleIfError []time.Duration
}

// drift extends a duration as control does: clocks may differ by 1 % and 10 ms.
func drift(span time.Duration) time.Duration { return span + span/100 + 10*time.Millisecond }

// effective returns when a change has replaced the previous state on an edge. ok is false as long as that is uncertain.
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

// Read is one response of an edge.
type Read struct {
	Edge           int
	Sent, Answered time.Duration
	State          State
}

// Recorder is the clock and the history of one run. Its methods are safe for concurrent use.
type Recorder struct {
	terms   Terms
	began   time.Time
	reads   atomic.Int64
	mu      sync.Mutex
	keys    []*Key
	notes   []note
	found   []Finding
	counts  map[Verdict]int
	onFound chan struct{} // closed at the first finding
}

// New returns a recorder whose clock starts now.
func New(terms Terms) *Recorder {
	return &Recorder{terms: terms, began: time.Now(), counts: make(map[Verdict]int), onFound: make(chan struct{})}
}

// Now is the only clock: monotonic, from the start of the run.
func (r *Recorder) Now() time.Duration { return time.Since(r.began) }

// Reads returns how many reads were checked.
func (r *Recorder) Reads() int64 { return r.reads.Load() }

// Key is the history of one key, written by one writer, one change at a time, and read by many readers.
type Key struct {
	// Name identifies the key in stories.
	Name     string
	recorder *Recorder

	mu       sync.Mutex
	writes   []write
	unknowns bool // writes contains a delete
	retired  bool
	sample   *sample // nil: its reads are checked, but not kept
}

// NewKey starts a history. A sampled key keeps some of its reads, for [Recorder.Linearize].
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

// Keys returns all keys, including retired ones.
func (r *Recorder) Keys() []*Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys)
}

// Begin records that a change is about to be requested. what is shown in stories. The next change must wait for End.
func (k *Key) Begin(what string, kind Kind, state State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes = append(k.writes, write{what: what, kind: kind, state: state, begun: k.recorder.Now(), outcome: Open})
}

// End records the response to the change that Begin recorded, and returns its duration.
func (k *Key) End(outcome Outcome) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := &k.writes[len(k.writes)-1]
	// The time is taken while the key is locked: no read that was sent later can be checked before the change is recorded.
	w.ended, w.outcome = k.recorder.Now(), outcome
	k.unknowns = k.unknowns || outcome == Unknown
	return w.ended - w.begun
}

// Unsure reports whether some change of the current link has no response.
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

// Possible reports whether the database may contain a state now.
func (k *Key) Possible(state State) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.recorder.Now()
	return k.allowed(Read{Edge: inDatabase, Sent: now, Answered: now, State: state})
}

// Retire ends the history: no further change of the key will be requested.
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
