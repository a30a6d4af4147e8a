package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict says what is wrong with a read.
type Verdict string

const (
	// Violation is a state that had been replaced for good.
	Violation Verdict = "violation"
	// Corruption is a state that no writer requested.
	Corruption Verdict = "corruption"
	// Loss is an acknowledged change that is not in the database.
	Loss Verdict = "loss"
)

// Finding is a violation, a corruption or a loss, with its story.
type Finding struct {
	Verdict Verdict       `json:"verdict"`
	Key     string        `json:"key"`
	At      time.Duration `json:"at"`
	Story   string        `json:"story"`
}

// mostFindings bounds the findings that are kept; the rest are only counted.
const mostFindings = 50

// inDatabase takes the place of the edge's number in a read of the database itself.
const inDatabase = -1

// Judge checks one response of an edge immediately. It returns "" when nothing is wrong.
func (k *Key) Judge(r Read) Verdict {
	k.recorder.reads.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sample != nil {
		k.sample.add(len(k.writes), r)
	}
	if k.allowed(r) {
		return ""
	}
	verdict := Corruption
	if k.written(r.State, r.Answered) {
		verdict = Violation
	}
	what := fmt.Sprintf("edge %d got a request at %s and at %s responded with %s", r.Edge, seconds(r.Sent), seconds(r.Answered), r.State)
	k.found(verdict, r, what)
	return verdict
}

// Check checks the state of the key in the database, once no change is requested any more.
func (k *Key) Check(state State) Verdict {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.recorder.Now()
	r := Read{Edge: inDatabase, Sent: now, Answered: now, State: state}
	if k.allowed(r) {
		return ""
	}
	verdict := Corruption
	if k.written(state, now) {
		verdict = Loss
	}
	k.found(verdict, r, fmt.Sprintf("the database says at %s that it is %s", seconds(now), state))
	return verdict
}

// Lost records that control denies a link whose creation it had acknowledged.
func (k *Key) Lost(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.recorder.Now()
	k.found(Loss, Read{Edge: inDatabase, Sent: now, Answered: now}, what)
}

// allowed walks back from the newest change.
func (k *Key) allowed(r Read) bool {
	replaced := false
	for _, w := range slices.Backward(k.writes) {
		if w.outcome == Refused || w.begun > r.Answered {
			continue
		}
		if w.state == r.State && (!replaced || w.outcome == Unknown) {
			return true
		}
		if !k.over(w, r) {
			continue
		}
		if w.kind == Delete || !k.unknowns {
			return false
		}
		replaced = true
	}
	return !replaced && r.State == Gone
}

// over reports whether, when r was sent, the change had replaced every earlier state.
func (k *Key) over(w write, r Read) bool {
	if r.Edge == inDatabase {
		return w.ended < r.Sent && (w.outcome == Complete || w.outcome == Pending || w.outcome == ByHand)
	}
	at, ok := k.recorder.terms.effective(w, r.Edge)
	return ok && at < r.Sent
}

// written reports whether the state had been requested by then.
func (k *Key) written(state State, by time.Duration) bool {
	return state == Gone || slices.ContainsFunc(k.writes, func(w write) bool { return w.state == state && w.begun <= by })
}

func (k *Key) found(verdict Verdict, r Read, what string) {
	k.recorder.find(Finding{Verdict: verdict, Key: k.Name, At: r.Answered}, func() string {
		return what + "\n" + k.story(r)
	})
}

// find counts a finding and, if it is one of the first, keeps it with its story.
func (r *Recorder) find(f Finding, story func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[f.Verdict]++
	if len(r.found) == mostFindings {
		return
	}
	f.Story = story() + r.notesFrom(f.At-told, f.At)
	r.found = append(r.found, f)
	if len(r.found) == 1 {
		close(r.onFound)
	}
}

// Findings returns the first findings so far, in the order in which they were found.
func (r *Recorder) Findings() []Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}

// Count returns the number of findings of a kind so far.
func (r *Recorder) Count(v Verdict) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[v]
}

// Found is closed when the first finding is made.
func (r *Recorder) Found() <-chan struct{} { return r.onFound }

// told is how far back a story goes, and mostTold how many changes of the key it lists.
const (
	told     = 15 * time.Second
	mostTold = 20
)

// story lists the last changes of the key, and the last one that requested the state that was read.
func (k *Key) story(r Read) string {
	var b strings.Builder
	first := max(0, len(k.writes)-mostTold)
	asked := len(k.writes) - 1
	for ; asked >= 0 && (k.writes[asked].state != r.State || k.writes[asked].begun > r.Answered); asked-- {
	}
	for i, w := range k.writes {
		if i < first && i != asked {
			continue
		}
		fmt.Fprintf(&b, "  %10s  %-12s to %-10s", seconds(w.begun), w.what, w.state)
		if w.outcome == Open {
			fmt.Fprintf(&b, " %s\n", Open)
			continue
		}
		fmt.Fprintf(&b, " response at %s: %s\n", seconds(w.ended), w.outcome)
	}
	return b.String()
}

// note is an event that concerns the whole system.
type note struct {
	at   time.Duration
	text string
}

// Note records an event for the stories of that time.
func (r *Recorder) Note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, note{at: r.Now(), text: text})
}

func (r *Recorder) notesFrom(from, to time.Duration) string {
	var b strings.Builder
	for _, n := range r.notes {
		if n.at >= from && n.at <= to {
			fmt.Fprintf(&b, "  %10s  * %s\n", seconds(n.at), n.text)
		}
	}
	return b.String()
}

// String returns the state as stories show it.
func (s State) String() string {
	switch s {
	case Gone:
		return "gone"
	case Off:
		return "off"
	case Foreign:
		return "foreign"
	}
	return fmt.Sprintf("target %d", int32(s))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.4fs", d.Seconds()) }
