package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/replica"
	"deeplink/shared/bus"
	"deeplink/shared/ratelimit"
	"deeplink/shared/settings"
	"deeplink/shared/testdb"
	"deeplink/shared/testredis"
)

// warmServer is a server, not listening, whose replica holds a lease on a real database with the link abcd/Promo1 and has it in
// memory.
func warmServer(t testing.TB) *server {
	t.Helper()
	database := testdb.New(t)
	r := rows{t, connect(t, database.URL)}
	organization := r.organization("abcd")
	r.link(organization, "Promo1", map[string]any{
		"fallback_url": "https://shop.example.com/spring/sale?ref=deeplink#top", "utm_source": "newsletter", "utm_medium": "email", "utm_campaign": "spring sale",
	})
	c := &options{DatabaseURL: settings.Database(database.EdgeURL), LinkBaseURL: base, Lease: 2 * time.Second, StaleIfError: time.Minute}
	config, err := c.DatabaseURL.Config()
	if err != nil {
		t.Fatal(err)
	}
	from, err := origin.Open(context.Background(), string(c.DatabaseURL), 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Close)
	hints, err := bus.Open(testredis.New(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hints.Close() })
	links, err := replica.New(replica.Options{
		Database: config, Redis: hints, Slot: "test", Lease: c.Lease, StaleIfError: c.StaleIfError, CacheBytes: 16 << 20,
		Load: loadFrom(from, base), Log: discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- links.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	until(t, "a lease", func() bool { return links.Ready() == nil })
	return newServer(c, links, discard)
}

// click is what a browser sends for a short URL.
func click(path string) string {
	return "GET " + path + ` HTTP/1.1
Host: go.example.com
User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8
Accept-Encoding: gzip, deflate, br, zstd
Accept-Language: en-GB,en;q=0.9,de;q=0.8
Sec-Ch-Ua: "Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"
Sec-Ch-Ua-Mobile: ?0
Sec-Ch-Ua-Platform: "Windows"
Sec-Fetch-Dest: document
Sec-Fetch-Mode: navigate
Sec-Fetch-Site: cross-site
Upgrade-Insecure-Requests: 1
Referer: https://mail.example.net/

`
}

// within runs f inside a handler of fasthttp's, on a request that fasthttp has read: only it can set the time of a request.
func within(t testing.TB, raw string, f func(*fasthttp.RequestCtx)) {
	t.Helper()
	called := false
	server := &fasthttp.Server{NoDefaultServerHeader: true, NoDefaultContentType: true, Handler: func(ctx *fasthttp.RequestCtx) {
		called = true
		f(ctx)
	}}
	wire := bytes.ReplaceAll([]byte(raw), []byte("\n"), []byte("\r\n"))
	if err := server.ServeConn(&wireConn{in: bytes.NewReader(wire)}); err != nil || !called {
		t.Fatalf("serve %.60q: %v, handler called: %v", raw, err, called)
	}
}

// wireConn is the server's end of a connection on which a client has sent all that it will.
type wireConn struct {
	net.Conn
	in *bytes.Reader
}

func (c *wireConn) Read(b []byte) (int, error)       { return c.in.Read(b) }
func (c *wireConn) Write(b []byte) (int, error)      { return io.Discard.Write(b) }
func (c *wireConn) Close() error                     { return nil }
func (c *wireConn) LocalAddr() net.Addr              { return clientAddr(0) }
func (c *wireConn) RemoteAddr() net.Addr             { return clientAddr(0) }
func (c *wireConn) SetReadDeadline(time.Time) error  { return nil }
func (c *wireConn) SetWriteDeadline(time.Time) error { return nil }

// clientAddr returns one of 65,536 addresses.
func clientAddr(n int) *net.TCPAddr {
	return &net.TCPAddr{IP: net.IPv4(198, 51, byte(n>>8), byte(n)), Port: 40000}
}

var hotPaths = []struct {
	name, path string
	status     int
}{
	{"redirect", "/abcd/promo1", 302},
	{"redirect with query", "/abcd/Promo1?utm_source=twitter&gclid=EAIaIQobChMI_x-7&q=a%20b", 302},
	{"data", "/abcd/Promo1/data", 200},
}

func TestHitsDoNotAllocate(t *testing.T) {
	s := warmServer(t)
	for _, hot := range hotPaths {
		t.Run(hot.name, func(t *testing.T) {
			within(t, click(hot.path), func(ctx *fasthttp.RequestCtx) {
				answer := func() {
					ctx.Response.Reset()
					s.handle(ctx)
				}
				n := 0
				// Until the replica has the link in memory and every buffer its size; what polls meanwhile can only add. All requests
				// have one time, so that one address may send fewer than the rate limit.
				until(t, hot.path+" is answered without an allocation", func() bool {
					n++
					ctx.SetRemoteAddr(clientAddr(n))
					for range 300 {
						answer()
					}
					return testing.AllocsPerRun(100, answer) == 0
				})
				if got := ctx.Response.StatusCode(); got != hot.status {
					t.Errorf("%s: status %d, expected %d", hot.path, got, hot.status)
				}
			})
		})
	}
}

func BenchmarkRedirectHit(b *testing.B) {
	s := warmServer(b)
	// The time of the request stands still here: in a window of no length none of them is too many.
	s.limiter = ratelimit.NewMemory(ratelimit.Surface{Limit: ratelimit.Resolution.Limit}, maxClients)
	clients := make([]net.Addr, 1<<12)
	for i := range clients {
		clients[i] = clientAddr(i)
	}
	for _, hot := range hotPaths {
		b.Run(hot.name, func(b *testing.B) {
			within(b, click(hot.path), func(ctx *fasthttp.RequestCtx) {
				n := 0
				answer := func() {
					ctx.Response.Reset()
					ctx.SetRemoteAddr(clients[n%len(clients)])
					n++
					s.handle(ctx)
				}
				for range 1000 {
					answer()
				}
				b.ReportAllocs()
				for b.Loop() {
					answer()
				}
				if got := ctx.Response.StatusCode(); got != hot.status {
					b.Fatalf("status %d after %d requests, expected %d", got, n, hot.status)
				}
			})
		})
	}
}
