// Command bench measures and attacks a Deeplink from outside, with control and edge as black boxes.
//
// Each command is a package: freshness, drills, faults (and failover), events, upgrade and siege (`slow`) ask whether promises are kept;
// speed, soak, scale and direct measure one machine; scenarios (`load`) asks a Deeplink that somebody else runs, and compare (and plot) reads what
// they leave; fill makes links. What they have in common is a fleet of real processes (fleet), who clicks on its links (visitor) or asks as fast as
// it can (load), the servers that it is compared with (baseline), and what is found (figures, result).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"deeplink/bench/compare"
	"deeplink/bench/direct"
	"deeplink/bench/drills"
	"deeplink/bench/events"
	"deeplink/bench/faults"
	"deeplink/bench/fill"
	"deeplink/bench/freshness"
	"deeplink/bench/scale"
	"deeplink/bench/scenarios"
	"deeplink/bench/siege"
	"deeplink/bench/soak"
	"deeplink/bench/speed"
	"deeplink/bench/upgrade"
)

type commands struct {
	Freshness freshness.Command      `cmd:"" help:"Change links and ask every edge as soon as each change is answered; count stale answers."`
	Drills    drills.Command         `cmd:"" help:"Make one thing go wrong at a time, and compare what it costs with what is promised."`
	Direct    direct.Command         `cmd:"" help:"Compare control with the bare SQL that it sends, in the same run."`
	Scale     scale.Command          `cmd:"" help:"Compare few links with millions: in Postgres, and in the memory of edges."`
	Load      scenarios.Command      `cmd:"" help:"Send requests to a Deeplink that runs, and tell how many it answers and how fast."`
	Compare   compare.Command        `cmd:"" help:"Set two results of load against each other."`
	Plot      compare.PlotCommand    `cmd:"" help:"Draw results of load."`
	Events    events.Command         `cmd:"" help:"Report events as phones do: while controls are killed, or as many as there is room for."`
	Faults    faults.Command         `cmd:"" help:"Break everything there is to break, and judge every answer of every edge."`
	Failover  faults.FailoverCommand `cmd:"" help:"Kill the primaries of a Redis under Sentinels and of a Postgres with a standby, and judge every answer."`
	Upgrade   upgrade.Command        `cmd:"" help:"Replace all programs by the next version and back, under load and behind nginx."`
	Slow      siege.Command          `cmd:"" help:"Hold thousands of slow connections and ask for a million unknown codes while live links are clicked on."`
	Speed     speed.Command          `cmd:"" help:"Redirects a second on one core, beside nginx and bare servers in Go."`
	Soak      soak.Command           `cmd:"" help:"Ask an edge for most of what it can answer, for long, while links are edited; look for what grows."`
	Fill      fill.Command           `cmd:"" help:"Put any number of links into a database."`
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
