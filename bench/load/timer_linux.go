package load

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer is a timerfd. The runtime's own timers fire up to a millisecond late on an idle machine (its poller waits in whole milliseconds),
// which every latency would include.
type timer struct {
	fd   int
	file *os.File // nil: timerfd_create failed, and the runtime's timers are used
	read [8]byte
}

func newTimer() *timer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &timer{}
	}
	return &timer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}
}

func (t *timer) sleep(span time.Duration) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(span, 1)))}
	if t.file == nil || unix.TimerfdSettime(t.fd, 0, &at, nil) != nil {
		time.Sleep(span)
		return
	}
	_, _ = t.file.Read(t.read[:]) // the caller checks the clock in any case
}

func (t *timer) close() {
	if t.file != nil {
		_ = t.file.Close() // nothing was written
	}
}
