package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/bench/prove/faults/history"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

const (
	// readTimeout bounds one turn. An edge that cannot reach Postgres waits for two queries of a second each.
	readTimeout = 2500 * time.Millisecond
	// reconnectEvery is the pause after a failed connection, so that an edge that is down is not flooded.
	reconnectEvery = 10 * time.Millisecond
)

// reader sends requests to one edge over one connection, and has each response checked.
type reader struct {
	run  *run
	edge int
	// every is the pace of its turns. In one turn it requests batch keys together: with one system call for many requests, both sides have
	// time for more of them. Hot subjects are requested at once and alone.
	every time.Duration
	batch int
	// reserved readers request only hot subjects, so that they are free for them.
	reserved bool

	line  visitor.Line
	asked []*subject
}

func (r *reader) read(ctx context.Context) {
	r.line = visitor.Line{Addr: r.run.rig.edges[r.edge].addr, Timeout: readTimeout}
	defer r.line.HangUp()
	pace := time.NewTimer(0)
	defer pace.Stop()
	for ctx.Err() == nil {
		r.next(ctx, pace)
		if len(r.asked) == 0 {
			continue
		}
		// The edge receives the later requests of a batch later than this time, which makes the check less strict for them.
		sent := r.run.recorder.Now()
		left := len(r.asked)
		status, err := r.ask()
		for err == nil && left > 0 {
			if status, err = r.answer(sent, r.asked[len(r.asked)-left]); err != nil {
				break
			}
			if left--; !r.line.Connected() {
				left = 0 // the edge did not receive the later requests
			}
		}
		if err != nil {
			for range left {
				r.run.tally.read(status)
			}
			fleet.Pause(ctx, reconnectEvery)
		}
	}
}

// next waits for the next subjects to request.
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

// ask sends the requests. With an error, the status says how far it got.
func (r *reader) ask() (status int, err error) {
	if err := r.line.Connect(); err != nil {
		return unconnected, err
	}
	for _, s := range r.asked {
		a := s.addresses[rand.IntN(len(s.addresses))]
		r.line.Put(a.host, a.path)
	}
	return unanswered, r.line.Send()
}

// answer receives the next response and has it checked.
func (r *reader) answer(sent time.Duration, s *subject) (status int, err error) {
	if err := r.line.Receive(); err != nil {
		return unanswered, err
	}
	answered := r.run.recorder.Now()
	response := &r.line.Response
	status = response.StatusCode()
	r.run.tally.read(status)
	if state, ok := s.state(status, response.Header.Peek("Location")); ok {
		s.Judge(history.Read{Edge: r.edge, Sent: sent, Answered: answered, State: state})
	} else if status != fasthttp.StatusServiceUnavailable {
		r.run.surprise(fmt.Sprintf("edge %d returned %d: %s", r.edge, status, response.Body()))
	}
	return status, nil
}
