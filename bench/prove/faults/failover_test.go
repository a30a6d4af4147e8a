package faults

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"deeplink/bench/prove/fleet"
	"deeplink/shared/testkit"
)

// The short form of `prove faults failover`: the primary of Postgres fails once, with real servers.
func TestFailoverLosesNoChangeAndCausesNoStaleResponse(t *testing.T) {
	testkit.Prove(t)
	bin, err := fleet.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	var log bytes.Buffer
	command := FailoverCommand{Seed: shortSeed, Rounds: 1, Only: "postgres", StaleIfError: shortStale}
	report, err := command.run(t.Context(), bin, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(log.String()))
	}
	var text strings.Builder
	report.markdown(&text)
	t.Log(text.String())
	if err := report.wrong(); err != nil {
		t.Error(err)
	}
	if report.Reads < leastReads || report.Revocations < leastRevocations || len(report.Faults) != 2+1 {
		t.Errorf("%d reads, %d revocations, %d faults: the run proves nothing", report.Reads, report.Revocations, len(report.Faults)-2)
	}
}
