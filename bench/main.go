// Command bench measures and attacks a Deeplink from outside, with control and edge as black boxes.
//
// `bench freshness` changes links and asks every edge at once (freshness.go, changes.go). `bench drills` makes one thing go wrong
// at a time and measures what that costs (drills.go, a file for each drill; visitor.go clicks, visits.go counts what came of it).
// Both call the API as a tenant (tenant.go). `bench events` reports as phones do (phone.go), under kills
// (eventkills.go; ledger.go has what they were told) and as many as there is room for (eventfill.go; keyring.go has the keys, meter.go and
// expense.go measure), and reads back what is stored (archive.go). `bench faults` changes and asks while everything breaks that can break:
//
//	faults.go    the command: one run, or runs of fault-tagged builds until each is caught (faultreport.go: what it prints)
//	rig.go       the processes, each with proxies of its own to Postgres and Redis (package proxy, failover.go)
//	run.go       who works when: writers, readers and attacks, and in the end the comparison with the database (database.go)
//	nemesis.go   the faults, ambush.go those made of several (schedule.go: in which order)
//	workload.go  who changes links, operators.go who changes organizations and domains and who edits by hand (caller.go: the API)
//	reader.go    who reads, subject.go what there is to read
//	history/     what was asked for and answered, and the judgement of every read
//
// `bench failover` does the same while Redis fails over under Sentinels, and Postgres to its synchronous standby (failovers.go).
//
// `bench upgrade` replaces every program of a fleet, with a migration between (upgrade.go), behind nginx (front.go).
//
// `bench speed` measures redirects a second on one core:
//
//	speed.go     the command: rounds of turns, then latencies at one rate (speedlatency.go; speedreport.go: the tables,
//	             processor.go: the time that a server computes)
//	field.go     the contenders: the edge, filled and warm (warm.go), and what it is compared with
//	baseline/    nginx and bare servers in Go, each set up to be fast
//	wrk.go       the load generator, with its requests from wrk.lua
//
// `bench soak` asks one edge for long (soak.go; soakeditor.go writes beside, soakreport.go: what it prints and what has to be so).
//
// `bench fill` puts any number of links into a database (fill.go; fillload.go copies them, filllink.go makes them up,
// fillorganizations.go whose they are, fillindexes.go is for millions). `bench scale` compares few links with millions (scale.go;
// scalestore.go in Postgres, scalecache.go in memory), `bench direct` control with its own SQL (direct.go, directsql.go).
//
// `bench load` sends requests to a Deeplink that somebody else runs (package load), and leaves results (package result):
//
//	load.go           the command: what is prepared, and rounds in turn (loadtable.go: what it prints)
//	loadscenarios.go  what is sent (loadlinks.go makes links and deletes them, loadtokens.go reads match tokens from pages)
//	loaddeletes.go    deletes, until the edges say so
//	compare.go        `bench compare`: two results against each other
//	plot.go           `bench plot`: a picture of results
//
// `bench slow` attacks an edge by patience and by guessing, beside live links (siege.go; package slow is the patient clients).
//
// The others ask edges over a line (line.go), and controls with what an organization knows of itself (organization.go).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type commands struct {
	Freshness freshnessCommand `cmd:"" help:"Change links and ask every edge as soon as each change is answered; count stale answers."`
	Drills    drillsCommand    `cmd:"" help:"Make one thing go wrong at a time, and compare what it costs with what is promised."`
	Direct    directCommand    `cmd:"" help:"Compare control with the bare SQL that it sends, in the same run."`
	Scale     scaleCommand     `cmd:"" help:"Compare few links with millions: in Postgres, and in the memory of edges."`
	Load      loadCommand      `cmd:"" help:"Send requests to a Deeplink that runs, and tell how many it answers and how fast."`
	Compare   compareCommand   `cmd:"" help:"Set two results of load against each other."`
	Plot      plotCommand      `cmd:"" help:"Draw results of load."`
	Events    eventsCommand    `cmd:"" help:"Report events as phones do: while controls are killed, or as many as there is room for."`
	Faults    faultsCommand    `cmd:"" help:"Break everything there is to break, and judge every answer of every edge."`
	Failover  failoverCommand  `cmd:"" help:"Kill the primaries of a Redis under Sentinels and of a Postgres with a standby, and judge every answer."`
	Upgrade   upgradeCommand   `cmd:"" help:"Replace all programs by the next version and back, under load and behind nginx."`
	Slow      slowCommand      `cmd:"" help:"Hold thousands of slow connections and ask for a million unknown codes while live links are clicked on."`
	Speed     speedCommand     `cmd:"" help:"Redirects a second on one core, beside nginx and bare servers in Go."`
	Soak      soakCommand      `cmd:"" help:"Ask an edge for most of what it can answer, for long, while links are edited; look for what grows."`
	Fill      fillCommand      `cmd:"" help:"Put any number of links into a database."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commands
	k := kong.Parse(&c, kong.Name("bench"), kong.Description("Measures and attacks a Deeplink from outside."), kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err := k.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
