package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// faultsCommand attacks a fleet with every fault there is, and judges every answer.
type faultsCommand struct {
	Seed         uint64        `help:"Seed of everything that is random. 0: a new one."`
	Duration     time.Duration `help:"How long to go on at least." default:"5m"`
	Revocations  int64         `help:"How many revocations to make at least."`
	Reads        int64         `help:"How many reads to judge at least."`
	Short        bool          `help:"Make every fault once, in about a minute, in place of the above."`
	Only         []string      `help:"Names of the faults to make, as the report has them. Default: all."`
	StaleIfError time.Duration `help:"EDGE_STALE_IF_ERROR of all edges but the last, which has 0." default:"3s"`
	Links        int           `help:"Writers of links." default:"8"`
	Readers      int           `help:"Connections that read all the time, to each edge." default:"4"`
	ReadEvery    time.Duration `help:"Mean pause between the turns of one connection." default:"4ms"`
	Batch        int           `help:"Reads in a turn." default:"8"`
	Catch        []string      `help:"Names of package broken, or all. Each is built with its rule broken and given short runs until that is noticed."`
	Tries        int           `help:"How many short runs each of them is given." default:"20"`
	JSON         string        `name:"json" help:"File for the report as JSON." type:"path"`
	Log          string        `help:"File for what the programs write." type:"path"`
}

// reserved are the connections to each edge that wait for what is hot.
const reserved = 4

// shortLoad is a load that a busy machine with two cores bears beside its other work.
var shortLoad = workload{
	links: 8, readers: 4, reserved: reserved, readEvery: 5 * time.Millisecond, batch: 4, changeEvery: 60 * time.Millisecond,
	faults: nemeses(), oneByOne: true,
}

// errWrong ends the command when an answer was wrong.
var errWrong = errors.New("the promise is broken")

// Validate implements kong's check of a command.
func (c faultsCommand) Validate() error {
	if c.Links < 1 || c.Readers < 1 || c.Batch < 1 || c.ReadEvery <= 0 {
		return errors.New("without writers, readers, a batch and a pause nothing is shown")
	}
	return nil
}

// Run prints a report. Anything that must not be is an error.
func (c faultsCommand) Run(ctx context.Context) error {
	log, err := createLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	l := shortLoad
	if !c.Short && len(c.Catch) == 0 {
		l = workload{
			links: c.Links, readers: c.Readers, reserved: reserved, readEvery: c.ReadEvery, batch: c.Batch, changeEvery: 40 * time.Millisecond,
			revocations: c.Revocations, reads: c.Reads, atLeast: c.Duration,
		}
	}
	if l.faults, err = named(c.Only); err != nil {
		return err
	}
	if len(c.Catch) > 0 {
		return c.catch(ctx, l, log)
	}
	bin, err := build(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	fmt.Fprintf(os.Stdout, "seed %d\n", c.Seed)
	report, err := runFaults(ctx, bin, l, c.Seed, c.StaleIfError, log)
	if report == nil {
		return err
	}
	report.markdown(os.Stdout)
	if c.JSON != "" {
		err = errors.Join(err, report.writeJSON(c.JSON))
	}
	return errors.Join(err, report.wrong())
}

// runFaults starts a rig of the programs in bin and does one run on it. The report is nil when there was no run.
func runFaults(ctx context.Context, bin string, l workload, seed uint64, stale time.Duration, log io.Writer) (*faultReport, error) {
	r, err := openRig(ctx, bin, stale, log)
	if err != nil {
		return nil, err
	}
	run := newRun(r, l, seed)
	err = run.do(ctx)
	err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
	return newFaultReport(run), err
}
