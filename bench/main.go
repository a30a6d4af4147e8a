// Command bench load-tests a Deeplink deployment: load sends requests and checks thresholds, compare compares two results, fill inserts
// links into a database. The measurements and proofs of maintainers are in deeplink/bench/prove.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"deeplink/bench/compare"
	"deeplink/bench/fill"
	"deeplink/bench/scenarios"
)

type commands struct {
	Load    scenarios.Command `cmd:"" help:"Send requests to a running Deeplink, measure responses, and check thresholds."`
	Compare compare.Command   `cmd:"" help:"Compare two results of load."`
	Fill    fill.Command      `cmd:"" help:"Put any number of links into a database."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commands
	k := kong.Parse(&c, kong.Name("bench"), kong.Description("Load-tests a Deeplink deployment."), kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err := k.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		var exit *scenarios.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.Status)
		}
		os.Exit(1)
	}
}
