package compare

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"deeplink/bench/result"
)

// resultsAt returns rounds that began at the given seconds, with 100 responses per second each, or 80 instead.
func resultsAt(contender string, answers int64, seconds ...int64) *result.File {
	s := result.Series{Contender: contender, Scenario: "redirect"}
	for _, second := range seconds {
		s.Rounds = append(s.Rounds, result.Round{Began: time.Unix(second, 0), Requests: answers, Answers: answers, Seconds: 1})
	}
	return &result.File{Series: []result.Series{s}}
}

func TestCompareWarnsOfMisleadingRatios(t *testing.T) {
	t.Parallel()
	const turns, one, machine = "did not take turns", "one round", "the machines differ"
	elsewhere := resultsAt("a", 80, 2, 4)
	elsewhere.Machine.CPU = "another"
	for _, c := range []struct {
		name string
		b    *result.File
		says []string
	}{
		{"in turn", resultsAt("a", 80, 2, 4), nil},
		{"in turn, under another name", resultsAt("b", 80, 2, 4), nil},
		{"one after the other", resultsAt("a", 80, 5, 6), []string{turns}},
		{"at unknown times", resultsAt("a", 80, time.Time{}.Unix(), time.Time{}.Unix()), []string{turns}},
		{"one round", resultsAt("a", 80, 2), []string{turns, one, "2 rounds and 1"}},
		{"elsewhere", elsewhere, []string{machine}},
	} {
		var out bytes.Buffer
		if err := Results(&out, resultsAt("a", 100, 1, 3), c.b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "0.800") {
			t.Errorf("%s: 80 to 100 responses per second:\n%s", c.name, out.String())
		}
		for _, warning := range []string{turns, one, machine, "2 rounds and 1"} {
			if strings.Contains(out.String(), warning) != slices.Contains(c.says, warning) {
				t.Errorf("%s: %q:\n%s", c.name, warning, out.String())
			}
		}
	}
	other := resultsAt("a", 80, 2)
	other.Series[0].Scenario = "zipf"
	if err := Results(new(bytes.Buffer), resultsAt("a", 100, 1), other); err == nil {
		t.Error("no error without a common scenario")
	}
}
