//go:build !linux

package load

import "time"

// timer uses the runtime's timers.
type timer struct{}

func newTimer() *timer { return &timer{} }

func (*timer) sleep(span time.Duration) { time.Sleep(span) }

func (*timer) close() {}
