package load

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pace wakes each connection when its next request is due. The runtime's own timers come up to a millisecond late on an idle machine
// (its poller waits in whole ones), which would be a millisecond of every latency, so it waits on a timer of the kernel.
func (e *engine) pace() error {
	timer, err := newTimer()
	for n := int64(0); ; n++ {
		due := e.due(n)
		for now := e.now(); now < due && now < e.until.Load(); now = e.now() {
			// In steps, so that an interrupt is noticed.
			span := min(time.Duration(due-now), 100*time.Millisecond)
			if err == nil {
				err = timer.sleep(span)
			}
			if err != nil {
				time.Sleep(span)
			}
		}
		if due >= e.until.Load() {
			break
		}
		e.connections[n%int64(e.Connections)].alarm()
	}
	for _, c := range e.connections {
		c.alarm()
	}
	if timer != nil {
		timer.file.Close()
	}
	return nil
}

// alarm wakes a connection that waits, and one that does not wait yet when it will.
func (c *connection) alarm() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// timer is a timerfd, for which the runtime's poller waits.
type timer struct {
	fd   int
	file *os.File
	read [8]byte
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	return &timer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

func (t *timer) sleep(span time.Duration) error {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(span, 1)))}
	if err := unix.TimerfdSettime(t.fd, 0, &at, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	_, err := t.file.Read(t.read[:])
	return err
}
