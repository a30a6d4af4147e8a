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
	// readTimeout bounds one turn. An edge that does not reach Postgres waits for two questions of a second each.
	readTimeout = 2500 * time.Millisecond
	// reconnectEvery is the pause after a connection that failed: an edge that is down must not be besieged.
	reconnectEvery = 10 * time.Millisecond
)

// reader asks one edge over one connection, again and again, and has each answer judged.
type reader struct {
	run  *run
	edge int
	// every is the pace of its turns. In one turn it asks for batch keys together: with one system call for many requests both
	// ends have time for more of them. What is hot is asked for at once and alone.
	every time.Duration
	batch int
	// reserved readers ask for nothing but what is hot, so that they are free for it.
	reserved bool

	conn     net.Conn
	in       *bufio.Reader
	out      []byte
	asked    []*subject
	response fasthttp.Response
}

func (r *reader) read(ctx context.Context) {
	defer r.disconnect()
	r.in = bufio.NewReaderSize(nil, 16<<10)
	pace := time.NewTimer(0)
	defer pace.Stop()
	for ctx.Err() == nil {
		r.next(ctx, pace)
		if len(r.asked) == 0 {
			continue
		}
		// Of requests that are sent together the later ones reach the edge later than this says, which makes the judge milder.
		sent := r.run.recorder.Now()
		left := len(r.asked)
		status, err := r.ask()
		for err == nil && left > 0 {
			if status, err = r.answer(sent, r.asked[len(r.asked)-left]); err != nil {
				break
			}
			if left--; r.response.ConnectionClose() {
				left = 0 // the others were not heard
				r.disconnect()
			}
		}
		if err != nil {
			r.disconnect()
			for range left {
				r.run.tally.read(status)
			}
			pause(ctx, reconnectEvery)
		}
	}
}

// next waits for what to ask for next.
func (r *reader) next(ctx context.Context, pace *time.Timer) {
	r.asked = r.asked[:0]
	turn := pace.C
	if r.reserved {
		turn = nil
	}
	select {
	case s := <-r.run.board.hot[r.edge]:
		r.asked = append(r.asked, s)
	case <-turn:
		pace.Reset(r.every/2 + rand.N(r.every))
		r.asked = r.run.board.some(r.asked, r.batch)
	case <-ctx.Done():
	}
}

// ask sends the requests. With an error, the status says how far it came.
func (r *reader) ask() (status int, err error) {
	addr := r.run.rig.edges[r.edge].addr
	if r.conn == nil {
		if r.conn, err = net.DialTimeout("tcp", addr, readTimeout); err != nil {
			r.conn = nil
			return unconnected, err
		}
		r.in.Reset(r.conn)
	}
	if err := r.conn.SetDeadline(time.Now().Add(readTimeout)); err != nil {
		return unanswered, err
	}
	r.out = r.out[:0]
	for _, s := range r.asked {
		a := s.addresses[rand.IntN(len(s.addresses))]
		host := a.host
		if host == "" {
			host = addr
		}
		// Each read comes from another visitor, or the edge would count them as one.
		visitor := rand.Uint32()
		r.out = fmt.Appendf(r.out, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Forwarded-For: 10.0.%d.%d\r\n\r\n",
			a.path, host, visitor>>8&255, visitor&255)
	}
	if _, err := r.conn.Write(r.out); err != nil {
		return unanswered, err
	}
	return 0, nil
}

// answer reads the next answer into response and has it judged.
func (r *reader) answer(sent time.Duration, s *subject) (status int, err error) {
	if err := r.response.Read(r.in); err != nil {
		return unanswered, err
	}
	answered := r.run.recorder.Now()
	status = r.response.StatusCode()
	r.run.tally.read(status)
	if state, ok := s.state(status, r.response.Header.Peek("Location")); ok {
		s.Judge(history.Read{Edge: r.edge, Sent: sent, Answered: answered, State: state})
	} else if status != fasthttp.StatusServiceUnavailable {
		r.run.surprise(fmt.Sprintf("edge %d answered %d: %s", r.edge, status, r.response.Body()))
	}
	return status, nil
}

func (r *reader) disconnect() {
	if r.conn != nil {
		_ = r.conn.Close() // nothing is left to be said on it
		r.conn = nil
	}
}
