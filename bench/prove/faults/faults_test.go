package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/bench/prove/faults/history"
)

func TestResponsesOfEdgesAreStates(t *testing.T) {
	t.Parallel()
	s := &subject{Key: history.New(history.Terms{}).NewKey("link-1-1", false)}
	for _, c := range []struct {
		status   int
		location string
		expected history.State
		ok       bool
	}{
		{302, s.target(0), 0, true},
		{302, s.target(17), 17, true},
		{302, "https://example.com/link-1-10/1", history.Foreign, true},
		{302, "https://example.com/link-1-1/", history.Foreign, true},
		{302, "https://example.com/link-1-1/-1", history.Foreign, true},
		{302, s.target(17) + "?x=1", history.Foreign, true},
		{302, "", history.Foreign, true},
		{404, "", history.Gone, true},
		{410, "", history.Off, true},
		{503, "", 0, false},
		{500, "", 0, false},
		{200, "", 0, false},
	} {
		if got, ok := s.state(c.status, []byte(c.location)); got != c.expected || ok != c.ok {
			t.Errorf("%d %q: %s, %t, expected %s, %t", c.status, c.location, got, ok, c.expected, c.ok)
		}
	}
}

func TestChangesCountUnderTheFaultsTheyMet(t *testing.T) {
	t.Parallel()
	tally := newTally()
	tally.change(tally.now(), history.Complete, time.Second, true)
	before := tally.now()
	first, second := tally.fault("first"), tally.fault("second")
	tally.set([]*row{first, second})
	tally.read(302)
	tally.read(503)
	tally.read(unconnected)
	tally.read(unanswered)
	tally.read(500)
	tally.change(before, history.Pending, 2*time.Second, true)
	tally.change(tally.now(), history.Unknown, time.Second, true)
	tally.set(nil)
	tally.change([]*row{first}, history.ByHand, time.Second, false)

	var got []reportRow
	for _, row := range tally.rows() {
		got = append(got, row.report())
	}
	expected := []reportRow{
		{Fault: "all", Complete: 1, Pending: 1, ByHand: 1, Unknown: 1, P50: 2000, P90: 2000, P99: 2000, Longest: 2000, Reads: 1, Unavailable: 1, Unconnected: 1, Unanswered: 1, Failed: 1},
		{Fault: "between faults", Complete: 1, Pending: 1, ByHand: 1, P50: 2000, P90: 2000, P99: 2000, Longest: 2000},
		{Fault: "first", Pending: 1, ByHand: 1, Unknown: 1, P50: 2000, P90: 2000, P99: 2000, Longest: 2000, Reads: 1, Unavailable: 1, Unconnected: 1, Unanswered: 1, Failed: 1},
		{Fault: "second", Pending: 1, Unknown: 1, P50: 2000, P90: 2000, P99: 2000, Longest: 2000, Reads: 1, Unavailable: 1, Unconnected: 1, Unanswered: 1, Failed: 1},
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("-expected +got:\n%s", diff)
	}
	if n := tally.all.revocations.Load(); n != 2 {
		t.Errorf("%d revocations, expected the two that got a response", n)
	}
}

func TestBoardShowsTheCurrentSubjects(t *testing.T) {
	t.Parallel()
	recorder, b := history.New(history.Terms{}), newBoard(2)
	if len(b.some(nil, 3)) != 0 {
		t.Error("an empty board has a subject")
	}
	one, two := &subject{Key: recorder.NewKey("one", false)}, &subject{Key: recorder.NewKey("two", false)}
	b.put(one)
	b.put(two)
	b.remove(one)
	if got := b.some(nil, 3); len(got) != 3 || slices.Contains(got, one) || !one.Retired() || two.Retired() {
		t.Errorf("left on the board: %v", got)
	}
	if got := b.ever(); len(got) != 2 || !slices.Contains(got, one) {
		t.Errorf("subjects ever on the board: %v", got)
	}
	for range 2 * mostHot { // more than the channel holds: no caller waits
		b.heat(two)
	}
	for edge := range b.hot {
		if len(b.hot[edge]) != mostHot || <-b.hot[edge] != two {
			t.Errorf("edge %d: %d hot subjects", edge, len(b.hot[edge]))
		}
	}
}

