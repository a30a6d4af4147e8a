package replica

import "time"

// lease is the right to serve from the cache. It counts from the start of a poll, never from the arrival of the poll's reply: the poll
// has applied every change that was committed before its start, and not every change that was committed before its reply.
type lease struct {
	start time.Time
}

// covers reports whether now is less than d after the start of the lease's poll, by the monotonic and by the wall reading: the first is
// immune to clock changes, the second goes on while a virtual machine sleeps. A nil lease covers nothing. A lease that started after
// now covers it, so a caller must load the lease before it reads the counters of an entry that it may serve under this lease.
func (l *lease) covers(now time.Time, d time.Duration) bool {
	return l != nil && now.Sub(l.start) < d && time.Duration(now.UnixNano()-l.start.UnixNano()) < d
}
