// Command prove checks Deeplink's promises and measures its performance, for its maintainers. It runs private fleets of real processes and
// treats control and edge as black boxes.
//
// Each command is a package: faults (failover, freshness) checks every response under faults, drills (slow, upgrade, events, cleanup) makes
// one thing go wrong at a time, soak, speed and scale measure. They share fleets (fleet), clients (visitor, deeplink/bench/load), servers
// to compare with (baseline), and the code that prints results (figures) and keeps them in bench/PROOFS.md (proof).
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"deeplink/bench/prove/clicks"
	"deeplink/bench/prove/clicks/classes"
	"deeplink/bench/prove/clicks/sizes"
	"deeplink/bench/prove/drills"
	"deeplink/bench/prove/drills/cleanup"
	"deeplink/bench/prove/drills/events"
	"deeplink/bench/prove/drills/signin"
	"deeplink/bench/prove/drills/slow"
	"deeplink/bench/prove/drills/upgrade"
	"deeplink/bench/prove/drills/writes"
	"deeplink/bench/prove/faults"
	"deeplink/bench/prove/faults/freshness"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
	"deeplink/bench/prove/scale"
	"deeplink/bench/prove/soak"
	"deeplink/bench/prove/speed"
	"deeplink/bench/result"
)

type commands struct {
	Proofs string `default:"bench/PROOFS.md" help:"File whose section of this command is replaced by the result; an empty value writes none."`
	Log    string `type:"path" help:"File for the logs of the programs under test."`

	Faults struct {
		Random    faults.Command         `cmd:"" default:"withargs" help:"Inject every fault, alone and in pairs, and check every response of every edge (default)."`
		Catch     faults.CatchCommand    `cmd:"" help:"Break one rule of the protocol at a time and show that the checker detects it."`
		Failover  faults.FailoverCommand `cmd:"" help:"Kill the primaries of Redis under Sentinels and of Postgres with a standby, and check every response."`
		Freshness freshness.Command      `cmd:"" help:"Change links, request them from every edge once each change has completed, and count stale responses."`
	} `cmd:"" help:"Check every response while faults are injected."`
	Drills struct {
		All     drills.Command  `cmd:"" default:"withargs" help:"Make one thing go wrong at a time and compare the cost with its bound (default)."`
		Slow    slow.Command    `cmd:"" help:"Hold thousands of slow connections and request a million unknown codes while live links are requested."`
		Upgrade upgrade.Command `cmd:"" help:"Replace all programs by the next version and back, under load and behind nginx."`
		Events  events.Command  `cmd:"" help:"Send events as phones do: while controls are killed, or ten million."`
		Writes  writes.Command  `cmd:"" help:"Repeat writes through a network that loses half of everything; write in bulk; walk a list while it changes."`
		Signin  signin.Command  `cmd:"" help:"Renew a session 480 times in a row; kill the control that renews; rotate the keys; confirm one link 200 times at once."`
		Cleanup cleanup.Command `cmd:"" help:"Partition the audit trail and purge a Postgres full of old rows; report the longest statement of each job."`
	} `cmd:"" help:"Make one thing go wrong at a time."`
	Clicks struct {
		Kill    clicks.Command  `cmd:"" default:"withargs" help:"Kill processes while clients click, and compare the figures of each link with the responses, and with themselves (default)."`
		Classes classes.Command `cmd:"" help:"Classify real requests whose class is known."`
		Sizes   sizes.Command   `cmd:"" help:"Measure the bytes of a click, and of the rows that are counted."`
	} `cmd:"" help:"Check what is counted of clicks."`
	Soak  soak.Command  `cmd:"" help:"Run an edge at most of its capacity for a long time while links are edited, and look for what grows."`
	Speed speed.Command `cmd:"" help:"Measure redirects per second on one core: against nginx and fixed servers in Go, or against another build of the edge."`
	Scale scale.Command `cmd:"" help:"Compare few links with millions: in Postgres, and in the memory of edges."`
}

// claims are what each command checks, by its name.
var claims = map[string]string{
	"faults random":      "No edge serves a stale response and no acknowledged write is lost, under every fault, alone and in pairs.",
	"faults catch":       "The checker detects each build in which one rule of the protocol is broken.",
	"faults failover":    "No edge serves a stale response and no acknowledged write is lost when Redis or Postgres fails over.",
	"faults freshness":   "Once a change has completed, no edge serves the previous version.",
	"drills all":         "Each fault costs at most its bound: restarts, outages, bursts, locked rows, made-up keys.",
	"drills slow":        "Slow connections and unknown codes cost no click on a live link, and at most double the p99.",
	"drills upgrade":     "An upgrade of every program, with a migration, and the way back lose no click and serve no stale response.",
	"drills events kill": "Every acknowledged event survives `kill -9` and is stored and exported once.",
	"drills events fill": "Ten million events are stored at a steady rate and exported in bounded memory.",
	"clicks kill":        "Each response to a short URL is counted exactly once, whichever process is killed, and no figure from before asOf changes.",
	"clicks classes":     "The classes of real requests have the precision and recall of the contract, also of requests by which no rule was written.",
	"clicks sizes":       "This is the space that clicks take in Postgres, with indexes, against the budget of 200 bytes per click and 130 per quarter row.",
	"drills writes":      "A write with a key has one effect however often it is repeated, 1,000 creates take a second, and a walk sees each link once.",
	"drills signin":      "A session of the console survives eight hours of renewals, `kill -9` of the control that renews and a rotation of the keys; a link signs in once.",
	"drills cleanup":     "Each statement of a purge takes at most 2 s, however many rows are old or dead.",
	"soak":               "Nothing grows while an edge runs at four fifths of its capacity for half an hour.",
	"speed":              "A redirect takes at most 1/0.85 of the CPU time of a fixed response by fasthttp, and at most 1/1.25 of that of nginx with the same job.",
	"speed --against":    "CPU time per redirect compared with another build of the edge.",
	"scale":              "Millions of links cost little more than thousands: per lookup, per page of a list, per link in memory.",
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commands
	k := kong.Parse(&c, kong.Name("prove"), kong.Description("Checks Deeplink's promises and measures its performance, with private fleets."), kong.UsageOnError())
	if err := c.run(ctx, k); err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		os.Exit(1)
	}
}

// run runs the selected command and records its section, also when the result contradicts the claim.
func (c *commands) run(ctx context.Context, k *kong.Context) (err error) {
	name, _, _ := strings.Cut(k.Command(), " <") // without the names of arguments
	s := proof.Section{Name: name, Machine: result.ThisMachine(), Began: time.Now(), Command: "go run ./bench/prove " + strings.Join(os.Args[1:], " ")}
	if s.Name == "speed" && c.Speed.Against != "" {
		s.Name += " --against"
	}
	s.Claim = claims[s.Name]
	if s.Commit, err = fleet.Revision(ctx, ""); err != nil {
		s.Commit = "unknown"
	}
	log, err := os.Create(cmp.Or(c.Log, os.DevNull))
	if err != nil {
		return err
	}
	defer log.Close()
	var figures bytes.Buffer
	k.BindTo(ctx, (*context.Context)(nil))
	err = k.Run(&proof.Output{Writer: io.MultiWriter(os.Stdout, &figures), Log: log})
	if c.Proofs == "" || figures.Len() == 0 || ctx.Err() != nil {
		return err
	}
	s.Kept, s.Figures, s.Took = err == nil, figures.String(), time.Since(s.Began)
	if err != nil {
		s.Figures += "\n" + err.Error() + "\n"
	}
	return errors.Join(err, proof.Record(c.Proofs, s))
}
