package load

import "time"

// pace wakes each connection when its next request is due.
func (e *engine) pace() error {
	timer := newTimer()
	defer timer.close()
	for n := int64(0); ; n++ {
		due := e.due(n)
		for now := e.now(); now < due && now < e.until.Load(); now = e.now() {
			// In steps, so that an interrupt is noticed.
			timer.sleep(min(time.Duration(due-now), 100*time.Millisecond))
		}
		if due >= e.until.Load() {
			break
		}
		e.connections[n%int64(e.Connections)].alarm()
	}
	for _, c := range e.connections {
		c.alarm()
	}
	return nil
}

// alarm wakes a waiting connection. If the connection is not waiting yet, its next wait returns at once.
func (c *connection) alarm() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
