package conn

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"
)

// bound is how long a test waits for a condition.
const bound = 20 * time.Second

func until(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, condition)
		}
	}
}

// newServer returns a fasthttp server that reads requests as the edge does. /healthz gets 200, any other path 404, any method except
// GET and HEAD 405. Responses repeat X-Request-Id.
func newServer() *fasthttp.Server {
	return &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			if c, ok := ctx.Conn().(*Conn); ok {
				c.Answered()
			}
			ctx.Response.Header.SetBytesV("X-Request-Id", ctx.Request.Header.Peek("X-Request-Id"))
			switch {
			case !ctx.IsGet() && !ctx.IsHead():
				ctx.SetStatusCode(fasthttp.StatusMethodNotAllowed)
			case string(ctx.Path()) != "/healthz":
				ctx.SetStatusCode(fasthttp.StatusNotFound)
			default:
				ctx.SetBodyString(okBody)
			}
		},
		ReduceMemoryUsage: true, ReadBufferSize: MaxHeader, MaxRequestBodySize: 16 << 10,
		ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
}

// okBody is the body of /healthz.
const okBody = `{"status":"ok"}`

// serve serves newServer on a socket, within bounds, and returns its address.
func serve(t *testing.T, bounds *Bounds) string {
	t.Helper()
	ln, err := Listen("127.0.0.1:0", bounds)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- newServer().Serve(ln) }()
	t.Cleanup(func() {
		_ = ln.Close()
		<-served
	})
	return ln.Addr().String()
}

// head sends HEAD /healthz on a connection that can be used again, and returns the status of the response.
func head(c net.Conn) (int, error) {
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "HEAD /healthz HTTP/1.1\r\nHost: go.example.com\r\n\r\n"); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodHead})
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// checkRefused requires that a new connection gets a 503 envelope and is closed.
func checkRefused(t *testing.T, who string, c net.Conn) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(c)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatalf("%s: %v", who, err)
	}
	defer response.Body.Close()
	var envelope struct {
		StatusCode           int
		Error, Message, Path string
		Timestamp            time.Time
	}
	decoder := json.NewDecoder(response.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&envelope); err != nil {
		t.Fatalf("%s: the body is not an envelope: %v", who, err)
	}
	if response.StatusCode != 503 || !response.Close || response.Header.Get("Content-Type") != "application/json" ||
		envelope.StatusCode != 503 || envelope.Error != "Service Unavailable" || envelope.Message == "" || envelope.Path != "" ||
		time.Since(envelope.Timestamp).Abs() > time.Minute {
		t.Fatalf("%s: %s, headers %v, envelope %+v; expected 503 and the end", who, response.Status, response.Header, envelope)
	}
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Fatalf("%s: %q follows, %v; expected the end", who, rest, err)
	}
}

