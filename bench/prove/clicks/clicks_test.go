package clicks

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/proof"
	"deeplink/bench/prove/testfleet"
	"deeplink/shared/testkit"
)

// The short form of `prove clicks kill`, with real processes.
func TestEveryAnsweredClickIsCountedOnceWhileProcessesAreKilled(t *testing.T) {
	testkit.Prove(t)
	command := Command{Duration: 20 * time.Second, Kill: 3 * time.Second, Clients: 16, Rate: 2000, Links: 5000, Edges: 3, Controls: 2}
	f := testfleet.Start(t, command.Controls, command.Edges)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	findings, err := command.prove(ctx, f, &proof.Output{Writer: os.Stdout, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	figures.Print(os.Stdout, findings)
	for _, finding := range findings {
		if !finding.Kept && !finding.Timed {
			t.Errorf("%s: %s, expected %s", finding.What, finding.Figure, finding.Bound)
		}
	}
}

func TestComparisonFindsMissingAndDoubleClicks(t *testing.T) {
	for _, test := range []struct {
		name             string
		answered, unsure int64
		counted          map[key]int64
		kept             bool
	}{
		{"exact", 3, 0, map[key]int64{{"id", "human"}: 3}, true},
		{"one is missing", 3, 0, map[key]int64{{"id", "human"}: 2}, false},
		{"one is double", 3, 0, map[key]int64{{"id", "human"}: 4}, false},
		{"in another class", 3, 0, map[key]int64{{"id", "human"}: 3, {"id", "bot"}: 1}, false},
		{"too many even with an unsure one", 3, 1, map[key]int64{{"id", "human"}: 5}, false},
	} {
		l := newLedger(map[string]string{"/a/b": "id"})
		_, seen := l.take("human", rand.New(rand.NewPCG(1, 1)))
		seen.answered, seen.unsure = test.answered, test.unsure
		if err := figures.Unkept(l.compare(test.counted)); (err == nil) != test.kept {
			t.Errorf("%s: %v, expected kept %v", test.name, err, test.kept)
		}
	}
}

func TestReadingsFindChangesBeforeAsOf(t *testing.T) {
	first := figure{clicks: 3, late: 1, byClass: map[string]int64{"human": 3}}
	for _, test := range []struct {
		name string
		now  figure
		kept bool
	}{
		{"equal", figure{3, 1, map[string]int64{"human": 3}}, true},
		{"one click more", figure{4, 1, map[string]int64{"human": 4}}, false},
		{"one late click more", figure{4, 2, map[string]int64{"human": 4}}, true},
		{"another class", figure{3, 1, map[string]int64{"human": 2, "bot": 1}}, false},
	} {
		r := newReadings(nil, nil)
		r.note(reading{}, first)
		r.note(reading{}, test.now)
		if err := figures.Unkept(r.findings()); (err == nil) != test.kept {
			t.Errorf("%s: %v, expected kept %v", test.name, err, test.kept)
		}
	}
}

func TestFollowerFindsClicksThatItReceivedTwiceOrNotAtAll(t *testing.T) {
	for _, test := range []struct {
		name    string
		rows    []string // ids
		figures int64
		kept    bool
	}{
		{"each once", []string{"a", "b"}, 2, true},
		{"one is missing", []string{"a"}, 2, false},
		{"one is twice", []string{"a", "b", "a"}, 2, false},
		{"one too many", []string{"a", "b"}, 1, false},
		{"none in the figures", []string{"a"}, 0, false},
	} {
		f := newFollower(&reader{})
		for _, id := range test.rows {
			if !f.note(rawClick{ID: id, LinkID: "link", Class: "human"}) {
				f.twice++
			}
		}
		counted := map[key]int64{{"other", "human"}: 0}
		if test.figures > 0 {
			counted[key{"link", "human"}] = test.figures
		}
		if err := figures.Unkept(f.findings(counted)); (err == nil) != test.kept {
			t.Errorf("%s: %v, expected kept %v", test.name, err, test.kept)
		}
	}
}
