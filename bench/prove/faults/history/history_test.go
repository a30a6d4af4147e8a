package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Edge 0 may continue for three seconds while it is cut off, edge 1 not at all.
var terms = Terms{Lease: 2 * time.Second, StaleIfError: []time.Duration{3 * time.Second, 0}}

func s(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// done is a change that began at a time, in seconds, and took half a second.
func done(at float64, what string, kind Kind, state State, outcome Outcome) write {
	return write{what: what, kind: kind, state: state, begun: s(at), ended: s(at + 0.5), outcome: outcome}
}

func open(at float64, what string, kind Kind, state State) write {
	return write{what: what, kind: kind, state: state, begun: s(at), outcome: Open}
}

func made(writes ...write) *Key {
	k := New(terms).NewKey("key", true)
	k.writes = writes
	k.unknowns = slices.ContainsFunc(writes, func(w write) bool { return w.outcome == Unknown })
	return k
}

// created is a link that shows target 0 since 1.5 s.
var created = done(1, "create", Create, 0, Complete)

func TestEachReadGetsItsVerdict(t *testing.T) {
	t.Parallel()
	edited := func(outcome Outcome) []write { return []write{created, done(10, "edit", Edit, 1, outcome)} }
	for name, c := range map[string]struct {
		writes         []write
		edge           int
		sent, answered float64
		state          State
		expected       Verdict
	}{
		"no change yet":                                            {nil, 0, 0.1, 0.2, Gone, ""},
		"a target before the create":                               {nil, 0, 0.1, 0.2, 0, Corruption},
		"the state before an open change":                          {[]write{created, open(10, "edit", Edit, 1)}, 0, 20, 20.1, 0, ""},
		"the state of an open change":                              {[]write{created, open(10, "edit", Edit, 1)}, 0, 20, 20.1, 1, ""},
		"the new state before its request":                         {edited(Complete), 0, 9, 9.1, 1, Corruption},
		"the new state, received as its request starts":            {edited(Complete), 0, 9, 10, 1, ""},
		"the old state, sent before the response":                  {edited(Complete), 0, 10.4, 11, 0, ""},
		"the old state, sent at the response":                      {edited(Complete), 0, 10.5, 11, 0, ""},
		"the old state, sent after the response":                   {edited(Complete), 0, 10.51, 11, 0, Violation},
		"the new state, sent after the response":                   {edited(Complete), 0, 10.51, 11, 1, ""},
		"gone after the response to the create":                    {edited(Complete), 0, 2, 2.1, Gone, Violation},
		"another key's target":                                     {edited(Complete), 0, 20, 20.1, Foreign, Corruption},
		"off though never deactivated":                             {edited(Complete), 0, 20, 20.1, Off, Corruption},
		"the old state while pending":                              {edited(Pending), 0, 13.4, 13.5, 0, ""},
		"the old state, pending for too long":                      {edited(Pending), 0, 13.51, 13.6, 0, Violation},
		"the old state while pending, at an edge with S = 0":       {edited(Pending), 1, 10.6, 10.7, 0, Violation},
		"gone while a create is pending":                           {[]write{done(1, "create", Create, 0, Pending)}, 0, 6.4, 6.5, Gone, ""},
		"gone, pending for too long":                               {[]write{done(1, "create", Create, 0, Pending)}, 0, 6.6, 6.7, Gone, Violation},
		"the old state soon after a change by hand":                {edited(ByHand), 0, 15.5, 15.6, 0, ""},
		"the old state long after a change by hand":                {edited(ByHand), 0, 15.6, 15.7, 0, Violation},
		"the old state after a refused change":                     {edited(Refused), 0, 20, 20.1, 0, ""},
		"the state of a refused change":                            {edited(Refused), 0, 20, 20.1, 1, Violation},
		"the old state after an unknown change":                    {edited(Unknown), 0, 100, 100.1, 0, ""},
		"the state of an unknown change":                           {edited(Unknown), 0, 100, 100.1, 1, ""},
		"the state of an unknown change, before its request":       {edited(Unknown), 0, 9, 9.1, 1, Corruption},
		"the state of an unknown change that took effect late":     {append(edited(Unknown), done(20, "edit", Edit, 2, Complete)), 0, 30, 30.1, 1, ""},
		"the state before both":                                    {append(edited(Unknown), done(20, "edit", Edit, 2, Complete)), 0, 30, 30.1, 0, Violation},
		"the state of an unknown change after a delete":            {append(edited(Unknown), done(20, "delete", Delete, Gone, Complete)), 0, 30, 30.1, 1, Violation},
		"the state of an unknown change while a delete is pending": {append(edited(Unknown), done(20, "delete", Delete, Gone, Pending)), 0, 23, 23.1, 1, ""},
		"the link after an unknown delete":                         {[]write{created, done(10, "delete", Delete, Gone, Unknown)}, 0, 30, 30.1, 0, ""},
		"no link after an unknown delete":                          {[]write{created, done(10, "delete", Delete, Gone, Unknown)}, 0, 30, 30.1, Gone, ""},
		"the link after a delete":                                  {[]write{created, done(10, "delete", Delete, Gone, Complete)}, 0, 10.6, 10.7, 0, Violation},
		"the former target after the code was reused":              {[]write{created, done(10, "delete", Delete, Gone, Complete), done(20, "create", Create, 1, Complete)}, 0, 30, 30.1, 0, Violation},
		"gone while a new link is created":                         {[]write{created, done(10, "delete", Delete, Gone, Complete), open(20, "create", Create, 1)}, 0, 30, 30.1, Gone, ""},
		"on, off and on again":                                     {[]write{created, done(10, "suspend", Edit, Off, Complete), done(20, "resume", Edit, 0, Complete)}, 0, 30, 30.1, 0, ""},
		"off after it is on again":                                 {[]write{created, done(10, "suspend", Edit, Off, Complete), done(20, "resume", Edit, 0, Complete)}, 0, 30, 30.1, Off, Violation},
		"on while it is off":                                       {[]write{created, done(10, "suspend", Edit, Off, Complete), done(20, "resume", Edit, 0, Complete)}, 0, 15, 15.1, 0, Violation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := made(c.writes...)
			got := k.Judge(Read{Edge: c.edge, Sent: s(c.sent), Answered: s(c.answered), State: c.state})
			if got != c.expected {
				t.Errorf("%s on edge %d, sent %vs, received %vs: %q, expected %q, after\n%s", c.state, c.edge, c.sent, c.answered, got, c.expected, k.story(Read{}))
			}
			if n := len(k.recorder.Findings()); (n == 1) != (c.expected != "") {
				t.Errorf("%d findings were kept", n)
			}
			// Porcupine must agree.
			if illegal := k.recorder.Linearize(time.Minute).Illegal; (len(illegal) == 1) != (c.expected != "") {
				t.Errorf("porcupine finds illegal: %v", illegal)
			}
		})
	}
}

func TestDatabaseIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		writes   []write
		state    State
		expected Verdict
	}{
		"the acknowledged state":           {[]write{created}, 0, ""},
		"a missing create":                 {[]write{created}, Gone, Loss},
		"a missing edit":                   {[]write{created, done(2, "edit", Edit, 1, Complete)}, 0, Loss},
		"a missing pending edit":           {[]write{created, done(2, "edit", Edit, 1, Pending)}, 0, Loss},
		"a missing edit by hand":           {[]write{created, done(2, "edit", Edit, 1, ByHand)}, 0, Loss},
		"a missing unknown edit":           {[]write{created, done(2, "edit", Edit, 1, Unknown)}, 0, ""},
		"an unknown edit that took effect": {[]write{created, done(2, "edit", Edit, 1, Unknown)}, 1, ""},
		"a deleted link that came back":    {[]write{created, done(2, "delete", Delete, Gone, Complete)}, 0, Loss},
		"a value never written":            {[]write{created}, 7, Corruption},
	} {
		k := made(c.writes...)
		k.recorder.began = time.Now().Add(-time.Minute)
		if got := k.Check(c.state); got != c.expected {
			t.Errorf("%s: %q, expected %q", name, got, c.expected)
		}
		if k.Possible(c.state) != (c.expected == "") {
			t.Errorf("%s: Possible and Check disagree", name)
		}
	}
}

func TestChangesAreRecordedAsTheyHappen(t *testing.T) {
	t.Parallel()
	r := New(terms)
	k := r.NewKey("key", false)
	read := func(state State) Verdict {
		now := r.Now()
		return k.Judge(Read{Sent: now, Answered: now, State: state})
	}
	steps := []struct {
		do          func()
		right       []State
		wrong       []State
		unsure      bool
		description string
	}{
		{func() {}, []State{Gone}, []State{0}, false, "at first"},
		{func() { k.Begin("create", Create, 0) }, []State{Gone, 0}, []State{1}, false, "during the create"},
		{func() { k.End(Complete) }, []State{0}, []State{Gone}, false, "after the create"},
		{func() { k.Begin("edit", Edit, 1); k.End(Unknown) }, []State{0, 1}, []State{Gone}, true, "after an unknown edit"},
		{func() { k.Begin("edit", Edit, 2); k.End(Complete) }, []State{1, 2}, []State{0}, true, "after an edit while the unknown one may still take effect"},
		{func() { k.Begin("delete", Delete, Gone); k.End(Complete) }, []State{Gone}, []State{0, 1, 2}, false, "after the delete"},
	}
	expected := 0
	for _, step := range steps {
		step.do()
		time.Sleep(time.Microsecond) // a read sent at the very time of a response is not after it
		for _, state := range step.right {
			if v := read(state); v != "" {
				t.Errorf("%s: %s is a %s", step.description, state, v)
			}
		}
		for _, state := range step.wrong {
			expected++
			if v := read(state); v == "" {
				t.Errorf("%s: %s is allowed", step.description, state)
			}
		}
		if k.Unsure() != step.unsure {
			t.Errorf("%s: unsure is %t", step.description, k.Unsure())
		}
	}
	if n := len(r.Findings()); n != expected {
		t.Errorf("%d findings, expected %d", n, expected)
	}
	if r.Reads() != 17 {
		t.Errorf("%d reads were checked, expected 17", r.Reads())
	}
}

