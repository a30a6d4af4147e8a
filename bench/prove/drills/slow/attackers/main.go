// Command attackers runs the attack of `prove drills slow`. It is a separate process, so that it can run at idle priority: real attackers
// have their own machines.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"deeplink/bench/prove/drills/slow/attack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var a attack.Attack
	kong.Parse(&a, kong.Description("Holds slow connections to an edge and asks it for codes that no link has."))
	takeMemory(a.Span)
	if err := a.Run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "attackers:", err)
		os.Exit(1)
	}
}

const (
	// arriving is the approximate memory of thousands of connections, garbage what one second of an attack allocates.
	arriving = 128 << 20
	garbage  = 4 << 20
	// mostMemory bounds the memory that is taken in advance. Twice as much may accumulate before a collection.
	mostMemory = 2 << 30
)

// takeMemory takes the memory of an attack of that duration in advance, and turns garbage collection off. On a virtual machine, the first
// touch of a page can stop a processor for milliseconds while the host finds memory, and that processor may be the edge's.
func takeMemory(span time.Duration) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(2 * mostMemory)
	memory := make([]byte, min(mostMemory, int(span.Seconds()*garbage)+arriving))
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	runtime.KeepAlive(memory)
	runtime.GC()
}
