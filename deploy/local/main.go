// Command local is what `make run` starts: a complete Deeplink on this machine, with its own PostgreSQL and Redis, a demo
// organization, one control, two edges and a development identity provider. Everything that it stores is in one folder. Ctrl-C
// stops all of it, and the next start uses the same data.
//
// deploy/compose.demo.yaml uses it for the identity provider alone:
//
//	local identity ADDRESS ISSUER CONSOLE KEY-FILE
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
	start, name := func() error { return run(ctx, os.Stdout) }, "make run:"
	if len(os.Args) > 1 {
		start, name = func() error { return runIdentity(ctx, os.Args[1:]) }, "local:"
	}
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, name, err)
		os.Exit(1)
	}
}
