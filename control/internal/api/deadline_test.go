package api

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/testenv"
	"deeplink/shared/wire"
)

// pipes is a listener with one in-memory connection, so that synctest can advance the time.
type pipes struct {
	end    net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) Accept() (c net.Conn, err error) {
	p.once.Do(func() { c = p.end })
	if c != nil {
		return c, nil
	}
	<-p.closed
	return nil, net.ErrClosed
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return p.end.LocalAddr() }

// ending records when the server closes a connection.
type ending struct {
	net.Conn
	once sync.Once
	at   chan time.Time
}

func (e *ending) Close() error {
	e.once.Do(func() { e.at <- time.Now() })
	return e.Conn.Close()
}

func TestSlowClientsAreCutOff(t *testing.T) {
	drip := func(c net.Conn, begin, piece string) {
		_, err := io.WriteString(c, begin)
		for err == nil {
			time.Sleep(time.Second / 3)
			_, err = io.WriteString(c, piece)
		}
	}
	read := func(c net.Conn) int {
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	for _, test := range []struct {
		name   string
		act    func(c net.Conn, aside *sync.WaitGroup) (status int)
		after  time.Duration
		status int // 0: no response
	}{
		{"a header that drips", func(c net.Conn, aside *sync.WaitGroup) int {
			aside.Go(func() { drip(c, "GET / HTTP/1.1\r\nX: ", "x") })
			return read(c)
		}, readHeaderTimeout, 0},
		{"a body that drips", func(c net.Conn, aside *sync.WaitGroup) int {
			aside.Go(func() {
				drip(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nContent-Type: application/json\r\n\r\n", "x")
			})
			return read(c)
		}, readTimeout, http.StatusRequestTimeout},
		{"a silent connection", func(c net.Conn, _ *sync.WaitGroup) int { return read(c) }, readHeaderTimeout, 0},
		{"a connection left open after a response", func(c net.Conn, aside *sync.WaitGroup) int {
			aside.Go(func() { io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") })
			return read(c)
		}, idleTimeout, http.StatusOK},
		{"a response that is not read", func(c net.Conn, _ *sync.WaitGroup) int {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			return 0
		}, writeTimeout, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				s := testServer(io.Discard)
				at := make(chan time.Time, 1)
				httpServer := newHTTPServer(requestID(s.handle(func(x *requestState, r *http.Request) error {
					if _, err := readBytes(x, r, decode.JSON); err != nil {
						return err
					}
					x.send(http.StatusOK, decode.JSON, []byte(strings.Repeat(" ", 1<<20)))
					return nil
				})), slog.New(slog.DiscardHandler))
				listener := &pipes{end: &ending{Conn: server, at: at}, closed: make(chan struct{})}
				var aside sync.WaitGroup
				aside.Go(func() { _ = httpServer.Serve(listener) })
				began := time.Now()
				if status := test.act(client, &aside); status != test.status {
					t.Errorf("status %d, expected %d", status, test.status)
				}
				// After an error response, net/http waits half a second for the client to read it.
				if took := (<-at).Sub(began); took < test.after || took > test.after+time.Second {
					t.Errorf("closed after %v, expected %v", took, test.after)
				}
				_ = client.Close()
				_ = httpServer.Close()
				aside.Wait()
			})
		})
	}
}

func TestConnectionOverTheBoundGets503Envelope(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newHTTPServer(requestID(testServer(io.Discard).handle(health)), slog.New(slog.DiscardHandler))
	go server.Serve(errorRewritingListener{ln, wire.NewGate(2)})
	t.Cleanup(func() { _ = server.Close() })
	p := &process{&testenv.Control{T: t, Base: "http://" + ln.Addr().String()}}
	ask := func(c *client) int { return c.Do("GET", "/healthz", "").Status }
	first, second := p.client(""), p.client("")
	if ask(first) != 200 || ask(second) != 200 {
		t.Fatal("two connections are allowed")
	}
	third := testenv.ExchangeRaw(t, p.Control, "", 2)
	if len(third) != 1 || third[0].Status != 503 || !strings.Contains(string(third[0].Body), `"statusCode":503`) {
		t.Errorf("the third: %v, expected the envelope of 503 and the end", third)
	}
	if ask(first) != 200 {
		t.Error("an open connection gets no response")
	}
	second.HTTP.CloseIdleConnections()
	await(t, "a new connection after one has closed", func() error {
		r, err := p.client("").Try("GET", "/healthz", "")
		if err == nil && r.Status != 200 {
			err = fmt.Errorf("%s", r)
		}
		return err
	})
}
