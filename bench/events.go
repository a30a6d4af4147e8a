package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"deeplink/bench/result"
)

// eventsCommand measures what phones report (decisions.md 7), with controls as black boxes.
type eventsCommand struct {
	Kill eventKillCommand `cmd:"" help:"Kill controls under phones that report, and look for what they were told is stored."`
	Fill eventFillCommand `cmd:"" help:"Store many events as fast as they are taken, and export them."`
}

// printFindings writes figures beside their bounds.
func printFindings(out io.Writer, findings []finding) {
	fmt.Fprint(out, "\n| what | figure | bound | kept |\n|---|--:|--:|---|\n")
	for _, f := range findings {
		kept := "yes"
		if !f.kept {
			kept = "**no**"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", f.what, f.figure, f.bound, kept)
	}
}

// unkept is an error when a bound was not kept.
func unkept(findings []finding) error {
	n := 0
	for _, f := range findings {
		if !f.kept {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%w: %d", errBound, n)
	}
	return nil
}

// file is the result of one contender in one scenario.
func file(began time.Time, scenario string, rounds []result.Round) *result.File {
	return &result.File{
		Command: os.Args, Began: began, Machine: result.ThisMachine(),
		Series: []result.Series{{Contender: "control", Scenario: scenario, Rounds: rounds}},
	}
}