func TestConcurrentFaultsShareNoResource(t *testing.T) {
	t.Parallel()
	rig := &rig{stale: []time.Duration{time.Second, time.Second, 0}}
	for _, list := range []*[]*member{&rig.edges, &rig.controls} {
		for range 3 {
			*list = append(*list, offline(t, names(rig.members())))
		}
	}
	rig.operator = offline(t, nil)
	random := rand.New(rand.NewPCG(1, 1))
	listed := slices.Collect(eachOnce(rig, random, nemeses()))
	var endlessly []wave
	for w := range endless(rig, random, nemeses()) {
		if endlessly = append(endlessly, w); len(endlessly) == 2000 {
			break
		}
	}
	for name, waves := range map[string][]wave{"each once": listed, "endless": endlessly} {
		pairs, drawn := 0, make(map[string]int)
		for _, w := range waves {
			var claims []string
			for _, c := range w.attacks {
				drawn[c.name]++
				claims = append(claims, c.attack.claims...)
			}
			slices.Sort(claims)
			if len(slices.Compact(slices.Clone(claims))) != len(claims) {
				t.Fatalf("%s: %v claim %v", name, w.attacks, claims)
			}
			if len(w.attacks) > 1 {
				pairs++
			}
		}
		if pairs < len(waves)/4 || pairs > 3*len(waves)/4 || len(drawn) != len(nemeses()) {
			t.Errorf("%s: %d pairs in %d waves, %d faults of %d", name, pairs, len(waves), len(drawn), len(nemeses()))
		}
		for fault, times := range drawn {
			if name == "each once" && times != 1 {
				t.Errorf("%s: %d times", fault, times)
			}
		}
	}
}

// offline is a member with links but no process.
func offline(t *testing.T, others []string) *member {
	t.Helper()
	m := &member{name: "member " + string(rune('a'+len(others)))}
	if err := m.link("127.0.0.1:1", "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.postgres.Close(); m.redis.Close() })
	return m
}

func TestCommandLineNamesFaultsAndRules(t *testing.T) {
	t.Parallel()
	all := nemeses()
	last := all[len(all)-1].name
	if got, err := named([]string{last, "Redis flushed"}); err != nil || len(got) != 2 || got[0].name != last || got[1].name != "Redis flushed" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := named(nil); err != nil || len(got) != len(all) {
		t.Errorf("%d faults of %d, %v", len(got), len(all), err)
	}
	if got, err := named([]string{"Redis"}); err == nil {
		t.Errorf("the name Redis selects %v", got)
	}
	names := make(map[string]bool)
	for _, n := range all {
		if names[n.name] || strings.Contains(n.name, ",") {
			t.Errorf("the command line cannot name %q", n.name)
		}
		names[n.name] = true
	}

	every, err := CatchCommand{}.chosen()
	if err != nil || len(every) < 9 {
		t.Fatalf("%d rules, %v", len(every), err)
	}
	if got, err := (CatchCommand{Rules: []string{every[3].Name, every[1].Name}}).chosen(); err != nil || len(got) != 2 || got[0].Name != every[3].Name {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := (CatchCommand{Rules: []string{"nothing"}}).chosen(); err == nil {
		t.Errorf("no name selects %v", got)
	}
}

func TestReportIsAnErrorWhenSomethingIsWrong(t *testing.T) {
	t.Parallel()
	if err := (&report{Linearization: history.Linearization{Keys: 3}}).wrong(); err != nil {
		t.Error(err)
	}
	for name, report := range map[string]report{
		"violation": {Violations: 1}, "loss": {Losses: 1}, "corruption": {Corruption: 1},
		"porcupine": {Linearization: history.Linearization{Illegal: []string{"link-1-1 on edge 0"}}},
	} {
		if err := report.wrong(); !errors.Is(err, errWrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// README.md promises this number of kinds of fault.
func TestReadmeHasTheNumberOfFaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if claim := fmt.Sprintf("%d kinds\nof fault", len(nemeses())); !strings.Contains(strings.ReplaceAll(string(text), "\n  ", "\n"), claim) {
		t.Errorf("README.md lacks %q", claim)
	}
}
