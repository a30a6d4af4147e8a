// Package faults is `prove faults`, with `faults catch` and `faults failover`: it changes links and reads them while faults are injected,
// and checks every response of every edge.
//
//	faults.go    the command: one run, or short runs of each broken build until it is detected (catch.go); report.go prints
//	rig.go       the processes, each with its own proxies to Postgres and Redis (package proxy; replica.go is a second Redis)
//	run.go       writers, readers and faults of a run, and the final comparison with the database (database.go)
//	nemesis.go   the faults; ambush.go has combined ones, schedule.go their order
//	workload.go  changes of links; operators.go: of organizations and domains, and edits by hand (caller.go: the API)
//	reader.go    readers, subject.go what they read; tally.go counts by fault
//	failover.go  `faults failover`: Redis under Sentinels and Postgres with a standby lose their primaries
//	history/     requests and responses, and the verdict on every read
//	broken/      the rules of the protocol, broken one at a time, which the checker must detect
package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
)

// Command injects every fault into a fleet, and checks every response.
type Command struct {
	Seed         uint64        `help:"Seed of everything random. 0: a new one."`
	Duration     time.Duration `help:"Minimum length of the run." default:"5m"`
	Revocations  int64         `help:"Minimum number of revocations."`
	Reads        int64         `help:"Minimum number of reads to check."`
	Short        bool          `help:"Inject every fault once, in about a minute; the minimums above are ignored."`
	Only         []string      `help:"Names of the faults to inject, as in the report. Default: all."`
	StaleIfError time.Duration `help:"EDGE_STALE_IF_ERROR of all edges but the last, which has 0." default:"3s"`
	Links        int           `help:"Number of writers." default:"8"`
	Readers      int           `help:"Reading connections to each edge." default:"4"`
	ReadEvery    time.Duration `help:"Mean pause between the batches of a connection." default:"4ms"`
	Batch        int           `help:"Reads per batch." default:"8"`
}

// reserved is the number of connections to each edge that wait for hot subjects.
const reserved = 4

// shortLoad is a load that a busy machine with two cores can bear alongside its other work.
var shortLoad = workload{
	links: 8, readers: 4, reserved: reserved, readEvery: 5 * time.Millisecond, batch: 4, changeEvery: 60 * time.Millisecond,
	faults: nemeses(), oneByOne: true,
}

// errWrong ends the command when a response was wrong.
var errWrong = errors.New("the promise is broken")

// Validate implements kong's check of a command.
func (c Command) Validate() error {
	if c.Links < 1 || c.Readers < 1 || c.Batch < 1 || c.ReadEvery <= 0 {
		return errors.New("--links, --readers, --batch and --read-every must be positive")
	}
	return nil
}

// Run prints a report. A violation is an error.
func (c Command) Run(ctx context.Context, out *proof.Output) error {
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	l := shortLoad
	if !c.Short {
		l = workload{
			links: c.Links, readers: c.Readers, reserved: reserved, readEvery: c.ReadEvery, batch: c.Batch, changeEvery: 40 * time.Millisecond,
			revocations: c.Revocations, reads: c.Reads, atLeast: c.Duration,
		}
	}
	var err error
	if l.faults, err = named(c.Only); err != nil {
		return err
	}
	bin, err := fleet.Build(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	fmt.Fprintf(out, "seed %d\n", c.Seed)
	report, err := runFaults(ctx, bin, l, c.Seed, c.StaleIfError, out.Log)
	if report == nil {
		return err
	}
	report.markdown(out)
	return errors.Join(err, report.wrong())
}

// runFaults starts a rig of the programs in bin and does one run on it. The report is nil if the run did not start.
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
