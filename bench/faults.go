package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"deeplink/bench/history"
)

// faultsCommand attacks a fleet with every fault there is, and judges every answer.
type faultsCommand struct {
	Seed         uint64        `help:"Seed of everything that is random. 0: a new one."`
	Duration     time.Duration `help:"How long to go on at least." default:"5m"`
	Revocations  int64         `help:"How many revocations to make at least."`
	Reads        int64         `help:"How many reads to judge at least."`
	Short        bool          `help:"Make every fault once, in under two minutes, in place of the above."`
	StaleIfError time.Duration `help:"EDGE_STALE_IF_ERROR of all edges but the last, which has 0." default:"3s"`
	Links        int           `help:"Writers of links." default:"8"`
	Readers      int           `help:"Connections that read all the time, to each edge." default:"8"`
	ReadEvery    time.Duration `help:"Mean pause between the reads of one connection. 0: none." default:"1ms"`
	Tags         []string      `help:"Build tags of control and edge."`
	Catch        []string      `help:"Build tags, one fault each. Each is given short runs until it is caught."`
	Tries        int           `help:"How many short runs each of them is given." default:"20"`
	JSON         string        `name:"json" help:"File for the report as JSON." type:"path"`
	Log          string        `help:"File for what the programs write." type:"path"`
}

// reserved are the connections to each edge that wait for what is hot.
const reserved = 4

// shortLoad is a load that a busy machine with two cores bears beside its other work.
var shortLoad = load{links: 8, readers: 4, reserved: reserved, readEvery: 5 * time.Millisecond, changeEvery: 60 * time.Millisecond, oneByOne: true}

// errWrong ends the command when an answer was wrong.
var errWrong = errors.New("the promise is broken")

// Run prints a report. Anything that must not be is an error.
func (c faultsCommand) Run(ctx context.Context) error {
	var log io.Writer = io.Discard
	if c.Log != "" {
		file, err := os.Create(c.Log)
		if err != nil {
			return err
		}
		defer file.Close()
		log = file
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if len(c.Catch) > 0 {
		return c.catch(ctx, log)
	}
	bin, err := build(ctx, c.Tags...)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	l := shortLoad
	if !c.Short {
		l = load{
			links: c.Links, readers: c.Readers, reserved: reserved, readEvery: c.ReadEvery, changeEvery: 40 * time.Millisecond,
			revocations: c.Revocations, reads: c.Reads, atLeast: c.Duration,
		}
	}
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
func runFaults(ctx context.Context, bin string, l load, seed uint64, stale time.Duration, log io.Writer) (*faultReport, error) {
	r, err := openRig(ctx, bin, stale, log)
	if err != nil {
		return nil, err
	}
	run := newRun(r, l, seed)
	err = run.do(ctx)
	err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
	return newFaultReport(run), err
}

// catch gives each tagged build short runs until it is caught, and prints which was and how fast. One that is not is an error.
func (c faultsCommand) catch(ctx context.Context, log io.Writer) error {
	missed := 0
	fmt.Println("| fault | caught in run | after | seed | by |\n|---|---|---|---|---|")
	for _, tag := range c.Catch {
		caught, err := c.catchOne(ctx, tag, log)
		if err != nil {
			return err
		}
		fmt.Println(caught)
		if !caught.yes {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d faults were not caught", missed, len(c.Catch))
	}
	return nil
}

// caught says how a fault was found.
type caught struct {
	tag   string
	yes   bool
	runs  int
	after time.Duration // from the beginning of the last run
	seed  uint64
	first history.Finding
}

// String is a row of a table.
func (c caught) String() string {
	if !c.yes {
		return fmt.Sprintf("| %s | **not in %d** | | | |", c.tag, c.runs)
	}
	return fmt.Sprintf("| %s | %d | %.1f s | %d | %s of %s |", c.tag, c.runs, c.after.Seconds(), c.seed, c.first.Verdict, c.first.Key)
}

func (c faultsCommand) catchOne(ctx context.Context, tag string, log io.Writer) (caught, error) {
	result := caught{tag: tag}
	bin, err := build(ctx, tag)
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(bin)
	l := shortLoad
	l.untilFound = true
	for result.runs < c.Tries && !result.yes {
		result.seed = c.Seed + uint64(result.runs)
		result.runs++
		report, err := runFaults(ctx, bin, l, result.seed, c.StaleIfError, log)
		if err != nil && (report == nil || len(report.Findings) == 0) {
			return result, err
		}
		if len(report.Findings) > 0 {
			result.yes, result.first, result.after = true, report.Findings[0], report.Findings[0].At
		}
	}
	return result, nil
}
