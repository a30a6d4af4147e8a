package main

import (
	"context"
	"fmt"
	"time"
)

// The pause of a keeper before it restarts a process: it doubles with each restart, and starts again once the process has run for a while.
const (
	shortestDelay = 500 * time.Millisecond
	longestDelay  = 30 * time.Second
	steadyAfter   = time.Minute
)

// keeper restarts one process whenever it ends.
type keeper struct {
	name   string
	exited func() <-chan struct{} // of the current process
	start  func(context.Context) error
	log    func(format string, values ...any)
}

// keep restarts the process until ctx ends, then returns. It retries a failed start.
func (k keeper) keep(ctx context.Context) {
	started, delay := time.Now(), shortestDelay
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.exited():
		}
		if time.Since(started) >= steadyAfter {
			delay = shortestDelay
		}
		k.log("%s ended; restarting it in %v", k.name, delay)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
			}
			delay = min(2*delay, longestDelay)
			err := k.start(ctx)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				break
			}
			k.log("could not restart %s: %v; next attempt in %v", k.name, err, delay)
		}
		started = time.Now()
		k.log("%s runs again", k.name)
	}
}

// logTo returns a function that writes each line to the terminal, and to the log with the time.
func (p *printer) logTo(log interface{ WriteString(string) (int, error) }) func(string, ...any) {
	return func(format string, values ...any) {
		text := fmt.Sprintf(format, values...)
		p.step(text)
		_, _ = log.WriteString(fmt.Sprintf("time=%s level=WARN program=local msg=%q\n", time.Now().UTC().Format(time.RFC3339Nano), text))
	}
}