// Bytes are read ahead into a buffer of Conn. However a request is split between that buffer and fasthttp's, the response must be the same.
func TestRequestsInPiecesOfAnySizeGetTheSameResponses(t *testing.T) {
	t.Parallel()
	addr := serve(t, boundsOf(100))
	var sent strings.Builder
	statuses := []int{}
	add := func(status int, line, header, body string) {
		statuses = append(statuses, status)
		fmt.Fprintf(&sent, "%s HTTP/1.1\r\nHost: go.example.com\r\nX-Request-Id: %d\r\n%s\r\n%s", line, len(statuses), header, body)
	}
	length := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }
	small, large := "{}", strings.Repeat("x", 10<<10)
	add(200, "GET /healthz", "", "")
	add(405, "POST /healthz", length(small), small)
	add(200, "GET /healthz", "X: "+strings.Repeat("x", 6<<10)+"\r\n", "")
	add(405, "POST /healthz", length(large), large)
	add(405, "POST /healthz", "Transfer-Encoding: chunked\r\n", "2800\r\n"+large+"\r\n0\r\n\r\n")
	add(404, "GET /nothing", "", "")
	add(200, "GET /healthz", "X: "+strings.Repeat("x", 7<<10)+"\r\n", "")
	add(200, "GET /healthz", "Connection: close\r\n", "")
	raw := sent.String()
	for _, size := range []int{1, 7, 1000, aheadSize - 1, aheadSize, aheadSize + 1, len(raw)} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
			t.Fatal(err)
		}
		go func() {
			for rest := raw; len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := io.WriteString(c, rest[:n]); err != nil {
					return // the reader below reports it
				}
				rest = rest[n:]
			}
		}()
		reader := bufio.NewReader(c)
		for i, status := range statuses {
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("in pieces of %d bytes: response %d: %v", size, i+1, err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatalf("in pieces of %d bytes: body %d: %v", size, i+1, err)
			}
			if id := response.Header.Get("X-Request-Id"); response.StatusCode != status || id != fmt.Sprint(i+1) {
				t.Fatalf("in pieces of %d bytes: response %d is %d to request %q, expected %d", size, i+1, response.StatusCode, id, status)
			}
		}
		if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
			t.Errorf("in pieces of %d bytes: %q follows, %v; expected the end", size, rest, err)
		}
		_ = c.Close()
	}
}

// A thousand connections wait for their next request; both ends are in this process. With fasthttp's buffers each would take 24 KB.
func TestIdleConnectionHoldsNoBuffer(t *testing.T) { // not parallel: it measures the heap
	const connections, most = 1000, 8 << 10
	addr := serve(t, boundsOf(connections))
	heap := func() int64 {
		// Twice: the contents of a pool survive one collection.
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	open := make([]net.Conn, connections)
	buf := make([]byte, 4096)
	for i := range open {
		c := dial(t, addr)
		if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: go.example.com\r\nX: "+strings.Repeat("x", 500)+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(buf); err != nil || !strings.HasSuffix(string(buf[:n]), okBody) {
			t.Fatalf("response %q, %v", buf[:n], err)
		}
		open[i] = c
	}
	each := (heap() - before) / connections
	if each > most {
		t.Errorf("an idle connection takes %d bytes of the heap, expected at most %d", each, most)
	}
	runtime.KeepAlive(open)
}

// moves counts the deadlines that are set on the socket.
type moves struct {
	net.Conn
	read, write atomic.Int64
}

func (m *moves) SetReadDeadline(t time.Time) error {
	m.read.Add(1)
	return m.Conn.SetReadDeadline(t)
}

func (m *moves) SetWriteDeadline(t time.Time) error {
	m.write.Add(1)
	return m.Conn.SetWriteDeadline(t)
}

func TestBusyConnectionMovesItsDeadlinesOnceASecond(t *testing.T) {
	new(fasthttp.ResponseHeader).Header() // starts a goroutine of fasthttp that never ends, which the bubble would wait for
	synctest.Test(t, func(t *testing.T) {
		client, end := net.Pipe()
		moved := &moves{Conn: end}
		ended := make(chan error, 1)
		go func() { ended <- newServer().ServeConn(newConn(moved)) }()
		buf := make([]byte, 4096)
		const requests, pause = 1000, 10 * time.Millisecond
		for range requests {
			if _, err := io.WriteString(client, "GET /healthz HTTP/1.1\r\nHost: go.example.com\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			n, err := client.Read(buf)
			if err != nil || !strings.HasSuffix(string(buf[:n]), okBody) {
				t.Fatalf("response %q, %v", buf[:n], err)
			}
			time.Sleep(pause)
		}
		client.Close()
		<-ended
		// One a second each, and one more for reading, at the first request.
		seconds := int64(requests * pause / time.Second)
		if read, write := moved.read.Load(), moved.write.Load(); read > seconds+2 || write > seconds+1 {
			t.Errorf("%d requests in %d seconds moved the deadlines %d and %d times", requests, seconds, read, write)
		}
	})
}
