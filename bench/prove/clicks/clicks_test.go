package clicks

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/proof"
	"deeplink/bench/prove/testfleet"
	"deeplink/shared/testkit"
)

// The short form of `prove clicks`, with real processes.
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
		_, seen := l.take("human")
		seen.answered, seen.unsure = test.answered, test.unsure
		if err := figures.Unkept(l.compare(test.counted)); (err == nil) != test.kept {
			t.Errorf("%s: %v, expected kept %v", test.name, err, test.kept)
		}
	}
}
