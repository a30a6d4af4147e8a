package replica

import "time"

// lease is the right to answer from the cache. It counts from the moment a poll began, never from when its reply arrived:
// what was committed before that moment has been applied.
type lease struct {
	begun time.Time
}

// covers reports whether now is less than d after the lease's begin, by the monotonic and by the wall reading: the first is
// immune to clock changes, the second goes on while a virtual machine sleeps. No lease covers nothing.
func (l *lease) covers(now time.Time, d time.Duration) bool {
	return l != nil && now.Sub(l.begun) < d && time.Duration(now.UnixNano()-l.begun.UnixNano()) < d
}
