// Package faults is `bench faults` and `bench failover`: it changes links and reads them while everything breaks that can break, and judges
// every answer of every edge.
//
//	faults.go    the command: one run, or runs of fault-tagged builds until each is caught (catch.go); report.go is what it prints
//	rig.go       the processes, each with proxies of its own to Postgres and Redis (package proxy; replica.go is a second Redis)
//	run.go       who works when: writers, readers and attacks, and in the end the comparison with the database (database.go)
//	nemesis.go   the faults, ambush.go those made of several (schedule.go: in which order)
//	workload.go  who changes links, operators.go who changes organizations and domains and who edits by hand (caller.go: the API)
//	reader.go    who reads, subject.go what there is to read; tally.go counts under which fault
//	failover.go  the other command: Redis under Sentinels and Postgres with a standby, each of which loses its primary
//	history/     what was asked for and answered, and the judgement of every read
//	broken/      the rules of the protocol, broken one at a time, which the judgement has to notice
package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"deeplink/bench/fleet"
)

// Command attacks a fleet with every fault there is, and judges every answer.
type Command struct {
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
func (c Command) Validate() error {
	if c.Links < 1 || c.Readers < 1 || c.Batch < 1 || c.ReadEvery <= 0 {
		return errors.New("without writers, readers, a batch and a pause nothing is shown")
	}
	return nil
}

// Run prints a report. Anything that must not be is an error.
func (c Command) Run(ctx context.Context) error {
	log, err := fleet.CreateLog(c.Log)
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
	bin, err := fleet.Build(ctx)
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
func runFaults(ctx context.Context, bin string, l workload, seed uint64, stale time.Duration, log io.Writer) (*report, error) {
	r, err := openRig(ctx, bin, stale, log)
	if err != nil {
		return nil, err
	}
	run := newRun(r, l, seed)
	err = run.do(ctx)
	err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
	return newReport(run), err
}
