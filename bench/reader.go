package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/bench/history"
)

const (
	// readTimeout bounds one read. An edge that does not reach Postgres waits for two questions of a second each.
	readTimeout = 2500 * time.Millisecond
	// reconnectEvery is the pause after a connection that failed: an edge that is down must not be besieged.
	reconnectEvery = 10 * time.Millisecond
)

// reader asks one edge over one connection, again and again, and has each answer judged.
type reader struct {
	run  *run
	edge int
	// every is the pace of its reads, 0 for as fast as it goes. What is hot is read at once.
	every time.Duration
	// reserved readers ask for nothing but what is hot, so that they are free for it.
	reserved bool

	conn     net.Conn
	in       *bufio.Reader
	out      []byte
	response fasthttp.Response
}

func (r *reader) read(ctx context.Context) {
	defer r.disconnect()
	r.in = bufio.NewReaderSize(nil, 16<<10)
	pace := time.NewTimer(0)
	defer pace.Stop()
	for ctx.Err() == nil {
		s := r.next(ctx, pace)
		if s == nil {
			continue
		}
		now := r.run.recorder.Now
		sent := now()
		status, err := r.ask(s)
		answered := now()
		if err != nil {
			r.disconnect()
			r.run.tally.read(status)
			pause(ctx, reconnectEvery)
			continue
		}
		r.run.tally.read(status)
		if state, ok := s.state(status, r.response.Header.Peek("Location")); ok {
			s.Judge(history.Read{Edge: r.edge, Sent: sent, Answered: answered, State: state})
		} else if status != fasthttp.StatusServiceUnavailable {
			r.run.surprise(fmt.Sprintf("edge %d answered %d: %s", r.edge, status, r.response.Body()))
		}
		if r.response.ConnectionClose() {
			r.disconnect()
		}
	}
}

// next waits for what to read, nil for nothing.
func (r *reader) next(ctx context.Context, pace *time.Timer) *subject {
	hot := r.run.board.hot[r.edge]
	if r.every == 0 && !r.reserved {
		select {
		case s := <-hot:
			return s
		default:
			return r.run.board.any()
		}
	}
	turn := pace.C
	if r.reserved {
		turn = nil
	}
	select {
	case s := <-hot:
		return s
	case <-turn:
		pace.Reset(r.every/2 + rand.N(r.every))
		return r.run.board.any()
	case <-ctx.Done():
		return nil
	}
}

// ask sends one request and reads its answer into response. With an error, the status says how far it came.
func (r *reader) ask(s *subject) (status int, err error) {
	if r.conn == nil {
		if r.conn, err = net.DialTimeout("tcp", r.run.rig.edges[r.edge].addr, readTimeout); err != nil {
			r.conn = nil
			return unconnected, err
		}
		r.in.Reset(r.conn)
	}
	if err := r.conn.SetDeadline(time.Now().Add(readTimeout)); err != nil {
		return unanswered, err
	}
	a := s.addresses[rand.IntN(len(s.addresses))]
	host := a.host
	if host == "" {
		host = r.run.rig.edges[r.edge].addr
	}
	// Each read comes from another visitor, or the edge would count them as one.
	visitor := rand.Uint32()
	r.out = fmt.Appendf(r.out[:0], "GET %s HTTP/1.1\r\nHost: %s\r\nX-Forwarded-For: 10.0.%d.%d\r\n\r\n",
		a.path, host, visitor>>8&255, visitor&255)
	if _, err := r.conn.Write(r.out); err != nil {
		return unanswered, err
	}
	if err := r.response.Read(r.in); err != nil {
		return unanswered, err
	}
	return r.response.StatusCode(), nil
}

func (r *reader) disconnect() {
	if r.conn != nil {
		_ = r.conn.Close() // nothing is left to be said on it
		r.conn = nil
	}
}
