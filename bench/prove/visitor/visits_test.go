package visitor

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Only a request that no process can have received is listed separately; it still counts as lost.
func TestClicksThatNoProcessReceivedAreListedSeparately(t *testing.T) {
	t.Parallel()
	const found = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct {
		answers                     []string // the responses of one connection, which ends after them
		drain                       time.Duration
		unaccepted, late, failed, n int
	}{
		"closed at once":              {drain: time.Hour, unaccepted: 1, n: 1},
		"closed within the drain":     {answers: []string{found}, drain: time.Hour, failed: 1, n: 2},
		"closed after the drain":      {answers: []string{found, found}, drain: 1, late: 1, n: 3},
		"closed, and never restarted": {answers: []string{found}, failed: 1, n: 2},
		"closed within a response":    {answers: []string{found[:10]}, drain: 1, failed: 1, n: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := New(answering(t, c.answers))
			defer v.HangUp()
			clicks := NewVisits()
			clicks.Drain = c.drain
			for range c.n {
				clicks.Click(v, "/x")
			}
			if clicks.unaccepted != c.unaccepted || clicks.late != c.late || clicks.failed() != c.failed || clicks.Refused != 0 {
				t.Errorf("counted %v, expected %+v", clicks, c)
			}
			if all, others := clicks.Total(302); all != c.n || others != 1 {
				t.Errorf("%d of %d lost, expected 1 of %d", others, all, c.n)
			}
			if all, others := clicks.Answered(302); all != c.n-1 || others != 0 {
				t.Errorf("%d of %d responses are wrong, expected 0 of %d", others, all, c.n-1)
			}
		})
	}
}

// answering serves one connection: each response follows a request, and after the last one it closes the connection.
func answering(t *testing.T, answers []string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	go func() {
		defer close(ended)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, answer := range answers {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
		}
	}()
	return ln.Addr().String()
}
