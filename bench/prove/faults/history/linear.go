package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Of a sampled key the first reads after each change are kept: errors show there.
const (
	readsPerChange = 24
	mostChanges    = 400
)

// sample holds the reads that are kept of a key.
type sample struct {
	reads   []Read
	changes int // the number of changes when the last read was kept
	kept    int // reads kept since then
}

func (s *sample) add(changes int, r Read) {
	if changes != s.changes {
		s.changes, s.kept = changes, 0
	}
	if s.kept < readsPerChange && changes <= mostChanges {
		s.reads = append(s.reads, r)
		s.kept++
	}
}

// The register as a porcupine model. Its state is the set of changes whose states may be shown at a moment. A change that begins enters the
// set, a change that is over removes those before it, and a read needs a member with the state that it shows. This is the same rule as in
// Judge, with another algorithm.
type (
	begins struct {
		index int
		state State
	}
	isOver struct {
		index int
		ends  bool // including those without a response
	}
	shows struct{ state State }

	member struct {
		index   int
		state   State
		unknown bool
	}
)

func (k *Key) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return []member{{index: -1, state: Gone}} },
		Step: func(state, input, _ any) (bool, any) {
			members, ok := state.([]member)
			if !ok {
				return false, state
			}
			switch in := input.(type) {
			case begins:
				unknown := k.writes[in.index].outcome == Unknown
				return true, append(slices.Clone(members), member{in.index, in.state, unknown})
			case isOver:
				return true, slices.DeleteFunc(slices.Clone(members), func(m member) bool {
					return m.index < in.index && (in.ends || !m.unknown)
				})
			case shows:
				return slices.ContainsFunc(members, func(m member) bool { return m.state == in.state }), state
			}
			return false, state
		},
		Equal: func(a, b any) bool {
			one, ok1 := a.([]member)
			other, ok2 := b.([]member)
			return ok1 && ok2 && slices.Equal(one, other)
		},
	}
}

// operations are the changes as one edge must see them, and its sampled reads.
func (k *Key) operations(edge int) (all []porcupine.Operation, reads int) {
	at := func(input any, from, to time.Duration) {
		all = append(all, porcupine.Operation{Input: input, Call: int64(from), Return: int64(to)})
	}
	for i, w := range k.writes {
		if i >= mostChanges {
			break
		}
		if w.outcome == Refused {
			continue
		}
		at(begins{i, w.state}, w.begun, w.begun)
		if when, ok := k.recorder.terms.effective(w, edge); ok {
			at(isOver{i, w.kind == Delete}, when, when)
		}
	}
	for _, r := range k.sample.reads {
		if r.Edge == edge {
			at(shows{r.State}, r.Sent, r.Answered)
			reads++
		}
	}
	return all, reads
}

// Linearization is porcupine's result for the sampled keys.
type Linearization struct {
	Keys  int `json:"keys"`
	Reads int `json:"reads"`
	// Illegal lists the keys, with the edge, whose reads no order explains; Undecided those that took too long.
	Illegal   []string `json:"illegal,omitempty"`
	Undecided []string `json:"undecided,omitempty"`
}

// Linearize has porcupine check the sampled keys, each key on each edge for at most limit. No change or read may be recorded meanwhile.
func (r *Recorder) Linearize(limit time.Duration) (l Linearization) {
	for _, k := range r.Keys() {
		if k.sample == nil {
			continue
		}
		l.Keys++
		for edge := range r.terms.StaleIfError {
			operations, reads := k.operations(edge)
			l.Reads += reads
			where := fmt.Sprintf("%s on edge %d", k.Name, edge)
			switch porcupine.CheckOperationsTimeout(k.model(), operations, limit) {
			case porcupine.Illegal:
				l.Illegal = append(l.Illegal, where)
			case porcupine.Unknown:
				l.Undecided = append(l.Undecided, where)
			}
		}
	}
	return l
}
