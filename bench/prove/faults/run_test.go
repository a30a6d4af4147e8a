package faults

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/bench/prove/faults/history"
	"deeplink/bench/prove/fleet"
	"deeplink/shared/testkit"
)

const (
	// shortSeed is fixed, so that a failure can be reproduced.
	shortSeed = 1
	// shortStale is S here. A run ends with a wait for S.
	shortStale = time.Second
)

// The short form of `prove faults`: every fault once, with real processes.
func TestNoFaultCausesAStaleResponse(t *testing.T) {
	testkit.Prove(t)
	bin, err := fleet.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	var log bytes.Buffer
	report, err := runFaults(t.Context(), bin, shortLoad, shortSeed, shortStale, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(log.String()))
	}
	var text strings.Builder
	report.markdown(&text)
	t.Log(text.String())
	if err := report.wrong(); err != nil {
		t.Error(err)
	}
	if len(report.Surprises) > 0 {
		t.Errorf("unexpected responses: %v", report.Surprises)
	}
	if report.Reads < 10_000 || report.Revocations < 200 || report.Linearization.Reads < 1000 {
		t.Errorf("%d reads, %d revocations, %d reads for porcupine: the run proves nothing", report.Reads, report.Revocations, report.Linearization.Reads)
	}
	if len(report.Faults) != 2+len(nemeses()) {
		t.Errorf("%d of %d faults were injected", len(report.Faults)-2, len(nemeses()))
	}
}

func tail(log string) string { return log[max(0, len(log)-5000):] }

// A bench that detects nothing would pass every run. Here the edges are right and the history is wrong: it claims a response for changes
// that had no barrier, and records a change that was never made.
func TestCheckerDetectsWrongResponses(t *testing.T) {
	testkit.Prove(t)
	bin, err := fleet.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	var log bytes.Buffer
	rig, err := openRig(t.Context(), bin, shortStale, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(log.String()))
	}
	defer func() {
		if err := rig.close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	r := newRun(rig, shortLoad, shortSeed)
	reading, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	r.startReaders(reading, &readers)
	defer readers.Wait()
	defer stop()

	w := &handWriter{writer: writer{run: r, random: r.random(1), name: "hand"}}
	w.caller = r.newCaller(t.Context())
	w.create(t.Context())
	if w.id == "" {
		t.Fatal("no link was created")
	}
	refusedChanges(t, r)
	if found := r.recorder.Findings(); len(found) > 0 {
		t.Fatalf("a correct response counts as wrong: %+v", found)
	}
	for range 20 {
		to := w.next()
		w.change("edit by hand", history.Edit, to, func() history.Outcome {
			r.byHand(t.Context(), 0, `update links set fallback_url = $2 where id = $1`)(w.id, w.target(to))
			return history.Complete
		})
		if fleet.Pause(t.Context(), 200*time.Millisecond); r.recorder.Count(history.Violation) > 0 {
			break
		}
	}
	if r.recorder.Count(history.Violation) == 0 {
		t.Errorf("edges served the state before changes that count as complete, and none of %d reads was detected", r.recorder.Reads())
	}
	w.change("edit", history.Edit, w.next(), func() history.Outcome { return history.Complete })
	if err := r.checkDatabase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.recorder.Count(history.Loss); n != 1 {
		t.Errorf("%d losses, expected one, the edit that was never made", n)
	}
}

// The same with a build that is wrong: it takes the stamp of an entry after reading its row.
func TestCheckerDetectsABrokenRule(t *testing.T) {
	testkit.Prove(t)
	command := CatchCommand{Rules: []string{"stamp-after-load"}, Tries: 3, Seed: shortSeed, StaleIfError: shortStale}
	rules, err := command.chosen()
	if err != nil {
		t.Fatal(err)
	}
	l := shortLoad
	l.untilFound = true
	var log bytes.Buffer
	caught, err := command.catchOne(t.Context(), rules[0], l, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(log.String()))
	}
	if t.Log(caught); caught.found == nil || caught.found.Verdict != history.Violation {
		t.Errorf("found: %+v", caught.found)
	}
}

// refusedChanges creates a link, requests an edit while no control runs, and deactivates and reactivates the link afterwards. The target
// must be the original one: the bench once expected the edit, and reported the edges as wrong.
func refusedChanges(t *testing.T, r *run) {
	t.Helper()
	w := &linkWriter{writer: writer{run: r, random: r.random(2), name: "refused"}, patient: true}
	w.caller = r.newCaller(t.Context())
	w.create(t.Context())
	for _, m := range r.rig.controls {
		if err := m.kill(); err != nil {
			t.Fatal(err)
		}
	}
	// If a connection turns out closed only after a request was sent on it, the outcome of that request is unknown.
	fleet.Pause(t.Context(), 300*time.Millisecond)
	w.edit(t.Context())
	for _, m := range r.rig.controls {
		if err := m.start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.deactivate(t.Context())
	w.reactivate(t.Context())
	fleet.Pause(t.Context(), 300*time.Millisecond)
	if w.last != 1 || w.Unsure() || !w.active {
		t.Fatalf("the edit was not refused, or the link is not active: %+v", w)
	}
}
