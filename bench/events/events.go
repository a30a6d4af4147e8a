// Package events is `bench events`: it reports as phones do (phone.go), under kills (kill.go; ledger.go has what the phones were told) and as
// many as there is room for (fill.go; keyring.go has the keys, meter.go and expense.go measure), and reads back what is stored (archive.go).
package events

import (
	"os"
	"time"

	"deeplink/bench/result"
)

// Command measures what phones report (decisions.md 7), with controls as black boxes.
type Command struct {
	Kill killCommand `cmd:"" help:"Kill controls under phones that report, and look for what they were told is stored."`
	Fill fillCommand `cmd:"" help:"Store many events as fast as they are taken, and export them."`
}

// file is the result of one contender in one scenario.
func file(began time.Time, scenario string, rounds []result.Round) *result.File {
	return &result.File{
		Command: os.Args, Began: began, Machine: result.ThisMachine(),
		Series: []result.Series{{Contender: "control", Scenario: scenario, Rounds: rounds}},
	}
}
