// Command bench measures and attacks a Deeplink from outside, with control and edge as black boxes.
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
