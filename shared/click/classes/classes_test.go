package classes_test

import (
	"strings"
	"testing"

	"deeplink/shared/click"
	"deeplink/shared/click/classes"
)

const requests = "../testdata/requests.ndjson"

func read(t *testing.T) []classes.Request {
	t.Helper()
	all, err := classes.Read(requests)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestClassesReachTheirBars is the measurement of `go run ./bench/prove clicks classes`. Of the requests that are held out it does not say
// which are wrong: rules are written by the others.
func TestClassesReachTheirBars(t *testing.T) {
	training, heldOut := classes.Split(read(t))
	for name, part := range map[string][]classes.Request{"training": training, "held out": heldOut} {
		scores, misses := classes.Measure(part)
		var table strings.Builder
		if !classes.Print(&table, scores) {
			t.Errorf("%s: a class is below its bar\n%s", name, table.String())
		}
		if name != "training" {
			continue
		}
		for _, m := range misses {
			t.Logf("%s is %s, but got %s (%s)", m.ID, m.Class, m.Got.Class(), m.Got)
		}
	}
}

func TestCorpusHasEnoughRequestsOfEachClassWithSources(t *testing.T) {
	least := map[string]int{"human": 40, "preview": 40, "bot": 40, "agent": 40, "prefetch": 20, "head": 20, "scanner": 20}
	all := read(t)
	count := make(map[string]int)
	for _, r := range all {
		if r.Outside != "" {
			continue
		}
		count[r.Class]++
		if !strings.HasPrefix(r.Source, "https://") && !strings.HasPrefix(r.Source, "captured ") {
			t.Errorf("%s: source %q is neither an address nor a capture of ours", r.ID, r.Source)
		}
	}
	for class, n := range least {
		if count[class] < n {
			t.Errorf("%d requests are %s, expected at least %d", count[class], class, n)
		}
	}
	if len(all) < 500 {
		t.Errorf("%d requests, expected at least 500", len(all))
	}
	_, heldOut := classes.Split(all)
	if n := len(heldOut); n < len(all)*3/10 || n > len(all)*4/10 {
		t.Errorf("%d of %d requests are held out, expected a third", n, len(all))
	}
	for _, name := range click.Classes() {
		if _, known := least[name]; !known && name != "internal" {
			t.Errorf("no request is of class %s", name)
		}
	}
}
