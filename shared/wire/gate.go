package wire

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Gate bounds how many connections are open at a time, so that what one takes of memory bounds what all take.
type Gate struct {
	room int64
	open atomic.Int64
}

// NewGate returns a gate that lets room connections in.
func NewGate(room int) *Gate { return &Gate{room: int64(room)} }

// turnAwayTimeout bounds the answer to a connection that there is no room for. It fits into the empty buffer of a new connection, so
// that nobody waits.
const turnAwayTimeout = 100 * time.Millisecond

// Admit reports whether there is room for c, for which Leave is to be called once. Otherwise c is answered by 503 and closed.
func (g *Gate) Admit(c net.Conn) bool {
	if g.open.Add(1) <= g.room {
		return true
	}
	g.Leave()
	_ = c.SetWriteDeadline(time.Now().Add(turnAwayTimeout)) // whoever hung up needs no answer
	_, _ = c.Write(Refusal(http.StatusServiceUnavailable, "Too many connections. Retry with backoff.", Request{}, time.Now()))
	_ = c.Close()
	return false
}

// Leave makes room for another one.
func (g *Gate) Leave() { g.open.Add(-1) }
