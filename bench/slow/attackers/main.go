// Command attackers is those who mean an edge ill in `bench slow`. They are a process of their own, so that it can be the least of this
// machine's: in the field they have machines of their own.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"deeplink/bench/slow"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var a slow.Attack
	kong.Parse(&a, kong.Description("Holds slow connections to an edge and asks it for codes that no link has."))
	if err := a.Run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "attackers:", err)
		os.Exit(1)
	}
}
