package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// visitor is one connection to an edge, made when it is needed and kept for as long as the edge keeps it.
type visitor struct {
	addr     string
	conn     net.Conn
	in       *bufio.Reader
	out      []byte
	response fasthttp.Response
}

// errRefused: no connection came to be, because nobody listened or the listener closed just then. That is the one failure after which
// clients ask again without being told: nothing was asked yet.
var errRefused = errors.New("connection refused")

// visitTimeout bounds one request of a visitor.
const visitTimeout = 5 * time.Second

// click asks for a path and returns the status. The answer is in v.response until the next click.
func (v *visitor) click(path string) (status int, err error) {
	if err := v.connect(); err != nil {
		return 0, err
	}
	if err := v.conn.SetDeadline(time.Now().Add(visitTimeout)); err != nil {
		return 0, err
	}
	// Each click comes from another client, or the edge would count them as one.
	client := rand.Uint32()
	v.out = fmt.Appendf(v.out[:0], "GET %s HTTP/1.1\r\nHost: %s\r\nX-Forwarded-For: 10.%d.%d.%d\r\n\r\n",
		path, v.addr, client>>16&255, client>>8&255, client&255)
	if _, err := v.conn.Write(v.out); err != nil {
		v.hangUp()
		return 0, err
	}
	if err := v.response.Read(v.in); err != nil {
		v.hangUp()
		return 0, err
	}
	if v.response.ConnectionClose() {
		v.hangUp()
	}
	return v.response.StatusCode(), nil
}

// connect connects unless there is a connection.
func (v *visitor) connect() (err error) {
	if v.conn != nil {
		return nil
	}
	if v.conn, err = net.DialTimeout("tcp", v.addr, visitTimeout); err != nil {
		v.conn = nil
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
			err = errRefused
		}
		return err
	}
	v.in = bufio.NewReaderSize(v.conn, 4<<10)
	return nil
}

func (v *visitor) hangUp() {
	if v.conn != nil {
		_ = v.conn.Close() // nothing is left to be said on it
		v.conn = nil
	}
}

// visits counts what visitors were answered. It is safe for concurrent use.
type visits struct {
	mu       sync.Mutex
	statuses map[int]int
	refused  int // connections, asked for again
	failures map[string]int
	took     []moment
}

// moment is how long one answer took, and when it came.
type moment struct {
	at   time.Time
	took time.Duration
}

func newVisits() *visits {
	return &visits{statuses: make(map[int]int), failures: make(map[string]int)}
}

// click has one visitor click, and counts.
func (s *visits) click(v *visitor, path string) {
	began := time.Now()
	status, err := v.click(path)
	ended := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, errRefused):
		s.refused++
	case err != nil:
		s.failures[err.Error()]++
	default:
		s.statuses[status]++
		s.took = append(s.took, moment{ended, ended.Sub(began)})
	}
}

// total returns how many requests there were, and how many of them were not answered with the status wanted.
func (s *visits) total(wanted int) (all, others int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for status, n := range s.statuses {
		all += n
		if status != wanted {
			others += n
		}
	}
	for _, n := range s.failures {
		all += n
		others += n
	}
	return all, others
}

// String tells statuses and failures.
func (s *visits) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%v, failures %v, refused and asked again %d", s.statuses, s.failures, s.refused)
}

// p99 returns the 99th percentile of the answers that came in a span of time, and how many they are.
func (s *visits) p99(from, to time.Time) (time.Duration, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var spans []time.Duration
	for _, m := range s.took {
		if m.at.After(from) && !m.at.After(to) {
			spans = append(spans, m.took)
		}
	}
	slices.Sort(spans)
	return rank(spans, 99), len(spans)
}

// rank returns the p-th percentile of ascending spans.
func rank(ascending []time.Duration, p int) time.Duration {
	if len(ascending) == 0 {
		return 0
	}
	return ascending[min(len(ascending)*p/100, len(ascending)-1)]
}