func TestStoryListsTheEventsBeforeAFinding(t *testing.T) {
	t.Parallel()
	k := made(created, done(10, "edit", Edit, 1, Complete))
	k.recorder.notes = []note{{s(1), "long ago"}, {s(9.9), "edge 0 is stopped"}, {s(30), "later"}}
	select {
	case <-k.recorder.Found():
		t.Error("a finding before any read")
	default:
	}
	k.Judge(Read{Edge: 0, Sent: s(20), Answered: s(20.1), State: 0})
	select {
	case <-k.recorder.Found():
	default:
		t.Error("Found is not closed")
	}
	k.Lost("control denies it")
	found := k.recorder.Findings()
	if len(found) != 2 || found[0].Verdict != Violation || found[0].Key != "key" || found[0].At != s(20.1) || found[1].Verdict != Loss {
		t.Fatalf("%+v", found)
	}
	for _, part := range []string{
		"edge 0 got a request at 20.0000s and at 20.1000s responded with target 0",
		"create       to target 0   response at 1.5000s: complete",
		"edit         to target 1   response at 10.5000s: complete",
		"* edge 0 is stopped",
	} {
		if !strings.Contains(found[0].Story, part) {
			t.Errorf("the story does not have %q:\n%s", part, found[0].Story)
		}
	}
	if strings.Contains(found[0].Story, "long ago") || strings.Contains(found[0].Story, "later") {
		t.Errorf("the story tells of other times:\n%s", found[0].Story)
	}
}

func TestSampleIsBoundedPerChange(t *testing.T) {
	t.Parallel()
	k := New(terms).NewKey("key", true)
	for range 3 {
		k.Begin("edit", Edit, 0)
		k.End(Complete)
		for range 10 * readsPerChange {
			now := k.recorder.Now()
			k.Judge(Read{Sent: now, Answered: now, State: 0})
		}
	}
	l := k.recorder.Linearize(time.Minute)
	if l.Keys != 1 || l.Reads != 3*readsPerChange || l.Illegal != nil || l.Undecided != nil {
		t.Errorf("%+v, expected %d reads of one key", l, 3*readsPerChange)
	}
}

// Both algorithms implement the same rules; where they differ, one of them is wrong.
func TestPorcupineAgreesWithTheChecker(t *testing.T) {
	t.Parallel()
	wrong := 0
	rapid.Check(t, func(t *rapid.T) {
		k := made()
		at := 0
		for range rapid.IntRange(0, 6).Draw(t, "changes") {
			begun := at + rapid.IntRange(1, 4).Draw(t, "pause")
			at = begun + rapid.IntRange(0, 4).Draw(t, "took")
			k.writes = append(k.writes, write{
				kind:    rapid.SampledFrom([]Kind{Edit, Edit, Create, Delete}).Draw(t, "kind"),
				state:   rapid.SampledFrom([]State{Gone, Off, 0, 1, 2}).Draw(t, "state"),
				outcome: rapid.SampledFrom([]Outcome{Complete, Complete, Pending, ByHand, Unknown, Refused}).Draw(t, "outcome"),
				begun:   time.Duration(begun) * time.Second, ended: time.Duration(at) * time.Second,
			})
			k.unknowns = k.unknowns || k.writes[len(k.writes)-1].outcome == Unknown
		}
		sent := rapid.IntRange(0, at+8).Draw(t, "sent")
		r := Read{
			Edge: rapid.IntRange(0, 1).Draw(t, "edge"), State: rapid.SampledFrom([]State{Gone, Off, 0, 1, 2}).Draw(t, "shown"),
			// Half a second keeps reads off the times of changes, where the two may differ: both call such a read concurrent.
			Sent: time.Duration(sent)*time.Second + time.Second/2, Answered: time.Duration(sent+rapid.IntRange(0, 3).Draw(t, "latency"))*time.Second + time.Second/2,
		}
		verdict := k.Judge(r)
		if verdict != "" {
			wrong++
		}
		if illegal := k.recorder.Linearize(time.Minute).Illegal; (len(illegal) > 0) != (verdict != "") {
			t.Fatalf("judge says %q, porcupine %v of %+v after\n%s", verdict, illegal, r, k.story(r))
		}
	})
	if wrong == 0 {
		t.Error("no read was wrong: the run proves nothing")
	}
}
