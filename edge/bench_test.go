package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"deeplink/edge/internal/clicks"
	"deeplink/edge/internal/match"
	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/replica"
	"deeplink/edge/internal/wellknown"
	"deeplink/shared/bus"
	"deeplink/shared/ratelimit"
	"deeplink/shared/settings"
	"deeplink/shared/testkit"
)

// warmServer returns a server that does not listen. Its replica holds a lease on a real database with the link abcd/Promo1.
func warmServer(t testing.TB) *server {
	t.Helper()
	database := testkit.NewDatabase(t)
	r := rows{t, testkit.Connect(t, database.URL)}
	organization := r.organization("abcd")
	r.link(organization, "Bare", nil)
	r.link(organization, "Promo1", map[string]any{
		"path": "/spring/sale", "fallback_url": "https://shop.example.com/spring/sale?ref=deeplink#top",
		"utm_source": "newsletter", "utm_medium": "email", "utm_campaign": "spring sale",
		"og_title": "The spring sale", "og_description": "Light jackets, linen shirts and all that the first warm days want.",
		"og_image_url": "https://cdn.example.com/spring/sale.jpg",
	})
	r.exec(`insert into app_configs (organization_id, ios_scheme, ios_app_store_id, android_scheme, android_package_name)
		values ($1, 'shop', '123456789', 'shop', 'com.example.shop')`, organization)
	c := &options{
		DatabaseURL: settings.Database(database.EdgeURL), LinkBaseURL: base, Lease: 2 * time.Second, StaleIfError: time.Minute,
		MatchTokenKeys: testTokenKeys,
	}
	config, err := c.DatabaseURL.Config()
	if err != nil {
		t.Fatal(err)
	}
	from, err := origin.Open(context.Background(), string(c.DatabaseURL), 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Close)
	wantErrorPages := new(errorPages)
	redisURL := testkit.NewRedis(t).URL()
	tokens, err := match.Open(context.Background(), match.Options{
		DatabaseURL: string(c.DatabaseURL), RedisURL: redisURL, LinkBaseURL: base, Keys: c.MatchTokenKeys.keys(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	hints, err := bus.Open(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hints.Close() })
	links, err := replica.New(replica.Options{
		Database: config, Redis: hints, Slot: "test", Lease: c.Lease, StaleIfError: c.StaleIfError, CacheBytes: 16 << 20,
		Load: newLoad(from, base, wantErrorPages), IsFile: wellknown.IsFile, Log: discard,
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
		links.Close()
	})
	until(t, "a lease", func() bool { return links.Ready() == nil })
	recorder, err := clicks.New(clicks.Options{On: true, Dir: t.TempDir(), Bytes: 1 << 30, Sync: time.Second, Database: config, Slot: "test", Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	recorder.Register(t.Context())
	recording := make(chan error, 1)
	go func() { recording <- recorder.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-recording, recorder.Finish(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return newServer(c, links, wantErrorPages, tokens, recorder, discard)
}

// requestOf returns the request of a browser for a short URL.
func requestOf(agent, path string) string {
	return "GET " + path + ` HTTP/1.1
Host: go.example.com
User-Agent: ` + agent + `
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

// within runs f in a fasthttp handler, on a request that fasthttp has read: only fasthttp can set the time of a request.
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

// wireConn is the server's end of a connection on which the client has sent everything.
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
	name, agent, path string
	status            int
}{
	{"redirect", windowsChrome, "/abcd/promo1", 302},
	{"redirect with query", windowsChrome, "/abcd/Promo1?utm_source=twitter&gclid=EAIaIQobChMI_x-7&q=a%20b", 302},
	{"data", windowsChrome, "/abcd/Promo1/data", 200},
	{"iOS", iPhoneSafari, "/abcd/promo1", 200},
	{"iOS with query", iPhoneSafari, "/abcd/promo1?utm_source=twitter&gclid=EAIaIQobChMI_x-7&q=a%20b", 200},
	{"Android", pixelChrome, "/abcd/promo1", 200},
	{"preview", slackBot, "/abcd/promo1", 200},
	{"landing", windowsChrome, "/abcd/bare", 200},
}

func TestHitsDoNotAllocate(t *testing.T) {
	s := warmServer(t)
	// The allocations for the nonce of a page: none, except under the race detector, where crypto/rand allocates.
	nonce := testing.AllocsPerRun(100, func() {
		var random [16]byte
		_, _ = rand.Read(random[:])
	})
	for _, hot := range hotPaths {
		t.Run(hot.name, func(t *testing.T) {
			within(t, requestOf(hot.agent, hot.path), func(ctx *fasthttp.RequestCtx) {
				answer := func() {
					// Keep the body's memory: under the race detector, fasthttp's pool drops some of what is returned to it.
					ctx.Response.Header.Reset()
					s.handle(ctx)
				}
				n := 0
				// Repeat until the link is cached and every buffer has its size; polls in the background can only add allocations. All
				// requests have the same time, so one address may send fewer than the rate limit.
				until(t, hot.path+" is answered without an allocation", func() bool {
					n++
					ctx.SetRemoteAddr(clientAddr(n))
					for range 300 {
						answer()
					}
					allocations := testing.AllocsPerRun(100, answer)
					if bytes.HasPrefix(ctx.Response.Header.ContentType(), []byte("text/html")) {
						allocations -= nonce
					}
					return allocations == 0
				})
				if got := ctx.Response.StatusCode(); got != hot.status {
					t.Errorf("%s: status %d, expected %d", hot.path, got, hot.status)
				}
			})
		})
	}
}

// TestMillionHitsDoNotAllocate counts the allocations of the handler over a million hits, with recording on. It asks the profile of memory,
// which has the stack of each allocation: those of polls and of the shipper do not count.
func TestMillionHitsDoNotAllocate(t *testing.T) {
	const hits = 1_000_000
	s := warmServer(t)
	// All requests have the same time, so the window has no length: no request exceeds the limit.
	s.limiter = ratelimit.NewMemory(ratelimit.Surface{Limit: ratelimit.Resolution.Limit}, 1<<16)
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	within(t, requestOf(windowsChrome, "/abcd/promo1"), func(ctx *fasthttp.RequestCtx) {
		ctx.SetRemoteAddr(clientAddr(1)) // that of wireConn is allocated for each call
		hit := func() {
			ctx.Response.Header.Reset()
			s.handle(ctx)
		}
		for range 1000 {
			hit()
		}
		before := allocationsIn(t, ".(*server).handle")
		runtime.MemProfileRate = 1
		for range hits {
			hit()
		}
		runtime.MemProfileRate = 0
		if got := allocationsIn(t, ".(*server).handle") - before; got != 0 {
			t.Errorf("%d allocations over %d hits, expected none", got, hits)
		}
		if got := ctx.Response.StatusCode(); got != fasthttp.StatusFound {
			t.Errorf("status %d", got)
		}
	})
}

// allocationsIn returns how many objects were allocated while a function ran, as far as the profile of memory has them.
func allocationsIn(t *testing.T, function string) (objects int64) {
	t.Helper()
	for range 3 { // the profile has what was allocated before the second to last collection
		runtime.GC()
	}
	records := make([]runtime.MemProfileRecord, 1<<16)
	n, ok := runtime.MemProfile(records, true)
	if !ok {
		t.Fatalf("%d records of memory, more than expected", n)
	}
	for _, record := range records[:n] {
		frames := runtime.CallersFrames(record.Stack())
		for more := true; more; {
			var frame runtime.Frame
			if frame, more = frames.Next(); strings.HasSuffix(frame.Function, function) {
				objects += record.AllocObjects
				if record.AllocObjects > 0 {
					t.Logf("%d objects:%s", record.AllocObjects, stackOf(record))
				}
				break
			}
		}
	}
	return objects
}

// stackOf returns the functions of an allocation, innermost first.
func stackOf(record runtime.MemProfileRecord) (functions string) {
	frames := runtime.CallersFrames(record.Stack())
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		functions += " " + frame.Function
	}
	return functions
}

func BenchmarkRedirectHit(b *testing.B)    { benchmarkHits(b, "redirect", "redirect with query", "data") }
func BenchmarkHandoffIOS(b *testing.B)     { benchmarkHits(b, "iOS", "iOS with query") }
func BenchmarkHandoffAndroid(b *testing.B) { benchmarkHits(b, "Android") }
func BenchmarkPreview(b *testing.B)        { benchmarkHits(b, "preview") }
func BenchmarkLanding(b *testing.B)        { benchmarkHits(b, "landing") }

// benchmarkHits requests the hot paths with these names.
func benchmarkHits(b *testing.B, names ...string) {
	s := warmServer(b)
	// All requests have the same time, so the window has no length: no request exceeds the limit.
	s.limiter = ratelimit.NewMemory(ratelimit.Surface{Limit: ratelimit.Resolution.Limit}, 1<<16)
	clients := make([]net.Addr, 1<<12)
	for i := range clients {
		clients[i] = clientAddr(i)
	}
	for _, hot := range hotPaths {
		if !slices.Contains(names, hot.name) {
			continue
		}
		b.Run(hot.name, func(b *testing.B) {
			within(b, requestOf(hot.agent, hot.path), func(ctx *fasthttp.RequestCtx) {
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

// BenchmarkRecordingCost compares a redirect with and without the record of its click, in interleaved turns, and reports the medians. It
// measures the processor time of its own thread, so that other processes and the shipper disturb it little.
func BenchmarkRecordingCost(b *testing.B) {
	s := warmServer(b)
	s.limiter = ratelimit.NewMemory(ratelimit.Surface{Limit: ratelimit.Resolution.Limit}, 1<<16)
	recorders := [2]*clicks.Recorder{new(clicks.Recorder), s.clicks}
	clients := make([]net.Addr, 1<<12)
	for i := range clients {
		clients[i] = clientAddr(i)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const requests = 500
	var alone, differences []float64
	within(b, requestOf(windowsChrome, "/abcd/promo1"), func(ctx *fasthttp.RequestCtx) {
		n := 0
		for b.Loop() {
			var took [2]time.Duration
			for i, recorder := range recorders {
				s.clicks = recorder
				start := threadTime(b)
				for range requests {
					ctx.Response.Reset()
					ctx.SetRemoteAddr(clients[n%len(clients)])
					n++
					s.handle(ctx)
				}
				took[i] = threadTime(b) - start
			}
			alone = append(alone, float64(took[0])/requests)
			differences = append(differences, float64(took[1]-took[0])/requests)
			time.Sleep(time.Millisecond) // so that the disk keeps up, as at the rate of a server
		}
	})
	slices.Sort(alone)
	slices.Sort(differences)
	b.ReportMetric(alone[len(alone)/2], "ns/unrecorded")
	b.ReportMetric(differences[len(differences)/2], "ns/click")
}

// threadTime returns the processor time of the calling thread.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return time.Duration(now.Nano())
}
