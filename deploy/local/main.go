// Command local is what `make run` starts: a whole Deeplink on this machine, with its own PostgreSQL and Redis, a demo
// organization, one control, two edges and a development identity provider. Everything it keeps lies in one folder; Ctrl-C
// stops all of it, and the next start finds the same data.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal kills.
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}
