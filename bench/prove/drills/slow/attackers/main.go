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
	// arriving is about how much memory thousands of connections take, and garbage how much of it a second of an attack makes.
	arriving = 128 << 20
	garbage  = 4 << 20
	// mostMemory is how much is taken at most. Twice as much may gather before garbage is collected.
	mostMemory = 2 << 30
)

// takeMemory takes what an attack of so long needs before it begins, and none is collected or given back. Where the host of a virtual
// machine has to find memory on its first touch, a processor stands still for milliseconds meanwhile. It would be one of the attacked.
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
